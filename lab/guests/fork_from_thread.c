/* A process with several threads forks while away: the child has one of them, locks usable. */
#include "travel.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int stop;

static void *keep_busy(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
        pthread_mutex_lock(&lock);
        compute_until(0);
        pthread_mutex_unlock(&lock);
        sleep_until(now_s() + 0.001);
    }
    return NULL;
}

static int count_threads(void)
{
    char line[256];
    int count = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) {
        sscanf(line, "Threads: %d", &count);
    }
    fclose(status);
    return count;
}

int main(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        must(pthread_create(&threads[i], NULL, keep_busy, NULL) ? -1 : 0, "pthread_create");
    }
    for (int round = 0; round < 2; round++) {
        travel();
        pthread_mutex_lock(&lock);
        fflush(stdout);
        pid_t child = (pid_t)must(fork(), "fork");
        pthread_mutex_unlock(&lock);
        if (child == 0) {
            pthread_t thread;
            int wrong = count_threads() != 1;
            __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
            wrong += pthread_create(&thread, NULL, keep_busy, NULL) != 0;
            wrong += pthread_join(thread, NULL) != 0;
            _exit(wrong);
        }
        join_child(child);
        CHECK(count_threads() == 4, "the parent has all of its threads");
    }
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    return verdict();
}
