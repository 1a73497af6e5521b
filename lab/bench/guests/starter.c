/*
 * A process that starts threads, or processes: it keeps MB megabytes, of which a round first
 * writes to a hundredth, and then tells how long it took, in milliseconds, until a new one had run
 * and ended, or, of forks, until the call had returned; in the mean, if it is to start more.
 */
#include "drive.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = 4096 };

static void *run(void *unused)
{
    return unused;
}

static uint64_t start_thread(void)
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, run, NULL) == 0 ? 0 : -1, "pthread_create");
    must(pthread_join(thread, NULL) == 0 ? 0 : -1, "pthread_join");
    return now_ns();
}

/* When the call had returned. */
static uint64_t start_process(void)
{
    pid_t child = fork();
    uint64_t returned = now_ns();
    if (child == 0) {
        _exit(0);
    }
    must(waitpid(child, NULL, 0) == child ? 0 : -1, "waitpid");
    return returned;
}

static uint64_t start_and_end_process(void)
{
    start_process();
    return now_ns();
}

int main(int count, char **words)
{
    uint64_t pages = count == 3 ? strtoull(words[1], NULL, 10) << 8 : 0;
    if (pages == 0) {
        fprintf(stderr, "usage: starter MB threads|processes|forks\n");
        return 2;
    }
    uint64_t (*start)(void) = words[2][0] == 't'   ? start_thread
                              : words[2][0] == 'f' ? start_process
                                                   : start_and_end_process;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    must(memory == MAP_FAILED ? -1 : 0, "mmap");
    memset(memory, 1, pages * PAGE);
    say_ready();
    uint64_t starts;
    for (uint64_t page = 0; (starts = next_round()) > 0;) {
        for (uint64_t last = page + pages / 100; page < last; page++) {
            memory[page % pages * PAGE]++;
        }
        uint64_t taken = 0;
        for (uint64_t i = 0; i < starts; i++) {
            uint64_t began = now_ns();
            taken += start() - began;
        }
        printf("%f\n", (double)taken / 1e6 / (double)starts);
        fflush(stdout);
    }
    return 0;
}
