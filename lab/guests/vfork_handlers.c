/* A process made as by vfork, but without the handlers of its maker: newer posix_spawn. */
#include "travel.h"
#include <linux/sched.h>

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif

/* No function may return between the two that share a stack: so not by syscall(2). */
static inline __attribute__((always_inline)) long clone3(struct clone_args *args)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_clone3), "D"(args), "S"(sizeof *args)
                     : "rcx", "r11", "memory");
    return result;
}

static volatile sig_atomic_t handled;

static void note(int number)
{
    (void)number;
    handled++;
}

int main(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    must(sigaction(SIGUSR1, &action, NULL), "sigaction");
    signal(SIGUSR2, SIG_IGN);
    for (volatile int round = 0; round < 3; round++) {
        struct sigaction found[2];
        struct clone_args args = {.flags = CLONE_VM | CLONE_VFORK | CLONE_CLEAR_SIGHAND,
                                  .exit_signal = SIGCHLD};
        memset(found, 1, sizeof found);
        travel();
        pid_t child = (pid_t)clone3(&args);
        if (child == 0) {
            sigaction(SIGUSR1, NULL, &found[0]);
            sigaction(SIGUSR2, NULL, &found[1]);
            raise(SIGUSR2);
            raise(SIGUSR1);
            _exit(9);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child, "it is waited for");
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1, "the default ends it");
        CHECK(found[0].sa_handler == SIG_DFL, "no handler");
        CHECK(found[1].sa_handler == SIG_IGN, "what is ignored stays so");
        CHECK(handled == round, "no handler ran");
        raise(SIGUSR1);
        CHECK(handled == round + 1, "its maker has its own");
    }
    return verdict();
}
