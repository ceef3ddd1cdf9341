/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/checkpoint.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/findings.h"
#include "data/hash.h"
#include "learn/safetensors.h"
#include "utf8.h"

struct checkpoint {
	struct safetensors *file;
	char path[4096];
	char model[32];
	int classes;
	const char *wrong; /* a note that holds no number, or too large a one, where one has to be; NULL: none */
};

static const char moment_prefix[2][24] = { "adam.exp_avg.", "adam.exp_avg_sq." };

int model_values_alloc(struct model_values *v, const struct net_plan *plan, int with_moments, struct error *e)
{
	size_t n = plan->n_weights, channels = plan->n_bn_channels;

	*v = (struct model_values){
		.params = calloc(n + 1, sizeof(float)),
		.mean = calloc(channels + 1, sizeof(float)),
		.variance = calloc(channels + 1, sizeof(float)),
		.moment1 = with_moments ? calloc(n + 1, sizeof(float)) : NULL,
		.moment2 = with_moments ? calloc(n + 1, sizeof(float)) : NULL,
	};
	if (v->params && v->mean && v->variance && (!with_moments || (v->moment1 && v->moment2)))
		return 0;
	model_values_free(v);
	return fail(e, EXIT_INTERNAL, "no memory for %zu parameters", n);
}

void model_values_free(struct model_values *v)
{
	free(v->params);
	free(v->mean);
	free(v->variance);
	free(v->moment1);
	free(v->moment2);
	*v = (struct model_values){ 0 };
}

/* ---- tensors of a plan ------------------------------------------------------------------------------ */

static void describe_param(struct tensor *t, const struct net_param *p, const char *prefix, const float *values)
{
	*t = (struct tensor){ .type = TENSOR_F32, .ndim = p->ndim, .data = values ? values + p->offset : NULL, .bytes = p->count * sizeof(float) };
	snprintf(t->name, sizeof t->name, "%s%s", prefix, p->name);
	for (int d = 0; d < p->ndim; d++)
		t->shape[d] = p->shape[d];
}

static void describe_statistic(struct tensor *t, const struct net_bn *bn, const char *what, const float *values)
{
	*t = (struct tensor){ .type = TENSOR_F32, .ndim = 1, .shape = { bn->channels }, .data = values ? values + bn->offset : NULL,
			      .bytes = (size_t)bn->channels * sizeof(float) };
	snprintf(t->name, sizeof t->name, "%s.%s", bn->name, what);
}

/* Every tensor of the plan in the order of the file; returns their number. tensors NULL: only counts. */
static int describe_all(const struct net_plan *plan, const struct model_values *v, const int64_t *steps, struct tensor *tensors)
{
	int n = 0;

	for (int i = 0; i < plan->n_params; i++, n++)
		if (tensors)
			describe_param(&tensors[n], &plan->params[i], "", v->params);
	for (int i = 0; i < plan->n_bns; i++, n += 3) {
		if (!tensors)
			continue;
		describe_statistic(&tensors[n], &plan->bns[i], "running_mean", v->mean);
		describe_statistic(&tensors[n + 1], &plan->bns[i], "running_var", v->variance);
		tensors[n + 2] = (struct tensor){ .type = TENSOR_I64, .data = steps, .bytes = sizeof *steps };
		snprintf(tensors[n + 2].name, sizeof tensors[n + 2].name, "%s.num_batches_tracked", plan->bns[i].name);
	}
	for (int m = 0; m < 2 && v->moment1; m++)
		for (int i = 0; i < plan->n_params; i++, n++)
			if (tensors)
				describe_param(&tensors[n], &plan->params[i], moment_prefix[m], m ? v->moment2 : v->moment1);
	return n;
}

