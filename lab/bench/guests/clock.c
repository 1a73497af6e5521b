/*
 * Reads clocks and does nothing else: a round answers with what a reading of the time of day and
 * one of the monotonic clock took, in ns.
 */
#include "drive.h"

static double reading_ns(clockid_t clock, long readings)
{
    struct timespec time;
    uint64_t begin = now_ns();
    for (long i = 0; i < readings; i++) {
        clock_gettime(clock, &time);
    }
    return (double)(now_ns() - begin) / (double)readings;
}

int main(void)
{
    long readings;
    say_ready();
    while ((readings = next_round()) > 0) {
        double day = reading_ns(CLOCK_REALTIME, readings);
        printf("%.3f %.3f\n", day, reading_ns(CLOCK_MONOTONIC, readings));
        fflush(stdout);
    }
    return 0;
}
