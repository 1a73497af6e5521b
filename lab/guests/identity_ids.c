/* Process, parent, group, session, thread and user ids are the same wherever the process is. */
#include "travel.h"
#include <grp.h>

struct ids {
    pid_t pid, ppid, tid, group, session;
    uid_t uid[3];
    gid_t gid[3], groups[64];
    int group_count;
};

static struct ids look(void)
{
    struct ids now;
    memset(&now, 0, sizeof now);
    now.pid = (pid_t)syscall(SYS_getpid);
    now.ppid = getppid();
    now.tid = (pid_t)syscall(SYS_gettid);
    now.group = getpgrp();
    now.session = getsid(0);
    getresuid(&now.uid[0], &now.uid[1], &now.uid[2]);
    getresgid(&now.gid[0], &now.gid[1], &now.gid[2]);
    now.group_count = getgroups(64, now.groups);
    return now;
}

int main(void)
{
    struct ids first = look(), now;
    CHECK(first.pid == first.tid && first.pid == getpid(), "one thread, one id");
    for (int round = 0; round < 3; round++) {
        travel();
        now = look();
        CHECK(memcmp(&first, &now, sizeof now) == 0, "all ids are as they were");
    }
    char link[64] = "";
    CHECK(readlink("/proc/self", link, sizeof link - 1) > 0, "/proc/self is there");
    CHECK(atoi(link) == first.pid, "and names this process");
    return verdict();
}
