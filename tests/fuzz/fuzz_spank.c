/* SPDX-License-Identifier: Apache-2.0
 * Texts that come from users, admins, Slurm and the driver, made up at random: no parser may crash, hang, read beyond
 * the text or accept what it cannot print back. With clang -fsanitize=fuzzer -DLIBFUZZER it is
 * a libFuzzer target; compiled alone it mutates its own examples:
 *
 *     fuzz_spank SECONDS [SEED [TARGET]]     SECONDS for each target, or for that one
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../spank/argv.h"
#include "../../spank/devices.h"
#include "../../spank/gres_conf.h"
#include "../../spank/nvidia.h"
#include "../../spank/options.h"
#include "../../spank/tasks.h"
#include "../../spank/tres_bind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int truth, const char *what)
{
	if (truth)
		return;
	fprintf(stderr, "not true: %s\n", what);
	abort();
}

static void options_read_back(char *text)
{
	struct options o = options_default(), again = o;
	char error[512] = "", printed[4096];

	if (options_parse(&o, SCOPE_HVD | SCOPE_BIND | SCOPE_STEP, "--hvd", text, error, sizeof error)) {
		check(*error && !strchr(error, '\n'), "an error is one line");
		return;
	}
	options_print(&o, SCOPE_HVD | SCOPE_BIND | SCOPE_STEP, printed, sizeof printed);
	check(!options_parse(&again, SCOPE_HVD | SCOPE_BIND | SCOPE_STEP, "--hvd", printed, error, sizeof error), "what was printed is accepted");
	check(!memcmp(&o, &again, sizeof o), "and means the same");
}

static void plugstack_arguments(char *text)
{
	struct site site;
	char error[512] = "", *argv[64], *rest = text, *word;
	int argc = 0;

	while (argc < 64 && (word = strsep(&rest, " ")))
		argv[argc++] = word;
	if (site_parse(&site, argc, argv, error, sizeof error))
		check(*error != 0, "an error has a line");
}

static void gpu_lists(char *text)
{
	static struct node node;
	static struct step_devices devices;
	char error[512] = "", *visible = text;
	char *global = strsep(&visible, " ");

	if (!node.gpus)
		for (; node.gpus < 4; node.gpus++) {
			node.gpu[node.gpus].minor = node.gpus;
			node.gpu[node.gpus].at.order = (uint64_t)node.gpus;
			snprintf(node.gpu[node.gpus].uuid, sizeof node.gpu[0].uuid, "GPU-%daaaaaaa", node.gpus % 8);
		}
	if (step_devices(&node, (enum numbers)(text[0] % 3), *global ? global : NULL, visible, text[0] & 1, &devices, error, sizeof error))
		check(*error && !devices.count, "refused with a line and no device");
	for (int d = 0; d < devices.count; d++)
		check(devices.gpu[d] >= -1 && devices.gpu[d] < node.gpus, "a GPU of the node");
}

static void lists_and_counts(char *text)
{
	struct cpuset set, back;
	char printed[CPULIST_TEXT];
	int position = 0;

	if (!cpulist_parse(text, &set) && cpuset_count(&set) < 500)
		check(!cpulist_parse(cpulist_print(&set, printed, sizeof printed), &back) && cpuset_equal(&set, &back), "a list reads back");
	check(count_gpus(text) >= -1 && count_gres_gpus(text) >= -1 && count_nodes(text) >= 0 && smallest_count(text, &position) >= -1 &&
	      sum_of_largest(text, 3) >= -1, "a count");
	check(!without_gpus(text, printed, sizeof printed) || !*printed || count_gres_gpus(printed) <= 0, "no GPU is left");
}

static void driver_files(char *text)
{
	struct nvidia_gpu gpu;
	unsigned long long order;
	char pci[16];

	nvidia_parse_information(text, &gpu);
	check(gpu.minor >= -1 && strlen(gpu.uuid) < sizeof gpu.uuid, "a driver's file");
	pci_parse(text, &order, pci);
}

static void gres_files(char *text)
{
	static struct gres_conf conf;
	char error[512];

	gres_conf_parse(text, "n1", &conf, error, sizeof error);
	hostlist_has(text, "n1");
}

/* Eleven words, "-" for one that was not said: those of struct step_words in their order, then what its numbers are made of. */
static void step_sizes(char *text)
{
	const char *word[12] = { NULL };
	struct step_size size;
	char *rest = text;
	int n = 0;

	for (char *w; n < 12 && (w = strsep(&rest, " ")); n++)
		word[n] = strcmp(w, "-") ? w : NULL;
	struct step_words w = { .gpus = word[0], .gpus_per_node = word[1], .gpus_per_task = word[2], .gpus_per_socket = word[3], .gres = word[4],
				.tres_per_task = word[5], .nodes = word[6], .ntasks = word[7], .ntasks_per_node = word[8], .ntasks_per_gpu = word[9],
				.ntasks_per_socket = word[10], .group = word[11] ? 1 + (unsigned char)word[11][0] % 8 : 1, .packages_per_node = 2 };
	w.share = w.group == 3;
	w.hidden_gpus = w.group == 2;
	if (step_size(&w, &size))
		check(*size.refusal && !strchr(size.refusal, '\n'), "a refusal is a line");
	else
		check(size.gpus >= -1 && size.nodes >= 0 && size.tasks >= 0 && size.per_node >= 0, "sizes are none below 0");
}

