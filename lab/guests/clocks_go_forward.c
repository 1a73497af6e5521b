/* No clock goes back or jumps when the process is moved; all clocks advance together. */
#include "travel.h"
#include <sys/time.h>

enum { CLOCKS = 5 };

int main(void)
{
    clockid_t clocks[CLOCKS] = {CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME,
                                CLOCK_REALTIME, CLOCK_MONOTONIC_COARSE};
    double first[CLOCKS], last[CLOCKS];
    int backwards = 0;
    for (int i = 0; i < CLOCKS; i++) {
        first[i] = last[i] = clock_s(clocks[i]);
    }
    double end_s = now_s() + (double)travel_ms() / 400.0;
    while (now_s() < end_s) {
        for (int i = 0; i < CLOCKS; i++) {
            double now = clock_s(clocks[i]);
            /* The real-time clock may be slewed, and differs a little from node to node. */
            backwards += now < last[i] - (clocks[i] == CLOCK_REALTIME ? 0.1 : 0);
            last[i] = now;
        }
    }
    CHECK(backwards == 0, "no clock goes back");
    int apart = 0;
    for (int i = 1; i < CLOCKS; i++) {
        double difference_s = (clock_s(clocks[i]) - first[i]) - (now_s() - first[0]);
        apart += difference_s > 0.2 || difference_s < -0.2;
    }
    CHECK(apart == 0, "no clock jumps");
    struct timeval of_day;
    gettimeofday(&of_day, NULL);
    double late_s = clock_s(CLOCK_REALTIME) - (double)of_day.tv_sec - (double)of_day.tv_usec / 1e6;
    CHECK(late_s > -0.2 && late_s < 5.0, "gettimeofday tells the same time");
    CHECK(time(NULL) - of_day.tv_sec < 6, "and so does time");
    return verdict();
}
