/* SPDX-License-Identifier: Apache-2.0
 * Machines for the tests of placement: made up, drawn at random, described in tests/topologies, or read from XML. One
 * machine and one request at a time; functions that a test program does not call are left out of it. */
#ifndef TESTS_SPANK_MACHINE_H
#define TESTS_SPANK_MACHINE_H

#include "test.h"


#include "../../spank/inventory.h"
#include "../../spank/nvidia.h"
#include "../../spank/placement.h"

static struct node *node;
static struct request *request;
static unsigned seed = 4711;

static inline int pick(int n)
{
	return (int)((unsigned)rand_r(&seed) % (unsigned)n);
}

static inline int prepare(void **state)
{
	(void)state;
	node = calloc(1, sizeof *node);
	request = calloc(1, sizeof *request);
	if (getenv("SEED"))
		seed = (unsigned)atoi(getenv("SEED"));
	print_message("# SEED=%u\n", seed);
	return node && request ? 0 : -1;
}

static inline int release(void **state)
{
	(void)state;
	free(node);
	free(request);
	return 0;
}

/* A made-up machine: packages × NUMA nodes in each × cores × threads; `where` holds each GPU's NUMA node. CPUs are
 * numbered block by block, or dealt out to the packages in turn. */
static inline void make_machine(int packages, int numas, int cores, int threads, const int *where, int gpus, bool interleaved)
{
	int per_package = numas * cores, all = packages * per_package;

	memset(node, 0, sizeof *node);
	node->packages = packages;
	node->numas = packages * numas;
	for (int c = 0; c < all; c++)
		for (int t = 0; t < threads; t++) {
			int p = c / per_package, cpu = t * all + (interleaved ? c % per_package * packages + p : c);
			node->pu[node->pus++] = (struct pu){ .cpu = cpu, .core = c };
			node->package[p].id = p;
			cpuset_add(&node->package[p].cpus, cpu);
			node->numa[c / cores].id = c / cores;
			cpuset_add(&node->numa[c / cores].cpus, cpu);
			cpuset_add(&node->allowed, cpu);
		}
	node->cores = all;
	for (int g = 0; g < gpus; g++) {
		struct locality *at = &node->gpu[node->gpus++].at;
		at->order = (uint64_t)(g + 1) << 8;
		snprintf(at->pci, sizeof at->pci, "0000:%02x:00.0", (unsigned char)(g + 1));
		at->numa = where[g];
		at->package = where[g] / numas;
		at->cpus = node->numa[where[g]].cpus;
	}
	for (int n = 0; n < 2 * node->numas; n++) {
		struct nic *nic = &node->nic[node->nics++];
		nic->at = (struct locality){ .order = (uint64_t)(128 + n) << 8, .numa = n / 2, .package = n / 2 / numas, .cpus = node->numa[n / 2].cpus };
		snprintf(nic->name, sizeof nic->name, "mlx5_%d", n);
		nic->port = 1;
	}
}

static inline void random_machine(void)
{
	int packages = 1 + pick(4), numas = 1 + pick(3), cores = 1 + pick(4), gpus = pick(9), where[8];
	for (int g = 0; g < gpus; g++)
		where[g] = pick(packages * numas);
	make_machine(packages, numas, cores, 1 + pick(2), where, gpus, pick(2));
}

static inline void ask_for(int tasks, enum policy policy, enum order order)
{
	memset(request, 0, sizeof *request);
	request->tasks = tasks;
	request->policy = policy;
	request->order = order;
	request->gpus_per_task = 1;
	request->allowed = node->allowed;
	for (request->devices = 0; request->devices < node->gpus; request->devices++)
		request->device[request->devices] = request->devices;
}

/* Takes some CPUs away, as a job that has only part of the node. */
static inline void confine(void)
{
	struct cpuset left = { 0 };
	for (int i = 0; i < node->pus; i++)
		if (pick(3))
			cpuset_add(&left, node->pu[i].cpu);
	if (!cpuset_empty(&left))
		request->allowed = left;
}

static inline void load_machine(const char *path)
{
	struct inventory_source source = { .topology = path };
	char error[512];
	if (inventory_load(&source, node, error, sizeof error))
		fail_msg("%s", error);
}

/* "key=7" in the line. */
static inline int number_of(const char *line, const char *key)
{
	const char *p = strstr(line, key);
	assert_non_null(p);
	return atoi(p + strlen(key) + 1);
}

static inline void place_device(struct locality *at, const char *pci, const char *line)
{
	unsigned long long order;
	int switch_number = number_of(line, "switch");
	assert_int_equal(pci_parse(pci, &order, at->pci), 0);
	at->order = order;
	at->numa = number_of(line, "numa");
	at->package = at->numa / (node->numas / node->packages);
	at->cpus = node->numa[at->numa].cpus;
	at->bridges = 2;
	at->bridge[0] = 1000 + at->numa;
	at->bridge[1] = switch_number;
}

/* tests/topologies/NAME.txt: see any of them. */
static inline void load_text(FILE *f)
{
	char line[256], word[16], name[32], pci[32];
	int memory[NODE_MAX_NUMA], memories = 0;

	while (fgets(line, sizeof line, f)) {
		if (line[0] == '#' || sscanf(line, "%15s", word) != 1)
			continue;
		if (!strcmp(word, "machine")) {
			make_machine(number_of(line, "packages"), number_of(line, "numas"), number_of(line, "cores"), number_of(line, "threads"), NULL, 0, false);
			node->nics = 0;
		} else if (!strcmp(word, "gpu")) {
			assert_int_equal(sscanf(line, "gpu %31s", pci), 1);
			place_device(&node->gpu[node->gpus++].at, pci, line);
		} else if (!strcmp(word, "nic")) {
			assert_int_equal(sscanf(line, "nic %31s %31s", name, pci), 2);
			struct nic *nic = &node->nic[node->nics++];
			snprintf(nic->name, sizeof nic->name, "%.31s", name);
			nic->port = 1;
			place_device(&nic->at, pci, line);
		} else if (!strcmp(word, "memory")) {
			memory[memories++] = atoi(line + 7);
		} else {
			fail_msg("%s", line);
		}
	}
	for (int m = 0; m < memories; m++)
		node->numa[node->numas++] = (struct numa_node){ .id = memory[m] };
}

/* Our own description, or a published one; false if it is not here. */
static inline bool load_named(const char *name)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof path, "tests/topologies/%s.txt", name);
	f = fopen(path, "r");
	if (f) {
		load_text(f);
		fclose(f);
		return true;
	}
	if (!shared_dir())
		return false;
	snprintf(path, sizeof path, "%s/topologies/%s.xml", shared_dir(), name);
	load_machine(path);
	return true;
}

#endif
