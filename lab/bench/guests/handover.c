/*
 * Times the hand-over at home alone: a system call made by another process that is asked, and
 * answers, through a futex in shared memory.
 */
#include "drive.h"
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static _Atomic uint32_t *request, *reply;

static void wait_for(_Atomic uint32_t *word)
{
    while (atomic_exchange(word, 0) == 0) {
        syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
    }
}

static void give(_Atomic uint32_t *word)
{
    atomic_store(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void ask(void)
{
    give(request);
    wait_for(reply);
}

int main(void)
{
    void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared == MAP_FAILED ? -1 : 0, "mmap");
    request = shared;
    reply = request + 64;
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        for (;;) {
            wait_for(request);
            syscall(SYS_getppid);
            give(reply);
        }
    }
    drive_timed_steps(ask);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
