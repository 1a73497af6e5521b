/* sigsuspend and pause wait for a handler, and the mask is put back after it. */
#include "travel.h"

static volatile sig_atomic_t count;

static void note(int signal)
{
    (void)signal;
    count++;
}

static void signal_parent(void)
{
    kill(getppid(), SIGUSR1);
}

int main(void)
{
    sigset_t blocked, open, now;
    sigemptyset(&open);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    must(sigprocmask(SIG_BLOCK, &blocked, NULL), "sigprocmask");
    on_signal(SIGUSR1, note, SA_RESTART);
    for (int round = 1; round <= 2; round++) {
        pid_t child = child_after_travel(signal_parent);
        CHECK(sigsuspend(&open) == -1 && errno == EINTR, "sigsuspend ends");
        CHECK(count == round, "after the handler");
        sigprocmask(SIG_SETMASK, NULL, &now);
        CHECK(sigismember(&now, SIGUSR1) == 1, "and the mask is put back");
        join_child(child);
    }
    return verdict();
}
