/* SPDX-License-Identifier: Apache-2.0 */
#include "prepare/audit.h"

#include <math.h>
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/hash.h"
#include "image/resize.h"
#include "image/tone.h"
#include "progress.h"

const char *const audit_kind_names[] = { "leak", "labels", "duplicates", "dropped", "images", "counts", "shortcuts" };

struct membership {
	uint32_t patient, labels, known;
	uint8_t split;
};

static int by_patient(const void *x, const void *y)
{
	const struct membership *a = x, *b = y;
	if (a->patient != b->patient)
		return a->patient < b->patient ? -1 : 1;
	return a->split - b->split;
}

/* One patient's n images. images: [SPLITS], set to how many are in each */
static void count_patient(struct audit *a, const struct membership *m, size_t n, size_t images[SPLITS])
{
	uint32_t with[SPLITS] = { 0 }, without[SPLITS] = { 0 };

	memset(images, 0, SPLITS * sizeof *images);
	for (size_t i = 0; i < n; i++) {
		images[m[i].split]++;
		with[m[i].split] |= m[i].labels & m[i].known;
		without[m[i].split] |= ~m[i].labels & m[i].known;
	}
	a->patients++;
	for (int s = 0; s < SPLITS; s++) {
		a->patients_of[s] += images[s] > 0;
		for (int f = 0; f < FINDINGS; f++) {
			a->positive_patients[s][f] += with[s] >> f & 1;
			a->negative_patients[s][f] += without[s] >> f & 1;
		}
	}
}

/* Counts patients; for every pair of splits: those in both, and how much of the smaller split's images is theirs. */
static int check_leak(struct audit *a, const struct origin *o, struct error *e)
{
	struct membership *m = malloc((o->count + 1) * sizeof *m);
	size_t n = 0, shared[SPLITS][SPLITS] = { { 0 } }, theirs[SPLITS][SPLITS] = { { 0 } };
	uint32_t example[SPLITS][SPLITS] = { { 0 } };

	if (!m)
		return fail(e, EXIT_INTERNAL, "no memory for %zu images", o->count);
	for (size_t i = 0; i < o->count; i++)
		if (o->split[i] < SPLITS)
			m[n++] = (struct membership){ o->samples[i].patient, o->samples[i].labels, o->samples[i].known, o->split[i] };
	qsort(m, n, sizeof *m, by_patient);
	for (size_t i = 0, end; i < n; i = end) {
		size_t images[SPLITS];
		for (end = i + 1; end < n && m[end].patient == m[i].patient;)
			end++;
		count_patient(a, m + i, end - i, images);
		for (int s = 0; s < SPLITS; s++)
			for (int t = s + 1; t < SPLITS; t++)
				if (images[s] && images[t]) {
					theirs[s][t] += images[t];
					if (shared[s][t]++ == 0)
						example[s][t] = m[i].patient;
				}
	}
	free(m);
	for (int s = 0; s < SPLITS; s++)
		for (int t = s + 1; t < SPLITS; t++)
			if (shared[s][t])
				audit_say(a, AUDIT_LEAK, 1, shared[s][t], "%zu patient%s in both %s and %s (patient %u is one): %zu of %zu %s images are theirs (%.0f %%)",
				    shared[s][t], shared[s][t] == 1 ? " is" : "s are", split_names[s], split_names[t], example[s][t], theirs[s][t], a->images[t], split_names[t],
				    100.0 * (double)theirs[s][t] / (double)a->images[t]);
	return 0;
}

static int by_id(const void *x, const void *y)
{
	return strcmp((*(const struct sample *const *)x)->id, (*(const struct sample *const *)y)->id);
}

static int check_names(struct audit *a, const struct origin *o, struct error *e)
{
	const struct sample **sorted = malloc((o->count + 1) * sizeof(struct sample *));
	struct sample_names twice = { 0 };

	if (!sorted)
		return fail(e, EXIT_INTERNAL, "no memory for %zu images", o->count);
	for (size_t i = 0; i < o->count; i++)
		sorted[i] = &o->samples[i];
	qsort(sorted, o->count, sizeof(struct sample *), by_id);
	for (size_t i = 1; i < o->count; i++)
		if (strcmp(sorted[i]->id, sorted[i - 1]->id) == 0)
			sample_names_add(&twice, sorted[i]->id);
	free(sorted);
	if (twice.count)
		audit_say(a, AUDIT_DUPLICATES, 1, twice.count, "%zu name%s twice: %s", twice.count, twice.count == 1 ? " comes" : "s come", twice.text);
	return 0;
}

