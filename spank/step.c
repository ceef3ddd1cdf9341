/* SPDX-License-Identifier: Apache-2.0 */
#include "step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain.h"

struct step step;

void step_fail(int status, const char *line)
{
	step.active = false;
	step.broken = true;
	/* a default of the site must not stop anybody's step, nor talk to people who asked for nothing */
	if (step.options.by_site)
		return;
	if (line)
		slurm_spank_log("hvd: %s: %s", step.host, line);
	step.failure = status;
	if (step.shared)
		step.shared->refused = true;
}

const char *job_variable(spank_t spank, const char *name, char *buf, int size)
{
	spank_err_t rc = spank_getenv(spank, name, buf, size);
	char line[128];

	if (rc == ESPANK_SUCCESS) {
		/* a user's own text may be told, and what is told is also in slurmd's log: a line stays one line there */
		for (char *c = buf; *c; c++)
			*c = *c >= ' ' && *c <= '~' ? *c : '?';
		return *buf ? buf : NULL;
	}
	if (rc != ESPANK_ENV_NOEXIST) {
		snprintf(line, sizeof line, "%s cannot be read%s", name, rc == ESPANK_NOSPACE ? ": it is too long" : "");
		step_fail(EXIT_INTERNAL, line);
	}
	return NULL;
}

void step_name_devices(void)
{
	struct request *r = step.request;

	r->devices = step.devices.count;
	for (int d = 0; d < r->devices; d++) {
		r->device[d] = step.devices.gpu[d];
		r->instance[d] = is_instance(step.devices.token[d]) ? step.devices.token[d] : NULL;
	}
}

int step_number(spank_t spank, spank_item_t item)
{
	uint32_t n = 1;
	return spank_get_item(spank, item, &n) == ESPANK_SUCCESS ? (int)n : 1;
}

uint32_t global_rank(spank_t spank, int local)
{
	uint32_t rank = (uint32_t)local;
	spank_get_item(spank, S_JOB_LOCAL_TO_GLOBAL_ID, (uint32_t)local, &rank);
	return rank;
}

const char *rank_name(spank_t spank, int local, char text[RANK_NAME])
{
	char all[16];
	const bool joined = job_variable(spank, "SLURM_STEP_NUM_TASKS", all, sizeof all) && atoi(all) > step_number(spank, S_JOB_TOTAL_TASK_COUNT);

	snprintf(text, RANK_NAME, "rank %u%s", global_rank(spank, local), joined ? " of its component" : "");
	return text;
}

void step_warn_distance(spank_t spank, int speaker)
{
	char line[EXPLAIN_LINE], rank[RANK_NAME];
	int far = 0, first = -1;

	/* the policy none asks to be left alone */
	if (step.options.policy == POLICY_NONE)
		return;
	for (int t = 0; t < step.plan.tasks; t++)
		if (step.plan.task[t].distance > 0) {
			far++;
			first = first < 0 ? t : first;
		}
	if (far && (speaker < 0 || speaker == first))
		slurm_spank_log("hvd: %s%s on %s: %s", rank_name(spank, first, rank), far > 1 ? " and others" : "", step.host,
			explain_distance(step.node, step.request, &step.plan, first, line, sizeof line));
}

int64_t step_cpus_of(spank_t spank, int tasks)
{
	char each[16];
	return spank_getenv(spank, "SLURM_CPUS_PER_TASK", each, sizeof each) == ESPANK_SUCCESS ? (int64_t)tasks * atoi(each) : tasks;
}

/* Whether a step of a job that stays as it is can have so many tasks. */
static bool has_cpus(spank_t spank, int tasks, int nodes)
{
	char text[256];
	const int cpus = spank_getenv(spank, "SLURM_JOB_CPUS_PER_NODE", text, sizeof text) == ESPANK_SUCCESS ? sum_of_largest(text, nodes) : -1;

	return step.options.whole_job || cpus < 0 || step_cpus_of(spank, tasks) <= cpus;
}

const char *step_limits(char buf[WITHOUT_LIMITS])
{
	return without_limits(step.options.per_socket, step.options.per_core, step.options.per_gpu, buf);
}

/* " --ntasks-per-node=4", where another number was said, and tasks beyond that would go to further nodes. */
const char *step_per_node(spank_t spank, int tasks, char buf[PER_NODE])
{
	char said[16];
	const bool other = job_variable(spank, "SLURM_NTASKS_PER_NODE", said, sizeof said) && atoi(said) != tasks;

	buf[0] = '\0';
	if (other || step_number(spank, S_JOB_NNODES) > 1)
		snprintf(buf, PER_NODE, " --ntasks-per-node=%d", tasks);
	return buf;
}

/* What gives all GPUs to tasks; "" where no number of tasks or of GPUs does. */
static const char *idle_cure(spank_t spank, char *buf, size_t size)
{
	const struct request *r = step.request;
	const int groups = r->devices / r->gpus_per_task, nodes = step_number(spank, S_JOB_NNODES);
	char limits[WITHOUT_LIMITS], per_node[PER_NODE];
	size_t n = 0;

	buf[0] = '\0';
	if (r->devices % r->gpus_per_task || r->tasks >= groups)
		return buf;
	if (has_cpus(spank, groups * nodes, nodes)) {
		/* a -n that stays beats --ntasks-per-node, and alone -n lets Slurm fill the first node; how many GPUs the others have is not seen here */
		n = (size_t)snprintf(buf, size, ": type -n %d%s%s", groups * nodes, step_per_node(spank, groups, per_node), step_limits(limits));
	}
	if (r->devices % r->tasks == 0 && (nodes == 1 || r->tasks * nodes == step_number(spank, S_JOB_TOTAL_TASK_COUNT)))
		n += (size_t)snprintf(buf + n, size - n, "%s --hvd-bind=gpus-per-task=%d%s", n ? ", or" : ": type", r->devices / r->tasks, n && nodes > 1 ? "," : "");
	if (n && nodes > 1)
		snprintf(buf + n, size - n, " if all nodes have %d GPUs", r->devices);
	return buf;
}

void step_warn_idle(spank_t spank)
{
	char line[EXPLAIN_LINE], cure[192 + WITHOUT_LIMITS];

	if (*explain_idle(step.node, step.request, &step.plan, line, sizeof line))
		slurm_spank_log("hvd: %s: %s%s", step.host, line, idle_cure(spank, cure, sizeof cure));
}
