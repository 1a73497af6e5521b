/* What a process made by vfork does to its memory its maker finds; a signal waits until then. */
#include "travel.h"

enum { PAGES = 64, PAGE = 4096 };

static unsigned char *map(size_t pages)
{
    void *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(at == MAP_FAILED ? -1 : 0, "mmap");
    return at;
}

static volatile sig_atomic_t seen, seen_before_its_end;
static volatile int is_over;

static void note(int number)
{
    (void)number;
    seen++;
    seen_before_its_end += !is_over;
}

int main(void)
{
    static unsigned char data[5 * PAGE];
    struct sigaction action = {.sa_handler = note};
    must(sigaction(SIGUSR1, &action, NULL), "sigaction");
    for (volatile int round = 0; round < 3; round++) {
        unsigned char *volatile memory = map(PAGES), *volatile made = NULL;
        unsigned char *volatile old_break = sbrk(0);
        void *volatile small = NULL;
        fill(memory, PAGES * PAGE, 1);
        fill(data, sizeof data, 2);
        is_over = 0;
        travel();
        pid_t child = vfork();
        if (child == 0) {
            fill(data, sizeof data, 3);
            memory[20 * PAGE] = 77;
            madvise(memory + 30 * PAGE, 2 * PAGE, MADV_DONTNEED);
            munmap(memory + 40 * PAGE, PAGE);
            mprotect(memory + 50 * PAGE, PAGE, PROT_READ);
            made = map(3);
            fill(made, 3 * PAGE, 4);
            unsigned char *grown = sbrk(7 * PAGE);
            fill(grown, 7 * PAGE, 5);
            small = malloc(1000);
            fill(small, 1000, 6);
            kill(getppid(), SIGUSR1);
            is_over = 1;
            _exit(8);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 8, "it ends");
        CHECK(is_filled(data, sizeof data, 3), "data");
        CHECK(memory[20 * PAGE] == 77, "a page");
        CHECK(memory[30 * PAGE] == 0 && memory[32 * PAGE - 1] == 0, "pages given up");
        CHECK(msync(memory + 40 * PAGE, PAGE, MS_ASYNC) == -1 && errno == ENOMEM, "unmapped");
        int pipe_fds[2];
        must(pipe(pipe_fds), "pipe");
        must(write(pipe_fds[1], "x", 1), "write");
        CHECK(read(pipe_fds[0], memory + 50 * PAGE, 1) == -1 && errno == EFAULT, "protected");
        close(pipe_fds[0]);
        close(pipe_fds[1]);
        CHECK(made && is_filled(made, 3 * PAGE, 4), "a mapping");
        CHECK((unsigned char *)sbrk(0) >= old_break + 7 * PAGE, "the program break");
        CHECK(is_filled(old_break, 7 * PAGE, 5), "the heap");
        CHECK(is_filled(small, 1000, 6), "what was allocated");
        free(small);
        if (!CHECK(seen == round + 1, "a signal arrives")) {
            printf("seen %d\n", (int)seen);
        }
        CHECK(seen_before_its_end == 0, "and has waited for its end");
        travel();
        CHECK(is_filled(data, sizeof data, 3) && is_filled(made, 3 * PAGE, 4), "and it stays");
        munmap(memory, PAGES * PAGE);
        munmap(made, 3 * PAGE);
    }
    return verdict();
}
