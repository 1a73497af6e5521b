/* pthread_kill reaches the one thread that was meant; masks are per thread. */
#include "travel.h"

enum { THREADS = 3 };
static pid_t handled_by[16];
static pid_t tids[THREADS];
static int count, stop;

static void note(int signal)
{
    (void)signal;
    /* One signal at a time is under way; the count says that its thread is written down. */
    handled_by[count % 16] = gettid();
    __atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST);
}

static void *wait_blocked(void *argument)
{
    int me = (int)(intptr_t)argument;
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    if (me != 2) {
        pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    }
    __atomic_store_n(&tids[me], gettid(), __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
        sleep_until(now_s() + 0.01);
    }
    return NULL;
}

static void await_count(int wanted)
{
    double end_s = now_s() + 20;
    while (__atomic_load_n(&count, __ATOMIC_SEQ_CST) < wanted && now_s() < end_s) {
        sleep_until(now_s() + 0.002);
    }
}

int main(void)
{
    pthread_t threads[THREADS];
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    on_signal(SIGUSR1, note, SA_RESTART);
    on_signal(SIGUSR2, note, SA_RESTART);
    for (int i = 0; i < THREADS; i++) {
        void *me = (void *)(intptr_t)i;
        must(pthread_create(&threads[i], NULL, wait_blocked, me) ? -1 : 0, "pthread_create");
    }
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    for (int i = 0; i < THREADS; i++) {
        travel();
        while (__atomic_load_n(&tids[i], __ATOMIC_SEQ_CST) == 0) {
            sleep_until(now_s() + 0.002);
        }
        pthread_kill(threads[i], SIGUSR1);
        await_count(i + 1);
        CHECK(handled_by[i] == tids[i] && tids[i] != 0, "the thread that was meant");
    }
    kill(getpid(), SIGUSR2);
    await_count(4);
    CHECK(handled_by[3] == tids[2], "the only thread that lets it in");
    CHECK(count == 4, "and nobody else");
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    return verdict();
}
