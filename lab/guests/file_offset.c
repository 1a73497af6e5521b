/* An open file keeps its offset and flags; duplicates share the offset, another open does not. */
#include "travel.h"

int main(void)
{
    char text[8] = "";
    int first = (int)must(open("digits", O_RDWR | O_CREAT | O_TRUNC, 0644), "open");
    must(write(first, "0123456789", 10), "write");
    must(lseek(first, 3, SEEK_SET), "lseek");
    int same = (int)must(dup2(first, 77), "dup2"), other = (int)must(open("digits", 0), "open");
    must(fcntl(first, F_SETFD, FD_CLOEXEC), "F_SETFD");
    travel();
    CHECK(lseek(first, 0, SEEK_CUR) == 3, "the offset is kept");
    CHECK(read(first, text, 2) == 2 && memcmp(text, "34", 2) == 0, "and read from");
    CHECK(read(same, text, 2) == 2 && memcmp(text, "56", 2) == 0, "a duplicate shares it");
    CHECK(read(other, text, 2) == 2 && memcmp(text, "01", 2) == 0, "another open has its own");
    travel();
    CHECK(lseek(first, 0, SEEK_CUR) == 7 && lseek(other, 0, SEEK_CUR) == 2, "both are kept");
    CHECK(fcntl(first, F_GETFD) == FD_CLOEXEC && fcntl(same, F_GETFD) == 0, "flags of each");
    CHECK((fcntl(other, F_GETFL) & O_ACCMODE) == O_RDONLY, "one is read-only");
    CHECK(write(other, "x", 1) == -1 && errno == EBADF, "and cannot be written");
    CHECK(lseek(first, -4, SEEK_END) == 6, "seeking from the end");
    int low = dup(0);
    close(first);
    CHECK(low > first && dup(0) == first, "the lowest free number is given");
    return verdict();
}
