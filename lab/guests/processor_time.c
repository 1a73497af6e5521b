/* The processor time of process and thread never goes back, and grows by what is computed. */
#include "travel.h"
#include <sys/resource.h>
#include <sys/times.h>

static double usage_s(void)
{
    struct rusage usage;
    must(getrusage(RUSAGE_SELF, &usage), "getrusage");
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

int main(void)
{
    double process_s = 0, thread_s = 0, used_s = 0, end_s = now_s() + (double)travel_ms() / 400.0;
    long ticks = 0;
    int backwards = 0;
    while (now_s() < end_s) {
        compute_until(now_s() + 0.004);
        double process = clock_s(CLOCK_PROCESS_CPUTIME_ID);
        double thread = clock_s(CLOCK_THREAD_CPUTIME_ID), used = usage_s();
        struct tms spent;
        times(&spent);
        long now = (long)(spent.tms_utime + spent.tms_stime);
        backwards += process < process_s || thread < thread_s || used < used_s || now < ticks;
        process_s = process;
        thread_s = thread;
        used_s = used;
        ticks = now;
    }
    CHECK(backwards == 0, "no processor clock goes back");
    double before_s = clock_s(CLOCK_PROCESS_CPUTIME_ID), before_usage_s = usage_s();
    for (int i = 0; i < 400; i++) {
        compute_until(0);
    }
    CHECK(clock_s(CLOCK_PROCESS_CPUTIME_ID) - before_s > 0.001, "computing is counted");
    CHECK(usage_s() - before_usage_s > 0.001, "by getrusage too");
    sleep_until(now_s() + 0.01);
    CHECK(usage_s() < 20.0, "and nothing else is");
    return verdict();
}
