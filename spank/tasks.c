/* SPDX-License-Identifier: Apache-2.0 */
#include "tasks.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT_MAX = 1000000 };

/* Digits at *p and nothing else up to `end`; -1 otherwise. */
static int number(const char *p, const char *end)
{
	int n = 0;
	if (p == end)
		return -1;
	for (; p < end; p++) {
		if (!isdigit((unsigned char)*p))
			return -1;
		n = n * 10 + (*p - '0');
		if (n > COUNT_MAX)
			return -1;
	}
	return n;
}

/* Length of one item of a comma list; commas in parentheses, "(S:0,1)", belong to the item. */
static size_t item_length(const char *p)
{
	int depth = 0;
	size_t n = 0;
	for (; p[n] && (p[n] != ',' || depth); n++)
		depth += p[n] == '(' ? 1 : p[n] == ')' ? -1 : 0;
	return n;
}

static bool is_type_alone(const char *item, const char *end)
{
	if (item == end || !isalpha((unsigned char)*item))
		return false;
	while (item < end && isgraph((unsigned char)*item) && *item != ':')
		item++;
	return item == end;
}

/* "4", "TYPE:4", or "TYPE", which is one of that type */
static int typed_count(const char *item, const char *end)
{
	const char *colon = memchr(item, ':', (size_t)(end - item));
	return is_type_alone(item, end) ? 1 : number(colon ? colon + 1 : item, end);
}

int count_gpus(const char *text)
{
	int sum = 0;
	for (const char *p = text;; p++) {
		size_t n = item_length(p);
		int count = typed_count(p, p + n);
		if (count < 0)
			return -1;
		sum += count;
		p += n;
		if (!*p || sum > COUNT_MAX)
			return sum > COUNT_MAX ? -1 : sum;
	}
}

/* One item: "gpu", "gpu:2", "gpu:a100", "gpu:a100:2" with "(S:0-1)" behind it; as a TRES "gpu=2", "gpu:a100=2". Returns 0
 * for another resource. */
static int gres_item(const char *item, size_t length)
{
	const char *end = item + length, *open = memchr(item, '(', length);
	if (open)
		end = open;
	if (end - item > 5 && !strncmp(item, "gres", 4) && (item[4] == '/' || item[4] == ':'))
		item += 5;
	if (end - item < 3 || strncmp(item, "gpu", 3) || (end - item > 3 && item[3] != ':' && item[3] != '='))
		return 0;
	if (end - item == 3)
		return 1;
	const char *last = memrchr(item, '=', (size_t)(end - item));
	if (last)
		return number(last + 1, end);
	last = memrchr(item, ':', (size_t)(end - item));
	int n = number(last + 1, end);
	/* "gpu:a100" is one of that type, "gpu:a100:x" is nothing */
	return n < 0 && last == item + 3 && last + 1 < end && isalpha((unsigned char)last[1]) ? 1 : n;
}

int count_gres_gpus(const char *text)
{
	int sum = 0;
	for (const char *p = text;; p++) {
		size_t n = item_length(p);
		int count = gres_item(p, n);
		if (count < 0)
			return -1;
		sum += count;
		p += n;
		if (!*p || sum > COUNT_MAX)
			return sum > COUNT_MAX ? -1 : sum;
	}
}

char *without_gpus(const char *tres, char *buf, size_t size)
{
	int used = snprintf(buf, size, "%s", "");

	for (const char *p = tres;; p++) {
		size_t n = item_length(p);
		if (!gres_item(p, n) && used < (int)size)
			used += snprintf(buf + used, size - (size_t)used, "%s%.*s", used ? "," : "", (int)n, p);
		p += n;
		if (!*p)
			return used < (int)size ? buf : NULL;
	}
}

int count_nodes(const char *text)
{
	const char *dash = strchr(text, '-'), *end = text + strlen(text);
	int low = number(text, dash ? dash : end), high = dash ? number(dash + 1, end) : low;
	return low > 0 && low == high ? low : 0;
}

/* Reads one item of "1(x2),4" and steps behind it. Returns its number, -1 if it is none. */
static int next_count(const char **text, int *times)
{
	const char *p = *text;
	size_t n = strcspn(p, ",");
	const char *open = memchr(p, '(', n);
	int count = number(p, open ? open : p + n);

	*times = 1;
	if (open && (n < 5 || strncmp(open, "(x", 2) || (*times = number(open + 2, p + n - 1)) < 1))
		return -1;
	*text = p[n] ? p + n + 1 : NULL;
	return count;
}

int smallest_count(const char *text, int *position)
{
	int least = -1, at = 0, times;

	for (const char *p = text; p; at += times) {
		int count = next_count(&p, &times);
		if (count < 0 || at > COUNT_MAX)
			return -1;
		if (least < 0 || count < least) {
			least = count;
			*position = at;
		}
	}
	return least;
}

