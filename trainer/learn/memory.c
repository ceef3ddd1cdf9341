/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* The number after `key` in a file like /proc/meminfo, or SIZE_MAX. */
static size_t number_after(const char *path, const char *key)
{
	char line[256];
	size_t value = SIZE_MAX;
	FILE *f = fopen(path, "r");

	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, key, strlen(key)) == 0) {
			value = strtoull(line + strlen(key), NULL, 10);
			break;
		}
	if (f)
		fclose(f);
	return value;
}

/* What one cgroup leaves: memory.max - memory.current; "max" is no number. */
static size_t cgroup_leaves(const char *directory)
{
	char path[4200], text[64] = "";
	size_t current, limit;
	FILE *f;

	snprintf(path, sizeof path, "%s/memory.max", directory);
	f = fopen(path, "r");
	if (!f)
		return SIZE_MAX;
	if (!fgets(text, sizeof text, f) || *text == 'm')
		*text = '\0';
	fclose(f);
	if (!*text)
		return SIZE_MAX;
	limit = strtoull(text, NULL, 10);
	snprintf(path, sizeof path, "%s/memory.current", directory);
	current = number_after(path, "");
	return current < limit ? limit - current : 0;
}

static size_t cgroups_leave(void)
{
	static const char root[] = "/sys/fs/cgroup";
	char line[2048], path[4096] = "";
	size_t left = SIZE_MAX;
	FILE *f = fopen("/proc/self/cgroup", "r");

	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, "0::", 3) == 0)
			snprintf(path, sizeof path, "%s%.*s", root, (int)strcspn(line + 3, "\n"), line + 3);
	if (f)
		fclose(f);
	while (strlen(path) >= sizeof root) { /* up to, not including, the root, which has no limit */
		left = least(left, cgroup_leaves(path));
		*strrchr(path, '/') = '\0';
	}
	return left;
}

static size_t address_space_left(void)
{
	struct rlimit limit;
	size_t used = number_after("/proc/self/status", "VmSize:");

	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY || used == SIZE_MAX)
		return SIZE_MAX;
	return limit.rlim_cur > used * 1024 ? limit.rlim_cur - used * 1024 : 0;
}

size_t memory_available(void)
{
	size_t kib = number_after("/proc/meminfo", "MemAvailable:");

	return least(least(kib == SIZE_MAX ? SIZE_MAX : kib * 1024, cgroups_leave()), address_space_left());
}

static int measure_one(double *bytes, const struct net_plan *plan, const struct engine_layout *layout, enum engine_kind kind,
		       const struct model_conf *conf, int batch, struct error *e)
{
	struct engine_conf ec = {
		.plan = plan, .layout = layout, .precision = conf->precision, .optimizer = conf->optimizer, .beta1 = conf->beta1, .beta2 = 0.999,
		.epsilon = 1e-8, .batch = batch, .channels = 1, .source_size = conf->source_size, .threads = conf->threads,
	};
	struct engine *engine;

	if (engine_open(&engine, kind, &ec, e) < 0)
		return -e->code;
	*bytes = (double)engine_memory(engine);
	engine_close(engine);
	return 0;
}

int batch_memory_measure(struct batch_memory *m, const struct net_conf *net, enum engine_kind kind, const struct model_conf *conf, int slots,
			 struct error *e)
{
	struct net_plan plan = { 0 };
	struct engine_layout layout = { 0 };
	double one = 0, two = 0;

	if (net_plan_make(&plan, net, e) == 0 && engine_layout_make(&layout, &plan, e) == 0 &&
	    measure_one(&one, &plan, &layout, kind, conf, 1, e) == 0)
		measure_one(&two, &plan, &layout, kind, conf, 2, e);
	*m = (struct batch_memory){ .fixed = 2 * one - two, .image = two - one };
	if (kind != ENGINE_CUDA) {
		m->fixed += (3.0 * (double)plan.n_weights + 2.0 * (double)plan.n_bn_channels) * sizeof(float);
		m->image += (double)slots * conf->source_size * conf->source_size;
	}
	engine_layout_free(&layout);
	net_plan_free(&plan);
	return e->code ? -e->code : 0;
}
