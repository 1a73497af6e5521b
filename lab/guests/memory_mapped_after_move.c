/* mmap, munmap, mremap, mprotect and madvise work after a move on maps made before it. */
#include "travel.h"

enum { PAGE = 4096, SIZE = 64 * PAGE };

static unsigned char *map(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(at == MAP_FAILED ? -1 : 0, "mmap");
    return at;
}

int main(void)
{
    unsigned char *first = map(SIZE), *second = map(SIZE);
    fill(first, SIZE, 1);
    fill(second, SIZE, 2);
    travel();
    unsigned char *moved = mremap(first, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && is_filled(moved, SIZE, 1), "mremap keeps what was there");
    CHECK(moved[2 * SIZE - 1] == 0, "and adds zeros");
    CHECK(munmap(second + 8 * PAGE, 16 * PAGE) == 0, "a hole is cut");
    CHECK(mprotect(second + 32 * PAGE, 8 * PAGE, PROT_READ) == 0, "a part is protected");
    travel();
    unsigned char in_core;
    CHECK(mincore(second + 8 * PAGE, PAGE, &in_core) == -1 && errno == ENOMEM, "the hole is kept");
    CHECK(is_filled(second, 8 * PAGE, 2), "what is before it too");
    CHECK(madvise(moved, SIZE, MADV_DONTNEED) == 0 && moved[0] == 0, "given up pages are zero");
    unsigned char *fixed = mmap(second + 8 * PAGE, PAGE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(fixed == second + 8 * PAGE, "the hole takes a map");
    CHECK(mmap(second, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0)
              == MAP_FAILED && errno == EEXIST, "what is full does not");
    int pipe_fds[2];
    must(pipe(pipe_fds), "pipe");
    must(write(pipe_fds[1], "abc", 3), "write");
    errno = 0;
    CHECK(read(pipe_fds[0], second + 32 * PAGE, 3) == -1 && errno == EFAULT, "read-only is kept");
    CHECK(read(pipe_fds[0], second, 3) == 3 && memcmp(second, "abc", 3) == 0, "no byte is lost");
    return verdict();
}
