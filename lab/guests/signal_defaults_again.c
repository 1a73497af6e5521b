/* Defaults that are set where they are set keep their flags and mask, and act as defaults. */
#include "travel.h"

static void set_default(int signal, int flags, int masked)
{
    struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, masked);
    must(sigaction(signal, &action, NULL), "sigaction");
}

static void show(const char *when)
{
    for (int signal = 1; signal < 32; signal++) {
        if (signal == SIGKILL || signal == SIGSTOP)
            continue;
        struct sigaction now;
        must(sigaction(signal, NULL, &now), "sigaction");
        printf("%s: signal %d: %s, flags %x, masks %d %d\n", when, signal,
               now.sa_handler == SIG_DFL ? "default" : "other", (unsigned)now.sa_flags,
               sigismember(&now.sa_mask, SIGUSR1), sigismember(&now.sa_mask, SIGUSR2));
    }
}

/* Ends of the default that it has just set again, or says that it did not. */
static void end_of(int signal)
{
    set_default(signal, SA_RESTART, SIGUSR1);
    raise(signal);
    _exit(0);
}

int main(void)
{
    travel();
    for (int signal = 1; signal < 32; signal++) {
        int flags = signal % 2 ? SA_RESTART : SA_NODEFER;
        if (signal != SIGKILL && signal != SIGSTOP && signal != SIGCHLD)
            set_default(signal, flags, signal % 3 ? SIGUSR1 : SIGUSR2);
    }
    show("set");
    travel();
    show("after a travel");

    /* What is ignored by default and pending is dropped by being set to that. */
    sigset_t blocked, pending;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGWINCH);
    sigaddset(&blocked, SIGUSR2);
    must(sigprocmask(SIG_BLOCK, &blocked, NULL), "sigprocmask");
    raise(SIGWINCH);
    raise(SIGUSR2);
    travel();
    set_default(SIGWINCH, 0, SIGUSR1);
    set_default(SIGUSR2, 0, SIGUSR1);
    must(sigpending(&pending), "sigpending");
    CHECK(!sigismember(&pending, SIGWINCH), "SIGWINCH is not pending any more");
    CHECK(sigismember(&pending, SIGUSR2), "SIGUSR2 is");
    on_signal(SIGUSR2, SIG_IGN, 0);
    travel();
    fflush(stdout);

    int signals[] = {SIGTERM, SIGUSR1, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        pid_t child = fork();
        if (child == 0)
            end_of(signals[i]);
        int status;
        CHECK(waitpid(child, &status, 0) == child, "it ends");
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signals[i], "of its signal");
    }
    struct sigaction bad = {.sa_handler = SIG_DFL};
    CHECK(sigaction(SIGKILL, &bad, NULL) == -1 && errno == EINVAL, "SIGKILL is nobody's to set");
    travel();
    long set = syscall(SYS_rt_sigaction, SIGHUP, 8L, 0L, 8L);
    CHECK(set == -1 && errno == EFAULT, "no memory, no action");
    return verdict();
}
