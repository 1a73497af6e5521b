/* A private mapping of a file keeps its own writes and the file's bytes; the file is unchanged. */
#include "travel.h"

enum { PAGE = 4096, SIZE = 8 * PAGE };

int main(void)
{
    static unsigned char bytes[SIZE];
    fill(bytes, SIZE, 9);
    int fd = (int)must(open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600), "open");
    write_fully(fd, bytes, SIZE);
    unsigned char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    must(map == MAP_FAILED ? -1 : 0, "mmap");
    map[PAGE] ^= 0xff;
    for (int round = 0; round < 2; round++) {
        travel();
        CHECK(map[PAGE] == (bytes[PAGE] ^ 0xff), "a written page keeps what was written");
        CHECK(memcmp(map, bytes, PAGE) == 0, "a page never touched is the file's");
        CHECK(memcmp(map + 2 * PAGE, bytes + 2 * PAGE, SIZE - 2 * PAGE) == 0, "and the others");
        map[7 * PAGE + round] = bytes[7 * PAGE + round];
    }
    unsigned char byte;
    CHECK(pread(fd, &byte, 1, PAGE) == 1 && byte == bytes[PAGE], "the file is unchanged");
    close(fd);
    unlink("mapped");
    travel();
    CHECK(memcmp(map + 4 * PAGE, bytes + 4 * PAGE, PAGE) == 0, "the map outlives the file's name");
    return verdict();
}
