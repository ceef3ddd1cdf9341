/* SPDX-License-Identifier: Apache-2.0
 * A SPANK plugin that times its neighbour. plugstack.conf names it twice, through two links to this one library, before
 * and after the plugin that is measured; Slurm calls the three in turn, in the real srun, slurmstepd and tasks.
 * A line a task, "task µs faults", a line a node and step, "node µs", and a line an srun, "srun µs", go to the file that
 * the argument names. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(hvd_clock, 1)

static double begin, sum; /* µs; sum: of all callbacks of this process */
static long faults;
static bool before;       /* the last call was the one before the neighbour */

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static long faults_so_far(void)
{
	struct rusage r;
	getrusage(RUSAGE_SELF, &r);
	return r.ru_minflt;
}

static void write_line(const char *file, const char *name, double us, long count)
{
	int fd = open(file, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0)
		return;
	dprintf(fd, "%s %.2f %ld\n", name, us, count);
	close(fd);
}

/* True when the neighbour's callback is over; *us is then what it took. */
static bool after(double *us)
{
	before = !before;
	if (before) {
		faults = faults_so_far();
		begin = now_us();
		return false;
	}
	*us = now_us() - begin;
	faults = faults_so_far() - faults;
	sum += *us;
	return true;
}

static int count(void)
{
	double us;
	after(&us);
	return 0;
}

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
	(void)spank, (void)argc, (void)argv;
	return count();
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
	(void)spank, (void)argc, (void)argv;
	return count();
}

int slurm_spank_user_init(spank_t spank, int argc, char *argv[])
{
	(void)spank, (void)argc, (void)argv;
	return count();
}

int slurm_spank_task_init(spank_t spank, int argc, char *argv[])
{
	double us;
	(void)spank, (void)argc;
	if (after(&us))
		write_line(argv[0], "task", us, faults);
	return 0;
}

int slurm_spank_exit(spank_t spank, int argc, char *argv[])
{
	double us;
	(void)spank, (void)argc;
	if (after(&us))
		write_line(argv[0], spank_remote(spank) == 1 ? "node" : "srun", sum, 0);
	return 0;
}
