/*
 * Starts one program and says what became of it: the only process of the harness that is near it.
 *
 *     witness DIRECTORY LIMIT_MS PROGRAM [ARGUMENT...]
 *
 * PROGRAM runs in DIRECTORY/work with DIRECTORY/stdin (or nothing) as input, its output goes to
 * DIRECTORY/stdout and DIRECTORY/stderr. On standard output, for the harness:
 *
 *     pid 4711               when it has started
 *     ended 256 0 351        wait status, processes it left behind, milliseconds
 *     late 9 0 30000         the same after it was killed for using more than LIMIT_MS
 *
 * What is still there a moment after the end is counted and killed: the witness is the reaper of
 * all that the program started.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GRACE_MS = 1500, STEP_MS = 5 };

static void fail(const char *what)
{
    printf("broken %s: %s\n", what, strerror(errno));
    exit(125);
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void use(const char *name, int flags, int as)
{
    int fd = open(name, flags | O_CLOEXEC, 0600);
    if (fd == -1 || dup2(fd, as) == -1) {
        _exit(125);
    }
}

static void become(const char *directory, char **program)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* Whoever started the harness may ignore some, as nohup(1) does. */
    for (int number = 1; number < NSIG; number++) {
        signal(number, SIG_DFL);
    }
    setpgid(0, 0);
    if (chdir(directory) == -1) {
        _exit(125);
    }
    use(access("stdin", R_OK) == 0 ? "stdin" : "/dev/null", O_RDONLY, 0);
    use("stdout", O_WRONLY | O_CREAT | O_TRUNC, 1);
    use("stderr", O_WRONLY | O_CREAT | O_TRUNC, 2);
    if (chdir("work") == -1) {
        _exit(125);
    }
    closefrom(3);
    setenv("LC_ALL", "C", 1);
    setenv("TZ", "UTC", 1);
    execvp(program[0], program);
    dprintf(2, "witness: cannot run %s: %s\n", program[0], strerror(errno));
    _exit(127);
}

/* Waits for a child (any, if 0) until the moment: its pid, 0 if late, -1 if there is none. */
static pid_t wait_until(pid_t child, long end_ms, int *status)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    for (;;) {
        pid_t ended = waitpid(child ? child : -1, status, WNOHANG);
        long left_ms = end_ms - now_ms();
        if (ended != 0 || left_ms <= 0) {
            return ended;
        }
        /* A child may end between the two calls: its signal is pending then. */
        struct timespec step = {left_ms / 1000, left_ms % 1000 * 1000000};
        sigtimedwait(&wanted, NULL, &step);
    }
}

static void kill_children(void)
{
    char path[64];
    int pid;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    FILE *children = fopen(path, "r");
    while (children && fscanf(children, "%d", &pid) == 1) {
        kill(pid, SIGKILL);
    }
    if (children) {
        fclose(children);
    }
}

/* Gives what is left a moment to end, kills the rest, and returns how many those were. */
static int count_left(void)
{
    int status, left = 0;
    long end_ms = now_ms() + GRACE_MS;
    pid_t ended;
    while ((ended = wait_until(0, end_ms, &status)) > 0) {
    }
    for (end_ms = now_ms() + GRACE_MS; ended >= 0 && now_ms() < end_ms;) {
        kill_children();
        ended = wait_until(0, now_ms() + STEP_MS, &status);
        left += ended > 0;
    }
    return ended == 0 ? left + 1 : left;
}

int main(int count, char **arguments)
{
    if (count < 4) {
        fprintf(stderr, "usage: witness DIRECTORY LIMIT_MS PROGRAM [ARGUMENT...]\n");
        return 125;
    }
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) == -1) {
        fail("cannot become reaper");
    }
    long start_ms = now_ms(), limit_ms = atol(arguments[2]);
    int status = 0;
    pid_t child = fork();
    if (child == -1) {
        fail("cannot fork");
    }
    if (child == 0) {
        become(arguments[1], arguments + 3);
    }
    setpgid(child, child);
    printf("pid %d\n", child);
    const char *how = "ended";
    pid_t ended = wait_until(child, start_ms + limit_ms, &status);
    if (ended == 0) {
        how = "late";
        kill(-child, SIGKILL);
        kill(child, SIGKILL);
        ended = wait_until(child, now_ms() + 2 * GRACE_MS, &status);
    }
    long used_ms = now_ms() - start_ms;
    printf("%s %d %d %ld\n", how, status, count_left() + (ended <= 0), used_ms);
    return 0;
}
