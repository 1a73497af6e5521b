/* flock belongs to the open file: a child inherits it, another open waits for it across moves. */
#include "travel.h"
#include <sys/file.h>

static void lock_and_leave(void)
{
    int other = (int)must(open("door", O_RDWR), "open");
    int was_held = flock(other, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK;
    int waited = flock(other, LOCK_EX) == 0;
    _exit(was_held && waited ? 0 : 8);
}

int main(void)
{
    int fd = (int)must(open("door", O_RDWR | O_CREAT, 0644), "open");
    for (int round = 0; round < 2; round++) {
        CHECK(flock(fd, LOCK_EX) == 0, "locked");
        fflush(stdout);
        pid_t child = (pid_t)must(fork(), "fork");
        if (child == 0) {
            close(fd);
            lock_and_leave();
        }
        travel();
        CHECK(flock(fd, LOCK_UN) == 0, "unlocked");
        join_child(child);
    }
    int other = (int)must(open("door", O_RDWR), "open");
    CHECK(flock(fd, LOCK_SH) == 0 && flock(other, LOCK_SH | LOCK_NB) == 0, "shared by two");
    travel();
    CHECK(flock(other, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK, "by one alone: not yet");
    close(fd);
    CHECK(flock(other, LOCK_EX | LOCK_NB) == 0, "when the other is closed");
    return verdict();
}
