/* Three processes write to all of the memory that they share, each to pages of its own. */
/* may stay: shared-memory */
#include "travel.h"

enum { MEMBERS = 3, PAGE = 4096, PAGES = 3000, WORDS = PAGE / sizeof(uint64_t) };

struct page {
    uint64_t words[WORDS];
};
static struct page *pages;
static int *is_over;
static uint64_t *rounds;

/* In the end a page is given up now and then: it is zero from then on. */
static int is_given_up(int page)
{
    return page % 7 == 0;
}

static void work(int me)
{
    uint64_t round = 0;
    while (!__atomic_load_n(is_over, __ATOMIC_SEQ_CST)) {
        round++;
        for (int page = me; page < PAGES; page += MEMBERS) {
            for (int word = 0; word < WORDS; word += 100) {
                if (pages[page].words[word] != round - 1)
                    _exit(2);
                pages[page].words[word] = round;
            }
        }
        __atomic_store_n(&rounds[me], round, __ATOMIC_SEQ_CST);
        usleep(1000);
    }
    for (int page = me; page < PAGES; page += MEMBERS)
        if (is_given_up(page))
            must(madvise(&pages[page], PAGE, MADV_REMOVE), "remove");
}

static int is_as_written(int page, uint64_t round)
{
    for (int word = 0; word < WORDS; word++) {
        uint64_t expected = word % 100 == 0 && !is_given_up(page) ? round : 0;
        if (pages[page].words[word] != expected)
            return 0;
    }
    return 1;
}

int main(void)
{
    int how = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_ANONYMOUS;
    pages = mmap(NULL, sizeof *pages * PAGES, how, flags, -1, 0);
    rounds = mmap(NULL, PAGE, how, flags, -1, 0);
    must(pages == MAP_FAILED || rounds == MAP_FAILED ? -1 : 0, "mmap");
    is_over = (int *)&rounds[MEMBERS];
    pid_t children[MEMBERS];
    for (int me = 0; me < MEMBERS; me++) {
        children[me] = (pid_t)must(fork(), "fork");
        if (children[me] == 0) {
            work(me);
            _exit(0);
        }
    }
    travel();
    travel();
    /* How fast they write is the machine's affair. */
    for (int me = 0; me < MEMBERS; me++)
        while (__atomic_load_n(&rounds[me], __ATOMIC_SEQ_CST) < 3)
            usleep(1000);
    __atomic_store_n(is_over, 1, __ATOMIC_SEQ_CST);
    for (int me = 0; me < MEMBERS; me++)
        join_child(children[me]);
    int wrong = 0;
    for (int page = 0; page < PAGES; page++)
        wrong += !is_as_written(page, rounds[page % MEMBERS]);
    CHECK(wrong == 0, "each page is as its process has written it");
    return verdict();
}
