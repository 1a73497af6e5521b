/* Calls that never wait are not interrupted by handlers without SA_RESTART, however many run. */
#include "travel.h"
#include <sys/time.h>

static volatile sig_atomic_t handled;

static void note(int number)
{
    (void)number;
    handled++;
}

/* The first call that has failed, and how. */
static const char *failed;
static int failed_with;

static void made(const char *name, long result, int allowed)
{
    if (result < 0 && errno != allowed && !failed) {
        failed = name;
        failed_with = errno;
    }
}

int main(void)
{
    struct sigaction action = {.sa_handler = note};
    struct itimerval often = {{0, 700}, {0, 700}}, never = {{0, 0}, {0, 0}};
    int file = (int)must(open("file", O_CREAT | O_RDWR, 0600), "open");
    int handled_at_first;
    long passed_ms;
    must(sigaction(SIGALRM, &action, NULL), "sigaction");
    must(setitimer(ITIMER_REAL, &often, NULL), "setitimer");
    for (int round = 0; round < 3; round++) {
        struct timespec begin, now;
        handled_at_first = handled;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do {
            for (int i = 0; i < 50; i++) {
                sigset_t set;
                sigemptyset(&set);
                made("fcntl", fcntl(file, F_GETFL), 0);
                made("getppid", syscall(SYS_getppid), 0);
                made("lseek", lseek(file, i, SEEK_SET), 0);
                made("sigprocmask", sigprocmask(SIG_BLOCK, &set, NULL), 0);
                made("waitpid", waitpid(-1, NULL, WNOHANG), ECHILD);
            }
            clock_gettime(CLOCK_MONOTONIC, &now);
            passed_ms = (now.tv_sec - begin.tv_sec) * 1000;
            passed_ms += (now.tv_nsec - begin.tv_nsec) / 1000000;
        } while (passed_ms < 400 || handled < handled_at_first + 10);
        if (failed)
            fprintf(stderr, "%s: error %d\n", failed, failed_with);
        CHECK(failed == NULL, "no call was interrupted");
    }
    must(setitimer(ITIMER_REAL, &never, NULL), "setitimer");
    return verdict();
}
