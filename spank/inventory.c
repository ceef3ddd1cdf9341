/* SPDX-License-Identifier: Apache-2.0 */
#include "inventory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cores.h"
#include "files.h"
#include "hwloc_library.h"
#include "nvidia.h"
#include "sysfs.h"

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

static int read_pus(hwloc_topology_t t, struct node *node)
{
	const struct hwloc_obj *previous = NULL;

	for (hwloc_obj_t p; (p = nth(t, HWLOC_OBJ_PU, (unsigned)node->pus)); node->pus++) {
		const struct hwloc_obj *core = p;
		while (core && core->type != HWLOC_OBJ_CORE)
			core = core->parent;
		if (node->pus == CPUSET_MAX || p->os_index >= CPUSET_MAX)
			return -1;
		if (!core || core != previous)
			node->cores++;
		previous = core;
		node->pu[node->pus] = (struct pu){ .cpu = (int)p->os_index, .core = node->cores - 1 };
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
	copy_printable(info_of(pci, "PCIDevice"), gpu->model, sizeof gpu->model);
	for (hwloc_obj_t os = pci->io_first_child; os; os = os->next_sibling) {
		if (*info_of(os, "NVIDIAUUID"))
			copy_printable(info_of(os, "NVIDIAUUID"), gpu->uuid, sizeof gpu->uuid);
		if (*info_of(os, "GPUModel"))
			copy_printable(info_of(os, "GPUModel"), gpu->model, sizeof gpu->model);
	}
}

/* The first port with a link, 0: none has one. Some descriptions leave the states out: then nothing is known to be down. */
static int port_of(hwloc_obj_t card)
{
	char name[16];
	bool known = false;

	for (int port = 1; port <= 4; port++) {
		snprintf(name, sizeof name, "Port%dState", port);
		if (!strcmp(info_of(card, name), "4"))
			return port;
		known |= *info_of(card, name) != '\0';
	}
	return !known;
}

static void add_nics(struct node *node, hwloc_obj_t pci)
{
	for (hwloc_obj_t os = pci->io_first_child; os && node->nics < NODE_MAX_NICS; os = os->next_sibling) {
		struct nic *nic = &node->nic[node->nics];
		if (os->type != HWLOC_OBJ_OS_DEVICE || os->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS || !os->name)
			continue;
		read_locality(node, pci, &nic->at);
		copy_printable(os->name, nic->name, sizeof nic->name);
		nic->port = port_of(os);
		node->nics++;
	}
}

static int read_devices(hwloc_topology_t t, struct node *node)
{
	hwloc_obj_t pci;
	for (unsigned n = 0; (pci = nth(t, HWLOC_OBJ_PCI_DEVICE, n)); n++) {
		const struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;
		if (is_nvidia_gpu(a->vendor_id, a->class_id)) {
			if (node->gpus == NODE_MAX_GPUS)
				return -1;
			read_gpu(node, pci, &node->gpu[node->gpus++]);
		}
		add_nics(node, pci);
	}
	return 0;
}

static int read_topology(const char *xml, size_t length, const char *where, const char *sys, struct node *node, char *error, size_t size)
{
	hwloc_topology_t t = hwloc_load(xml, length);
	int rc = -1;

	if (!t) {
		snprintf(error, size, "%s: not an hwloc 2 topology", where);
		return -1;
	}
	if (read_packages(t, node) || read_numa(t, node) || read_pus(t, node) || (xml ? read_devices(t, node) : read_pci_devices(sys, node)))
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

	if (!known && !node->gpus)
		snprintf(note, size, "no NVIDIA GPU on the PCI bus, and none in %s/gpus", proc);
	else if (!known)
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
		gpu.divided = driver[d].divided;
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
	if (source->topology && !(xml = read_whole_file(source->topology, source->trusted_only, &length, error, size)))
		goto out;
	if (source->trusted_only && source->proc && check_directory(source->proc, error, size))
		goto out;
	library = hwloc_library_open(error, size);
	if (!library || read_topology(xml, length, source->topology ? source->topology : "this machine", source->sys ? source->sys : "/sys", node, error, size))
		goto out;
	if (proc)
		merge_driver(node, proc, error, size);
	sort_gpus(node);
	rc = 0;
out:
	hwloc_library_close(library);
	free(xml);
	return rc;
}
