/* SPDX-License-Identifier: Apache-2.0 */
#include "gres_conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- names with ranges --------------------------------------------------------------------------- */

/* True if one of the comma-separated ranges up to `end` holds the number, written with the zeros that give it the width of the range's first: 01, 99, 100. */
static bool range_has(const char *p, const char *end, const char *digits, size_t width)
{
	long number = strtol(digits, NULL, 10);
	while (p < end) {
		char *next;
		size_t first_width = strspn(p, "0123456789");
		long low = strtol(p, &next, 10), high = low;
		if (!first_width)
			return false;
		if (*next == '-')
			high = strtol(next + 1, &next, 10);
		if (number >= low && number <= high && (width == first_width || (width > first_width && *digits != '0')))
			return true;
		p = next + (*next == ',');
	}
	return false;
}

/* One item such as "gpu[01-16]x" against the whole host name. */
static bool item_is(const char *item, const char *end, const char *host)
{
	while (item < end) {
		if (*item != '[') {
			if (*item++ != *host++)
				return false;
			continue;
		}
		const char *close = memchr(item, ']', (size_t)(end - item));
		size_t width = strspn(host, "0123456789");
		if (!close || !width || width > 9 || !range_has(item + 1, close, host, width))
			return false;
		host += width;
		item = close + 1;
	}
	return !*host;
}

bool hostlist_has(const char *list, const char *host)
{
	for (const char *p = list;; p++) {
		const char *end = p;
		for (bool inside = false; *end && (*end != ',' || inside); end++)
			inside = *end == '[' || (inside && *end != ']');
		if (item_is(p, end, host))
			return true;
		p = end;
		if (!*p)
			return false;
	}
}

/* "/dev/nvidia3" or "/dev/nvidia[3,0-2]", or several of them with commas between, to minors in the order in which they are written, which
 * is Slurm's. Returns how many there are, at most one more than GRES_MAX_GPUS; -1 for anything else. */
static int file_minors(const char *file, int minors[GRES_MAX_GPUS + 1])
{
	static const char prefix[] = "/dev/nvidia";
	bool many = false; /* between [ and ] */
	int n = 0;

	for (;;) {
		char range[32];
		struct cpuset some;
		if (!many) {
			if (strncmp(file, prefix, sizeof prefix - 1))
				return -1;
			file += sizeof prefix - 1;
			many = *file == '[';
			file += many;
		}
		const size_t length = strcspn(file, ",]");
		snprintf(range, sizeof range, "%.*s", (int)length, file);
		if (length >= sizeof range || cpulist_parse(range, &some) || cpuset_empty(&some))
			return -1;
		for (int m = cpuset_next(&some, 0); m >= 0 && n <= GRES_MAX_GPUS; m = cpuset_next(&some, m + 1))
			minors[n++] = m;
		file += length;
		if (many && *file == ']') {
			many = false;
			file++;
		}
		if (!*file)
			return many ? -1 : n;
		if (*file++ != ',')
			return -1;
	}
}

/* ---- lines --------------------------------------------------------------------------------------- */

/* The value of KEY= in the line, up to the next space, into buf without quotation marks; false if it is not there. Keys are of
 * any case; spaces may stand around the =, as for Slurm. */
static bool value_of(const char *line, const char *key, char *buf, size_t size)
{
	static const char space[] = " \t\r\n";

	for (const char *p = line + strspn(line, space); *p; p += strspn(p, space)) {
		const size_t n = strcspn(p, " \t\r\n=");
		const char *value = p + n + strspn(p + n, space);
		if (*value != '=') {
			p += n;
			continue;
		}
		value += 1 + strspn(value + 1, space);
		const bool quoted = *value == '"';
		value += quoted;
		const size_t length = strcspn(value, quoted ? "\"" : space);
		if (n == strlen(key) && !strncasecmp(p, key, n)) {
			snprintf(buf, size, "%.*s", (int)length, value);
			return true;
		}
		p = value + length + (quoted && value[length]);
	}
	return false;
}

