/* pthread_cancel ends a thread that is blocked in a read, and its clean-up runs. */
#include "travel.h"

static int pipe_fds[2], cleaned;

static void clean(void *argument)
{
    *(int *)argument += 1;
}

static void *block(void *unused)
{
    char byte;
    pthread_cleanup_push(clean, &cleaned);
    while (read(pipe_fds[0], &byte, 1) >= 0) {
    }
    pthread_cleanup_pop(0);
    return unused;
}

int main(void)
{
    must(pipe(pipe_fds), "pipe");
    for (int round = 1; round <= 2; round++) {
        pthread_t thread;
        void *result;
        must(pthread_create(&thread, NULL, block, NULL) ? -1 : 0, "pthread_create");
        travel();
        CHECK(pthread_cancel(thread) == 0, "a blocked thread is cancelled");
        CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED, "and joined");
        CHECK(cleaned == round, "after its clean-up");
    }
    return verdict();
}
