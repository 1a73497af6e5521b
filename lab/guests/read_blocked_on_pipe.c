/* A read that blocks on an empty pipe goes on blocking across a move and gets what comes later. */
#include "travel.h"

static int pipe_fds[2];

static void say_hello(void)
{
    must(write(pipe_fds[1], "hello", 5), "write");
}

int main(void)
{
    char text[16] = "";
    must(pipe(pipe_fds), "pipe");
    for (int round = 0; round < 2; round++) {
        pid_t child = child_after_travel(say_hello);
        double start_s = now_s();
        ssize_t got = read(pipe_fds[0], text, sizeof text);
        CHECK(got == 5 && memcmp(text, "hello", 5) == 0, "read gives what was written");
        CHECK(now_s() - start_s > travel_ms() / 2000.0, "read was blocked");
        join_child(child);
    }
    close(pipe_fds[1]);
    CHECK(read(pipe_fds[0], text, sizeof text) == 0, "end of file after the last writer");
    return verdict();
}
