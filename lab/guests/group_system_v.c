/* System V shared memory: children attach it, write and leave it, and what they wrote stays. */
/* may stay: shared-memory */
#include "travel.h"
#include <sys/shm.h>

enum { MEMBERS = 3, BYTES = 64 * 1024 };

static int id;

static int attached(void)
{
    struct shmid_ds about;
    must(shmctl(id, IPC_STAT, &about), "shmctl");
    return (int)about.shm_nattch;
}

static void work(volatile uint64_t *words, int me)
{
    double end_s = now_s() + 2 * (double)travel_ms() / 1000.0;
    while (now_s() < end_s) {
        __atomic_add_fetch(&words[0], 1, __ATOMIC_SEQ_CST);
        words[me]++;
    }
}

static void leave(void)
{
    _exit(0);
}

int main(void)
{
    id = (int)must(shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600), "shmget");
    uint64_t *words = shmat(id, NULL, 0);
    CHECK(words != (void *)-1 && attached() == 1, "attached");
    fill(words + 512, 4096, 9);
    pid_t children[MEMBERS];
    for (int me = 1; me < MEMBERS; me++) {
        children[me] = (pid_t)must(fork(), "fork");
        if (children[me] == 0) {
            work(words, me);
            _exit(0);
        }
    }
    CHECK(attached() == MEMBERS, "by all");
    travel();
    travel();
    for (int me = 1; me < MEMBERS; me++)
        join_child(children[me]);
    CHECK(words[0] > 100 && words[0] == words[1] + words[2], "each count was counted");
    CHECK(attached() == 1, "by one again");
    travel();
    uint64_t total = words[0];
    must(shmdt(words), "shmdt");
    CHECK(attached() == 0, "by nobody");
    travel();
    words = shmat(id, NULL, 0);
    CHECK(words != (void *)-1 && words[0] == total && is_filled(words + 512, 4096, 9),
          "what was written is there");
    pid_t child = child_after_travel(leave);
    must(shmctl(id, IPC_RMID, NULL), "shmctl");
    join_child(child);
    CHECK(words[0] == total, "and it is there until the last has left it");
    return verdict();
}
