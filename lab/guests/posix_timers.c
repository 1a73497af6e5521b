/* POSIX timers signal with their value, keep their interval and identity, and can be deleted. */
#include "travel.h"

static volatile sig_atomic_t count, wrong;

static void note(int signal, siginfo_t *info, void *frame)
{
    (void)signal;
    (void)frame;
    wrong += info->si_code != SI_TIMER || info->si_value.sival_int != 321;
    count++;
}

int main(void)
{
    on_siginfo(SIGRTMIN + 2, note, SA_RESTART);
    struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 2};
    how.sigev_value.sival_int = 321;
    timer_t timer;
    must(timer_create(CLOCK_MONOTONIC, &how, &timer), "timer_create");
    struct itimerspec wish = {{0, 50000000}, {0, 50000000}}, seen;
    double start_s = now_s();
    must(timer_settime(timer, 0, &wish, NULL), "timer_settime");
    while (count < 6 && now_s() < start_s + 20) {
        compute_until(now_s() + 0.003);
    }
    CHECK(count >= 6 && wrong == 0, "it signals with its value");
    CHECK(now_s() - start_s > 0.2, "not faster than its interval");
    must(timer_gettime(timer, &seen), "timer_gettime");
    CHECK(seen.it_interval.tv_nsec == 50000000, "its interval is kept");
    must(timer_delete(timer), "timer_delete");
    int before = count;
    travel();
    CHECK(count == before, "a deleted timer is silent");
    return verdict();
}
