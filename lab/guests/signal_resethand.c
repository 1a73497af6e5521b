/* SA_RESETHAND: the first signal runs the handler, the second does what is default. */
#include "travel.h"

static volatile sig_atomic_t count;

static void note(int signal)
{
    (void)signal;
    count++;
}

int main(void)
{
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        on_signal(SIGUSR1, note, SA_RESETHAND);
        travel();
        raise(SIGUSR1);
        raise(SIGUSR1);
        _exit(5);
    }
    on_signal(SIGUSR2, note, SA_RESETHAND);
    travel();
    raise(SIGUSR2);
    CHECK(count == 1, "the handler ran once");
    struct sigaction now;
    sigaction(SIGUSR2, NULL, &now);
    CHECK(now.sa_handler == SIG_DFL, "and the disposition is default again");
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1, "the second signal is deadly");
    travel();
    sigaction(SIGUSR2, NULL, &now);
    CHECK(now.sa_handler == SIG_DFL, "and stays default");
    return verdict();
}
