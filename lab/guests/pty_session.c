/* A pseudo-terminal keeps its line discipline, size and foreground group; ^C reaches the child. */
#include "travel.h"
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

int main(void)
{
    struct winsize size = {.ws_row = 33, .ws_col = 77};
    int master;
    pid_t child = (pid_t)must(forkpty(&master, NULL, NULL, &size), "forkpty");
    if (child == 0) {
        char line[64] = "";
        struct winsize seen = {0};
        travel();
        ioctl(0, TIOCGWINSZ, &seen);
        int is_leader = getsid(0) == getpid() && tcgetpgrp(0) == getpid();
        printf("size %dx%d leader %d tty %d\n", seen.ws_row, seen.ws_col, is_leader, isatty(0));
        if (fgets(line, sizeof line, stdin)) {
            line[strcspn(line, "\n")] = 0;
            printf("heard <%s>\n", line);
        }
        pause();
        _exit(9);
    }
    char text[512] = "";
    size_t have = 0;
    travel();
    must(write(master, "worlx\177d\n", 8), "write");
    while (have < sizeof text - 1 && !strstr(text, "heard <")) {
        ssize_t got = read(master, text + have, sizeof text - 1 - have);
        if (got <= 0) {
            break;
        }
        have += (size_t)got;
        text[have] = 0;
    }
    CHECK(strstr(text, "size 33x77 leader 1 tty 1\r\n"), "the terminal is as it was made");
    CHECK(strstr(text, "heard <world>"), "the line discipline edits");
    travel();
    must(write(master, "\003", 1), "write");
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "the child ends");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT, "by the terminal's ^C");
    return verdict();
}
