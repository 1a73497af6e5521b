/* sigwaitinfo takes a signal with its value; sigtimedwait gives up after its time, not sooner. */
/* not stopped: the kernel ends sigtimedwait with EINTR when a stopped process continues */
#include "travel.h"

static void queue_value(void)
{
    sigqueue(getppid(), SIGRTMIN + 3, (union sigval){.sival_int = 99});
}

int main(void)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGRTMIN + 3);
    must(sigprocmask(SIG_BLOCK, &wanted, NULL), "sigprocmask");
    double asked_s = travel_ms() / 1000.0, start_s = now_s();
    struct timespec asked = timespec_of(asked_s);
    siginfo_t info = {0};
    int result = sigtimedwait(&wanted, &info, &asked);
    CHECK(result == -1 && errno == EAGAIN, "sigtimedwait gives up");
    CHECK(lasted(now_s() - start_s, asked_s), "after its time");
    pid_t child = child_after_travel(queue_value);
    CHECK(sigwaitinfo(&wanted, &info) == SIGRTMIN + 3, "sigwaitinfo takes the signal");
    CHECK(info.si_value.sival_int == 99 && info.si_pid == child, "with value and sender");
    join_child(child);
    CHECK(sigtimedwait(&wanted, &info, &(struct timespec){0, 0}) == -1, "there is no other");
    return verdict();
}
