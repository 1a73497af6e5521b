/* Processes count in POSIX shared memory under a semaphore, neither of which has a name left. */
/* may stay: shared-memory */
#include "travel.h"
#include <semaphore.h>

enum { MEMBERS = 3, BYTES = 3 * 4096 };

struct page {
    uint64_t count, counts[MEMBERS];
    volatile int is_over;
};
static struct page *page;
static sem_t *semaphore;

static void wait_for_it(void)
{
    while (sem_wait(semaphore) == -1 && errno == EINTR) {
    }
}

static void count(int me)
{
    while (!page->is_over) {
        wait_for_it();
        page->counts[me]++;
        uint64_t next = page->count + 1;
        for (volatile int i = 0; i < 200; i++) {
        }
        page->count = next;
        sem_post(semaphore);
        struct timespec pause = {0, 50000};
        nanosleep(&pause, NULL);
    }
}

int main(void)
{
    char name[64];
    snprintf(name, sizeof name, "/osmos-guest-%d", (int)getpid());
    semaphore = sem_open(name, O_CREAT | O_EXCL, 0600, 1);
    CHECK(semaphore != SEM_FAILED, "a named semaphore");
    must(sem_unlink(name), "sem_unlink");
    int fd = (int)must(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600), "shm_open");
    must(ftruncate(fd, BYTES), "ftruncate");
    page = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED, "shared memory");
    must(close(fd), "close");
    must(shm_unlink(name), "shm_unlink");
    char *rest = (char *)page + 4096;
    fill(rest, BYTES - 4096, 7);
    pid_t children[MEMBERS];
    for (int me = 1; me < MEMBERS; me++) {
        children[me] = (pid_t)must(fork(), "fork");
        if (children[me] == 0) {
            count(me);
            _exit(is_filled(rest, BYTES - 4096, 7) ? 0 : 1);
        }
    }
    travel();
    travel();
    travel();
    wait_for_it();
    CHECK(page->count > 10, "they count");
    page->is_over = 1;
    sem_post(semaphore);
    uint64_t sum = 0;
    for (int me = 1; me < MEMBERS; me++) {
        join_child(children[me]);
        CHECK(page->counts[me] > 0, "each of them");
        sum += page->counts[me];
    }
    CHECK(sum == page->count, "one after the other");
    int value = -1;
    CHECK(sem_getvalue(semaphore, &value) == 0 && value == 1, "and the semaphore is free");
    CHECK(is_filled(rest, BYTES - 4096, 7), "memory that nobody wrote to is as it was");
    return verdict();
}
