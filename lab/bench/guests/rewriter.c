/*
 * A process that writes to PERCENT of its pages a second, MB megabytes, at `random` places or going
 * `upwards` through them over and over, and computes in between. A round tells the longest gap
 * between two readings of the clock since the last round, in milliseconds, and of what it writes
 * otherwise, what it wrote in the worst tenth of a second, percent.
 */
#include "drive.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
#define WINDOW_NS 100000000u

static unsigned char *memory;
static uint64_t pages, step_ns;
static int goes_upwards;
static _Atomic uint64_t longest_ns, worst_count = UINT64_MAX;

static void *rewrite(void *unused)
{
    uint64_t state = 88172645463325252u, page = 0, last = now_ns(), due = last;
    uint64_t window = last / WINDOW_NS, count = UINT64_MAX;
    for (;;) {
        uint64_t now = now_ns();
        if (now - last > longest_ns) {
            longest_ns = now - last;
        }
        last = now;
        if (now / WINDOW_NS != window) {
            /* One that it has missed altogether, too. */
            uint64_t seen = now / WINDOW_NS > window + 1 ? 0 : count;
            if (seen < worst_count) {
                worst_count = seen;
            }
            window = now / WINDOW_NS;
            count = 0;
        }
        if (now >= due) {
            /* What was missed while it stood still is not made up for. */
            due = due + step_ns > now ? due + step_ns : now + step_ns;
            page = goes_upwards ? (page + 1) % pages : next_random(&state) % pages;
            *(volatile uint64_t *)(memory + page * PAGE) = now;
            count++;
        }
    }
    return unused;
}

int main(int count, char **words)
{
    pages = count == 4 ? strtoull(words[1], NULL, 10) << 8 : 0;
    if (pages == 0) {
        fprintf(stderr, "usage: rewriter MB PERCENT random|upwards\n");
        return 2;
    }
    double per_s = (double)pages * atof(words[2]) / 100;
    step_ns = (uint64_t)(1e9 / per_s);
    goes_upwards = strcmp(words[3], "upwards") == 0;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    must(memory == MAP_FAILED ? -1 : 0, "mmap");
    fill_random(memory, pages * PAGE);
    pthread_t thread;
    must(pthread_create(&thread, NULL, rewrite, NULL) == 0 ? 0 : -1, "pthread_create");
    say_ready();
    while (next_round() > 0) {
        double gap_ms = (double)atomic_exchange(&longest_ns, 0) / 1e6;
        uint64_t worst = atomic_exchange(&worst_count, UINT64_MAX);
        double percent = worst == UINT64_MAX ? 100 : 100 * (double)worst / (per_s / 10);
        printf("%f %f\n", gap_ms, percent);
        fflush(stdout);
    }
    return 0;
}
