/*
 * A process to be moved: it keeps MB megabytes that differ from page to page, of which one thread
 * rewrites a word of each page again and again while THREADS - 1 others wait. SIGTERM ends it.
 */
#include "drive.h"
#include <pthread.h>

static unsigned char *memory;
static size_t bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static void *wait_for_ever(void *unused)
{
    pthread_mutex_lock(&lock);
    for (;;) {
        pthread_cond_wait(&never, &lock);
    }
    return unused;
}

static void rewrite(void)
{
    for (uint64_t round = 0;; round++) {
        for (size_t at = 0; at < bytes; at += 4096) {
            *(volatile uint64_t *)(memory + at) = round;
        }
    }
}

int main(int count, char **words)
{
    int threads = count == 3 ? atoi(words[2]) : 0;
    if (threads < 1) {
        fprintf(stderr, "usage: resident MB THREADS\n");
        return 2;
    }
    bytes = (size_t)atol(words[1]) << 20;
    memory = malloc(bytes);
    must(memory ? 0 : -1, "malloc");
    fill_random(memory, bytes);
    for (int i = 1; i < threads; i++) {
        pthread_t thread;
        must(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0 ? 0 : -1, "pthread_create");
    }
    say_ready();
    rewrite();
}
