/* Twelve general registers and the flags hold their values in a loop that makes no call. */
#include "travel.h"

/* Runs the loop with known values in every register that the compiler can spare. */
static long spin(long rounds)
{
    long wrong = 0;
    __asm__ volatile(
        "push %%rbp\n mov $0x11, %%rbp\n mov $0x22, %%rax\n mov $0x33, %%rbx\n"
        "mov $0x44, %%rdx\n mov $0x55, %%rsi\n mov $0x66, %%r8\n mov $0x77, %%r9\n"
        "mov $0x88, %%r10\n mov $0x99, %%r11\n mov $0xaa, %%r12\n mov $0xbb, %%r13\n"
        "mov $0xcc, %%r14\n mov $0xdd, %%r15\n std\n"
        "1: dec %%rcx\n jnz 1b\n"
        "pushfq\n cld\n pop %%rcx\n and $0x400, %%rcx\n xor $0x400, %%rcx\n"
        "xor $0x11, %%rbp\n or %%rbp, %%rcx\n xor $0x22, %%rax\n or %%rax, %%rcx\n"
        "xor $0x33, %%rbx\n or %%rbx, %%rcx\n xor $0x44, %%rdx\n or %%rdx, %%rcx\n"
        "xor $0x55, %%rsi\n or %%rsi, %%rcx\n xor $0x66, %%r8\n or %%r8, %%rcx\n"
        "xor $0x77, %%r9\n or %%r9, %%rcx\n xor $0x88, %%r10\n or %%r10, %%rcx\n"
        "xor $0x99, %%r11\n or %%r11, %%rcx\n xor $0xaa, %%r12\n or %%r12, %%rcx\n"
        "xor $0xbb, %%r13\n or %%r13, %%rcx\n xor $0xcc, %%r14\n or %%r14, %%rcx\n"
        "xor $0xdd, %%r15\n or %%r15, %%rcx\n pop %%rbp\n mov %%rcx, %0\n"
        : "=D"(wrong), "+c"(rounds)
        :
        : "rax", "rbx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc",
          "memory");
    return wrong;
}

int main(void)
{
    double end_s = now_s() + (double)travel_ms() / 400.0;
    long wrong = 0;
    do {
        wrong |= spin(20000000);
    } while (now_s() < end_s);
    CHECK(wrong == 0, "every register kept its value");
    return verdict();
}
