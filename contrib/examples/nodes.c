/* SPDX-License-Identifier: Apache-2.0
 * Sub-worlds and requests: each node sums on its own while the whole world's sum is under way, then one rank of each node
 * adds the nodes' sums, which must be the same number.
 *
 *   cc nodes.c -lhvd -o nodes && srun --hvd -N2 -n4 ./nodes */
#include <hvd.h>

#include <stdio.h>

static int give_up(struct hvd *h, const char *what)
{
	fprintf(stderr, "nodes: %s: %s\n", what, hvd_error(h));
	return 70;
}

int main(void)
{
	struct hvd *h, *node, *leaders;
	if (hvd_init(&h, NULL))
		return give_up(h, "hvd_init");
	const struct hvd_world *w = hvd_world(h);
	if (hvd_split(h, HVD_SPLIT_NODE, &node) || hvd_split(h, w->local_rank == 0 ? 0 : HVD_SPLIT_NONE, &leaders))
		return give_up(h, "hvd_split");

	int64_t mine = w->rank, all, here, nodes;
	long request = hvd_start_allreduce(h, &mine, &all, 1, HVD_I64, HVD_SUM);
	if (request < 0)
		return give_up(h, "hvd_start_allreduce");
	if (hvd_allreduce(node, &mine, &here, 1, HVD_I64, HVD_SUM))
		return give_up(node, "the node's sum");
	if (leaders && hvd_allreduce(leaders, &here, &nodes, 1, HVD_I64, HVD_SUM))
		return give_up(leaders, "the sum over nodes");
	if (hvd_broadcast(node, &nodes, 1, HVD_I64, 0))
		return give_up(node, "telling the node");
	if (hvd_wait(h, request))
		return give_up(h, "hvd_wait");
	printf("rank %d of %d on %s: %lld on this node, %lld in all\n", w->rank, w->size, hvd_host(h, w->rank), (long long)here, (long long)all);

	if (hvd_close(leaders) || hvd_close(node) || hvd_close(h))
		return 70;
	return nodes == all ? 0 : 70;
}
