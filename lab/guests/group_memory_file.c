/* Processes share a memory file that each has a descriptor of, and use both ways to it. */
/* may stay: shared-memory */
#include "travel.h"

enum { BYTES = 8 * 4096, ROUNDS = 6 };

static int fd;
static volatile uint32_t *words;

/* Answers what is written to it by memory with what it writes by a call. */
static void answer(void)
{
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        while (words[0] != round) {
            struct timespec pause = {0, 200000};
            nanosleep(&pause, NULL);
        }
        uint32_t seen = 0;
        must(pread(fd, &seen, sizeof seen, 4096), "pread");
        seen += round;
        must(pwrite(fd, &seen, sizeof seen, 2 * 4096), "pwrite");
        words[1] = round;
    }
    _exit(0);
}

int main(void)
{
    fd = (int)must(memfd_create("guest", 0), "memfd_create");
    must(ftruncate(fd, BYTES), "ftruncate");
    words = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(words != MAP_FAILED, "a memory file");
    fill((char *)words + 4 * 4096, 4096, 3);
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        answer();
    }
    int all = 1;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        if (round % 2 == 0) {
            travel();
        }
        words[1024] = 1000 * round;
        words[0] = round;
        while (words[1] != round) {
            struct timespec pause = {0, 200000};
            nanosleep(&pause, NULL);
        }
        all &= words[2048] == 1001 * round;
    }
    CHECK(all, "what one writes by memory the other reads by a call, and the other way around");
    join_child(child);
    travel();
    struct stat about;
    CHECK(fstat(fd, &about) == 0 && about.st_size == BYTES, "it is as long as it was");
    must(munmap((void *)words, BYTES), "munmap");
    char *again = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(is_filled(again + 4 * 4096, 4096, 3), "and has its contents when it is mapped anew");
    uint32_t last = 0;
    CHECK(pread(fd, &last, sizeof last, 2 * 4096) == sizeof last && last == 1001 * ROUNDS,
          "the last as well");
    return verdict();
}
