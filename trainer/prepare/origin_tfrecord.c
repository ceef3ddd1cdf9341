/* SPDX-License-Identifier: Apache-2.0
 * TFRecords of other programs. Dell's trainer's files carry 14 labels without saying what they stand for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/example.h"
#include "data/hash.h"
#include "data/manifest.h"
#include "files/tfrecord.h"
#include "prepare/origin.h"

const char *const label_order_names[] = { "dell", "chexnet", "infer", NULL };

/* Label i of dellemc-hpc-ai/ai-radiologist-GPU: Cardiomegaly, Emphysema, Effusion, Hernia, Nodule, Pneumothorax, Atelectasis,
 * Pleural_Thickening, Mass, Edema, Consolidation, Infiltration, Fibrosis, Pneumonia. */
static const int dell_order[FINDINGS] = { 1, 10, 2, 13, 5, 7, 0, 12, 4, 9, 8, 3, 11, 6 };

struct foreign_file {
	char path[FILE_PATH];
	struct mapped_file map;
};

struct foreign {
	struct foreign_file *files;
	int n_files;
	struct place {
		int file;
		size_t record, offset;
		struct span name; /* in the file */
	} *places; /* [count] */
	size_t room;
	int named;  /* records carry label/names */
	const volatile sig_atomic_t *stop;
};

static void close_foreign(void *state)
{
	struct foreign *f = state;

	for (int i = 0; i < f->n_files; i++)
		file_unmap(&f->files[i].map);
	free(f->files);
	free(f->places);
	free(f);
}

static int fail_at(struct error *e, const struct foreign *f, const struct place *p, const struct error *why)
{
	return fail(e, why->code, "%s: record %zu at byte %zu: %s", f->files[p->file].path, p->record, p->offset, why->text);
}

static int decode_foreign(const struct origin *o, size_t i, struct decoder *d, struct image *image, struct error *e)
{
	const struct foreign *f = o->state;
	const struct place *p = &f->places[i];
	const struct mapped_file *map = &f->files[p->file].map;
	struct tfrecord record;
	struct example x;
	struct error why = { 0 };

	if (tfrecord_at(map->data, map->size, p->offset, &record, &why) < 0 || example_parse(record.data, record.size, &x, &why) ||
	    decode_image(d, x.encoded.data, x.encoded.size, image, &why))
		return fail_at(e, f, p, &why);
	return 0;
}

/* As 00000001_000.png, or another suffix as long: NIH's names begin with the patient. */
static int is_nih_name(const char *id)
{
	static const char digits[] = "0123456789";
	return strlen(id) == 16 && strspn(id, digits) == 8 && id[8] == '_' && strspn(id + 9, digits) == 3 && id[12] == '.';
}

/* The sample's name without folders, and its patient. Others' names may look like NIH's, as with a date in the patient's place. */
static int read_identity(const struct example *x, struct sample *s, struct error *why)
{
	const uint8_t *name = x->filename.data, *slash = x->filename.size ? memrchr(name, '/', x->filename.size) : NULL;
	size_t folders = slash ? (size_t)(slash + 1 - name) : 0;

	if (sample_name(s->id, name + folders, x->filename.size - folders, why))
		return -why->code;
	const long long number = is_nih_name(s->id) ? strtoll(s->id, NULL, 10) : -1, named = number <= NIH_PATIENTS ? number : -1;

	if (x->patient < -1 || x->patient > UINT32_MAX)
		return fail(why, EXIT_DATA, "patient/id: out of range: " PATIENT_WANTED);
	if (x->patient < 0 && named < 0)
		return fail(why, EXIT_DATA, "no patient/id, and image/filename \"%s\" is no NIH name that would tell it: " PATIENT_WANTED, s->id);
	if (x->patient >= 0 && x->patient != named && named >= 1)
		return fail(why, EXIT_DATA, "image %s belongs to patient %lld by its name, but to %lld by its patient/id", s->id, named, (long long)x->patient);
	s->patient = (uint32_t)(x->patient >= 0 ? x->patient : named);
	return 0;
}

