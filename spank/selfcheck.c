/* SPDX-License-Identifier: Apache-2.0 */
#include "selfcheck.h"

#include "cores.h"

#include <string.h>

static const struct gpu *gpu_with_minor(const struct node *node, int minor)
{
	for (int g = 0; g < node->gpus; g++)
		if (node->gpu[g].minor == minor)
			return &node->gpu[g];
	return NULL;
}

/* The line that has the same GPU before this entry; 0: none. slurmd does not start with both. */
static int line_before(const struct gres_conf *conf, int entry)
{
	for (int i = 0; i < entry; i++)
		if (conf->gpu[i].minor == conf->gpu[entry].minor)
			return conf->gpu[i].line;
	return 0;
}

/* Returns 1 if the line of this GPU has to be changed. */
static int check_gpu(const struct node *node, const struct gres_conf *conf, int entry, FILE *out)
{
	const struct gres_gpu *line = &conf->gpu[entry];
	const struct gpu *gpu = gpu_with_minor(node, line->minor);
	const int before = line_before(conf, entry);
	char have[512], want[512];

	fprintf(out, "line %d, /dev/nvidia%d: ", line->line, line->minor);
	if (before) {
		fprintf(out, "WRONG: line %d has it already: take it out of one of them\n", before);
		return 1;
	}
	if (!gpu) {
		fprintf(out, "WRONG: the driver shows no such GPU\n");
		return 1;
	}
	if (gpu->at.package < 0) {
		fprintf(out, "%s: the machine does not say which socket it is on\n", gpu->at.pci);
		return 0;
	}
	struct cpuset socket = cores_of(node, &node->package[gpu->at.package].cpus);
	cpulist_print(&socket, want, sizeof want);
	cpulist_print(&line->cores, have, sizeof have);
	if (!line->has_cores) {
		/* the driver fills it in, or every core is on the only socket */
		const bool right = conf->autodetect || node->packages == 1;
		fprintf(out, right ? "%s, no Cores=: as good as Cores=%s\n" : "WRONG: %s has no Cores=, so Slurm thinks it is near every core: write Cores=%s\n", gpu->at.pci, want);
		return !right;
	}
	const bool right = cpuset_within(&line->cores, &socket);
	if (right && !cpuset_within(&socket, &line->cores)) /* where slurm.conf says numa_node_as_socket or l3cache_as_socket, they can be */
		fprintf(out, "%s, Cores=%s: on its socket, but Slurm from 24.11 on drains a node where they are not all of what it counts as a socket, by default %s\n", gpu->at.pci, have, want);
	else if (right)
		fprintf(out, "%s, Cores=%s: on its socket\n", gpu->at.pci, have);
	else
		fprintf(out, "WRONG: %s has Cores=%s, but its socket has the cores %s: write Cores=%s\n", gpu->at.pci, have, want, want);
	return !right;
}

/* ---- Slurm's numbers ------------------------------------------------------------------------------ */

/* True if the lines name the GPUs in bus order, or else in the order of the device files. */
static bool lines_follow(const struct node *node, const struct gres_conf *conf, enum numbers order)
{
	for (int i = 0; i < conf->gpus && i < node->gpus; i++)
		if (order == NUMBERS_BUS ? conf->gpu[i].minor != node->gpu[i].minor : i && conf->gpu[i].minor < conf->gpu[i - 1].minor)
			return false;
	return true;
}

/* True if the device files have the order of the bus, be it with gaps. */
static bool minors_ascend(const struct node *node)
{
	for (int g = 1; g < node->gpus; g++)
		if (node->gpu[g].minor < node->gpu[g - 1].minor)
			return false;
	return true;
}

/* How Slurm counts with this gres.conf; NUMBERS_UNKNOWN: in the order of lines that follow neither. */
static enum numbers numbers_of(const struct node *node, const struct gres_conf *conf)
{
	if (conf->autodetect)
		return conf->by_file && !minors_ascend(node) ? NUMBERS_MINOR : NUMBERS_BUS;
	return lines_follow(node, conf, NUMBERS_BUS) ? NUMBERS_BUS : lines_follow(node, conf, NUMBERS_MINOR) ? NUMBERS_MINOR : NUMBERS_UNKNOWN;
}

/* Slurm counts by position: device files whose numbers have a gap, or do not start at 0, do not tell its numbers. */
static bool have_gap(const struct node *node)
{
	bool gap = false;
	for (int g = 0; g < node->gpus; g++)
		gap |= node->gpu[g].minor >= node->gpus;
	return gap;
}

