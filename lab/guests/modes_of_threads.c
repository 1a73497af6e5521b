/* Modes that a thread has set (no time stamps, readable is executable, slack) hold after a move. */
#include "travel.h"
#include <setjmp.h>
#include <sys/personality.h>
#include <sys/prctl.h>

static pthread_barrier_t barrier;
static sigjmp_buf behind_fault;
static int is_fault_at_first, is_none_at_last;

static void on_fault(int signal)
{
    (void)signal;
    siglongjmp(behind_fault, 1);
}

/* Whether reading the counter is a fault. */
static int counter_faults(void)
{
    if (sigsetjmp(behind_fault, 1)) {
        return 1;
    }
    unsigned low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return 0;
}

/* Reads no clock while it has no counter. */
static void *without_counter(void *argument)
{
    must(prctl(PR_SET_TSC, PR_TSC_SIGSEGV), "no counter");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    is_fault_at_first = counter_faults();
    must(prctl(PR_SET_TSC, PR_TSC_ENABLE), "a counter");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    is_none_at_last = !counter_faults();
    return argument;
}

static long speculation(void)
{
    return prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0);
}

/* mov eax, 42; ret */
static const unsigned char answer[] = {0xb8, 42, 0, 0, 0, 0xc3};

int main(void)
{
    struct sigaction act = {.sa_handler = on_fault};
    must(sigaction(SIGSEGV, &act, NULL), "sigaction");
    must(pthread_barrier_init(&barrier, NULL, 2) ? -1 : 0, "barrier");
    if (speculation() == (PR_SPEC_PRCTL | PR_SPEC_ENABLE)) {
        must(prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_DISABLE, 0, 0), "hold");
    }
    long held = speculation();
    must(prctl(PR_SET_TIMERSLACK, 12345), "slack");
    must(personality(READ_IMPLIES_EXEC | ADDR_NO_RANDOMIZE), "personality");
    pthread_t thread;
    must(pthread_create(&thread, NULL, without_counter, NULL) ? -1 : 0, "pthread_create");

    pthread_barrier_wait(&barrier);
    travel();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    travel();
    pthread_barrier_wait(&barrier);
    must(pthread_join(thread, NULL) ? -1 : 0, "join");
    CHECK(is_fault_at_first, "a thread without a counter has none anywhere");
    CHECK(is_none_at_last, "and has one again when it wants it");

    travel();
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED, "memory");
    memcpy(page, answer, sizeof(answer));
    CHECK(((int (*)(void))page)() == 42, "what may be read may be executed");
    CHECK(personality(0xffffffff) == (READ_IMPLIES_EXEC | ADDR_NO_RANDOMIZE), "personality");
    CHECK(prctl(PR_GET_TIMERSLACK) == 12345, "slack");
    CHECK(speculation() == held, "speculation");
    return verdict();
}
