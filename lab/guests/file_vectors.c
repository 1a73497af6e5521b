/* readv, writev, pread, pwrite and their vector forms: many buffers, some empty, any offset. */
#include "travel.h"
#include <sys/uio.h>

enum { PARTS = 200 };

int main(void)
{
    static unsigned char bytes[PARTS * 100], back[PARTS * 100];
    struct iovec from[PARTS], into[PARTS];
    size_t at = 0;
    fill(bytes, sizeof bytes, 81);
    for (int i = 0; i < PARTS; i++) {
        size_t size = (size_t)(i % 7) * 16;
        from[i] = (struct iovec){bytes + at, size};
        into[i] = (struct iovec){back + at, size};
        at += size;
    }
    int fd = (int)must(open("parts", O_RDWR | O_CREAT | O_TRUNC, 0644), "open");
    travel();
    CHECK(writev(fd, from, PARTS) == (ssize_t)at, "writev gathers");
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, into, PARTS) == (ssize_t)at, "readv scatters");
    CHECK(memcmp(bytes, back, at) == 0, "the same bytes");
    travel();
    memset(back, 0, sizeof back);
    CHECK(pwritev(fd, from + 3, 4, 100000) > 0, "pwritev beyond the end");
    CHECK(preadv(fd, into + 3, 4, 100000) > 0, "preadv there");
    CHECK(memcmp(from[3].iov_base, into[3].iov_base, from[3].iov_len) == 0, "the same bytes");
    CHECK(pread(fd, back, 10, 90000) == 10 && back[0] == 0, "a hole reads as zeros");
    CHECK(pwrite(fd, "mark", 4, 7) == 4 && pread(fd, back, 4, 7) == 4, "pwrite and pread");
    CHECK(memcmp(back, "mark", 4) == 0, "one place");
    CHECK(lseek(fd, 0, SEEK_CUR) == (off_t)at, "none of them moves the offset");
    volatile int negative = -1;
    CHECK(readv(fd, into, negative) == -1 && errno == EINVAL, "a negative count is refused");
    return verdict();
}
