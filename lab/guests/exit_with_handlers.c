/* exit runs the atexit functions in reverse, flushes what was printed, and gives its status. */
/* ends: exit 7 */
#include "travel.h"

static void last(void)
{
    printf("the last words\n");
}

static void first(void)
{
    travel();
    printf("the first of them\n");
}

static void *leave(void *unused)
{
    (void)unused;
    printf("no new line before the end: ");
    exit(7);
}

int main(void)
{
    pthread_t thread;
    atexit(last);
    atexit(first);
    travel();
    must(pthread_create(&thread, NULL, leave, NULL) ? -1 : 0, "pthread_create");
    for (;;) {
        pause();
    }
}
