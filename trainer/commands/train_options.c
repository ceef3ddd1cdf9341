/* SPDX-License-Identifier: Apache-2.0
 * The options of a training: what they are, what a checkpoint says of those that it learned with, so that one that goes on with others can say so, and that all
 * ranks have the same. */
#include "commands/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

const char *const optimizer_choices[] = { "adam", "sgd", NULL };
static const char *const scaling_words[] = { "none", "sqrt", "linear", NULL };
static const char *const decay_words[] = { "constant", "cosine", "plateau", NULL };
static const char *const pos_weight_words[] = { "none", "balanced", NULL };

const struct option train_options[] = {
	OPTION_GROUP("Data"),
	OPTION(STRING, struct train_conf, data, "data", "DIR", NULL, "prepared data set (chexnet prepare); without it built-in synthetic X-rays"),
	OPTION(STRING, struct train_conf, mask, "mask", "FINDINGS|file:PATH", NULL,
	       "labels that are neither learnt nor judged: findings with commas between them, or rows of image,Mass|Hernia (All: all of an image's)"),
	OPTION(INT, struct train_conf, shuffle_window, "shuffle-window", "FILES", "0",
	       "for cold network storage: shuffle so many files at a time, each read front to back before its images are wanted; 0: all images at once",
	       .min = 0, .max = 99999),
	OPTION(FLAG, struct train_conf, augment, "augment", NULL, "yes", "random window and mirroring in training"),
	OPTION(FLAG, struct train_conf, allow_leak, "allow-leak", NULL, NULL, "train although splits share patients, and stamp every result"),
	OPTION(INT, struct train_conf, decode_threads, "decode-threads", "N", "0", "threads that decode images; 0: where a GPU computes up to 16, as this rank's share of its CPUs allows, else one, and one more per 8 CPUs",
	       .min = 0, .max = 256),
	OPTION(INT, struct train_conf, data_memory, "data-memory", "MIB", "-1",
	       "memory of a rank for decoded images, which then are decoded once; 0: none; -1: its share of a quarter of what is available",
	       .min = -1, .max = 1 << 24),
	OPTION(FLAG, struct train_conf, resident, "resident", NULL, NULL,
	       "CUDA: decode all training images before the first step and keep them in the GPU's memory"),
	NETWORK_OPTIONS(struct train_conf, network, "0", 0, "side of the square that enters the network; 0: 7/8 of the prepared images (224 of 256), or close to it the multiple of 32 that the cells of a DenseNet's activation maps cover (of 4, 8 or 16 where it has fewer blocks)"),
	OPTION(STRING, struct train_conf, weights, "weights", "FILE", NULL, "safetensors file to start from; it brings its network"),
	ENGINE_OPTIONS(struct train_conf, engine),
	OPTION(INT, struct train_conf, batch, "batch", "N|auto", "16",
	       "images in a micro-batch, the group of batch normalisation; auto: the largest power of two up to 256 that fits in memory",
	       .min = 1, .max = 4096, .zero = "auto"),
	OPTION(INT, struct train_conf, accumulate, "accumulate", "N", "1", "micro-batches of a rank in a step; batch x accumulate x ranks is the global batch",
	       .min = 1, .max = 4096),
	OPTION(INT, struct train_conf, bucket_kib, "bucket", "KIB", "0", "size of a gradient bucket; 0: libhvd's default", .min = 0, .max = 1 << 20),
	OPTION_GROUP("Learning"),
	OPTION(STRING, struct train_conf, preset, "preset", "NAME", NULL, "settings of a published training: chexnet2017 (Rajpurkar et al., arXiv 1711.05225), dell2019 (ai-radiologist), zech2022 (reproduce-chexnet); other options win"),
	OPTION(REAL, struct train_conf, epochs, "epochs", "N", "10", "passes over the training split, rounded up to whole steps", .min = 1e-6, .max = 1e6),
	OPTION(U64, struct train_conf, steps, "steps", "N", "0", "optimiser steps in all, resumed ones included; 0: as many as --epochs"),
	OPTION(CHOICE, struct train_conf, optimizer, "optimizer", "NAME", "adam", "rule of the update", .choices = optimizer_choices),
	OPTION(REAL, struct train_conf, rate, "learning-rate", "RATE", "1e-4", "for a global batch up to --base-batch", .min = 0, .max = 100),
	OPTION(CHOICE, struct train_conf, scaling, "scaling", "RULE", "sqrt", "how the rate grows with a larger global batch", .choices = scaling_words),
	OPTION(INT, struct train_conf, base_batch, "base-batch", "N", "256", "global batch above which it grows", .min = 1, .max = 1 << 20),
	OPTION(REAL, struct train_conf, warmup_epochs, "warmup-epochs", "N", "1", "epochs in which the rate rises; at most half of all steps",
	       .min = 0, .max = 1e4),
	OPTION(CHOICE, struct train_conf, decay, "decay", "COURSE", "cosine",
	       "of the rate after warm-up; plateau: a tenth whenever the validation loss, weighted as --pos-weight says, does not fall", .choices = decay_words),
	OPTION(REAL, struct train_conf, momentum, "momentum", "BETA", "0.9", "Adam's beta1, SGD's momentum", .min = 0, .max = 0.9999),
	OPTION(REAL, struct train_conf, weight_decay, "weight-decay", "RATE", "1e-5", "L2, on convolutions and the classifier", .min = 0, .max = 1),
	OPTION(CHOICE, struct train_conf, pos_weight, "pos-weight", "RULE", "none",
	       "weight of positives in the loss; balanced: negatives / positives of the training split, 100 at most, finding by finding", .choices = pos_weight_words),
	OPTION(REAL, struct train_conf, loss_scale, "loss-scale", "S", "0", "factor on the loss while gradients are fp16; 0: 1024, or 65536 where it is dynamic",
	       .min = 0, .max = 65536),
	OPTION(FLAG, struct train_conf, dynamic_loss_scale, "dynamic-loss-scale", NULL, NULL,
	       "fp16: halve it after a step whose gradients overflow, which is skipped, and double it after 2,000 that do not"),
	OPTION(INT, struct train_conf, patience, "patience", "N", "0",
	       "end after so many validations without a lower loss, weighted as --pos-weight says; 0: never", .min = 0, .max = 10000),
	OPTION(U64, struct train_conf, seed, "seed", "N", "1", "of order, augmentation, initial weights and intervals",
	       .typed = offsetof(struct train_conf, seed_typed)),
	OPTION_GROUP("Output"),
	OPTION(STRING, struct train_conf, output, "output", "DIR", NULL, "checkpoints and model of one training at a time; without it chexnet-DATE-TIME"),
	OPTION(STRING, struct train_conf, resume, "resume", "FILE|auto", NULL, "go on from a checkpoint: of --output, or of another directory where --output has none; auto: the latest whole one in --output, or a fresh start. What was trained to its end is judged once more, with the same options"),
	OPTION(INT, struct train_conf, checkpoint_every, "checkpoint-every", "STEPS", "0", "steps between checkpoints; 0: an epoch", .min = 0, .max = 1 << 30),
	OPTION(INT, struct train_conf, keep, "keep", "N", "2",
	       "checkpoints that stay; later ones than that which --resume went back to, and their best.safetensors, are called .abandoned (.abandoned-2, …), and stay too", .min = 1, .max = 10000),
	OPTION(INT, struct train_conf, eval_every, "eval-every", "STEPS", "0", "steps between validations; 0: an epoch", .min = 0, .max = 1 << 30),
	OPTION(INT, struct train_conf, resamples, "resamples", "N", RESAMPLES_DEFAULT, "bootstrap resamples of patients behind each interval, 100 or more; 0: none",
	       .min = 100, .max = 100000, .or_0 = 1),
	OPTION(REAL, struct train_conf, max_seconds, "max-seconds", "S", "0", "stop after the step in which this time is over, save, end with 75; 0: no limit",
	       .min = 0, .max = 1e8),
	OPTION(STRING, struct train_conf, log_json, "log-json", "FILE", NULL, "append events, one JSON object a line; without it OUTPUT/log.jsonl"),
	OPTION(INT, struct train_conf, fetch_every, "fetch-every", "STEPS", "0",
	       "steps between readings of the loss, which make a GPU wait; 0: 30 on a GPU, every step on a CPU, where they cost nothing", .min = 0, .max = 1 << 20),
	OPTION(FLAG, struct train_conf, tensorboard, "tensorboard", NULL, NULL, "event files for TensorBoard in OUTPUT/tensorboard"),
	OPTION(FLAG, struct train_conf, log_hash, "log-hash", NULL, NULL, "with every step log a hash of the ids, pixels and labels it saw"),
	OPTIONS_END
};

