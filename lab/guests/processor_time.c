/* Processor time that is spent is told, by every clock; a wait for more of it ends. */
#include "travel.h"
#include <sys/resource.h>
#include <sys/times.h>

/*
 * Home's kernel does not count what was spent away, so a clock goes back when the process comes
 * home: a stretch of computing is looked at again until none came home in the midst of it. That
 * clocks do not go back otherwise is what tests/product/processor_time.rs shows.
 */
enum { STRETCHES = 200, CLOCKS = 5 };
static const double LEAST_S = 0.02, LATEST_S = 20.0;

static double of_usage(int whose)
{
    struct rusage usage;
    must(getrusage(whose, &usage), "getrusage");
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double of_times(void)
{
    struct tms spent;
    times(&spent);
    return (double)(spent.tms_utime + spent.tms_stime) / (double)sysconf(_SC_CLK_TCK);
}

static double read_clock(int which)
{
    switch (which) {
    case 0:
        return clock_s(CLOCK_PROCESS_CPUTIME_ID);
    case 1:
        return clock_s(CLOCK_THREAD_CPUTIME_ID);
    case 2:
        return of_usage(RUSAGE_SELF);
    case 3:
        return of_usage(RUSAGE_THREAD);
    default:
        return of_times();
    }
}

static void compute(void)
{
    for (int i = 0; i < 400; i++) {
        compute_until(0);
    }
}

/* True if some stretch of computing shows on the clock. */
static int counts(int which)
{
    for (int i = 0; i < STRETCHES; i++) {
        double before_s = read_clock(which);
        compute();
        if (which == CLOCKS - 1) {
            compute(); /* it ticks */
            compute();
            compute();
        }
        double spent_s = read_clock(which) - before_s;
        if (spent_s > 0.001 && spent_s < 2.0) {
            return 1;
        }
    }
    return 0;
}

int main(void)
{
    double start_s = now_s(), end_s = start_s + (double)travel_ms() / 400.0;
    long readings = 0;
    while (now_s() < end_s) {
        compute_until(now_s() + 0.004);
        for (int i = 0; i < CLOCKS; i++) {
            readings += read_clock(i) >= 0;
        }
    }
    CHECK(readings > 0, "clocks can be read anywhere");
    CHECK(counts(0), "computing is counted for the process");
    CHECK(counts(1), "and for the thread");
    CHECK(counts(2), "by getrusage of the process");
    CHECK(counts(3), "and of the thread");
    CHECK(counts(4), "and by times");
    clock_t begun = clock();
    int is_over = 0;
    while (!is_over && now_s() < start_s + LATEST_S) {
        is_over = clock() - begun >= (clock_t)(LEAST_S * CLOCKS_PER_SEC);
    }
    CHECK(is_over, "a wait for processor time ends");
    struct timespec own;
    clockid_t named;
    CHECK(clock_getcpuclockid(getpid(), &named) == 0 && clock_gettime(named, &own) == 0,
          "the process's clock has a name");
    CHECK(pthread_getcpuclockid(pthread_self(), &named) == 0 && clock_gettime(named, &own) == 0,
          "and so has the thread's");
    double idle_s = 1.0;
    for (int i = 0; i < STRETCHES && (idle_s < 0 || idle_s > 0.05); i++) {
        double before_s = read_clock(0);
        sleep_until(now_s() + 0.1);
        idle_s = read_clock(0) - before_s;
    }
    CHECK(idle_s < 0.05, "sleeping is not counted");
    return verdict();
}
