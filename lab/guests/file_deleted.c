/* A deleted file lives on while it is open: read, written, and seen to have no name. */
#include "travel.h"

int main(void)
{
    struct stat status;
    char text[16] = "", link[PATH_MAX] = "";
    int fd = (int)must(open("doomed", O_RDWR | O_CREAT | O_TRUNC, 0600), "open");
    must(write(fd, "last words", 10), "write");
    must(unlink("doomed"), "unlink");
    int hidden = (int)must(open(".", O_TMPFILE | O_RDWR, 0600), "O_TMPFILE");
    must(write(hidden, "never seen", 10), "write");
    for (int round = 0; round < 2; round++) {
        travel();
        CHECK(fstat(fd, &status) == 0 && status.st_nlink == 0, "it has no name");
        CHECK(pread(fd, text, 10, 0) == 10 && !strcmp(text, "last words"), "but its words");
        CHECK(pread(hidden, text, 10, 0) == 10 && !strcmp(text, "never seen"), "a nameless one");
        CHECK(access("doomed", F_OK) == -1 && errno == ENOENT, "nobody else sees it");
    }
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(readlink(path, link, sizeof link - 1) > 0, "/proc/self/fd knows it");
    CHECK(strstr(link, "doomed (deleted)") != NULL, "as deleted");
    return verdict();
}
