/* setitimer rings at its interval across moves, and getitimer tells it. */
#include "travel.h"
#include <sys/time.h>

static volatile sig_atomic_t count;

static void note(int signal)
{
    (void)signal;
    count++;
}

int main(void)
{
    on_signal(SIGALRM, note, SA_RESTART);
    struct itimerval wish = {{0, 40000}, {0, 40000}}, seen;
    double start_s = now_s();
    must(setitimer(ITIMER_REAL, &wish, NULL), "setitimer");
    while (count < 8 && now_s() < start_s + 20) {
        compute_until(now_s() + 0.003);
    }
    CHECK(count >= 8, "it rings again and again");
    CHECK(lasted(now_s() - start_s, 0.32), "eight times its interval");
    must(getitimer(ITIMER_REAL, &seen), "getitimer");
    CHECK(seen.it_interval.tv_sec == 0 && seen.it_interval.tv_usec == 40000, "its interval");
    CHECK(seen.it_value.tv_sec == 0 && seen.it_value.tv_usec <= 40000, "and what is left");
    memset(&wish, 0, sizeof wish);
    must(setitimer(ITIMER_REAL, &wish, NULL), "setitimer");
    int before = count;
    travel();
    CHECK(count == before, "a disarmed timer is silent");
    return verdict();
}