/* `value`: room for what the line says. */
static int add_line(const char *line, int number, char *value, size_t room, struct gres_conf *out, char *error, size_t size)
{
	int minors[GRES_MAX_GPUS + 1], files;
	struct cpuset set = { 0 };

	if (!value_of(line, "File", value, room))
		return 0;
	files = file_minors(value, minors);
	if (files < 0) {
		snprintf(error, size, "line %d: File=%.64s: /dev/nvidiaN or /dev/nvidia[N-M] expected", number, value);
		return -1;
	}
	const bool has_cores = (value_of(line, "Cores", value, room) || value_of(line, "CPUs", value, room)) && *value;
	if (has_cores && cpulist_parse(value, &set)) {
		snprintf(error, size, "line %d: Cores=%.64s: a list such as 0-15 expected", number, value);
		return -1;
	}
	for (int i = 0; i < files; i++) {
		if (out->gpus == GRES_MAX_GPUS) {
			snprintf(error, size, "line %d: more than %d GPUs", number, GRES_MAX_GPUS);
			return -1;
		}
		struct gres_gpu *gpu = &out->gpu[out->gpus++];
		*gpu = (struct gres_gpu){ .minor = minors[i], .line = number, .has_cores = has_cores, .cores = set };
		value_of(line, "Type", gpu->type, sizeof gpu->type);
	}
	return 0;
}

/* Other words than these two find no NVIDIA GPU. */
static void read_autodetect(const char *value, struct gres_conf *out)
{
	out->autodetect = !strcasecmp(value, "nvml") || !strcasecmp(value, "nvidia");
	out->by_file = !strcasecmp(value, "nvidia");
}

/* Copies the line that starts at p, with those that a \ at its end joins to it. Returns where the next one starts. */
static const char *take_line(const char *p, char *line, int *lines)
{
	for (bool more = true; more; p += *p == '\n') {
		size_t len = strcspn(p, "\n");
		more = len && p[len - 1] == '\\' && p[len];
		line = mempcpy(line, p, len - more);
		p += len;
		++*lines;
	}
	*line = '\0';
	return p;
}

/* `line` and `value` have room for the whole text: slurmd reads lines of any length. */
static int read_lines(const char *text, char *line, char *value, size_t room, struct gres_conf *out, char *error, size_t size)
{
	bool node_says = false; /* an AutoDetect= beside NodeName=, which holds before one for all nodes wherever that stands */
	int lines = 0;

	for (const char *p = text; *p;) {
		const int number = lines + 1;
		p = take_line(p, line, &lines);
		line[strcspn(line, "#")] = '\0';
		const char *word = line + strspn(line, " \t");
		const bool for_node = value_of(line, "NodeName", value, room);
		if (for_node && !hostlist_has(value, out->node)) {
			out->for_others = true;
			continue;
		}
		if (value_of(line, "AutoDetect", value, room) && (for_node || !node_says)) {
			read_autodetect(value, out);
			node_says = for_node;
		}
		if (!out->unread && (!strncasecmp(word, "include ", 8) || value_of(line, "MultipleFiles", value, room)))
			out->unread = number;
		if (value_of(line, "Name", value, room) && !strcasecmp(value, "gpu") && add_line(line, number, value, room, out, error, size))
			return -1;
	}
	return 0;
}

int gres_conf_parse(const char *text, const char *node_name, struct gres_conf *out, char *error, size_t size)
{
	const size_t room = strlen(text) + 1;
	char *line = malloc(room), *value = malloc(room);
	int rc = -1;

	*out = (struct gres_conf){ .node = node_name };
	if (line && value)
		rc = read_lines(text, line, value, room, out, error, size);
	else
		snprintf(error, size, "out of memory");
	free(line);
	free(value);
	return rc;
}
