/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices.h"

enum kind {
	WORD,   /* key alone; the field becomes .value */
	CHOICE, /* key=one of .words; the field becomes its index */
	NUMBER, /* key=decimal in .low … .high */
	SECONDS, /* the same, which may have a fraction; the field is its text */
	TEXT,   /* key=anything printable without a comma, up to .high - 1 bytes */
};

struct row {
	int scope;
	const char *key;
	enum kind kind;
	size_t field;
	int value;
	const char *words; /* "abort|continue" */
	int low, high;
	const char *help;
};

#define AT(field) offsetof(struct options, field)

static const struct row rows[] = {
	{ SCOPE_HVD, "on", WORD, AT(off), 0, NULL, 0, 0, "without any key: for SLURM_HVD=on, and where the batch script gave some" },
	{ SCOPE_HVD, "off", WORD, AT(off), 1, NULL, 0, 0, "switch off an --hvd that the batch script or the environment gave" },
	{ SCOPE_HVD, "on_death", CHOICE, AT(on_death), 0, "abort|continue", 0, 0, "when a rank dies: end the job (default), or go on with the others" },
	{ SCOPE_HVD, "deadline", SECONDS, AT(deadline), 0, NULL, 1, 86400, "seconds without a sign of life after which a rank counts as dead (60)" },
	{ SCOPE_HVD, "backend", CHOICE, AT(backend), 0, "auto|nccl|cpu", 0, 0, "what carries the collectives; auto (default): NCCL where every rank can use a GPU, the CPU where none can" },
	{ SCOPE_HVD, "trace", TEXT, AT(trace), 0, NULL, 0, 1024, "directory for the ranks' traces" },
	{ SCOPE_HVD, "iface", TEXT, AT(iface), 0, NULL, 0, 64, "network interface of the control connections (the first that is up)" },

	{ SCOPE_BIND, "socket", WORD, AT(policy), POLICY_SOCKET, NULL, 0, 0, "all CPUs of the GPU's socket" },
	{ SCOPE_BIND, "numa", WORD, AT(policy), POLICY_NUMA, NULL, 0, 0, "all CPUs of the GPU's NUMA node" },
	{ SCOPE_BIND, "gpu", WORD, AT(policy), POLICY_GPU, NULL, 0, 0, "the cores nearest to the GPU, divided among the tasks that share them" },
	{ SCOPE_BIND, "none", WORD, AT(policy), POLICY_NONE, NULL, 0, 0, "leave the CPUs as Slurm set them; each task still gets its GPU" },
	{ SCOPE_BIND, "spread", WORD, AT(order), ORDER_SPREAD, NULL, 0, 0, "few tasks over many sockets, ranks in bus order of their GPUs" },
	{ SCOPE_BIND, "pack", WORD, AT(order), ORDER_PACK, NULL, 0, 0, "socket after socket" },
	{ SCOPE_BIND, "interleave", WORD, AT(order), ORDER_INTERLEAVE, NULL, 0, 0, "ranks over the sockets in turn" },
	{ SCOPE_BIND, "smt", CHOICE, AT(no_smt), 0, "on|off", 0, 0, "off: one hardware thread of each core" },
	{ SCOPE_BIND, "ids", CHOICE, AT(ids), 0, "uuid|index", 0, 0, "how CUDA_VISIBLE_DEVICES names the GPU" },
	{ SCOPE_BIND, "gpus-per-task", NUMBER, AT(gpus_per_task), 0, NULL, 1, TASK_MAX_DEVICES, "GPUs of each task" },
	{ SCOPE_BIND, "share", WORD, AT(share), 1, NULL, 0, 0, "allow more tasks than GPUs" },
	{ SCOPE_BIND, "nic", CHOICE, AT(nic_hint), 1, "hint", 0, 0, "also tell NCCL and UCX which NIC is near" },
	{ SCOPE_BIND, "verbose", WORD, AT(verbose), 1, NULL, 0, 0, "print a line per task" },

	{ SCOPE_STEP, "joined", WORD, AT(hvd), 1, NULL, 0, 0, "" },
	{ SCOPE_STEP, "by-site", WORD, AT(by_site), 1, NULL, 0, 0, "" },
	{ SCOPE_STEP, "keep-cpus", WORD, AT(keep_cpus), 1, NULL, 0, 0, "" },
	{ SCOPE_STEP, "keep-gpus", WORD, AT(keep_gpus), 1, NULL, 0, 0, "" },
	{ SCOPE_STEP, "keep-memory", WORD, AT(keep_memory), 1, NULL, 0, 0, "" },
	{ SCOPE_STEP, "whole-job", WORD, AT(whole_job), 1, NULL, 0, 0, "" },
	{ SCOPE_STEP, "overlap", WORD, AT(overlap), 1, NULL, 0, 0, "" },
	{ SCOPE_STEP, "ntasks-per-socket", WORD, AT(per_socket), 1, NULL, 0, 0, "" },
	{ SCOPE_STEP, "ntasks-per-core", WORD, AT(per_core), 1, NULL, 0, 0, "" },
	{ SCOPE_STEP, "ntasks-per-gpu", WORD, AT(per_gpu), 1, NULL, 0, 0, "" },
	{ SCOPE_STEP, "by-gres", WORD, AT(by_gres), 1, NULL, 0, 0, "" },
	{ SCOPE_STEP, "own-mps", WORD, AT(own_mps), 1, NULL, 0, 0, "" },
	{ SCOPE_STEP, "own-gres", WORD, AT(own_gres), 1, NULL, 0, 0, "" },
	{ SCOPE_STEP, "hide-gpus", WORD, AT(hide_gpus), 1, NULL, 0, 0, "" },
};

