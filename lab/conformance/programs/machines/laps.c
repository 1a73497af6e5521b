/*
 * Does the same lap again and again until a file `stop` is there: computes, reads a file, and adds
 * a line with the lap's number and digest to its log. A lap that is missing, doubled or different
 * shows in the log.
 *
 *     laps LOG FILE
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

enum { ROUNDS = 6000000 };

static uint64_t digest_of(const char *name)
{
    static unsigned char bytes[65536];
    uint64_t sum = 1469598103934665603u;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;) {
        for (ssize_t i = 0; i < got; i++) {
            sum = (sum ^ bytes[i]) * 1099511628211u;
        }
    }
    close(fd);
    for (int i = 0; i < ROUNDS; i++) {
        sum = sum * 6364136223846793005u + 1442695040888963407u;
    }
    return sum;
}

int main(int count, char **arguments)
{
    if (count != 3) {
        return 2;
    }
    int log = open(arguments[1], O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
    for (int lap = 0; access("stop", F_OK) != 0; lap++) {
        dprintf(log, "%d %016llx\n", lap, (unsigned long long)digest_of(arguments[2]));
    }
    return 0;
}
