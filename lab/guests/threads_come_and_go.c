/* Threads are born and end while the process is moved: ids are new, results and stacks arrive. */
#include "travel.h"

static void *square(void *argument)
{
    unsigned char stack[20000];
    uint32_t number = (uint32_t)(uintptr_t)argument;
    fill(stack, sizeof stack, number);
    compute_until(now_s() + 0.002);
    if (gettid() == getpid() || !is_filled(stack, sizeof stack, number)) {
        return NULL;
    }
    return (void *)(uintptr_t)(number * number);
}

static void *generation(void *argument)
{
    uintptr_t depth = (uintptr_t)argument;
    pthread_t next;
    void *below = NULL;
    if (depth > 0) {
        must(pthread_create(&next, NULL, generation, (void *)(depth - 1)) ? -1 : 0, "create");
        pthread_join(next, &below);
    }
    return (void *)((uintptr_t)below + depth);
}

int main(void)
{
    double end_s = now_s() + (double)travel_ms() / 400.0;
    uint32_t wrong = 0, rounds = 0;
    do {
        pthread_t threads[4];
        for (uintptr_t i = 0; i < 4; i++) {
            void *argument = (void *)(i + rounds);
            must(pthread_create(&threads[i], NULL, square, argument) ? -1 : 0, "pthread_create");
        }
        for (uint32_t i = 0; i < 4; i++) {
            void *result;
            pthread_join(threads[i], &result);
            wrong += (uint32_t)(uintptr_t)result != (i + rounds) * (i + rounds);
        }
        rounds++;
    } while (now_s() < end_s || rounds < 3);
    CHECK(wrong == 0, "every thread gave its result");
    pthread_t chain;
    void *sum;
    must(pthread_create(&chain, NULL, generation, (void *)12) ? -1 : 0, "pthread_create");
    pthread_join(chain, &sum);
    CHECK((uintptr_t)sum == 78, "threads that make threads");
    return verdict();
}
