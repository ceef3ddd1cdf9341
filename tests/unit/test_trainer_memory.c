/* SPDX-License-Identifier: Apache-2.0
 * Memory and CPU time that a cgroup of either version leaves, and of those the least. */
#include "cgroup.h"
#include "memory_available.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scratch.h"

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

static int no_meminfo, made_up;

/* Cgroups are those below the scratch directory; memory and NUMA nodes are, where the machine is made up. */
FILE *__wrap_fopen(const char *path, const char *mode)
{
	if (no_meminfo && strcmp(path, "/proc/meminfo") == 0)
		return NULL;
	if (strcmp(path, "/proc/self/cgroup") == 0 || strncmp(path, "/sys/fs/cgroup", 14) == 0 ||
	    (made_up && (strcmp(path, "/proc/meminfo") == 0 || strncmp(path, "/sys/devices/system/node/", 25) == 0)))
		return __real_fopen(scratch_path("%s", path + 1), mode);
	return __real_fopen(path, mode);
}

int __real_stat(const char *path, struct stat *st);
int __wrap_stat(const char *path, struct stat *st);

int __wrap_stat(const char *path, struct stat *st)
{
	return __real_stat(strncmp(path, "/sys/fs/cgroup", 14) == 0 ? scratch_path("%s", path + 1) : path, st);
}

static uint64_t number_of(const char *directory)
{
	struct stat st;

	assert_int_equal(stat(directory, &st), 0);
	return st.st_ino;
}

/* path: "sys/fs/cgroup/…/memory.max" */
static void has(const char *path, const char *text)
{
	char part[FILE_PATH];

	snprintf(part, sizeof part, "%s", path);
	for (char *slash = part; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = '\0';
		mkdir(scratch_path("%s", part), 0777);
	}
	scratch_write(scratch_path("%s", path), text, strlen(text));
}

