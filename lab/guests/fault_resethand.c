/* SA_RESETHAND and a fault: the handler runs once, the next fault is the end. */
#include "travel.h"
#include <sys/resource.h>

static void note(int signal)
{
    (void)signal;
    ssize_t told = write(STDOUT_FILENO, "handler\n", 8);
    (void)told;
}

int main(void)
{
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        on_signal(SIGSEGV, note, SA_RESETHAND);
        travel();
        volatile int *volatile nowhere = NULL;
        *nowhere = 1;
        _exit(5);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "the second fault is deadly");
    travel();
    return verdict();
}
