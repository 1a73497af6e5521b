/* Maps files as it is told to, one line of input for each: "map PATH", "fixed PATH", "errors DIR",
 * "library NAME", "written PATH", "names PATH". Answers what it has found. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char *kept;
static size_t kept_bytes;

/* Whether memory is what read(2) gives of the file, from that place on. */
static int is_file(const char *memory, int file, size_t bytes, off_t from)
{
    char *read_bytes = malloc(bytes);
    ssize_t got = pread(file, read_bytes, bytes, from);
    int same = got == (ssize_t)bytes && memcmp(memory, read_bytes, bytes) == 0;
    free(read_bytes);
    return same;
}

static void map(const char *path)
{
    int file = open(path, O_RDONLY);
    struct stat now;
    fstat(file, &now);
    size_t bytes = now.st_size;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    char *second = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 4096);
    int right = memory != MAP_FAILED && is_file(memory, file, bytes, 0);
    size_t part = bytes < 8192 ? bytes - 4096 : 4096;
    right &= second != MAP_FAILED && is_file(second, file, part, 4096);
    close(file);
    // It is the process's own: nobody sees it, and it stays.
    memory[0] ^= 1, memory[5000] = 77;
    right &= second[5000 - 4096] != 77 || bytes < 5001;
    munmap(second, 4096);
    kept = memory, kept_bytes = bytes;
    puts(right ? "right" : "wrong");
}

static void look(const char *path)
{
    int file = open(path, O_RDONLY);
    char first;
    int same = pread(file, &first, 1, 0) == 1 && kept[0] == (first ^ 1) && kept[5000] == 77 &&
               is_file(kept + 5001, file, kept_bytes - 5001, 5001);
    close(file);
    puts(same ? "right" : "wrong");
}

/* As a dynamic linker does it: room for all, and parts of the file into it. */
static void fixed(const char *path)
{
    int file = open(path, O_RDONLY);
    char *room = mmap(NULL, 5 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int protection = PROT_READ | PROT_EXEC;
    char *part = mmap(room + 4096, 8192, protection, MAP_PRIVATE | MAP_FIXED, file, 4096);
    int right = part == room + 4096 && is_file(part, file, 8192, 4096);
    char *taken = mmap(room, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, file, 0);
    right &= taken == MAP_FAILED && errno == EEXIST;
    close(file);
    munmap(room, 5 * 4096);
    puts(right ? "right" : "wrong");
}

static const char *error_of(int file, int protection, off_t offset)
{
    return mmap(NULL, 4096, protection, MAP_PRIVATE, file, offset) == MAP_FAILED
               ? strerrorname_np(errno) : "none";
}

static void errors(const char *directory)
{
    int dir = open(directory, O_RDONLY), writer = open("/tmp/out", O_WRONLY | O_CREAT, 0600);
    int own = open("/proc/self/exe", O_RDONLY), pipes[2];
    (void)!pipe(pipes);
    printf("%s %s %s %s %s\n", error_of(dir, PROT_READ, 0), error_of(writer, PROT_READ, 0),
           error_of(99, PROT_READ, 0), error_of(pipes[0], PROT_READ, 0),
           error_of(own, PROT_READ, 1));
    close(dir), close(writer), close(own), close(pipes[0]), close(pipes[1]);
}

/* Shared with whoever else reads it; with a descriptor that it could be written by, or without. */
static void shared(const char *path, int how)
{
    int file = open(path, how);
    char *memory = mmap(NULL, 8192, PROT_READ, MAP_SHARED, file, 4096);
    int right = memory != MAP_FAILED && is_file(memory, file, 8192, 4096);
    right &= (mprotect(memory, 4096, PROT_READ | PROT_WRITE) == 0) == (how == O_RDWR);
    close(file);
    munmap(memory, 8192);
    puts(right ? "right" : "wrong");
}

static void library(const char *name)
{
    void *library = dlopen(name, RTLD_NOW);
    double (*root)(double) = library ? (double (*)(double))dlsym(library, "cbrt") : NULL;
    printf("%g\n", root ? root(27) : -1);
}

/* Whoever writes to the file behind it is seen. */
static void written(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    (void)!write(file, "before", 6);
    char *memory = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    (void)!pwrite(file, "behind", 6, 0);
    puts(memcmp(memory, "behind", 6) == 0 ? "right" : "wrong");
    munmap(memory, 4096), close(file);
}

static void names(const char *path)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;
    while (fgets(line, sizeof line, maps)) {
        count += strstr(line, path) != NULL;
    }
    fclose(maps);
    printf("%d\n", count);
}

int main(void)
{
    char line[512], word[32], path[400];
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    while (fgets(line, sizeof line, stdin) && sscanf(line, "%31s %399s", word, path) == 2) {
        if (!strcmp(word, "map")) map(path);
        else if (!strcmp(word, "look")) look(path);
        else if (!strcmp(word, "fixed")) fixed(path);
        else if (!strcmp(word, "shared")) shared(path, O_RDONLY);
        else if (!strcmp(word, "updated")) shared(path, O_RDWR);
        else if (!strcmp(word, "errors")) errors(path);
        else if (!strcmp(word, "library")) library(path);
        else if (!strcmp(word, "written")) written(path);
        else if (!strcmp(word, "names")) names(path);
        else if (!strcmp(word, "begin")) printf("%d\n", system(path));
        else puts("unknown");
    }
    return 0;
}
