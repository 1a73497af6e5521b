/* A computation that makes no system call at all is stopped anywhere, moved, and gives its sum. */
#include "travel.h"

static uint64_t collatz(uint64_t limit)
{
    uint64_t longest = 0;
    for (uint64_t start = 1; start < limit; start++) {
        uint64_t length = 1;
        for (uint64_t n = start; n != 1; length++) {
            n = n % 2 ? 3 * n + 1 : n / 2;
        }
        if (length > longest >> 32) {
            longest = length << 32 | start;
        }
    }
    return longest;
}

int main(void)
{
    // What is printed must not depend on how long it computes.
    volatile uint64_t limit = 90000;
    uint64_t first = collatz(limit), different = 0;
    for (long round = 1; round < travel_ms() / 8; round++) {
        different += collatz(limit) != first;
    }
    printf("longest: %llu has %llu steps\n", (unsigned long long)(first & 0xffffffff),
           (unsigned long long)(first >> 32));
    CHECK(different == 0, "each round gives what the first has");
    CHECK(collatz(10) == ((uint64_t)20 << 32 | 9), "a small one is known");
    return verdict();
}
