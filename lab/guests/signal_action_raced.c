/* A disposition that another thread changes while it is being set is one of the two, for all. */
#include "travel.h"

struct kernel_action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

static volatile struct kernel_action wish;
static volatile int stop, ran;

static void first(int number)
{
    (void)number;
    ran = 1;
}

static void second(int number)
{
    (void)number;
    ran = 2;
}

static void *change(void *unused)
{
    (void)unused;
    while (!stop) {
        wish.handler = first;
        wish.handler = second;
    }
    return NULL;
}

int main(void)
{
    struct kernel_action now;
    struct sigaction action = {.sa_handler = first};
    pthread_t changer;
    must(sigaction(SIGUSR1, &action, NULL), "sigaction");
    must(syscall(SYS_rt_sigaction, SIGUSR1, NULL, &now, 8), "rt_sigaction");
    wish = now;
    pthread_create(&changer, NULL, change, NULL);
    int differ = 0;
    for (int round = 0; round < 3; round++) {
        travel();
        for (int turn = 0; turn < 100; turn++) {
            must(syscall(SYS_rt_sigaction, SIGUSR1, &wish, NULL, 8), "rt_sigaction");
            must(syscall(SYS_rt_sigaction, SIGUSR1, NULL, &now, 8), "rt_sigaction");
            raise(SIGUSR1);
            differ += ran != (now.handler == first ? 1 : 2);
        }
    }
    stop = 1;
    pthread_join(changer, NULL);
    CHECK(differ == 0, "the handler that runs is the one that is told");
    return verdict();
}
