/* Process groups and sessions: a stopped group continues, a group signal reaches all of it. */
#include "travel.h"

static pid_t start_worker(pid_t group)
{
    fflush(stdout);
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        setpgid(0, group);
        for (;;) {
            compute_until(now_s() + 0.002);
        }
    }
    setpgid(child, group ? group : child);
    return child;
}

int main(void)
{
    int status;
    pid_t first = start_worker(0), second = start_worker(first);
    CHECK(getpgid(second) == first && getpgid(first) == first, "two of one group");
    CHECK(getsid(second) == getsid(0), "in this session");
    travel();
    CHECK(kill(-first, SIGSTOP) == 0, "the group is stopped");
    CHECK(waitpid(first, &status, WUNTRACED) == first && WIFSTOPPED(status), "the first");
    CHECK(waitpid(second, &status, WUNTRACED) == second && WIFSTOPPED(status), "the second");
    travel();
    CHECK(kill(-first, SIGCONT) == 0, "and continued");
    CHECK(waitpid(first, &status, WCONTINUED) == first && WIFCONTINUED(status), "the first");
    CHECK(waitpid(second, &status, WCONTINUED) == second && WIFCONTINUED(status), "the second");
    CHECK(kill(-first, SIGTERM) == 0, "and ended");
    CHECK(waitpid(first, &status, 0) == first && WTERMSIG(status) == SIGTERM, "the first");
    CHECK(waitpid(second, &status, 0) == second && WTERMSIG(status) == SIGTERM, "the second");
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        pid_t session = setsid();
        travel();
        _exit(session == getpid() && getsid(0) == session && getpgrp() == session ? 0 : 1);
    }
    join_child(child);
    return verdict();
}
