/* Semaphores hand items from producers to consumers, each once; a timed wait ends at its moment. */
#include "travel.h"
#include <semaphore.h>

enum { ITEMS = 600, SLOTS = 8 };
static sem_t empty, full;
static int ring[SLOTS], head, tail, taken[ITEMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *produce(void *unused)
{
    (void)unused;
    for (int item = 0; item < ITEMS; item++) {
        sem_wait(&empty);
        ring[head++ % SLOTS] = item;
        sem_post(&full);
        if (item % 60 == 0) {
            compute_until(now_s() + (double)travel_ms() / 10000.0);
        }
    }
    return NULL;
}

static void *consume(void *unused)
{
    (void)unused;
    for (int i = 0; i < ITEMS / 2; i++) {
        sem_wait(&full);
        pthread_mutex_lock(&lock);
        taken[ring[tail++ % SLOTS]]++;
        pthread_mutex_unlock(&lock);
        sem_post(&empty);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    sem_init(&empty, 0, SLOTS / 2);
    sem_init(&full, 0, 0);
    for (int i = 0; i < 3; i++) {
        void *(*act)(void *) = i == 0 ? produce : consume;
        must(pthread_create(&threads[i], NULL, act, NULL) ? -1 : 0, "pthread_create");
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    int wrong = 0, value = -1;
    for (int item = 0; item < ITEMS; item++) {
        wrong += taken[item] != 1;
    }
    CHECK(wrong == 0, "every item was taken once");
    CHECK(sem_getvalue(&empty, &value) == 0 && value == SLOTS / 2, "all slots are free again");
    double start_s = now_s(), asked_s = (double)travel_ms() / 700.0;
    struct timespec moment = timespec_of(clock_s(CLOCK_REALTIME) + asked_s);
    CHECK(sem_timedwait(&full, &moment) == -1 && errno == ETIMEDOUT, "a timed wait times out");
    CHECK(lasted(now_s() - start_s, asked_s - 0.005), "at its moment");
    return verdict();
}
