/* A handler interrupts a computation: every register and flag is as it was afterwards. */
#include "travel.h"

static volatile sig_atomic_t count;
static volatile double spoil;

static void disturb(int signal)
{
    (void)signal;
    for (int i = 1; i < 200; i++) {
        spoil = spoil * 1.0001 + 1.0 / i;
    }
    count++;
}

static void send_many(void)
{
    for (int i = 0; i < 4000; i++) {
        kill(getppid(), SIGUSR1);
        sleep_until(now_s() + travel_ms() / 16e3);
    }
}

int main(void)
{
    on_signal(SIGUSR1, disturb, SA_RESTART);
    pid_t child = child_after_travel(send_many);
    double sum = 0, first = 0;
    int wrong = 0, rounds = 0;
    double end_s = now_s() + 20;
    while (count < 15 && now_s() < end_s) {
        sum = 0;
        for (int i = 1; i < 20000; i++) {
            sum += 1.0 / i;
        }
        wrong += rounds++ > 0 && sum != first;
        first = sum;
    }
    CHECK(count >= 15, "the handler ran");
    CHECK(wrong == 0, "and spoilt nothing");
    must(kill(child, SIGKILL), "kill");
    CHECK(waitpid(child, NULL, 0) == child, "the sender is ended");
    return verdict();
}
