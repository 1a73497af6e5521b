/*
 * A guest that means harm: `hostile WAY`, where WAY is one of the table at the end. It says
 * `ready`, is moved away, and begins when it reads a line. From then on it does its worst until it
 * is killed. What it does has to hurt nobody but itself, and nothing may keep its node from getting
 * rid of it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB 1024ul
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define PAGE 4096ul

/* Where supervisors look first for room for what is theirs. */
#define AGENT ((char *)0x1000000000)
#define AGENT_BYTES (4 * GIB)

static const int PLAIN = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

static void *take(size_t bytes, int kind)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return at;
}

/* Shut until the line is read: readers pass all at once. */
static pthread_rwlock_t gate = PTHREAD_RWLOCK_INITIALIZER;

static void *behind_gate(void *work)
{
    pthread_rwlock_rdlock(&gate);
    pthread_rwlock_unlock(&gate);
    return ((void *(*)(void *))work)(NULL);
}

static void in_threads(int count, void *(*work)(void *))
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * KIB);
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, behind_gate, (void *)work) != 0) {
            exit(2);
        }
    }
}

static void nothing(int number)
{
    (void)number;
}

/* --- the agent --- */

static void unmap(void)
{
    munmap(AGENT, AGENT_BYTES);
}

static void overwrite(void)
{
    for (char *at = AGENT; at < AGENT + 64 * MIB; at += PAGE) {
        mprotect(at, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    }
    /* As by a pointer of its own that went astray: it dies of it, or does not. */
    memset(AGENT, 0xcc, 64 * MIB);
}

static void remap(void)
{
    mmap(AGENT, AGENT_BYTES, PROT_READ | PROT_WRITE, PLAIN | MAP_FIXED, -1, 0);
    mremap(AGENT, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, AGENT + GIB);
    void *other = take(PAGE, PLAIN);
    mremap(other, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, AGENT);
    mmap(AGENT, PAGE, PROT_NONE, PLAIN | MAP_FIXED, -1, 0);
}

/* What is writable of it: slots and staging, all the time. */
static void *scribble(void *unused)
{
    struct iovec there = {AGENT, 16 * MIB}, here = {take(16 * MIB, PLAIN), 16 * MIB};
    for (;;) {
        process_vm_writev(getpid(), &here, 1, &there, 1, 0);
    }
    return unused;
}

static void slots_begin(void)
{
    in_threads(1, scribble);
}

static void slots(void)
{
    madvise(AGENT, AGENT_BYTES, MADV_DONTNEED);
    madvise(AGENT, AGENT_BYTES, MADV_PAGEOUT);
}

static void jump(void)
{
    /* The first instructions of the agent, with a slot of our making. */
    static uint32_t slot[1024];
    __asm__ volatile("mov %0, %%rbx\n\tjmp *%1" : : "r"(slot), "r"(AGENT) : "rbx");
}

static void vdso(void)
{
    char *at = (char *)getauxval(AT_SYSINFO_EHDR);
    munmap(at - 16 * PAGE, 20 * PAGE);
    mmap(at, 2 * PAGE, PROT_READ | PROT_WRITE, PLAIN | MAP_FIXED, -1, 0);
    memset(at, 0xcc, 2 * PAGE);
}

static void everything(void)
{
    munmap(NULL, 1ul << 47);
}

/* --- more than there is --- */

static void forks(void)
{
    /* At home, where it makes them, it can harm what its user may harm anyway: so a few suffice. */
    for (int i = 0; i < 16; i++) {
        if (fork() == 0) {
            _exit(0);
        }
    }
    while (waitpid(-1, NULL, 0) > 0) {
    }
    usleep(20000);
}

static void memory(void)
{
    static size_t held;
    char *more = take(8 * MIB, PLAIN);
    memset(more, 1, 8 * MIB);
    held += 8 * MIB;
    if (held >= 192 * MIB) {
        munmap(more, 8 * MIB);
    }
}

static void populate(void)
{
    static char *at;
    if (at == NULL) {
        at = take(512 * MIB, PLAIN);
    }
    madvise(at, 256 * MIB, MADV_POPULATE_WRITE);
    madvise(at, 256 * MIB, MADV_DONTNEED);
}

static void mappings(void)
{
    static char *at;
    static size_t done;
    if (at == NULL) {
        at = take(GIB, PLAIN);
    }
    for (int i = 0; i < 256 && done < GIB; i++, done += 2 * PAGE) {
        mprotect(at + done, PAGE, PROT_READ);
        at[done + PAGE] = 1;
    }
}

static void aliases(void)
{
    static char *at;
    if (at == NULL) {
        at = take(64 * PAGE, MAP_SHARED | MAP_ANONYMOUS);
    }
    mremap(at, 0, PAGE, MREMAP_MAYMOVE);
    mremap(at + 8 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + 16 * PAGE);
}

static void *compute(void *unused)
{
    for (volatile uint64_t n = 0;; n++) {
    }
    return unused;
}

static void threads_begin(void)
{
    in_threads(1000, compute);
}

static void *mask(void *unused)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    for (int how = SIG_BLOCK;; how = how == SIG_BLOCK ? SIG_UNBLOCK : SIG_BLOCK) {
        for (volatile uint64_t n = 0; n < 10 * 1000 * 1000; n++) {
        }
        pthread_sigmask(how, &set, NULL);
    }
    return unused;
}

