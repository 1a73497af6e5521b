/* Threads meet at a barrier round after round; nobody is a round ahead, one is the last to come. */
#include "travel.h"

enum { THREADS = 3, ROUNDS = 12 };
static pthread_barrier_t barrier;
static int reached[ROUNDS], serial[ROUNDS], early;

static void *walk(void *unused)
{
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        compute_until(now_s() + (double)travel_ms() / (ROUNDS * 1000.0));
        __atomic_add_fetch(&reached[round], 1, __ATOMIC_SEQ_CST);
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
            __atomic_add_fetch(&serial[round], 1, __ATOMIC_SEQ_CST);
        }
        if (__atomic_load_n(&reached[round], __ATOMIC_SEQ_CST) != THREADS) {
            __atomic_add_fetch(&early, 1, __ATOMIC_SEQ_CST);
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        must(pthread_create(&threads[i], NULL, walk, NULL) ? -1 : 0, "pthread_create");
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        wrong += serial[round] != 1;
    }
    CHECK(early == 0, "nobody passes before all have come");
    CHECK(wrong == 0, "one of them is the serial thread each time");
    CHECK(pthread_barrier_destroy(&barrier) == 0, "the barrier is idle");
    return verdict();
}
