/* fork while away: the child has its parent's memory, its own id, and both go on by themselves. */
#include "travel.h"

int main(void)
{
    static unsigned char bytes[300000];
    fill(bytes, sizeof bytes, 3);
    travel();
    for (int round = 0; round < 2; round++) {
        pid_t parent = getpid(), children[3];
        for (int i = 0; i < 3; i++) {
            fflush(stdout);
            children[i] = (pid_t)must(fork(), "fork");
            if (children[i] == 0) {
                int wrong = getppid() != parent || getpid() == parent || gettid() != getpid();
                wrong += !is_filled(bytes, sizeof bytes, 3);
                fill(bytes, sizeof bytes, (uint32_t)i);
                travel();
                wrong += !is_filled(bytes, sizeof bytes, (uint32_t)i);
                _exit(wrong ? 99 : 10 + i);
            }
        }
        for (int i = 2; i >= 0; i--) {
            int status;
            CHECK(waitpid(children[i], &status, 0) == children[i], "a child is waited for");
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 10 + i, "with its own status");
        }
        CHECK(is_filled(bytes, sizeof bytes, 3), "the parent's memory is its own");
        CHECK(wait(NULL) == -1 && errno == ECHILD, "no other child is left");
    }
    return verdict();
}
