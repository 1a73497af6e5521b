/*
 * Times the interception alone: getppid(2) stopped by a seccomp filter and answered at once by
 * another process, as a body's supervisor would without asking home.
 */
#include "drive.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Linux 6.6; missing in older headers. */
#define SET_FLAGS SECCOMP_IOW(4, uint64_t)
#define SYNC_WAKE_UP 1ul

static void supervise(int listener)
{
    struct seccomp_notif request;
    for (;;) {
        memset(&request, 0, sizeof request);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) == -1) {
            if (errno == EINTR) {
                continue;
            }
            _exit(0); /* nobody is filtered any more */
        }
        struct seccomp_notif_resp response = {.id = request.id, .val = 1};
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
    }
}

/* Filters this process; returns where its notifications arrive. */
static int install(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    int listener = (int)must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                     SECCOMP_FILTER_FLAG_NEW_LISTENER, &program), "seccomp");
    /* An older kernel has slower wake-ups, which is then what is measured. */
    ioctl(listener, SET_FLAGS, SYNC_WAKE_UP);
    return listener;
}

static void ask_parent(void)
{
    syscall(SYS_getppid);
}

int main(void)
{
    /* The supervisor shares nothing with this process but its descriptors, and learns the number of
     * one that is not there yet through a pipe. */
    int ends[2], listener;
    must(pipe(ends), "pipe");
    long child = must(syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0), "clone");
    if (child == 0) {
        must(read(ends[0], &listener, sizeof listener), "read");
        supervise(listener);
    }
    listener = install();
    must(write(ends[1], &listener, sizeof listener), "write");
    drive_timed_steps(ask_parent);
    kill((pid_t)child, SIGKILL);
    waitpid((pid_t)child, NULL, 0);
    return 0;
}
