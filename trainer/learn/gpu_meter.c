/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/gpu_meter.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* NVML's, from its documentation. */
typedef void *nvml_device;
struct nvml_utilization {
	unsigned int gpu, memory; /* percent */
};
struct nvml_memory {
	unsigned long long total, free, used;
};

static struct {
	int (*init)(void);
	int (*by_pci)(const char *id, nvml_device *device);
	int (*by_uuid)(const char *uuid, nvml_device *device);
	int (*by_index)(unsigned int index, nvml_device *device);
	int (*utilization)(nvml_device device, struct nvml_utilization *u);
	int (*memory)(nvml_device device, struct nvml_memory *m);
	int (*power)(nvml_device device, unsigned int *milliwatts);
} nvml;

enum { SAMPLE_MS = 200 };

struct gpu_meter {
	nvml_device device;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	int stop, samples, dips;
	double busy;
};

static int load(void)
{
	static const struct {
		const char *name;
		void *function;
	} wanted[] = {
		{ "nvmlInit_v2", &nvml.init },
		{ "nvmlDeviceGetHandleByPciBusId_v2", &nvml.by_pci },
		{ "nvmlDeviceGetHandleByUUID", &nvml.by_uuid },
		{ "nvmlDeviceGetHandleByIndex_v2", &nvml.by_index },
		{ "nvmlDeviceGetUtilizationRates", &nvml.utilization },
		{ "nvmlDeviceGetMemoryInfo", &nvml.memory },
		{ "nvmlDeviceGetPowerUsage", &nvml.power },
	};
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW); /* stays open: NVML keeps threads and state */

	if (!library)
		return -1;
	for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
		void *symbol = dlsym(library, wanted[i].name);

		if (!symbol)
			return -1;
		memcpy(wanted[i].function, &symbol, sizeof symbol);
	}
	return nvml.init() ? -1 : 0;
}

/* The first of a list: a task that has several GPUs computes on that one. */
static int find(const char *names, nvml_device *device)
{
	char name[96];

	if (snprintf(name, sizeof name, "%.*s", (int)strcspn(names, ","), names) >= (int)sizeof name)
		return -1;
	if (strchr(name, ':'))
		return nvml.by_pci(name, device);
	if (isdigit((unsigned char)*name))
		return nvml.by_index((unsigned int)strtoul(name, NULL, 10), device);
	return nvml.by_uuid(name, device);
}

static void sample(struct gpu_meter *m)
{
	struct nvml_utilization u;

	if (nvml.utilization(m->device, &u))
		return;
	m->samples++;
	m->busy += u.gpu / 100.0;
	m->dips += u.gpu < 100 * GPU_DIP;
}

static void *watch(void *argument)
{
	struct gpu_meter *m = argument;
	struct timespec next;

	pthread_mutex_lock(&m->lock);
	clock_gettime(CLOCK_MONOTONIC, &next);
	while (!m->stop) {
		next.tv_nsec += SAMPLE_MS * 1000000L;
		next.tv_sec += next.tv_nsec / 1000000000L;
		next.tv_nsec %= 1000000000L;
		if (pthread_cond_timedwait(&m->wake, &m->lock, &next))
			sample(m);
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

struct gpu_meter *gpu_meter_open(const char *name)
{
	struct gpu_meter *m = *name ? calloc(1, sizeof *m) : NULL;
	pthread_condattr_t clock;

	if (!m || load() || find(name, &m->device)) {
		free(m);
		return NULL;
	}
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&m->wake, &clock);
	pthread_condattr_destroy(&clock);
	pthread_mutex_init(&m->lock, NULL);
	if (pthread_create(&m->thread, NULL, watch, m)) {
		free(m);
		return NULL;
	}
	return m;
}

void gpu_meter_close(struct gpu_meter *m)
{
	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	m->stop = 1;
	pthread_cond_signal(&m->wake);
	pthread_mutex_unlock(&m->lock);
	pthread_join(m->thread, NULL);
	pthread_cond_destroy(&m->wake);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

int gpu_meter_read(struct gpu_meter *m, struct gpu_reading *r)
{
	struct nvml_utilization u;
	struct nvml_memory memory;
	unsigned int milliwatts;

	if (nvml.utilization(m->device, &u) || nvml.memory(m->device, &memory) || nvml.power(m->device, &milliwatts))
		return -1;
	*r = (struct gpu_reading){ u.gpu / 100.0, (double)memory.used, (double)memory.total, milliwatts / 1000.0 };
	return 0;
}

void gpu_meter_start(struct gpu_meter *m)
{
	pthread_mutex_lock(&m->lock);
	m->samples = m->dips = 0;
	m->busy = 0;
	pthread_mutex_unlock(&m->lock);
}

struct gpu_summary gpu_meter_summary(struct gpu_meter *m)
{
	pthread_mutex_lock(&m->lock);
	struct gpu_summary s = { .samples = m->samples };

	if (m->samples) {
		s.busy = m->busy / m->samples;
		s.dips = (double)m->dips / m->samples;
	}
	pthread_mutex_unlock(&m->lock);
	return s;
}