int sum_of_largest(const char *text, int nodes)
{
	int sum = 0, below = COUNT_MAX + 1;

	while (nodes > 0) {
		int largest = -1, there = 0, times;
		for (const char *p = text; p;) {
			int count = next_count(&p, &times);
			if (count < 0)
				return -1;
			if (count < below && count >= largest) {
				there = times + (count == largest ? there : 0);
				there = there < nodes ? there : nodes; /* no more are asked for */
				largest = count;
			}
		}
		if (largest < 0)
			break;
		if (largest && there > (COUNT_MAX - sum) / largest)
			return -1;
		sum += largest * there;
		nodes -= there;
		below = largest;
	}
	return sum;
}

/* ---- the step ------------------------------------------------------------------------------------ */

/* -1: more than anybody has, or one of both is not known. */
static int product(int each, int n)
{
	return each < 0 || n <= 0 || each > COUNT_MAX / n ? -1 : each * n;
}

/* Of both numbers the step gets the one for each node. Without a number of nodes the other one decides that. */
static bool counts_by_node(const struct step_words *w, int nodes)
{
	return w->gpus_per_node && (!w->gpus || (w->nodes && nodes));
}

/* GPUs of the step, 0 none, -1 not known. `tasks` is the number that was given, 0 none. */
static int step_gpus(const struct step_words *w, int nodes, int tasks)
{
	if (counts_by_node(w, nodes))
		return product(count_gpus(w->gpus_per_node), nodes);
	if (w->gpus)
		return count_gpus(w->gpus);
	if (w->gpus_per_task || w->tres_per_task) {
		int each = w->gpus_per_task ? count_gpus(w->gpus_per_task) : count_gres_gpus(w->tres_per_task);
		/* without a number of tasks Slurm starts one a node */
		return product(each, tasks ? tasks : nodes);
	}
	if (w->gpus_per_socket)
		return -1;
	if (w->gres)
		return product(count_gres_gpus(w->gres), nodes);
	return w->hidden_gpus ? -1 : 0;
}

/* GPUs of each node where the same number was asked for on every one; 0 where they may differ, or where Slurm takes no number
 * of tasks for each node. */
static int gpus_of_each(const struct step_words *w, int nodes)
{
	if (w->ntasks_per_gpu)
		return 0;
	if (counts_by_node(w, nodes))
		return count_gpus(w->gpus_per_node);
	return w->gres && !w->gpus && !w->gpus_per_task && !w->tres_per_task && !w->gpus_per_socket ? count_gres_gpus(w->gres) : 0;
}

/* The tasks for GPUs of all nodes together, where only their number on each node was given and divides them; 0 elsewhere. */
static int tasks_of_all_gpus(const struct step_words *w)
{
	if (!w->ntasks_per_node || w->ntasks || w->nodes || !w->gpus || w->share)
		return 0;
	const int tasks = count_gpus(w->gpus) / w->group, each = number(w->ntasks_per_node, w->ntasks_per_node + strlen(w->ntasks_per_node));
	return each > 0 && tasks > 0 && tasks % each == 0 ? tasks : 0;
}

/* Nodes of the step; 0 not known. Without a word of them Slurm takes as many as both numbers of GPUs say, or as few as the tasks need, which is one more
 * often than not. */
static int step_nodes(const struct step_words *w)
{
	int tasks = w->ntasks ? number(w->ntasks, w->ntasks + strlen(w->ntasks)) : tasks_of_all_gpus(w);
	int of_each = w->ntasks_per_node ? number(w->ntasks_per_node, w->ntasks_per_node + strlen(w->ntasks_per_node)) : 0;

	if (w->nodes)
		return count_nodes(w->nodes);
	const int gpus = w->gpus ? count_gpus(w->gpus) : 0, of_node = w->gpus_per_node ? count_gpus(w->gpus_per_node) : 0;
	if (gpus > 0 && of_node > 0 && gpus % of_node == 0)
		return gpus / of_node;
	return tasks > 0 && of_each > 0 ? (tasks + of_each - 1) / of_each : 1;
}

/* The number of tasks that was asked for: 0 none, -1 asked for in a way that only Slurm can work out. */
static int given_tasks(const struct step_words *w, int nodes)
{
	if (w->ntasks)
		return number(w->ntasks, w->ntasks + strlen(w->ntasks));
	if (w->ntasks_per_node)
		return product(number(w->ntasks_per_node, w->ntasks_per_node + strlen(w->ntasks_per_node)), nodes);
	return w->ntasks_per_gpu || w->ntasks_per_socket || w->ntasks_per_core ? -1 : 0;
}

