/* A read-only shared mapping of a file shows the file, also pages that are first read abroad. */
#include "travel.h"

enum { PAGE = 4096, SIZE = 64 * PAGE };

int main(void)
{
    static unsigned char bytes[SIZE];
    fill(bytes, SIZE, 31);
    int fd = (int)must(open("shown", O_RDWR | O_CREAT | O_TRUNC, 0600), "open");
    write_fully(fd, bytes, SIZE);
    close(fd);
    fd = (int)must(open("shown", O_RDONLY), "open");
    unsigned char *map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    must(map == MAP_FAILED ? -1 : 0, "mmap");
    close(fd);
    CHECK(memcmp(map, bytes, 8 * PAGE) == 0, "pages read at home");
    travel();
    CHECK(memcmp(map, bytes, 32 * PAGE) == 0, "pages read after a move");
    travel();
    CHECK(memcmp(map, bytes, SIZE) == 0, "and after another");
    CHECK(munmap(map, SIZE) == 0, "the map goes");
    return verdict();
}
