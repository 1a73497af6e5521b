/* Writing to a pipe without reader gives SIGPIPE, or EPIPE where that is ignored. */
#include "travel.h"
#include <sys/socket.h>

static int count;

static void note(int signal)
{
    (void)signal;
    count++;
}

static void die_of_it(void)
{
    int fds[2];
    must(pipe(fds), "pipe");
    close(fds[0]);
    must(write(fds[1], "x", 1), "write");
}

int main(void)
{
    int fds[2], status;
    pid_t child = child_after_travel(die_of_it);
    on_signal(SIGPIPE, note, 0);
    must(pipe(fds), "pipe");
    must(close(fds[0]), "close");
    travel();
    CHECK(write(fds[1], "x", 1) == -1 && errno == EPIPE, "EPIPE");
    CHECK(count == 1, "and SIGPIPE");
    on_signal(SIGPIPE, SIG_IGN, 0);
    travel();
    CHECK(write(fds[1], "x", 1) == -1 && errno == EPIPE, "EPIPE alone when it is ignored");
    CHECK(count == 1, "no second signal");
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), "socketpair");
    must(close(fds[0]), "close");
    on_signal(SIGPIPE, note, 0);
    CHECK(send(fds[1], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE, "a socket, silently");
    CHECK(count == 1, "without signal");
    CHECK(waitpid(child, &status, 0) == child, "the child ended");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE, "by SIGPIPE");
    return verdict();
}
