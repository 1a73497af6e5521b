/*
 * Times getppid(2), a call that does nothing but must go home, and that no library remembers; with
 * "beside", beside another thread that sleeps.
 */
#include "drive.h"
#include <pthread.h>
#include <sys/syscall.h>

static void ask_parent(void)
{
    syscall(SYS_getppid);
}

static void *sleep_for_ever(void *nothing)
{
    pause();
    return nothing;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "beside") == 0) {
        pthread_t other;
        if (pthread_create(&other, NULL, sleep_for_ever, NULL) != 0)
            return 1;
    }
    drive_timed_steps(ask_parent);
    return 0;
}
