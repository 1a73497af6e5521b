/* What was written before mprotect(PROT_NONE) is there again when the page is opened elsewhere. */
#include "travel.h"

enum { SIZE = 10 * 4096 };

int main(void)
{
    char *room = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(room, SIZE, 11);
    must(mprotect(room, SIZE, PROT_NONE), "mprotect");
    travel();
    CHECK(mprotect(room, SIZE, PROT_READ) == 0, "the pages are opened");
    CHECK(is_filled(room, SIZE, 11), "and are as they were");
    must(mprotect(room, SIZE, PROT_NONE), "mprotect");
    travel();
    CHECK(write(1, room, 1) == -1 && errno == EFAULT, "the kernel may not read them");
    must(mprotect(room, SIZE, PROT_READ | PROT_WRITE), "mprotect");
    CHECK(is_filled(room, SIZE, 11), "and they are still as they were");
    return verdict();
}
