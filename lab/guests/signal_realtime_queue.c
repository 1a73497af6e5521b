/* Real-time signals queued before a move arrive after it: all of them, in order, lowest first. */
#include "travel.h"

static int order[16];
static volatile sig_atomic_t count;

static void note(int signal, siginfo_t *info, void *frame)
{
    (void)frame;
    if (count < 16) {
        order[count++] = (signal - SIGRTMIN) * 100 + info->si_value.sival_int;
    }
}

int main(void)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    for (int i = 0; i < 3; i++) {
        struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
        sigfillset(&action.sa_mask);
        must(sigaction(SIGRTMIN + i, &action, NULL), "sigaction");
        sigaddset(&blocked, SIGRTMIN + i);
    }
    must(sigprocmask(SIG_BLOCK, &blocked, NULL), "sigprocmask");
    for (int value = 1; value <= 4; value++) {
        for (int i = 2; i >= 0; i--) {
            must(sigqueue(getpid(), SIGRTMIN + i, (union sigval){.sival_int = value}), "sigqueue");
        }
        if (value == 2) {
            travel();
        }
    }
    travel();
    must(sigprocmask(SIG_UNBLOCK, &blocked, NULL), "sigprocmask");
    int expected[12] = {1, 2, 3, 4, 101, 102, 103, 104, 201, 202, 203, 204};
    CHECK(count == 12, "all twelve arrive");
    CHECK(memcmp(order, expected, sizeof expected) == 0, "in order of number, then of sending");
    return verdict();
}
