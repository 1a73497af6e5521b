/* alarm rings once, after its time, wherever the process is by then; alarm(0) disarms it. */
#include "travel.h"

static volatile sig_atomic_t count;

static void note(int signal)
{
    (void)signal;
    count++;
}

int main(void)
{
    on_signal(SIGALRM, note, 0);
    /* Later than two travel points, one second if they are short. */
    unsigned wait_s = (unsigned)travel_ms() / 400 + 1;
    double start_s = now_s();
    CHECK(alarm(wait_s) == 0, "no alarm was set");
    travel();
    travel();
    /* On a machine that is overloaded the travel may take as long. */
    CHECK(count == 0 || now_s() - start_s >= wait_s - 0.001, "it does not ring early");
    sigset_t alarms, before;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarms, &before);
    while (count == 0) {
        sigsuspend(&before);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    CHECK(count == 1 && lasted(now_s() - start_s, wait_s), "it rings after its time");
    alarm(50);
    travel();
    unsigned rest_s = alarm(0);
    CHECK(rest_s > 40 && rest_s <= 50, "a disarmed alarm tells what was left");
    CHECK(count == 1, "and does not ring");
    return verdict();
}