void model_values_hash(char text[WEIGHTS_HASH], const struct model_values *v, const struct net_plan *plan)
{
	uint64_t hash = 0;

	for (int i = 0; i < plan->n_params; i++)
		hash = hash_bytes(hash, v->params + plan->params[i].offset, plan->params[i].count * sizeof(float));
	for (int i = 0; i < plan->n_bns; i++) {
		hash = hash_bytes(hash, v->mean + plan->bns[i].offset, (size_t)plan->bns[i].channels * sizeof(float));
		hash = hash_bytes(hash, v->variance + plan->bns[i].offset, (size_t)plan->bns[i].channels * sizeof(float));
	}
	snprintf(text, WEIGHTS_HASH, "%016" PRIx64, hash);
}

/* ---- writing ---------------------------------------------------------------------------------------- */

enum { MAX_NOTES = 48, NOTE = 512 };

struct notes {
	struct tensor_note note[MAX_NOTES];
	char value[MAX_NOTES][NOTE];
	int n;
};

static void __attribute__((format(printf, 3, 4))) add_note(struct notes *notes, const char *key, const char *format, ...)
{
	va_list args;

	assert(notes->n < MAX_NOTES);
	va_start(args, format);
	vsnprintf(notes->value[notes->n], NOTE, format, args);
	va_end(args);
	notes->note[notes->n] = (struct tensor_note){ key, notes->value[notes->n] };
	notes->n++;
}


static void make_notes(struct notes *notes, const struct net_plan *plan, const struct checkpoint_notes *c, int resumable)
{
	char text[NOTE];
	size_t used = 0;

	add_note(notes, "format", "pt"); /* what PyTorch's readers look for */
	add_note(notes, "chexnet", "%s", HVD_VERSION);
	add_note(notes, "model", "%s", plan->model);
	add_note(notes, "image_size", "%d", plan->image_size);
	add_note(notes, "classes", "%d", plan->classes);
	add_note(notes, "growth", "%d", plan->growth);
	add_note(notes, "init_channels", "%d", plan->init_channels);
	for (int i = 0; i < plan->n_blocks; i++)
		used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", i ? "," : "", plan->block[i]);
	add_note(notes, "blocks", "%s", text);
	if (plan->classes == FINDINGS) {
		add_note(notes, "findings", "%s", findings_write(text, sizeof text, ALL_FINDINGS, ","));
		if (c->untrained)
			add_note(notes, "untrained", "%s", findings_write(text, sizeof text, c->untrained, ","));
	}
	add_note(notes, "source_size", "%d", c->source_size);
	add_note(notes, "resize", "%s", c->resize);
	add_note(notes, "split_policy", "%s", c->split_policy);
	add_note(notes, "leak", "%s", c->leaky ? c->unchecked ? "yes, unchecked" : "yes, checked" : c->unchecked ? "unchecked" : "no");
	add_note(notes, "precision", "%s", c->precision);
	add_note(notes, "pos_weight", "%s", c->pos_weight);
	add_note(notes, "stored_as", "%s", c->stored_as);
	add_note(notes, "trained_on", "%s", c->trained_on);
	add_note(notes, "data_hash", "%016" PRIx64, c->data_hash);
	add_note(notes, "seed", "%" PRIu64, c->seed);
	add_note(notes, "step", "%" PRIu64, c->step);
	add_note(notes, "best_auroc", "%.17g", c->best_auroc);
	add_note(notes, "best_step", "%" PRIu64, c->best_step);
	add_note(notes, "best_loss", "%.17g", c->best_loss);
	add_note(notes, "stale", "%d", c->stale);
	add_note(notes, "rate_factor", "%.17g", c->rate_factor);
	if (!resumable)
		return;
	add_note(notes, "position", "%" PRIu64, c->position);
	if (c->val_hash)
		add_note(notes, "val_hash", "%016" PRIx64, c->val_hash);
	if (*c->options)
		add_note(notes, "options", "%s", c->options);
	if (*c->mask)
		add_note(notes, "mask", "%s", c->mask);
	add_note(notes, "validated", "%" PRIu64, c->validated);
	add_note(notes, "global_batch", "%d", c->global_batch);
	add_note(notes, "batch", "%d", c->batch);
	add_note(notes, "bucket_bytes", "%d", c->bucket_bytes);
	add_note(notes, "optimizer", "%s", c->optimizer);
	add_note(notes, "loss_scale", "%.17g", c->loss_scale);
	add_note(notes, "scale_good", "%" PRIu64, c->scale_good);
	add_note(notes, "skipped", "%" PRIu64, c->skipped);
	if (!c->window)
		return;
	add_note(notes, "shuffle_window", "%d", c->window);
	add_note(notes, "window_layout", "%016" PRIx64, c->window_layout);
}

