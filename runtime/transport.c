/* SPDX-License-Identifier: Apache-2.0 */
#include "transport.h"

#include <stdlib.h>
#include <string.h>

/* host:pid:thread [gpu] NCCL INFO Channel 00/02 : 0[0] -> 1[1] [send] via NET/Socket/0 */
bool transport_line(const char *line, struct pair *p)
{
	const char *at = strstr(line, "NCCL INFO Channel "), *colon = at ? strstr(at, " : ") : NULL, *via = colon ? strstr(colon, " via ") : NULL;
	p->receives = via && strstr(colon, "[receive]");
	return via && sscanf(colon, " : %9d[%*[^]]] -> %9d[", &p->from, &p->to) == 2 && p->from >= 0 && p->to >= 0 && sscanf(via, " via %23[^ \t\r\n]", p->how) == 1;
}

static int in_order(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	return x->from != y->from ? x->from - y->from : x->to != y->to ? x->to - y->to : strcmp(x->how, y->how);
}

/* What is slower than it should be, or NULL. */
static const char *complaint(const struct pair *p, const int *node, bool infiniband)
{
	bool here = node[p->from] == node[p->to], net = !strncmp(p->how, "NET/", 4);
	if (here && net)
		return "one node, but over the network: do the ranks see each other's GPUs and /dev/shm (containers, NCCL_P2P_DISABLE, NCCL_SHM_DISABLE)?";
	if (here && !strncmp(p->how, "SHM", 3))
		return "one node, but through host memory: P2P is off or impossible (NCCL_P2P_LEVEL, ACS or IOMMU, GPUs under different sockets)";
	if (!here && infiniband && !strncmp(p->how, "NET/Socket", 10))
		return "over TCP, though there is InfiniBand or RoCE: is libibverbs there, and NCCL_IB_HCA right?";
	if (!here && !strncmp(p->how, "NET/IB", 6) && !strstr(p->how, "GDRDMA"))
		return "without GPUDirect RDMA: is nvidia-peermem loaded, and the adapter near the GPU?";
	return NULL;
}

int transport_table(FILE *out, struct pair *pairs, size_t n, const int *node, int ranks, bool infiniband)
{
	int warnings = 0;
	qsort(pairs, n, sizeof *pairs, in_order);
	fprintf(out, "# from   to channels over\n");
	for (size_t i = 0, next; i < n; i = next) {
		const struct pair *p = &pairs[i];
		size_t channels[2] = { 0 }; /* by the sending side, and by the other */
		for (next = i; next < n && !in_order(p, &pairs[next]); next++)
			channels[pairs[next].receives]++;
		if (p->from >= ranks || p->to >= ranks)
			continue; /* of another communicator */
		const char *slow = complaint(p, node, infiniband);
		fprintf(out, "%6d %4d %8zu %-20s%s%s\n", p->from, p->to, channels[channels[0] < channels[1]], p->how, slow ? " WARNING: " : "", slow ? slow : "");
		warnings += slow != NULL;
	}
	return warnings;
}
