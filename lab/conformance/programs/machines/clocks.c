/*
 * Reads clocks and the times of files it writes for so many seconds, wherever it may be meanwhile,
 * and says what was odd about them:
 *
 *     clocks SECONDS
 *
 *     began 1700000000.123            the wall clock at first and at last
 *     ended 1700000020.456
 *     reads 123456
 *     wall_back_us 0                  the largest step backwards, of wall and monotonic clock
 *     steady_back_us 0
 *     apart_us 350                    how far wall clock and times of new files were apart
 *     drift_us 120                    how far wall and monotonic clock have gone apart for certain
 *
 * Two clocks cannot be read at once: a move or another program comes between, for as long as a slow
 * machine takes. So the wall clock is read before and after the monotonic one, and what their
 * difference may be is what both readings allow.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long micros(struct timespec t)
{
    return (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* As programs read it: without a system call where that is offered, with one, and as of old. */
static long long wall_us(int way)
{
    struct timespec t;
    struct timeval of_day;
    switch (way % 3) {
    case 0:
        clock_gettime(CLOCK_REALTIME, &t);
        return micros(t);
    case 1:
        syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);
        return micros(t);
    default:
        gettimeofday(&of_day, NULL);
        return (long long)of_day.tv_sec * 1000000 + of_day.tv_usec;
    }
}

static long long steady_us(int way)
{
    struct timespec t;
    if (way % 2) {
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    } else {
        clock_gettime(CLOCK_MONOTONIC, &t);
    }
    return micros(t);
}

static void raise_to(long long *most, long long is)
{
    if (is > *most) {
        *most = is;
    }
}

/* What the wall clock may be ahead of the monotonic one. */
struct ahead {
    long long least, most;
};

/* How far two that should be the same are apart. */
static long long gap_us(struct ahead first, struct ahead now)
{
    long long later = now.least - first.most, earlier = first.least - now.most;
    return later > 0 ? later : earlier > 0 ? earlier : 0;
}

/* How far the time of a file that is written now is outside of the moments before and after. */
static long long file_apart_us(void)
{
    struct stat seen;
    long long before = wall_us(0);
    int fd = open("written", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (fd == -1 || write(fd, "x", 1) != 1 || fstat(fd, &seen) == -1) {
        perror("written");
        exit(1);
    }
    close(fd);
    long long after = wall_us(0), time_us = micros(seen.st_mtim);
    return time_us < before ? before - time_us : time_us > after ? time_us - after : 0;
}

int main(int count, char **arguments)
{
    if (count != 2) {
        return 2;
    }
    long long span_us = atoll(arguments[1]) * 1000000, apart = 0, wall_back = 0, steady_back = 0;
    long long first_wall = wall_us(0), first_steady = steady_us(0), reads = 0;
    long long wall = wall_us(0), steady = first_steady, drift = 0;
    struct ahead first = {first_wall - first_steady, wall - first_steady};
    while (steady - first_steady < span_us) {
        for (int way = 0; way < 3000; way++, reads++) {
            long long steady_now = steady_us(way), now = wall_us(way);
            struct ahead ahead = {wall - steady_now, now - steady_now};
            raise_to(&drift, gap_us(first, ahead));
            raise_to(&wall_back, wall - now);
            raise_to(&steady_back, steady - steady_now);
            wall = now, steady = steady_now;
        }
        raise_to(&apart, file_apart_us());
    }
    printf("began %.3f\nended %.3f\nreads %lld\n", first_wall / 1e6, wall / 1e6, reads);
    printf("wall_back_us %lld\nsteady_back_us %lld\n", wall_back, steady_back);
    printf("apart_us %lld\ndrift_us %lld\n", apart, drift);
    return 0;
}