/* The name of the first tensor with an infinity or a NaN; NULL: there is none. */
static const char *find_broken(const struct tensor *tensors, int n)
{
	for (int i = 0; i < n; i++) {
		const float *values = tensors[i].data;

		for (size_t v = 0; tensors[i].type == TENSOR_F32 && v < tensors[i].bytes / sizeof *values; v++)
			if (!isfinite(values[v]))
				return tensors[i].name;
	}
	return NULL;
}

int checkpoint_write(const char *path, const struct net_plan *plan, const struct model_values *values, const struct checkpoint_notes *c, struct error *e)
{
	int64_t steps = (int64_t)c->step;
	int n = describe_all(plan, values, &steps, NULL), rc;
	struct tensor *tensors = calloc((size_t)n, sizeof *tensors);
	struct notes *notes = calloc(1, sizeof *notes);
	const char *broken;

	if (tensors && notes) {
		describe_all(plan, values, &steps, tensors);
		make_notes(notes, plan, c, values->moment1 != NULL);
		broken = find_broken(tensors, n);
		rc = broken ? fail(e, EXIT_INTERNAL, "%s: not written, as %s holds what is no finite number: what was saved before stays; lower the learning rate", path, broken)
			    : safetensors_write(path, tensors, n, notes->note, notes->n, e);
	} else {
		rc = fail(e, EXIT_INTERNAL, "%s: no memory", path);
	}
	free(notes);
	free(tensors);
	return rc;
}

/* ---- reading ---------------------------------------------------------------------------------------- */

static uint64_t note_u64(struct checkpoint *c, const char *key, int base)
{
	const char *text = safetensors_note(c->file, key);
	char *end;

	if (!text)
		return 0;
	errno = 0;
	uint64_t value = strtoull(text, &end, base);
	if (!isxdigit((unsigned char)*text) || *end || errno)
		c->wrong = key;
	return value;
}

static int note_int(struct checkpoint *c, const char *key)
{
	uint64_t value = note_u64(c, key, 10);

	if (value > INT_MAX)
		c->wrong = key;
	return (int)value;
}

/* From 0 to `most`, and finite. */
static double note_real(struct checkpoint *c, const char *key, double most)
{
	const char *text = safetensors_note(c->file, key);
	char *end;
	double value = text ? strtod(text, &end) : 0;

	if (text && (end == text || *end || !(value >= 0 && value <= most)))
		c->wrong = key;
	return value;
}

/* A loss of images of which no label is known is not a number, and noted so. */
static double note_loss(struct checkpoint *c, const char *key)
{
	const char *text = safetensors_note(c->file, key);

	return text && (strcmp(text, "nan") == 0 || strcmp(text, "-nan") == 0) ? NAN : note_real(c, key, DBL_MAX);
}

/* Weights come from anywhere, and what they note is printed. */
static void copy_note(const struct checkpoint *c, const char *key, char *out, size_t size)
{
	const char *text = safetensors_note(c->file, key);

	snprintf(out, size, "%s", text ? text : "");
	controls_mend(utf8_mend(out));
}

