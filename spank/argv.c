/* SPDX-License-Identifier: Apache-2.0 */
#include "argv.h"

#include <string.h>

static const char *long_name(const struct option *table, int letter)
{
	for (; table->name; table++)
		if (table->val == letter)
			return table->name;
	return NULL;
}

/* Slurm's older names of options. */
static const char *today(const char *name)
{
	static const char *const renamed[][2] = { { "cpu_bind", "cpu-bind" }, { "pack-group", "het-group" }, { "tasks-per-node", "ntasks-per-node" } };
	for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
		if (!strcmp(name, renamed[i][0]))
			return renamed[i][1];
	return name;
}

static int scan_component(int argc, char *const argv[], int base, const struct option *table, const char *letters, struct argv_scan *out)
{
	int previous = 1, index = -1, c;

	optind = 0; /* glibc: forget the last scan */
	opterr = 0;
	while ((c = getopt_long(argc - base, argv + base, letters, table, &index)) != -1) {
		const char *name = c == '?' ? NULL : index >= 0 ? table[index].name : long_name(table, c);
		if (name) {
			if (out->options == ARGV_MAX_OPTIONS)
				return -1;
			out->option[out->options++] = (struct argv_option){ out->components, base + previous, today(name), optarg };
		}
		previous = optind;
		index = -1;
	}
	out->command[out->components++] = base + optind;
	return 0;
}

int argv_scan(int argc, char *const argv[], const struct option *table, const char *letters, bool steps, struct argv_scan *out)
{
	int saved_optind = optind, saved_opterr = opterr, saved_optopt = optopt, rc = 0;
	char *saved_optarg = optarg;

	out->options = out->components = 0;
	for (int base = 0; base < argc;) {
		if (out->components == ARGV_MAX_COMPONENTS || scan_component(argc, argv, base, table, letters, out)) {
			rc = -1;
			break;
		}
		int k = out->command[out->components - 1];
		while (steps && k < argc && strcmp(argv[k], ":"))
			k++;
		if (k >= argc || strcmp(argv[k], ":"))
			break;
		base = k;
	}
	optind = saved_optind;
	opterr = saved_opterr;
	optopt = saved_optopt;
	optarg = saved_optarg;
	return rc;
}

const char *argv_value(const struct argv_scan *scan, int component, const char *name)
{
	const char *value = NULL;
	for (int i = 0; i < scan->options; i++)
		if (scan->option[i].component == component && !strcmp(scan->option[i].name, name))
			value = scan->option[i].value ? scan->option[i].value : "";
	return value;
}
