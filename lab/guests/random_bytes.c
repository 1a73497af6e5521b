/* getrandom and /dev/urandom give fresh bytes before and after moves, in parent and child. */
#include "travel.h"
#include <sys/random.h>

int main(void)
{
    unsigned char drawn[7][16];
    int pipe_fds[2], same = 0;
    must(pipe(pipe_fds), "pipe");
    CHECK(getrandom(drawn[0], 16, 0) == 16, "at home");
    travel();
    CHECK(getrandom(drawn[1], 16, 0) == 16, "after a move");
    int fd = (int)must(open("/dev/urandom", O_RDONLY), "open");
    CHECK(read(fd, drawn[2], 16) == 16, "from the device");
    fflush(stdout);
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        unsigned char mine[16];
        must(getrandom(mine, 16, 0), "getrandom");
        must(write(pipe_fds[1], mine, 16), "write");
        _exit(0);
    }
    CHECK(getrandom(drawn[3], 16, 0) == 16, "in the parent");
    CHECK(read_fully(pipe_fds[0], drawn[4], 16) == 16, "in the child");
    join_child(child);
    travel();
    CHECK(getrandom(drawn[5], 16, GRND_NONBLOCK) == 16, "after another move");
    CHECK(getrandom(drawn[6], 16, GRND_RANDOM) == 16, "of the better kind");
    for (int i = 0; i < 7; i++) {
        for (int j = 0; j < i; j++) {
            same += memcmp(drawn[i], drawn[j], 16) == 0;
        }
    }
    CHECK(same == 0, "no draw is like another");
    return verdict();
}
