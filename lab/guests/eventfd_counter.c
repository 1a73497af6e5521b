/* An eventfd keeps its count across a move, wakes a reader, and counts down as a semaphore. */
#include "travel.h"
#include <sys/eventfd.h>

static int fd;

static void add_five(void)
{
    eventfd_write(fd, 5);
}

int main(void)
{
    eventfd_t got = 0;
    fd = (int)must(eventfd(0, EFD_CLOEXEC), "eventfd");
    eventfd_write(fd, 40);
    eventfd_write(fd, 2);
    travel();
    CHECK(eventfd_read(fd, &got) == 0 && got == 42, "the sum is kept");
    pid_t child = child_after_travel(add_five);
    CHECK(eventfd_read(fd, &got) == 0 && got == 5, "a blocked reader is woken");
    join_child(child);
    int steps = (int)must(eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK), "eventfd");
    travel();
    int taken = 0;
    while (eventfd_read(steps, &got) == 0 && got == 1) {
        taken++;
    }
    CHECK(taken == 3 && errno == EAGAIN, "a semaphore counts down by one");
    return verdict();
}