static void masks_begin(void)
{
    in_threads(300, mask);
}

static void *call(void *unused)
{
    for (;;) {
        syscall(SYS_getppid);
    }
    return unused;
}

static void calls_begin(void)
{
    in_threads(8, call);
}

/* --- calls --- */

static void old_calls(void)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20), "b"(0) : "memory");
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(5), "b"("/"), "c"(0) : "memory");
}

static void x32_calls(void)
{
    for (long number = 0; number < 550; number++) {
        if (number != SYS_exit && number != SYS_exit_group && number != SYS_rt_sigreturn
            && number != SYS_pause && number != SYS_fork && number != SYS_vfork) {
            syscall(0x40000000 + number, -1, -1, -1, -1, -1, -1);
        }
    }
}

static void signals(void)
{
    for (int pid = 1; pid < 3000; pid++) {
        if (pid != getpid()) {
            kill(pid, SIGCONT);
            syscall(SYS_tgkill, pid, pid, SIGWINCH);
        }
    }
}

static void traces(void)
{
    /* Nothing that would succeed: at home, where such a call is made, its user may trace much. */
    for (int pid = 1; pid < 40; pid++) {
        ptrace(PTRACE_INTERRUPT, pid, 0, 0);
        ptrace(PTRACE_PEEKDATA, pid, AGENT, 0);
    }
    ptrace(PTRACE_ATTACH, getpid(), 0, 0);
}

static void descriptors(void)
{
    char byte;
    for (int fd = 3; fd < 1100; fd++) {
        read(fd, &byte, 1);
        dup2(0, fd);
        write(fd + 1, "x", 1);
    }
    for (int fd = 3; fd < 1100; fd++) {
        close(fd);
    }
}

static void walk(const char *path, int depth)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        char below[512], content[4096];
        if (entry->d_name[0] == '.'
            || snprintf(below, sizeof below, "%s/%s", path, entry->d_name) >= 512) {
            continue;
        }
        if (entry->d_type == DT_DIR && depth > 0) {
            walk(below, depth - 1);
        }
        int file = open(below, O_RDONLY | O_NONBLOCK);
        if (file >= 0) {
            read(file, content, sizeof content);
            close(file);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
}

static void proc(void)
{
    walk("/proc/self", 1);
    walk("/proc/1", 1);
    walk("/proc", 0);
}

static struct iovec parts[1024];
static volatile uint64_t seed = 1;

static void *flip(void *unused)
{
    char *good = take(MIB, PLAIN);
    for (;;) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        struct iovec *part = &parts[(seed >> 40) % 1024];
        part->iov_base = seed >> 63 ? good : (void *)(uintptr_t)(seed << 3);
        part->iov_len = seed >> 62 & 1 ? 8 : (size_t)(seed >> 20);
        if ((seed >> 50 & 63) == 0) {
            mprotect(good, MIB, seed >> 61 & 1 ? PROT_READ : PROT_READ | PROT_WRITE);
        }
    }
    return unused;
}

