/* SPDX-License-Identifier: Apache-2.0
 * Memory that a cgroup of either version leaves, and of those the least. */
#include "data/memory.h"
#include "scratch.h"

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

/* Cgroups are those below the scratch directory. */
FILE *__wrap_fopen(const char *path, const char *mode)
{
	if (strcmp(path, "/proc/self/cgroup") == 0 || strncmp(path, "/sys/fs/cgroup", 14) == 0)
		return __real_fopen(scratch_path("%s", path + 1), mode);
	return __real_fopen(path, mode);
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

static void without_a_limit_it_is_the_machines(void **state)
{
	(void)state;
	has("proc/self/cgroup", "0::/\n");
	assert_true(memory_available() > 4000000);
	has("sys/fs/cgroup/memory.max", "max\n");
	assert_true(memory_available() > 4000000);
}

static void limits_of_version_2_hold(void **state)
{
	(void)state;
	has("proc/self/cgroup", "0::/slurm/job_1/step_0\n");
	has("sys/fs/cgroup/slurm/job_1/step_0/memory.max", "max\n");
	has("sys/fs/cgroup/slurm/job_1/memory.max", "3000000\n");
	has("sys/fs/cgroup/slurm/job_1/memory.current", "1000000\n");
	assert_int_equal(memory_available(), 2000000);
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
	assert_int_equal(memory_available(), 2500000);
	/* in a container the path is the host's, and the mounted root is the container's own group */
	has("proc/self/cgroup", "4:cpu,memory:/docker/0123456789\n");
	has("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
	has("sys/fs/cgroup/memory/memory.usage_in_bytes", "500000\n");
	assert_int_equal(memory_available(), 1500000);
}

/* What was read and written before in the same job, as by prepare, fills the group and goes when memory is asked for. */
static void pages_of_files_leave_room(void **state)
{
	(void)state;
	has("proc/self/cgroup", "0::/slurm/job_2\n");
	has("sys/fs/cgroup/slurm/job_2/memory.max", "3000000\n");
	has("sys/fs/cgroup/slurm/job_2/memory.current", "2990000\n");
	has("sys/fs/cgroup/slurm/job_2/memory.stat", "anon 490000\nfile 2500000\ninactive_anon 490000\ninactive_file 1500000\nactive_file 1000000\n");
	assert_int_equal(memory_available(), 2510000);
	/* version 1 has two of each: of the group alone, and of all below it */
	has("proc/self/cgroup", "4:memory:/slurm/job_3\n");
	has("sys/fs/cgroup/memory/slurm/job_3/memory.limit_in_bytes", "1400000\n");
	has("sys/fs/cgroup/memory/slurm/job_3/memory.usage_in_bytes", "1390000\n");
	has("sys/fs/cgroup/memory/slurm/job_3/memory.stat", "inactive_file 1\nactive_file 2\ntotal_inactive_file 900000\ntotal_active_file 90000\n");
	assert_int_equal(memory_available(), 1000000);
	/* the two numbers are not of the same moment */
	has("sys/fs/cgroup/memory/slurm/job_3/memory.stat", "total_inactive_file 1400000\n");
	assert_int_equal(memory_available(), 1400000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_limit_it_is_the_machines),
		cmocka_unit_test(limits_of_version_2_hold),
		cmocka_unit_test(limits_of_version_1_hold),
		cmocka_unit_test(pages_of_files_leave_room),
	};

	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