static int grow(struct origin *o, struct foreign *f, struct error *e)
{
	if (o->count < f->room)
		return 0;
	f->room = f->room * 2 + 4096;
	struct sample *samples = realloc(o->samples, f->room * sizeof *samples);
	o->samples = samples ? samples : o->samples;
	struct place *places = realloc(f->places, f->room * sizeof *places);
	f->places = places ? places : f->places;
	uint8_t *split = realloc(o->split, f->room);
	o->split = split ? split : o->split;
	return samples && places && split ? 0 : fail(e, EXIT_INTERNAL, "no memory for %zu records", f->room);
}

static int index_file(struct origin *o, struct foreign *f, int file, enum split split, struct error *e)
{
	struct foreign_file *current = &f->files[file];
	struct place p = { .file = file };
	struct tfrecord record;
	struct example x;
	struct error why = { 0 };

	if (file_map(&current->map, current->path, e))
		return -e->code;
	while (tfrecord_at(current->map.data, current->map.size, p.offset, &record, &why) > 0) {
		if (f->stop && *f->stop)
			return fail(e, EXIT_INTERNAL, "interrupted; nothing is left behind");
		if (grow(o, f, e))
			return -e->code;
		struct sample *s = &o->samples[o->count];
		*s = (struct sample){ 0 };
		if (example_parse(record.data, record.size, &x, &why) || read_identity(&x, s, &why) ||
		    example_labels(&x, NULL, &s->labels, &s->known, &why))
			break;
		if (o->count && f->named != (x.n_name != 0)) { /* no order of labels would be right for all of them */
			fail(&why, EXIT_DATA, "label/names: %s, unlike in the records before", f->named ? "is not there" : "is there");
			break;
		}
		f->named = x.n_name != 0;
		p.name = x.filename;
		o->split[o->count] = split;
		f->places[o->count++] = p;
		p.record++;
		p.offset = record.next;
	}
	return why.code ? fail_at(e, f, &p, &why) : 0;
}

/* Names say how many files there are: a copy that was broken off must not pass for the whole set. */
static int check_complete(const glob_t *g, const char *directory, const char *prefix, struct error *e)
{
	for (size_t i = 0; i < g->gl_pathc; i++) {
		const char *name = strrchr(g->gl_pathv[i], '/') + 1;
		unsigned long all = strtoul(strstr(name, "-of-") + 4, NULL, 10);

		if (all != g->gl_pathc)
			return fail(e, EXIT_DATA, "%s: %zu %s-…-of-… files, and the name of %s says %lu", directory, g->gl_pathc, prefix, name, all);
	}
	return 0;
}

static int index_split(struct origin *o, struct foreign *f, const char *directory, const char *prefix, enum split split, struct error *e)
{
	char names[64];
	glob_t g;
	int rc = 0;

	snprintf(names, sizeof names, "%s-[0-9]*-of-[0-9]*", prefix);
	if (path_glob(&g, directory, names, e) || g.gl_pathc == 0)
		return -e->code;
	struct foreign_file *files = realloc(f->files, ((size_t)f->n_files + g.gl_pathc) * sizeof *files);
	if (files)
		f->files = files;
	else
		rc = fail(e, EXIT_INTERNAL, "no memory for %zu files", g.gl_pathc);
	if (!rc)
		rc = check_complete(&g, directory, prefix, e);
	for (size_t i = 0; !rc && i < g.gl_pathc; i++) {
		struct foreign_file *file = &f->files[f->n_files++];
		file->map = (struct mapped_file){ 0 };
		rc = path_join(file->path, e, "%s", g.gl_pathv[i]);
		if (!rc)
			rc = index_file(o, f, f->n_files - 1, split, e);
	}
	globfree(&g);
	return rc;
}

/* An image whose name another one of its split has too, among all of them or those with NIH's names alone, or NULL. */
static const struct sample *find_twin(const struct origin *o, const struct sample **sorted, int nih_alone)
{
	const struct sample *twin = NULL;

	for (int split = 0; split < SPLITS && !twin; split++) {
		size_t n = 0;
		for (size_t i = 0; i < o->count; i++)
			if (o->split[i] == split && (!nih_alone || is_nih_name(o->samples[i].id)))
				sorted[n++] = &o->samples[i];
		twin = sample_twin(sorted, n);
	}
	return twin;
}