enum { ROWS = sizeof rows / sizeof *rows, KEY_MAX = 64 };

struct options options_default(void)
{
	return (struct options){ .gpus_per_task = 1 };
}

static int *number_at(const struct options *o, const struct row *row)
{
	return (int *)((char *)o + row->field);
}

static char *text_at(const struct options *o, const struct row *row)
{
	return (char *)o + row->field;
}

/* ---- words --------------------------------------------------------------------------------------- */

static int smaller(int a, int b)
{
	return a < b ? a : b;
}

/* Levenshtein distance, for "did you mean". */
static int edit_distance(const char *a, const char *b)
{
	int line[KEY_MAX + 1], n = (int)strlen(b);
	for (int j = 0; j <= n; j++)
		line[j] = j;
	for (int i = 1; a[i - 1]; i++) {
		int corner = line[0];
		line[0] = i;
		for (int j = 1; j <= n; j++) {
			int above = line[j];
			line[j] = smaller(smaller(above, line[j - 1]) + 1, corner + (tolower((unsigned char)a[i - 1]) != b[j - 1]));
			corner = above;
		}
	}
	return line[n];
}

/* Half a word is nearer than any other word of that length. */
static const char *nearest_key(int scopes, const char *key, int *distance)
{
	const char *best = "";
	*distance = KEY_MAX;
	for (int r = 0; r < ROWS; r++) {
		bool part = strlen(key) > 1 && !strncmp(key, rows[r].key, strlen(key));
		int d = !(rows[r].scope & scopes) ? KEY_MAX : smaller(edit_distance(key, rows[r].key), part ? 1 : KEY_MAX);
		if (d < *distance) {
			*distance = d;
			best = rows[r].key;
		}
	}
	return best;
}

/* A word of the other option that is mistyped by a letter or two is meant, where none of this option's is as near. */
static int refuse_key(int scopes, const char *name, const char *key, char *error, size_t size)
{
	const char *other = scopes & SCOPE_HVD ? "--hvd-bind" : "--hvd";
	int distance, of_all;
	const char *nearest = nearest_key(scopes, key, &distance), *any = nearest_key(SCOPE_HVD | SCOPE_BIND, key, &of_all);

	if (!strcmp(any, key))
		snprintf(error, size, "%s: '%s' is a word of %s", name, key, other);
	else if (of_all < distance && of_all <= 2 && of_all < (int)strlen(any))
		snprintf(error, size, "%s: unknown key '%s'; '%s' is a word of %s", name, key, any, other);
	else
		snprintf(error, size, "%s: unknown key '%s', the nearest known one is '%s'", name, key, nearest);
	return -1;
}

/* Index of the word in "a|b|c", or -1. */
static int choice_index(const char *words, const char *word)
{
	size_t n = strlen(word);
	for (int i = 0; *words; i++) {
		size_t len = strcspn(words, "|");
		if (len == n && !memcmp(words, word, n))
			return i;
		words += len + (words[len] == '|');
	}
	return -1;
}

