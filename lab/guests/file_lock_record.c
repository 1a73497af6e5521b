/* Record locks (fcntl) are held across moves, seen by a child, waited for, and given back. */
#include "travel.h"

static int fd;

static int lock(int command, short type, off_t start, off_t length)
{
    struct flock wish = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    return fcntl(fd, command, &wish);
}

static pid_t holder_of(off_t start)
{
    struct flock wish = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};
    return fcntl(fd, F_GETLK, &wish) == 0 && wish.l_type != F_UNLCK ? wish.l_pid : 0;
}

int main(void)
{
    int ready[2];
    char byte;
    fd = (int)must(open("records", O_RDWR | O_CREAT, 0644), "open");
    must(pipe(ready), "pipe");
    must(lock(F_SETLK, F_WRLCK, 10, 10), "F_SETLK");
    must(lock(F_SETLK, F_RDLCK, 100, 1), "F_SETLK");
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        travel();
        int wrong = holder_of(15) != getppid() || holder_of(9) != 0;
        wrong += lock(F_SETLK, F_WRLCK, 15, 1) != -1 || (errno != EAGAIN && errno != EACCES);
        wrong += lock(F_SETLK, F_RDLCK, 100, 1) != 0;
        must(write(ready[1], "w", 1), "write");
        wrong += lock(F_SETLKW, F_WRLCK, 10, 10) != 0;
        _exit(wrong);
    }
    travel();
    must(read(ready[0], &byte, 1), "read");
    CHECK(holder_of(100) == child, "the child's lock is seen");
    travel();
    CHECK(lock(F_SETLK, F_UNLCK, 0, 0) == 0, "the locks are given back");
    join_child(child);
    CHECK(holder_of(15) == 0, "and nobody holds them any more");
    return verdict();
}
