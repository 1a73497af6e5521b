/* The floating-point rounding mode and exception flags (MXCSR) of each thread are kept. */
#include "travel.h"
#include <fenv.h>

static int wrong;

static void *round_my_way(void *argument)
{
    int mode = (int)(intptr_t)argument;
    volatile double one = 1.0, ten = 10.0;
    fesetround(mode);
    feclearexcept(FE_ALL_EXCEPT);
    double before = one / ten, minus = -one / ten;
    for (int round = 0; round < 2; round++) {
        travel();
        int bad = fegetround() != mode || fetestexcept(FE_ALL_EXCEPT) != FE_INEXACT;
        bad += one / ten != before || -one / ten != minus;
        __atomic_add_fetch(&wrong, bad, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

int main(void)
{
    int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        void *mode = (void *)(intptr_t)modes[i];
        must(pthread_create(&threads[i], NULL, round_my_way, mode) ? -1 : 0, "pthread_create");
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(wrong == 0, "each thread rounds its own way");
    uint32_t mxcsr = 0x9fc0, seen = 0;
    __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
    sleep_until(now_s() + (double)travel_ms() / 1000.0);
    __asm__ volatile("stmxcsr %0" : "=m"(seen));
    CHECK((seen & ~0x3fu) == mxcsr, "flush to zero and denormals are zero");
    return verdict();
}
