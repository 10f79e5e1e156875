/* pi STEPS: computes pi on all ranks, and prints it on the first one. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
	int rank, ranks;
	double sum = 0, pi;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	long steps = argc > 1 ? atol(argv[1]) : 1000000;
	for (long i = rank; i < steps; i += ranks) {
		double x = (i + 0.5) / steps;
		sum += 4 / (1 + x * x);
	}
	MPI_Reduce(&sum, &pi, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0) printf("pi is %.6f, by %d ranks\n", pi / steps, ranks);
	return MPI_Finalize();
}
