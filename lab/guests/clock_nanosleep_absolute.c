/* An absolute sleep ends at its moment, on the monotonic and on the real-time clock. */
#include "travel.h"

static void sleep_on(clockid_t clock, const char *name)
{
    double end_s = clock_s(clock) + travel_ms() / 700.0;
    struct timespec end = timespec_of(end_s);
    CHECK(clock_nanosleep(clock, TIMER_ABSTIME, &end, NULL) == 0, name);
    double late_s = clock_s(clock) - end_s;
    CHECK(late_s >= -0.001 && late_s < 5.0, "it ends at its moment");
}

int main(void)
{
    sleep_on(CLOCK_MONOTONIC, "absolute sleep on CLOCK_MONOTONIC");
    sleep_on(CLOCK_REALTIME, "absolute sleep on CLOCK_REALTIME");
    struct timespec past = {1, 0};
    CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &past, NULL) == 0, "the past is now");
    return verdict();
}