/* Positives of the images that both know. */
struct label_counts {
	size_t here[FINDINGS], known[FINDINGS], matched; /* known: labels here; matched: images */
	size_t there[FINDINGS][FINDINGS], both[FINDINGS][FINDINGS]; /* [here][in the table] */
};

static void count_labels(struct label_counts *c, const struct sample *here, uint32_t there)
{
	for (int f = 0; f < FINDINGS; f++) {
		if (!(here->known >> f & 1))
			continue;
		c->known[f]++;
		c->here[f] += here->labels >> f & 1;
		for (int g = 0; g < FINDINGS; g++) {
			c->there[f][g] += there >> g & 1;
			c->both[f][g] += (here->labels >> f & 1) & (there >> g & 1);
		}
	}
}

/* How well finding f here is finding g of the table. */
static double f1(const struct label_counts *c, int f, int g)
{
	return 2.0 * (double)c->both[f][g] / (double)(c->here[f] + c->there[f][g]);
}

static size_t labels_that_differ(const struct label_counts *c, int f, int g)
{
	return c->here[f] + c->there[f][g] - 2 * c->both[f][g];
}

static void compare_finding(struct audit *a, const struct label_counts *c, int f)
{
	const size_t differ = labels_that_differ(c, f, f);
	int best = f;

	for (int g = 0; g < FINDINGS; g++)
		if (f1(c, f, g) > f1(c, f, best)) /* NAN where neither has any: not better */
			best = g;
	if (best != f && labels_that_differ(c, f, best) < differ / 2)
		audit_say(a, AUDIT_LABELS, 1, differ, "what is called %s here is %s in the table (F1 %.3f against %.3f): the label order is another one",
		    finding_names[f], finding_names[best], f1(c, f, best), f1(c, f, f));
	else if (differ)
		audit_say(a, AUDIT_LABELS, differ > c->known[f] / 1000, differ, "%s differs from the table in %zu of %zu images", finding_names[f], differ, c->known[f]);
}

/* Every finding against the table's column of the same name, and when they differ, against all others. A label that is not known here differs
 * from none. */
static void check_labels(struct audit *a, const struct origin *o, const struct nih *n)
{
	struct label_counts counts = { .matched = 0 };

	for (size_t i = 0; i < o->count; i++) {
		const struct nih_image *image = nih_find(n, o->samples[i].id);
		if (!image)
			continue;
		counts.matched++;
		count_labels(&counts, &o->samples[i], image->sample.labels);
	}
	const size_t unknown = o->count - counts.matched;
	const int another = counts.matched < o->count / 10;

	if (unknown)
		audit_say(a, AUDIT_LABELS, 0, unknown, "%zu of %zu images have no row in %s%s", unknown, o->count, n->table,
		    another ? ": another data set's table, not compared" : "");
	for (int f = 0; f < FINDINGS && !another; f++)
		compare_finding(a, &counts, f);
}

/* Images of the official lists that are missing here. */
static int check_dropped(struct audit *a, const struct origin *o, const struct nih *n, struct error *e)
{
	uint8_t *present = calloc(n->count + 1, 1);
	struct sample_names missing[2] = { { .count = 0 }, { .count = 0 } };
	size_t listed[2] = { 0 };

	if (!present)
		return fail(e, EXIT_INTERNAL, "no memory for %zu rows", n->count);
	for (size_t i = 0; i < o->count; i++) {
		const struct nih_image *image = nih_find(n, o->samples[i].id);
		if (image)
			present[image - n->images] = 1;
	}
	for (size_t i = 0; i < n->count; i++)
		if (n->images[i].list != NIH_UNLISTED) {
			int test = n->images[i].list == NIH_TEST;
			listed[test]++;
			if (!present[i])
				sample_names_add(&missing[test], n->images[i].sample.id);
		}
	for (int t = 0; t < 2; t++)
		if (missing[t].count && missing[t].count < listed[t])
			audit_say(a, AUDIT_DROPPED, 1, missing[t].count, "%zu of the %zu images on the official %s list %s missing: %s", missing[t].count, listed[t],
			    t ? "test" : "train_val", missing[t].count == 1 ? "is" : "are", missing[t].text);
		else if (missing[t].count)
			audit_say(a, AUDIT_DROPPED, 0, missing[t].count, "none of the official %s list is here", t ? "test" : "train_val");
	free(present);
	return 0;
}