static int read_notes(struct checkpoint *c, struct checkpoint_notes *notes, struct error *e)
{
	const char *leak = safetensors_note(c->file, "leak"), *untrained = safetensors_note(c->file, "untrained");
	struct error ignored = { 0 };

	*notes = (struct checkpoint_notes){
		.seed = note_u64(c, "seed", 10),
		.position = note_u64(c, "position", 10),
		.step = note_u64(c, "step", 10),
		.validated = note_u64(c, safetensors_note(c->file, "validated") ? "validated" : "step", 10),
		.data_hash = note_u64(c, "data_hash", 16),
		.val_hash = note_u64(c, "val_hash", 16),
		.global_batch = note_int(c, "global_batch"),
		.batch = note_int(c, "batch"),
		.bucket_bytes = note_int(c, "bucket_bytes"),
		.window = note_int(c, "shuffle_window"),
		.window_layout = note_u64(c, "window_layout", 16),
		.source_size = note_int(c, "source_size"),
		.unnamed = !safetensors_note(c->file, "findings"),
		.image_size = note_int(c, "image_size"),
		.leaky = leak && strncmp(leak, "yes", 3) == 0,
		.unchecked = !leak || (strcmp(leak, "yes, checked") != 0 && strcmp(leak, "no") != 0), /* "yes", of earlier versions, was either */
		.best_auroc = note_real(c, "best_auroc", 1),
		.best_step = note_u64(c, "best_step", 10),
		.best_loss = note_loss(c, "best_loss"),
		.stale = note_int(c, "stale"),
		.rate_factor = note_real(c, "rate_factor", 1),
		.loss_scale = note_real(c, "loss_scale", 0x1p24),
		.scale_good = note_u64(c, "scale_good", 10),
		.skipped = note_u64(c, "skipped", 10),
	};
	if (untrained && findings_read(untrained, ',', NULL, &notes->untrained, &ignored))
		notes->untrained = 0;
	copy_note(c, "split_policy", notes->split_policy, sizeof notes->split_policy);
	copy_note(c, "resize", notes->resize, sizeof notes->resize);
	copy_note(c, "precision", notes->precision, sizeof notes->precision);
	copy_note(c, "mask", notes->mask, sizeof notes->mask);
	copy_note(c, "pos_weight", notes->pos_weight, sizeof notes->pos_weight);
	copy_note(c, "stored_as", notes->stored_as, sizeof notes->stored_as);
	copy_note(c, "options", notes->options, sizeof notes->options);
	copy_note(c, "trained_on", notes->trained_on, sizeof notes->trained_on);
	copy_note(c, "optimizer", notes->optimizer, sizeof notes->optimizer);
	return c->wrong ? fail(e, EXIT_DATA, "%s: its %s is \"%.40s\", not a number that it can be", c->path, c->wrong, safetensors_note(c->file, c->wrong)) : 0;
}

static int dim(const struct checkpoint *c, const char *name, int d)
{
	const struct tensor *t = safetensors_find(c->file, name);

	return t && d < t->ndim && t->shape[d] <= 1 << 20 ? (int)t->shape[d] : 0;
}

/* Memory is asked for by these, so a damaged one is named here. */
static int check_size(struct checkpoint *c, const char *key, uint64_t least, struct error *e)
{
	const char *text = safetensors_note(c->file, key);
	uint64_t size = note_u64(c, key, 10);

	if (text && (size < least || size > 4096))
		return fail(e, EXIT_DATA, "%s: its %s is \"%s\", not %d to 4096 pixels", c->path, key, text, (int)least);
	return 0;
}

/* Whether there can be such a network, at a size that none is too large for. */
static int check_network(const struct checkpoint *c, const struct net_conf *net, struct error *e)
{
	struct net_conf largest = *net;
	struct net_plan plan;
	struct error why = { 0 };

	largest.image_size = 4096;
	if (net_plan_make(&plan, &largest, &why) < 0)
		return fail(e, why.code == EXIT_INTERNAL ? EXIT_INTERNAL : EXIT_DATA, "%s: %s", c->path, why.text);
	net_plan_free(&plan);
	return 0;
}

