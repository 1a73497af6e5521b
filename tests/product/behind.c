/*
 * Memory of which the program itself knows what it has to hold, and which it maps, unmaps, moves,
 * protects, gives up, writes and reads wildly: by itself for as long as it runs, in THREADS threads
 * each in a part of its own. For each line it reads it says whether all of it was as it should be
 * so far, and has looked at every page.
 *
 * A page holds a number that says which it is and how often it was written to, everywhere.
 *
 * usage: behind MB THREADS [quiet]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, BLOCK = 16 };

struct part {
    pthread_t thread;
    uint64_t blocks, state;
    /* Where each block of pages is, and what each page of it holds: 0 is untouched memory. */
    unsigned char **at;
    uint64_t *holds;
    /* Not readable just now. */
    unsigned char *is_shut;
    uint64_t written;
};

static _Atomic int is_right = 1, rounds_wanted, rounds_done;
static int is_quiet, threads;
static struct part *parts;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void wrong(const char *what, struct part *part, uint64_t page)
{
    if (atomic_exchange(&is_right, 0)) {
        printf("wrong: %s, page %lu of %ld: %s\n", what, page, part - parts, strerror(errno));
        fflush(stdout);
    }
}

static unsigned char *place(struct part *part, uint64_t page)
{
    return part->at[page / BLOCK] + page % BLOCK * PAGE;
}

static void write_page(struct part *part, uint64_t page)
{
    uint64_t value = (uint64_t)(part - parts + 1) << 56 | page << 32 | ++part->written;
    uint64_t *words = (uint64_t *)place(part, page);
    for (int i = 0; i < WORDS; i += 64) {
        words[i] = value;
    }
    words[WORDS - 1] = value;
    part->holds[page] = value;
}

static void check_page(struct part *part, uint64_t page)
{
    uint64_t *words = (uint64_t *)place(part, page), value = part->holds[page];
    for (int i = 0; i < WORDS; i += 64) {
        if (words[i] != value) {
            return wrong("a word", part, page);
        }
    }
    if (words[WORDS - 1] != value || words[1] != 0) {
        wrong("the last word", part, page);
    }
}

static void empty(struct part *part, uint64_t block)
{
    memset(part->holds + block * BLOCK, 0, BLOCK * sizeof *part->holds);
}

static void change(struct part *part, uint64_t block)
{
    unsigned char *at = part->at[block];
    size_t size = BLOCK * PAGE;
    int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *room;
    void *made;
    switch (next_random(&part->state) % 7) {
    case 0:
        if (madvise(at, size, MADV_DONTNEED) != 0) {
            wrong("MADV_DONTNEED", part, block * BLOCK);
        }
        return empty(part, block);
    case 1:
        made = mmap(at, size, rights, flags | MAP_FIXED, -1, 0);
        if (made != at) {
            wrong("mmap", part, block * BLOCK);
        }
        return empty(part, block);
    case 2:
        if (munmap(at, size) != 0 || mmap(at, size, rights, flags, -1, 0) != at) {
            /* Another thread was faster: then it is elsewhere. */
            part->at[block] = mmap(NULL, size, rights, flags, -1, 0);
        }
        return empty(part, block);
    case 3:
    case 4:
        room = mmap(NULL, 2 * size, PROT_NONE, flags, -1, 0);
        made = mremap(at, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, room + PAGE);
        if (made == MAP_FAILED || munmap(room, PAGE) != 0
            || munmap(room + PAGE + size, size - PAGE) != 0) {
            return wrong("mremap", part, block * BLOCK);
        }
        part->at[block] = made;
        return;
    case 5:
        part->is_shut[block] = 1;
        if (mprotect(at, size, PROT_NONE) != 0) {
            wrong("mprotect", part, block * BLOCK);
        }
        return;
    default:
        /* One that fails changes nothing. */
        if (munmap(at + 1, size) == 0 || madvise(at + 1, size, MADV_DONTNEED) == 0) {
            wrong("an address that is none", part, block * BLOCK);
        }
    }
}

static void look_at_all(struct part *part)
{
    for (uint64_t block = 0; block < part->blocks; block++) {
        if (part->is_shut[block]) {
            if (mprotect(part->at[block], BLOCK * PAGE, PROT_READ | PROT_WRITE) != 0) {
                wrong("mprotect again", part, block * BLOCK);
            }
            part->is_shut[block] = 0;
        }
        for (uint64_t page = block * BLOCK; page < (block + 1) * BLOCK; page++) {
            check_page(part, page);
        }
    }
}

/* The kernel adds one to a word that it may not have yet. */
static void wake_and_add(struct part *part, uint64_t page)
{
    uint32_t *word = (uint32_t *)place(part, page) + 2 * (WORDS - 2), before = *word;
    int operation = FUTEX_OP(FUTEX_OP_SET, before, FUTEX_OP_CMP_EQ, before);
    uint32_t *other = (uint32_t *)place(part, page ^ 1) + 2 * (WORDS - 2);
    if (syscall(SYS_futex, other, FUTEX_WAKE_OP_PRIVATE, 1, 1, word, operation) < 0) {
        wrong("FUTEX_WAKE_OP", part, page);
    }
}

static void *live(void *own)
{
    struct part *part = own;
    int seen = 0;
    for (;;) {
        for (int i = 0; !is_quiet && i < 50; i++) {
            uint64_t page = next_random(&part->state) % (part->blocks * BLOCK);
            uint64_t block = page / BLOCK;
            if (part->is_shut[block]) {
                continue;
            }
            uint64_t what = next_random(&part->state) % 20;
            if (what == 0) {
                change(part, block);
            } else if (what == 1) {
                wake_and_add(part, page);
            } else if (what < 8) {
                write_page(part, page);
            } else {
                check_page(part, page);
            }
        }
        if (seen < rounds_wanted) {
            seen = rounds_wanted;
            look_at_all(part);
            rounds_done++;
        }
    }
    return NULL;
}

int main(int count, char **words)
{
    uint64_t megabytes = count > 2 ? strtoull(words[1], NULL, 10) : 0;
    threads = count > 2 ? atoi(words[2]) : 0;
    is_quiet = count > 3;
    if (megabytes == 0 || threads <= 0) {
        fprintf(stderr, "usage: behind MB THREADS [quiet]\n");
        return 2;
    }
    parts = calloc(threads, sizeof *parts);
    for (int i = 0; i < threads; i++) {
        struct part *part = &parts[i];
        part->blocks = (megabytes << 20) / (BLOCK * PAGE) / threads;
        part->state = 88172645463325252u + i;
        part->at = calloc(part->blocks, sizeof *part->at);
        part->holds = calloc(part->blocks * BLOCK, sizeof *part->holds);
        part->is_shut = calloc(part->blocks, 1);
        unsigned char *all = mmap(NULL, part->blocks * BLOCK * PAGE, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (uint64_t block = 0; block < part->blocks; block++) {
            part->at[block] = all + block * BLOCK * PAGE;
        }
        /* One in eight is never touched. */
        for (uint64_t page = 0; page < part->blocks * BLOCK; page++) {
            if (page % 8 != 0) {
                write_page(part, page);
            }
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_create(&parts[i].thread, NULL, live, &parts[i]);
    }
    puts("ready");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        rounds_done = 0;
        rounds_wanted++;
        while (rounds_done < threads) {
            usleep(1000);
        }
        puts(is_right ? "right" : "wrong");
        fflush(stdout);
    }
    return !is_right;
}
