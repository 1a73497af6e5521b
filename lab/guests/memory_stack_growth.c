/* The stack grows by deep recursion around each move: frames are intact, and it is one mapping. */
#include "travel.h"

/* True if both addresses are in the mapping that the kernel calls the stack. */
static int is_one_stack(const unsigned char *deep, const char *high)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int is_one = 0;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        uintptr_t start, end;
        if (strstr(line, "[stack]") != NULL && sscanf(line, "%lx-%lx", &start, &end) == 2)
            is_one = start <= (uintptr_t)deep && (uintptr_t)high < end;
    }
    if (maps != NULL)
        fclose(maps);
    return is_one;
}

/* The number of frames that are not as they were, and 1 if the stack is not one mapping. */
static int dive(uint32_t depth, int stay, const char *high)
{
    unsigned char frame[4000];
    fill(frame, sizeof frame, depth);
    int wrong = 0;
    if (depth > 0) {
        wrong = dive(depth - 1, stay, high);
    } else {
        if (stay)
            travel();
        wrong = !is_one_stack(frame, high);
    }
    return wrong + !is_filled(frame, sizeof frame, depth);
}

int main(void)
{
    char high = 0;
    CHECK(dive(100, 0, &high) == 0, "400 KB before a move");
    travel();
    for (uint32_t depth = 300; depth <= 1200; depth += 150) {
        CHECK(dive(depth, 1, &high) == 0, "deeper than ever, during a move");
    }
    CHECK(dive(1500, 0, &high) == 0, "6 MB after it");
    return verdict();
}
