/* Locked memory moves and stays locked: no advice empties it; it is moved, unlocked, locked. */
#include "travel.h"

enum { PAGE = 4096, PIECE = 8 * PAGE };

/* Whether the line VmFlags of the mapping at an address has this flag. */
static int has(void *address, const char *flag)
{
    char text[512];
    unsigned long start, end;
    int is_here = 0, found = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && fgets(text, sizeof text, file)) {
        if (sscanf(text, "%lx-%lx ", &start, &end) == 2)
            is_here = start <= (unsigned long)address && (unsigned long)address < end;
        else if (is_here && strncmp(text, "VmFlags:", 8) == 0)
            found = strstr(text, flag) != NULL;
    }
    if (file) fclose(file);
    return found;
}

static unsigned char *piece(int seed)
{
    int both = PROT_READ | PROT_WRITE;
    unsigned char *memory = mmap(NULL, PIECE + PAGE, both, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* Apart from its neighbours. */
    must(mprotect(memory, PAGE, PROT_NONE), "mprotect");
    fill(memory + PAGE, PIECE, seed);
    return memory + PAGE;
}

/* What no advice empties is locked, as the kernel says where the program is. */
static int is_locked(void *memory)
{
    return madvise(memory, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL;
}

int main(void)
{
    unsigned char *whole = piece(1), *later = piece(2), *moved = piece(3), *partly = piece(4);
    int both = PROT_READ | PROT_WRITE;
    unsigned char *sparse =
        mmap(NULL, 4 << 20, both, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *closed = mmap(NULL, PIECE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(mlock(whole, PIECE), "mlock");
    must(mlock(moved, PIECE), "mlock");
    must(mlock(partly + PAGE, PAGE), "mlock");
    must(mlock2(sparse, 4 << 20, MLOCK_ONFAULT), "mlock2");
    /* The lock takes effect nevertheless. */
    CHECK(mlock(closed, PIECE) == -1 && errno == ENOMEM, "what nobody may touch is not there");
    must(mlock((void *)((unsigned long)main & ~(PAGE - 1UL)), 1), "mlock of the program");
    sparse[3 << 20] = 7;
    travel();
    CHECK(is_locked(whole) && is_locked(moved) && is_locked(partly + PAGE), "locked away");
    CHECK(is_locked(sparse) && is_locked(sparse + (3 << 20)), "locked where nothing is, too");
    CHECK(is_filled(whole, PIECE, 1) && is_filled(moved, PIECE, 3), "contents are there");
    CHECK(sparse[3 << 20] == 7 && sparse[0] == 0, "and those of sparse memory");
    int is_emptied = madvise(partly, PAGE, MADV_DONTNEED) == 0 && partly[0] == 0;
    CHECK(is_emptied && !is_locked(partly + 2 * PAGE), "beside it nothing is");
    /* Without a call that comes home. */
    must((long)mremap(moved, PIECE, PIECE, MREMAP_MAYMOVE | MREMAP_FIXED, sparse + (1 << 20)),
         "mremap");
    must(munmap(sparse + (2 << 20), PIECE), "munmap");
    travel();
    CHECK(is_locked(sparse + (1 << 20)) && is_filled(sparse + (1 << 20), PIECE, 3), "moved");
    CHECK(has(whole, " lo") && !has(whole, " lf") && has(sparse, " lf"), "home knows it");
    CHECK(has(closed, " lo") && has(partly + PAGE, " lo") && !has(partly, " lo"), "all of it");
    CHECK(has(main, " lo") && !has(later, " lo"), "and nothing else");
    must(munlock(whole, PIECE), "munlock");
    must(mlock(later, PIECE), "mlock");
    travel();
    CHECK(!is_locked(whole) && is_locked(later), "unlocked and locked");
    static unsigned char copy[PIECE];
    fill(copy, PIECE, 1);
    int is_rest_there = memcmp(whole + PAGE, copy + PAGE, PIECE - PAGE) == 0;
    CHECK(whole[0] == 0 && is_rest_there, "emptied, and the rest is there");
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) _exit(is_filled(later, PIECE, 2) && !is_locked(later) ? 0 : 1);
    join_child(child);
    travel();
    must(munlockall(), "munlockall");
    CHECK(!is_locked(sparse) && !is_locked(later), "nothing is");
    travel();
    return verdict();
}
