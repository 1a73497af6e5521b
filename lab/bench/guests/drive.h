/*
 * What the measured programs share: how they are driven. A program says `ready PID`, and then does
 * one round for each line that it reads, of as many steps as the line says; it answers with one
 * line of figures, and ends when its input does. So two programs can take turns, round by round,
 * and the cost of starting either is in no figure.
 */
#ifndef DRIVE_H
#define DRIVE_H

#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static inline long must(long result, const char *what)
{
    if (result == -1) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
    return result;
}

static inline uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    must(clock_gettime(clock, &t), "clock_gettime");
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* The steps of the next round; 0 when there is none. */
static inline long next_round(void)
{
    char line[64];
    return fgets(line, sizeof line, stdin) ? atol(line) : 0;
}

static inline void say_ready(void)
{
    printf("ready %ld\n", (long)getpid());
    fflush(stdout);
}

/* The next of numbers that look random (xorshift64). */
static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Of which no page is like another, and none can be compressed. */
static inline void fill_random(void *memory, size_t bytes)
{
    uint64_t state = 88172645463325252u;
    for (size_t at = 0; at < bytes; at += sizeof state) {
        uint64_t word = next_random(&state);
        memcpy((char *)memory + at, &word, sizeof word);
    }
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Times each step of every round; answers with p10, p50, p90 and the mean in ns. */
static inline void drive_timed_steps(void (*step)(void))
{
    long count;
    say_ready();
    while ((count = next_round()) > 0) {
        uint64_t *each = malloc((size_t)count * sizeof *each), sum = 0;
        must(each ? 0 : -1, "malloc");
        for (long i = 0; i < count; i++) {
            uint64_t before = now_ns();
            step();
            each[i] = now_ns() - before;
            sum += each[i];
        }
        qsort(each, (size_t)count, sizeof *each, ascending);
        printf("%llu %llu %llu %llu\n", (unsigned long long)each[count / 10],
               (unsigned long long)each[count / 2], (unsigned long long)each[count * 9 / 10],
               (unsigned long long)(sum / (uint64_t)count));
        fflush(stdout);
        free(each);
    }
}

#endif
