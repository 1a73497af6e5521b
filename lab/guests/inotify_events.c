/* inotify tells what happens in a directory, with names and rename cookies, across moves. */
#include "travel.h"
#include <sys/inotify.h>

static void touch_files(void)
{
    close((int)must(open("watched/new", O_CREAT | O_WRONLY, 0600), "open"));
    must(rename("watched/new", "watched/old"), "rename");
    must(unlink("watched/old"), "unlink");
}

int main(void)
{
    uint32_t expected[] = {IN_CREATE, IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO, IN_DELETE};
    const char *names[] = {"new", "new", "new", "old", "old"};
    must(mkdir("watched", 0755), "mkdir");
    int fd = (int)must(inotify_init1(IN_CLOEXEC), "inotify_init1");
    uint32_t mask = IN_CREATE | IN_CLOSE_WRITE | IN_MOVE | IN_DELETE;
    int watch = (int)must(inotify_add_watch(fd, "watched", mask), "inotify_add_watch");
    for (int round = 0; round < 2; round++) {
        pid_t child = child_after_travel(touch_files);
        uint32_t cookie = 0;
        for (int seen = 0; seen < 5;) {
            _Alignas(struct inotify_event) char events[4096];
            ssize_t size = must(read(fd, events, sizeof events), "read");
            for (char *at = events; at < events + size && seen < 5; seen++) {
                struct inotify_event *event = (void *)at;
                int right = event->wd == watch && event->mask == expected[seen];
                CHECK(right && strcmp(event->name, names[seen]) == 0, "the event expected");
                cookie ^= event->cookie;
                at += sizeof *event + event->len;
            }
        }
        CHECK(cookie == 0, "both halves of the rename have one cookie");
        join_child(child);
    }
    CHECK(inotify_rm_watch(fd, watch) == 0, "the watch ends");
    return verdict();
}