/* One image's pixels in a few numbers. */
struct look {
	uint64_t hash;
	size_t index;
	struct tone tone;
	int width, height;
	enum exit_code fault; /* 0: it could be looked at */
	char *why;            /* the fault in words, NULL where there is none: of a hundred thousand images nearly all are whole */
};

_Static_assert(sizeof(struct look) <= 64, "a look is kept of every image");

static void note_fault(struct look *l, const struct error *e)
{
	l->fault = (enum exit_code)e->code;
	l->why = strdup(e->text);
	if (!l->why)
		l->fault = EXIT_INTERNAL;
}

static void forget_looks(struct look *looks, size_t n)
{
	for (size_t i = 0; looks && i < n; i++)
		free(looks[i].why);
	free(looks);
}

static void look_at(struct look *l, const struct image *image)
{
	l->width = image->width;
	l->height = image->height;
	l->hash = hash_bytes(0, image->pixels, (size_t)image->width * (size_t)image->height);
	l->tone = tone_measure(image->pixels, image->width, image->height);
}

static struct look *look_at_all(const struct origin *o, const char *tell, int threads, struct error *e)
{
	struct look *looks = calloc(o->count + 1, sizeof *looks);
	struct progress progress;
	_Atomic size_t done = 0;

	if (!looks) {
		fail(e, EXIT_INTERNAL, "no memory for %zu images", o->count);
		return NULL;
	}
	progress_begin(&progress, tell, o->count);
#pragma omp parallel num_threads(threads)
	{
		struct decoder *d = decoder_new();
#pragma omp for schedule(dynamic, 4)
		for (size_t i = 0; i < o->count; i++) {
			struct image image;
			struct error why = { 0 };

			looks[i].index = i;
			if (!d)
				fail(&why, EXIT_INTERNAL, "no memory for a decoder");
			else if (o->decode(o, i, d, &image, &why) == 0)
				look_at(&looks[i], &image);
			if (why.code)
				note_fault(&looks[i], &why);
			size_t so_far = ++done;
			if (omp_get_thread_num() == 0)
				progress_tell(&progress, so_far);
		}
		decoder_free(d);
	}
	progress_end(&progress);
	for (size_t i = 0; i < o->count && !e->code; i++)
		if (looks[i].fault == EXIT_INTERNAL) /* what could not be looked at may be whole */
			fail(e, EXIT_INTERNAL, "%s", looks[i].why ? looks[i].why : "no memory");
	if (e->code) {
		forget_looks(looks, o->count);
		return NULL;
	}
	return looks;
}

static int by_hash(const void *x, const void *y)
{
	const struct look *a = x, *b = y;
	if (a->hash != b->hash)
		return a->hash < b->hash ? -1 : 1;
	return a->index < b->index ? -1 : 1;
}

static void check_duplicates(struct audit *a, const struct origin *o, struct look *looks)
{
	size_t same = 0, across = 0;
	char first[2 * SAMPLE_ID + 32] = "";

	qsort(looks, o->count, sizeof *looks, by_hash);
	for (size_t i = 1; i < o->count; i++) {
		if (looks[i].fault || looks[i - 1].fault || looks[i].hash != looks[i - 1].hash)
			continue;
		size_t x = looks[i - 1].index, y = looks[i].index;
		int apart = o->split[x] != o->split[y] && o->split[x] < SPLITS && o->split[y] < SPLITS;
		if (same++ == 0 || (apart && across == 0))
			snprintf(first, sizeof first, "%s and %s%s", o->samples[x].id, o->samples[y].id, apart ? " in two splits" : "");
		across += (size_t)apart;
	}
	if (same)
		audit_say(a, AUDIT_DUPLICATES, 1, same, "%zu image%s the pixels of another one, %zu of them in another split (%s)", same, same == 1 ? " has" : "s have", across, first);
}

enum { NETWORK_SIDE = 224 /* pixels a side that CheXNet sees unless told */ };

