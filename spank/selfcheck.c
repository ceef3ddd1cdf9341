/* SPDX-License-Identifier: Apache-2.0 */
#include "selfcheck.h"

#include "cores.h"

static const struct gpu *gpu_with_minor(const struct node *node, int minor)
{
	for (int g = 0; g < node->gpus; g++)
		if (node->gpu[g].minor == minor)
			return &node->gpu[g];
	return NULL;
}

/* Returns 1 if the line of this GPU has to be changed. */
static int check_gpu(const struct node *node, const struct gres_gpu *line, FILE *out)
{
	const struct gpu *gpu = gpu_with_minor(node, line->minor);
	char have[512], want[512];

	fprintf(out, "line %d, /dev/nvidia%d: ", line->line, line->minor);
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
	if (!line->has_cores)
		fprintf(out, "WRONG: %s has no Cores=, so Slurm thinks it is near every core: write Cores=%s\n", gpu->at.pci, want);
	else if (!cpuset_within(&line->cores, &socket))
		fprintf(out, "WRONG: %s has Cores=%s, but its socket has the cores %s: write Cores=%s\n", gpu->at.pci, have, want, want);
	else
		fprintf(out, "%s, Cores=%s: on its socket\n", gpu->at.pci, have);
	return !line->has_cores || !cpuset_within(&line->cores, &socket);
}

int selfcheck(const struct node *node, const struct gres_conf *conf, FILE *out)
{
	int wrong = 0;

	if (!node->gpus)
		fprintf(out, "this node has no NVIDIA GPU\n");
	for (int g = 0; g < node->gpus; g++)
		if (node->gpu[g].minor >= 0 && node->gpu[g].minor != g)
			fprintf(out, "GPU %s is number %d on the bus and /dev/nvidia%d: without AutoDetect=nvml Slurm's numbers are in doubt\n",
				node->gpu[g].at.pci, g, node->gpu[g].minor);
	if (conf->autodetect)
		fprintf(out, "gres.conf asks the driver (AutoDetect): what its lines leave out is right by itself\n");
	for (int i = 0; i < conf->gpus; i++)
		wrong += check_gpu(node, &conf->gpu[i], out);
	if (!conf->autodetect && conf->gpus < node->gpus) {
		fprintf(out, "WRONG: gres.conf names %d GPU%s, and there are %d\n", conf->gpus, conf->gpus == 1 ? "" : "s", node->gpus);
		wrong++;
	}
	fprintf(out, wrong ? "%d thing%s to change\n" : "nothing to change\n", wrong, wrong == 1 ? "" : "s");
	return wrong;
}
