/*
 * A process that sees how long it stands still: it keeps MB megabytes that differ from page to
 * page, in an address space of ROOM megabytes, writes to PERCENT of these pages a second, picked at
 * random, and reads the clock all the time. A round tells the longest gap between two readings
 * since the last round, in milliseconds, and how many pages were written to.
 */
#include "drive.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static unsigned char *memory;
static uint64_t pages;
static double percent;
static _Atomic uint64_t longest_ns, written;

static void *look_at_the_clock(void *unused)
{
    uint64_t state = 88172645463325252u, last = now_ns(), due = last;
    double per_ns = (double)pages * percent / 100 / 1e9;
    for (;;) {
        uint64_t now = now_ns();
        if (now - last > longest_ns) {
            longest_ns = now - last;
        }
        last = now;
        /* What was missed while it stood still is not made up for. */
        if (per_ns > 0 && now >= due) {
            uint64_t step = (uint64_t)(1 / per_ns);
            due = due + step > now ? due + step : now + step;
            *(volatile uint64_t *)(memory + next_random(&state) % pages * PAGE) = now;
            written++;
        }
    }
    return unused;
}

int main(int count, char **words)
{
    pages = count == 4 ? strtoull(words[1], NULL, 10) << 8 : 0;
    uint64_t room = count == 4 ? strtoull(words[2], NULL, 10) << 8 : 0;
    if (pages == 0 || room < pages) {
        fprintf(stderr, "usage: traveller MB ROOM PERCENT (ROOM at least MB)\n");
        return 2;
    }
    percent = atof(words[3]);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    memory = mmap(NULL, room * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    must(memory == MAP_FAILED ? -1 : 0, "mmap");
    fill_random(memory, pages * PAGE);
    pthread_t thread;
    must(pthread_create(&thread, NULL, look_at_the_clock, NULL) == 0 ? 0 : -1, "pthread_create");
    say_ready();
    while (next_round() > 0) {
        double gap_ms = (double)atomic_exchange(&longest_ns, 0) / 1e6;
        printf("%f %llu\n", gap_ms, (unsigned long long)atomic_exchange(&written, 0));
        fflush(stdout);
    }
    return 0;
}
