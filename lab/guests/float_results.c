/* A long floating-point computation gives the same last bit after moves as without. */
#include "travel.h"
#include <math.h>

static double series(void)
{
    double sum = 0;
    for (int i = 1; i < 40000; i++) {
        sum += sin(i) * sqrt(i) / log(i + 1.0);
    }
    return sum;
}

int main(void)
{
    double first = series(), end_s = now_s() + (double)travel_ms() / 400.0;
    long double wide = 0;
    int wrong = 0;
    do {
        wrong += series() != first;
        wide = 0;
        for (int i = 1; i < 100000; i++) {
            wide += 1.0L / i;
        }
    } while (now_s() < end_s);
    CHECK(wrong == 0, "the same bits every time");
    printf("%a %La\n", first, wide);
    return verdict();
}
