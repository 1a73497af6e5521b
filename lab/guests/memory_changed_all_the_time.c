/* Memory written, discarded, unmapped, mapped, moved and protected all the time is as left. */
#include "travel.h"

/* The first regions are of a file. */
enum { REGIONS = 64, OF_FILE = 8, PAGES = 96, PAGE = 4096 };
static const size_t BYTES = (size_t)PAGES * PAGE;

struct region {
    unsigned char *base;
    int is_of_file;
    /* What each page is filled with; 0 is zeros. */
    uint32_t seeds[PAGES];
    int is_inaccessible;
    /* Mapped at once: mremap(2) moves one mapping. */
    int is_whole;
};

static struct region regions[REGIONS];
static unsigned char *spare;
static int file;
static uint64_t state = 88172645463325252u;

static uint32_t pick(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % below;
}

static unsigned char *map(void *at, size_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
    unsigned char *base = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    must(base == MAP_FAILED ? -1 : 0, "mmap");
    return base;
}

/* The file's page of each number is filled with this. */
static uint32_t file_seed(uint32_t page)
{
    return page + 1;
}

static void make_file(void)
{
    unsigned char content[PAGE];
    file = (int)must(open("pages", O_RDWR | O_CREAT | O_EXCL, 0600), "open");
    for (uint32_t page = 0; page < PAGES; page++) {
        fill(content, PAGE, file_seed(page));
        must(write(file, content, PAGE) == PAGE ? 0 : -1, "write");
    }
}

static void map_region(struct region *region, uint32_t first, uint32_t count)
{
    unsigned char *at = region->base + (size_t)first * PAGE;
    int flags = MAP_PRIVATE | MAP_FIXED;
    if (!region->is_of_file) {
        map(at, (size_t)count * PAGE);
    } else if (mmap(at, (size_t)count * PAGE, PROT_READ | PROT_WRITE, flags, file,
                    (off_t)first * PAGE) == MAP_FAILED) {
        must(-1, "mmap");
    }
}

static void write_page(struct region *region, uint32_t page)
{
    unsigned char *at = region->base + (size_t)page * PAGE;
    /* Now and then zeros, over whatever was there. */
    uint32_t seed = pick(8) == 0 ? 0 : pick(UINT32_MAX - 1) + 1;
    if (seed == 0) {
        memset(at, 0, PAGE);
    } else {
        fill(at, PAGE, seed);
    }
    region->seeds[page] = seed;
}

static void forget(struct region *region, uint32_t first, uint32_t count)
{
    for (uint32_t page = first; page < first + count; page++) {
        region->seeds[page] = region->is_of_file ? file_seed(page) : 0;
    }
}

/* Moves it to where nothing is, and leaves its place for the next one that moves. */
static void move(struct region *region)
{
    unsigned char *left = region->base;
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    region->base = mremap(left, BYTES, BYTES, flags, spare);
    must(region->base == MAP_FAILED ? -1 : 0, "mremap");
    spare = map(left, BYTES);
}

static void change(struct region *region)
{
    uint32_t first = pick(PAGES), count = 1 + pick(PAGES - first);
    unsigned char *at = region->base + (size_t)first * PAGE;
    size_t bytes = (size_t)count * PAGE;
    uint32_t what = pick(100);
    if (what < 2) {
        region->is_inaccessible = !region->is_inaccessible;
        int protection = region->is_inaccessible ? PROT_NONE : PROT_READ | PROT_WRITE;
        must(mprotect(region->base, BYTES, protection), "mprotect");
    } else if (what < 4 && region->is_whole) {
        move(region);
    } else if (what < 5) {
        map_region(region, 0, PAGES);
        forget(region, 0, PAGES);
        region->is_inaccessible = 0;
        region->is_whole = 1;
    } else if (region->is_inaccessible) {
        return;
    } else if (what < 7) {
        must(madvise(at, bytes, MADV_DONTNEED), "madvise");
        forget(region, first, count);
    } else if (what < 9) {
        must(munmap(at, bytes), "munmap");
        map_region(region, first, count);
        forget(region, first, count);
        region->is_whole = 0;
    } else if (what < 11) {
        map_region(region, first, count);
        forget(region, first, count);
        region->is_whole = 0;
    } else {
        write_page(region, first);
    }
}

static int is_right(struct region *region, uint32_t page)
{
    static const unsigned char zeros[PAGE];
    unsigned char *at = region->base + (size_t)page * PAGE;
    uint32_t seed = region->seeds[page];
    return seed == 0 ? memcmp(at, zeros, PAGE) == 0 : is_filled(at, PAGE, seed);
}

static int count_wrong(void)
{
    int wrong = 0;
    for (int i = 0; i < REGIONS; i++) {
        if (regions[i].is_inaccessible) {
            must(mprotect(regions[i].base, BYTES, PROT_READ | PROT_WRITE), "mprotect");
            regions[i].is_inaccessible = 0;
        }
        for (uint32_t page = 0; page < PAGES; page++) {
            wrong += !is_right(&regions[i], page);
        }
    }
    return wrong;
}

int main(void)
{
    make_file();
    spare = map(NULL, BYTES);
    for (int i = 0; i < REGIONS; i++) {
        regions[i].base = map(NULL, BYTES);
        regions[i].is_of_file = i < OF_FILE;
        regions[i].is_whole = 1;
        map_region(&regions[i], 0, PAGES);
        for (uint32_t page = 0; page < PAGES; page++) {
            write_page(&regions[i], page);
        }
    }
    for (int round = 0; round < 4; round++) {
        double end_s = now_s() + (double)travel_ms() * 4 / 1000;
        while (now_s() < end_s) {
            for (int i = 0; i < 20; i++) {
                change(&regions[pick(REGIONS)]);
            }
            /* Every other time most of it stays as it was for a while. */
            if (round % 2) {
                usleep(20000);
            }
        }
        CHECK(count_wrong() == 0, "every page is as it was left");
    }
    return verdict();
}
