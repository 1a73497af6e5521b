/*
 * Whether what a program has in its vector registers outlives a signal handler that is entered on
 * one node and returns on another.
 *
 * For each line that it reads it fills the registers, sends itself a signal in the middle, and says
 * "handling" in the handler, which clears the registers and waits for another line. When all is
 * over it says "kept", or what was lost.
 */

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 16 * 32 };

static void say(const char *text)
{
    write(1, text, strlen(text));
    write(1, "\n", 1);
}

static int hear(void)
{
    char byte;
    do {
        if (read(0, &byte, 1) != 1) {
            return 0;
        }
    } while (byte != '\n');
    return 1;
}

static void handle(int number)
{
    (void)number;
    say("handling");
    __asm__ volatile("vzeroall" ::: "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                     "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    hear();
}

#define EACH(what) \
    what(0) what(1) what(2) what(3) what(4) what(5) what(6) what(7) \
    what(8) what(9) what(10) what(11) what(12) what(13) what(14) what(15)
#define LOAD(n) "vmovdqu " #n "*32(%[in]), %%ymm" #n "\n"
#define STORE(n) "vmovdqu %%ymm" #n ", " #n "*32(%[out])\n"

int main(void)
{
    static uint8_t in[BYTES], out[BYTES];
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR1, &action, NULL);
    for (uint8_t round = 1; hear(); round++) {
        for (int i = 0; i < BYTES; i++) {
            in[i] = (uint8_t)(i * 7 + round);
        }
        long result;
        __asm__ volatile(EACH(LOAD) "syscall\n" EACH(STORE)
                         : "=a"(result)
                         : "a"(SYS_kill), "D"(getpid()), "S"(SIGUSR1),
                           [in] "r"(in), [out] "r"(out)
                         : "rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
                           "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
                           "xmm14", "xmm15");
        for (int i = 0; i < BYTES; i++) {
            if (in[i] != out[i]) {
                char text[80];
                snprintf(text, sizeof text, "register %d lost byte %d: %d", i / 32, i % 32, out[i]);
                say(text);
                return 1;
            }
        }
        say("kept");
    }
    return 0;
}
