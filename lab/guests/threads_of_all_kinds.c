/* Hundreds of threads, each with a state and a wait of its own, have all of it after a move. */
/* not stopped: the kernel ends epoll_wait with EINTR when a stopped process continues */
#include "travel.h"
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/rseq.h>

enum { THREADS = 240, ROUNDS = 4, STACK_BYTES = 16384 };

/* What a thread waits in while it is moved. */
enum { CONDITION, PIPE, SLEEP, SEMAPHORE, POLL, EPOLL, COMPUTING, KINDS };

struct member {
    pthread_t thread;
    pthread_mutex_t robust;
    pid_t tid;
    int index, is_waited, kept_mask, kept_stack, kept_signal, kept_slack, kept_rseq, kept_id;
};

static struct member members[THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int ready, is_over, bytes[2], poller;
static sem_t never;
static double end_s;

/* Some of these are blocked, which of them differs from thread to thread. */
static sigset_t mask_of(int index)
{
    sigset_t mask;
    sigemptyset(&mask);
    for (int bit = 0; bit < 8; bit++) {
        if (index >> bit & 1) {
            sigaddset(&mask, SIGRTMIN + 8 + bit);
        }
    }
    sigaddset(&mask, SIGRTMIN + 1 + index % 7);
    return mask;
}

static int is_blocked(const sigset_t *mask)
{
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    for (int number = 1; number < SIGRTMAX; number++) {
        if (sigismember(&now, number) != sigismember(mask, number)) {
            return 0;
        }
    }
    return 1;
}

/* Registering the C library's area a second time fails in a way that tells whether it is there. */
static int rseq_errno(void)
{
    void *area = (char *)__builtin_thread_pointer() + __rseq_offset;
    return syscall(SYS_rseq, area, 32, 0, RSEQ_SIG) == -1 ? errno : 0;
}

static void wait_once(int kind)
{
    int timeout_ms = (int)((end_s - now_s()) * 1000) + 1;
    struct timespec end = timespec_of(clock_s(CLOCK_REALTIME) + end_s - now_s());
    struct pollfd nothing = {-1, 0, 0};
    struct epoll_event event;
    char byte;
    switch (kind) {
    case CONDITION:
        pthread_mutex_lock(&lock);
        while (!is_over) {
            pthread_cond_wait(&changed, &lock);
        }
        pthread_mutex_unlock(&lock);
        return;
    case PIPE:
        must(read_fully(bytes[0], &byte, 1) == 1 ? 0 : -1, "read");
        return;
    case SLEEP:
        sleep_until(end_s);
        return;
    case SEMAPHORE:
        must(sem_timedwait(&never, &end) == -1 && errno == ETIMEDOUT ? 0 : -1, "sem_timedwait");
        return;
    case POLL:
        must(poll(&nothing, 1, timeout_ms) == 0 ? 0 : -1, "poll");
        return;
    case EPOLL:
        must(epoll_wait(poller, &event, 1, timeout_ms) == 0 ? 0 : -1, "epoll_wait");
        return;
    default:
        while (now_s() < end_s) {
            usleep(2000);
        }
    }
}

static int got_own_signal(const struct member *self)
{
    siginfo_t info;
    sigset_t own;
    struct timespec at_once = {0, 0};
    sigemptyset(&own);
    sigaddset(&own, SIGRTMIN + 1 + self->index % 7);
    return sigtimedwait(&own, &info, &at_once) > 0 && info.si_code == SI_QUEUE
           && info.si_value.sival_int == self->index && info.si_pid == getpid();
}

static void *live(void *member)
{
    struct member *self = member;
    sigset_t mask = mask_of(self->index);
    stack_t stack = {malloc(STACK_BYTES + 64), 0, (size_t)STACK_BYTES + self->index % 64}, now;
    union sigval value = {.sival_int = self->index};
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    must(sigaltstack(&stack, NULL), "sigaltstack");
    must(prctl(PR_SET_TIMERSLACK, 1000 + self->index), "prctl");
    must(pthread_sigqueue(pthread_self(), SIGRTMIN + 1 + self->index % 7, value) ? -1 : 0,
         "pthread_sigqueue");
    pthread_mutex_lock(&self->robust);
    self->tid = gettid();
    int before = rseq_errno();
    pthread_mutex_lock(&lock);
    ready++;
    pthread_cond_broadcast(&changed);
    while (ready <= THREADS) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    wait_once(self->index % KINDS);
    self->is_waited = self->index % KINDS < SLEEP || now_s() >= end_s - 0.001;
    self->kept_mask = is_blocked(&mask);
    must(sigaltstack(NULL, &now), "sigaltstack");
    self->kept_stack =
        now.ss_sp == stack.ss_sp && now.ss_size == stack.ss_size && now.ss_flags == 0;
    self->kept_slack = prctl(PR_GET_TIMERSLACK) == 1000 + self->index;
    self->kept_signal = got_own_signal(self);
    self->kept_rseq = rseq_errno() == before;
    self->kept_id = gettid() == self->tid;
    /* It ends with its mutex locked, which the kernel's list of it tells. */
    return self;
}

static void begin(void)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    must(pipe(bytes), "pipe");
    poller = (int)must(epoll_create1(0), "epoll_create1");
    must(sem_init(&never, 0, 0), "sem_init");
    for (int i = 0; i < THREADS; i++) {
        members[i].index = i;
        pthread_mutex_init(&members[i].robust, &kind);
        must(pthread_create(&members[i].thread, NULL, live, &members[i]) ? -1 : 0,
             "pthread_create");
    }
    pthread_mutex_lock(&lock);
    while (ready < THREADS) {
        pthread_cond_wait(&changed, &lock);
    }
    end_s = now_s() + ROUNDS * (double)travel_ms() / 1000;
    ready++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void end_waits(void)
{
    pthread_mutex_lock(&lock);
    is_over = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int i = PIPE; i < THREADS; i += KINDS) {
        must(write_fully(bytes[1], "x", 1) == 1 ? 0 : -1, "write");
    }
}

int main(void)
{
    int waited = 0, masks = 0, stacks = 0, signals = 0, slacks = 0, areas = 0, ids = 0, dead = 0;
    begin();
    for (int round = 0; round < ROUNDS; round++) {
        travel();
    }
    end_waits();
    for (int i = 0; i < THREADS; i++) {
        struct member *one = &members[i];
        void *returned = NULL;
        pthread_join(one->thread, &returned);
        waited += returned == one && one->is_waited;
        masks += one->kept_mask;
        stacks += one->kept_stack;
        signals += one->kept_signal;
        slacks += one->kept_slack;
        areas += one->kept_rseq;
        ids += one->kept_id;
        dead += pthread_mutex_lock(&one->robust) == EOWNERDEAD;
    }
    CHECK(waited == THREADS, "every wait ends as it has to, and not early");
    CHECK(masks == THREADS, "every thread blocks what it blocked");
    CHECK(stacks == THREADS, "every thread has its alternate stack");
    CHECK(signals == THREADS, "every thread has the signal that waited for it");
    CHECK(slacks == THREADS, "every thread has its timer slack");
    CHECK(areas == THREADS, "every thread has its restartable sequences");
    CHECK(ids == THREADS, "every thread has its number");
    CHECK(dead == THREADS, "every mutex that a thread died with is known");
    return verdict();
}