static void races_begin(void)
{
    in_threads(2, flip);
}

static void races(void)
{
    int sink = open("/dev/null", O_WRONLY), source = open("/dev/zero", O_RDONLY);
    for (int count = 1; count < 1024; count += 61) {
        writev(sink, parts, count);
        readv(source, parts, count);
    }
    close(sink);
    close(source);
}

static void vectors(void)
{
    static char *much;
    if (much == NULL) {
        much = take(4 * GIB, PLAIN);
    }
    for (int i = 0; i < 1024; i++) {
        parts[i] = (struct iovec){much, 4 * GIB - 1};
    }
    int source = open("/dev/zero", O_RDONLY), sink = open("/dev/null", O_WRONLY);
    readv(source, parts, 1024);
    writev(sink, parts, 1024);
    parts[1023].iov_len = SIZE_MAX;
    writev(sink, parts, 1024);
    syscall(SYS_writev, sink, parts, 1 << 30);
    close(source);
    close(sink);
}

static void wild(void)
{
    static const uintptr_t places[] = {1, 16, PAGE, 0x1000000000, 0x7ffffffff000, 0x7fffffffffff,
                                       1ul << 47, 1ul << 63, UINTPTR_MAX - 7, UINTPTR_MAX};
    static const int calls[] = {SYS_read, SYS_write, SYS_open, SYS_stat, SYS_poll, SYS_readv,
                                SYS_writev, SYS_getdents64, SYS_rt_sigprocmask, SYS_rt_sigaction,
                                SYS_nanosleep, SYS_futex, SYS_sigaltstack, SYS_set_robust_list,
                                SYS_rseq, SYS_getrandom, SYS_clock_gettime, SYS_sendmsg,
                                SYS_recvmsg, SYS_epoll_wait, SYS_select, SYS_uname,
                                SYS_set_tid_address, SYS_futex_waitv, SYS_mincore, SYS_getcpu};
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            syscall(calls[c], 1, places[p], places[p], places[p], 0, 0);
            syscall(calls[c], places[p], 1, 8, 8, 0, 0);
        }
    }
}

/* A handler for which there is never a stack. */
static void no_stack(void)
{
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    stack_t bad = {.ss_sp = (void *)PAGE, .ss_size = 64 * KIB};
    sigaltstack(&bad, NULL);
    kill(getpid(), SIGUSR1);
}

static const struct {
    const char *name;
    void (*begin)(void);
    void (*again)(void);
} ways[] = {
    {"unmap", NULL, unmap},
    {"overwrite", NULL, overwrite},
    {"remap", NULL, remap},
    {"slots", slots_begin, slots},
    {"jump", NULL, jump},
    {"vdso", NULL, vdso},
    {"everything", NULL, everything},
    {"forks", NULL, forks},
    {"memory", NULL, memory},
    {"populate", NULL, populate},
    {"mappings", NULL, mappings},
    {"aliases", NULL, aliases},
    {"threads", threads_begin, NULL},
    {"masks", masks_begin, NULL},
    {"calls", calls_begin, NULL},
    {"old-calls", NULL, old_calls},
    {"x32-calls", NULL, x32_calls},
    {"signals", NULL, signals},
    {"traces", NULL, traces},
    {"descriptors", NULL, descriptors},
    {"proc", NULL, proc},
    {"races", races_begin, races},
    {"vectors", NULL, vectors},
    {"wild", NULL, wild},
    {"no-stack", NULL, no_stack},
};

int main(int count, char **words)
{
    for (size_t i = 0; count == 2 && i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(ways[i].name, words[1]) != 0) {
            continue;
        }
        pthread_rwlock_wrlock(&gate);
        if (ways[i].begin != NULL) {
            ways[i].begin();
        }
        char byte;
        write(1, "ready\n", 6);
        if (read(0, &byte, 1) != 1) {
            return 0;
        }
        pthread_rwlock_unlock(&gate);
        for (;;) {
            if (ways[i].again != NULL) {
                ways[i].again();
            } else {
                pause();
            }
        }
    }
    if (count == 1) {
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            puts(ways[i].name);
        }
        return 0;
    }
    return 2;
}
