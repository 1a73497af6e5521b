/* Counts in a table with a place for each of N processors, as allocators do; behind it lies
 * nothing. Tells on each line that it reads whether it has counted. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static volatile char *table;

static void *count(void *argument)
{
    for (;;) {
        table[(size_t)sched_getcpu() << 12]++;
    }
    return argument;
}

int main(int argc, char **argv)
{
    size_t length = (size_t)(argc > 1 ? atoi(argv[1]) : 1) << 12;
    table = mmap(NULL, 2 * length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect((void *)table, length, PROT_READ | PROT_WRITE);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, count, NULL);
    }
    while (getchar() != EOF) {
        puts("counted");
        fflush(stdout);
    }
    return 0;
}