static size_t address_space(void)
{
	size_t pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%zu", &pages), 1);
	fclose(f);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void without_a_limit_it_is_the_machines(void **state)
{
	(void)state;
	has("proc/self/cgroup", "0::/\n");
	assert_true(memory_available(0, 1) > 4000000);
	has("sys/fs/cgroup/memory.max", "max\n");
	assert_true(memory_available(0, 1) > 4000000);
}

static void limits_of_version_2_hold(void **state)
{
	(void)state;
	has("proc/self/cgroup", "0::/slurm/job_1/step_0\n");
	has("sys/fs/cgroup/slurm/job_1/step_0/memory.max", "max\n");
	has("sys/fs/cgroup/slurm/job_1/memory.max", "3000000\n");
	has("sys/fs/cgroup/slurm/job_1/memory.current", "1000000\n");
	assert_int_equal(memory_available(0, 1), 2000000);
}

static void limits_of_version_1_hold(void **state)
{
	(void)state;
	has("proc/self/cgroup", "12:cpu,cpuacct:/slurm\n11:devices:/slurm/uid_0/job_7\n4:memory:/slurm/uid_0/job_7/step_0\n1:name=systemd:/\n0::/\n");
	has("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	has("sys/fs/cgroup/memory/slurm/uid_0/job_7/memory.limit_in_bytes", "4000000\n");
	has("sys/fs/cgroup/memory/slurm/uid_0/job_7/memory.usage_in_bytes", "1500000\n");
	has("sys/fs/cgroup/memory/slurm/uid_0/job_7/step_0/memory.limit_in_bytes", "9223372036854771712\n");
	has("sys/fs/cgroup/memory/slurm/uid_0/job_7/step_0/memory.usage_in_bytes", "1500000\n");
	assert_int_equal(memory_available(0, 1), 2500000);
	/* in a container the path is the host's, and the mounted root is the container's own group */
	has("proc/self/cgroup", "4:cpu,memory:/docker/0123456789\n");
	has("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
	has("sys/fs/cgroup/memory/memory.usage_in_bytes", "500000\n");
	assert_int_equal(memory_available(0, 1), 1500000);
}

/* A tray with two Grace processors and four GPUs, whose memory the kernel counts with the machine's. */
static void memory_of_coherent_gpus_is_not_the_processors(void **state)
{
	static const int numbers[] = { 0, 1, 2, 3, 10, 18, 26 };
	char path[128], text[512];

	(void)state;
	has("proc/self/cgroup", "0::/\n");
	has("proc/meminfo", "MemTotal:  9000000 kB\nMemFree:  8000000 kB\nMemAvailable:  8000000 kB\n");
	made_up = 1;
	assert_int_equal(memory_available(0, 1), 8000000LL * 1024); /* as on a kernel without NUMA */
	has("sys/devices/system/node/has_memory", "0-3,10,18,26\n");
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		int n = numbers[i];
		snprintf(path, sizeof path, "sys/devices/system/node/node%d/cpulist", n);
		has(path, n == 0 ? "0-71\n" : n == 1 ? "72-143\n" : "\n");
		snprintf(path, sizeof path, "sys/devices/system/node/node%d/meminfo", n);
		snprintf(text, sizeof text, "Node %d MemTotal:  1100000 kB\nNode %d MemFree:  1000000 kB\nNode %d Active(file):  2000 kB\nNode %d Inactive(file):  1000 kB\n", n, n, n, n);
		has(path, text);
	}
	assert_int_equal(memory_available(0, 1), (8000000LL - 5 * 1003000) * 1024);
	assert_int_equal(memory_available(0, 4), (8000000LL - 5 * 1003000) * 1024 / 4);
	has("proc/meminfo", "MemAvailable:  5000000 kB\n"); /* without what the kernel keeps back: less than is free on the GPUs */
	assert_int_equal(memory_available(0, 1), 1);
	made_up = 0;
}

/* What was read and written before in the same job, as by prepare, fills the group and goes when memory is asked for. */
static void pages_of_files_leave_room(void **state)
{
	(void)state;
	has("proc/self/cgroup", "0::/slurm/job_2\n");
	has("sys/fs/cgroup/slurm/job_2/memory.max", "3000000\n");
	has("sys/fs/cgroup/slurm/job_2/memory.current", "2990000\n");
	has("sys/fs/cgroup/slurm/job_2/memory.stat", "anon 490000\nfile 2500000\ninactive_anon 490000\ninactive_file 1500000\nactive_file 1000000\n");
	assert_int_equal(memory_available(0, 1), 2510000);
	/* version 1 has two of each: of the group alone, and of all below it */
	has("proc/self/cgroup", "4:memory:/slurm/job_3\n");
	has("sys/fs/cgroup/memory/slurm/job_3/memory.limit_in_bytes", "1400000\n");
	has("sys/fs/cgroup/memory/slurm/job_3/memory.usage_in_bytes", "1390000\n");
	has("sys/fs/cgroup/memory/slurm/job_3/memory.stat", "inactive_file 1\nactive_file 2\ntotal_inactive_file 900000\ntotal_active_file 90000\n");
	assert_int_equal(memory_available(0, 1), 1000000);
	/* the two numbers are not of the same moment */
	has("sys/fs/cgroup/memory/slurm/job_3/memory.stat", "total_inactive_file 1400000\n");
	assert_int_equal(memory_available(0, 1), 1400000);
}

/* 0 would say that nobody knows, and no batch would be refused. */
static void nothing_left_is_not_unknown(void **state)
{
	(void)state;
	has("proc/self/cgroup", "0::/slurm/job_4\n");
	has("sys/fs/cgroup/slurm/job_4/memory.max", "3000000\n");
	has("sys/fs/cgroup/slurm/job_4/memory.current", "3000000\n");
	assert_int_equal(memory_available(0, 1), 1);
	has("sys/fs/cgroup/slurm/job_4/memory.current", "3100000\n");
	assert_int_equal(memory_available(0, 1), 1);
	no_meminfo = 1;
	assert_int_equal(memory_available(0, 1), 0);
	no_meminfo = 0;
}

static void what_is_promised_is_taken_off(void **state)
{
	(void)state;
	has("proc/self/cgroup", "0::/slurm/job_5\n");
	has("sys/fs/cgroup/slurm/job_5/memory.max", "3000000\n");
	has("sys/fs/cgroup/slurm/job_5/memory.current", "1000000\n");
	assert_int_equal(memory_available(500000, 1), 1500000);
	assert_int_equal(memory_available(2000000, 1), 1);
	assert_int_equal(memory_available(SIZE_MAX, 1), 1);
	assert_int_equal(memory_available(100000, 4), 400000); /* each process has its own */
	/* of the machine's, too */
	has("proc/self/cgroup", "0::/\n");
	size_t all = memory_available(0, 1), less = memory_available((size_t)1 << 30, 1);
	assert_in_range(all - less, (1 << 30) - (256 << 20), (1 << 30) + (256 << 20)); /* others take and give meanwhile */
}

/* Where `ulimit -v` holds, what was allocated has its addresses already. */
static void addresses_are_not_taken_off_twice(void **state)
{
	struct rlimit before, tight;

	(void)state;
	has("proc/self/cgroup", "0::/\n");
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	tight = before;
	tight.rlim_cur = address_space() + (1UL << 40);
	assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
	size_t wide = memory_available(0, 1);
	tight.rlim_cur = address_space() + (512 << 20);
	assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
	size_t all = memory_available(0, 1), less = memory_available(400 << 20, 1);
	size_t each = memory_available(0, 2);
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_in_range(each, 500 << 20, 512 << 20); /* nor are they shared with the job's other processes */
	assert_true(wide > (size_t)1 << 30);
	assert_in_range(all, 500 << 20, 512 << 20);
	assert_in_range(less, 500 << 20, 512 << 20);
}

/* The kernel holds nobody to it. A soft limit can come from the shell that the job was submitted in. */
static void what_slurm_gives_the_step_is_shared(void **state)
{
	struct rlimit step;
	int status;

	(void)state;
	has("proc/self/cgroup", "0::/\n");
	assert_int_equal(getrlimit(RLIMIT_RSS, &step), 0);
	size_t machine = memory_available(0, 1);
	pid_t child = fork(); /* a hard limit is there for good */
	assert_true(child >= 0);
	if (!child) {
		step.rlim_cur = 1 << 20;
		bool soft = setrlimit(RLIMIT_RSS, &step) == 0 && memory_available(0, 1) > machine / 2;
		step.rlim_max = 800 << 20;
		bool set = setrlimit(RLIMIT_RSS, &step) == 0;
		size_t all = memory_available(0, 1), each = memory_available(0, 2), less = memory_available(100 << 20, 2);
		_exit(soft && set && all > 600 << 20 && all < 800 << 20 && each > 200 << 20 && each < 400 << 20 && each - less > 90 << 20 && each - less < 110 << 20 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void a_quota_is_so_many_cpus(void **state)
{
	uint64_t group;

	(void)state;
	has("proc/self/cgroup", "0::/slurm/job_6\n");
	assert_true(cgroup_cpus(&group) == 0);
	has("sys/fs/cgroup/slurm/job_6/cpu.max", "max 100000\n");
	assert_true(cgroup_cpus(&group) == 0);
	has("sys/fs/cgroup/slurm/cpu.max", "250000 100000\n");
	assert_true(cgroup_cpus(&group) == 2.5);
	assert_int_equal(group, number_of("/sys/fs/cgroup/slurm"));
	has("sys/fs/cgroup/slurm/job_6/cpu.max", "75000 50000\n");
	assert_true(cgroup_cpus(&group) == 1.5);
	assert_int_equal(group, number_of("/sys/fs/cgroup/slurm/job_6"));
	has("proc/self/cgroup", "3:cpuset:/\n4:cpu,cpuacct:/docker/0123456789\n");
	assert_true(cgroup_cpus(&group) == 0);
	has("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
	has("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	assert_true(cgroup_cpus(&group) == 0);
	has("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
	assert_true(cgroup_cpus(&group) == 4);
	assert_int_equal(group, number_of("/sys/fs/cgroup/cpu"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_limit_it_is_the_machines),
		cmocka_unit_test(limits_of_version_2_hold),
		cmocka_unit_test(limits_of_version_1_hold),
		cmocka_unit_test(memory_of_coherent_gpus_is_not_the_processors),
		cmocka_unit_test(pages_of_files_leave_room),
		cmocka_unit_test(nothing_left_is_not_unknown),
		cmocka_unit_test(what_is_promised_is_taken_off),
		cmocka_unit_test(addresses_are_not_taken_off_twice),
		cmocka_unit_test(what_slurm_gives_the_step_is_shared),
		cmocka_unit_test(a_quota_is_so_many_cpus),
	};

	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
