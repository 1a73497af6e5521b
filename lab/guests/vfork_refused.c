/* A process made as by vfork is refused other ids and sets limits, with a lock in its memory. */
#include "travel.h"
#include <sys/resource.h>

/* As the C library's own around setresuid(2): who leaves it locked locks out its maker. */
static volatile int lock;
static volatile int refused;

static void *wait_for_end(void *end)
{
    char byte;
    return read(*(int *)end, &byte, 1) == 0 ? NULL : end;
}

/* No function may return between the two that share a stack. */
static inline __attribute__((always_inline)) long raw(long number, long one, long two, long three)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(one), "S"(two), "d"(three)
                     : "rcx", "r11", "memory");
    return result;
}

int main(void)
{
    int ends[2];
    pthread_t thread;
    struct rlimit limit = {.rlim_cur = 1000, .rlim_max = 1000};
    must(pipe(ends), "pipe");
    /* Without rights, and with a thread, for which the C library takes its lock. */
    if (geteuid() == 0) {
        must(setresgid(65534, 65534, 65534), "setresgid");
        must(setresuid(65534, 65534, 65534), "setresuid");
    }
    pthread_create(&thread, NULL, wait_for_end, &ends[0]);
    for (int round = 0; round < 3; round++) {
        travel();
        pid_t child = (pid_t)raw(SYS_vfork, 0, 0, 0);
        if (child == 0) {
            lock = 1;
            refused = (int)raw(SYS_setresuid, 30000, 30000, 30000);
            raw(SYS_setrlimit, RLIMIT_CPU, (long)&limit, 0);
            lock = 0;
            raw(SYS_exit, 7, 0, 0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child, "it is waited for");
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7, "it ends as it says");
        CHECK(refused == -EPERM, "it is refused other ids");
        CHECK(lock == 0, "what it has unlocked is unlocked for its maker");
        refused = 0;
        lock = 2;
        CHECK(getrlimit(RLIMIT_CPU, &limit) == 0 && limit.rlim_cur != 1000, "the limit is its own");
        limit.rlim_cur = limit.rlim_max = 1000;
    }
    close(ends[1]);
    pthread_join(thread, NULL);
    return verdict();
}
