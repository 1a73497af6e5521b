/* Memory that is moved by whole page tables, and otherwise hardly written to, is as left. */
#include "travel.h"

/* The kernel moves what one page table maps at once, without looking at its pages. */
enum { REGIONS = 6, PAGES = 512, PAGE = 4096 };
static const size_t BYTES = (size_t)PAGES * PAGE;

struct region {
    unsigned char *base;
    /* What each page is filled with; 0 is zeros. */
    uint32_t seeds[PAGES];
};

static struct region regions[REGIONS];
/* Nothing is mapped there. */
static unsigned char *spare;
static uint64_t state = 88172645463325252u;

static uint32_t pick(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % below;
}

/* Some places are neighbours, others are not. */
static unsigned char *place(unsigned char *room, size_t number)
{
    return room + (number < REGIONS / 2 ? number : 2 * number) * BYTES;
}

static void make_places(void)
{
    size_t length = (2 * REGIONS + 2) * BYTES;
    unsigned char *all =
        mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(all == MAP_FAILED ? -1 : 0, "mmap");
    unsigned char *room = (unsigned char *)(((uintptr_t)all + BYTES - 1) / BYTES * BYTES);
    must(munmap(all, length), "munmap");
    for (size_t i = 0; i < REGIONS; i++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        unsigned char *at = place(room, i);
        regions[i].base = mmap(at, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
        must(regions[i].base == at ? 0 : -1, "mmap");
        must(madvise(at, BYTES, MADV_NOHUGEPAGE), "madvise");
    }
    spare = place(room, REGIONS);
}

static void write_page(struct region *region, uint32_t page)
{
    region->seeds[page] = pick(UINT32_MAX - 1) + 1;
    fill(region->base + (size_t)page * PAGE, PAGE, region->seeds[page]);
}

static void move(struct region *region)
{
    unsigned char *left = region->base;
    region->base = mremap(left, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, spare);
    must(region->base == spare ? 0 : -1, "mremap");
    spare = left;
}

/* Given up, and read: then there is a page, and nobody has written to it. */
static void give_up(struct region *region, uint32_t page)
{
    unsigned char *at = region->base + (size_t)page * PAGE;
    must(madvise(at, PAGE, MADV_DONTNEED), "madvise");
    region->seeds[page] = *(volatile unsigned char *)at;
}

static int count_wrong(void)
{
    static const unsigned char zeros[PAGE];
    int wrong = 0;
    for (int i = 0; i < REGIONS; i++) {
        for (uint32_t page = 0; page < PAGES; page++) {
            unsigned char *at = regions[i].base + (size_t)page * PAGE;
            uint32_t seed = regions[i].seeds[page];
            wrong += seed == 0 ? memcmp(at, zeros, PAGE) != 0 : !is_filled(at, PAGE, seed);
        }
    }
    return wrong;
}

int main(void)
{
    make_places();
    for (int i = 0; i < REGIONS; i++) {
        for (uint32_t page = 0; page < PAGES; page++) {
            write_page(&regions[i], page);
        }
    }
    for (int round = 0; round < 4; round++) {
        double end_s = now_s() + (double)travel_ms() * 4 / 1000;
        while (now_s() < end_s) {
            move(&regions[pick(REGIONS)]);
            give_up(&regions[pick(REGIONS)], pick(PAGES));
            write_page(&regions[pick(REGIONS)], pick(PAGES));
            /* Most of it stays as it was for a while. */
            usleep(round % 2 ? 20000 : 3000);
        }
        CHECK(count_wrong() == 0, "every page is as it was left");
    }
    return verdict();
}
