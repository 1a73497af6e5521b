/* The guest itself dies by a memory fault after a move, and is seen to have died by SIGSEGV. */
/* ends: signal 11 */
#include "travel.h"
#include <sys/resource.h>

static int *volatile nowhere = (int *)16;

int main(void)
{
    struct rlimit none = {0, 0};
    must(setrlimit(RLIMIT_CORE, &none), "setrlimit");
    CHECK(1, "before the fault");
    travel();
    travel();
    *nowhere = 1;
    CHECK(0, "this is never reached");
    return verdict();
}
