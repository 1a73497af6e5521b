/* kill and raise to oneself run the handler before the call returns. */
#include "travel.h"

static volatile sig_atomic_t count;

static void note(int signal)
{
    (void)signal;
    count++;
}

int main(void)
{
    on_signal(SIGUSR1, note, 0);
    int late = 0;
    double end_s = now_s() + travel_ms() / 500.0;
    for (int i = 1; now_s() < end_s; i++) {
        if (i % 2) {
            kill(getpid(), SIGUSR1);
        } else {
            raise(SIGUSR1);
        }
        late += count != i;
        if (i % 50 == 0) {
            compute_until(now_s() + 0.002);
        }
    }
    CHECK(late == 0, "every signal was handled before the call returned");
    CHECK(count > 2, "there were some");
    CHECK(kill(getpid(), 0) == 0, "signal 0 only asks");
    CHECK(kill(getpid(), 4711) == -1 && errno == EINVAL, "there is no signal 4711");
    return verdict();
}
