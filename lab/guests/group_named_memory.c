/* POSIX shared memory with a name has all that was written to it when the last user has ended. */
/* may stay: shared-memory */
#include "travel.h"

enum { BYTES = 16 * 4096, MEMBERS = 3 };

static char name[64];

static char *map(int flags)
{
    int fd = (int)must(shm_open(name, flags, 0600), "shm_open");
    if (flags & O_CREAT) {
        must(ftruncate(fd, BYTES), "ftruncate");
    }
    char *bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(close(fd), "close");
    return bytes;
}

/* Each member opens it by name, as unrelated programs do. */
static void member(int me)
{
    char *bytes = map(O_RDWR);
    travel();
    fill(bytes + me * 4096, 4096, (uint32_t)me);
    travel();
    if (me == 2) {
        kill(getpid(), SIGTERM);
    }
    exit(0);
}

int main(void)
{
    snprintf(name, sizeof name, "/osmos-guest-%d", (int)getpid());
    char *bytes = map(O_RDWR | O_CREAT | O_EXCL);
    fill(bytes, 4096, 1000);
    must(munmap(bytes, BYTES), "munmap");
    pid_t children[MEMBERS];
    for (int me = 1; me <= MEMBERS; me++) {
        children[me - 1] = (pid_t)must(fork(), "fork");
        if (children[me - 1] == 0) {
            member(me);
        }
    }
    for (int me = 1; me <= MEMBERS; me++) {
        int status = -1;
        while (waitpid(children[me - 1], &status, 0) == -1 && errno == EINTR) {
        }
        int is_as_natively = me == 2 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM
                                     : status == 0;
        CHECK(is_as_natively, "it ended as it was to");
    }
    bytes = map(O_RDWR);
    CHECK(is_filled(bytes, 4096, 1000), "what was written before is there");
    for (int me = 1; me <= MEMBERS; me++)
        CHECK(is_filled(bytes + me * 4096, 4096, (uint32_t)me), "and what each has written");
    travel();
    must(shm_unlink(name), "shm_unlink");
    CHECK(is_filled(bytes, 4096, 1000), "also without a name");
    return verdict();
}
