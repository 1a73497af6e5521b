/* Files are made, linked, renamed, stated and removed by name; errors are the kernel's own. */
#include "travel.h"

int main(void)
{
    struct stat status, other;
    char target[64] = "";
    travel();
    CHECK(mkdir("room", 0750) == 0, "mkdir");
    int fd = open("room/a", O_CREAT | O_EXCL | O_WRONLY, 0604);
    CHECK(fd >= 0 && write(fd, "abc", 3) == 3 && close(fd) == 0, "a file in it");
    CHECK(open("room/a", O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST, "only once");
    CHECK(link("room/a", "room/b") == 0 && symlink("a", "room/c") == 0, "links");
    CHECK(stat("room/b", &status) == 0 && status.st_nlink == 2, "two names");
    CHECK(status.st_size == 3 && (status.st_mode & 07777) == 0604, "size and mode");
    CHECK(lstat("room/c", &other) == 0 && S_ISLNK(other.st_mode), "a symbolic link");
    CHECK(stat("room/c", &other) == 0 && other.st_ino == status.st_ino, "leads to the file");
    CHECK(readlink("room/c", target, sizeof target) == 1 && target[0] == 'a', "by its name");
    travel();
    CHECK(rename("room/b", "room/d") == 0 && access("room/b", F_OK) == -1, "rename");
    CHECK(chmod("room/d", 0400) == 0 && stat("room/a", &other) == 0, "chmod");
    CHECK((other.st_mode & 07777) == 0400, "is seen by the other name");
    struct timespec times[2] = {{1000000000, 5}, {1100000000, 7}};
    CHECK(utimensat(AT_FDCWD, "room/a", times, 0) == 0 && stat("room/d", &other) == 0, "times");
    CHECK(other.st_mtim.tv_sec == 1100000000 && other.st_mtim.tv_nsec == 7, "to the nanosecond");
    CHECK(rmdir("room") == -1 && errno == ENOTEMPTY, "a full directory stays");
    CHECK(unlink("room") == -1 && (errno == EISDIR || errno == EPERM), "it is no file");
    CHECK(unlink("room/c") == 0 && unlink("room/d") == 0, "unlink");
    struct statx more;
    CHECK(statx(AT_FDCWD, "room/a", 0, STATX_BASIC_STATS, &more) == 0, "statx");
    CHECK(more.stx_nlink == 1 && more.stx_size == 3, "tells the same");
    return verdict();
}
