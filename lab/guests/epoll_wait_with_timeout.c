/* epoll_wait is not interrupted by a move, lasts as asked, and returns the cookie of its event. */
/* not stopped: the kernel ends epoll_wait with EINTR when a stopped process continues */
#include "travel.h"
#include <sys/epoll.h>

static int pipe_fds[2];

static void write_byte(void)
{
    must(write(pipe_fds[1], "z", 1), "write");
}

int main(void)
{
    must(pipe(pipe_fds), "pipe");
    int set = (int)must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    struct epoll_event wish = {.events = EPOLLIN, .data.u64 = 0x1122334455667788}, seen[4];
    must(epoll_ctl(set, EPOLL_CTL_ADD, pipe_fds[0], &wish), "epoll_ctl");
    int timeout_ms = (int)travel_ms();
    double start_s = now_s();
    CHECK(epoll_wait(set, seen, 4, timeout_ms) == 0, "epoll_wait times out");
    CHECK(lasted(now_s() - start_s, timeout_ms / 1000.0), "epoll_wait lasts as asked");
    pid_t child = child_after_travel(write_byte);
    CHECK(epoll_wait(set, seen, 4, -1) == 1, "epoll_wait sees the byte");
    CHECK(seen[0].events == EPOLLIN, "as readable");
    CHECK(seen[0].data.u64 == 0x1122334455667788, "with its cookie");
    join_child(child);
    wish.events = EPOLLIN | EPOLLET;
    must(epoll_ctl(set, EPOLL_CTL_MOD, pipe_fds[0], &wish), "epoll_ctl");
    CHECK(epoll_wait(set, seen, 4, 0) == 1, "an edge is told once");
    CHECK(epoll_wait(set, seen, 4, timeout_ms) == 0, "and not again");
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, pipe_fds[0], NULL) == 0, "the pipe leaves the set");
    return verdict();
}
