/* Two processes share much more memory than they use: what nobody has written to takes none. */
/* may stay: shared-memory */
#include "travel.h"

enum { BYTES = 1 << 30, PAGE = 4096, PAGES = BYTES / PAGE, STEP = 30011 };

static unsigned char *memory, there[PAGES];

/* How many pages the memory has, whoever has touched them (mincore(2) asks the file behind it). */
static int pages(void)
{
    int count = 0;
    must(mincore(memory, BYTES, there), "mincore");
    for (int page = 0; page < PAGES; page++)
        count += there[page] & 1;
    return count;
}

static void write_page(int page)
{
    memset(memory + (size_t)page * PAGE, page % 255 + 1, PAGE);
}

static int is_written(int page)
{
    unsigned char *at = memory + (size_t)page * PAGE, byte = (unsigned char)(page % 255 + 1);
    return at[0] == byte && memcmp(at, at + 1, PAGE - 1) == 0;
}

static int are_written(int first)
{
    int all = 1;
    for (int page = first; page < PAGES; page += STEP)
        all &= is_written(page);
    return all;
}

int main(void)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, to_child[2], to_parent[2];
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    must(memory == MAP_FAILED ? -1 : 0, "mmap");
    must(madvise(memory, BYTES, MADV_NOHUGEPAGE), "madvise");
    must(pipe(to_child), "pipe");
    must(pipe(to_parent), "pipe");
    int count = 0;
    for (int page = 1; page < PAGES; page += STEP, count++)
        write_page(page);
    char word = 0;
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        must(read(to_child[0], &word, 1), "read");
        for (int page = 2; page < PAGES; page += STEP)
            write_page(page);
        must(write(to_parent[1], &word, 1), "write");
        must(read(to_child[0], &word, 1), "read");
        _exit(are_written(2) && memory[PAGE] == 0 ? 0 : 1);
    }
    travel();
    CHECK(are_written(1), "what was written before");
    CHECK(pages() == count, "nothing else has memory");
    must(write(to_child[1], &word, 1), "write");
    must(read(to_parent[0], &word, 1), "read");
    travel();
    CHECK(are_written(1) && are_written(2), "what both have written");
    CHECK(pages() == 2 * count, "and nothing else has memory");
    must(madvise(memory + PAGE, PAGE, MADV_REMOVE), "remove");
    travel();
    CHECK(pages() == 2 * count - 1, "what was given up has none");
    CHECK(memory[PAGE] == 0, "and is zero");
    must(write(to_child[1], &word, 1), "write");
    join_child(child);
    CHECK(are_written(2), "the rest is there");
    return verdict();
}
