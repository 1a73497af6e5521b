/* A shared mapping whose other user has ended travels like any other memory. */
#include "travel.h"

enum { SIZE = 40 * 4096 };

int main(void)
{
    char *room = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(room == MAP_FAILED ? -1 : 0, "mmap");
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        fill(room, SIZE, 21);
        _exit(0);
    }
    join_child(child);
    CHECK(is_filled(room, SIZE, 21), "the child wrote it");
    travel();
    CHECK(is_filled(room, SIZE, 21), "it is as it was");
    fill(room, SIZE, 22);
    travel();
    CHECK(is_filled(room, SIZE, 22), "and can be written");
    child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        _exit(is_filled(room, SIZE, 22) ? 0 : 6);
    }
    join_child(child);
    return verdict();
}
