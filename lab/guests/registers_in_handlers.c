/* Vector registers are kept by handlers that are entered on one node and left on another. */
#include "instructions.h"
#include "travel.h"

#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) \
    DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define NAME(N) "xmm" #N,
#define LOAD(N) "movdqu " #N "*32(%1), %%xmm" #N "\n"
#define STORE(N) "movdqu %%xmm" #N ", " #N "*32(%2)\n"
#define LOAD_WIDE(N) "vmovdqu " #N "*32(%1), %%ymm" #N "\n"
#define STORE_WIDE(N) "vmovdqu %%ymm" #N ", " #N "*32(%2)\n"
#define RAISE "syscall\n"

enum { ROUNDS = 12, BYTES = 16 * 32 };

static unsigned char in[BYTES], out[BYTES];
static volatile sig_atomic_t handled;

__attribute__((target("avx2"))) static void clear_wide(void)
{
    __asm__ volatile("vzeroall" ::: EACH(NAME) "memory");
}

static void handle(int signal)
{
    (void)signal;
    compute_until(now_s() + (double)travel_ms() / 4000.0);
    if (MAY_USE_AVX2) {
        clear_wide();
    } else {
        __asm__ volatile("xorps %%xmm0, %%xmm0\n xorps %%xmm7, %%xmm7\n xorps %%xmm15, %%xmm15" :::
                         "xmm0", "xmm7", "xmm15");
    }
    handled++;
}

/* kill(getpid(), SIGUSR1) with the registers full. */
static void raise_with_registers(void)
{
    long result = SYS_kill;
    __asm__ volatile(EACH(LOAD) RAISE EACH(STORE)
                     : "+a"(result)
                     : "r"(in), "r"(out), "D"((long)getpid()), "S"((long)SIGUSR1)
                     : EACH(NAME) "rcx", "r11", "cc", "memory");
}

__attribute__((target("avx2"))) static void raise_with_wide_registers(void)
{
    long result = SYS_kill;
    __asm__ volatile(EACH(LOAD_WIDE) RAISE EACH(STORE_WIDE) "vzeroupper\n"
                     : "+a"(result)
                     : "r"(in), "r"(out), "D"((long)getpid()), "S"((long)SIGUSR1)
                     : EACH(NAME) "rcx", "r11", "cc", "memory");
}

static int wrong_registers(int is_wide)
{
    int wrong = 0;
    for (int i = 0; i < 16; i++) {
        wrong += memcmp(in + i * 32, out + i * 32, is_wide ? 32 : 16) != 0;
    }
    return wrong;
}

int main(void)
{
    int is_wide = MAY_USE_AVX2, wrong = 0;
    on_signal(SIGUSR1, handle, 0);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        fill(in, sizeof in, round + 1);
        if (is_wide) {
            raise_with_wide_registers();
        } else {
            raise_with_registers();
        }
        wrong += wrong_registers(is_wide);
    }
    CHECK(handled == ROUNDS, "every handler ran");
    CHECK(wrong == 0, "and spoilt no register");
    return verdict();
}
