/* The x87 stack holds eight numbers, its control word and its tags across a move. */
#include "travel.h"

static double spin(long rounds)
{
    double sum;
    __asm__ volatile("fninit\n fld1\n fldl2t\n fldl2e\n fldpi\n fldlg2\n fldln2\n fldz\n fld1\n"
                     "1: dec %1\n jnz 1b\n"
                     "faddp\n faddp\n faddp\n faddp\n faddp\n faddp\n faddp\n fstpl %0\n"
                     : "=m"(sum), "+r"(rounds)
                     :
                     : "cc", "memory", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)",
                       "st(7)");
    return sum;
}

int main(void)
{
    double end_s = now_s() + (double)travel_ms() / 700.0, first = spin(1);
    int wrong = 0;
    while (now_s() < end_s) {
        wrong += spin(20000000) != first;
    }
    CHECK(wrong == 0, "eight numbers on the stack");
    uint16_t wish = 0x0c7f, seen = 0;
    __asm__ volatile("fldcw %0" : : "m"(wish));
    travel();
    __asm__ volatile("fnstcw %0" : "=m"(seen));
    CHECK(seen == wish, "the control word");
    volatile long double one = 1.0L, three = 3.0L, third = one / three;
    __asm__ volatile("fninit");
    CHECK(third < one / three, "rounding towards zero was in force");
    return verdict();
}
