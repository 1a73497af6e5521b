/* A process that comes with a descriptor: by clone(2) as Go begins programs, and by clone3(2). */
#include "travel.h"
#include <linux/sched.h>
#include <poll.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

/* No function may return between two that share a stack: so not by syscall(2). */
static inline __attribute__((always_inline)) long call(long number, long first, long second,
                                                       long third)
{
    long result;
    register long fourth __asm__("r10") = 0;
    register long fifth __asm__("r8") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third), "r"(fourth), "r"(fifth)
                     : "rcx", "r11", "memory");
    return result;
}

static int is_of(int descriptor, pid_t child)
{
    char path[64], line[128];
    int found = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", descriptor);
    FILE *info = fopen(path, "r");
    while (info && fgets(line, sizeof line, info)) {
        int pid;
        found |= sscanf(line, "Pid: %d", &pid) == 1 && pid == child;
    }
    if (info) {
        fclose(info);
    }
    return found;
}

static void check_child(pid_t child, int descriptor, int code)
{
    siginfo_t info = {0};
    struct pollfd ended = {.fd = descriptor, .events = POLLIN};
    CHECK(child > 0 && is_of(descriptor, child), "it is the child's");
    CHECK(fcntl(descriptor, F_GETFD) == FD_CLOEXEC, "it is closed at exec");
    CHECK(poll(&ended, 1, 10000) == 1, "it tells of the end");
    CHECK(waitid(P_PIDFD, (id_t)descriptor, &info, WEXITED) == 0 && info.si_pid == child &&
              info.si_status == code,
          "it is waited for by it");
    close(descriptor);
}

int main(void)
{
    char *words[] = {"sh", "-c", "exit 3", NULL}, *none[] = {NULL};
    for (volatile int round = 0; round < 3; round++) {
        volatile int descriptor = -1;
        travel();
        pid_t child = (pid_t)call(SYS_clone, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, 0,
                                  (long)&descriptor);
        if (child == 0) {
            execve("/bin/sh", words, none);
            _exit(127);
        }
        check_child(child, descriptor, 3);

        struct clone_args args = {.flags = CLONE_PIDFD,
                                  .pidfd = (uint64_t)(uintptr_t)&descriptor,
                                  .exit_signal = SIGCHLD};
        child = (pid_t)call(SYS_clone3, (long)&args, sizeof args, 0);
        if (child == 0) {
            call(SYS_exit_group, 4, 0, 0);
        }
        check_child(child, descriptor, 4);
        long nowhere = call(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, 8);
        if (nowhere == 0) {
            call(SYS_exit_group, 5, 0, 0);
        }
        CHECK(nowhere == -EFAULT, "there is no place for it");
        CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD, "there is no other child");
    }
    return verdict();
}
