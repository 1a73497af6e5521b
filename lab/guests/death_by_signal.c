/* Children die by the signal that was sent, or by their own fault, and the parent is told which. */
#include "travel.h"
#include <sys/resource.h>

static int *volatile nowhere = (int *)16;

static void die_by_fault(void)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    *nowhere = 1;
}

static int status_of(pid_t child)
{
    int status = 0;
    return waitpid(child, &status, 0) == child ? status : -1;
}

int main(void)
{
    int signals[] = {SIGKILL, SIGTERM, SIGHUP, SIGUSR1, SIGALRM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        pid_t child = (pid_t)must(fork(), "fork");
        if (child == 0) {
            for (;;) {
                compute_until(now_s() + 0.01);
            }
        }
        sleep_until(now_s() + travel_ms() / 3000.0);
        must(kill(child, signals[i]), "kill");
        int status = status_of(child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signals[i], strsignal(signals[i]));
    }
    int status = status_of(child_after_travel(die_by_fault));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "a fault of its own");
    CHECK(!WCOREDUMP(status), "without a core");
    return verdict();
}
