/* SPDX-License-Identifier: Apache-2.0
 * hwloc is opened at run time, and only here: Slurm's clients never load it, and a node without it can say so. */
#include "inventory.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nvidia.h"

enum { VENDOR_NVIDIA = 0x10de, CLASS_DISPLAY = 0x03, XML_MAX = 32 << 20 };

/* The functions of hwloc.h that are used here, under the same names without hwloc_. */
static struct {
	__typeof__(hwloc_get_api_version) *get_api_version;
	__typeof__(hwloc_topology_init) *topology_init;
	__typeof__(hwloc_topology_destroy) *topology_destroy;
	__typeof__(hwloc_topology_load) *topology_load;
	__typeof__(hwloc_topology_set_xmlbuffer) *topology_set_xmlbuffer;
	__typeof__(hwloc_topology_set_flags) *topology_set_flags;
	__typeof__(hwloc_topology_set_io_types_filter) *topology_set_io_types_filter;
	__typeof__(hwloc_topology_set_components) *topology_set_components;
	__typeof__(hwloc_topology_get_allowed_cpuset) *topology_get_allowed_cpuset;
	__typeof__(hwloc_bitmap_next) *bitmap_next;
	__typeof__(hwloc_get_type_depth) *get_type_depth;
	__typeof__(hwloc_get_obj_by_depth) *get_obj_by_depth;
} hwloc;

static const struct {
	const char *name;
	void *slot;
} hwloc_functions[] = {
	{ "hwloc_get_api_version", &hwloc.get_api_version },
	{ "hwloc_topology_init", &hwloc.topology_init },
	{ "hwloc_topology_destroy", &hwloc.topology_destroy },
	{ "hwloc_topology_load", &hwloc.topology_load },
	{ "hwloc_topology_set_xmlbuffer", &hwloc.topology_set_xmlbuffer },
	{ "hwloc_topology_set_flags", &hwloc.topology_set_flags },
	{ "hwloc_topology_set_io_types_filter", &hwloc.topology_set_io_types_filter },
	{ "hwloc_topology_set_components", &hwloc.topology_set_components },
	{ "hwloc_topology_get_allowed_cpuset", &hwloc.topology_get_allowed_cpuset },
	{ "hwloc_bitmap_next", &hwloc.bitmap_next },
	{ "hwloc_get_type_depth", &hwloc.get_type_depth },
	{ "hwloc_get_obj_by_depth", &hwloc.get_obj_by_depth },
};

/* The library may be there already: slurmd's own hwloc would then be the one that is found. */
static void *open_hwloc(char *error, size_t size)
{
	void *library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(error, size, "hwloc 2 cannot be opened: %s (Debian: libhwloc15)", dlerror());
		return NULL;
	}
	for (size_t i = 0; i < sizeof hwloc_functions / sizeof *hwloc_functions; i++) {
		void *symbol = dlsym(library, hwloc_functions[i].name);
		if (!symbol) {
			snprintf(error, size, "libhwloc.so.15 has no %s", hwloc_functions[i].name);
			goto fail;
		}
		memcpy(hwloc_functions[i].slot, &symbol, sizeof symbol);
	}
	if (hwloc.get_api_version() >> 16 != HWLOC_API_VERSION >> 16) {
		snprintf(error, size, "hwloc with API %x found, %x needed", hwloc.get_api_version() >> 16, HWLOC_API_VERSION >> 16);
		goto fail;
	}
	return library;
fail:
	dlclose(library);
	return NULL;
}

/* ---- the file ------------------------------------------------------------------------------------ */

static int check_owner(const char *path, const struct stat *st, char *error, size_t size)
{
	if (st->st_uid != 0 && st->st_uid != getuid())
		snprintf(error, size, "%s belongs to uid %u: it must belong to root", path, (unsigned)st->st_uid);
	else if (st->st_mode & (S_IWGRP | S_IWOTH))
		snprintf(error, size, "%s is writable by others than its owner: chmod go-w", path);
	else
		return 0;
	return -1;
}

