/* abort's handler leaves by siglongjmp, which restores the mask that was saved. */
#include "travel.h"
#include <setjmp.h>

static sigjmp_buf before;
static volatile sig_atomic_t count;

static void leave(int signal)
{
    count++;
    siglongjmp(before, signal);
}

int main(void)
{
    on_signal(SIGABRT, leave, 0);
    for (volatile int round = 1; round <= 2; round++) {
        int signal = sigsetjmp(before, 1);
        if (signal == 0) {
            travel();
            abort();
        }
        CHECK(signal == SIGABRT, "back from the handler");
        CHECK(count == round, "which ran once a round");
    }
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    CHECK(!sigismember(&now, SIGABRT), "the mask is restored");
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        on_signal(SIGABRT, SIG_DFL, 0);
        travel();
        abort();
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "without handler it is deadly");
    return verdict();
}
