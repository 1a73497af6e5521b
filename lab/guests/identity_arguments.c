/* Arguments, environment and auxiliary vector are intact, in memory and in /proc. */
#include "travel.h"
#include <sys/auxv.h>

int main(int count, char **arguments)
{
    setenv("GUEST_VARIABLE", "kept", 1);
    unsigned long page = getauxval(AT_PAGESZ), entry = getauxval(AT_ENTRY);
    unsigned long features = getauxval(AT_HWCAP), vdso = getauxval(AT_SYSINFO_EHDR);
    unsigned char *random = (unsigned char *)getauxval(AT_RANDOM), seed[16];
    memcpy(seed, random, sizeof seed);
    char *name = strdup(arguments[0]);
    for (int round = 0; round < 2; round++) {
        travel();
        CHECK(count == 1 && arguments[1] == NULL, "one argument");
        CHECK(strcmp(arguments[0], name) == 0, "the program's path");
        CHECK(strcmp(getenv("GUEST_VARIABLE"), "kept") == 0, "a variable");
        CHECK(getauxval(AT_PAGESZ) == page && page == 4096, "the page size");
        CHECK(getauxval(AT_ENTRY) == entry && getauxval(AT_HWCAP) == features, "entry, features");
        CHECK(memcmp(random, seed, sizeof seed) == 0, "the random seed");
        CHECK(getauxval(AT_SYSINFO_EHDR) == vdso, "the address of the vDSO");
        CHECK(vdso == 0 || memcmp((void *)vdso, "\177ELF", 4) == 0, "where there is a vDSO");
    }
    char line[PATH_MAX] = "";
    int fd = (int)must(open("/proc/self/cmdline", O_RDONLY), "open");
    CHECK(read(fd, line, sizeof line - 1) == (ssize_t)strlen(name) + 1, "/proc/self/cmdline");
    CHECK(strcmp(line, name) == 0, "has it too");
    return verdict();
}
