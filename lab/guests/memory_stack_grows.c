/* The stack grows deeper before each move: all of it is one mapping, which can move again. */
#include "travel.h"

/* True if both addresses are in the mapping that the kernel calls the stack. */
static int is_one_stack(uintptr_t deep, uintptr_t high)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int is_one = 0;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        uintptr_t start, end;
        if (strstr(line, "[stack]") != NULL && sscanf(line, "%lx-%lx", &start, &end) == 2)
            is_one = start <= deep && high < end;
    }
    if (maps != NULL)
        fclose(maps);
    return is_one;
}

static int dive(uint32_t depth, uintptr_t high)
{
    unsigned char frame[4000];
    fill(frame, sizeof frame, depth);
    int right = 1;
    if (depth > 0) {
        right = dive(depth - 1, high);
    } else {
        travel();
        right = is_one_stack((uintptr_t)frame, high);
    }
    return right && is_filled(frame, sizeof frame, depth);
}

int main(void)
{
    char high = 0;
    for (uint32_t round = 1; round <= 8; round++) {
        CHECK(dive(round * 150, (uintptr_t)&high) == 1, "deeper than ever, and one stack");
    }
    return verdict();
}
