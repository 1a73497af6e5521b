/* Guard regions (MADV_GUARD_INSTALL) stay where they are, and only there. */
#include "travel.h"
#include <setjmp.h>

enum { PAGE = 4096 };
#define GUARD_INSTALL 102
#define GUARD_REMOVE 103

static sigjmp_buf back;

static void jump(int number)
{
    siglongjmp(back, number);
}

/* A page that cannot be touched. */
static int is_guarded(volatile unsigned char *page)
{
    if (sigsetjmp(back, 1)) return 1;
    page[7] = page[7];
    return 0;
}

/* As glibc does where the kernel has no guard regions. */
static int has_guards = 1;

static void guard(void *page)
{
    if (has_guards && madvise(page, PAGE, GUARD_INSTALL) == 0) return;
    has_guards = 0;
    must(mprotect(page, PAGE, PROT_NONE), "mprotect");
}

static void unguard(void *page)
{
    if (has_guards) must(madvise(page, PAGE, GUARD_REMOVE), "remove a guard");
    else must(mprotect(page, PAGE, PROT_READ | PROT_WRITE), "mprotect");
}

int main(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, both = PROT_READ | PROT_WRITE;
    struct sigaction action = {.sa_handler = jump, .sa_flags = SA_NODEFER};
    must(sigaction(SIGSEGV, &action, NULL), "sigaction");
    unsigned char *room = mmap(NULL, 9 * PAGE, both, flags, -1, 0);
    fill(room, 9 * PAGE, 5);
    guard(room + 2 * PAGE);
    guard(room + 6 * PAGE);
    travel();
    CHECK(is_guarded(room + 2 * PAGE), "the first guard is there");
    CHECK(!is_guarded(room + PAGE) && !is_guarded(room + 3 * PAGE), "nothing beside it is");
    CHECK(is_filled(room, 2 * PAGE, 5), "what is before it is whole");
    travel();
    CHECK(is_guarded(room + 6 * PAGE), "the second guard is there");
    unguard(room + 2 * PAGE);
    travel();
    CHECK(!is_guarded(room + 2 * PAGE), "a guard that was removed does not come back");
    must(munmap(room + 5 * PAGE, 4 * PAGE), "munmap");
    unsigned char *again = mmap(room + 5 * PAGE, 4 * PAGE, both, flags | MAP_FIXED, -1, 0);
    CHECK(!is_guarded(again + PAGE), "new memory has none");
    again[PAGE] = 77;
    travel();
    CHECK(!is_guarded(again + PAGE) && again[PAGE] == 77, "nor after a move");
    return verdict();
}
