/* The owner of a robust mutex dies: the next one is told, repairs it, or loses it for ever. */
#include "travel.h"
#include <semaphore.h>

static pthread_mutex_t *lock;
static sem_t held;

static void *die_holding(void *unused)
{
    (void)unused;
    pthread_mutex_lock(lock);
    sem_post(&held);
    travel();
    return NULL;
}

static void wait_until_held(void)
{
    while (sem_wait(&held) == -1) {
        must(errno == EINTR ? 0 : -1, "sem_wait");
    }
}

static void make_robust(void)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(lock, &kind);
}

int main(void)
{
    lock = malloc(sizeof *lock);
    make_robust();
    must(sem_init(&held, 0, 0), "sem_init");
    pthread_t thread;
    for (int round = 0; round < 2; round++) {
        must(pthread_create(&thread, NULL, die_holding, NULL) ? -1 : 0, "pthread_create");
        wait_until_held();
        sleep_until(now_s() + travel_ms() / 3000.0);
        CHECK(pthread_mutex_lock(lock) == EOWNERDEAD, "the next owner is told of the death");
        CHECK(pthread_mutex_consistent(lock) == 0, "and repairs");
        CHECK(pthread_mutex_unlock(lock) == 0, "and unlocks");
        pthread_join(thread, NULL);
    }
    must(pthread_create(&thread, NULL, die_holding, NULL) ? -1 : 0, "pthread_create");
    pthread_join(thread, NULL);
    CHECK(pthread_mutex_lock(lock) == EOWNERDEAD, "also when it died long ago");
    CHECK(pthread_mutex_unlock(lock) == 0, "left inconsistent");
    CHECK(pthread_mutex_lock(lock) == ENOTRECOVERABLE, "it is lost for ever");
    return verdict();
}
