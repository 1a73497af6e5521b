/* A SIGSEGV handler sees the faulting address and reason, repairs the page, and the write works. */
#include "travel.h"

static volatile char *page;
static volatile sig_atomic_t count, wrong;
static void *volatile expected;
static volatile int expected_code;

static void repair(int signal, siginfo_t *info, void *frame)
{
    (void)signal;
    (void)frame;
    wrong += info->si_addr != expected || info->si_code != expected_code;
    if (expected_code == SEGV_MAPERR) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        mmap((void *)page, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
    } else {
        mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
    }
    count++;
}

int main(void)
{
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    on_siginfo(SIGSEGV, repair, 0);
    for (int round = 0; round < 2; round++) {
        travel();
        expected = (void *)(page + 100);
        expected_code = SEGV_ACCERR;
        mprotect((void *)page, 4096, PROT_READ);
        page[100] = (char)(round + 1);
        CHECK(count == 2 * round + 1 && page[100] == round + 1, "a protected page is repaired");
        munmap((void *)page, 4096);
        expected = (void *)(page + 7);
        expected_code = SEGV_MAPERR;
        page[7] = 'x';
        CHECK(count == 2 * round + 2 && page[7] == 'x', "a missing page is mapped");
    }
    CHECK(wrong == 0, "address and reason were right");
    return verdict();
}
