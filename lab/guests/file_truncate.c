/* ftruncate and fallocate change a file's size across moves; fsync and a size limit work. */
#include "travel.h"
#include <sys/resource.h>

static off_t size_of(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 ? status.st_size : -1;
}

int main(void)
{
    unsigned char bytes[1000], zeros[1000] = {0};
    int fd = (int)must(open("cut", O_RDWR | O_CREAT | O_TRUNC, 0644), "open");
    fill(bytes, sizeof bytes, 91);
    must(write(fd, bytes, sizeof bytes), "write");
    travel();
    CHECK(ftruncate(fd, 100) == 0 && size_of(fd) == 100, "cut");
    CHECK(ftruncate(fd, 1000) == 0 && size_of(fd) == 1000, "grown");
    travel();
    unsigned char back[1000];
    CHECK(pread(fd, back, 1000, 0) == 1000 && memcmp(back, bytes, 100) == 0, "what was kept");
    CHECK(memcmp(back + 100, zeros, 900) == 0, "and zeros after it");
    CHECK(truncate("cut", 5) == 0 && size_of(fd) == 5, "by name");
    CHECK(fsync(fd) == 0 && fdatasync(fd) == 0, "synchronised");
    struct rlimit limit = {2000, RLIM_INFINITY};
    must(setrlimit(RLIMIT_FSIZE, &limit), "setrlimit");
    on_signal(SIGXFSZ, SIG_IGN, 0);
    CHECK(pwrite(fd, bytes, 1000, 1500) == 500, "the size limit cuts a write");
    CHECK(pwrite(fd, bytes, 1, 2000) == -1 && errno == EFBIG, "and refuses the next");
    CHECK(size_of(fd) == 2000, "the file ends there");
    return verdict();
}
