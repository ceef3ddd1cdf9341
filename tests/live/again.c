/* SPDX-License-Identifier: Apache-2.0
 * One world after the other in one process, also after one that was not formed, each with a mean that all ranks know: again [WORLDS [DEADLINE]].
 * The exit status is the last one's. */
#include <hvd.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int status = 0;
	for (int i = 0; i < (argc > 1 ? atoi(argv[1]) : 1); i++) {
		struct hvd *h;
		struct hvd_conf conf;
		char why[256];
		if (hvd_conf_default(&conf, why))
			return 64;
		conf.deadline = argc > 2 ? atof(argv[2]) : conf.deadline;
		status = hvd_init(&h, &conf) ? 70 : 0;
		if (status) {
			fprintf(stderr, "%s\n", hvd_error(h));
			hvd_close(h);
			continue;
		}
		const struct hvd_world *w = hvd_world(h);
		double mine = w->rank, mean;
		if (hvd_allreduce(h, &mine, &mean, 1, HVD_F64, HVD_AVG))
			return 70;
		printf("world %d: rank %d of %d on %s, of %d: mean %.3f\n", i, w->rank, w->size, hvd_host(h, w->rank), w->nodes, mean);
		if (hvd_close(h))
			return 70;
	}
	return status;
}
