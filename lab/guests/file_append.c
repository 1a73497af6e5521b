/* O_APPEND writes go to the end, also when a child writes between them. */
#include "travel.h"

static int fd;

static void append_child(void)
{
    must(write(fd, "child\n", 6), "write");
}

int main(void)
{
    fd = (int)must(open("log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644), "open");
    must(write(fd, "first\n", 6), "write");
    for (int round = 0; round < 2; round++) {
        pid_t child = child_after_travel(append_child);
        join_child(child);
        must(lseek(fd, 0, SEEK_SET), "lseek");
        CHECK(write(fd, "again\n", 6) == 6, "appended");
        CHECK(lseek(fd, 0, SEEK_CUR) == 18 + 12 * round, "at the end");
    }
    char text[64] = "";
    int back = (int)must(open("log", O_RDONLY), "open");
    CHECK(read(back, text, sizeof text) == 30, "no byte is lost");
    CHECK(strcmp(text, "first\nchild\nagain\nchild\nagain\n") == 0, "and all are in order");
    return verdict();
}
