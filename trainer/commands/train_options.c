/* SPDX-License-Identifier: Apache-2.0
 * What a checkpoint says of the options that a training learned with, so that one that goes on with others can say so; and that all ranks have the same. */
#include "commands/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Batch, seed, window and image size have notes of their own, and are not only told. */
static const char *const noted[] = { "augment", "precision", "epochs",   "steps",        "learning-rate", "scaling",    "base-batch", "warmup-epochs",
				     "decay",   "momentum",  "weight-decay", "pos-weight", "loss-scale",    "dynamic-loss-scale", "patience" };

static void value_text(const struct option *o, const struct train_conf *conf, char *text, size_t size)
{
	const void *value = (const char *)conf + o->target;

	if (o->type == OPTION_FLAG)
		snprintf(text, size, "%s", *(const int *)value ? "yes" : "no");
	else if (o->type == OPTION_CHOICE)
		snprintf(text, size, "%s", o->choices[*(const int *)value]);
	else if (o->type == OPTION_INT)
		snprintf(text, size, "%d", *(const int *)value);
	else if (o->type == OPTION_U64)
		snprintf(text, size, "%llu", (unsigned long long)*(const uint64_t *)value);
	else
		snprintf(text, size, "%.10g", *(const double *)value);
}

static const struct option *find(const char *name)
{
	const struct option *o = train_options;

	while (!o->name || strcmp(o->name, name))
		o++;
	return o;
}

void train_note_options(const struct train_conf *conf, char *text, size_t size)
{
	size_t used = 0;

	*text = '\0';
	for (size_t i = 0; i < sizeof noted / sizeof noted[0] && used < size; i++) {
		char value[64];

		value_text(find(noted[i]), conf, value, sizeof value);
		used += (size_t)snprintf(text + used, size - used, "%s--%s=%s", i ? " " : "", noted[i], value);
	}
}

/* The value of --NAME in a line of train_note_options(), its length in *length; NULL: the line has none. */
static const char *value_in(const char *line, const char *name, int *length)
{
	char key[64];
	int n = snprintf(key, sizeof key, "--%s=", name);

	for (const char *word = line; *word; word += strcspn(word, " "), word += strspn(word, " ")) {
		*length = (int)strcspn(word, " ") - n;
		if (strncmp(word, key, (size_t)n) == 0)
			return word + n;
	}
	return NULL;
}

/* The values of the i-th noted option in two lines. Whether both have it, and another one each. */
static int changed(size_t i, const char *before, const char *options, char was[64], char is[64])
{
	int n_was, n_is;
	const char *old = value_in(before, noted[i], &n_was), *new = value_in(options, noted[i], &n_is);

	if (!old || !new)
		return 0;
	snprintf(was, 64, "%.*s", n_was, old);
	snprintf(is, 64, "%.*s", n_is, new);
	return strcmp(was, is) != 0;
}

void train_tell_changes(struct run_log *log, const char *before, const char *options)
{
	char was[64], is[64];

	for (size_t i = 0; i < sizeof noted / sizeof noted[0]; i++)
		if (changed(i, before, options, was, is))
			log_say(log, "--%s was %s and is %s now", noted[i], was, is);
}

void train_list_changes(const char *before, const char *options, char *text, size_t size)
{
	char was[64], is[64];
	size_t used = 0;

	*text = '\0';
	for (size_t i = 0; i < sizeof noted / sizeof noted[0] && used < size; i++)
		if (changed(i, before, options, was, is))
			used += (size_t)snprintf(text + used, size - used, "%s--%s=%s (%s then)", used ? ", " : "", noted[i], is, was);
}

/* ---- the same on all ranks --------------------------------------------------------------------------- */

/* What may differ from rank to rank. */
static const char *const own[] = { "threads", "decode-threads", "data-memory", "log-json", "tensorboard" };

static uint64_t option_word(const struct option *o, const struct train_conf *conf)
{
	const void *value = (const char *)conf + o->target;

	if (!o->name)
		return 0;
	for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
		if (strcmp(o->name, own[i]) == 0)
			return 0;
	if (o->type == OPTION_STRING) /* a path may be a node's own: only whether there is one */
		return *(char *const *)value != NULL;
	return world_hash(1, value, o->type == OPTION_INTS ? sizeof(struct option_ints) : o->type == OPTION_U64 || o->type == OPTION_REAL ? 8 : sizeof(int));
}

/* words: [ranks][n] of option_word(). */
static int compare(const struct world *w, const uint64_t *words, size_t n, struct error *e)
{
	for (size_t i = 0; i < n; i++)
		for (int r = 1; r < w->at->size; r++)
			if (words[(size_t)r * n + i] != words[i])
				return fail(e, EXIT_USAGE, "--%s is not on rank %d what it is on rank 0: every rank needs the same (is it drawn or reckoned in each task?)",
					    train_options[i].name, r);
	return 0;
}

int train_same_options(struct world *w, const struct train_conf *conf, struct error *e)
{
	size_t n = 0;

	while (train_options[n].help)
		n++;
	uint64_t *words = calloc(n * (size_t)(w->at->size + 1), sizeof *words), *mine = words ? words + n * (size_t)w->at->size : NULL;

	for (size_t i = 0; mine && i < n; i++)
		mine[i] = option_word(&train_options[i], conf);
	if (!words)
		fail(e, EXIT_INTERNAL, "no memory");
	else if (hvd_allgather(w->hvd, mine, words, n, HVD_U64) < 0)
		world_fail(w, e);
	else
		compare(w, words, n, e);
	free(words);
	return e->code == EXIT_USAGE ? world_agree(w, e) : -e->code;
}
