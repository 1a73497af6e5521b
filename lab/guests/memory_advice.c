/* Advice that fork obeys (DONTFORK, WIPEONFORK) is still known after a move. */
#include "travel.h"

enum { PAGE = 4096 };

int main(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *room = mmap(NULL, 9 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    unsigned char *gone = room, *wiped = room + 3 * PAGE, *kept = room + 6 * PAGE;
    fill(room, 9 * PAGE, 3);
    CHECK(madvise(gone, 2 * PAGE, MADV_DONTFORK) == 0, "a part that children do not get");
    CHECK(madvise(wiped, 2 * PAGE, MADV_WIPEONFORK) == 0, "a part that they get empty");
    travel();
    CHECK(is_filled(room, 9 * PAGE, 3), "all is here after a move");
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        unsigned char in_core;
        int is_gone = mincore(gone, PAGE, &in_core) == -1 && errno == ENOMEM;
        _exit((is_gone ? 0 : 1) + (wiped[5] == 0 ? 0 : 2) + (kept[0] || kept[1] ? 0 : 4));
    }
    join_child(child);
    CHECK(is_filled(room, 9 * PAGE, 3), "the parent has lost nothing");
    return verdict();
}
