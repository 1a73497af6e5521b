/* A signalfd made before a move gives the signals that come after it. */
#include "travel.h"
#include <poll.h>
#include <sys/signalfd.h>

static void signal_parent(void)
{
    sigqueue(getppid(), SIGUSR2, (union sigval){.sival_int = -5});
}

int main(void)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR2);
    must(sigprocmask(SIG_BLOCK, &wanted, NULL), "sigprocmask");
    int fd = (int)must(signalfd(-1, &wanted, SFD_CLOEXEC), "signalfd");
    for (int round = 0; round < 2; round++) {
        struct signalfd_siginfo got = {0};
        pid_t child = child_after_travel(signal_parent);
        CHECK(read(fd, &got, sizeof got) == sizeof got, "a signal is read");
        CHECK(got.ssi_signo == SIGUSR2 && got.ssi_pid == (uint32_t)child, "with its sender");
        CHECK(got.ssi_int == -5 && got.ssi_code == SI_QUEUE, "and its value");
        join_child(child);
    }
    struct pollfd idle = {.fd = fd, .events = POLLIN};
    CHECK(poll(&idle, 1, (int)travel_ms() / 3) == 0, "there is no other");
    return verdict();
}
