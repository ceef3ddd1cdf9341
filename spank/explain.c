/* SPDX-License-Identifier: Apache-2.0 */
#include "explain.h"

#include <stdarg.h>
#include <string.h>

struct text {
	char *buf;
	size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(t->buf + t->used, t->size - t->used, format, args);
	va_end(args);
	if (n > 0)
		t->used = t->used + (size_t)n < t->size ? t->used + (size_t)n : t->size - 1;
}

const char *device_pci(const struct node *node, const struct request *request, int device)
{
	int gpu = request->device[device];
	return gpu < 0 ? "?" : node->gpu[gpu].at.pci;
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

static void add_reason(struct text *t, const struct request *r, const struct task_plan *task)
{
	if (r->fixed)
		add(t, "CPUs as the user set them");
	else if (r->policy == POLICY_NONE)
		add(t, "CPUs as Slurm set them");
	else if (!task->devices)
		add(t, "no GPU: its share of the node");
	else if (task->distance == 0)
		add(t, "%s", policy_words(r->policy));
	else
		add(t, task->distance == 1 ? "no core of the GPU's NUMA node in this step: the socket's" : "no core of the GPU's socket in this step");
}

char *explain_task(const struct node *node, const struct request *r, const struct plan *plan, int task, char *buf, size_t size)
{
	const struct task_plan *p = &plan->task[task];
	struct text t = { buf, size, 0 };
	char list[512];

	buf[0] = '\0';
	for (int i = 0; i < p->devices; i++) {
		int gpu = r->device[p->device[i]];
		add(&t, "GPU %s%s%s%s, ", device_pci(node, r, p->device[i]), gpu >= 0 && node->gpu[gpu].uuid[0] ? " (" : "",
			gpu >= 0 ? node->gpu[gpu].uuid : "", gpu >= 0 && node->gpu[gpu].uuid[0] ? ")" : "");
	}
	if (!cpuset_empty(&p->cpus))
		add(&t, "CPUs %s, ", cpulist_print(&p->cpus, list, sizeof list));
	if (!cpuset_empty(&p->numa))
		add(&t, "NUMA %s, ", cpulist_print(&p->numa, list, sizeof list));
	if (p->nic >= 0)
		add(&t, "NIC %s, ", node->nic[p->nic].name);
	add(&t, "%d thread%s: ", p->threads, p->threads == 1 ? "" : "s");
	add_reason(&t, r, p);
	return buf;
}

char *explain_idle(const struct node *node, const struct request *r, const struct plan *plan, char *buf, size_t size)
{
	struct text t = { buf, size, 0 };

	buf[0] = '\0';
	if (cpuset_empty(&plan->idle))
		return buf;
	add(&t, "no task uses GPU");
	for (int d = cpuset_next(&plan->idle, 0); d >= 0; d = cpuset_next(&plan->idle, d + 1))
		add(&t, " %s", device_pci(node, r, d));
	return buf;
}

char *explain_distance(const struct node *node, const struct request *r, const struct plan *plan, int task, char *buf, size_t size)
{
	const struct task_plan *p = &plan->task[task];
	struct text t = { buf, size, 0 };

	buf[0] = '\0';
	if (p->distance <= 0)
		return buf;
	add(&t, "no core %s GPU %s, so its data travels between %s: ", p->distance == 1 ? "of the NUMA node of" : "on the socket of",
		device_pci(node, r, p->device[0]), p->distance == 1 ? "NUMA nodes" : "sockets");
	add(&t, r->fixed ? "leave out --cpu-bind" : "give the job more cores with --cpus-per-gpu=N, or whole nodes with sbatch --exclusive");
	return buf;
}

/* ---- JSON ---------------------------------------------------------------------------------------- */

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
	for (int i = 0; i < p->devices; i++)
		fprintf(out, "%s\"%s\"", i ? "," : "", device_pci(node, r, p->device[i]));
	fprintf(out, "],\"cpus\":\"%s\",\"numa\":[", cpulist_print(&p->cpus, list, sizeof list));
	json_numbers(out, &p->numa);
	fprintf(out, "],\"package\":[");
	json_numbers(out, &packages);
	if (p->nic >= 0)
		fprintf(out, "],\"nic\":\"%s\"", node->nic[p->nic].name);
	else
		fprintf(out, "],\"nic\":null");
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
