/* Machine code written at run time runs after a move, and code written after a move runs too. */
#include "travel.h"

static unsigned char return_number[] = {0xb8, 0, 0, 0, 0, 0xc3};

static int run(unsigned char *at)
{
    int (*code)(void);
    memcpy(&code, &at, sizeof code);
    return code();
}

static void write_code(unsigned char *at, int number)
{
    must(mprotect(at, 4096, PROT_READ | PROT_WRITE), "mprotect");
    memcpy(at, return_number, sizeof return_number);
    memcpy(at + 1, &number, sizeof number);
    must(mprotect(at, 4096, PROT_READ | PROT_EXEC), "mprotect");
}

int main(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
    write_code(page, 41);
    travel();
    CHECK(run(page) == 41, "code written before a move");
    write_code(page, 42);
    CHECK(run(page) == 42, "code written after it");
    travel();
    CHECK(run(page) == 42, "and after another one");
    return verdict();
}
