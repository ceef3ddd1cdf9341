/* SPDX-License-Identifier: Apache-2.0 */
#include "explain.h"

#include <string.h>

#include "cores.h"
#include "models.h"
#include "text.h"

const char *device_pci(const struct node *node, const struct request *request, int device)
{
	int gpu = request->device[device];
	const char *instance = request->instance[device];
	return gpu >= 0 ? node->gpu[gpu].at.pci : instance ? instance : "?";
}

const char *device_name(const struct node *node, const struct request *request, int device)
{
	return request->instance[device] ? request->instance[device] : device_pci(node, request, device);
}

static void add_device(struct text *t, const struct node *node, const struct request *r, int device)
{
	const struct gpu *gpu = r->device[device] < 0 ? NULL : &node->gpu[r->device[device]];

	text_add(t, "GPU %s", device_name(node, r, device));
	if (gpu && r->instance[device])
		text_add(t, " of %s", gpu->at.pci);
	else if (gpu && gpu->uuid[0])
		text_add(t, " (%s)", gpu->uuid);
	text_add(t, ", ");
}

static const char *policy_words(enum policy policy)
{
	switch (policy) {
	case POLICY_SOCKET:
		return "the GPU's socket";
	case POLICY_NUMA:
		return "the GPU's NUMA node";
	case POLICY_GPU:
		return "its share of the cores nearest to the GPU";
	case POLICY_NONE:
		return "CPUs as Slurm set them";
	}
	return "";
}

/* Whether the task has an instance of a GPU that nobody names. */
static bool is_unplaced(const struct request *r, const struct task_plan *task)
{
	bool unplaced = false;

	for (int i = 0; i < task->devices; i++)
		unplaced |= r->device[task->device[i]] < 0;
	return unplaced;
}

static void add_reason(struct text *t, const struct request *r, const struct task_plan *task)
{
	if (r->fixed)
		text_add(t, "CPUs as the user set them");
	else if (r->policy == POLICY_NONE)
		text_add(t, "CPUs as Slurm set them");
	else if (!task->devices)
		text_add(t, "no GPU: its share of the node");
	else if (is_unplaced(r, task))
		text_add(t, "which GPU the instance is cut from is not known: %s", r->policy == POLICY_GPU ? "its share of the step's CPUs" : "the step's CPUs");
	else if (task->distance == 0)
		text_add(t, "%s", policy_words(r->policy));
	else
		text_add(t, task->distance == 1 ? "no core of the GPU's NUMA node in this step: the socket's" : "no core of the GPU's socket in this step");
}

char *explain_task(const struct node *node, const struct request *r, const struct plan *plan, int task, char *buf, size_t size)
{
	const struct task_plan *p = &plan->task[task];
	struct text t = { buf, size, 0 };
	char list[512];

	buf[0] = '\0';
	for (int i = 0; i < p->devices; i++)
		add_device(&t, node, r, p->device[i]);
	if (!cpuset_empty(&p->cpus))
		text_add(&t, "CPUs %s, ", cpulist_print(&p->cpus, list, sizeof list));
	if (!cpuset_empty(&p->numa))
		text_add(&t, "NUMA %s, ", cpulist_print(&p->numa, list, sizeof list));
	if (p->nic >= 0)
		text_add(&t, "NIC %s, ", node->nic[p->nic].name);
	text_add(&t, "%d thread%s: ", p->threads, p->threads == 1 ? "" : "s");
	add_reason(&t, r, p);
	return buf;
}

char *explain_idle(const struct node *node, const struct request *r, const struct plan *plan, char *buf, size_t size)
{
	struct text t = { buf, size, 0 };

	buf[0] = '\0';
	if (cpuset_empty(&plan->idle))
		return buf;
	text_add(&t, "no task uses GPU");
	for (int d = cpuset_next(&plan->idle, 0); d >= 0; d = cpuset_next(&plan->idle, d + 1))
		text_add(&t, " %s", device_name(node, r, d));
	return buf;
}

/* The GPU that a task is farthest from. */
static int farthest_device(const struct node *node, const struct request *r, const struct task_plan *task)
{
	const struct cpuset *cpus = cpuset_empty(&task->cpus) ? &r->allowed : &task->cpus;
	int farthest = task->device[0], distance = 0;

	for (int i = 0; i < task->devices; i++) {
		int gpu = r->device[task->device[i]], here = gpu < 0 ? 0 : gpu_distance(node, cpus, gpu);
		if (here > distance) {
			distance = here;
			farthest = task->device[i];
		}
	}
	return farthest;
}

static const char *more_cores(const struct request *r)
{
	if (r->cpus_by_task)
		return "give the job more cores with a larger -c, or whole nodes with sbatch --exclusive";
	return "give the job more cores with --cpus-per-gpu=N, or whole nodes with sbatch --exclusive";
}

/* What brings a core near this GPU. */
static const char *nearer(const struct node *node, const struct request *r, const struct task_plan *task, int gpu)
{
	if (r->fixed && gpu >= 0 && gpu_distance(node, &r->allowed, gpu) < task->distance)
		return "leave out --cpu-bind";
	if (gpu >= 0 && gpu_distance(node, &r->job, gpu) < task->distance)
		return "the job has more cores than this step, also there: type -c N, the CPUs of each task";
	return more_cores(r);
}

