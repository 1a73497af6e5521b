/* Waits that end at a time of day end then: condition variables, semaphores and mutexes. */
#include "travel.h"
#include <semaphore.h>


static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, busy, busy_pi;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;

static int by_condition(const struct timespec *end)
{
    pthread_mutex_lock(&mutex);
    int error = pthread_cond_timedwait(&condition, &mutex, end);
    pthread_mutex_unlock(&mutex);
    return error;
}

static int by_semaphore(const struct timespec *end)
{
    return sem_timedwait(&semaphore, end) == 0 ? 0 : errno;
}

static int by_mutex(const struct timespec *end)
{
    return pthread_mutex_timedlock(&busy, end);
}

static int by_pi_mutex(const struct timespec *end)
{
    return pthread_mutex_timedlock(&busy_pi, end);
}

static int is_punctual(int (*wait)(const struct timespec *))
{
    double begin_s = clock_s(CLOCK_MONOTONIC), length_s = travel_ms() / 1500.0;
    struct timespec end = timespec_of(clock_s(CLOCK_REALTIME) + length_s);
    int error = wait(&end);
    double took_s = clock_s(CLOCK_MONOTONIC) - begin_s;
    int holds = error == ETIMEDOUT && took_s > length_s - 0.005 && took_s < length_s + 5.0;
    if (!holds) {
        printf("error %d after %.3f s of %.3f\n", error, took_s, length_s);
    }
    return holds;
}

static void *test(void *unused)
{
    (void)unused;
    CHECK(is_punctual(by_condition), "a condition variable");
    CHECK(is_punctual(by_semaphore), "a semaphore");
    CHECK(is_punctual(by_mutex), "a mutex");
    CHECK(is_punctual(by_pi_mutex), "a mutex that inherits priorities");
    return NULL;
}

static void *wake(void *unused)
{
    (void)unused;
    travel();
    sem_post(&semaphore);
    return NULL;
}

int main(void)
{
    pthread_mutexattr_t inherits;
    pthread_mutexattr_init(&inherits);
    pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&busy, NULL);
    pthread_mutex_init(&busy_pi, &inherits);
    sem_init(&semaphore, 0, 0);
    pthread_mutex_lock(&busy);
    pthread_mutex_lock(&busy_pi);
    pthread_t waiter, waker;
    pthread_create(&waiter, NULL, test, NULL);
    pthread_join(waiter, NULL);
    struct timespec past = {1, 0};
    CHECK(sem_timedwait(&semaphore, &past) == -1 && errno == ETIMEDOUT, "1970 is over");
    struct timespec senseless = {1, 2000000000};
    CHECK(sem_timedwait(&semaphore, &senseless) == -1 && errno == EINVAL, "a senseless time");
    pthread_create(&waker, NULL, wake, NULL);
    struct timespec far = timespec_of(clock_s(CLOCK_REALTIME) + 600);
    CHECK(sem_timedwait(&semaphore, &far) == 0, "who is woken wakes before");
    pthread_join(waker, NULL);
    return verdict();
}
