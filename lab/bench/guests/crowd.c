/*
 * A process of THREADS threads that sees how long any of them stands still, as a server would: most
 * wait for work at a condition variable, one in eight waits to read from a pipe, one in sixteen
 * sleeps 20 ms at a time and then looks at the clock, and one reads the clock all the time. It
 * keeps MB megabytes that differ from page to page. A round tells, in milliseconds, the longest gap
 * between two readings of the clock since the last round, a sleeper's own 20 ms left out, and how
 * many threads there are.
 */
#include "drive.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { SLEEP_NS = 20000000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static int silent[2];
static _Atomic uint64_t longest_ns;

static void saw_gap(uint64_t gap_ns)
{
    uint64_t longest = longest_ns;
    while (gap_ns > longest && !atomic_compare_exchange_weak(&longest_ns, &longest, gap_ns)) {
    }
}

static void *read_the_clock(void *unused)
{
    for (uint64_t last = now_ns();;) {
        uint64_t now = now_ns();
        saw_gap(now - last);
        last = now;
    }
    return unused;
}

static void *sleep_and_look(void *unused)
{
    for (uint64_t last = now_ns();;) {
        struct timespec length = {.tv_nsec = SLEEP_NS};
        nanosleep(&length, NULL);
        uint64_t now = now_ns();
        saw_gap(now - last > SLEEP_NS ? now - last - SLEEP_NS : 0);
        last = now;
    }
    return unused;
}

static void *wait_to_read(void *unused)
{
    char byte;
    must(read(silent[0], &byte, 1), "read");
    return unused;
}

static void *wait_for_work(void *unused)
{
    pthread_mutex_lock(&lock);
    for (;;) {
        pthread_cond_wait(&work, &lock);
    }
    return unused;
}

static void keep(size_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    must(memory == MAP_FAILED ? -1 : 0, "mmap");
    fill_random(memory, bytes);
}

int main(int count, char **words)
{
    int threads = count == 3 ? atoi(words[1]) : 0;
    if (threads < 2 || atol(words[2]) < 1) {
        fprintf(stderr, "usage: crowd THREADS MB (at least 2 threads)\n");
        return 2;
    }
    keep((size_t)atol(words[2]) << 20);
    must(pipe(silent), "pipe");
    for (int i = 1; i < threads; i++) {
        void *(*what)(void *) = i == 1        ? read_the_clock
                                : i % 16 == 0 ? sleep_and_look
                                : i % 8 == 1  ? wait_to_read
                                              : wait_for_work;
        pthread_t thread;
        must(pthread_create(&thread, NULL, what, NULL) == 0 ? 0 : -1, "pthread_create");
    }
    say_ready();
    while (next_round() > 0) {
        printf("%f %d\n", (double)atomic_exchange(&longest_ns, 0) / 1e6, threads);
        fflush(stdout);
    }
    return 0;
}
