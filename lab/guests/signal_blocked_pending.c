/* Blocked signals stay pending across a move, are seen by sigpending, and arrive when let in. */
#include "travel.h"

static volatile sig_atomic_t standard, queued;

static void note(int signal)
{
    if (signal == SIGUSR1) {
        standard++;
    } else {
        queued++;
    }
}

static void send_many(void)
{
    for (int i = 0; i < 3; i++) {
        kill(getppid(), SIGUSR1);
        kill(getppid(), SIGRTMIN + 1);
    }
}

int main(void)
{
    sigset_t both, pending;
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGRTMIN + 1);
    must(sigprocmask(SIG_BLOCK, &both, NULL), "sigprocmask");
    on_signal(SIGUSR1, note, 0);
    on_signal(SIGRTMIN + 1, note, 0);
    pid_t child = child_after_travel(send_many);
    travel();
    join_child(child);
    travel();
    must(sigpending(&pending), "sigpending");
    CHECK(sigismember(&pending, SIGUSR1) == 1, "SIGUSR1 is pending");
    CHECK(sigismember(&pending, SIGRTMIN + 1) == 1, "the real-time signal is pending");
    CHECK(sigismember(&pending, SIGUSR2) == 0, "SIGUSR2 is not");
    CHECK(standard == 0 && queued == 0, "no handler ran");
    must(sigprocmask(SIG_UNBLOCK, &both, NULL), "sigprocmask");
    CHECK(standard == 1, "standard signals merge into one");
    CHECK(queued == 3, "real-time signals do not");
    return verdict();
}
