/* Four gigabytes are reserved, a few pages of them written: they travel, the rest stays zero. */
#include "travel.h"

enum { PAGES = 200 };
static const size_t SIZE = (size_t)4 << 30;

int main(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    unsigned char *room = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
    must(room == MAP_FAILED ? -1 : 0, "mmap");
    size_t stride = SIZE / PAGES / 4096 * 4096;
    for (uint32_t i = 0; i < PAGES; i++) {
        fill(room + i * stride, 4096, i);
    }
    for (int round = 0; round < 3; round++) {
        int wrong = 0, nonzero = 0;
        travel();
        for (uint32_t i = 0; i < PAGES; i++) {
            wrong += !is_filled(room + i * stride, 4096, i + (uint32_t)round * PAGES);
            nonzero += i % 10 == 0 && room[i * stride + 8192] != 0;
            fill(room + i * stride, 4096, i + (uint32_t)(round + 1) * PAGES);
        }
        CHECK(wrong == 0, "the pages are as they were written");
        CHECK(nonzero == 0, "the others are zero");
    }
    CHECK(munmap(room, SIZE) == 0, "all is given back");
    return verdict();
}
