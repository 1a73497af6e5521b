/* Ignored signals, and those whose default is to be ignored, change nothing. */
#include "travel.h"

static void pester_parent(void)
{
    int signals[] = {SIGTERM, SIGHUP, SIGWINCH, SIGURG, SIGCHLD, SIGUSR1};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        must(kill(getppid(), signals[i]), "kill");
        sleep_until(now_s() + 0.005);
    }
}

int main(void)
{
    on_signal(SIGTERM, SIG_IGN, 0);
    on_signal(SIGHUP, SIG_IGN, 0);
    on_signal(SIGUSR1, SIG_IGN, 0);
    pid_t child = child_after_travel(pester_parent);
    struct timespec asked = timespec_of(travel_ms() / 500.0);
    CHECK(nanosleep(&asked, NULL) == 0, "the sleep is not interrupted");
    join_child(child);
    raise(SIGTERM);
    raise(SIGURG);
    travel();
    struct sigaction now;
    sigaction(SIGTERM, NULL, &now);
    CHECK(now.sa_handler == SIG_IGN, "SIGTERM is still ignored");
    sigaction(SIGURG, NULL, &now);
    CHECK(now.sa_handler == SIG_DFL, "SIGURG is still default");
    return verdict();
}
