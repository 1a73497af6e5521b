/* The working directory is kept, can be changed after a move, and relative names follow it. */
#include "travel.h"

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

int main(void)
{
    char first[PATH_MAX], now[PATH_MAX];
    must(getcwd(first, sizeof first) ? 0 : -1, "getcwd");
    must(mkdir("outer", 0755), "mkdir");
    must(mkdir("outer/inner", 0755), "mkdir");
    travel();
    CHECK(getcwd(now, sizeof now) && strcmp(first, now) == 0, "the directory is kept");
    CHECK(chdir("outer/inner") == 0, "it is changed");
    travel();
    CHECK(getcwd(now, sizeof now) && ends_with(now, "/outer/inner"), "and kept");
    int up = open("..", O_RDONLY | O_DIRECTORY);
    int fd = openat(up, "inner/note", O_CREAT | O_WRONLY, 0600);
    CHECK(up >= 0 && fd >= 0, "a name relative to a descriptor");
    CHECK(access("note", F_OK) == 0, "is relative to the directory too");
    CHECK(fchdir(up) == 0 && access("inner/note", F_OK) == 0, "one up by fchdir");
    CHECK(access("../outer/inner/nothing", F_OK) == -1 && errno == ENOENT, "nothing is not there");
    char link[PATH_MAX] = "";
    CHECK(readlink("/proc/self/cwd", link, sizeof link - 1) > 0, "/proc/self/cwd");
    CHECK(ends_with(link, "/outer"), "says the same");
    return verdict();
}
