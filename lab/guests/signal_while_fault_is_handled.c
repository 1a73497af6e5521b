/* What a fault's handler blocks does not interrupt it: signals wait, and its calls end as asked. */
#include "travel.h"

static volatile char *page;
static volatile sig_atomic_t is_handling, counted, too_early;
static volatile int wrong_result, wrong_errno;
static int ends[2];

static void note(long result, long wanted)
{
    if (result != wanted && wrong_result == 0) {
        wrong_result = 1;
        wrong_errno = errno;
    }
}

static void count(int signal)
{
    (void)signal;
    counted++;
    too_early += is_handling;
}

static void repair(int signal, siginfo_t *info, void *frame)
{
    (void)signal;
    (void)info;
    (void)frame;
    is_handling = 1;
    char byte = 'x';
    struct timespec moment = {0, 20000};
    for (int round = 0; round < 3; round++) {
        note(write(ends[1], &byte, 1), 1);
        note(read(ends[0], &byte, 1), 1);
        note(nanosleep(&moment, NULL), 0);
    }
    note(mprotect((void *)page, 4096, PROT_READ | PROT_WRITE), 0);
    is_handling = 0;
}

int main(void)
{
    must(pipe(ends), "pipe");
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_sigaction = repair, .sa_flags = SA_SIGINFO};
    sigfillset(&action.sa_mask);
    must(sigaction(SIGSEGV, &action, NULL), "sigaction");
    on_signal(SIGUSR1, count, SA_RESTART);
    double end_s = now_s() + 2 * travel_ms() / 1000.0;
    fflush(stdout);
    pid_t parent = getpid(), child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        while (now_s() < end_s) {
            kill(parent, SIGUSR1);
            compute_until(now_s() + 0.0002);
        }
        _exit(0);
    }
    while (now_s() < end_s) {
        mprotect((void *)page, 4096, PROT_READ);
        page[0] = 'x';
    }
    join_child(child);
    CHECK(counted > 0, "signals came");
    CHECK(too_early == 0, "none of them in the handler of the fault");
    errno = wrong_errno;
    CHECK(wrong_result == 0, "the handler's calls ended as asked");
    return verdict();
}