static void choice_word(const char *words, int index, char *buf, size_t size)
{
	for (; index > 0; index--)
		words += strcspn(words, "|") + 1;
	snprintf(buf, size, "%.*s", (int)strcspn(words, "|"), words);
}

static bool parse_number(const char *text, int low, int high, int *out)
{
	size_t n = strlen(text);
	if (!n || n > 9 || strspn(text, "0123456789") != n)
		return false;
	const int number = atoi(text);
	if (number < low || number > high)
		return false;
	*out = number;
	return true;
}

/* As HVD_DEADLINE has them for libhvd. */
static bool parse_seconds(const char *text, int low, int high, char out[SECONDS_TEXT])
{
	char whole[SECONDS_TEXT];
	size_t n = strspn(text, "0123456789"), digits = text[n] == '.' ? strspn(text + n + 1, "0123456789") : 0;
	int number;

	if (strlen(text) >= SECONDS_TEXT || text[digits ? n + 1 + digits : n])
		return false;
	snprintf(whole, sizeof whole, "%.*s", (int)n, text);
	if (!parse_number(whole, low, high, &number) || (digits && number == high && strspn(text + n + 1, "0") < digits))
		return false;
	strcpy(out, text);
	return true;
}

static bool is_plain(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 127 || (*text == '\xc2' && (text[1] & 0xe0) == 0x80)) /* C1 in UTF-8 */
			return false;
	return true;
}

/* ---- parsing ------------------------------------------------------------------------------------- */

static const struct row *find_row(int scopes, const char *key)
{
	for (int r = 0; r < ROWS; r++)
		if (rows[r].scope & scopes && !strcmp(rows[r].key, key))
			return &rows[r];
	return NULL;
}

/* Rows of one field exclude each other: the last one given is the one that counts. */
static void mark_given(struct options *o, const struct row *row)
{
	for (int r = 0; r < ROWS; r++)
		if (rows[r].field == row->field)
			o->given &= ~(UINT64_C(1) << r);
	o->given |= UINT64_C(1) << (row - rows);
}

static int set_value(struct options *o, const struct row *row, const char *name, const char *value, char *error, size_t size)
{
	int index;

	switch (row->kind) {
	case WORD:
		*number_at(o, row) = row->value;
		if (!value)
			return 0;
		snprintf(error, size, "%s: %s takes no value", name, row->key);
		return -1;
	case CHOICE:
		index = value ? choice_index(row->words, value) : -1;
		*number_at(o, row) = row->value + index;
		if (index >= 0)
			return 0;
		snprintf(error, size, "%s: %s=%.64s: %s expected", name, row->key, value ? value : "", row->words);
		return -1;
	case NUMBER:
	case SECONDS:
		if (value && (row->kind == NUMBER ? parse_number(value, row->low, row->high, number_at(o, row)) : parse_seconds(value, row->low, row->high, text_at(o, row))))
			return 0;
		snprintf(error, size, "%s: %s=%.64s: a number from %d to %d expected", name, row->key, value ? value : "", row->low, row->high);
		return -1;
	case TEXT:
		if (value && *value && strlen(value) < (size_t)row->high && is_plain(value)) {
			strcpy(text_at(o, row), value);
			return 0;
		}
		snprintf(error, size, "%s: %s=…: 1 to %d printable characters expected", name, row->key, row->high - 1);
		return -1;
	}
	return -1;
}

static int set_item(struct options *o, int scopes, const char *name, char *item, uint64_t *fields, char *error, size_t size)
{
	char *value = strchr(item, '=');
	if (value)
		*value++ = '\0';
	const struct row *row = strlen(item) < KEY_MAX ? find_row(scopes, item) : NULL;

	if (!row) {
		item[strnlen(item, KEY_MAX - 1)] = '\0';
		return refuse_key(scopes, name, item, error, size);
	}
	for (int r = 0; r < ROWS; r++)
		if (*fields >> r & 1 && rows[r].field == row->field) {
			if (&rows[r] == row)
				snprintf(error, size, "%s: '%s' is given twice", name, row->key);
			else
				snprintf(error, size, "%s: '%s' and '%s' exclude each other: say one of them once", name, rows[r].key, row->key);
			return -1;
		}
	if (set_value(o, row, name, value, error, size))
		return -1;
	*fields |= UINT64_C(1) << (row - rows);
	mark_given(o, row);
	return 0;
}

