/* A priority-inheriting mutex works across moves: the kernel knows its owner by thread id. */
#include "travel.h"

static pthread_mutex_t lock;
static int total;
static double end_s;

static void *count(void *unused)
{
    (void)unused;
    int mine = 0;
    do {
        pthread_mutex_lock(&lock);
        total++;
        compute_until(0);
        pthread_mutex_unlock(&lock);
        mine++;
        sleep_until(now_s() + 0.0002);
    } while (now_s() < end_s);
    return (void *)(intptr_t)mine;
}

int main(void)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    CHECK(pthread_mutex_init(&lock, &kind) == 0, "the mutex is made");
    pthread_t threads[3];
    end_s = now_s() + (double)travel_ms() / 500.0;
    for (int i = 0; i < 3; i++) {
        must(pthread_create(&threads[i], NULL, count, NULL) ? -1 : 0, "pthread_create");
    }
    intptr_t sum = 0;
    for (int i = 0; i < 3; i++) {
        void *mine;
        pthread_join(threads[i], &mine);
        sum += (intptr_t)mine;
    }
    CHECK(sum == total, "every increment counted");
    CHECK(pthread_mutex_lock(&lock) == 0, "locked before a move");
    travel();
    CHECK(pthread_mutex_lock(&lock) == EDEADLK, "still ours after it");
    CHECK(pthread_mutex_unlock(&lock) == 0, "and unlocked");
    CHECK(pthread_mutex_unlock(&lock) == EPERM, "only once");
    return verdict();
}
