/* posix_spawn and vfork start programs while away: output, status and errors arrive. */
#include "travel.h"
#include <spawn.h>

extern char **environ;

int main(void)
{
    char *words[] = {"/bin/sh", "-c", "echo spawned; exit 3", NULL};
    char *nothing[] = {"/no/such/program", NULL};
    for (volatile int round = 0; round < 2; round++) {
        travel();
        pid_t child;
        int status, pipe_fds[2];
        char text[32] = "";
        must(pipe(pipe_fds), "pipe");
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], 1);
        CHECK(posix_spawn(&child, words[0], &actions, NULL, words, environ) == 0, "posix_spawn");
        CHECK(read(pipe_fds[0], text, sizeof text) == 8 && !strcmp(text, "spawned\n"), "it speaks");
        CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3, "and ends");
        CHECK(posix_spawn(&child, nothing[0], NULL, NULL, nothing, environ) == ENOENT, "none");
        volatile int shared = 1;
        child = vfork();
        if (child == 0) {
            shared = 2;
            _exit(4);
        }
        CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 4, "vfork");
        CHECK(shared == 2, "shares memory until the child ends");
        CHECK(system("exit 5") == 5 << 8, "system");
        close(pipe_fds[0]);
        close(pipe_fds[1]);
    }
    return verdict();
}
