/*
 * A process to be moved that does nothing meanwhile: it keeps MB megabytes, of which each page
 * holds NOISE bytes that nobody can compress, and else what differs from page to page. A round
 * tells a checksum of it all.
 */
#include "drive.h"
#include <sys/mman.h>

enum { PAGE = 4096 };

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
    uint64_t state = 88172645463325252u;
    for (size_t at = 0; at < bytes; at += sizeof state) {
        uint64_t word = next_random(&state);
        memory[at / sizeof word] = at % PAGE < noise ? word : at / PAGE + 1;
    }
    say_ready();
    while (next_round() > 0) {
        uint64_t sum = 0;
        for (size_t at = 0; at < bytes / sizeof sum; at++) {
            sum = (sum << 1 | sum >> 63) ^ memory[at];
        }
        printf("%u\n", (unsigned)(sum ^ sum >> 32));
        fflush(stdout);
    }
    return 0;
}
