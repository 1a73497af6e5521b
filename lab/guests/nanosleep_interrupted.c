/* A signal ends nanosleep with EINTR, and the remaining time is that of the whole sleep. */
#include "travel.h"

static volatile sig_atomic_t alarms;

static void count(int signal)
{
    (void)signal;
    alarms++;
}

static void alarm_parent(void)
{
    kill(getppid(), SIGUSR1);
}

int main(void)
{
    on_signal(SIGUSR1, count, 0);
    pid_t child = child_after_travel(alarm_parent);
    struct timespec asked = {20, 0}, rest = {0, 0};
    double start_s = now_s();
    int result = nanosleep(&asked, &rest);
    double elapsed_s = now_s() - start_s;
    CHECK(result == -1 && errno == EINTR, "nanosleep is interrupted");
    double sum_s = elapsed_s + (double)rest.tv_sec + (double)rest.tv_nsec / 1e9;
    CHECK(sum_s > 19.9 && sum_s < 25.0, "elapsed and remaining time are what was asked");
    CHECK(alarms == 1, "the handler ran once");
    join_child(child);
    travel();
    return verdict();
}
