/* SPDX-License-Identifier: Apache-2.0
 * All ranks take the same back end and the same settings, or none starts. */
#include "tests/unit/runtime_world.h"

#include "runtime/backend.h"

#include <sys/stat.h>

#ifdef HAVE_NCCL
#include "runtime/nccl_api.h"
#endif


static bool gpu_here(void)
{
	char why[WHY_BYTES] = "", gpu[16];
	return nccl_usable(why, gpu);
}

static void ask_for_nccl(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.backend = "nccl";
	must(hvd_init_from(&h, &conf, meet) == HVD_EBACKEND);
	must(strstr(hvd_error(h), "back end nccl: rank 0 on node-a: "));
	hvd_close(h);
}

static void nccl_without_a_gpu_is_a_clean_error_on_every_rank(void **state)
{
	(void)state;
	if (gpu_here())
		skip_because("this machine has a GPU");
	run_ranks("aab", ask_for_nccl, NULL);
}

static void auto_takes_the_cpu(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.backend = "auto";
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	must(!strcmp(hvd_world(h)->backend, "cpu"));
	works(h, hvd_close(h));
}

static void auto_without_gpus_is_the_cpu(void **state)
{
	(void)state;
	if (gpu_here())
		skip_because("this machine has a GPU");
	run_ranks("ab", auto_takes_the_cpu, NULL);
}

static const char *const differences[] = { "wants back end auto, rank 0 wants cpu", "has a deadline of 10 s, rank 0 of 20 s", "has another on_death than rank 0",
					   "has another HVD_WIRE than rank 0", "has an HVD_TRACE, rank 0 has none" };

static void differ(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	const int which = *(const int *)arg;
	if (meeting_rank == 1) {
		conf.backend = which == 0 ? "auto" : conf.backend;
		conf.deadline = which == 1 ? 10 : conf.deadline;
		conf.on_death = which == 2;
		conf.wire = which == 3 ? HVD_BF16 : conf.wire;
		conf.trace = which == 4 ? "/tmp" : NULL;
	}
	must(hvd_init_from(&h, &conf, meet) == HVD_EMISMATCH);
	must(!strncmp(hvd_error(h), "rank 1 on node-a ", 17) && !strcmp(hvd_error(h) + 17, differences[which]));
	hvd_close(h);
}

static void ranks_with_different_settings_do_not_start(void **state)
{
	(void)state;
	for (int which = 0; which < 5; which++)
		run_ranks("aab", differ, &which);
}

static void nccl_goes_as_far_as_the_driver_lets_it(void **state)
{
	(void)state;
#ifdef HAVE_NCCL
	struct api nc;
	char why[WHY_BYTES];
	if (nccl_bind(&nc, why))
		skip_because("%s", why);
	ncclUniqueId id;
	ncclComm_t comm = NULL;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	int version = 0;
	config.blocking = 0;
	assert_int_equal(nc.ncclGetVersion(&version), ncclSuccess);
	assert_true(version >= 21800); /* communicators that do not block */
	setenv("NCCL_SOCKET_IFNAME", "lo", 1);
	assert_int_equal(nc.ncclGetUniqueId(&id), ncclSuccess);
	if (gpu_here())
		skip_because("this machine has a GPU: tests/gpu creates communicators");
	ncclResult_t rc = nc.ncclCommInitRankConfig(&comm, 1, id, 0, &config);
	for (int i = 0; rc == ncclInProgress && i < 1000; i++) {
		usleep(1000);
		assert_int_equal(nc.ncclCommGetAsyncError(comm, &rc), ncclSuccess);
	}
	assert_int_equal(rc, ncclUnhandledCudaError);
#else
	skip_because("built without nccl.h");
#endif
}

#ifdef HAVE_NCCL
/* What nccl_bind() says in a program of its own, which has `folder` in that variable. */
static void ask_in_another(const char *variable, const char *folder, char line[256])
{
	char self[512] = "", command[2048];
	assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
	snprintf(command, sizeof command, "unset NCCL_HOME CUDA_HOME; %s=%s${%s:+:$%s} ASAN_OPTIONS=detect_leaks=0 '%s' bind", variable, folder, variable, variable, self);
	FILE *told = popen(command, "r");
	assert_non_null(told);
	assert_non_null(fgets(line, 256, told));
	assert_int_equal(pclose(told), 0);
}
#endif

static void nccl_that_cannot_be_loaded_is_told_with_the_reason_and_the_wheels_place(void **state)
{
	(void)state;
#ifdef HAVE_NCCL
	char folder[512], lib[520], path[600], line[256], want[700];
	assert_non_null(mkdtemp(temporary_name(folder, sizeof folder)));
	snprintf(lib, sizeof lib, "%s/lib", folder);
	assert_int_equal(mkdir(lib, 0700), 0);
	snprintf(path, sizeof path, "%s/libnccl.so.2", lib);
	FILE *empty = fopen(path, "w"); /* so that the system's, if it has one, is not found either */
	assert_non_null(empty);
	fclose(empty);
	snprintf(want, sizeof want, "%s: file too short; of Python's wheels: NCCL_HOME=.../nvidia/nccl\n", path);
	ask_in_another("LD_LIBRARY_PATH", lib, line);
	assert_string_equal(line, want);
	ask_in_another("NCCL_HOME", folder, line);
	assert_string_equal(line, want);
	unlink(path);
	rmdir(lib);
	rmdir(folder);
#else
	skip_because("built without nccl.h");
#endif
}

static int bind_alone(void)
{
	char why[WHY_BYTES] = "found";
#ifdef HAVE_NCCL
	struct api nc;
	nccl_bind(&nc, why);
#endif
	return puts(why) < 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "bind"))
		return bind_alone();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nccl_without_a_gpu_is_a_clean_error_on_every_rank),
		cmocka_unit_test(auto_without_gpus_is_the_cpu),
		cmocka_unit_test(ranks_with_different_settings_do_not_start),
		cmocka_unit_test(nccl_goes_as_far_as_the_driver_lets_it),
		cmocka_unit_test(nccl_that_cannot_be_loaded_is_told_with_the_reason_and_the_wheels_place),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