static void check_images(struct audit *a, const struct origin *o, const struct look *looks)
{
	struct sample_names tones[TONE_EMPTY + 1] = { { .count = 0 } }, shapes[SHAPE_ENLARGED + 1] = { { .count = 0 } };
	size_t bad = 0;

	for (size_t i = 0; i < o->count; i++) {
		const struct look *l = &looks[i];
		const char *id = o->samples[l->index].id;
		if (!l->fault && !o->side)
			sample_names_add(&shapes[image_shape(l->width, l->height, NETWORK_SIDE)], id);
		if (l->fault) {
			if (bad++ < AUDIT_BROKEN)
				audit_say(a, AUDIT_IMAGES, 1, 1, "%.380s", l->why);
		} else {
			sample_names_add(&tones[tone_kind(&l->tone)], id);
		}
	}
	if (bad > AUDIT_BROKEN)
		audit_say(a, AUDIT_IMAGES, 1, bad, "%zu images cannot be decoded in all", bad);
	const struct sample_names *constant = &tones[TONE_CONSTANT], *inverted = &tones[TONE_INVERTED], *empty = &tones[TONE_EMPTY];
	if (constant->count)
		audit_say(a, AUDIT_IMAGES, 1, constant->count, "%zu image%s of one gray value: %s", constant->count, constant->count == 1 ? " is" : "s are", constant->text);
	if (inverted->count)
		audit_say(a, AUDIT_IMAGES, 0, inverted->count, "%zu image%s inverted (a border brighter than its body): %s", inverted->count, inverted->count == 1 ? " looks" : "s look",
			  inverted->text);
	if (empty->count)
		audit_say(a, AUDIT_IMAGES, 0, empty->count, "%zu image%s nearly black or white: %s", empty->count, empty->count == 1 ? " is" : "s are", empty->text);
	const struct sample_names *stretched = &shapes[SHAPE_STRETCHED], *enlarged = &shapes[SHAPE_ENLARGED];
	if (stretched->count)
		audit_say(a, AUDIT_IMAGES, 0, stretched->count, "%zu image%s far from square, and would be stretched into one: %s", stretched->count,
		    stretched->count == 1 ? " is" : "s are", stretched->text);
	if (enlarged->count)
		audit_say(a, AUDIT_IMAGES, 0, enlarged->count, "%zu image%s fewer than the %d pixels a side that CheXNet sees: what was finer is lost: %s", enlarged->count,
		    enlarged->count == 1 ? " has" : "s have", NETWORK_SIDE, enlarged->text);
}

/* Half of the 95 % interval that an AUROC of 0.85 has with so many patients of each (Hanley and McNeil 1982). */
static double half_width(size_t positives, size_t negatives)
{
	double auc = 0.85, q1 = auc / (2 - auc), q2 = 2 * auc * auc / (1 + auc), p = (double)positives, n = (double)negatives;
	return 1.96 * sqrt((auc * (1 - auc) + (p - 1) * (q1 - auc * auc) + (n - 1) * (q2 - auc * auc)) / (p * n));
}

/* A finding that a split has and has not: judged by its patients, as chexnet eval does. */
static void check_patients(struct audit *a, int s, int f)
{
	size_t with = a->positive_patients[s][f], without = a->negative_patients[s][f], fewer = with < without ? with : without;
	size_t images = with <= without ? a->positives[s][f] : a->negatives[s][f];
	char many[80];

	snprintf(many, sizeof many, images == fewer ? "%zu %s%s" : "%zu %s%s of %zu patient%s", images, with <= without ? "positive" : "negative", images == 1 ? "" : "s", fewer,
		 fewer == 1 ? "" : "s");
	if (fewer < LEAST_POSITIVES)
		audit_say(a, AUDIT_COUNTS, 0, fewer, "%s: %s in %s: too few for an interval of its AUROC", finding_names[f], many, split_names[s]);
	else if (fewer < 30)
		audit_say(a, AUDIT_COUNTS, 0, fewer, "%s: %s in %s: the 95 %% interval of an AUROC of 0.85 is about +-%.2f", finding_names[f], many, split_names[s],
		    half_width(with, without));
}

