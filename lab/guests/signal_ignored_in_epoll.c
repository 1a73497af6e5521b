/* A signal that is ignored ends no epoll_wait, not even one that is being moved. */
/* not stopped: the kernel ends epoll_wait with EINTR when a stopped process continues */
#include "travel.h"
#include <sys/epoll.h>

/* Signals that are ignored by default and by wish, until the parent has travelled. */
static void pester_parent(void)
{
    int signals[] = {SIGURG, SIGWINCH, SIGCHLD, SIGUSR1};
    double end_s = now_s() + travel_ms() / 500.0;
    for (size_t i = 0; now_s() < end_s; i++) {
        must(kill(getppid(), signals[i % 4]), "kill");
        sleep_until(now_s() + 0.001);
    }
}

int main(void)
{
    on_signal(SIGUSR1, SIG_IGN, 0);
    int set = (int)must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    struct epoll_event seen[4];
    pid_t child = fork();
    if (child == 0) {
        pester_parent();
        _exit(0);
    }
    int interrupted = 0;
    double end_s = now_s() + travel_ms() / 500.0;
    while (now_s() < end_s)
        interrupted += epoll_wait(set, seen, 4, 20) != 0;
    CHECK(interrupted == 0, "no wait is interrupted");
    join_child(child);
    return verdict();
}
