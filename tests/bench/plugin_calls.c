/* SPDX-License-Identifier: Apache-2.0
 * What the plugin's calls take on a node, apart from all else that an srun does: a step of 8 tasks with 8 GPUs, each
 * task in a process of its own, as slurmstepd has it. Medians of N steps; the machine is a described one. */
#include "../unit/plugin_host.h"

#include <time.h>

enum { STEPS = 201 };

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof *v, by_size);
	return v[n / 2];
}

/* One step: what the node's part took, and what each task's did, in µs. */
static void timed_step(const char *wishes, double *node, double *of_task)
{
	pid_t stepd = fork();

	if (!stepd) {
		double begin = now_us();
		start(wishes);
		*node = now_us() - begin;
		for (local_task = 0; local_task < tasks; local_task++) {
			pid_t pid = fork();
			if (!pid) {
				now = &record->task[local_task];
				for (int i = 0; i < NAMES; i++) /* this program's own pages, which fork() left to be copied */
					*(volatile char *)variable[i].value = variable[i].value[0];
				begin = now_us();
				now->rc = slurm_spank_task_init((spank_t)variable, 0, NULL);
				of_task[local_task] = now_us() - begin;
				_exit(0);
			}
			waitpid(pid, NULL, 0);
		}
		begin = now_us();
		slurm_spank_exit((spank_t)variable, 0, NULL);
		*node += now_us() - begin;
		_exit(0);
	}
	waitpid(stepd, NULL, 0);
}

int main(void)
{
	static const char *const words[] = { "on,hide-gpus,socket", "hide-gpus,gpu,nic=hint" };
	double *v;

	(void)run_step;
	if (make_machine_files(NULL))
		return 1;
	v = mmap(NULL, STEPS * (1 + TASKS_MAX) * sizeof *v, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (v == MAP_FAILED)
		return 1;
	tasks = TASKS_MAX;
	for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
		int wrong = 0;
		for (int s = 0; s < STEPS; s++) {
			for (int t = 0; t < tasks; t++)
				record->task[t].rc = -1;
			timed_step(words[w], &v[s], &v[STEPS + s * tasks]);
			for (int t = 0; t < tasks; t++)
				wrong += record->task[t].rc != 0 || !record->task[t].bound;
		}
		if (wrong) {
			fprintf(stderr, "plugin_calls: %d tasks were not bound\n", wrong);
			remove_machine_files(NULL);
			return 1;
		}
		printf("%-24s node and step %6.2f ms, a task %5.1f us (medians of %d steps of %d tasks)\n", words[w], median(v, STEPS) / 1e3,
		       median(v + STEPS, STEPS * tasks), STEPS, tasks);
	}
	remove_machine_files(NULL);
	return 0;
}