static void check_counts(struct audit *a, const struct origin *o)
{
	if (o->decode && a->images[SPLIT_TRAIN] && !a->images[SPLIT_VAL]) /* a table alone is not divided so far */
		audit_say(a, AUDIT_COUNTS, 0, 0, "no val images: a training takes the weights of its last step, not of its best, and refuses --patience and --decay=plateau");
	for (int s = 0; s < SPLITS; s++)
		for (int f = 0; f < FINDINGS && a->images[s]; f++) {
			size_t p = a->positives[s][f], n = a->negatives[s][f];
			if (p + n == 0)
				audit_say(a, AUDIT_COUNTS, 0, 0, "%s: no label is known in %s", finding_names[f], split_names[s]);
			else if (p == 0 || n == 0)
				audit_say(a, AUDIT_COUNTS, 0, p, "%s: no %s: its AUROC is not defined in %s", finding_names[f], p ? "negatives" : "positives", split_names[s]);
			else if (s != SPLIT_TRAIN)
				check_patients(a, s, f);
		}
}

int audit_run(struct audit *a, const struct origin *o, const struct audit_conf *conf, struct error *e)
{
	struct nih n;
	int threads = conf->threads ? conf->threads : omp_get_max_threads();

	memset(a, 0, sizeof *a);
	for (size_t i = 0; i < o->count; i++)
		if (o->split[i] < SPLITS) {
			a->images[o->split[i]]++;
			for (int f = 0; f < FINDINGS; f++)
				if (o->samples[i].known >> f & 1)
					(o->samples[i].labels >> f & 1 ? a->positives : a->negatives)[o->split[i]][f]++;
		}
	if (o->missing.count)
		audit_say(a, AUDIT_DROPPED, 1, o->missing.count, "%zu of %zu images %s a row but no file in images/ or images_*/: %s", o->missing.count, o->count + o->missing.count,
		    o->missing.count == 1 ? "has" : "have", o->missing.text);
	if (o->extra)
		audit_say(a, AUDIT_DROPPED, 0, o->extra, "%zu image file%s no row in the table", o->extra, o->extra == 1 ? " has" : "s have");
	if (o->unlisted)
		audit_say(a, AUDIT_DROPPED, 0, o->unlisted, "%zu image%s in no list", o->unlisted, o->unlisted == 1 ? " is" : "s are");
	if (check_leak(a, o, e) || check_names(a, o, e))
		return -e->code;
	if (conf->table) {
		if (nih_open_tables(&n, conf->table, conf->train_val_list, conf->test_list, e))
			return -e->code;
		check_labels(a, o, &n);
		int rc = audit_shortcuts(a, o, &n, e);
		if (!rc && conf->train_val_list)
			rc = check_dropped(a, o, &n, e);
		nih_close(&n);
		if (rc)
			return rc;
	} else if (audit_shortcuts(a, o, NULL, e)) {
		return -e->code;
	}
	if (conf->pixels && o->decode) {
		struct look *looks = look_at_all(o, conf->tell, threads, e);
		if (!looks)
			return -e->code;
		check_images(a, o, looks);
		check_duplicates(a, o, looks);
		forget_looks(looks, o->count);
	}
	check_counts(a, o);
	return 0;
}

static int list_there(const char *directory, const char *name)
{
	char path[FILE_PATH];
	struct error e = { 0 };

	return path_join(path, &e, "%s/%s", directory, name) == 0 && path_there(path, &e) != 0;
}

int audit_open(struct origin *o, const char *path, struct error *e)
{
	char file[FILE_PATH];
	struct stat st;

	int there = path_there(path, e);

	if (there == 0)
		return fail(e, EXIT_DATA, "%s: no such directory", path);
	if (there > 0 && stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
		return fail(e, EXIT_DATA, S_ISREG(st.st_mode) ? "%s: a file, not a directory" : "%s: neither a directory nor a regular file", path);
	if (there < 0 || path_join(file, e, "%s/manifest.json", path) || (there = path_there(file, e)) < 0)
		return -e->code;
	if (there)
		return origin_prepared(o, path, e);
	if (origin_tfrecord(o, path, LABELS_CHEXNET, NULL, NULL, e) == 0)
		return 0;
	if (!strstr(e->text, "no train-"))
		return -e->code;
	*e = (struct error){ 0 };
	/* with one list of the two the other is missing; with none patients are divided as prepare --split=chexnet does */
	int lists = list_there(path, "train_val_list.txt") || list_there(path, "test_list.txt");
	return origin_nih_partial(o, path, lists ? SPLIT_OFFICIAL : SPLIT_CHEXNET, 1, e);
}
