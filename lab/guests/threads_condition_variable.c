/* Condition variables: turns are passed between threads, and a timed wait ends at its moment. */
#include "travel.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn, rounds;
static double end_s;

static void *play(void *me)
{
    pthread_mutex_lock(&lock);
    while (now_s() < end_s || turn != 0 || rounds == 0) {
        if (turn == (int)(intptr_t)me) {
            turn = (turn + 1) % 3;
            rounds++;
            pthread_cond_broadcast(&turned);
        } else {
            struct timespec soon = timespec_of(clock_s(CLOCK_REALTIME) + 0.05);
            pthread_cond_timedwait(&turned, &lock, &soon);
        }
    }
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    end_s = now_s() + (double)travel_ms() / 500.0;
    for (int i = 0; i < 3; i++) {
        must(pthread_create(&threads[i], NULL, play, (void *)(intptr_t)i) ? -1 : 0, "create");
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(rounds > 0 && rounds % 3 == 0, "turns were passed around");
    pthread_condattr_t kind;
    pthread_cond_t never;
    pthread_condattr_init(&kind);
    pthread_condattr_setclock(&kind, CLOCK_MONOTONIC);
    pthread_cond_init(&never, &kind);
    double start_s = now_s(), asked_s = (double)travel_ms() / 1000.0;
    struct timespec moment = timespec_of(start_s + asked_s);
    pthread_mutex_lock(&lock);
    CHECK(pthread_cond_timedwait(&never, &lock, &moment) == ETIMEDOUT, "a timed wait times out");
    CHECK(lasted(now_s() - start_s, asked_s), "at its moment");
    pthread_mutex_unlock(&lock);
    return verdict();
}
