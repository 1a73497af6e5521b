/* Library, system call and a handler that interrupts either tell the same time, always. */
#include "travel.h"
#include <setjmp.h>
#include <sys/time.h>

static const clockid_t clocks[] = {
    CLOCK_REALTIME,         CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE,
    CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME,  CLOCK_TAI,
};
enum { CLOCKS = sizeof clocks / sizeof *clocks };

static sigjmp_buf before_fault;
static volatile int handled, disorder;

static long long by_library(clockid_t clock)
{
    struct timespec t;
    must(clock_gettime(clock, &t), "clock_gettime");
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long by_call(clockid_t clock)
{
    struct timespec t;
    must(syscall(SYS_clock_gettime, clock, &t), "the call clock_gettime");
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void on_alarm(int signal)
{
    (void)signal;
    long long first = by_library(CLOCK_REALTIME), second = by_library(CLOCK_REALTIME);
    disorder += second < first;
    handled++;
}

static void on_fault(int signal)
{
    (void)signal;
    siglongjmp(before_fault, 1);
}

/* By the library, by the kernel, by the library: none is before the last. */
static int is_in_order(clockid_t clock)
{
    long long first = by_library(clock), second = by_call(clock), third = by_library(clock);
    return first <= second && second <= third;
}

static int is_one_day(void)
{
    struct timeval library, call;
    long long before = by_library(CLOCK_REALTIME) / 1000;
    gettimeofday(&library, NULL);
    must(syscall(SYS_gettimeofday, &call, NULL), "the call gettimeofday");
    long long after = by_library(CLOCK_REALTIME) / 1000;
    long long first = library.tv_sec * 1000000LL + library.tv_usec;
    long long second = call.tv_sec * 1000000LL + call.tv_usec;
    time_t stored = 0;
    long long seconds = time(NULL), of_call = syscall(SYS_time, NULL);
    /* Both are as exact as a tick. */
    return before <= first && first <= second && second <= after && time(&stored) == stored &&
           seconds >= after / 1000000 - 1 && of_call >= seconds && stored >= of_call;
}

static int faults_as_it_should(void)
{
    struct timespec *nowhere = (struct timespec *)8;
    if (sigsetjmp(before_fault, 1) == 0) {
        /* The kernel is asked where its clock cannot be read without it. */
        return clock_gettime(CLOCK_REALTIME, nowhere) == -1 && errno == EFAULT;
    }
    return 1;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, NULL);
    struct itimerval every = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &every, NULL);
    long long last[CLOCKS] = {0};
    int backwards = 0, apart = 0, days = 0, faults = 0, rounds = 0;
    double end_s = now_s() + (double)travel_ms() / 250.0;
    while (now_s() < end_s) {
        for (int i = 0; i < CLOCKS; i++) {
            for (int n = 0; n < 200; n++) {
                long long now = by_library(clocks[i]);
                backwards += now < last[i];
                last[i] = now;
            }
            apart += !is_in_order(clocks[i]);
        }
        days += !is_one_day();
        faults += !faults_as_it_should();
        rounds++;
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    CHECK(backwards == 0, "no clock goes back");
    CHECK(apart == 0, "library and kernel tell the same time");
    CHECK(days == 0, "and so do gettimeofday and time");
    CHECK(faults == 0, "a pointer that leads nowhere is a fault");
    CHECK(disorder == 0, "nor in a handler");
    CHECK(handled > 0 && rounds > 0, "the handler ran");
    unsigned cpu = ~0u;
    CHECK(getcpu(&cpu, NULL) == 0 && cpu < 4096, "a processor has a number");
    struct timespec resolution;
    CHECK(clock_getres(CLOCK_REALTIME, &resolution) == 0, "a clock has a resolution");
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &resolution) == 0, "a thread has a clock");
    int outcome = clock_gettime((clockid_t)99, &resolution);
    CHECK(outcome == -1 && errno == EINVAL, "there is no clock 99");
    return verdict();
}
