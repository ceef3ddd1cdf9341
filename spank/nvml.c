/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices.h"
#include "files.h"
#include "nvidia.h"
#include "text.h"

enum { NVML_SUCCESS = 0, USERS_MAX = 64, ANCESTORS_MAX = 64 };

/* As in nvml.h, which is not on every machine that has the library. */
typedef void *device_t;

struct process_info { /* nvmlProcessInfo_v2_t */
	unsigned pid;
	unsigned long long memory; /* bytes; all ones: not known */
	unsigned gpu_instance, compute_instance;
};

struct pci_info { /* nvmlPciInfo_t */
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char address[32]; /* "00000000:15:00.0" */
};

struct nvml {
	void *library;
	int (*init)(void);
	int (*shutdown)(void);
	int (*by_address)(const char *address, device_t *device);
	int (*by_uuid)(const char *uuid, device_t *device);
	int (*processes)(device_t device, unsigned *count, struct process_info *info);
	int (*parent)(device_t instance, device_t *device);
	int (*pci)(device_t device, struct pci_info *info);
};

static const struct {
	const char *name;
	size_t field;
} functions[] = {
	{ "nvmlInit_v2", offsetof(struct nvml, init) },
	{ "nvmlShutdown", offsetof(struct nvml, shutdown) },
	{ "nvmlDeviceGetHandleByPciBusId_v2", offsetof(struct nvml, by_address) },
	{ "nvmlDeviceGetHandleByUUID", offsetof(struct nvml, by_uuid) },
	{ "nvmlDeviceGetComputeRunningProcesses_v3", offsetof(struct nvml, processes) },
	{ "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", offsetof(struct nvml, parent) },
	{ "nvmlDeviceGetPciInfo_v3", offsetof(struct nvml, pci) },
};

static bool ids_are_the_users(void)
{
	uid_t real, effective, saved;
	return !getresuid(&real, &effective, &saved) && real == effective && effective == saved;
}

/* A driver so old that it lacks one of the functions (before release 510) answers nothing. */
static int find_functions(struct nvml *n)
{
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		void *symbol = dlsym(n->library, functions[i].name);
		if (!symbol)
			return -1;
		memcpy((char *)n + functions[i].field, &symbol, sizeof symbol);
	}
	return 0;
}

struct nvml *nvml_open(void)
{
	struct nvml *n = ids_are_the_users() ? calloc(1, sizeof *n) : NULL;

	if (!n)
		return NULL;
	n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (n->library && !find_functions(n) && n->init() == NVML_SUCCESS)
		return n;
	if (n->library)
		dlclose(n->library);
	free(n);
	return NULL;
}

void nvml_close(struct nvml *n)
{
	if (!n)
		return;
	n->shutdown();
	dlclose(n->library);
	free(n);
}

/* ---- processes ----------------------------------------------------------------------------------- */

/* The parent of a process, 0 where /proc does not show it. "pid (name) state parent …", and the name may hold anything. */
static pid_t parent_of(pid_t pid)
{
	char path[64], text[1024];
	int parent = 0;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	if (read_small_file(AT_FDCWD, path, text, sizeof text) > 0) {
		const char *name_end = strrchr(text, ')');
		if (!name_end || sscanf(name_end + 1, " %*c %d", &parent) != 1)
			parent = 0;
	}
	return parent;
}

static bool descends_from(pid_t pid, pid_t family)
{
	for (int i = 0; family > 0 && pid > 0 && i < ANCESTORS_MAX; i++, pid = parent_of(pid))
		if (pid == family)
			return true;
	return false;
}

/* The process as its own /proc entry tells it; in another process namespace only the driver's number is left. */
static void add_user(struct text *t, const struct process_info *p)
{
	char path[64], name[64];
	struct stat st;

	snprintf(path, sizeof path, "/proc/%u/comm", p->pid);
	if (read_small_file(AT_FDCWD, path, name, sizeof name) > 0 && !stat(path, &st)) {
		for (char *c = name; *c; c++)
			*c = *c == '\n' ? '\0' : *c > ' ' && *c < 127 ? *c : '?';
		text_add(t, "%s (pid %u, uid %u", name, p->pid, (unsigned)st.st_uid);
	} else {
		text_add(t, "a process (pid %u", p->pid);
	}
	if (p->memory != ~0ULL)
		text_add(t, ", %.1f GiB", (double)p->memory / (1 << 30));
	text_add(t, ")");
}

char *nvml_users(const struct nvml *n, const char *name, pid_t family, char *buf, size_t size)
{
	struct process_info info[USERS_MAX] = { 0 };
	struct text t = { buf, size, 0 };
	unsigned count = USERS_MAX;
	device_t device = NULL;

	buf[0] = '\0';
	if ((is_instance(name) ? n->by_uuid : n->by_address)(name, &device) != NVML_SUCCESS || n->processes(device, &count, info) != NVML_SUCCESS)
		return buf;
	for (unsigned i = 0; i < count && i < USERS_MAX; i++) {
		if (descends_from((pid_t)info[i].pid, family))
			continue;
		if (t.used)
			text_add(&t, ", ");
		else
			text_add(&t, "GPU %s already holds memory of ", name);
		add_user(&t, &info[i]);
	}
	return buf;
}

int nvml_parent(const struct nvml *n, const char *instance, char pci[16])
{
	struct pci_info info = { 0 };
	device_t part = NULL, whole = NULL;
	unsigned long long order;

	if (n->by_uuid(instance, &part) != NVML_SUCCESS || n->parent(part, &whole) != NVML_SUCCESS || n->pci(whole, &info) != NVML_SUCCESS)
		return -1;
	info.address[sizeof info.address - 1] = '\0';
	return pci_parse(info.address, &order, pci);
}