/* The whole file in one terminated block, or NULL and a line. Checks and reads through one descriptor. */
static char *read_trusted(const char *path, bool trusted_only, size_t *length, char *error, size_t size)
{
	char *text = NULL;
	struct stat st;
	size_t have = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &st)) {
		snprintf(error, size, "%s: %s", path, strerror(errno));
		goto fail;
	}
	if (!S_ISREG(st.st_mode) || st.st_size > XML_MAX) {
		snprintf(error, size, "%s: not a topology file", path);
		goto fail;
	}
	if (trusted_only && check_owner(path, &st, error, size))
		goto fail;
	text = malloc((size_t)st.st_size + 1);
	if (!text) {
		snprintf(error, size, "%s: out of memory", path);
		goto fail;
	}
	for (ssize_t n = 1; n > 0 && have < (size_t)st.st_size; have += n > 0 ? (size_t)n : 0)
		n = read(fd, text + have, (size_t)st.st_size - have);
	text[have] = '\0';
	*length = have + 1;
	close(fd);
	return text;
fail:
	if (fd >= 0)
		close(fd);
	free(text);
	return NULL;
}

/* proc=DIR replaces the driver's own answers, so it must be as trustworthy as the driver. */
static int check_proc(const char *dir, char *error, size_t size)
{
	struct stat st;
	if (stat(dir, &st)) {
		snprintf(error, size, "%s: %s", dir, strerror(errno));
		return -1;
	}
	return check_owner(dir, &st, error, size);
}

/* ---- hwloc to plain numbers ---------------------------------------------------------------------- */

static void copy_set(hwloc_const_bitmap_t from, struct cpuset *to)
{
	*to = (struct cpuset){ 0 };
	if (!from)
		return;
	for (int n = hwloc.bitmap_next(from, -1); n >= 0 && n < CPUSET_MAX; n = hwloc.bitmap_next(from, n))
		cpuset_add(to, n);
}

static const char *info_of(hwloc_obj_t obj, const char *name)
{
	for (unsigned i = 0; i < obj->infos_count; i++)
		if (!strcmp(obj->infos[i].name, name))
			return obj->infos[i].value;
	return "";
}

static hwloc_obj_t nth(hwloc_topology_t t, hwloc_obj_type_t type, unsigned n)
{
	int depth = hwloc.get_type_depth(t, type);
	return depth == HWLOC_TYPE_DEPTH_UNKNOWN || depth == HWLOC_TYPE_DEPTH_MULTIPLE ? NULL : hwloc.get_obj_by_depth(t, depth, n);
}

static int read_packages(hwloc_topology_t t, struct node *node)
{
	for (hwloc_obj_t p; (p = nth(t, HWLOC_OBJ_PACKAGE, (unsigned)node->packages)); node->packages++) {
		if (node->packages == NODE_MAX_PACKAGES)
			return -1;
		node->package[node->packages].id = (int)p->os_index;
		copy_set(p->cpuset, &node->package[node->packages].cpus);
	}
	return 0;
}

/* hwloc gives memory-only nodes the CPUs they are near. A node is main memory only where no other node is as close to
 * the same CPUs: none with fewer CPUs, none with the same CPUs and a smaller number. */
static int read_numa(hwloc_topology_t t, struct node *node)
{
	struct cpuset near[NODE_MAX_NUMA];

	for (hwloc_obj_t n; (n = nth(t, HWLOC_OBJ_NUMANODE, (unsigned)node->numas)); node->numas++) {
		if (node->numas == NODE_MAX_NUMA || n->os_index >= CPUSET_MAX)
			return -1;
		node->numa[node->numas].id = (int)n->os_index;
		copy_set(n->cpuset, &near[node->numas]);
	}
	for (int a = 0; a < node->numas; a++) {
		bool main_memory = true;
		for (int b = 0; b < node->numas; b++)
			if (a != b && !cpuset_empty(&near[b]) && cpuset_within(&near[b], &near[a]) &&
			    (!cpuset_equal(&near[a], &near[b]) || node->numa[b].id < node->numa[a].id))
				main_memory = false;
		node->numa[a].cpus = main_memory ? near[a] : (struct cpuset){ 0 };
	}
	return 0;
}

static int package_of(const struct node *node, const struct cpuset *cpus)
{
	int found = -1;
	for (int p = 0; p < node->packages; p++)
		if (cpuset_intersects(cpus, &node->package[p].cpus)) {
			if (found >= 0)
				return -1;
			found = p;
		}
	return found;
}

static int numa_of(const struct node *node, const struct cpuset *cpus)
{
	int found = -1;
	for (int n = 0; n < node->numas; n++)
		if (cpuset_intersects(cpus, &node->numa[n].cpus)) {
			if (found >= 0)
				return -1;
			found = n;
		}
	return found;
}

