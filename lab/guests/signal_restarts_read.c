/* With SA_RESTART a read goes on after the handler; without it it ends with EINTR. */
#include "travel.h"

static int pipe_fds[2];
static volatile sig_atomic_t count;

static void note(int signal)
{
    (void)signal;
    count++;
}

static void signal_then_write(void)
{
    kill(getppid(), SIGUSR1);
    travel();
    must(write(pipe_fds[1], "r", 1), "write");
}

int main(void)
{
    char byte = 0;
    must(pipe(pipe_fds), "pipe");
    on_signal(SIGUSR1, note, SA_RESTART);
    pid_t child = child_after_travel(signal_then_write);
    CHECK(read(pipe_fds[0], &byte, 1) == 1 && byte == 'r', "read goes on with SA_RESTART");
    CHECK(count == 1, "its handler ran");
    join_child(child);
    on_signal(SIGUSR1, note, 0);
    child = child_after_travel(signal_then_write);
    CHECK(read(pipe_fds[0], &byte, 1) == -1 && errno == EINTR, "read ends without it");
    CHECK(count == 2, "its handler ran too");
    CHECK(read(pipe_fds[0], &byte, 1) == 1 && byte == 'r', "no byte was lost");
    join_child(child);
    return verdict();
}
