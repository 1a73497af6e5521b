/* A file is mapped, shared and written, after a move: the file gets what the memory got. */
#include "travel.h"

enum { PAGE = 4096, SIZE = 4 * PAGE };

int main(void)
{
    travel();
    int fd = (int)must(open("written", O_RDWR | O_CREAT | O_TRUNC, 0644), "open");
    must(ftruncate(fd, SIZE), "ftruncate");
    unsigned char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED, "the file is mapped");
    fill(map, SIZE, 51);
    CHECK(msync(map, SIZE, MS_SYNC) == 0, "and written back");
    static unsigned char bytes[SIZE];
    CHECK(pread(fd, bytes, SIZE, 0) == SIZE && is_filled(bytes, SIZE, 51), "the file has it");
    travel();
    must(pwrite(fd, "seen", 4, 2 * PAGE), "pwrite");
    CHECK(memcmp(map + 2 * PAGE, "seen", 4) == 0, "the memory sees the file");
    memcpy(map + PAGE, "also", 4);
    CHECK(pread(fd, bytes, 4, PAGE) == 4 && !memcmp(bytes, "also", 4), "and the file the memory");
    return verdict();
}
