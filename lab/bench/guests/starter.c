/*
 * A process that starts threads, processes, or other programs by posix_spawn, or maps a file: it
 * keeps MB megabytes, of which a round first writes to a hundredth, and then tells how long it
 * took, in milliseconds, until a new one had run and ended, or, of forks and mappings, until the
 * call had returned; in the mean, if it is to start more. Or it begins another program, itself
 * that is, which tells how long it took until that ran.
 */
#include "drive.h"
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = 4096 };

static void *run(void *unused)
{
    return unused;
}

static uint64_t start_thread(void)
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, run, NULL) == 0 ? 0 : -1, "pthread_create");
    must(pthread_join(thread, NULL) == 0 ? 0 : -1, "pthread_join");
    return now_ns();
}

/* When the call had returned. */
static uint64_t start_process(void)
{
    pid_t child = fork();
    uint64_t returned = now_ns();
    if (child == 0) {
        _exit(0);
    }
    must(waitpid(child, NULL, 0) == child ? 0 : -1, "waitpid");
    return returned;
}

static uint64_t start_and_end_process(void)
{
    start_process();
    return now_ns();
}

static uint64_t spawn_program(void)
{
    extern char **environ;
    char *words[] = {"/bin/true", NULL};
    pid_t child;
    must(posix_spawn(&child, words[0], NULL, NULL, words, environ) == 0 ? 0 : -1, "posix_spawn");
    must(waitpid(child, NULL, 0) == child ? 0 : -1, "waitpid");
    return now_ns();
}

/* When it is mapped. */
static uint64_t map_file(void)
{
    static int file = -1;
    if (file < 0) {
        must(file = open("/bin/true", O_RDONLY), "open");
    }
    void *mapped = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    uint64_t returned = now_ns();
    must(mapped == MAP_FAILED ? -1 : 0, "mmap");
    munmap(mapped, PAGE);
    return returned;
}

static void begin_program(char **words)
{
    char began[32];
    snprintf(began, sizeof began, "%llu", (unsigned long long)now_ns());
    char *next[] = {words[0], words[1], words[2], began, NULL};
    execv(words[0], next);
    must(-1, "execv");
}

static void tell_ms(uint64_t ns, uint64_t starts)
{
    printf("%f\n", (double)ns / 1e6 / (double)starts);
    fflush(stdout);
}

int main(int count, char **words)
{
    uint64_t pages = count >= 3 ? strtoull(words[1], NULL, 10) << 8 : 0;
    if (pages == 0) {
        fprintf(stderr, "usage: starter MB threads|processes|forks|maps|spawns|programs\n");
        return 2;
    }
    if (count == 4) {
        tell_ms(now_ns() - strtoull(words[3], NULL, 10), 1);
    }
    int is_program = strcmp(words[2], "programs") == 0;
    uint64_t (*start)(void) = words[2][0] == 't'   ? start_thread
                              : words[2][0] == 'f' ? start_process
                              : words[2][0] == 'm' ? map_file
                              : words[2][0] == 's' ? spawn_program
                                                   : start_and_end_process;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    must(memory == MAP_FAILED ? -1 : 0, "mmap");
    memset(memory, 1, pages * PAGE);
    if (count == 3) {
        say_ready();
    }
    uint64_t starts;
    for (uint64_t page = 0; (starts = next_round()) > 0;) {
        for (uint64_t last = page + pages / 100; page < last; page++) {
            memory[page % pages * PAGE]++;
        }
        if (is_program) {
            begin_program(words);
        }
        uint64_t taken = 0;
        for (uint64_t i = 0; i < starts; i++) {
            uint64_t began = now_ns();
            taken += start() - began;
        }
        tell_ms(taken, starts);
    }
    return 0;
}
