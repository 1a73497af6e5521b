/*
 * Computes and does nothing else: a round answers with its wall time in ns, and as `compute cpu`
 * with its processor time before that. `compute once N` does N rounds and ends, in exactly the same
 * instructions each time.
 */
#include "drive.h"

/* Fits into the first-level cache and uses the integer and floating-point units alike. */
static double table[1024];

static double compute(long rounds)
{
    uint64_t state = 88172645463325252u;
    double sum = 0;
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < 1024; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            table[state & 1023] = table[i] * 0.5 + (double)(state & 255);
            sum += table[i];
        }
    }
    return sum;
}

int main(int count, char **words)
{
    if (count == 3) {
        return compute(atol(words[2])) == 0;
    }
    long rounds;
    say_ready();
    while ((rounds = next_round()) > 0) {
        uint64_t wall = now_ns(), cpu = count == 2 ? clock_ns(CLOCK_PROCESS_CPUTIME_ID) : 0;
        volatile double sum = compute(rounds);
        (void)sum;
        if (count == 2) {
            cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
            printf("%llu ", (unsigned long long)cpu);
        }
        printf("%llu\n", (unsigned long long)(now_ns() - wall));
        fflush(stdout);
    }
    return 0;
}