/* The plugin has to number GPUs as Slurm does. Returns 1 if something has to be changed for that. */
static int check_numbers(const struct node *node, const struct gres_conf *conf, enum numbers said, FILE *out)
{
	static const char *const word[] = { "", "bus", "minor" };
	enum numbers slurm = numbers_of(node, conf);
	bool in_order = true;

	if (!conf->autodetect && conf->gpus < node->gpus)
		return 0; /* which is another fault */
	for (int g = 0; g < node->gpus; g++) {
		if (node->gpu[g].minor < 0)
			return 0;
		if (node->gpu[g].minor != g) {
			in_order = false;
			fprintf(out, "GPU %s is number %d on the bus and /dev/nvidia%d\n", node->gpu[g].at.pci, g, node->gpu[g].minor);
		}
	}
	const bool gap = slurm == NUMBERS_MINOR && have_gap(node);
	if (slurm == NUMBERS_UNKNOWN || gap) {
		fprintf(out, gap ? "WRONG: Slurm numbers the GPUs by device file, whose numbers have a gap: write lines without AutoDetect, one for each, in bus order:" :
			"WRONG: Slurm numbers the GPUs in the order of these lines: write one for each, in bus order:");
		for (int g = 0; g < node->gpus; g++)
			fprintf(out, "%s File=/dev/nvidia%d", g ? "," : "", node->gpu[g].minor);
		fprintf(out, "%s\n", in_order ? "" : ", and numbers=bus in plugstack.conf");
		return 1;
	}
	/* where both orders are the same, so is what either word means */
	if (in_order || said == slurm)
		return 0;
	fprintf(out, "WRONG: with this gres.conf Slurm numbers them %s: write numbers=%s in plugstack.conf (and call this check with --numbers %s)\n",
		slurm == NUMBERS_BUS ? "in bus order" : "by device file", word[slurm], word[slurm]);
	return 1;
}

/* Slurm numbers GPUs of several types in the order of the types in slurm.conf, which is not read here. */
static void tell_types(const struct gres_conf *conf, FILE *out)
{
	bool several = false;
	for (int i = 1; i < conf->gpus; i++)
		several |= strcmp(conf->gpu[i].type, conf->gpu[0].type) != 0;
	if (!several)
		return;
	fprintf(out, "several types: Slurm numbers the GPUs in the order of the node's Gres= in slurm.conf, which is not checked here: let it say Gres=");
	for (int i = 0, first = 0; i < conf->gpus; i++)
		if (i + 1 == conf->gpus || strcmp(conf->gpu[i].type, conf->gpu[i + 1].type)) {
			fprintf(out, "%sgpu%s%s:%d", first ? "," : "", *conf->gpu[i].type ? ":" : "", conf->gpu[i].type, i + 1 - first);
			first = i + 1;
		}
	fprintf(out, "\n");
}

static bool has_driver(const struct node *node)
{
	for (int g = 0; g < node->gpus; g++)
		if (node->gpu[g].minor >= 0)
			return true;
	return false;
}

int selfcheck(const struct node *node, const struct gres_conf *conf, enum numbers numbers, FILE *out)
{
	int wrong = 0;

	if (!node->gpus)
		fprintf(out, "this node has no NVIDIA GPU\n");
	else if (!has_driver(node)) {
		fprintf(out, "NOT CHECKED: %d GPU%s, but no driver that says which device file is whose: load it and check again, or name a copy of that node's /proc/driver/nvidia with --proc\n",
			node->gpus, node->gpus == 1 ? "" : "s");
		return 1;
	}
	if (conf->autodetect)
		fprintf(out, "gres.conf asks the driver (AutoDetect): what its lines leave out is right by itself\n");
	for (int i = 0; i < conf->gpus; i++)
		wrong += check_gpu(node, conf, i, out);
	tell_types(conf, out);
	if (conf->unread)
		fprintf(out, "line %d: include and MultipleFiles= are not read here: whether every GPU has a line, and the right number, is not checked\n", conf->unread);
	else if (!conf->autodetect && conf->gpus < node->gpus) {
		fprintf(out, "WRONG: gres.conf names %d GPU%s, and there are %d", conf->gpus, conf->gpus == 1 ? "" : "s", node->gpus);
		if (conf->for_others)
			fprintf(out, ": it has lines for other nodes than %s; if that is not Slurm's name of this one, set SLURMD_NODENAME to it", conf->node);
		fprintf(out, "\n");
		wrong++;
	}
	if (!conf->unread)
		wrong += check_numbers(node, conf, numbers, out);
	fprintf(out, wrong ? "%d thing%s to change\n" : "nothing to change\n", wrong, wrong == 1 ? "" : "s");
	return wrong;
}
