/* SPDX-License-Identifier: Apache-2.0
 * The GPU meter against a library that answers as NVML would. It is built here and loaded under NVML's name first, so that the
 * meter's own dlopen() finds it. */
#include "tests/unit/scratch.h"

#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

#include "learn/gpu_meter.h"

static const char fake[] =
	"#include <string.h>\n"
	"typedef void *device;\n"
	"static char gpu;\n"
	"int fake_busy = 97, fake_fails;\n"
	"int nvmlInit_v2(void) { return 0; }\n"
	"static int give(int known, device *d) { *d = &gpu; return known ? 0 : 6; }\n"
	"int nvmlDeviceGetHandleByPciBusId_v2(const char *id, device *d) { return give(!strcmp(id, \"0000:15:00.0\"), d); }\n"
	"int nvmlDeviceGetHandleByUUID(const char *id, device *d) { return give(!strcmp(id, \"GPU-7\"), d); }\n"
	"int nvmlDeviceGetHandleByIndex_v2(unsigned i, device *d) { return give(i == 3, d); }\n"
	"int nvmlDeviceGetUtilizationRates(device d, unsigned u[2]) { u[0] = fake_busy; u[1] = 11; return d != &gpu || fake_fails; }\n"
	"int nvmlDeviceGetMemoryInfo(device d, unsigned long long m[3]) { m[0] = 100; m[1] = 60; m[2] = 40; return d != &gpu; }\n"
	"int nvmlDeviceGetPowerUsage(device d, unsigned *mw) { *mw = 612500; return d != &gpu; }\n";

static void *library;
static int *busy, *fails;

static int build_fake(void **state)
{
	char command[3 * FILE_PATH];

	if (scratch_make(state))
		return -1;
	scratch_write(scratch_path("nvml.c"), fake, sizeof fake - 1);
	snprintf(command, sizeof command, "gcc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o %s %s", scratch_path("fake.so"), scratch_path("nvml.c"));
	if (access("/usr/bin/gcc", X_OK) == 0 && system(command) == 0)
		library = dlopen(scratch_path("fake.so"), RTLD_NOW | RTLD_GLOBAL);
	if (library) {
		busy = dlsym(library, "fake_busy");
		fails = dlsym(library, "fake_fails");
	}
	return 0;
}

static void a_gpu_is_found_by_any_of_its_names(void **state)
{
	(void)state;
	static const char *const known[] = { "0000:15:00.0", "GPU-7", "3", "0000:15:00.0,0000:16:00.0", "GPU-7,GPU-8", "3,4" };
	static const char *const unknown[] = { "0000:16:00.0", "GPU-8", "4", "", "4,3", ",3" };

	if (!library)
		skip_because("no gcc to build a library with");
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		struct gpu_meter *m = gpu_meter_open(known[i]);
		struct gpu_reading r;

		assert_non_null(m);
		assert_int_equal(gpu_meter_read(m, &r), 0);
		assert_close(r.busy, 0.97, 1e-12);
		assert_close(r.memory_total, 100, 0);
		assert_close(r.memory_used, 40, 0);
		assert_close(r.watts, 612.5, 1e-9);
		gpu_meter_close(m);
	}
	for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
		assert_null(gpu_meter_open(unknown[i]));
}

static struct gpu_summary wait_for(struct gpu_meter *m, int samples)
{
	struct gpu_summary s;

	for (int i = 0; i < 600 && (s = gpu_meter_summary(m)).samples < samples; i++)
		usleep(50000);
	assert_true(s.samples >= samples);
	return s;
}

static void samples_add_up_from_the_last_start(void **state)
{
	(void)state;
	if (!library)
		skip_because("no gcc to build a library with");
	struct gpu_meter *m = gpu_meter_open("3");

	assert_non_null(m);
	wait_for(m, 1);
	*busy = 20;
	gpu_meter_start(m);
	struct gpu_summary s = wait_for(m, 2);

	assert_close(s.busy, 0.2, 1e-12);
	assert_close(s.dips, 1, 0);
	*fails = 1; /* what NVML does not know is no sample */
	struct gpu_reading r;

	assert_int_equal(gpu_meter_read(m, &r), -1);
	*fails = 0;
	*busy = 97;
	gpu_meter_close(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_gpu_is_found_by_any_of_its_names),
		cmocka_unit_test(samples_add_up_from_the_last_start),
	};
	return cmocka_run_group_tests(tests, build_fake, scratch_remove);
}
