/* execve after a move keeps pid, directory, open files, ignored and pending signals only. */
#include "travel.h"

static void note(int signal)
{
    (void)signal;
}

static int second_life(char **arguments)
{
    struct sigaction now;
    sigset_t pending;
    char text[8] = "";
    CHECK(atoi(arguments[1]) == getpid(), "the pid is kept");
    int fd = atoi(arguments[2]), closed = atoi(arguments[3]);
    CHECK(read(fd, text, 4) == 4 && !strcmp(text, "rest"), "an open file and its offset");
    CHECK(fcntl(closed, F_GETFD) == -1, "close-on-exec closed the other");
    sigaction(SIGUSR1, NULL, &now);
    CHECK(now.sa_handler == SIG_IGN, "ignored stays ignored");
    sigaction(SIGUSR2, NULL, &now);
    CHECK(now.sa_handler == SIG_DFL, "handled becomes default");
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGTERM) == 1, "pending stays pending");
    travel();
    CHECK(getppid() != 1, "the parent too");
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGTERM) == 1, "after a move also");
    return verdict();
}

int main(int count, char **arguments)
{
    if (count > 1) {
        return second_life(arguments);
    }
    sigset_t blocked;
    char pid[16], kept[16], closed[16];
    int fd = (int)must(open("kept", O_RDWR | O_CREAT | O_TRUNC, 0644), "open");
    must(write(fd, "the rest", 8), "write");
    must(lseek(fd, 4, SEEK_SET), "lseek");
    snprintf(pid, sizeof pid, "%d", getpid());
    snprintf(kept, sizeof kept, "%d", fd);
    snprintf(closed, sizeof closed, "%d", (int)must(fcntl(fd, F_DUPFD_CLOEXEC, 20), "dup"));
    on_signal(SIGUSR1, SIG_IGN, 0);
    on_signal(SIGUSR2, note, 0);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    must(sigprocmask(SIG_BLOCK, &blocked, NULL), "sigprocmask");
    raise(SIGTERM);
    travel();
    CHECK(execl("/no/such/program", "x", NULL) == -1 && errno == ENOENT, "a failing execve ends");
    travel();
    execl("/proc/self/exe", arguments[0], pid, kept, closed, NULL);
    CHECK(0, "execve");
    return verdict();
}
