/* A futex wait is woken by another thread, sees a changed value, and times out when it should. */
#include "travel.h"
#include <linux/futex.h>

static uint32_t word;

static long futex(int operation, uint32_t value, const struct timespec *time, uint32_t bits)
{
    return syscall(SYS_futex, &word, operation, value, time, NULL, bits);
}

static void *wake_later(void *unused)
{
    (void)unused;
    travel();
    __atomic_store_n(&word, 7, __ATOMIC_SEQ_CST);
    futex(FUTEX_WAKE_PRIVATE, 1, NULL, 0);
    return NULL;
}

int main(void)
{
    double asked_s = travel_ms() / 1000.0, start_s = now_s();
    struct timespec asked = timespec_of(asked_s);
    CHECK(futex(FUTEX_WAIT_PRIVATE, 0, &asked, 0) == -1 && errno == ETIMEDOUT, "it times out");
    CHECK(lasted(now_s() - start_s, asked_s), "after the time that was asked");
    start_s = now_s();
    struct timespec end = timespec_of(start_s + asked_s);
    long result = futex(FUTEX_WAIT_BITSET_PRIVATE, 0, &end, FUTEX_BITSET_MATCH_ANY);
    CHECK(result == -1 && errno == ETIMEDOUT, "an absolute wait times out");
    CHECK(lasted(now_s() - start_s, asked_s), "at its moment");
    pthread_t waker;
    must(pthread_create(&waker, NULL, wake_later, NULL) ? -1 : 0, "pthread_create");
    while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0) {
        result = futex(FUTEX_WAIT_PRIVATE, 0, NULL, 0);
        CHECK(result == 0 || errno == EAGAIN, "a wait without end is woken");
    }
    pthread_join(waker, NULL);
    CHECK(futex(FUTEX_WAIT_PRIVATE, 0, NULL, 0) == -1 && errno == EAGAIN, "a changed value");
    return verdict();
}
