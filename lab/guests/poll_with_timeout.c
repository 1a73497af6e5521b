/* poll with a timeout lasts as long as asked, and sees a pipe become readable or hung up. */
#include "travel.h"
#include <poll.h>

static int pipe_fds[2];

static void write_byte(void)
{
    must(write(pipe_fds[1], "x", 1), "write");
}

int main(void)
{
    must(pipe(pipe_fds), "pipe");
    struct pollfd end = {.fd = pipe_fds[0], .events = POLLIN};
    int timeout_ms = (int)travel_ms() * 3 / 2;
    double start_s = now_s();
    CHECK(poll(&end, 1, timeout_ms) == 0 && end.revents == 0, "poll times out");
    CHECK(lasted(now_s() - start_s, timeout_ms / 1000.0), "poll lasts as asked");
    pid_t child = child_after_travel(write_byte);
    CHECK(poll(&end, 1, 20000) == 1 && end.revents == POLLIN, "poll sees the byte");
    join_child(child);
    char byte;
    CHECK(read(pipe_fds[0], &byte, 1) == 1 && byte == 'x', "the byte is there");
    close(pipe_fds[1]);
    CHECK(poll(&end, 1, -1) == 1 && end.revents == POLLHUP, "poll sees the hang-up");
    CHECK(poll(NULL, 0, 1) == 0, "poll of nothing");
    return verdict();
}
