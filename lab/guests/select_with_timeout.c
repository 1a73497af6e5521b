/* select lasts as long as asked, tells the descriptors that are ready, and counts its time down. */
#include "travel.h"
#include <sys/select.h>

static int pipe_fds[2];

static void write_byte(void)
{
    must(write(pipe_fds[1], "y", 1), "write");
}

int main(void)
{
    must(pipe(pipe_fds), "pipe");
    fd_set readable, writable;
    FD_ZERO(&readable);
    FD_SET(pipe_fds[0], &readable);
    double asked_s = travel_ms() / 700.0, start_s = now_s();
    struct timeval wait = {(time_t)asked_s, (long)((asked_s - (time_t)asked_s) * 1e6)};
    CHECK(select(pipe_fds[0] + 1, &readable, NULL, NULL, &wait) == 0, "select times out");
    CHECK(lasted(now_s() - start_s, asked_s), "select lasts as asked");
    CHECK(wait.tv_sec == 0 && wait.tv_usec == 0, "no time is left");
    pid_t child = child_after_travel(write_byte);
    FD_SET(pipe_fds[0], &readable);
    wait.tv_sec = 20;
    int ready = select(pipe_fds[0] + 1, &readable, NULL, NULL, &wait);
    CHECK(ready == 1 && FD_ISSET(pipe_fds[0], &readable), "select sees the byte");
    CHECK(wait.tv_sec >= 10 && wait.tv_sec < 20, "the remaining time is told");
    join_child(child);
    FD_ZERO(&writable);
    FD_SET(pipe_fds[1], &writable);
    CHECK(select(pipe_fds[1] + 1, NULL, &writable, NULL, NULL) == 1, "the pipe takes more");
    return verdict();
}
