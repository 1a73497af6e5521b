/* Every thread keeps its own thread-local variables, errno and keys across moves. */
#include "travel.h"

static __thread unsigned char block[5000];
static __thread int number = 77;
static pthread_key_t key;
static int wrong, destroyed;

static void destroy(void *value)
{
    __atomic_add_fetch(&destroyed, (int)(intptr_t)value, __ATOMIC_SEQ_CST);
}

static void *keep(void *argument)
{
    int me = (int)(intptr_t)argument;
    int bad = number != 77;
    number = me;
    fill(block, sizeof block, (uint32_t)me);
    pthread_setspecific(key, argument);
    close(-1);
    int *here = &number;
    travel();
    bad += errno != EBADF || number != me || here != &number;
    bad += !is_filled(block, sizeof block, (uint32_t)me);
    bad += pthread_getspecific(key) != argument;
    travel();
    bad += !is_filled(block, sizeof block, (uint32_t)me);
    __atomic_add_fetch(&wrong, bad, __ATOMIC_SEQ_CST);
    return NULL;
}

int main(void)
{
    pthread_t threads[5];
    must(pthread_key_create(&key, destroy) ? -1 : 0, "pthread_key_create");
    for (int i = 0; i < 5; i++) {
        void *argument = (void *)(intptr_t)(i + 1);
        must(pthread_create(&threads[i], NULL, keep, argument) ? -1 : 0, "pthread_create");
    }
    keep((void *)(intptr_t)6);
    for (int i = 0; i < 5; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(wrong == 0, "each thread kept what is its own");
    CHECK(destroyed == 15, "keys were destroyed with their threads");
    CHECK(number == 6, "and the main thread has its number");
    return verdict();
}
