/*
 * A process that starts a thread: it keeps MB megabytes, of which a round first writes to a
 * hundredth, and then tells how long it took, in milliseconds, until a new thread had run and
 * ended.
 */
#include "drive.h"
#include <pthread.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static void *run(void *unused)
{
    return unused;
}

int main(int count, char **words)
{
    uint64_t pages = count == 2 ? strtoull(words[1], NULL, 10) << 8 : 0;
    if (pages == 0) {
        fprintf(stderr, "usage: starter MB\n");
        return 2;
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    must(memory == MAP_FAILED ? -1 : 0, "mmap");
    memset(memory, 1, pages * PAGE);
    say_ready();
    for (uint64_t page = 0; next_round() > 0;) {
        for (uint64_t last = page + pages / 100; page < last; page++) {
            memory[page % pages * PAGE]++;
        }
        pthread_t thread;
        uint64_t began = now_ns();
        must(pthread_create(&thread, NULL, run, NULL) == 0 ? 0 : -1, "pthread_create");
        must(pthread_join(thread, NULL) == 0 ? 0 : -1, "pthread_join");
        printf("%f\n", (double)(now_ns() - began) / 1e6);
        fflush(stdout);
    }
    return 0;
}
