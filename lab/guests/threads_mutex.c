/* Four threads count under one mutex while they are moved: no increment is lost. */
#include "travel.h"

enum { THREADS = 4 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t total, per_thread[THREADS];
static double end_s;

static void *count(void *argument)
{
    uint64_t *mine = argument;
    do {
        for (int i = 0; i < 200; i++) {
            pthread_mutex_lock(&lock);
            total++;
            pthread_mutex_unlock(&lock);
            (*mine)++;
        }
    } while (now_s() < end_s);
    return mine;
}

int main(void)
{
    pthread_t threads[THREADS];
    end_s = now_s() + (double)travel_ms() / 400.0;
    for (int i = 0; i < THREADS; i++) {
        must(pthread_create(&threads[i], NULL, count, &per_thread[i]) ? -1 : 0, "pthread_create");
    }
    uint64_t sum = 0;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        CHECK(pthread_join(threads[i], &result) == 0 && result == &per_thread[i], "thread joined");
        sum += per_thread[i];
    }
    CHECK(sum == total, "every increment counted");
    pthread_mutexattr_t kind;
    pthread_mutex_t checked;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checked, &kind);
    pthread_mutex_lock(&checked);
    travel();
    CHECK(pthread_mutex_lock(&checked) == EDEADLK, "a mutex knows its owner after a move");
    CHECK(pthread_mutex_unlock(&checked) == 0, "who may unlock it");
    return verdict();
}
