/* The heap's break grows and shrinks after a move, its bytes stay, and fresh pages are zero. */
#include "travel.h"

enum { SIZE = 1 << 20 };

int main(void)
{
    unsigned char *start = sbrk(0);
    must(sbrk(SIZE) == (void *)-1 ? -1 : 0, "sbrk");
    fill(start, SIZE, 1);
    for (int round = 0; round < 2; round++) {
        travel();
        CHECK(sbrk(0) == start + SIZE, "the break is where it was");
        CHECK(is_filled(start, SIZE, 1), "its bytes are too");
        CHECK(sbrk(SIZE) == start + SIZE, "it grows");
        CHECK(start[SIZE] == 0 && start[2 * SIZE - 1] == 0, "with zeros");
        memset(start + SIZE, 0xee, SIZE);
        CHECK(sbrk(-SIZE) == start + 2 * SIZE && sbrk(0) == start + SIZE, "it shrinks");
    }
    CHECK(brk(start) == 0 && sbrk(0) == start, "and goes back to its start");
    return verdict();
}
