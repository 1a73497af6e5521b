/* Zombies wait for their parent across its moves; statuses and orphans are right. */
#include "travel.h"
#include <sys/prctl.h>
#include <sys/resource.h>

static void burn_and_exit(void)
{
    compute_until(now_s() + 0.05);
    _exit(200);
}

int main(void)
{
    int status, ready[2];
    struct rusage usage;
    siginfo_t info;
    pid_t zombie = (pid_t)must(fork(), "fork");
    if (zombie == 0) {
        _exit(17);
    }
    travel();
    memset(&info, 0, sizeof info);
    CHECK(waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT) == 0, "a zombie is looked at");
    CHECK(info.si_status == 17 && info.si_code == CLD_EXITED, "and tells its status");
    travel();
    CHECK(waitpid(zombie, &status, 0) == zombie && WEXITSTATUS(status) == 17, "then it is reaped");
    CHECK(waitpid(zombie, &status, 0) == -1 && errno == ECHILD, "only once");
    pid_t child = child_after_travel(burn_and_exit);
    CHECK(waitpid(child, &status, WNOHANG) == 0, "WNOHANG does not wait");
    CHECK(wait4(child, &status, 0, &usage) == child && WEXITSTATUS(status) == 200, "wait4");
    must(prctl(PR_SET_CHILD_SUBREAPER, 1), "PR_SET_CHILD_SUBREAPER");
    must(pipe(ready), "pipe");
    child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        pid_t middle = getpid();
        if (fork() == 0) {
            while (getppid() == middle) {
                sleep_until(now_s() + 0.005);
            }
            pid_t parent = getppid();
            must(write(ready[1], &parent, sizeof parent), "write");
            _exit(21);
        }
        _exit(0);
    }
    join_child(child);
    pid_t parent = 0;
    CHECK(read(ready[0], &parent, sizeof parent) == sizeof parent, "an orphan");
    CHECK(parent == getpid(), "is adopted by its grandparent");
    CHECK(wait(&status) > 0 && WEXITSTATUS(status) == 21, "who reaps it");
    return verdict();
}
