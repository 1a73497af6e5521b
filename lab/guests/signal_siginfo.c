/* SA_SIGINFO tells the sender's pid, user, code and value for kill, sigqueue and tgkill. */
#include "travel.h"

static siginfo_t seen[8];
static volatile sig_atomic_t count;

static void note(int signal, siginfo_t *info, void *frame)
{
    (void)signal;
    (void)frame;
    seen[count++ % 8] = *info;
}

static void kill_and_queue(void)
{
    kill(getppid(), SIGUSR1);
    sigqueue(getppid(), SIGUSR2, (union sigval){.sival_int = 4711});
}

int main(void)
{
    on_siginfo(SIGUSR1, note, SA_RESTART);
    on_siginfo(SIGUSR2, note, SA_RESTART);
    pid_t child = child_after_travel(kill_and_queue);
    join_child(child);
    travel();
    CHECK(count == 2, "both arrived");
    siginfo_t *killed = seen[0].si_signo == SIGUSR1 ? &seen[0] : &seen[1];
    siginfo_t *queued = killed == &seen[0] ? &seen[1] : &seen[0];
    CHECK(killed->si_code == SI_USER && killed->si_pid == child, "kill names its sender");
    CHECK(killed->si_uid == getuid(), "and its user");
    CHECK(queued->si_code == SI_QUEUE && queued->si_pid == child, "sigqueue names its sender");
    CHECK(queued->si_value.sival_int == 4711, "and its value");
    count = 0;
    must(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1), "tgkill");
    CHECK(count == 1 && seen[0].si_code == SI_TKILL, "tgkill says what it is");
    CHECK(seen[0].si_pid == getpid(), "and comes from here");
    return verdict();
}
