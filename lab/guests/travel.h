/*
 * What every guest shares. A guest is a tiny program that proves one thing about the kernel as it
 * looks from inside. It stays a while at *travel points*, where the harness moves it to another
 * node, and then looks whether anything changed. What it prints must be the same wherever it runs,
 * so a check that holds prints only its name; one that fails says what it saw.
 *
 * TRAVEL_MS is how long one travel point lasts (150 ms if unset).
 */
#ifndef TRAVEL_H
#define TRAVEL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failures;

/* Prints the name of a check that holds, or all that is known about one that does not. */
#define CHECK(holds, name) check_that(!!(holds), name, #holds, __FILE__, __LINE__)

static inline int check_that(int holds, const char *name, const char *what, const char *file,
                             int line)
{
    int error = errno;
    if (holds) {
        printf("PASS %s\n", name);
    } else {
        printf("FAIL %s: not (%s) at %s:%d, errno %d %s\n", name, what, file, line, error,
               strerror(error));
        failures++;
    }
    return holds;
}

/* The exit status that main returns. */
static inline int verdict(void)
{
    fflush(stdout);
    return failures ? 1 : 0;
}

/* For calls that only prepare a check: their failure ends the guest. */
static inline long must(long result, const char *what)
{
    if (result == -1) {
        printf("FAIL prepare %s: errno %d %s\n", what, errno, strerror(errno));
        fflush(stdout);
        _exit(1);
    }
    return result;
}

/* A lock that processes share; robust if its owner may die. */
static inline void init_shared_lock(pthread_mutex_t *lock, int robustness)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, robustness);
    pthread_mutex_init(lock, &kind);
}

static inline double clock_s(clockid_t clock)
{
    struct timespec t;
    must(clock_gettime(clock, &t), "clock_gettime");
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline double now_s(void)
{
    return clock_s(CLOCK_MONOTONIC);
}

static inline long travel_ms(void)
{
    const char *asked = getenv("TRAVEL_MS");
    return asked ? atol(asked) : 150;
}

static inline struct timespec timespec_of(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    return t;
}

static inline void sleep_until(double moment_s)
{
    struct timespec t = timespec_of(moment_s);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

/* Computes until the moment; every round must give the same sum. */
static inline void compute_until(double moment_s)
{
    uint64_t first = 0;
    do {
        uint64_t sum = 1;
        for (int i = 0; i < 20000; i++) {
            sum = sum * 6364136223846793005u + 1442695040888963407u;
        }
        if (first == 0) {
            first = sum;
        } else if (sum != first) {
            printf("FAIL compute: %llx became %llx\n", (unsigned long long)first,
                   (unsigned long long)sum);
            fflush(stdout);
            _exit(1);
        }
    } while (now_s() < moment_s);
}

/* A travel point: computes for half of the time and sleeps for the rest. */
static inline void travel(void)
{
    double half_s = (double)travel_ms() / 2000.0, start_s = now_s();
    compute_until(start_s + half_s);
    sleep_until(start_s + 2 * half_s);
}

/* Whether a wait lasted as long as asked. It is never shorter; how much longer depends on the load
 * of the machine, but a wait that starts again from its beginning at every move shows. */
static inline int lasted(double elapsed_s, double asked_s)
{
    if (elapsed_s >= asked_s - 0.001 && elapsed_s < asked_s + 5.0) {
        return 1;
    }
    printf("waited %.6f s instead of %.6f s\n", elapsed_s, asked_s);
    return 0;
}

/* A child that stays one travel point and then acts. */
static inline pid_t child_after_travel(void (*act)(void))
{
    fflush(stdout);
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        travel();
        act();
        _exit(0);
    }
    return child;
}

/* Waits for a child that must end with exit status 0. */
static inline void join_child(pid_t child)
{
    int status = -1;
    pid_t waited;
    while ((waited = waitpid(child, &status, 0)) == -1 && errno == EINTR) {
    }
    if (waited == child && status != 0) {
        printf("the child's status is %#x\n", (unsigned)status);
    }
    CHECK(waited == child && status == 0, "child ended well");
}

/* Pipes, /proc files and sockets may give less than was asked for. */
static inline size_t read_fully(int fd, void *into, size_t size)
{
    size_t have = 0;
    while (have < size) {
        ssize_t got = read(fd, (char *)into + have, size - have);
        if (got == -1 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        have += (size_t)got;
    }
    return have;
}

static inline size_t write_fully(int fd, const void *from, size_t size)
{
    size_t sent = 0;
    while (sent < size) {
        ssize_t put = write(fd, (const char *)from + sent, size - sent);
        if (put == -1 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            break;
        }
        sent += (size_t)put;
    }
    return sent;
}

static inline void on_signal(int signal, void (*act)(int), int flags)
{
    struct sigaction action = {.sa_handler = act, .sa_flags = flags};
    must(sigaction(signal, &action, NULL), "sigaction");
}

static inline void on_siginfo(int signal, void (*act)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = act, .sa_flags = flags | SA_SIGINFO};
    must(sigaction(signal, &action, NULL), "sigaction");
}

/* Bytes that are easy to make again, to see that memory and files are as they were. */
static inline void fill(void *at, size_t size, uint32_t seed)
{
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1664525u + 1013904223u;
        ((unsigned char *)at)[i] = (unsigned char)(seed >> 24);
    }
}

static inline int is_filled(const void *at, size_t size, uint32_t seed)
{
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1664525u + 1013904223u;
        if (((const unsigned char *)at)[i] != (unsigned char)(seed >> 24)) {
            return 0;
        }
    }
    return 1;
}

/* Lines leave when they are written, so that a fork does not print them twice; the buffer is not
 * from the heap, so that guests may move the break. */
__attribute__((constructor)) static void print_by_lines(void)
{
    static char line[4096];
    setvbuf(stdout, line, _IOLBF, sizeof line);
}

#endif