/* A network's numbers can be read off its tensors. */
static int recognise_network(struct checkpoint *c, struct net_conf *net, struct error *e)
{
	static const struct {
		const char *model;
		int growth, init_channels, block[NET_MAX_BLOCKS];
	} known[] = { { "densenet121", 32, 64, { 6, 12, 24, 16 } }, { "densenet169", 32, 64, { 6, 12, 32, 32 } },
		      { "densenet201", 32, 64, { 6, 12, 48, 32 } }, { "resnet50", 0, 64, { 3, 4, 6, 3 } } };
	int resnet = safetensors_find(c->file, "layer1.0.conv1.weight") != NULL;
	char name[NET_NAME];

	*net = (struct net_conf){ .model = resnet ? "resnet" : "densenet", .image_size = 224 };
	net->init_channels = dim(c, resnet ? "conv1.weight" : "features.conv0.weight", 0);
	net->growth = dim(c, "features.denseblock1.denselayer1.conv2.weight", 0);
	net->classes = dim(c, resnet ? "fc.weight" : "classifier.weight", 0);
	for (int b = 0; b < NET_MAX_BLOCKS; b++) {
		int layers = 0;

		do
			if (resnet)
				snprintf(name, sizeof name, "layer%d.%d.conv1.weight", b + 1, layers);
			else
				snprintf(name, sizeof name, "features.denseblock%d.denselayer%d.conv1.weight", b + 1, layers + 1);
		while (safetensors_find(c->file, name) && ++layers < 1000);
		if (!layers)
			break;
		net->block[net->n_blocks++] = layers;
	}
	if (!net->init_channels || (!net->growth && !resnet) || !net->classes || !net->n_blocks)
		return fail(e, EXIT_DATA, "%s: neither a DenseNet (features.conv0, denseblock1, classifier) nor a ResNet (conv1, layer1, fc) with torchvision's names", c->path);
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (net->n_blocks == NET_MAX_BLOCKS && net->growth == known[i].growth && net->init_channels == known[i].init_channels &&
		    memcmp(net->block, known[i].block, sizeof net->block) == 0)
			net->model = known[i].model;
	if (safetensors_note(c->file, "image_size"))
		net->image_size = note_int(c, "image_size");
	return check_size(c, "image_size", 1, e) || check_size(c, "source_size", 0, e) || check_network(c, net, e) ? -e->code : 0;
}

static int check_findings(const struct checkpoint *c, struct error *e)
{
	const char *noted = safetensors_note(c->file, "findings");
	char ours[NOTE];

	findings_write(ours, sizeof ours, ALL_FINDINGS, ",");
	if (noted && strcmp(noted, ours) != 0)
		return fail(e, EXIT_DATA, "%s: its findings are in another order (%s)", c->path, noted);
	return 0;
}

int checkpoint_open(struct checkpoint **out, const char *path, struct net_conf *net, struct checkpoint_notes *notes, struct error *e)
{
	struct checkpoint *c = calloc(1, sizeof *c);
	struct net_conf found;

	*out = NULL;
	if (!c)
		return fail(e, EXIT_INTERNAL, "%s: no memory", path);
	snprintf(c->path, sizeof c->path, "%s", path);
	if (safetensors_open(&c->file, path, e) || recognise_network(c, &found, e) || check_findings(c, e) || (notes && read_notes(c, notes, e))) {
		checkpoint_close(c);
		return -e->code;
	}
	if (net)
		*net = found;
	*out = c;
	return 0;
}

void checkpoint_close(struct checkpoint *c)
{
	if (!c)
		return;
	safetensors_close(c->file);
	free(c);
}

int checkpoint_resumable(const struct checkpoint *c)
{
	return safetensors_note(c->file, "position") && safetensors_note(c->file, "step");
}

