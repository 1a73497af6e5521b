/* A shared mapping keeps its contents when it is made read-only, at home and away. */
#include "travel.h"

enum { SIZE = 12 * 4096 };

int main(void)
{
    char *room = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(room == MAP_FAILED ? -1 : 0, "mmap");
    fill(room, SIZE, 31);
    must(mprotect(room, SIZE, PROT_READ), "mprotect");
    travel();
    CHECK(is_filled(room, SIZE, 31), "read-only before it moves");
    must(mprotect(room, SIZE, PROT_READ | PROT_WRITE), "mprotect");
    fill(room, SIZE, 32);
    must(mprotect(room, SIZE / 2, PROT_READ), "mprotect");
    must(mprotect(room + SIZE / 2, SIZE / 2, PROT_NONE), "mprotect");
    travel();
    CHECK(is_filled(room, SIZE / 2, 32), "read-only where it was then");
    must(mprotect(room, SIZE, PROT_READ), "mprotect");
    CHECK(is_filled(room, SIZE, 32), "and what nobody could read");
    char byte;
    int ends[2];
    must(pipe(ends), "pipe");
    must(write(ends[1], "x", 1), "write");
    CHECK(read(ends[0], room, 1) == -1 && errno == EFAULT, "it is read-only still");
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x', "nothing was taken");
    return verdict();
}
