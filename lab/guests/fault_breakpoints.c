/* Breakpoint instructions all the time: each is reported once, in the middle of whatever move. */
#include "travel.h"

static volatile long handled, wrong;

static void count(int signal, siginfo_t *info, void *frame)
{
    (void)frame;
    handled++;
    wrong += signal != SIGTRAP || info->si_code != SI_KERNEL;
}

int main(void)
{
    long made = 0, missed = 0;
    on_siginfo(SIGTRAP, count, 0);
    for (int round = 0; round < 4; round++) {
        double end_s = now_s() + (double)travel_ms() * 2 / 1000;
        while (now_s() < end_s) {
            for (int i = 0; i < 20; i++) {
                __asm__ volatile("int3");
                made++;
                missed += handled != made;
            }
        }
        CHECK(handled == made && missed == 0, "each is reported, before the next instruction");
        CHECK(wrong == 0, "as what it is");
    }
    return verdict();
}
