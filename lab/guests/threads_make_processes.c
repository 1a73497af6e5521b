/* Threads fork and spawn at the same time while others compute and one waits for any child. */
#include "travel.h"
#include <spawn.h>

extern char **environ;

enum { MAKERS = 4, CHILDREN = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
/* What the waiting thread has found: pids and their statuses. */
static pid_t ended[CHILDREN];
static int statuses[CHILDREN];
static int ended_count, collected, is_over, wrong, spawned, forked;

/* The status of a child that another thread waits for. */
static int status_of(pid_t child)
{
    int status = -1;
    pthread_mutex_lock(&lock);
    for (;;) {
        int at = 0;
        while (at < ended_count && ended[at] != child) {
            at++;
        }
        if (at < ended_count) {
            status = statuses[at];
            ended[at] = 0;
            collected++;
            break;
        }
        pthread_cond_wait(&news, &lock);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static void *reap(void *unused)
{
    (void)unused;
    for (;;) {
        int status;
        pid_t child = waitpid(-1, &status, 0);
        pthread_mutex_lock(&lock);
        if (child > 0) {
            ended[ended_count] = child;
            statuses[ended_count++] = status;
            pthread_cond_broadcast(&news);
        }
        int is_done = is_over && child == -1 && errno == ECHILD;
        pthread_mutex_unlock(&lock);
        if (is_done) {
            return NULL;
        }
        if (child == -1) {
            sleep_until(now_s() + 0.001);
        }
    }
}

static pid_t spawn(int number)
{
    char script[32], *words[] = {"sh", "-c", script, NULL};
    snprintf(script, sizeof script, "exit %d", number);
    pid_t child = -1;
    return posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ) ? -1 : child;
}

static pid_t fork_with_memory(int number)
{
    static __thread unsigned char memory[70000];
    fill(memory, sizeof memory, (uint32_t)number);
    pid_t child = fork();
    if (child == 0) {
        _exit(is_filled(memory, sizeof memory, (uint32_t)number) ? number : 255);
    }
    return child;
}

static void *make(void *argument)
{
    int number = (int)(uintptr_t)argument;
    double end_s = now_s() + (double)travel_ms() / 300.0;
    for (int round = 0; round < 4 || (now_s() < end_s && round < CHILDREN / MAKERS); round++) {
        int is_spawned = (round + number) % 2;
        pid_t child = is_spawned ? spawn(number) : fork_with_memory(number);
        int status = child == -1 ? -1 : status_of(child);
        int is_right = WIFEXITED(status) && WEXITSTATUS(status) == number;
        __atomic_add_fetch(is_right ? (is_spawned ? &spawned : &forked) : &wrong, 1,
                           __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static void *compute(void *unused)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
        compute_until(now_s() + 0.005);
        sleep_until(now_s() + 0.002);
    }
    return unused;
}

int main(void)
{
    pthread_t makers[MAKERS], reaper, computing;
    pid_t none = -1;
    char *words[] = {"none", NULL};
    must(pthread_create(&reaper, NULL, reap, NULL) ? -1 : 0, "pthread_create");
    must(pthread_create(&computing, NULL, compute, NULL) ? -1 : 0, "pthread_create");
    travel();
    for (uintptr_t i = 0; i < MAKERS; i++) {
        must(pthread_create(&makers[i], NULL, make, (void *)(i + 1)) ? -1 : 0, "pthread_create");
    }
    travel();
    CHECK(posix_spawn(&none, "/no/such/program", NULL, NULL, words, environ) == ENOENT,
          "a program that is not there");
    for (int i = 0; i < MAKERS; i++) {
        pthread_join(makers[i], NULL);
    }
    pthread_mutex_lock(&lock);
    is_over = 1;
    pthread_mutex_unlock(&lock);
    pthread_join(reaper, NULL);
    pthread_join(computing, NULL);
    CHECK(wrong == 0 && forked >= 2 * MAKERS && spawned >= 2 * MAKERS, "all ended as they should");
    /* The child that could not begin its program is reaped by posix_spawn, or by the other. */
    CHECK(ended_count - collected <= 1, "nobody else has ended");
    return verdict();
}
