/* Two processes ask and answer through pipes while they are moved: no byte lost or doubled. */
#include "travel.h"

static int ask[2], answer[2];

static void answer_all(void)
{
    uint32_t number;
    close(ask[1]);
    while (read_fully(ask[0], &number, sizeof number) == sizeof number) {
        number = number * 2654435761u + 1;
        write_fully(answer[1], &number, sizeof number);
    }
    _exit(0);
}

int main(void)
{
    must(pipe(ask), "pipe");
    must(pipe(answer), "pipe");
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        answer_all();
    }
    close(ask[0]);
    double end_s = now_s() + travel_ms() / 400.0;
    uint32_t number = 0, wrong = 0;
    do {
        uint32_t heard = 0;
        number++;
        write_fully(ask[1], &number, sizeof number);
        read_fully(answer[0], &heard, sizeof heard);
        wrong += heard != number * 2654435761u + 1;
        if (number % 64 == 0) {
            compute_until(now_s() + 0.002);
        }
    } while (now_s() < end_s);
    CHECK(wrong == 0, "every answer is right");
    close(ask[1]);
    char byte;
    join_child(child);
    close(answer[1]);
    CHECK(read(answer[0], &byte, 1) == 0, "nothing is left in the pipe");
    return verdict();
}
