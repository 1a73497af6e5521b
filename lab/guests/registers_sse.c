/* Sixteen SSE registers hold their values in a loop that makes no call. */
#include "travel.h"

#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) \
    DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define LOAD(N) "movdqu " #N "*16(%1), %%xmm" #N "\n"
#define STORE(N) "movdqu %%xmm" #N ", " #N "*16(%2)\n"
#define NAME(N) "xmm" #N,

static unsigned char in[256], out[256];

static void spin(long rounds)
{
    __asm__ volatile(EACH(LOAD) "1: dec %0\n jnz 1b\n" EACH(STORE)
                     : "+r"(rounds)
                     : "r"(in), "r"(out)
                     : EACH(NAME) "cc", "memory");
}

int main(void)
{
    double end_s = now_s() + (double)travel_ms() / 400.0;
    int wrong = 0;
    for (uint32_t seed = 1; now_s() < end_s; seed++) {
        fill(in, sizeof in, seed);
        spin(20000000);
        wrong += memcmp(in, out, sizeof in) != 0;
    }
    CHECK(wrong == 0, "every register kept its value");
    return verdict();
}