static void command_lines(char *text)
{
	static struct argv_scan scan;
	static struct option table[ARGV_MAX_KNOWN];
	static char letters[3 * 64], *argv[128], *before[128];
	enum program program = (enum program)((unsigned char)text[0] % 3);
	char *rest = text, *word;
	int argc = 0;

	while (argc < 127 && (word = strsep(&rest, " ")))
		argv[argc++] = word;
	argv[argc] = NULL;
	memcpy(before, argv, sizeof argv);
	argv_known(program, table, letters);
	if (argv_scan(argc, argv, table, letters, program == PROGRAM_SRUN, &scan))
		return;
	check(!memcmp(before, argv, sizeof argv), "the words stay as they are");
	for (int i = 0; i < scan.options; i++)
		check(scan.option[i].slot > 0 && scan.option[i].slot < argc && scan.option[i].component >= 0 && scan.option[i].component < scan.components &&
		      scan.option[i].slot < scan.command[scan.option[i].component], "an option stands before its program");
	for (int i = 0; i < scan.components; i++)
		check(scan.command[i] > (i ? scan.command[i - 1] : 0) && scan.command[i] <= argc, "programs stand one behind the other");
}

static void gpu_bindings(char *text)
{
	char without[256];

	tres_binds_gpus(text);
	if (tres_bind_no_gpus(text, without, sizeof without))
		check(!tres_binds_gpus(without) || strncmp(without, "gres/gpu:none", 13) == 0, "no GPU is bound");
}

