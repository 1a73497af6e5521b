/* The guest itself dies by a signal that a child sends; whoever waits for it is told. */
/* ends: signal 15 */
#include "travel.h"

static void end_parent(void)
{
    kill(getppid(), SIGTERM);
}

int main(void)
{
    CHECK(1, "before the signal");
    child_after_travel(end_parent);
    for (;;) {
        compute_until(now_s() + 0.01);
    }
}
