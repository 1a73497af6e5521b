/* Parent and child count in the same shared page under a process-shared lock: no count is lost. */
/* may stay: shared-memory */
#include "travel.h"

struct page {
    pthread_mutex_t lock;
    uint64_t total, parts[2];
};
static struct page *page;

static void count(int me)
{
    double end_s = now_s() + (double)travel_ms() / 500.0;
    while (now_s() < end_s) {
        for (int i = 0; i < 100; i++) {
            pthread_mutex_lock(&page->lock);
            page->total++;
            page->parts[me]++;
            pthread_mutex_unlock(&page->lock);
        }
    }
}

int main(void)
{
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    init_shared_lock(&page->lock, PTHREAD_MUTEX_STALLED);
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        count(1);
        _exit(0);
    }
    count(0);
    join_child(child);
    CHECK(page->parts[0] > 0 && page->parts[1] > 0, "both counted");
    CHECK(page->total == page->parts[0] + page->parts[1], "and no count was lost");
    return verdict();
}