static void write_command(char *text, size_t size, const struct command *c, int argc, char **argv)
{
	size_t used = utf8_append(text, size, 0, "chexnet ");

	used = utf8_append(text, size, used, c->name);
	utf8_append_words(text, size, used, argc - 1, argv + 1);
}

int train_read_options(const struct command *c, int argc, char **argv, struct train_conf *conf, char *command, size_t size, struct error *e)
{
	write_command(command, size, c, argc, argv);
	conf->command = command;
	char **words = train_presets(&argc, argv, e);
	int rc = options_parse(c, argc, words ? words : argv, conf, NULL, e); /* of a wrong preset, too: world_refuse() goes by the rest */

	if (rc == 0)
		rc = check_network_options(&conf->network, e);
	if (rc == 0 && (conf->loss_scale > 0 || conf->dynamic_loss_scale) && conf->engine.precision != PRECISION_FP16)
		rc = fail(e, EXIT_USAGE, "--%s is for --precision=fp16: elsewhere gradients have the range of fp32 and need none",
			  conf->dynamic_loss_scale ? "dynamic-loss-scale" : "loss-scale");
	if (rc == 0 && conf->weights && conf->resume && strcmp(conf->resume, "auto") != 0)
		rc = fail(e, EXIT_USAGE, "--resume=%s goes on with the weights of that checkpoint, --weights=%s starts anew from these: give one of them", conf->resume, conf->weights);
	free(words);
	return rc;
}

/* ---- in checkpoints ----------------------------------------------------------------------------------- */

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
