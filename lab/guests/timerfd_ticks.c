/* A timerfd goes on ticking while its reader is moved; no tick is lost or doubled. */
#include "travel.h"
#include <sys/timerfd.h>

int main(void)
{
    int fd = (int)must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), "timerfd_create");
    struct itimerspec wish = {{0, 20000000}, {0, 20000000}}, seen;
    double start_s = now_s();
    must(timerfd_settime(fd, 0, &wish, NULL), "timerfd_settime");
    uint64_t ticks = 0, got;
    while (ticks < 10) {
        must(read(fd, &got, sizeof got), "read");
        ticks += got;
        if (ticks >= 4 && ticks < 6) {
            travel();
        }
    }
    CHECK(ticks >= 10, "it ticks");
    double elapsed_s = now_s() - start_s;
    CHECK(elapsed_s > 0.02 * (double)ticks - 0.001, "not more ticks than time");
    must(timerfd_gettime(fd, &seen), "timerfd_gettime");
    CHECK(seen.it_interval.tv_nsec == 20000000, "its interval is kept");
    return verdict();
}
