/* SA_RESETHAND again and again: moved before its handler runs, a signal still finds it. */
#include "travel.h"

static volatile sig_atomic_t count;

static void note(int signal)
{
    (void)signal;
    count++;
}

int main(void)
{
    int lost = 0, kept = 0;
    travel();
    for (int round = 1; round <= 1500; round++) {
        on_signal(SIGUSR2, note, SA_RESETHAND);
        raise(SIGUSR2);
        lost += count != round;
        struct sigaction now;
        sigaction(SIGUSR2, NULL, &now);
        kept += now.sa_handler != SIG_DFL;
    }
    CHECK(lost == 0, "the handler ran once for each signal");
    CHECK(kept == 0, "and each time the disposition was default again");
    return verdict();
}
