/* SPDX-License-Identifier: Apache-2.0 */
#include "sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cores.h"
#include "files.h"
#include "nvidia.h"

enum { PATH_TEXT = 4096, CLASS_NETWORK = 0x02 };

static unsigned long hex_file(int device, const char *name)
{
	char text[32];
	return read_small_file(device, name, text, sizeof text) > 0 ? strtoul(text, NULL, 16) : 0;
}

/* The device's real place names every bridge above it: …/pci0000:00/0000:00:01.0/0000:01:00.0. The host bridge has
 * number -1 - domain * 256 - bus, the others their place in bus order. */
static void read_bridges(const char *bus, const char *name, struct locality *at)
{
	char path[PATH_TEXT], target[PATH_TEXT], address[16];
	unsigned domain, number;
	unsigned long long order;
	ssize_t n;

	snprintf(path, sizeof path, "%s/%s", bus, name);
	n = readlink(path, target, sizeof target - 1);
	target[n > 0 ? n : 0] = '\0';
	char *rest = target;
	for (char *part; (part = strsep(&rest, "/")) && rest && at->bridges < NODE_MAX_BRIDGES;) {
		if (sscanf(part, "pci%8x:%2x", &domain, &number) == 2)
			at->bridge[at->bridges++] = -1 - (int)(domain << 8 | number);
		else if (at->bridges && !pci_parse(part, &order, address))
			at->bridge[at->bridges++] = (int)order;
	}
}

static void read_locality(const struct node *node, const char *bus, int device, const char *name, struct locality *at)
{
	char text[CPULIST_TEXT];
	unsigned long long order = 0;

	*at = (struct locality){ 0 };
	pci_parse(name, &order, at->pci);
	at->order = order;
	if (read_small_file(device, "local_cpulist", text, sizeof text) < 0 || cpulist_parse(text, &at->cpus) || cpuset_empty(&at->cpus))
		at->cpus = node->allowed;
	at->package = package_of(node, &at->cpus);
	at->numa = numa_of(node, &at->cpus);
	read_bridges(bus, name, at);
}

/* The first port with "4: ACTIVE"; without one 0, or 1 where no port has a state. */
static int port_of(int device, const char *card)
{
	char path[PATH_TEXT], state[32];
	bool known = false;

	for (int port = 1; port <= 4; port++) {
		snprintf(path, sizeof path, "infiniband/%.64s/ports/%d/state", card, port);
		if (read_small_file(device, path, state, sizeof state) <= 0)
			continue;
		if (atoi(state) == 4)
			return port;
		known = true;
	}
	return !known;
}

static void add_cards(const char *bus, int device, const char *name, struct node *node)
{
	int fd = openat(device, "infiniband", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *cards = fd < 0 ? NULL : fdopendir(fd);

	for (struct dirent *e; cards && node->nics < NODE_MAX_NICS && (e = readdir(cards));) {
		struct nic *nic = &node->nic[node->nics];
		if (e->d_name[0] == '.' || strlen(e->d_name) >= sizeof nic->name)
			continue;
		snprintf(nic->name, sizeof nic->name, "%.31s", e->d_name);
		nic->port = port_of(device, nic->name);
		read_locality(node, bus, device, name, &nic->at);
		node->nics++;
	}
	if (cards)
		closedir(cards);
	else if (fd >= 0)
		close(fd);
}

static int add_gpu(const char *bus, int device, const char *name, struct node *node)
{
	if (node->gpus == NODE_MAX_GPUS)
		return -1;
	struct gpu *gpu = &node->gpu[node->gpus++];
	*gpu = (struct gpu){ .minor = -1 };
	read_locality(node, bus, device, name, &gpu->at);
	return 0;
}

/* A virtual function of another device (SR-IOV) is not a GPU or card of its own. */
static bool is_virtual(int device)
{
	return !faccessat(device, "physfn", F_OK, 0);
}

/* Most devices of a machine are neither GPU nor network card: their class says so, and nothing more is read of them. */
static int add_device(const char *bus, int device, const char *name, struct node *node)
{
	unsigned class = (unsigned)hex_file(device, "class") >> 8;

	if (class >> 8 == CLASS_NETWORK && !is_virtual(device))
		add_cards(bus, device, name, node);
	else if (class >> 8 == CLASS_DISPLAY && is_nvidia_gpu((unsigned)hex_file(device, "vendor"), class) && !is_virtual(device))
		return add_gpu(bus, device, name, node);
	return 0;
}

int read_pci_devices(const char *sys, struct node *node)
{
	char bus[PATH_TEXT - 64];
	int rc = 0;

	snprintf(bus, sizeof bus, "%.2000s/bus/pci/devices", sys);
	DIR *devices = opendir(bus);
	for (struct dirent *e; devices && !rc && (e = readdir(devices));) {
		int device = e->d_name[0] == '.' ? -1 : openat(dirfd(devices), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (device < 0)
			continue;
		rc = add_device(bus, device, e->d_name, node);
		close(device);
	}
	if (devices)
		closedir(devices);
	return rc;
}