int options_parse(struct options *o, int scopes, const char *name, const char *text, char *error, size_t size)
{
	struct options parsed = *o;
	char copy[4096];
	uint64_t fields = 0;

	if (!text || !*text)
		return 0;
	if (strlen(text) >= sizeof copy || !is_plain(text)) {
		snprintf(error, size, "%s: longer than %zu characters, or with control characters in it", name, sizeof copy - 1);
		return -1;
	}
	strcpy(copy, text);
	for (char *item = copy; item;) {
		char *next = strchr(item, ',');
		if (next)
			*next++ = '\0';
		if (set_item(&parsed, scopes, name, item, &fields, error, size))
			return -1;
		item = next;
	}
	*o = parsed;
	return 0;
}

bool options_leave_text(struct options *o, const char *key, const char *value)
{
	for (int r = 0; r < ROWS; r++)
		if (rows[r].kind == TEXT && !strcasecmp(rows[r].key, key) && (strchr(value, ',') || strlen(value) >= (size_t)rows[r].high || !is_plain(value))) {
			o->given &= ~(UINT64_C(1) << r);
			return true;
		}
	return false;
}

bool options_given(const struct options *o, const char *key)
{
	for (int r = 0; r < ROWS; r++)
		if (!strcmp(rows[r].key, key))
			return o->given >> r & 1;
	return false;
}

/* ---- printing ------------------------------------------------------------------------------------ */

static void print_value(const struct options *o, const struct row *row, char *buf, size_t size)
{
	if (row->kind == CHOICE)
		choice_word(row->words, *number_at(o, row) - row->value, buf, size);
	else if (row->kind == NUMBER)
		snprintf(buf, size, "%d", *number_at(o, row));
	else if (row->kind == TEXT || row->kind == SECONDS)
		snprintf(buf, size, "%s", text_at(o, row));
	else
		buf[0] = '\0';
}

char *options_print(const struct options *o, int scopes, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (int r = 0; r < ROWS; r++) {
		char value[1024];
		if (!(o->given >> r & 1) || !(rows[r].scope & scopes))
			continue;
		print_value(o, &rows[r], value, sizeof value);
		int n = snprintf(buf + used, size - used, "%s%s%s%s", used ? "," : "", rows[r].key, rows[r].kind == WORD ? "" : "=", value);
		if (n < 0 || (size_t)n >= size - used) {
			buf[0] = '\0';
			break;
		}
		used += (size_t)n;
	}
	return buf;
}

void options_export(const struct options *o, void (*use)(const char *name, const char *value, void *data), void *data)
{
	for (int r = 0; r < ROWS; r++) {
		char name[KEY_MAX + 4] = "HVD_", value[1024];
		if (!(o->given >> r & 1) || rows[r].scope != SCOPE_HVD || rows[r].kind == WORD)
			continue;
		for (size_t i = 0; rows[r].key[i]; i++)
			name[4 + i] = (char)toupper((unsigned char)rows[r].key[i]);
		print_value(o, &rows[r], value, sizeof value);
		use(name, value, data);
	}
}

void options_describe(int scopes, void (*line)(const char *text, void *data), void *data)
{
	for (int r = 0; r < ROWS; r++) {
		char word[96], text[256];
		if (!(rows[r].scope & scopes))
			continue;
		if (rows[r].kind == WORD)
			snprintf(word, sizeof word, "%s", rows[r].key);
		else
			snprintf(word, sizeof word, "%s=%s", rows[r].key, rows[r].kind == CHOICE ? rows[r].words : rows[r].kind == TEXT ? "NAME" : "N");
		snprintf(text, sizeof text, "  %-24s %s", word, rows[r].help);
		line(text, data);
	}
}

static void print_line(const char *text, void *out)
{
	fprintf(out, "%s\n", text);
}

bool options_help(int scope, const char *text, FILE *out)
{
	if (!text || strcmp(text, "help"))
		return false;
	fprintf(out, scope == SCOPE_HVD ? "--hvd[=KEY=VALUE,…]: one task per GPU, joined into one data-parallel world. Keys:\n" :
		"--hvd-bind=WORD,…: CPUs, memory and NIC near each task's GPU. Words:\n");
	options_describe(scope, print_line, out);
	fprintf(out, "The manual page spank_hvd(8) says more.\n");
	return true;
}

