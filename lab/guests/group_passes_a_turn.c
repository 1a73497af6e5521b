/* Four processes hand a turn around by a condition in shared memory: each has his in turn. */
/* may stay: shared-memory */
#include "travel.h"

enum { MEMBERS = 4 };

struct page {
    pthread_mutex_t lock;
    pthread_cond_t turned;
    uint64_t turns, rounds[MEMBERS];
    int is_over;
};
static struct page *page;

static void take_turns(int me)
{
    pthread_mutex_lock(&page->lock);
    while (!page->is_over) {
        if (page->turns % MEMBERS != (uint64_t)me) {
            pthread_cond_wait(&page->turned, &page->lock);
            continue;
        }
        page->rounds[me]++;
        page->turns++;
        pthread_cond_broadcast(&page->turned);
    }
    pthread_mutex_unlock(&page->lock);
}

static void end(void)
{
    pthread_mutex_lock(&page->lock);
    page->is_over = 1;
    pthread_cond_broadcast(&page->turned);
    pthread_mutex_unlock(&page->lock);
}

static uint64_t fewest_rounds(void)
{
    pthread_mutex_lock(&page->lock);
    uint64_t fewest = page->rounds[0];
    for (int me = 1; me < MEMBERS; me++)
        fewest = page->rounds[me] < fewest ? page->rounds[me] : fewest;
    pthread_mutex_unlock(&page->lock);
    return fewest;
}

/* How fast turns are taken is the machine's affair; that they are is not. */
static void *rest(void *nothing)
{
    travel();
    travel();
    while (fewest_rounds() <= 10)
        usleep(1000);
    end();
    return nothing;
}

int main(void)
{
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    init_shared_lock(&page->lock, PTHREAD_MUTEX_STALLED);
    pthread_condattr_t shared;
    pthread_condattr_init(&shared);
    pthread_condattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&page->turned, &shared);
    pid_t children[MEMBERS];
    travel();
    for (int me = 1; me < MEMBERS; me++) {
        children[me] = (pid_t)must(fork(), "fork");
        if (children[me] == 0) {
            take_turns(me);
            _exit(0);
        }
    }
    pthread_t clock;
    pthread_create(&clock, NULL, rest, NULL);
    take_turns(0);
    pthread_join(clock, NULL);
    for (int me = 1; me < MEMBERS; me++)
        join_child(children[me]);
    uint64_t sum = 0, least = page->rounds[0], most = page->rounds[0];
    for (int me = 0; me < MEMBERS; me++) {
        sum += page->rounds[me];
        least = page->rounds[me] < least ? page->rounds[me] : least;
        most = page->rounds[me] > most ? page->rounds[me] : most;
    }
    CHECK(sum == page->turns, "each turn was somebody's");
    CHECK(most - least <= 1, "and each had his in turn");
    CHECK(least > 10, "many times");
    return verdict();
}
