/* Resource limits, umask, niceness and process flags set before a move hold after it. */
#include "travel.h"
#include <sys/prctl.h>
#include <sys/resource.h>

int main(void)
{
    struct rlimit few = {40, 50}, now;
    must(setrlimit(RLIMIT_NOFILE, &few), "setrlimit");
    struct rlimit small = {64 << 20, RLIM_INFINITY};
    must(setrlimit(RLIMIT_FSIZE, &small), "setrlimit");
    umask(027);
    must(setpriority(PRIO_PROCESS, 0, 5), "setpriority");
    must(prctl(PR_SET_TIMERSLACK, 60000), "PR_SET_TIMERSLACK");
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS");
    for (int round = 0; round < 2; round++) {
        travel();
        getrlimit(RLIMIT_NOFILE, &now);
        CHECK(now.rlim_cur == 40 && now.rlim_max == 50, "the limit of descriptors");
        getrlimit(RLIMIT_FSIZE, &now);
        CHECK(now.rlim_cur == 64 << 20, "the limit of file size");
        CHECK(getpriority(PRIO_PROCESS, 0) == 5, "the niceness");
        CHECK(prctl(PR_GET_TIMERSLACK) == 60000, "the timer slack");
        CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, "no new privileges");
    }
    int fd, last = -1;
    while ((fd = dup(0)) >= 0) {
        last = fd;
    }
    CHECK(errno == EMFILE && last == 39, "the limit bites");
    close(39);
    int file = open("masked", O_CREAT | O_WRONLY, 0666);
    struct stat status;
    CHECK(file == 39 && fstat(file, &status) == 0, "a closed number is used again");
    CHECK((status.st_mode & 0777) == 0640 && umask(0) == 027, "the umask");
    return verdict();
}