/* The length of the folders that two names begin with, with the slash behind them. */
static size_t shared_folders(const struct span *name, const struct span *other)
{
	size_t shared = 0;

	for (size_t i = 0; i < name->size && i < other->size && name->data[i] == other->data[i]; i++)
		if (name->data[i] == '/')
			shared = i + 1;
	return shared;
}

/* Gives names their folders back, less those that all have: where a set lies on a machine does not tell its images apart. */
static int name_with_folders(struct origin *o, const struct foreign *f, int nih_too, struct error *e)
{
	const struct span *first = NULL;
	size_t shared = SIZE_MAX;
	struct error why = { 0 };

	for (size_t i = 0; i < o->count; i++) {
		const struct span *name = &f->places[i].name;

		if (!nih_too && is_nih_name(o->samples[i].id))
			continue;
		first = first ? first : name;
		size_t here = shared_folders(name, first);
		shared = here < shared ? here : shared;
	}
	for (size_t i = 0; i < o->count; i++) {
		const struct place *p = &f->places[i];

		if ((nih_too || !is_nih_name(o->samples[i].id)) && sample_name(o->samples[i].id, p->name.data + shared, p->name.size - shared, &why))
			return fail_at(e, f, p, &why);
	}
	return 0;
}

/* Names without folders stay where they tell the images of each split apart, and NIH's where they do so among themselves. Others
 * (CheXpert's: patient00001/study1/view1_frontal.jpg) are told with folders. */
static int name_samples(struct origin *o, const struct foreign *f, struct error *e)
{
	const struct sample **sorted = malloc(o->count * sizeof *sorted);

	if (!sorted)
		return fail(e, EXIT_INTERNAL, "no memory for %zu records", o->count);
	const struct sample *twin = find_twin(o, sorted, 0);
	if (twin)
		controls_mend(memcpy(o->twin, twin->id, sizeof o->twin)); /* it is printed */
	int rc = twin ? name_with_folders(o, f, find_twin(o, sorted, 1) != NULL, e) : 0;
	free(sorted);
	for (size_t i = 0; i < o->count; i++)
		o->hash = hash_u64(hash_bytes(o->hash, o->samples[i].id, strlen(o->samples[i].id)), o->samples[i].labels);
	return rc;
}

/* Moves label i to bit order[i]. */
static void reorder(struct origin *o, const int order[FINDINGS])
{
	for (size_t i = 0; i < o->count; i++) {
		struct sample *s = &o->samples[i];
		uint32_t labels = 0, known = 0;
		for (int f = 0; f < FINDINGS; f++) {
			labels |= (s->labels >> f & 1) << order[f];
			known |= (s->known >> f & 1) << order[f];
		}
		s->labels = labels;
		s->known = known;
	}
}

int label_order_infer(const struct sample *samples, size_t count, const struct nih *n, int order[FINDINGS], double agreement[FINDINGS],
		      struct error *e)
{
	size_t both[FINDINGS][FINDINGS] = { { 0 } }, here[FINDINGS] = { 0 }, there[FINDINGS] = { 0 }, matched = 0;
	uint32_t taken = 0;