static const struct target {
	const char *name;
	void (*run)(char *text);
	const char *examples[6]; /* the corpus: one of each form that the parser knows */
} targets[] = {
	{ "options", options_read_back, { "off", "on_death=continue,deadline=9,backend=cpu,trace=/t,iface=ib0", "socket,spread,smt=off,ids=index,gpus-per-task=4,share,nic=hint,verbose",
		"numa,pack,smt=on,ids=uuid", "joined,by-site,keep-cpus,keep-gpus,keep-memory,whole-job,hide-gpus,gpu,interleave", "none" } },
	{ "plugstack", plugstack_arguments, { "hvd=deadline=60 hvd-bind=numa,share enable=always aliases=off topology=/x proc=/y verbose-max=3", "enable=never", "aliases=on enable=option" } },
	{ "gpus", gpu_lists, { "0,1,3 0,1,2", " GPU-0aaaaaaa,MIG-GPU-1aaaaaaa/7/0", "2", "0-3 MIG-2aaaaaaa" } },
	{ "lists", lists_and_counts, { "0-3,8,10-12:2", "0x00000001,ffffffff", "1(x2),4", "gpu:a100:2(S:0-1),craynetwork:1", "0,1,2,0x3" } },
	{ "steps", step_sizes, { "8 - - - - - 2 - - - - a", "- 4 - - - - 2 8 4", "- - 2 - - - 2 4", "- - - - gpu:2 - 4 1000000 - - - b", "- - - - - gres/gpu=2 3-3 6" } },
	{ "commands", command_lines, { "srun -N2 -n 8 --hvd --gpu-bind=socket ./chexnet train --data /d : -n 1 --cpu_bind none b", "sbatch --gpus-per-node=4 -t1:00 job.sh --hvd", "cmd --ntasks-p 4 -- x" } },
	{ "bindings", gpu_bindings, { "gres/gpu:verbose,closest+gres/nic:closest", "gres/gpu:per_task:1", "gres/gpu:none:socket" } },
	{ "driver", driver_files, { "Model: \t A100\nGPU UUID: \t GPU-1\nBus Location: \t 0000:15:00.0\nDevice Minor: \t 0\n", "0000:15:00.0", "00000000:3B:00.0" } },
	{ "gres.conf", gres_files, { "NodeName=n[1-3] Name=gpu File=/dev/nvidia[0-1] Cores=0-19\nAutoDetect=nvml\n", "n[01-16],x[1,3-5]y" } },
};
enum { TARGETS = sizeof targets / sizeof *targets };

static int run_target(const struct target *target, const void *data, size_t size)
{
	/* exactly as long as the text, so that a sanitizer sees the first byte beyond it */
	char *text = malloc(size + 1);
	if (!text)
		return -1;
	memcpy(text, data, size);
	text[size] = '\0';
	target->run(text);
	free(text);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	for (int t = 0; t < TARGETS; t++)
		if (run_target(&targets[t], data, size))
			return 0;
	return 0;
}

#ifndef LIBFUZZER
static size_t mutate(char *text, size_t size, size_t room, unsigned *seed)
{
	static const char interesting[] = ",=:-[]()x0123456789 \n/GPU";
	for (int times = 1 + rand_r(seed) % 6; times > 0; times--) {
		size_t at = size ? (size_t)rand_r(seed) % size : 0;
		char c = rand_r(seed) % 4 ? interesting[(size_t)rand_r(seed) % (sizeof interesting - 1)] : (char)rand_r(seed);
		switch (rand_r(seed) % 4) {
		case 0: /* replace */
			if (size)
				text[at] = c;
			break;
		case 1: /* insert */
			if (size + 1 < room) {
				memmove(text + at + 1, text + at, size - at);
				text[at] = c;
				size++;
			}
			break;
		case 2: /* cut */
			if (size) {
				memmove(text + at, text + at + 1, size - at - 1);
				size--;
			}
			break;
		default: /* repeat a piece */
			if (2 * (size - at) + at < room) {
				memcpy(text + size, text + at, size - at);
				size += size - at;
			}
		}
	}
	return size;
}

static void fuzz(const struct target *target, int seconds, unsigned *seed)
{
	unsigned long runs = 0;
	int examples = 0;

	while (examples < 6 && target->examples[examples])
		examples++;
	for (time_t end = time(NULL) + seconds; time(NULL) < end; )
		for (int i = 0; i < 1000; i++, runs++) {
			char text[6000];
			const char *example = target->examples[rand_r(seed) % examples];
			size_t size = strlen(example);
			memcpy(text, example, size);
			size = mutate(text, size, sizeof text, seed);
			run_target(target, text, size);
		}
	printf("fuzz_spank: %-9s %10lu texts in %d s, nothing found\n", target->name, runs, seconds);
	fflush(stdout);
}

int main(int argc, char *argv[])
{
	int seconds = argc > 1 ? atoi(argv[1]) : 10, known = 0;
	unsigned seed = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : (unsigned)time(NULL);

	printf("fuzz_spank: seed %u, %d s each\n", seed, seconds);
	for (int t = 0; t < TARGETS; t++)
		if (argc < 4 || !strcmp(argv[3], targets[t].name)) {
			known++;
			fuzz(&targets[t], seconds, &seed);
		}
	return known ? 0 : 64;
}
#endif
