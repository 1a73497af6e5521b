/* What threads write all over a mapped file is in the file when it has to be. */
#include "travel.h"

enum { PAGE = 4096, HALF = 64 * PAGE, SIZE = 2 * HALF, ROUNDS = 6, THREADS = 3 };

static unsigned char *map;
static volatile int is_over;

/* Each thread has every third byte of the last page of the first half, and counts there. */
static void *count(void *argument)
{
    long number = (long)argument;
    volatile unsigned char *page = map + HALF - PAGE;
    for (unsigned char value = 1; !is_over; value = (unsigned char)(value % 250 + 1)) {
        for (int at = (int)number; at < PAGE; at += THREADS) {
            page[at] = value;
        }
    }
    for (int at = (int)number; at < PAGE; at += THREADS) {
        page[at] = (unsigned char)(number + 40);
    }
    return NULL;
}

static int file_has(int fd, int at, int length, unsigned seed)
{
    static unsigned char bytes[SIZE];
    return pread(fd, bytes, (size_t)length, at) == length && is_filled(bytes, (size_t)length, seed);
}

int main(void)
{
    int fd = (int)must(open("written", O_RDWR | O_CREAT | O_TRUNC, 0644), "open");
    must(ftruncate(fd, SIZE), "ftruncate");
    map = mmap(NULL, HALF, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned char *second = mmap(NULL, HALF, PROT_READ | PROT_WRITE, MAP_SHARED, fd, HALF);
    must(map == MAP_FAILED || second == MAP_FAILED ? -1 : 0, "mmap");
    pthread_t threads[THREADS];
    for (long number = 0; number < THREADS; number++) {
        errno = pthread_create(&threads[number], NULL, count, (void *)number);
        must(errno ? -1 : 0, "pthread_create");
    }
    int agree = 1, synced = 1;
    for (unsigned round = 0; round < ROUNDS; round++) {
        fill(map, HALF - PAGE, round);
        fill(second, HALF, round + 100);
        travel();
        agree &= is_filled(map, HALF - PAGE, round) && is_filled(second, HALF, round + 100);
        agree &= file_has(fd, 0, HALF - PAGE, round) && file_has(fd, HALF, HALF, round + 100);
        synced &= msync(map + PAGE, 3 * PAGE, round % 2 ? MS_SYNC : MS_ASYNC) == 0;
        memset(second + 5, (int)round, 90);
    }
    CHECK(agree, "memory and file agree at every place");
    CHECK(synced, "and can be synchronised");
    CHECK(mprotect(second, HALF, PROT_READ) == 0, "it becomes read-only");
    travel();
    CHECK(mprotect(second, HALF, PROT_READ | PROT_WRITE) == 0, "and writable again");
    fill(second, HALF, 77);
    travel();
    must(pwrite(fd, "by call", 7, HALF + 3 * PAGE), "pwrite");
    CHECK(memcmp(second + 3 * PAGE, "by call", 7) == 0, "the memory sees what calls write");
    travel();
    fill(second, HALF, 78);
    CHECK(munmap(second, HALF) == 0, "a half goes");
    CHECK(file_has(fd, HALF, HALF, 78), "and its file has all");
    travel();
    is_over = 1;
    for (int number = 0; number < THREADS; number++) {
        pthread_join(threads[number], NULL);
    }
    travel();
    /* The other half is left to the end of the process. */
    fill(map, HALF - PAGE, 79);
    return verdict();
}
