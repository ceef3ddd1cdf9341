/* SPDX-License-Identifier: Apache-2.0
 * The smallest use of libhvd: every rank has a number, all learn the mean.
 *
 *   cc mean.c -lhvd -o mean && srun --hvd -n4 ./mean */
#include <hvd.h>

#include <stdio.h>

int main(void)
{
	struct hvd *h;
	if (hvd_init(&h, NULL)) {
		fprintf(stderr, "mean: %s\n", hvd_error(h));
		hvd_close(h);
		return 70;
	}
	const struct hvd_world *w = hvd_world(h);
	double mine = w->rank, mean;
	if (hvd_allreduce(h, &mine, &mean, 1, HVD_F64, HVD_AVG)) {
		fprintf(stderr, "mean: %s\n", hvd_error(h));
		return 70;
	}
	printf("rank %d of %d, number %d of %d on node %s (%d of %d): mean %.3f\n", w->rank, w->size, w->local_rank, w->local_size,
	       hvd_host(h, w->rank), w->node, w->nodes, mean);
	return hvd_close(h) ? 70 : 0;
}
