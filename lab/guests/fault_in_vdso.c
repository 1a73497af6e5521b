/* Faults in the vDSO, one after the other, are handled: each once, by the handler that is set. */
#include "travel.h"
#include <setjmp.h>
#include <sys/time.h>

static sigjmp_buf before_fault;
static volatile sig_atomic_t faults, alarms;

static void on_fault(int signal)
{
    (void)signal;
    faults++;
    siglongjmp(before_fault, 1);
}

static void on_alarm(int signal)
{
    (void)signal;
    alarms++;
}

/* True if the kernel was asked, which says so instead. */
static int fails_without_fault(struct timespec *nowhere)
{
    return clock_gettime(CLOCK_MONOTONIC, nowhere) == -1 && errno == EFAULT;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK}, there;
    stack_t stack = {.ss_sp = malloc(SIGSTKSZ), .ss_size = SIGSTKSZ};
    must(sigaltstack(&stack, NULL), "sigaltstack");
    sigaction(SIGSEGV, &action, NULL);
    action.sa_handler = on_alarm;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &every, NULL);
    volatile long tries = 0, answers = 0;
    double end_s = now_s() + (double)travel_ms() / 250.0;
    while (now_s() < end_s) {
        tries++;
        if (sigsetjmp(before_fault, 1) == 0)
            answers += fails_without_fault((struct timespec *)8);
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    CHECK(tries > 0 && faults + answers == tries, "each is handled once");
    CHECK(alarms > 0, "signals come between them");
    CHECK(sigaction(SIGSEGV, NULL, &there) == 0 && there.sa_handler == on_fault &&
              there.sa_flags & SA_ONSTACK,
          "the handler is the one that was set");
    return verdict();
}
