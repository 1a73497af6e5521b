/* Files are mapped, written to, looked at and unmapped all the time while the process moves. */
#include "travel.h"

enum { PAGES = 3, KEPT = 8 };

static const size_t page = 4096;

/* Whether a private mapping of these pages is what read(2) gives, and takes a write. */
static char *mapped(int file, off_t from)
{
    static char expected[PAGES * 4096];
    char *memory = mmap(NULL, sizeof expected, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, from);
    if (memory == MAP_FAILED || pread(file, expected, sizeof expected, from) != sizeof expected) {
        return NULL;
    }
    int same = memcmp(memory, expected, sizeof expected) == 0;
    memory[page] = (char)(from / (off_t)page);
    return same ? memory : NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    const char *names[] = {argv[0], "/proc/self/exe", "/bin/sh"};
    char *kept[KEPT] = {0};
    off_t places[KEPT] = {0};
    long wrong = 0, refused = 0;
    double end_s = now_s() + (double)travel_ms() / 250;
    for (unsigned round = 0; now_s() < end_s; round++) {
        int file = open(names[round % 3], O_RDONLY);
        struct stat now;
        fstat(file, &now);
        off_t pages = now.st_size / (off_t)page - PAGES, from = (off_t)page * (round % pages);
        unsigned at = round % KEPT;
        if (kept[at]) {
            wrong += kept[at][page] != (char)(places[at] / (off_t)page);
            munmap(kept[at], PAGES * page);
        }
        kept[at] = mapped(file, from);
        places[at] = from;
        wrong += !kept[at];
        close(file);
        refused += mmap(NULL, page, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED &&
                   errno == EBADF;
    }
    CHECK(wrong == 0, "each mapping is what the file has, and keeps what was written to it");
    CHECK(refused > 0, "a file that was closed is not mapped");
    return verdict();
}