	for (size_t i = 0; i < count; i++) {
		const char *slash = strrchr(samples[i].id, '/');
		const struct nih_image *image = nih_find(n, slash ? slash + 1 : samples[i].id);
		if (!image)
			continue;
		matched++;
		for (int a = 0; a < FINDINGS; a++) {
			here[a] += samples[i].labels >> a & 1;
			there[a] += image->sample.labels >> a & 1;
			for (int b = 0; b < FINDINGS; b++)
				both[a][b] += (samples[i].labels >> a & 1) & (image->sample.labels >> b & 1);
		}
	}
	if (matched < count * 999 / 1000 || matched == 0)
		return fail(e, EXIT_DATA, "%zu of %zu images are in %s: too few to tell what the labels stand for", matched, count, n->table);
	for (int a = 0; a < FINDINGS; a++) {
		double best = -1;
		for (int b = 0; b < FINDINGS; b++) {
			double f1 = here[a] + there[b] ? 2.0 * (double)both[a][b] / (double)(here[a] + there[b]) : 0;
			if (f1 > best) {
				best = f1;
				order[a] = b;
			}
		}
		agreement[a] = 1 - (double)(here[a] + there[order[a]] - 2 * both[a][order[a]]) / (double)matched;
		if (best <= 0.5 || agreement[a] < 0.999 || taken & 1u << order[a])
			return fail(e, EXIT_DATA, "label %d agrees with no finding of %s (best: %s, F1 %.3f, %.2f %% of the images)", a, n->table,
				    finding_names[order[a]], best, 100 * agreement[a]);
		taken |= 1u << order[a];
	}
	return 0;
}

static int set_order(struct origin *o, const struct foreign *f, enum label_order order, const char *table, struct error *e)
{
	struct nih n;
	int found[FINDINGS];
	double agreement[FINDINGS];

	if (f->named || order == LABELS_CHEXNET)
		return 0; /* names in the records have put every label in its place already */
	if (order == LABELS_DELL) {
		reorder(o, dell_order);
		return 0;
	}
	if (!table)
		return fail(e, EXIT_USAGE, "to infer what the labels stand for takes NIH's table: --table Data_Entry_2017_v2020.csv");
	if (nih_open_tables(&n, table, NULL, NULL, e))
		return -e->code;
	int rc = label_order_infer(o->samples, o->count, &n, found, agreement, e);
	if (!rc)
		reorder(o, found);
	nih_close(&n);
	return rc;
}

/* A set of ours that has no TFRecords. */
static int check_packed(const char *directory, struct error *e)
{
	char path[FILE_PATH];

	if (path_join(path, e, "%s/manifest.json", directory) || path_there(path, e) <= 0)
		return -e->code;
	for (int s = 0; s < SPLITS; s++) {
		if (packed_path(path, directory, (enum split)s, e))
			return -e->code;
		if (path_there(path, e) > 0)
			return fail(e, EXIT_DATA, "%s: a packed set, which is prepared already: --data takes it as it is; another size or format is made from the images, or from a set that was prepared with "
						  "--format=png or jpeg", directory);
	}
	return -e->code;
}

int origin_tfrecord(struct origin *o, const char *directory, enum label_order order, const char *table, const volatile sig_atomic_t *stop, struct error *e)
{
	static const struct {
		const char *prefix;
		enum split split;
	} kinds[] = { { "train", SPLIT_TRAIN }, { "val", SPLIT_VAL }, { "validation", SPLIT_VAL }, { "test", SPLIT_TEST } };
	struct foreign *f = calloc(1, sizeof *f);
	int rc = 0;

	*o = (struct origin){ .state = f, .decode = decode_foreign, .close = close_foreign };
	if (!f) {
		o->close = NULL;
		return fail(e, EXIT_INTERNAL, "no memory");
	}
	f->stop = stop;
	for (size_t k = 0; !rc && k < sizeof kinds / sizeof kinds[0]; k++)
		rc = index_split(o, f, directory, kinds[k].prefix, kinds[k].split, e);
	if (!rc && f->n_files == 0)
		rc = check_packed(directory, e);
	if (!rc && f->n_files == 0)
		rc = fail(e, EXIT_DATA, "%s: no train-…-of-…, val-…-of-… or test-…-of-… files", directory);
	if (!rc && o->count == 0)
		rc = fail(e, EXIT_DATA, "%s: %d file%s without a record", directory, f->n_files, f->n_files == 1 ? "" : "s");
	if (!rc)
		rc = name_samples(o, f, e);
	if (!rc)
		rc = set_order(o, f, order, table, e);
	snprintf(o->policy, sizeof o->policy, "as in the records");
	snprintf(o->name, sizeof o->name, "TFRecord, labels in %s order", f->named ? "named" : label_order_names[order]);
	if (rc)
		origin_close(o);
	return rc;
}
