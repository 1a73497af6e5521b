/* Standard input is read and standard output and error are written, byte for byte, in order. */
/* stdin: numbers */
#include "travel.h"

int main(void)
{
    long sum = 0, number, count = 0;
    while (scanf("%ld", &number) == 1) {
        sum = sum * 31 + number;
        if (++count % 500 == 0) {
            printf("after %ld numbers %ld\n", count, sum);
            fprintf(stderr, "%ld\n", count);
            compute_until(now_s() + (double)travel_ms() / 2000.0);
        }
    }
    CHECK(feof(stdin), "the input has ended");
    CHECK(count == 3000, "after three thousand numbers");
    travel();
    CHECK(write(2, "done\n", 5) == 5, "the error stream is open");
    return verdict();
}
