/* ppoll lets a blocked signal in only while it waits, and puts the mask back afterwards. */
#include "travel.h"
#include <poll.h>

static volatile sig_atomic_t arrived, in_poll;

static void note(int signal)
{
    (void)signal;
    arrived += in_poll ? 1 : 100;
}

static void signal_parent(void)
{
    kill(getppid(), SIGUSR2);
}

int main(void)
{
    sigset_t blocked, open, after;
    sigemptyset(&open);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    must(sigprocmask(SIG_BLOCK, &blocked, NULL), "sigprocmask");
    on_signal(SIGUSR2, note, SA_RESTART);
    raise(SIGUSR2);
    travel();
    CHECK(arrived == 0, "a blocked signal waits");
    in_poll = 1;
    struct timespec long_time = {20, 0};
    CHECK(ppoll(NULL, 0, &long_time, &open) == -1 && errno == EINTR, "ppoll lets it in at once");
    CHECK(arrived == 1, "the handler ran inside ppoll");
    pid_t child = child_after_travel(signal_parent);
    CHECK(ppoll(NULL, 0, &long_time, &open) == -1 && errno == EINTR, "ppoll ends when one comes");
    CHECK(arrived == 2, "the handler ran again");
    sigprocmask(SIG_SETMASK, NULL, &after);
    CHECK(sigismember(&after, SIGUSR2) == 1, "the mask is put back");
    in_poll = 0;
    join_child(child);
    return verdict();
}