static int read_pus(hwloc_topology_t t, struct node *node)
{
	const struct hwloc_obj *previous = NULL;

	for (hwloc_obj_t p; (p = nth(t, HWLOC_OBJ_PU, (unsigned)node->pus)); node->pus++) {
		const struct hwloc_obj *core = p;
		struct cpuset self = { 0 };
		while (core && core->type != HWLOC_OBJ_CORE)
			core = core->parent;
		if (node->pus == CPUSET_MAX || p->os_index >= CPUSET_MAX)
			return -1;
		if (!core || core != previous)
			node->cores++;
		previous = core;
		cpuset_add(&self, (int)p->os_index);
		node->pu[node->pus] = (struct pu){ .cpu = (int)p->os_index, .core = node->cores - 1, .package = package_of(node, &self) };
	}
	copy_set(hwloc.topology_get_allowed_cpuset(t), &node->allowed);
	return 0;
}

static void read_locality(const struct node *node, hwloc_obj_t pci, struct locality *at)
{
	const struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;
	int bridges[64], n = 0;
	char text[32];
	unsigned long long order;
	hwloc_obj_t up = pci->parent;

	snprintf(text, sizeof text, "%04x:%02x:%02x.%x", a->domain, a->bus, a->dev, a->func & 7u);
	if (pci_parse(text, &order, at->pci))
		order = 0;
	at->order = order;
	for (; up && !up->cpuset; up = up->parent)
		if (up->type == HWLOC_OBJ_BRIDGE && n < 64)
			bridges[n++] = (int)up->gp_index;
	for (at->bridges = 0; n > 0 && at->bridges < NODE_MAX_BRIDGES; at->bridges++)
		at->bridge[at->bridges] = bridges[--n];
	copy_set(up ? up->cpuset : NULL, &at->cpus);
	at->package = package_of(node, &at->cpus);
	at->numa = numa_of(node, &at->cpus);
}

static void read_gpu(const struct node *node, hwloc_obj_t pci, struct gpu *gpu)
{
	read_locality(node, pci, &gpu->at);
	gpu->minor = -1;
	snprintf(gpu->model, sizeof gpu->model, "%s", info_of(pci, "PCIDevice"));
	for (hwloc_obj_t os = pci->io_first_child; os; os = os->next_sibling) {
		if (*info_of(os, "NVIDIAUUID"))
			snprintf(gpu->uuid, sizeof gpu->uuid, "%s", info_of(os, "NVIDIAUUID"));
		if (*info_of(os, "GPUModel"))
			snprintf(gpu->model, sizeof gpu->model, "%s", info_of(os, "GPUModel"));
	}
}

/* A function that is a virtual one of another device (SR-IOV); only the running machine can say. */
static bool is_virtual_function(const struct locality *at, bool live)
{
	char path[80];
	snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/physfn", at->pci);
	return live && !access(path, F_OK);
}

static void add_nics(struct node *node, hwloc_obj_t pci, bool live)
{
	for (hwloc_obj_t os = pci->io_first_child; os && node->nics < NODE_MAX_NICS; os = os->next_sibling) {
		struct nic *nic = &node->nic[node->nics];
		if (os->type != HWLOC_OBJ_OS_DEVICE || os->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS || !os->name)
			continue;
		read_locality(node, pci, &nic->at);
		if (is_virtual_function(&nic->at, live))
			continue;
		snprintf(nic->name, sizeof nic->name, "%s", os->name);
		nic->active = !strcmp(info_of(os, "Port1State"), "4") || !strcmp(info_of(os, "Port2State"), "4");
		node->nics++;
	}
}

static int read_devices(hwloc_topology_t t, struct node *node, bool live)
{
	hwloc_obj_t pci;
	for (unsigned n = 0; (pci = nth(t, HWLOC_OBJ_PCI_DEVICE, n)); n++) {
		const struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;
		if (a->vendor_id == VENDOR_NVIDIA && a->class_id >> 8 == CLASS_DISPLAY) {
			if (node->gpus == NODE_MAX_GPUS)
				return -1;
			struct gpu *gpu = &node->gpu[node->gpus];
			read_gpu(node, pci, gpu);
			if (!is_virtual_function(&gpu->at, live))
				node->gpus++;
		}
		add_nics(node, pci, live);
	}
	return 0;
}

