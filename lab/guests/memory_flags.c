/* What was asked for memory (DONTFORK, DONTDUMP, NORESERVE, huge pages) is known after a move. */
#include "travel.h"

enum { PAGE = 4096, PAGES = 4, KINDS = 8 };

/* The line VmFlags of the mapping at an address, or "none". */
static void flags_at(void *address, char *line, size_t size)
{
    char text[512];
    unsigned long start, end;
    int is_here = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    snprintf(line, size, "none");
    while (file && fgets(text, sizeof text, file)) {
        if (sscanf(text, "%lx-%lx ", &start, &end) == 2)
            is_here = start <= (unsigned long)address && (unsigned long)address < end;
        else if (is_here && strncmp(text, "VmFlags:", 8) == 0)
            snprintf(line, size, "%.*s", 200, text + 8);
    }
    if (file) fclose(file);
}

static int has(void *address, const char *flag)
{
    char line[256];
    flags_at(address, line, sizeof line);
    return strstr(line, flag) != NULL;
}

int main(void)
{
    static const int advices[KINDS] = {MADV_DONTFORK, MADV_WIPEONFORK, MADV_DONTDUMP,
                                       MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE,
                                       MADV_RANDOM,   MADV_SEQUENTIAL};
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, both = PROT_READ | PROT_WRITE;
    unsigned char *parts[KINDS];
    char before[KINDS][256], after[256];
    for (int kind = 0; kind < KINDS; kind++) {
        parts[kind] = mmap(NULL, PAGES * PAGE, both, flags, -1, 0);
        /* Apart from its neighbours. */
        must(mprotect(parts[kind], PAGE, PROT_NONE), "mprotect");
        parts[kind] += PAGE;
        madvise(parts[kind], 2 * PAGE, advices[kind]);
        fill(parts[kind], 2 * PAGE, kind);
        flags_at(parts[kind], before[kind], sizeof before[kind]);
    }
    void *sparse = mmap(NULL, 64 << 20, both, flags | MAP_NORESERVE, -1, 0);
    travel();
    int same = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        flags_at(parts[kind], after, sizeof after);
        same += strcmp(before[kind], after) == 0 && is_filled(parts[kind], 2 * PAGE, kind);
        if (strcmp(before[kind], after)) printf("%d: %s -> %s", kind, before[kind], after);
    }
    CHECK(same == KINDS, "flags are as they were");
    CHECK(has(sparse, " nr"), "memory without reservation has none");
    CHECK(!has(parts[0], " nr"), "other memory has one");
    travel();
    /* Without a call that comes home: other memory at the same place has not its flags. */
    must(munmap(parts[0], 2 * PAGE), "munmap");
    void *again = mmap(parts[0], 2 * PAGE, both, flags | MAP_FIXED, -1, 0);
    fill(again, 2 * PAGE, 9);
    must(madvise(parts[2], 2 * PAGE, MADV_DODUMP), "MADV_DODUMP");
    must(madvise(parts[7], 2 * PAGE, MADV_NORMAL), "MADV_NORMAL");
    unsigned char *moved = mremap(parts[1], 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                                  sparse);
    CHECK(moved == sparse, "memory that fork wipes is moved");
    travel();
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) _exit(is_filled(again, 2 * PAGE, 9) && moved[3] == 0 ? 0 : 1);
    join_child(child);
    CHECK(!has(again, " dc") && has(moved, " wf"), "flags went with the memory");
    CHECK(!has(parts[2], " dd") && !has(parts[7], " sr"), "flags were taken away");
    CHECK(is_filled(moved, 2 * PAGE, 1), "the parent has all of it");
    return verdict();
}
