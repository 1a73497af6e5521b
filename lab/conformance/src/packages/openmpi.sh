# Open MPI with its default settings: its own way to wait, to share memory and to talk.
need mpirun openmpi-bin
need mpicc libopenmpi-dev
cat >reduce.c <<'END'
#include <mpi.h>
#include <stdio.h>

enum { COUNT = 30000, ROUNDS = 2000 };

int main(int argc, char **argv) {
	static int mine[COUNT], all[COUNT];
	int rank, size;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < COUNT; i++) mine[i] = i * (rank + 1) + round;
		MPI_Allreduce(mine, all, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < COUNT; i++)
			if (all[i] != i * size * (size + 1) / 2 + round * size) {
				fprintf(stderr, "round %d: element %d is %d\n", round, i, all[i]);
				MPI_Abort(MPI_COMM_WORLD, 3);
			}
	}
	MPI_Finalize();
	return 0;
}
END
mpicc -O2 -o reduce reduce.c
OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -n 3 ./reduce
