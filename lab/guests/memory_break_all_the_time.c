/* The heap's end moves all the time: what was given up is zero when it is there again. */
#include "travel.h"

enum { PAGE = 4096, PAGES_MAX = 12000, STEP_MAX = 400, WORDS = PAGE / 8 };

static uint64_t seeds[PAGES_MAX];
static uint64_t *heap;
static uint32_t pages;

static uint32_t pick(uint32_t below)
{
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static uint64_t *word(uint32_t page, int index)
{
    return heap + (size_t)page * WORDS + index;
}

static void write_page(uint32_t page)
{
    seeds[page] = 1 + pick(1 << 30);
    for (int index = 0; index < WORDS; index += 32) {
        *word(page, index) = seeds[page];
    }
}

static int is_right(uint32_t page)
{
    int wrong = 0;
    for (int index = 0; index < WORDS; index += 32) {
        wrong += *word(page, index) != seeds[page];
    }
    return wrong == 0;
}

static void move_break(long by)
{
    must(sbrk(by * PAGE) == (void *)-1 ? -1 : 0, "sbrk");
    for (long page = 0; page < by; page++) {
        seeds[pages + page] = 0;
    }
    pages = (uint32_t)(pages + by);
}

int main(void)
{
    unsigned char *start = sbrk(0);
    must(sbrk(-(intptr_t)start & (PAGE - 1)) == (void *)-1 ? -1 : 0, "sbrk");
    heap = sbrk(0);
    move_break(2000);
    for (int round = 0; round < 4; round++) {
        int wrong = 0;
        double end_s = now_s() + (double)travel_ms() * 4 / 1000;
        while (now_s() < end_s) {
            uint32_t what = pick(10), step = 1 + pick(STEP_MAX);
            if (what < 2 && pages + step <= PAGES_MAX) {
                move_break(step);
            } else if (what < 4 && pages > 1000 + step) {
                move_break(-(long)step);
            } else {
                for (uint32_t i = 0; i < step; i++) {
                    uint32_t page = pick(pages);
                    wrong += !is_right(page);
                    write_page(page);
                }
            }
        }
        for (uint32_t page = 0; page < pages; page++) {
            wrong += !is_right(page);
        }
        CHECK(wrong == 0, "every page is right");
        CHECK(sbrk(0) == word(pages, 0), "the break is where it was");
    }
    return verdict();
}
