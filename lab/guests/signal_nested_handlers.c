/* A handler is moved while another handler that interrupted it is running; both return well. */
#include "travel.h"

static char trace[16];
static volatile sig_atomic_t at;

static void inner(int signal)
{
    (void)signal;
    trace[at++] = '(';
    travel();
    trace[at++] = ')';
}

static void outer(int signal)
{
    (void)signal;
    trace[at++] = '[';
    compute_until(now_s() + travel_ms() / 3000.0);
    raise(SIGUSR2);
    compute_until(now_s() + travel_ms() / 3000.0);
    trace[at++] = ']';
}

int main(void)
{
    on_signal(SIGUSR1, outer, 0);
    on_signal(SIGUSR2, inner, 0);
    for (int round = 0; round < 2; round++) {
        raise(SIGUSR1);
    }
    trace[at] = 0;
    CHECK(strcmp(trace, "[()][()]") == 0, "handlers nest as brackets do");
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    CHECK(!sigismember(&now, SIGUSR1) && !sigismember(&now, SIGUSR2), "the mask is restored");
    return verdict();
}
