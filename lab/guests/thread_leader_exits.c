/* The first thread ends by pthread_exit, perhaps away; the others go on and end the process. */
/* may stay: leader-ended */
#include "travel.h"

static pthread_t first;

static void *outlive(void *unused)
{
    (void)unused;
    travel();
    CHECK(pthread_join(first, NULL) == 0, "the first thread is joined");
    travel();
    CHECK(getpid() != gettid(), "the process keeps its id");
    CHECK(kill(getpid(), 0) == 0, "which is alive");
    exit(verdict());
}

int main(void)
{
    pthread_t thread;
    first = pthread_self();
    must(pthread_create(&thread, NULL, outlive, NULL) ? -1 : 0, "pthread_create");
    travel();
    pthread_exit(NULL);
}
