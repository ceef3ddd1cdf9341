/* SPDX-License-Identifier: Apache-2.0
 * Open MPI in the place of libhvd, measured as hvd-bench measures: the slowest rank counts, every result is checked.
 *
 *   rival_mpi start          milliseconds from main() to the first verified all-reduce
 *   rival_mpi BYTES ROUNDS   microseconds of an all-reduce of f32: median of the rounds */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static int start(double begin, int rank, int size)
{
	float one = 1;
	MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	double took = now() - begin, slowest;
	MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%.3f\n", slowest * 1e3);
	return one != (float)size;
}

static int table(size_t bytes, int rounds, int rank, int size)
{
	size_t n = bytes / sizeof(float), wrong = 0;
	float *p = malloc(bytes);
	double *seconds = calloc((size_t)rounds, sizeof *seconds);
	if (!p || !seconds)
		return 1;
	for (int k = -2; k < rounds; k++) {
		for (size_t i = 0; i < n; i++)
			p[i] = (float)(i % 1000) * (float)(rank + 1); /* whole numbers: any order of the sum gives the same */
		MPI_Barrier(MPI_COMM_WORLD);
		double begin = now();
		MPI_Allreduce(MPI_IN_PLACE, p, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		if (k >= 0)
			seconds[k] = now() - begin;
		MPI_Barrier(MPI_COMM_WORLD);
		for (size_t i = 0; i < n; i++)
			wrong += p[i] != (float)(i % 1000) * (float)(size * (size + 1) / 2);
	}
	MPI_Allreduce(MPI_IN_PLACE, seconds, rounds, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	qsort(seconds, (size_t)rounds, sizeof *seconds, ascending);
	if (rank == 0)
		printf("%.1f\n", seconds[rounds / 2] * 1e6);
	free(p);
	free(seconds);
	return wrong != 0;
}

int main(int argc, char **argv)
{
	double begin = now();
	int rank, size;
	if (argc != 2 + (argc > 1 && strcmp(argv[1], "start") != 0))
		return 64;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	int status = argc == 2 ? start(begin, rank, size) : table((size_t)atol(argv[1]), atoi(argv[2]), rank, size);
	MPI_Finalize();
	return status;
}
