/* The stack grows by deep recursion before and after a move, and old frames are intact. */
#include "travel.h"

static int dive(uint32_t depth, int stay)
{
    unsigned char frame[4000];
    fill(frame, sizeof frame, depth);
    int wrong = 0;
    if (depth > 0) {
        wrong = dive(depth - 1, stay);
    } else if (stay) {
        travel();
    }
    return wrong + !is_filled(frame, sizeof frame, depth);
}

int main(void)
{
    CHECK(dive(100, 0) == 0, "400 KB before a move");
    travel();
    CHECK(dive(900, 1) == 0, "3.6 MB, deep down during a move");
    CHECK(dive(1500, 0) == 0, "6 MB after it");
    return verdict();
}