static void shape_text(const struct tensor *t, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "[");

	for (int d = 0; d < t->ndim && used < size; d++)
		used += (size_t)snprintf(text + used, size - used, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
	if (used < size)
		snprintf(text + used, size - used, "]");
}

static int same_shape(const struct tensor *a, const struct tensor *b)
{
	return a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0;
}

static int load_tensor(const struct checkpoint *c, const struct net_plan *plan, const struct tensor *want, int *fresh_head, struct error *e)
{
	const struct tensor *have = safetensors_find(c->file, want->name);
	char is[64], should[64];

	if (!have)
		return fail(e, EXIT_DATA, "%s: tensor %s is missing", c->path, want->name);
	if (!same_shape(have, want)) {
		if (fresh_head && net_param_is_head(plan, want->name)) {
			*fresh_head = 1;
			return 0;
		}
		shape_text(have, is, sizeof is);
		shape_text(want, should, sizeof should);
		return fail(e, EXIT_DATA, "%s: tensor %s is %s, the network wants %s", c->path, want->name, is, should);
	}
	if (tensor_to_float(have, (float *)want->data) < 0)
		return fail(e, EXIT_DATA, "%s: tensor %s does not hold real numbers", c->path, want->name);
	return 0;
}

static int by_tensor_name(const void *a, const void *b)
{
	return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static int check_nothing_else(const struct checkpoint *c, struct tensor *wanted, int n, struct error *e)
{
	qsort(wanted, (size_t)n, sizeof *wanted, by_tensor_name);
	for (int i = 0; i < safetensors_count(c->file); i++) {
		const struct tensor *t = safetensors_at(c->file, i);

		if (strncmp(t->name, "adam.", 5) && !bsearch(t, wanted, (size_t)n, sizeof *wanted, by_tensor_name))
			return fail(e, EXIT_DATA, "%s: tensor %s is not part of the network", c->path, t->name);
	}
	return 0;
}

/* The name of the first tensor with a running variance or a second moment below 0, of which the next step would make no number; NULL: there is none. */
static const char *find_negative(const struct tensor *tensors, int n)
{
	for (int i = 0; i < n; i++) {
		const float *values = tensors[i].data;
		const char *end = strrchr(tensors[i].name, '.');
		int square = (end && strcmp(end, ".running_var") == 0) || strncmp(tensors[i].name, moment_prefix[1], strlen(moment_prefix[1])) == 0;

		for (size_t v = 0; square && v < tensors[i].bytes / sizeof *values; v++)
			if (values[v] < 0)
				return tensors[i].name;
	}
	return NULL;
}

int checkpoint_load(const struct checkpoint *c, const struct net_plan *plan, struct model_values *values, int *fresh_head, struct error *e)
{
	int n = describe_all(plan, values, NULL, NULL), rc = 0;
	struct tensor *tensors = calloc((size_t)n, sizeof *tensors);
	const char *broken;

	if (!tensors)
		return fail(e, EXIT_INTERNAL, "%s: no memory", c->path);
	describe_all(plan, values, NULL, tensors);
	if (fresh_head)
		*fresh_head = 0;
	for (int i = 0; i < n && !rc; i++)
		if (tensors[i].type == TENSOR_F32)
			rc = load_tensor(c, plan, &tensors[i], fresh_head, e);
	if (!rc)
		rc = check_nothing_else(c, tensors, n, e);
	if (!rc && (broken = find_broken(tensors, n)))
		rc = fail(e, EXIT_DATA, "%s: tensor %s holds what is no finite number", c->path, broken);
	if (!rc && (broken = find_negative(tensors, n)))
		rc = fail(e, EXIT_DATA, "%s: tensor %s holds a %s below 0", c->path, broken, strncmp(broken, "adam.", 5) ? "variance" : "second moment");
	free(tensors);
	return rc;
}
