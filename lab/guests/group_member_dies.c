/* A member that dies with a robust mutex in shared memory leaves it to the others. */
/* may stay: shared-memory */
#include "travel.h"

struct page {
    pthread_mutex_t lock;
    volatile int is_held;
};

int main(void)
{
    struct page *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    init_shared_lock(&page->lock, PTHREAD_MUTEX_ROBUST);
    for (int round = 0; round < 3; round++) {
        page->is_held = 0;
        pid_t child = (pid_t)must(fork(), "fork");
        if (child == 0) {
            pthread_mutex_lock(&page->lock);
            page->is_held = 1;
            travel();
            if (round == 0)
                _exit(0);
            if (round == 1)
                abort();
            pause();
        }
        while (!page->is_held)
            usleep(1000);
        if (round == 2) {
            travel();
            kill(child, SIGKILL);
        }
        int got = pthread_mutex_lock(&page->lock);
        CHECK(got == EOWNERDEAD, "its owner is dead");
        CHECK(pthread_mutex_consistent(&page->lock) == 0, "the next has it");
        pthread_mutex_unlock(&page->lock);
        int status;
        CHECK(waitpid(child, &status, 0) == child, "and the dead one is reaped");
        printf("status %x\n", (unsigned)(status & ~0x80));
        travel();
    }
    return verdict();
}
