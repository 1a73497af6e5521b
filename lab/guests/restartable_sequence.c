/* sched_getcpu and the C library's rseq area give a processor that exists, in every thread. */
#include "travel.h"
#include <sched.h>
#include <sys/rseq.h>

static int wrong;

static void *look(void *unused)
{
    (void)unused;
    char *thread = __builtin_thread_pointer();
    struct rseq *area = (struct rseq *)(thread + __rseq_offset);
    long count = sysconf(_SC_NPROCESSORS_CONF);
    double end_s = now_s() + (double)travel_ms() / 400.0;
    while (now_s() < end_s) {
        unsigned cpu, node;
        int bad = sched_getcpu() < 0 || sched_getcpu() >= count;
        bad += syscall(SYS_getcpu, &cpu, &node, NULL) != 0 || cpu >= count;
        bad += __rseq_size > 0 && (int)area->cpu_id < 0;
        __atomic_add_fetch(&wrong, bad, __ATOMIC_SEQ_CST);
        compute_until(now_s() + 0.001);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        must(pthread_create(&threads[i], NULL, look, NULL) ? -1 : 0, "pthread_create");
    }
    look(NULL);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(wrong == 0, "every thread runs on a processor that exists");
    return verdict();
}