static int read_topology(const char *xml, size_t length, const char *where, struct node *node, char *error, size_t size)
{
	/* these would open the GPU driver inside slurmstepd; PCI and sysfs say enough */
	static const char *const unwanted[] = { "opencl", "gl", "cuda", "nvml", "rsmi", "levelzero" };
	hwloc_topology_t t;
	int rc = -1;

	if (hwloc.topology_init(&t)) {
		snprintf(error, size, "hwloc cannot start");
		return -1;
	}
	for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++)
		hwloc.topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unwanted[i]);
	hwloc.topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	/* Slurm counts cores over the whole machine, also those that this process may not use */
	hwloc.topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
	if ((xml && hwloc.topology_set_xmlbuffer(t, xml, (int)length)) || hwloc.topology_load(t))
		snprintf(error, size, "%s: not an hwloc 2 topology", where);
	else if (read_packages(t, node) || read_numa(t, node) || read_pus(t, node) || read_devices(t, node, !xml))
		snprintf(error, size, "%s: more packages, NUMA nodes, CPUs or GPUs than expected (%d, %d, %d, %d)", where,
			NODE_MAX_PACKAGES, NODE_MAX_NUMA, CPUSET_MAX, NODE_MAX_GPUS);
	else if (!node->pus)
		snprintf(error, size, "%s: no CPU in it", where);
	else
		rc = 0;
	hwloc.topology_destroy(t);
	return rc;
}

/* ---- what the driver adds ------------------------------------------------------------------------ */

/* The driver knows minors and UUIDs, and which display functions it does not drive (passed through, virtual). */
static void merge_driver(struct node *node, const char *proc, char *note, size_t size)
{
	struct nvidia_gpu *driver = calloc(NODE_MAX_GPUS, sizeof *driver);
	int known = driver ? nvidia_read_proc(proc, driver, NODE_MAX_GPUS) : 0, kept = 0;

	if (!known && node->gpus)
		snprintf(note, size, "%d NVIDIA GPU%s, but nothing in %s/gpus: UUIDs and device numbers are unknown",
			node->gpus, node->gpus == 1 ? "" : "s", proc);
	for (int g = 0; known && g < node->gpus; g++) {
		int d = 0;
		while (d < known && strcmp(driver[d].pci, node->gpu[g].at.pci))
			d++;
		if (d == known) {
			snprintf(note, size, "GPU %s is not run by the NVIDIA driver: left out", node->gpu[g].at.pci);
			continue;
		}
		struct gpu gpu = node->gpu[g];
		gpu.minor = driver[d].minor;
		memcpy(gpu.uuid, driver[d].uuid, sizeof gpu.uuid);
		if (driver[d].model[0])
			memcpy(gpu.model, driver[d].model, sizeof gpu.model);
		node->gpu[kept++] = gpu;
	}
	if (known) {
		node->gpus = kept;
		if (kept < known)
			snprintf(note, size, "the NVIDIA driver runs %d GPUs, but only %d were found on the PCI bus", known, kept);
	}
	free(driver);
}

static void sort_gpus(struct node *node)
{
	for (int i = 1; i < node->gpus; i++)
		for (int k = i; k > 0 && node->gpu[k].at.order < node->gpu[k - 1].at.order; k--) {
			struct gpu other = node->gpu[k];
			node->gpu[k] = node->gpu[k - 1];
			node->gpu[k - 1] = other;
		}
}

int inventory_load(const struct inventory_source *source, struct node *node, char *error, size_t size)
{
	const char *proc = source->proc ? source->proc : source->topology ? NULL : "/proc/driver/nvidia";
	char *xml = NULL;
	size_t length = 0;
	void *library = NULL;
	int rc = -1;

	memset(node, 0, sizeof *node);
	if (size)
		error[0] = '\0';
	if (source->topology && !(xml = read_trusted(source->topology, source->trusted_only, &length, error, size)))
		goto out;
	if (source->trusted_only && source->proc && check_proc(source->proc, error, size))
		goto out;
	library = open_hwloc(error, size);
	if (!library || read_topology(xml, length, source->topology ? source->topology : "this machine", node, error, size))
		goto out;
	if (proc)
		merge_driver(node, proc, error, size);
	sort_gpus(node);
	rc = 0;
out:
	if (library)
		dlclose(library);
	free(xml);
	return rc;
}
