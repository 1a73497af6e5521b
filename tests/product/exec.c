/* Says what it is, then does what it is told line by line: mostly, to become another program.
   With `again N TEXT` it begins itself N times, and says each time what it has become. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORDS 64
extern char **environ;

static void handler(int signal)
{
    (void)signal;
    write(1, "handled\n", 8);
}

static void *waits(void *nothing)
{
    pause();
    return nothing;
}

static void again(char **words)
{
    char count[16], text[64];
    int left = atoi(words[2]);
    printf("%d %d %s %s\n", left, getpid(), words[3], getenv("LAST") ? getenv("LAST") : "none");
    fflush(stdout);
    if (left == 0) {
        exit(0);
    }
    /* Long enough for a move. */
    for (volatile long i = 0; i < 50000000; i++) {
    }
    snprintf(count, sizeof count, "%d", left - 1);
    snprintf(text, sizeof text, "%s%d", left % 10 ? words[3] : "", left % 10);
    setenv("LAST", words[2], 1);
    char *next[] = {words[0], "again", count, text, NULL};
    execv("/proc/self/exe", next);
    perror("again");
    exit(1);
}

static unsigned long sum_of(char **strings)
{
    unsigned long sum = 5381;
    for (; *strings; strings++) {
        for (char *at = *strings; *at; at++) {
            sum = sum * 33 + (unsigned char)*at;
        }
    }
    return sum;
}

static void computes(long ms)
{
    struct timespec now;
    do {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < ms);
}

/* Which signals are blocked, pending and ignored, without the ones that no program chooses. */
static void tell_signals(void)
{
    sigset_t blocked, pending;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    sigpending(&pending);
    for (int signal = 1; signal < 32; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action)) {
            continue;
        }
        int is_ignored = action.sa_handler == SIG_IGN;
        if (is_ignored || sigismember(&blocked, signal) || sigismember(&pending, signal)) {
            printf("%d:%s%s%s ", signal, sigismember(&blocked, signal) ? "b" : "",
                   sigismember(&pending, signal) ? "p" : "", is_ignored ? "i" : "");
        }
    }
    printf(".\n");
}

static void become(int has_search, char **words)
{
    if (has_search) {
        execvp(words[0], words);
    } else {
        execv(words[0], words);
    }
    printf("%s\n", strerrorname_np(errno));
}

static void obey(char **words, int count, char *own)
{
    int number = count > 1 ? atoi(words[1]) : 0;
    if (!strcmp(words[0], "exec")) {
        become(0, words + 1);
    } else if (!strcmp(words[0], "search")) {
        become(1, words + 1);
    } else if (!strcmp(words[0], "spawn")) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            become(1, words + 1);
            _exit(99);
        }
        waitpid(child, &status, 0);
        printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -status);
    } else if (!strcmp(words[0], "null")) {
        syscall(SYS_execve, words[1], NULL, NULL);
        printf("%s\n", strerrorname_np(errno));
    } else if (!strcmp(words[0], "large")) {
        char *value = malloc((size_t)number + 1);
        memset(value, 'v', (size_t)number);
        value[number] = 0;
        for (int i = 0; i < atoi(words[2]); i++) {
            char name[16];
            snprintf(name, sizeof name, "LARGE%d", i);
            setenv(name, value, 1);
        }
        printf("%lu\n", sum_of(environ));
        fflush(stdout);
        execl(own, own, NULL);
        printf("%s\n", strerrorname_np(errno));
    } else if (!strcmp(words[0], "sum")) {
        printf("%lu\n", sum_of(environ));
    } else if (!strcmp(words[0], "block")) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, number);
        sigprocmask(SIG_BLOCK, &one, NULL);
        printf("ok\n");
    } else if (!strcmp(words[0], "ignore") || !strcmp(words[0], "handle")) {
        signal(number, words[0][0] == 'i' ? SIG_IGN : handler);
        printf("ok\n");
    } else if (!strcmp(words[0], "default")) {
        signal(number, SIG_DFL);
        printf("ok\n");
    } else if (!strcmp(words[0], "signals")) {
        tell_signals();
    } else if (!strcmp(words[0], "raise")) {
        raise(number);
        printf("ok\n");
    } else if (!strcmp(words[0], "alarm")) {
        struct itimerval in = {{0, 0}, {0, number * 1000}};
        setitimer(ITIMER_REAL, &in, NULL);
        printf("ok\n");
    } else if (!strcmp(words[0], "threads")) {
        for (int i = 0; i < number; i++) {
            pthread_t thread;
            pthread_create(&thread, NULL, waits, NULL);
        }
        printf("ok\n");
    } else if (!strcmp(words[0], "memory")) {
        char *memory = malloc((size_t)number << 20);
        for (size_t at = 0; at < (size_t)number << 20; at += 8) {
            *(size_t *)(memory + at) = at * 2654435761u + 1;
        }
        printf("ok\n");
    } else if (!strcmp(words[0], "compute")) {
        computes(number);
        printf("ok\n");
    } else if (!strcmp(words[0], "time")) {
        struct timespec now;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        printf("%ld\n", now.tv_sec * 1000 + now.tv_nsec / 1000000);
    } else if (!strcmp(words[0], "who")) {
        printf("%d %d\n", getuid(), geteuid());
    } else {
        printf("what is %s?\n", words[0]);
    }
}

int main(int count, char **arguments)
{
    char line[4096];
    if (count == 4 && !strcmp(arguments[1], "again")) {
        again(arguments);
    }
    printf("began %d %d", getpid(), getppid() != 1);
    for (int i = 1; i < count; i++) {
        printf(" %s", arguments[i]);
    }
    printf("\n");
    fflush(stdout);
    /* Not buffered: what is left belongs to the next program. */
    for (;;) {
        size_t length = 0;
        ssize_t got;
        while ((got = read(0, line + length, 1)) == 1 && line[length] != '\n') {
            length++;
        }
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got != 1) {
            return 0;
        }
        line[length] = 0;
        char *words[WORDS] = {0};
        int found = 0;
        for (char *word = strtok(line, " "); word && found < WORDS - 1; word = strtok(NULL, " ")) {
            words[found++] = word;
        }
        if (found) {
            obey(words, found, arguments[0]);
        }
        fflush(stdout);
    }
}
