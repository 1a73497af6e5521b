/* Each rank computes, hands what it has round a ring, and all add up: so many rounds as the first
 * rank reads, again and again. The same on any machine, and wherever ranks are meanwhile. */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t work(uint64_t value, long steps)
{
    for (long i = 0; i < steps; i++)
        value = value * 6364136223846793005u + 1442695040888963407u;
    return value;
}

static uint64_t one_round(uint64_t own, int rank, int size)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    uint64_t token, sum;
    own = work(own, 200000);
    MPI_Sendrecv(&own, 1, MPI_UINT64_T, next, 0, &token, 1, MPI_UINT64_T, last, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    own = own * 31 + token + rank;
    MPI_Allreduce(&own, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%016" PRIx64 "\n", sum);
    return own + sum;
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    uint64_t own = rank + 1;
    for (;;) {
        long rounds = 0;
        if (rank == 0 && scanf("%ld", &rounds) != 1)
            rounds = 0;
        MPI_Bcast(&rounds, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        if (rounds == 0)
            break;
        for (long round = 0; round < rounds; round++)
            own = one_round(own, rank, size);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
