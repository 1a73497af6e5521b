/* Shared memory that members of a group move, split, grow and give back is one memory for all. */
/* may stay: shared-memory */
#include "travel.h"

enum { PAGE = 4096, PAGES = 16, SIZE = PAGES * PAGE };

static void *map_shared(size_t size)
{
    void *made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(made == MAP_FAILED ? -1 : 0, "mmap");
    return made;
}

/* Waits until the first word of the memory has this value; the other side sets it. */
static void await(volatile uint32_t *word, uint32_t value)
{
    while (*word != value)
        usleep(1000);
}

static int is_all(const char *at, size_t size, char value)
{
    for (size_t i = 0; i < size; i++)
        if (at[i] != value)
            return 0;
    return 1;
}

static int child_of(char *room, volatile uint32_t *turn)
{
    /* Its part of the same memory lies elsewhere, and only half of it can be written. */
    char *moved = mremap(room, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, map_shared(SIZE));
    if (moved == MAP_FAILED || mprotect(moved, SIZE / 2, PROT_READ))
        return 2;
    memset(moved + SIZE / 2, 'c', SIZE / 2);
    *turn = 1;
    await(turn, 2);
    if (!is_all(moved, SIZE / 2, 'p') || !is_all(moved + SIZE / 2, SIZE / 2, 'c'))
        return 3;
    /* What it gives back the other keeps. */
    if (munmap(moved, SIZE / 2))
        return 4;
    memset(moved + SIZE / 2, 'd', SIZE / 2);
    *turn = 3;
    await(turn, 4);
    return is_all(moved + SIZE / 2, SIZE / 2, 'e') ? 0 : 5;
}

int main(void)
{
    volatile uint32_t *turn = map_shared(PAGE);
    char *gone = map_shared(SIZE), *room = map_shared(SIZE);
    memset(gone, 'g', SIZE);
    travel();
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0)
        _exit(child_of(room, turn));
    await(turn, 1);
    CHECK(is_all(room + SIZE / 2, SIZE / 2, 'c'), "the child wrote its half");
    memset(room, 'p', SIZE / 2);
    travel();
    *turn = 2;
    await(turn, 3);
    CHECK(is_all(room, SIZE / 2, 'p'), "what the child gave back is here");
    CHECK(is_all(room + SIZE / 2, SIZE / 2, 'd'), "and what it has written since");
    memset(room + SIZE / 2, 'e', SIZE / 2);
    travel();
    *turn = 4;
    join_child(child);

    /* Other memory in the place of what a child had, too, is other memory. */
    child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        await(turn, 5);
        _exit(is_all(gone, SIZE, 'g') ? 0 : 6);
    }
    must(munmap(gone, SIZE), "munmap");
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
    must(mmap(gone, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0) == gone ? 0 : -1, "mmap");
    memset(gone, 'n', SIZE);
    pid_t second = (pid_t)must(fork(), "fork");
    if (second == 0) {
        await(turn, 5);
        _exit(is_all(gone, SIZE, 'n') ? 0 : 7);
    }
    travel();
    *turn = 5;
    join_child(child);
    join_child(second);
    CHECK(is_all(gone, SIZE, 'n'), "and so it stays");
    return verdict();
}
