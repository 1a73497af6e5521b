/* The upper halves of the AVX registers and, where there are any, the AVX-512 masks are kept. */
#include "instructions.h"
#include "travel.h"

#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) \
    DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define LOAD(N) "vmovdqu " #N "*32(%1), %%ymm" #N "\n"
#define STORE(N) "vmovdqu %%ymm" #N ", " #N "*32(%2)\n"
#define NAME(N) "xmm" #N,

static unsigned char in[2048 + 8], out[2048 + 8];

__attribute__((target("avx2"))) static void spin_avx2(long rounds)
{
    __asm__ volatile(EACH(LOAD) "1: dec %0\n jnz 1b\n" EACH(STORE) "vzeroupper\n"
                     : "+r"(rounds)
                     : "r"(in), "r"(out)
                     : EACH(NAME) "cc", "memory");
}

__attribute__((target("avx512f"))) static void spin_avx512(long rounds)
{
    __asm__ volatile(
        "vmovdqu64 (%1), %%zmm1\n vmovdqu64 64(%1), %%zmm17\n vmovdqu64 128(%1), %%zmm31\n"
        "kmovw 192(%1), %%k3\n 1: dec %0\n jnz 1b\n kmovw %%k3, 192(%2)\n"
        "vmovdqu64 %%zmm1, (%2)\n vmovdqu64 %%zmm17, 64(%2)\n vmovdqu64 %%zmm31, 128(%2)\n"
        "vzeroupper\n"
        : "+r"(rounds)
        : "r"(in), "r"(out)
        : "xmm1", "xmm17", "xmm31", "k3", "cc", "memory");
}

static int kept(void (*spin)(long), size_t size)
{
    double end_s = now_s() + (double)travel_ms() / 700.0;
    int wrong = 0;
    for (uint32_t seed = 1; now_s() < end_s; seed++) {
        fill(in, sizeof in, seed);
        spin(20000000);
        wrong += memcmp(in, out, size) != 0;
    }
    return wrong == 0;
}

int main(void)
{
    if (!MAY_USE_AVX2) {
        travel();
    }
    CHECK(!MAY_USE_AVX2 || kept(spin_avx2, 512), "sixteen AVX registers, if there are any");
    CHECK(!MAY_USE_AVX512 || kept(spin_avx512, 194), "AVX-512, if there is any");
    return verdict();
}
