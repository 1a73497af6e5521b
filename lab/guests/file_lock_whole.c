/* flock belongs to the open file: a child inherits it, another open waits for it across moves. */
#include "travel.h"
#include <sys/file.h>

/* Finds the lock held, tells that, and waits for it. */
static void lock_and_leave(int found_held)
{
    int other = (int)must(open("door", O_RDWR), "open");
    if (flock(other, LOCK_EX | LOCK_NB) != -1 || errno != EWOULDBLOCK) {
        _exit(8);
    }
    must(write(found_held, "h", 1), "write");
    _exit(flock(other, LOCK_EX) == 0 ? 0 : 9);
}

int main(void)
{
    int fd = (int)must(open("door", O_RDWR | O_CREAT, 0644), "open");
    for (int round = 0; round < 2; round++) {
        int found_held[2];
        must(pipe(found_held), "pipe");
        CHECK(flock(fd, LOCK_EX) == 0, "locked");
        fflush(stdout);
        pid_t child = (pid_t)must(fork(), "fork");
        if (child == 0) {
            close(fd);
            lock_and_leave(found_held[1]);
        }
        close(found_held[1]);
        char told;
        CHECK(read(found_held[0], &told, 1) == 1, "the child found it held");
        close(found_held[0]);
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
