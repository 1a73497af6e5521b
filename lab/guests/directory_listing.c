/* A directory is listed completely, also when the lister is moved in the middle of it. */
#include "travel.h"
#include <dirent.h>

enum { FILES = 300 };

int main(void)
{
    char name[64];
    int seen[FILES] = {0}, others = 0, wrong = 0, count = 0;
    must(mkdir("many", 0755), "mkdir");
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "many/a-name-of-some-length-%d", i);
        must(close((int)must(open(name, O_CREAT | O_WRONLY, 0600), "open")), "close");
    }
    DIR *directory = opendir("many");
    must(directory ? 0 : -1, "opendir");
    travel();
    for (struct dirent *entry; (entry = readdir(directory));) {
        int number;
        if (sscanf(entry->d_name, "a-name-of-some-length-%d", &number) == 1 && number < FILES) {
            seen[number]++;
        } else {
            others++;
        }
        if (++count % 150 == 0) {
            travel();
        }
    }
    for (int i = 0; i < FILES; i++) {
        wrong += seen[i] != 1;
    }
    CHECK(wrong == 0, "every name once");
    CHECK(others == 2, "and . and ..");
    rewinddir(directory);
    for (count = 0; readdir(directory); count++) {
    }
    CHECK(count == FILES + 2, "again from the start");
    closedir(directory);
    return verdict();
}