static int refuse_unknown(struct step_size *out)
{
	snprintf(out->refusal, sizeof out->refusal, "how many GPUs this step has is not known here: type -n N, one task for each GPU");
	return -1;
}

/* 22.05 takes such a type for one GPU of it, 24.11 for none, and says nothing. */
static int refuse_type(struct step_size *out, const char *words)
{
	const int n = (int)item_length(words);
	snprintf(out->refusal, sizeof out->refusal, "--gpus-per-task=%.*s: Slurm, from some release on, gives tasks no GPU for a type without a number: type --gpus-per-task=%.*s:1",
		 n < 64 ? n : 64, words, n < 64 ? n : 64, words);
	return -1;
}

const char *without_limits(bool per_socket, bool per_core, bool per_gpu, char buf[WITHOUT_LIMITS])
{
	const char *and = per_socket || per_core || per_gpu ? " and no" : "";

	snprintf(buf, WITHOUT_LIMITS, "%s%s%s%s", and, per_socket ? " --ntasks-per-socket" : "", per_core ? " --ntasks-per-core" : "", per_gpu ? " --ntasks-per-gpu" : "");
	return buf;
}

enum { SPREAD = 64 + WITHOUT_LIMITS /* bytes */ };

/* Whether it is known how many GPUs each node will have, of so many that were asked for in one number for all nodes, or can be said. */
static bool can_spread(const struct step_words *w, const struct step_size *size, int gpus, int each)
{
	return size->nodes <= 1 || each || (!w->in_job && gpus % size->nodes == 0);
}

/* " --gpus-per-node=4 --ntasks-per-node=4": words beside a number of tasks, or of GPUs, without which Slurm would refuse them, or deal those or these to the
 * nodes otherwise. */
static const char *spread(const struct step_words *w, const struct step_size *size, int tasks, int gpus, int each, char buf[SPREAD])
{
	const bool many = size->nodes > 1;
	int used = snprintf(buf, SPREAD, "%s", "");

	if (many && !each && can_spread(w, size, gpus, each))
		used = snprintf(buf, SPREAD, " --gpus-per-node=%d", gpus / size->nodes);
	if (size->nodes > 0 && w->ntasks_per_node && tasks % size->nodes == 0 && atoi(w->ntasks_per_node) != tasks / size->nodes)
		snprintf(buf + used, (size_t)(SPREAD - used), " --ntasks-per-node=%d", tasks / size->nodes);
	return buf;
}

/* The words of a step of all GPUs: "8 --ntasks-per-node=4 and no --ntasks-per-socket". */
static void all_tasks(const struct step_words *w, const struct step_size *size, int tasks, int each, char buf[2 * SPREAD])
{
	char words[SPREAD], limits[WITHOUT_LIMITS];

	snprintf(buf, 2 * SPREAD, "%d%s%s", tasks, spread(w, size, tasks, size->gpus, each, words),
		without_limits(w->ntasks_per_socket, w->ntasks_per_core, false, limits));
}

/* What a smaller step than that of all GPUs asks for: "-G 2", or nothing. Beside a --gres that names GPUs Slurm takes no --gpus-per-node. */
static const char *fewer_gpus(const struct step_words *w, const struct step_size *size, int tasks, int each, char *buf, size_t room)
{
	char words[SPREAD];

	*buf = '\0';
	if (w->gpus) /* beside which another number for each node alone would ask for more nodes */
		each = 0;
	if (!each && can_spread(w, size, tasks, each))
		snprintf(buf, room, ", -G %d%s", tasks, spread(w, size, tasks, tasks, each, words));
	else if (each && size->nodes && tasks % size->nodes == 0 && (w->gpus_per_node || !strchr(w->gres, ',')))
		snprintf(buf, room, w->gpus_per_node ? ", --gpus-per-node=%d" : ", --gres=gpu:%d", tasks / size->nodes);
	return buf;
}

/* What gives these tasks all GPUs, or nothing. */
static const char *more_gpus(const struct step_words *w, const struct step_size *size, int tasks, int each, char *buf, size_t room)
{
	char words[SPREAD];

	*buf = '\0';
	if (can_spread(w, size, size->gpus, each) && (size->nodes <= 1 || tasks % size->nodes == 0))
		snprintf(buf, room, ", or --hvd-bind=gpus-per-task=%d%s", size->gpus / tasks, spread(w, size, tasks, size->gpus, each, words));
	return buf;
}

