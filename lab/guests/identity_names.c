/* Host name, kernel release, program name and the path of the executable are those of home. */
#include "travel.h"
#include <sys/prctl.h>
#include <sys/utsname.h>

int main(void)
{
    struct utsname first, now;
    char host[256], again[256], path[PATH_MAX] = "", later[PATH_MAX] = "", name[32] = "";
    must(uname(&first), "uname");
    must(gethostname(host, sizeof host), "gethostname");
    must(readlink("/proc/self/exe", path, sizeof path - 1), "readlink");
    must(prctl(PR_SET_NAME, "traveller"), "PR_SET_NAME");
    for (int round = 0; round < 2; round++) {
        travel();
        uname(&now);
        gethostname(again, sizeof again);
        CHECK(strcmp(first.nodename, now.nodename) == 0, "uname's node name");
        CHECK(strcmp(first.release, now.release) == 0, "the kernel's release");
        CHECK(strcmp(host, again) == 0, "the host name");
        CHECK(readlink("/proc/self/exe", later, sizeof later - 1) > 0, "the executable's link");
        CHECK(strcmp(path, later) == 0, "and where it leads");
        CHECK(prctl(PR_GET_NAME, name) == 0 && !strcmp(name, "traveller"), "the program's name");
    }
    FILE *comm = fopen("/proc/self/comm", "r");
    CHECK(comm && fscanf(comm, "%31s", name) == 1 && !strcmp(name, "traveller"), "for others too");
    return verdict();
}
