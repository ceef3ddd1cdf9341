/* SPDX-License-Identifier: Apache-2.0
 * Slurm's clients carry their library with them; its functions are looked up, since a plugin must not link to it. */
#include "slurm_nodes.h"

#include <dlfcn.h>
#include <slurm/slurm.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tasks.h"

static void *slurm_function(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

static node_info_msg_t *load_nodes(void)
{
	__typeof__(slurm_load_node) *load = (__typeof__(slurm_load_node) *)slurm_function("slurm_load_node");
	node_info_msg_t *nodes = NULL;
	return load && load(0, &nodes, SHOW_ALL) == SLURM_SUCCESS ? nodes : NULL;
}

static void free_nodes(node_info_msg_t *nodes)
{
	__typeof__(slurm_free_node_info_msg) *give_back = (__typeof__(slurm_free_node_info_msg) *)slurm_function("slurm_free_node_info_msg");
	if (nodes && give_back)
		give_back(nodes);
}

/* hostlist_t is a pointer up to 23.02 and a struct behind one later: either way the list is a void * here. */
char *slurm_host(const char *nodelist, int position, char *buf, size_t size)
{
	__typeof__(slurm_hostlist_create) *create = (__typeof__(slurm_hostlist_create) *)slurm_function("slurm_hostlist_create");
	__typeof__(slurm_hostlist_shift) *shift = (__typeof__(slurm_hostlist_shift) *)slurm_function("slurm_hostlist_shift");
	__typeof__(slurm_hostlist_destroy) *destroy = (__typeof__(slurm_hostlist_destroy) *)slurm_function("slurm_hostlist_destroy");
	void *list = create && shift && destroy ? create(nodelist) : NULL;

	snprintf(buf, size, "%s", nodelist);
	for (char *host; list && position >= 0 && (host = shift(list)); free(host), position--)
		if (!position)
			snprintf(buf, size, "%s", host);
	if (list)
		destroy(list);
	return buf;
}

int slurm_hosts(const char *nodelist)
{
	__typeof__(slurm_hostlist_create) *create = (__typeof__(slurm_hostlist_create) *)slurm_function("slurm_hostlist_create");
	__typeof__(slurm_hostlist_count) *count = (__typeof__(slurm_hostlist_count) *)slurm_function("slurm_hostlist_count");
	__typeof__(slurm_hostlist_uniq) *uniq = (__typeof__(slurm_hostlist_uniq) *)slurm_function("slurm_hostlist_uniq");
	__typeof__(slurm_hostlist_destroy) *destroy = (__typeof__(slurm_hostlist_destroy) *)slurm_function("slurm_hostlist_destroy");
	void *list = create && count && uniq && destroy ? create(nodelist) : NULL;
	int hosts = 0;

	if (list) {
		uniq(list);
		hosts = count(list);
		destroy(list);
	}
	return hosts;
}

int slurm_hosts_in_file(const char *path)
{
	__typeof__(slurm_read_hostfile) *read_file = (__typeof__(slurm_read_hostfile) *)slurm_function("slurm_read_hostfile");
	char *list = read_file ? read_file(path, 0) : NULL;
	int hosts = list ? slurm_hosts(list) : 0;

	free(list);
	return hosts;
}

static bool is_named(const partition_info_t *partition, const char *names)
{
	size_t length = strlen(partition->name);

	for (const char *p = names; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (!strncmp(p, partition->name, length) && (!p[length] || p[length] == ','))
			return true;
	}
	return !names && partition->flags & PART_FLAG_DEFAULT;
}

char *slurm_nodes_of_partitions(const char *names)
{
	__typeof__(slurm_load_partitions) *load = (__typeof__(slurm_load_partitions) *)slurm_function("slurm_load_partitions");
	__typeof__(slurm_free_partition_info_msg) *give_back = (__typeof__(slurm_free_partition_info_msg) *)slurm_function("slurm_free_partition_info_msg");
	partition_info_msg_t *partitions = NULL;
	char *nodes = NULL;

	if (!load || !give_back || load(0, &partitions, SHOW_ALL) != SLURM_SUCCESS)
		return NULL;
	for (uint32_t i = 0; i < partitions->record_count; i++) {
		const partition_info_t *p = &partitions->partition_array[i];
		char *both = NULL;
		if (!p->name || !p->nodes || !is_named(p, names) || asprintf(&both, "%s%s%s", nodes ? nodes : "", nodes ? "," : "", p->nodes) < 0)
			continue;
		free(nodes);
		nodes = both;
	}
	give_back(partitions);
	return nodes;
}

int slurm_packages_per_node(const char *nodelist, bool anywhere, bool *have_gpus)
{
	__typeof__(slurm_hostlist_create) *create = (__typeof__(slurm_hostlist_create) *)slurm_function("slurm_hostlist_create");
	__typeof__(slurm_hostlist_find) *find = (__typeof__(slurm_hostlist_find) *)slurm_function("slurm_hostlist_find");
	__typeof__(slurm_hostlist_destroy) *destroy = (__typeof__(slurm_hostlist_destroy) *)slurm_function("slurm_hostlist_destroy");
	void *list = nodelist && create && find && destroy ? create(nodelist) : NULL;
	node_info_msg_t *nodes = load_nodes();
	int packages = -1;

	*have_gpus = false;
	for (uint32_t i = 0; nodes && i < nodes->record_count; i++) {
		const node_info_t *n = &nodes->node_array[i];
		const bool listed = n->name && (!nodelist || (list && find(list, n->name) >= 0));
		*have_gpus |= (listed || anywhere) && n->gres && count_gres_gpus(n->gres) > 0;
		/* a board is what holds sockets; nearly every node has one */
		int here = n->sockets;
		if (listed)
			packages = packages < 0 || packages == here ? here : 0;
	}
	if (list)
		destroy(list);
	free_nodes(nodes);
	return packages < 0 ? 0 : packages;
}

int slurm_cpus_per_gpu(const char *node, int otherwise)
{
	node_info_msg_t *nodes = load_nodes();
	int answer = otherwise;

	for (uint32_t i = 0; nodes && i < nodes->record_count; i++) {
		const node_info_t *n = &nodes->node_array[i];
		int gpus = n->name && !strcmp(n->name, node) && n->gres ? count_gres_gpus(n->gres) : 0;
		if (gpus > 0)
			answer = n->cpus / gpus > 0 ? n->cpus / gpus : 1;
	}
	free_nodes(nodes);
	return answer;
}

/* ---- the job that a step is started in ------------------------------------------------------------- */

static job_info_msg_t *load_job(uint32_t job)
{
	__typeof__(slurm_load_job) *load = (__typeof__(slurm_load_job) *)slurm_function("slurm_load_job");
	job_info_msg_t *jobs = NULL;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
	slurm_step_id_t id = SLURM_STEP_ID_INITIALIZER;
	id.job_id = job;
#else
	uint32_t id = job;
#endif
	return load && load(&jobs, id, SHOW_ALL | SHOW_LOCAL) == SLURM_SUCCESS ? jobs : NULL;
}

/* All components of a heterogeneous job. Kept to the end of the process, which starts its steps in one job. */
static const job_info_msg_t *job_of_step(const char *id)
{
	static const job_info_msg_t *jobs;
	static bool asked;

	if (!asked && id)
		jobs = load_job((uint32_t)strtoul(id, NULL, 10));
	asked = true;
	return jobs;
}

/* What Slurm answers holds all components of a heterogeneous job, and for the last task of an array the others that still run. */
static bool is_own(const slurm_job_info_t *job, uint32_t id, int group)
{
	const bool het = job->het_job_id && job->het_job_id != NO_VAL;
	/* several components of a command can be in one ordinary job */
	return het ? job->het_job_offset == (uint32_t)(group < 0 ? 0 : group) : job->job_id == id;
}

/* NULL where this is not in a job, or Slurm does not say. */
static const slurm_job_info_t *own_job(int group)
{
	const char *id = getenv("SLURM_JOB_ID");
	const job_info_msg_t *jobs = job_of_step(id);

	for (uint32_t i = 0; id && jobs && i < jobs->record_count; i++)
		if (is_own(&jobs->job_array[i], (uint32_t)strtoul(id, NULL, 10), group))
			return &jobs->job_array[i];
	return NULL;
}

const char *slurm_job_gres(int group, bool *known)
{
	const slurm_job_info_t *job = own_job(group);

	*known = job || !getenv("SLURM_JOB_ID");
	return job && job->tres_per_node && *job->tres_per_node ? job->tres_per_node : NULL;
}

int slurm_job_gpus(int group)
{
	const slurm_job_info_t *job = own_job(group);

	return job && job->tres_per_job ? count_gres_gpus(job->tres_per_job) : 0;
}

bool slurm_job_asks_for(const char *id, const char *kind)
{
	const job_info_msg_t *jobs = job_of_step(id);
	bool asks = id && !jobs;

	for (uint32_t i = 0; jobs && i < jobs->record_count; i++)
		asks |= jobs->job_array[i].tres_per_node && strstr(jobs->job_array[i].tres_per_node, kind);
	return asks;
}
