/*
 * A process to be moved that does nothing meanwhile: it keeps MB megabytes, of which each page
 * holds NOISE bytes that nobody can compress, and else what differs from page to page. A round of
 * one step tells a checksum of it all; one of two writes it all anew before, as it never was: then
 * no node that remembers it has anything of it. Another thread waits and calls nobody: by that its
 * home can take memory in while the process runs.
 */
#include "drive.h"
#include <pthread.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static uint64_t state = 88172645463325252u;

static void fill(uint64_t *memory, size_t bytes, size_t noise)
{
    for (size_t at = 0; at < bytes; at += sizeof *memory) {
        uint64_t word = next_random(&state);
        memory[at / sizeof word] = at % PAGE < noise ? word : at / PAGE + 1;
    }
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *wait_for_ever(void *nothing)
{
    pthread_mutex_lock(&held);
    return nothing;
}

int main(int count, char **words)
{
    size_t bytes = count == 3 ? strtoull(words[1], NULL, 10) << 20 : 0;
    size_t noise = count == 3 ? strtoull(words[2], NULL, 10) : 0;
    if (bytes == 0 || noise > PAGE) {
        fprintf(stderr, "usage: freight MB NOISE (NOISE at most %d)\n", PAGE);
        return 2;
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    uint64_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    must(memory == MAP_FAILED ? -1 : 0, "mmap");
    fill(memory, bytes, noise);
    pthread_t waiting;
    pthread_mutex_lock(&held);
    must(pthread_create(&waiting, NULL, wait_for_ever, NULL) ? -1 : 0, "pthread_create");
    say_ready();
    for (long steps; (steps = next_round()) > 0;) {
        if (steps == 2) {
            fill(memory, bytes, noise);
        }
        uint64_t sum = 0;
        for (size_t at = 0; at < bytes / sizeof sum; at++) {
            sum = (sum << 1 | sum >> 63) ^ memory[at];
        }
        printf("%u\n", (unsigned)(sum ^ sum >> 32));
        fflush(stdout);
    }
    return 0;
}
