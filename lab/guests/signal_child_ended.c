/* SIGCHLD tells which child ended and how: exit, death by signal, stop and continue. */
#include "travel.h"

static siginfo_t seen[16];
static volatile sig_atomic_t count;

static void note(int signal, siginfo_t *info, void *frame)
{
    (void)signal;
    (void)frame;
    seen[count++ % 16] = *info;
}

static int waited_for(int code, pid_t child, int status)
{
    sigset_t none;
    sigemptyset(&none);
    double end_s = now_s() + 20;
    for (int from = 0; now_s() < end_s;) {
        for (; from < count; from++) {
            if (seen[from].si_code == code && seen[from].si_pid == child) {
                return seen[from].si_status == status;
            }
        }
        sigsuspend(&none);
    }
    return 0;
}

static void exit_seven(void)
{
    _exit(7);
}

static void wait_for_ever(void)
{
    for (;;) {
        pause();
    }
}

int main(void)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    must(sigprocmask(SIG_BLOCK, &blocked, NULL), "sigprocmask");
    on_siginfo(SIGCHLD, note, SA_RESTART);
    pid_t child = child_after_travel(exit_seven);
    CHECK(waited_for(CLD_EXITED, child, 7), "a child that exited");
    CHECK(waitpid(child, NULL, 0) == child, "is reaped");
    child = child_after_travel(wait_for_ever);
    must(kill(child, SIGSTOP), "kill");
    CHECK(waited_for(CLD_STOPPED, child, SIGSTOP), "a child that was stopped");
    travel();
    must(kill(child, SIGCONT), "kill");
    CHECK(waited_for(CLD_CONTINUED, child, SIGCONT), "and continued");
    must(kill(child, SIGTERM), "kill");
    CHECK(waited_for(CLD_KILLED, child, SIGTERM), "and killed");
    int status;
    CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGTERM, "is reaped too");
    return verdict();
}