/* ---- plugstack.conf ------------------------------------------------------------------------------ */

static const char *const site_keys = "hvd|hvd-bind|enable|aliases|topology|proc|verbose-max|numbers";
enum site_key { SITE_HVD, SITE_HVD_BIND, SITE_ENABLE, SITE_ALIASES, SITE_TOPOLOGY, SITE_PROC, SITE_VERBOSE_MAX, SITE_NUMBERS }; /* in this order */

static int set_site_text(char *field, size_t room, const char *key, const char *value, char *error, size_t size)
{
	if (value[0] == '/' && strlen(value) < room && is_plain(value)) {
		strcpy(field, value);
		return 0;
	}
	snprintf(error, size, "plugstack.conf: %s=%.64s: an absolute path expected", key, value);
	return -1;
}

/* `first`: what the first of the choices stands for. */
static int set_site_choice(int *field, const char *choices, int first, const char *key, const char *value, char *error, size_t size)
{
	const int n = choice_index(choices, value);

	if (n < 0) {
		snprintf(error, size, "plugstack.conf: %s=%.64s: %s expected", key, value, choices);
		return -1;
	}
	*field = first + n;
	return 0;
}

static int set_site_number(int *field, int most, const char *key, const char *value, char *error, size_t size)
{
	if (parse_number(value, 0, most, field))
		return 0;
	snprintf(error, size, "plugstack.conf: %s=%.64s: a number from 0 to %d expected", key, value, most);
	return -1;
}

static int set_site(struct site *site, const char *key, const char *value, char *error, size_t size)
{
	switch (choice_index(site_keys, key)) {
	case SITE_HVD:
		if (options_parse(&site->defaults, SCOPE_HVD, "plugstack.conf: hvd", value, error, size))
			return -1;
		if (options_given(&site->defaults, "on"))
			snprintf(error, size, "plugstack.conf: hvd=on switches nothing on: steps join where their user says --hvd");
		else if (site->defaults.off)
			snprintf(error, size, "plugstack.conf: hvd=off switches nothing off: write enable=never");
		else
			return 0;
		return -1;
	case SITE_HVD_BIND:
		return options_parse(&site->defaults, SCOPE_BIND, "plugstack.conf: hvd-bind", value, error, size);
	case SITE_TOPOLOGY:
		return set_site_text(site->topology, sizeof site->topology, key, value, error, size);
	case SITE_PROC:
		return set_site_text(site->proc, sizeof site->proc, key, value, error, size);
	case SITE_ENABLE:
		return set_site_choice(&site->enable, "option|always|never", ENABLE_OPTION, key, value, error, size);
	case SITE_ALIASES:
		return set_site_choice(&site->aliases, "off|on", 0, key, value, error, size);
	case SITE_NUMBERS:
		return set_site_choice(&site->numbers, "bus|minor", NUMBERS_BUS, key, value, error, size);
	case SITE_VERBOSE_MAX:
		return set_site_number(&site->verbose_max, 100000, key, value, error, size);
	default:
		snprintf(error, size, "plugstack.conf: unknown key '%.64s'; known are %s", key, site_keys);
		return -1;
	}
}

int site_parse(struct site *site, int argc, char *const argv[], char *error, size_t size)
{
	size_t used = 0;
	int rc = 0;

	*site = (struct site){ .aliases = 1, .verbose_max = 64, .defaults = options_default() };
	for (int i = 0; i < argc; i++) {
		char key[KEY_MAX], why[256];
		size_t n = strcspn(argv[i], "=");
		snprintf(key, sizeof key, "%.*s", (int)smaller((int)n, KEY_MAX - 1), argv[i]);
		const char *value = argv[i][n] ? argv[i] + n + 1 : "", *cr = strchr(argv[i], '\r');
		if (cr && !cr[1])
			snprintf(why, sizeof why, "plugstack.conf: the line ends as on Windows (CR), so that '%.*s' is not read: sed -i 's/\\r$//' cures the file",
				smaller((int)(cr - argv[i]), 64), argv[i]);
		else if (!set_site(site, key, value, why, sizeof why))
			continue;
		snprintf(error + used, size - used, "%s%s", rc ? "; " : "", why);
		used += strlen(error + used);
		rc = -1;
	}
	return rc;
}
