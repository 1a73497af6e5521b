/* Readers never see a half-done write under a reader-writer lock while all are moved. */
#include "travel.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static uint64_t left, right;
static int torn, reads;
static double end_s;

static void *write_pairs(void *unused)
{
    (void)unused;
    do {
        pthread_rwlock_wrlock(&lock);
        left++;
        compute_until(0);
        right++;
        pthread_rwlock_unlock(&lock);
        sleep_until(now_s() + 0.001);
    } while (now_s() < end_s);
    return NULL;
}

static void *read_pairs(void *unused)
{
    (void)unused;
    do {
        pthread_rwlock_rdlock(&lock);
        __atomic_add_fetch(&torn, left != right, __ATOMIC_SEQ_CST);
        pthread_rwlock_unlock(&lock);
        __atomic_add_fetch(&reads, 1, __ATOMIC_SEQ_CST);
        sleep_until(now_s() + 0.0005);
    } while (now_s() < end_s);
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    end_s = now_s() + (double)travel_ms() / 400.0;
    for (int i = 0; i < 4; i++) {
        void *(*act)(void *) = i == 0 ? write_pairs : read_pairs;
        must(pthread_create(&threads[i], NULL, act, NULL) ? -1 : 0, "pthread_create");
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(torn == 0 && left == right, "no read saw a torn pair");
    CHECK(pthread_rwlock_trywrlock(&lock) == 0, "the lock is free at the end");
    return verdict();
}