/* `tasks` are there, `groups` of GPUs for them. one: nobody said how many nodes, so the GPUs were taken for those of one. */
static int refuse_mismatch(const struct step_words *w, struct step_size *out, int tasks, int group, int groups, int each, bool one)
{
	int gpus = out->gpus;
	const char *s = tasks == 1 ? "" : "s", *gs = gpus == 1 ? "" : "s";
	char with[32] = "", all[2 * SPREAD], fewer[SPREAD + 32], more[SPREAD + 48];

	all_tasks(w, out, groups, each, all);
	if (group > 1)
		snprintf(with, sizeof with, " with %d GPUs each", group);
	if (one && each && tasks > groups && tasks % groups == 0)
		snprintf(out->refusal, sizeof out->refusal, "%d task%s%s but %d GPU%s a node: type -N %d, or -n %d for one node%s", tasks, s, with, gpus, gs, tasks / groups, groups,
			group > 1 ? "" : ", or --hvd-bind=share");
	else if (group > 1 && each && out->nodes > 1)
		snprintf(out->refusal, sizeof out->refusal, "%d task%s with %d GPUs each but %d nodes with %d GPUs each: type -n %s", tasks, s, group, out->nodes, each, all);
	else if (group > 1)
		snprintf(out->refusal, sizeof out->refusal, "%d task%s with %d GPUs each but %d GPU%s: type -n %s", tasks, s, group, gpus, gs, all);
	else if (tasks > gpus)
		snprintf(out->refusal, sizeof out->refusal, "%d task%s but %d GPU%s: type -n %s%s", tasks, s, gpus, gs, all,
			w->ntasks_per_socket || w->ntasks_per_core ? "" : ", or --hvd-bind=share"); /* with these so many may not fit at all */
	else if (gpus % tasks || (each && each % (gpus / tasks))) /* no task has GPUs of two nodes */
		snprintf(out->refusal, sizeof out->refusal, "%d task%s but %d GPU%s: type -n %s", tasks, s, gpus, gs, all);
	else
		snprintf(out->refusal, sizeof out->refusal, "%d task%s but %d GPU%s: type -n %s%s%s", tasks, s, gpus, gs, all, fewer_gpus(w, out, tasks, each, fewer, sizeof fewer),
			more_gpus(w, out, tasks, each, more, sizeof more));
	return -1;
}

static int refuse_group(struct step_size *out, int group, int gpus)
{
	snprintf(out->refusal, sizeof out->refusal, "gpus-per-task=%d but %d GPU%s", group, gpus, gpus == 1 ? "" : "s");
	return -1;
}

int gpus_of_each_task(const struct step_words *w)
{
	int each = w->gpus_per_task ? count_gpus(w->gpus_per_task) : w->tres_per_task ? count_gres_gpus(w->tres_per_task) : 0;
	return each > 0 ? each : 0;
}

int step_size(const struct step_words *words, struct step_size *out)
{
	struct step_words with_gpus = *words;
	const struct step_words *w = &with_gpus;

	/* since 24.05 also -c stands there, "cpu=8" */
	if (words->tres_per_task && !count_gres_gpus(words->tres_per_task))
		with_gpus.tres_per_task = NULL;
	*out = (struct step_size){ .nodes = step_nodes(w) };
	int given = given_tasks(w, out->nodes), group = w->group, each = gpus_of_each(w, out->nodes);

	if (w->gpus_per_task && !w->gpus && !w->gpus_per_node && is_type_alone(w->gpus_per_task, w->gpus_per_task + item_length(w->gpus_per_task)))
		return refuse_type(out, w->gpus_per_task);
	out->gpus = step_gpus(w, out->nodes, given > 0 ? given : 0);
	/* GPUs are asked for by task: each task gets that many */
	if (out->gpus > 0 && (w->gpus_per_task || w->tres_per_task) && !w->gpus && !w->gpus_per_node)
		group = given > 0 ? out->gpus / given : out->gpus / out->nodes;
	if (given > 0 && w->share && each > 0 && out->nodes && given % out->nodes == 0)
		out->per_node = given / out->nodes;
	if (given < 0 || (given && (out->gpus <= 0 || w->share)))
		return 0;
	if (out->gpus < 0)
		return refuse_unknown(out);
	int smallest = each ? each : out->gpus, groups = each ? each / group * out->nodes : out->gpus / group;
	if (out->gpus && smallest < group)
		return refuse_group(out, group, smallest);
	if (given && given != groups)
		return refuse_mismatch(w, out, given, group, groups, each, !w->nodes && !w->ntasks_per_node);
	if (!given)
		out->tasks = out->gpus ? groups : w->packages_per_node * out->nodes;
	else if (out->nodes > 1)
		out->tasks = tasks_of_all_gpus(w); /* which Slurm would start one node's of */
	out->per_node = each ? each / group : out->gpus || !out->nodes ? 0 : w->packages_per_node;
	return 0;
}
