/* Times getppid(2), a call that does nothing but must go home, and that no library remembers. */
#include "drive.h"
#include <sys/syscall.h>

static void ask_parent(void)
{
    syscall(SYS_getppid);
}

int main(void)
{
    drive_timed_steps(ask_parent);
    return 0;
}
