/*
 * Times the interception alone: getppid(2) stopped by a seccomp filter and answered at once by
 * another thread. It is the part of a forwarded call that is spent before and after the network.
 */
#include "drive.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* Linux 6.6; missing in older headers. */
#define SET_FLAGS SECCOMP_IOW(4, uint64_t)
#define SYNC_WAKE_UP 1ul

static int listener;

static void *supervise(void *unused)
{
    struct seccomp_notif request;
    for (;;) {
        memset(&request, 0, sizeof request);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) == -1) {
            if (errno == EINTR) {
                continue;
            }
            return unused;
        }
        struct seccomp_notif_resp response = {.id = request.id, .val = 1};
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
    }
}

/* Filters this thread and those it will start; the supervisor makes no call that is filtered. */
static void install(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    listener = (int)must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                 SECCOMP_FILTER_FLAG_NEW_LISTENER, &program), "seccomp");
    /* An older kernel has slower wake-ups, which is then what is measured. */
    ioctl(listener, SET_FLAGS, SYNC_WAKE_UP);
}

static void ask_parent(void)
{
    syscall(SYS_getppid);
}

int main(void)
{
    pthread_t supervisor;
    install();
    must(pthread_create(&supervisor, NULL, supervise, NULL) == 0 ? 0 : -1, "pthread_create");
    drive_timed_steps(ask_parent);
    return 0;
}
