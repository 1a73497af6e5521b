/* A division by zero and an illegal instruction give SIGFPE and SIGILL with address and code. */
#include "travel.h"
#include <setjmp.h>

static sigjmp_buf before;
static siginfo_t seen;

static void leave(int signal, siginfo_t *info, void *frame)
{
    (void)frame;
    seen = *info;
    siglongjmp(before, signal);
}

int main(void)
{
    volatile int zero = 0, one = 1;
    on_siginfo(SIGFPE, leave, 0);
    on_siginfo(SIGILL, leave, 0);
    on_siginfo(SIGTRAP, leave, 0);
    for (int round = 0; round < 2; round++) {
        travel();
        int signal = sigsetjmp(before, 1);
        if (signal == 0) {
            one = one / zero;
        }
        CHECK(signal == SIGFPE && seen.si_code == FPE_INTDIV, "a division by zero");
        signal = sigsetjmp(before, 1);
        if (signal == 0) {
            __asm__ volatile("ud2");
        }
        CHECK(signal == SIGILL && seen.si_code == ILL_ILLOPN, "an illegal instruction");
        signal = sigsetjmp(before, 1);
        if (signal == 0) {
            __asm__ volatile("int3");
        }
        CHECK(signal == SIGTRAP && seen.si_code == SI_KERNEL, "a breakpoint instruction");
    }
    return verdict();
}
