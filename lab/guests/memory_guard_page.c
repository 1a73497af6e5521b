/* A guard page between two pages still faults after a move; its neighbours do not. */
#include "travel.h"
#include <setjmp.h>

static sigjmp_buf before;

static void leave(int signal)
{
    siglongjmp(before, signal);
}

static int faults(volatile char *at)
{
    if (sigsetjmp(before, 1)) {
        return 1;
    }
    *at = 'g';
    return 0;
}

int main(void)
{
    char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(mprotect(pages + 4096, 4096, PROT_NONE), "mprotect");
    on_signal(SIGSEGV, leave, 0);
    for (int round = 0; round < 3; round++) {
        CHECK(!faults(pages + 4095), "the page before it");
        CHECK(faults(pages + 4096), "its first byte");
        CHECK(faults(pages + 8191), "its last byte");
        CHECK(!faults(pages + 8192), "the page after it");
        travel();
    }
    return verdict();
}
