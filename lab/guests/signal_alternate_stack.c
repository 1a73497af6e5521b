/* A handler with SA_ONSTACK runs on the alternate stack, is moved there, and returns. */
#include "travel.h"

static char *stack;
static volatile sig_atomic_t was_inside, was_busy, count;

static void look(int signal)
{
    (void)signal;
    char here;
    stack_t now;
    compute_until(now_s() + travel_ms() / 2000.0);
    was_inside = &here >= stack && &here < stack + 65536;
    sigaltstack(NULL, &now);
    was_busy = (now.ss_flags & SS_ONSTACK) != 0;
    count++;
}

int main(void)
{
    stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t wish = {.ss_sp = stack, .ss_size = 65536}, now;
    must(sigaltstack(&wish, NULL), "sigaltstack");
    on_signal(SIGUSR1, look, SA_ONSTACK);
    for (int round = 0; round < 3; round++) {
        raise(SIGUSR1);
        CHECK(was_inside && was_busy, "the handler is on the alternate stack");
        travel();
    }
    CHECK(count == 3, "it ran three times");
    must(sigaltstack(NULL, &now), "sigaltstack");
    CHECK(now.ss_sp == stack && now.ss_size == 65536 && now.ss_flags == 0, "the stack is idle");
    on_signal(SIGUSR1, look, 0);
    raise(SIGUSR1);
    CHECK(!was_inside, "without SA_ONSTACK it is not used");
    return verdict();
}
