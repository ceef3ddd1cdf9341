/* SPDX-License-Identifier: Apache-2.0 */
#include "nvidia.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"

enum { VENDOR_NVIDIA = 0x10de };

bool is_nvidia_gpu(unsigned vendor, unsigned class)
{
	return vendor == VENDOR_NVIDIA && class >> 8 == CLASS_DISPLAY;
}

void copy_printable(const char *p, char *out, size_t size)
{
	size_t n = 0;
	while (*p == ' ' || *p == '\t')
		p++;
	for (; *p && *p != '\n' && n + 1 < size; p++)
		if (*p >= ' ' && *p <= '~')
			out[n++] = *p;
	while (n && out[n - 1] == ' ')
		n--;
	out[n] = '\0';
}

void nvidia_parse_information(const char *text, struct nvidia_gpu *out)
{
	out->uuid[0] = out->model[0] = '\0';
	out->minor = -1;
	for (const char *line = text; line; line = strchr(line, '\n')) {
		char number[8];
		if (*line == '\n')
			line++;
		if (!strncmp(line, "Model:", 6))
			copy_printable(line + 6, out->model, sizeof out->model);
		else if (!strncmp(line, "GPU UUID:", 9))
			copy_printable(line + 9, out->uuid, sizeof out->uuid);
		else if (!strncmp(line, "Device Minor:", 13)) {
			copy_printable(line + 13, number, sizeof number);
			if (number[0] && strspn(number, "0123456789") == strlen(number))
				out->minor = atoi(number);
		}
	}
	/* a GPU whose UUID is not known yet shows question marks */
	if (strncmp(out->uuid, "GPU-", 4) || strchr(out->uuid, '?'))
		out->uuid[0] = '\0';
}

int pci_parse(const char *text, unsigned long long *order, char canonical[16])
{
	unsigned domain, bus, device, function;
	int used = 0;

	if (!isxdigit((unsigned char)text[0]) || strlen(text) > 16)
		return -1;
	if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used) != 4 || text[used] || device > 31 || function > 7 || domain > 0xfffff)
		return -1;
	*order = ((unsigned long long)domain << 16) | bus << 8 | device << 3 | function;
	snprintf(canonical, 16, "%04x:%02x:%02x.%x", domain, bus, device, function);
	return 0;
}

static int read_information(int gpus, const char *name, struct nvidia_gpu *out)
{
	char path[64], text[4096];
	unsigned long long order;

	if (strlen(name) > 16 || pci_parse(name, &order, out->pci))
		return -1;
	snprintf(path, sizeof path, "%.16s/information", name);
	if (read_small_file(gpus, path, text, sizeof text) < 0)
		return -1;
	nvidia_parse_information(text, out);
	return 0;
}

/* The driver has DIR/capabilities/gpuMINOR/mig/giN for each of a GPU's instances. */
static bool has_instances(const char *dir, int minor)
{
	char path[4160];
	bool found = false;

	snprintf(path, sizeof path, "%s/capabilities/gpu%d/mig", dir, minor);
	DIR *instances = minor < 0 ? NULL : opendir(path);
	for (struct dirent *e; instances && !found && (e = readdir(instances));)
		found = !strncmp(e->d_name, "gi", 2);
	if (instances)
		closedir(instances);
	return found;
}

int nvidia_read_proc(const char *dir, struct nvidia_gpu *out, int max)
{
	char path[4096];
	int n = 0;

	snprintf(path, sizeof path, "%s/gpus", dir);
	DIR *gpus = opendir(path);
	if (!gpus)
		return 0;
	for (struct dirent *e; n < max && (e = readdir(gpus));)
		if (!read_information(dirfd(gpus), e->d_name, &out[n])) {
			out[n].divided = has_instances(dir, out[n].minor);
			n++;
		}
	closedir(gpus);
	return n;
}