char *explain_distance(const struct node *node, const struct request *r, const struct plan *plan, int task, char *buf, size_t size)
{
	const struct task_plan *p = &plan->task[task];
	struct text t = { buf, size, 0 };

	buf[0] = '\0';
	if (p->distance <= 0)
		return buf;
	int device = farthest_device(node, r, p);
	text_add(&t, "no core %s GPU %s, so its data travels between %s: ", p->distance == 1 ? "of the NUMA node of" : "on the socket of",
		device_name(node, r, device), p->distance == 1 ? "NUMA nodes" : "sockets");
	text_add(&t, "%s", nearer(node, r, p, r->device[device]));
	return buf;
}

/* How many tasks have no other CPUs than this one. */
static int tasks_within(const struct plan *plan, const struct cpuset *cpus)
{
	int tasks = 0;
	for (int t = 0; t < plan->tasks; t++)
		tasks += cpuset_within(&plan->task[t].cpus, cpus);
	return tasks;
}

char *explain_crowd(const struct node *node, const struct request *r, const struct plan *plan, char *buf, size_t size)
{
	const struct cpuset all = cores_of(node, &r->allowed);
	struct text t = { buf, size, 0 };

	buf[0] = '\0';
	if (!r->devices || r->policy == POLICY_NONE || r->fixed || cpuset_count(&all) < plan->tasks)
		return buf;
	for (int task = 0; task < plan->tasks && !t.used; task++) {
		const struct cpuset *cpus = &plan->task[task].cpus, cores = cores_of(node, cpus);
		const int here = cpuset_count(&cores), tasks = tasks_within(plan, cpus);
		if (tasks > here)
			text_add(&t, "%d tasks share %d core%s near their GPUs, of the step's %d: %s", tasks, here, here == 1 ? "" : "s", cpuset_count(&all), more_cores(r));
	}
	return buf;
}

char *explain_mixture(const struct node *node, const struct request *r, const struct plan *plan, char *buf, size_t size)
{
	struct text t = { buf, size, 0 };
	const struct gpu *slowest = NULL, *other = NULL;
	bool all_known = true;

	buf[0] = '\0';
	for (int d = 0; d < r->devices; d++) {
		const struct gpu *gpu = r->device[d] < 0 ? NULL : &node->gpu[r->device[d]];
		if (!gpu || !gpu->model[0] || cpuset_has(&plan->idle, d))
			continue;
		all_known &= model_bandwidth(gpu->model) > 0;
		if (slowest && strcmp(slowest->model, gpu->model))
			other = model_bandwidth(gpu->model) < model_bandwidth(slowest->model) ? slowest : gpu;
		if (!slowest || model_bandwidth(gpu->model) < model_bandwidth(slowest->model))
			slowest = gpu;
	}
	if (!other)
		return buf;
	if (all_known && model_bandwidth(slowest->model) < model_bandwidth(other->model))
		text_add(&t, "the slower GPU here is %s, a %s with %d GB/s of memory bandwidth (%s: %d): in each step all ranks wait for it", slowest->at.pci,
			slowest->model, model_bandwidth(slowest->model), other->model, model_bandwidth(other->model));
	else
		text_add(&t, "this step has different GPUs (%s is a %s, %s a %s): in each step all ranks wait for the slower", slowest->at.pci, slowest->model,
			other->at.pci, other->model);
	return buf;
}

/* ---- JSON ---------------------------------------------------------------------------------------- */

static void json_string(FILE *out, const char *text)
{
	putc('"', out);
	for (; *text; text++)
		fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : (unsigned char)*text < ' ' ? "\\u%04x" : "%c", (unsigned char)*text);
	putc('"', out);
}

static void json_numbers(FILE *out, const struct cpuset *set)
{
	const char *comma = "";
	for (int n = cpuset_next(set, 0); n >= 0; n = cpuset_next(set, n + 1), comma = ",")
		fprintf(out, "%s%d", comma, n);
}

static struct cpuset packages_of(const struct node *node, const struct cpuset *cpus)
{
	struct cpuset ids = { 0 };
	for (int p = 0; p < node->packages; p++)
		if (node->package[p].id >= 0 && node->package[p].id < CPUSET_MAX && cpuset_intersects(&node->package[p].cpus, cpus))
			cpuset_add(&ids, node->package[p].id);
	return ids;
}

static void json_task(FILE *out, const struct node *node, const struct request *r, const struct plan *plan, int task)
{
	const struct task_plan *p = &plan->task[task];
	struct cpuset packages = packages_of(node, &p->cpus);
	char list[CPULIST_TEXT];

	fprintf(out, "{\"task\":%d,\"gpus\":[", task);
	for (int i = 0; i < p->devices; i++) {
		fputs(i ? "," : "", out);
		json_string(out, device_name(node, r, p->device[i]));
	}
	fprintf(out, "],\"cpus\":\"%s\",\"numa\":[", cpulist_print(&p->cpus, list, sizeof list));
	json_numbers(out, &p->numa);
	fprintf(out, "],\"package\":[");
	json_numbers(out, &packages);
	fputs("],\"nic\":", out);
	if (p->nic >= 0)
		json_string(out, node->nic[p->nic].name);
	else
		fputs("null", out);
	fprintf(out, ",\"threads\":%d,\"distance\":", p->threads);
	fprintf(out, p->distance < 0 ? "null}" : "%d}", p->distance);
}

void explain_json(FILE *out, const struct node *node, const struct request *r, const struct plan *plan)
{
	for (int t = 0; t < plan->tasks; t++) {
		fputs(t ? ",\n " : "[", out);
		json_task(out, node, r, plan, t);
	}
	fputs("]\n", out);
}
