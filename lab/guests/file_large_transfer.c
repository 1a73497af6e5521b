/* Five megabytes in one write and one read, at the offset where they belong. */
#include "travel.h"

enum { SIZE = 5 << 20 };

int main(void)
{
    unsigned char *bytes = malloc(SIZE), *back = calloc(1, SIZE);
    fill(bytes, SIZE, 71);
    int fd = (int)must(open("large", O_RDWR | O_CREAT | O_TRUNC, 0644), "open");
    travel();
    CHECK(write(fd, bytes, SIZE) == SIZE, "one write takes all");
    travel();
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, back, SIZE) == SIZE, "one read gives all");
    CHECK(memcmp(bytes, back, SIZE) == 0, "every byte as it was");
    CHECK(pread(fd, back, SIZE, SIZE - 3) == 3, "at the end there is less");
    CHECK(memcmp(bytes + SIZE - 3, back, 3) == 0, "but that is right");
    CHECK(read(fd, back, SIZE) == 0, "and then nothing");
    return verdict();
}
