/* SA_NODEFER lets a handler interrupt itself; without it the signal waits; sa_mask holds others. */
#include "travel.h"

static volatile sig_atomic_t depth, deepest, other_at = -1;

static void dive(int signal)
{
    depth++;
    if (depth > deepest) {
        deepest = depth;
    }
    if (depth < 3) {
        raise(signal);
    }
    depth--;
}

static void hold_other(int signal)
{
    (void)signal;
    depth = 1;
    raise(SIGUSR2);
    compute_until(now_s() + travel_ms() / 2000.0);
    depth = 0;
}

static void other(int signal)
{
    (void)signal;
    other_at = depth;
}

int main(void)
{
    on_signal(SIGUSR1, dive, SA_NODEFER);
    travel();
    raise(SIGUSR1);
    CHECK(deepest == 3, "with SA_NODEFER the handler nests");
    struct sigaction held = {.sa_handler = hold_other};
    sigaddset(&held.sa_mask, SIGUSR2);
    must(sigaction(SIGUSR1, &held, NULL), "sigaction");
    on_signal(SIGUSR2, other, 0);
    travel();
    raise(SIGUSR1);
    CHECK(other_at == 0, "sa_mask holds another signal back until the handler ends");
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    CHECK(!sigismember(&now, SIGUSR1) && !sigismember(&now, SIGUSR2), "the mask is empty again");
    return verdict();
}
