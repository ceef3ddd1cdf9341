/* SPDX-License-Identifier: Apache-2.0
 * Other people's TFRecords as a source of images: their labels' order, their names, and what is refused. */
#include <dirent.h>
#include <errno.h>
#include <glob.h>

#include "data/example.h"
#include "files/tfrecord.h"
#include "small_tree.h"

/* Listings that are still to go well: the next one's memory, and the next entry's reading, then fail once. */
static int globs = -1, entries = -1;

int __real_glob(const char *pattern, int flags, int (*on_error)(const char *, int), glob_t *found);
int __wrap_glob(const char *pattern, int flags, int (*on_error)(const char *, int), glob_t *found);
struct dirent *__real_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d);

int __wrap_glob(const char *pattern, int flags, int (*on_error)(const char *, int), glob_t *found)
{
	return globs-- == 0 ? GLOB_NOSPACE : __real_glob(pattern, flags, on_error, found);
}

struct dirent *__wrap_readdir(DIR *d)
{
	if (entries-- != 0)
		return __real_readdir(d);
	errno = EIO;
	return NULL;
}

/* Orders of labels: this program's, and that of Dell's trainer. */
static const int own[FINDINGS] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 };
static const int dell[FINDINGS] = { 1, 10, 2, 13, 5, 7, 0, 12, 4, 9, 8, 3, 11, 6 };

static void make_directory(char directory[FILE_PATH], const char *name)
{
	snprintf(directory, FILE_PATH, "%s", scratch_path("%s", name));
	mkdir(directory, 0777);
}

static uint32_t unknown; /* labels, in the records' order, of which that is said */

/* Dell's trainer's files: three keys, labels in an order of its own that is not written down, unless `named`. */
static void write_records(const char *directory, const char *name, const int order[FINDINGS], size_t first, size_t n, const struct synth_case *cases,
			  int named)
{
	struct tfrecord_writer w;
	struct bytes b = { 0 };
	struct error e = { 0 };
	char path[FILE_PATH + 64];
	float *work = malloc(SYNTH_WORK * 48 * 48 * sizeof *work);
	uint8_t drawn[48 * 48];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	assert_int_equal(tfrecord_create(&w, path, &e), 0);
	for (size_t i = first; i < first + n; i++) {
		const char *id = cases[i].sample.id;
		struct example x = { .height = -1, .width = -1, .patient = strchr(id, '/') ? (int64_t)cases[i].sample.patient : -1, .n_label = FINDINGS };
		synth_draw(&synth, &cases[i], work, drawn, NULL, NULL);
		uint8_t *png = encode_png(drawn, 48, 48, 1, &x.encoded.size);
		x.encoded.data = png;
		x.filename = (struct span){ (const uint8_t *)id, strlen(id) };
		for (int k = 0; k < FINDINGS; k++)
			x.label[k] = cases[i].sample.labels >> order[k] & 1;
		x.n_known = unknown ? FINDINGS : 0;
		for (int k = 0; k < x.n_known; k++)
			x.known[k] = !(unknown >> k & 1);
		x.n_name = named ? FINDINGS : 0;
		for (int k = 0; k < x.n_name; k++)
			x.name[k] = (struct span){ (const uint8_t *)finding_names[order[k]], strlen(finding_names[order[k]]) };
		assert_int_equal(example_write(&b, &x), 0);
		assert_int_equal(tfrecord_append(&w, b.data, b.size, &e), 0);
		free(png);
	}
	assert_int_equal(tfrecord_commit(&w, &e), 0);
	free(b.data);
	free(work);
}

static void write_foreign(const char *directory, const char *name, const int order[FINDINGS], size_t first, size_t n, const struct synth_case *cases)
{
	write_records(directory, name, order, first, n, cases, 0);
}

static void records_with_and_without_names_of_labels_are_not_mixed(void **state)
{
	(void)state;
	struct synth_case *cases = synth_plan(&synth);
	char directory[FILE_PATH];
	make_directory(directory, "mixed");
	for (int named = 0; named < 2; named++) {
		struct error e = { 0 };
		struct origin o;
		write_records(directory, "train-00000-of-00002", dell, 0, 10, cases, named);
		write_records(directory, "train-00001-of-00002", dell, 10, 10, cases, named);
		assert_int_equal(origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &e), 0);
		origin_close(&o);
		write_records(directory, "train-00001-of-00002", dell, 10, 10, cases, !named);
		assert_int_equal(origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &e), -EXIT_DATA);
		assert_non_null(strstr(e.text, "train-00001-of-00002: record 0 at byte 0: label/names: "));
	}
	free(cases);
}

static void a_copy_without_all_of_its_files_is_refused(void **state)
{
	(void)state;
	struct synth_case *cases = synth_plan(&synth);
	struct origin o;
	struct error e = { 0 }, more = { 0 };
	char directory[FILE_PATH];
	make_directory(directory, "part");
	write_records(directory, "train-00000-of-00003", own, 0, 5, cases, 1);
	write_records(directory, "train-00002-of-00003", own, 5, 5, cases, 1);
	assert_int_equal(origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "2 train-…-of-… files, and the name of train-00000-of-00003 says 3"));
	write_records(directory, "train-00001-of-00003", own, 10, 5, cases, 1);
	assert_int_equal(origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &more), 0);
	assert_int_equal(o.count, 15);
	origin_close(&o);
	free(cases);
}

/* Where a listing fails, a split must not pass for one that is not there. */
static void a_split_that_could_not_be_listed_is_not_left_out(void **state)
{
	struct synth_case *cases = synth_plan(&synth);
	static const char *const files[] = { "train-00000-of-00001", "val-00000-of-00001", "test-00000-of-00001" };
	char directory[FILE_PATH];

	(void)state;
	make_directory(directory, "unlisted");
	for (size_t i = 0; i < 3; i++)
		write_records(directory, files[i], own, 5 * i, 5, cases, 1);
	for (int kind = 0; kind < 2; kind++)
		for (int n = 0, rc = -1; rc; n++) {
			struct error e = { 0 };
			struct origin o;

			globs = kind ? -1 : n;
			entries = kind ? n : -1;
			rc = origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &e);
			if (rc) {
				assert_int_equal(rc, -EXIT_INTERNAL);
				assert_non_null(strstr(e.text, kind ? "unlisted: cannot be listed: Input/output error" : "unlisted: cannot be listed: Cannot allocate memory"));
				continue;
			}
			assert_int_equal(o.count, 15);
			assert_true(n >= 3);
			origin_close(&o);
		}
	globs = entries = -1;
	free(cases);
}

/* NIH's numbers begin at 1, others' at 0. */
static void a_patient_with_the_number_0_leaks_too(void **state)
{
	(void)state;
	struct synth_case *cases = synth_plan(&synth);
	struct origin o;
	struct prepare_report r;
	struct prepare_conf conf = prepare_to(scratch_path("zero-prepared"));
	struct error e = { 0 };
	char directory[FILE_PATH];
	make_directory(directory, "zero");
	for (int i = 0; i < 4; i++)
		snprintf(cases[i].sample.id, sizeof cases[i].sample.id, "%08d_%03d.png", i == 1 ? 7 : 0, i);
	write_records(directory, "train-00000-of-00001", own, 0, 2, cases, 1);
	write_records(directory, "val-00000-of-00001", own, 2, 1, cases, 1);
	write_records(directory, "test-00000-of-00001", own, 3, 1, cases, 1); /* and is one patient in all three */
	assert_int_equal(origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &e), 0);
	if (prepare(&conf, &o, &r, &e))
		fail_msg("%s", e.text);
	origin_close(&o);
	assert_int_equal(r.leaked, 1);
	assert_int_equal(r.leak_example, 0);
	free(cases);
}

static void a_patient_comes_from_patient_id_or_from_a_name_of_nihs_that_does_not_contradict_it(void **state)
{
	(void)state;
	static const char wanted[] = ": a patient's number is wanted, one int64 from 0 to 4294967295";
	static const struct {
		const char *name; /* where it has a folder, patient/id is written */
		uint32_t patient, is;
		const char *refused, *cure;
	} sets[] = {
		{ "00000007_000.png", 0, 7, NULL, NULL },
		{ "00000007_000.jpg", 0, 7, NULL, NULL },
		{ "view1.png", 0, 0, "no patient/id, and image/filename \"view1.png\" is no NIH name that would tell it", wanted },
		{ "00000123.dcm.png", 0, 0, "no patient/id, and image/filename \"00000123.dcm.png\" is no NIH name", wanted }, /* the number of an image */
		{ "x/00000123.dcm.png", 5, 5, NULL, NULL },
		{ "x/view1.png", UINT32_MAX, UINT32_MAX, NULL, NULL },
		{ "x/00000007_000.png", 7, 7, NULL, NULL },
		{ "x/00000007_000.png", 8, 0, "record 0 at byte 0: image 00000007_000.png belongs to patient 7 by its name, but to 8 by its patient/id", "" },
		{ "x/00000007_000.png", 0, 0, "belongs to patient 7 by its name, but to 0 by its patient/id", "" },
		{ "x/00030805_000.png", 8, 0, "belongs to patient 30805 by its name", "" },
		{ "x/00030806_000.png", 8, 8, NULL, NULL },
		{ "x/20230100_000.png", 5, 5, NULL, NULL }, /* a date: NIH has no such patient */
		{ "20230100_000.png", 0, 0, "no patient/id, and image/filename \"20230100_000.png\" is no NIH name", wanted },
	};
	struct synth_case *cases = synth_plan(&synth);
	char directory[FILE_PATH];

	make_directory(directory, "patients");
	for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
		struct origin o;
		struct error e = { 0 };

		snprintf(cases[0].sample.id, SAMPLE_ID, "%s", sets[i].name);
		cases[0].sample.patient = sets[i].patient;
		write_records(directory, "train-00000-of-00001", own, 0, 1, cases, 1);
		int rc = origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &e);
		if (rc != (sets[i].refused ? -EXIT_DATA : 0) || (rc && !(strstr(e.text, sets[i].refused) && strstr(e.text, sets[i].cure))))
			fail_msg("%s: \"%s\"", sets[i].name, e.text);
		if (rc)
			continue;
		assert_int_equal(o.samples[0].patient, sets[i].is);
		origin_close(&o);
	}
	free(cases);
}

static void a_set_without_a_record_is_refused(void **state)
{
	(void)state;
	struct origin o;
	struct error e = { 0 };
	char directory[FILE_PATH];

	make_directory(directory, "none");
	scratch_write(scratch_path("none/train-00000-of-00001"), "", 0);
	assert_int_equal(origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "none: 1 file without a record"));
}

/* Of three images with a finding and one without it two are known, one of each: prepare's share is a half. The same is read from what it wrote. */
static void a_label_that_is_not_known_is_in_no_share(void **state)
{
	(void)state;
	struct synth_case *cases = synth_plan(&synth);
	struct origin o;
	struct prepare_report r;
	struct dataset *d = NULL;
	struct prepare_conf conf = prepare_to(NULL);
	struct error e = { 0 };
	char directory[FILE_PATH], out[FILE_PATH];
	make_directory(directory, "share");
	for (int i = 0; i < 4; i++)
		cases[i].sample.labels = i < 3 ? 1u << 4 : 0;
	write_records(directory, "train-00000-of-00001", own, 0, 4, cases, 1);
	assert_int_equal(origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &e), 0);
	o.samples[0].known = o.samples[1].known = ~(1u << 4) & ((1u << FINDINGS) - 1);
	for (enum encoding encoding = ENCODING_PNG; encoding <= ENCODING_PACKED; encoding++) {
		snprintf(out, sizeof out, "%s", scratch_path("share-%d", (int)encoding));
		conf.out = out;
		conf.encoding = encoding;
		if (prepare(&conf, &o, &r, &e) || dataset_open(&d, out, "train", &e))
			fail_msg("%s", e.text);
		assert_int_equal(r.known[SPLIT_TRAIN][4], 2);
		assert_int_equal(r.positives[SPLIT_TRAIN][4], 1);
		assert_int_equal(r.known[SPLIT_TRAIN][5], 4);
		assert_int_equal(dataset_count(d), 4);
		struct manifest m;
		assert_int_equal(manifest_read(&m, out, &e), 0);
		assert_true(m.seed == conf.seed && m.source_hash == o.hash && m.size == conf.size && m.encoding == encoding);
		for (size_t i = 0; i < 4; i++)
			for (size_t k = 0; k < 4; k++)
				if (strcmp(dataset_samples(d)[i].id, o.samples[k].id) == 0) {
					assert_int_equal(dataset_samples(d)[i].known, o.samples[k].known);
					assert_int_equal(dataset_samples(d)[i].labels & o.samples[k].known, o.samples[k].labels & o.samples[k].known);
				}
		dataset_close(d);
	}
	origin_close(&o);
	free(cases);
}

static void what_is_not_known_moves_with_its_label(void **state)
{
	(void)state;
	struct synth_case *cases = synth_plan(&synth);
	char directory[FILE_PATH];

	make_directory(directory, "moved");
	for (int named = 0; named < 2; named++) {
		struct origin o;
		struct error e = { 0 };

		unknown = 1u << 0 | 1u << 3;
		write_records(directory, "train-00000-of-00001", dell, 0, 4, cases, named);
		unknown = 0;
		assert_int_equal(origin_tfrecord(&o, directory, named ? LABELS_INFER : LABELS_DELL, NULL, NULL, &e), 0);
		for (size_t i = 0; i < 4; i++) {
			const uint32_t known = ((1u << FINDINGS) - 1) & ~(1u << dell[0]) & ~(1u << dell[3]);
			assert_int_equal(o.samples[i].known, known);
			assert_int_equal(o.samples[i].labels & known, cases[i].sample.labels & known);
		}
		origin_close(&o);
	}
	free(cases);
}

static void a_preparation_that_is_stopped_leaves_nothing(void **state)
{
	(void)state;
	struct synth_case *cases = synth_plan(&synth);
	struct origin o;
	struct prepare_report r;
	struct prepare_conf conf = prepare_to(scratch_path("stopped-prepared"));
	struct error e = { 0 };
	const volatile sig_atomic_t stop = 1;
	char directory[FILE_PATH];
	glob_t left;

	make_directory(directory, "stopped");
	write_records(directory, "train-00000-of-00001", own, 0, 4, cases, 1);
	assert_int_equal(origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &e), 0);
	conf.stop = &stop;
	assert_int_equal(prepare(&conf, &o, &r, &e), -EXIT_INTERNAL);
	assert_string_equal(e.text, "interrupted; nothing is left behind");
	origin_close(&o);
	e = (struct error){ 0 };
	assert_int_equal(path_glob(&left, scratch, "stopped-prepared*", &e), 0);
	assert_int_equal(left.gl_pathc, 0);
	free(cases);
}

static void the_reference_trainers_records_are_read_and_their_label_order_found(void **state)
{
	(void)state;
	struct synth_case *cases = synth_plan(&synth);
	struct origin o;
	struct error e = { 0 };
	char directory[FILE_PATH], table[FILE_PATH + 64];
	make_directory(directory, "foreign");
	snprintf(table, sizeof table, "%s/Data_Entry_2017_v2020.csv", tree);
	write_foreign(directory, "train-00000-of-00002", dell, 0, 50, cases);
	write_foreign(directory, "train-00001-of-00002", dell, 50, 40, cases);
	write_foreign(directory, "val-00000-of-00001", dell, 90, 30, cases);
	for (enum label_order order = LABELS_DELL; order <= LABELS_INFER; order++) {
		if (origin_tfrecord(&o, directory, order, table, NULL, &e))
			fail_msg("%s", e.text);
		assert_int_equal(o.count, 120);
		size_t wrong = 0;
		for (size_t i = 0; i < o.count; i++) {
			assert_string_equal(o.samples[i].id, cases[i].sample.id);
			assert_int_equal(o.samples[i].patient, cases[i].sample.patient);
			assert_int_equal(o.split[i], i < 90 ? SPLIT_TRAIN : SPLIT_VAL);
			wrong += o.samples[i].labels != cases[i].sample.labels;
		}
		assert_true(order == LABELS_CHEXNET ? wrong > 50 : wrong == 0);
		origin_close(&o);
	}
	assert_int_equal(origin_tfrecord(&o, directory, LABELS_INFER, NULL, NULL, &e), -EXIT_USAGE);

	/* one label column that is another's copy, and labels that agree with nothing */
	int twice[FINDINGS];
	memcpy(twice, dell, sizeof twice);
	twice[3] = twice[4];
	write_foreign(directory, "train-00000-of-00002", twice, 0, 50, cases);
	write_foreign(directory, "train-00001-of-00002", twice, 50, 40, cases);
	e.code = 0;
	assert_int_equal(origin_tfrecord(&o, directory, LABELS_INFER, table, NULL, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "agrees with no finding of"));

	/* and all the way to training's files */
	struct prepare_report r;
	struct prepare_conf conf = prepare_to(scratch_path("from-foreign"));
	write_foreign(directory, "train-00000-of-00002", dell, 0, 50, cases);
	write_foreign(directory, "train-00001-of-00002", dell, 50, 40, cases);
	e.code = 0;
	assert_int_equal(origin_tfrecord(&o, directory, LABELS_DELL, NULL, NULL, &e), 0);
	if (prepare(&conf, &o, &r, &e))
		fail_msg("%s", e.text);
	origin_close(&o);
	assert_int_equal(r.manifest.split[SPLIT_TRAIN].images, 90);
	assert_true(r.leaked == 0 || r.leaked == 1); /* the cut at 90 may fall between a patient's images */
	free(cases);
}

/* Labels of 4,000 images as the table has them, but for `wrong` images of finding 5, which every `every`-th has; twice: label 6 stands
 * for it too. */
static int infer(size_t wrong, size_t every, size_t known_to_table, int twice, int order[FINDINGS], struct error *e)
{
	enum { N = 4000 };
	static struct sample samples[N];
	static struct nih_image images[N], *by_id[N];
	struct nih n = { .images = images, .by_id = by_id, .count = known_to_table };
	double agreement[FINDINGS];

	snprintf(n.table, sizeof n.table, "table.csv");
	for (size_t i = 0; i < N; i++) {
		uint32_t labels = 0;

		for (uint32_t f = 0; f < FINDINGS; f++)
			labels |= (uint32_t)(f == 5 ? i % every == 0 : (i / 8 * 2654435761u >> (f + 8) & 7) == f % 8) << f;
		samples[i] = (struct sample){ .patient = (uint32_t)i, .labels = labels, .known = (1u << FINDINGS) - 1 };
		snprintf(samples[i].id, SAMPLE_ID, "%08zu_000.png", i);
		images[i].sample = samples[i];
		by_id[i] = &images[i];
		if (i / every < wrong && i % every == 0) /* nobody has it here */
			samples[i].labels &= ~(1u << 5);
		if (twice)
			samples[i].labels = (samples[i].labels & ~(1u << 6)) | (samples[i].labels >> 5 & 1) << 6;
	}
	return label_order_infer(samples, N, &n, order, agreement, e);
}

/* Of a rare finding the images that lack it agree by themselves, and of a common one too many may not although most do. */
static void an_order_is_inferred_only_where_each_label_is_one_findings(void **state)
{
	(void)state;
	static const struct {
		size_t wrong, every, known;
		const char *refused;
		int twice;
	} sets[] = {
		{ 0, 20, 4000, "label 6 agrees with no finding of table.csv (best: Nodule, F1 1.000, 100.00 % of the images)", 1 },
		{ 0, 20, 4000, NULL, 0 },
		{ 4, 20, 4000, NULL, 0 },                                                               /* 1 image of 1,000 */
		{ 5, 20, 4000, "label 5 agrees with no finding of table.csv (best: Nodule, F1 0.987, 99.88 % of the images)", 0 },
		{ 2, 1000, 4000, NULL, 0 },                                                             /* of 4, two are left */
		{ 3, 1000, 4000, "label 5 agrees with no finding of table.csv (best: Nodule, F1 0.400, 99.92 % of the images)", 0 },
		{ 2, 1334, 4000, "label 5 agrees with no finding of table.csv (best: Nodule, F1 0.500, 99.95 % of the images)", 0 },
		{ 0, 20, 3996, NULL, 0 },
		{ 0, 20, 3995, "3995 of 4000 images are in table.csv: too few to tell what the labels stand for", 0 },
		{ 0, 20, 0, "0 of 4000 images are in table.csv: too few to tell", 0 },
	};

	for (size_t k = 0; k < sizeof sets / sizeof sets[0]; k++) {
		int order[FINDINGS];
		struct error e = { 0 };
		int rc = infer(sets[k].wrong, sets[k].every, sets[k].known, sets[k].twice, order, &e);

		if (rc != (sets[k].refused ? -EXIT_DATA : 0) || (rc && !strstr(e.text, sets[k].refused)))
			fail_msg("%zu: \"%s\"", k, e.text);
		for (int f = 0; !rc && f < FINDINGS; f++)
			assert_int_equal(order[f], f);
	}
}

static int never_decoded(const struct origin *o, size_t i, struct decoder *d, struct image *image, struct error *e)
{
	(void)o, (void)i, (void)d, (void)image;
	return fail(e, EXIT_INTERNAL, "an image was decoded");
}

static void names_keep_their_folders_where_they_come_twice_without(void **state)
{
	(void)state;
	static const struct {
		const char *names[4], *ids[4], *refused; /* the fourth is a validation image */
	} sets[] = {
		{ { "images/a.png", "images/b.png", "more/c.png", "images_001/00000007_000.png" }, { "a.png", "b.png", "c.png", "00000007_000.png" }, NULL },
		{ { "CheXpert-v1.0/train/patient00001/study1/view1_frontal.jpg", "CheXpert-v1.0/train/patient00002/study1/view1_frontal.jpg", "more/c.png",
		    "images_001/00000007_000.png" },
		  { "CheXpert-v1.0/train/patient00001/study1/view1_frontal.jpg", "CheXpert-v1.0/train/patient00002/study1/view1_frontal.jpg", "more/c.png",
		    "00000007_000.png" }, NULL },
		/* as sets were prepared before names kept folders: unique in their splits */
		{ { "/x/train/a.png", "/x/train/b.png", "/x/train/c.png", "/x/val/a.png" }, { "a.png", "b.png", "c.png", "a.png" }, NULL },
		{ { "/mnt/x/p1/a.png", "/mnt/x/p2/a.png", "/mnt/x/p3/a.png", "/mnt/x/p4/c.png" }, { "p1/a.png", "p2/a.png", "p3/a.png", "p4/c.png" }, NULL },
		{ { "site0/20230100_000.png", "site1/20230100_000.png", "site1/20230100_001.png", "site0/20230100_002.png" },
		  { "site0/20230100_000.png", "site1/20230100_000.png", "site1/20230100_001.png", "site0/20230100_002.png" }, NULL },
		{ { "p1/a.png", "p2/a.png", "x/a.png", "x/00000007_000.png" }, { "p1/a.png", "p2/a.png", "x/a.png", "00000007_000.png" }, NULL },
		{ { "p1/\033[2J.png", "p2/\033[2J.png", "x/a.png", "x/b.png" }, { "p1/\033[2J.png", "p2/\033[2J.png", "x/a.png", "x/b.png" }, NULL },
		{ { "x/a.png", "x/b.png", "x/a.png", "y/c.png" }, { "x/a.png", "x/b.png", "x/a.png", "y/c.png" },
		  "two images called x/a.png are in the train split" },
	};

	for (size_t k = 0; k < sizeof sets / sizeof sets[0]; k++) {
		struct synth_case *cases = synth_plan(&synth);
		char directory[FILE_PATH], out[FILE_PATH];
		struct error e = { 0 };
		struct origin o;
		struct prepare_report r;

		snprintf(directory, sizeof directory, "%s", scratch_path("folders%zu", k));
		snprintf(out, sizeof out, "%s", scratch_path("folders%zu-prepared", k));
		struct prepare_conf conf = prepare_to(out);
		mkdir(directory, 0777);
		for (int i = 0; i < 4; i++)
			snprintf(cases[i].sample.id, SAMPLE_ID, "%s", sets[k].names[i]);
		cases[3].sample.patient = 7; /* whose name some of them have */
		write_records(directory, "train-00000-of-00001", own, 0, 3, cases, 1);
		write_records(directory, "val-00000-of-00001", own, 3, 1, cases, 1);
		if (origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &e))
			fail_msg("%s", e.text);
		for (int i = 0; i < 4; i++)
			assert_string_equal(o.samples[i].id, sets[k].ids[i]);
		assert_int_equal(*o.twin != '\0', strchr(sets[k].ids[0], '/') != NULL);
		assert_null(strchr(o.twin, '\033')); /* it goes to a terminal */
		if (sets[k].refused)
			o.decode = never_decoded;
		if (prepare(&conf, &o, &r, &e) != (sets[k].refused ? -EXIT_DATA : 0) || (sets[k].refused && !strstr(e.text, sets[k].refused)))
			fail_msg("%s", e.text);
		if (!sets[k].refused) {
			struct dataset *d;
			if (dataset_open(&d, out, "train", &e))
				fail_msg("%s", e.text);
			assert_int_equal(dataset_count(d), 3);
			dataset_close(d);
		}
		if (strlen(sets[k].ids[0]) > 30) {
			conf.out = scratch_path("folders-packed");
			conf.encoding = ENCODING_PACKED;
			o.decode = never_decoded;
			assert_int_equal(prepare(&conf, &o, &r, &e), -EXIT_USAGE);
			assert_non_null(strstr(e.text, "--format=packed has room for names of 16 bytes, not for CheXpert-v1.0/"));
		}
		origin_close(&o);
		free(cases);
	}
}

static uint64_t hash_below(const char *folder, const char *second)
{
	const char *const names[] = { "p1/a.png", second };
	struct synth_case *cases = synth_plan(&synth);
	const char *directory = scratch_path("mounted");
	struct error e = { 0 };
	struct origin o;

	for (int i = 0; i < 2; i++)
		snprintf(cases[i].sample.id, SAMPLE_ID, "%s/%s", folder, names[i]);
	mkdir(directory, 0777);
	write_records(directory, "train-00000-of-00001", own, 0, 2, cases, 1);
	if (origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &e))
		fail_msg("%s", e.text);
	uint64_t hash = o.hash;
	origin_close(&o);
	free(cases);
	return hash;
}

static void where_a_set_was_mounted_is_in_no_name(void **state)
{
	(void)state;
	assert_true(hash_below("/data/x", "p2/a.png") == hash_below("/mnt/server/data/x", "p2/a.png"));
	assert_true(hash_below("/data/x", "p2/b.png") != hash_below("/data/x", "p2/c.png"));
}

static void a_name_that_ends_before_its_bytes_do_is_refused(void **state)
{
	(void)state;
	char id[SAMPLE_ID];
	struct error e = { 0 };

	assert_int_equal(sample_name(id, "a\0b", 3, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "a NUL or a line end in the name"));
}

/* A training goes on with the images that it began with, also as far as patients are concerned. */
static void a_set_of_other_patients_is_another_set(void **state)
{
	(void)state;
	struct synth_case *cases = synth_plan(&synth);
	uint64_t hash[2];
	char directory[FILE_PATH];

	make_directory(directory, "patients-of");
	for (int i = 0; i < 2; i++) {
		struct origin o;
		struct prepare_report r;
		struct dataset *d = NULL;
		struct prepare_conf conf = prepare_to(scratch_path("patients-of-%d", i));
		struct error e = { 0 };

		snprintf(cases[0].sample.id, SAMPLE_ID, "x/view1.png");
		cases[0].sample.patient = 5 + (uint32_t)i;
		write_records(directory, "train-00000-of-00001", own, 0, 1, cases, 1);
		if (origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &e) || prepare(&conf, &o, &r, &e) || dataset_open(&d, conf.out, "train", &e))
			fail_msg("%s", e.text);
		hash[i] = dataset_hash(d);
		dataset_close(d);
		origin_close(&o);
	}
	assert_true(hash[0] != hash[1]);
	free(cases);
}

static void a_name_that_fits_on_no_line_or_is_no_utf_8_is_refused_where_it_is_read(void **state)
{
	(void)state;
	static const char *const names[] = { "images/two\nlines.png", "images/cr\r.png", "images/r\xF6ntgen \xC3\xB6.png", "images/cut\xE2\x82.png" };
	static const char *const reasons[] = { "a NUL or a line end in the name", "a NUL or a line end in the name",
					       "bytes that are no UTF-8 in the name \"r?ntgen \xC3\xB6.png\"", "bytes that are no UTF-8 in the name \"cut??.png\"" };
	struct synth_case *cases = synth_plan(&synth);
	char directory[FILE_PATH];

	make_directory(directory, "lines");
	for (int i = 0; i < 4; i++) {
		struct origin o;
		struct error e = { 0 };

		snprintf(cases[i].sample.id, SAMPLE_ID, "%s", names[i]);
		write_records(directory, "train-00000-of-00001", own, (size_t)i, 1, cases, 1);
		assert_int_equal(origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, NULL, &e), -EXIT_DATA);
		const char *why = strstr(e.text, "train-00000-of-00001: record 0 at byte 0: image/filename: ");
		assert_non_null(why);
		assert_non_null(strstr(why, reasons[i]));
	}
	free(cases);
}

/* A record whose picture nobody looks at. */
static int open_one(const char *directory, int64_t patient, const char *name, size_t length, struct origin *o, struct error *e)
{
	struct example x = { .height = -1, .width = -1, .patient = patient, .n_label = FINDINGS, .filename = { (const uint8_t *)name, length } };
	struct tfrecord_writer w;
	struct bytes b = { 0 };
	char path[FILE_PATH + 64];

	x.encoded = (struct span){ (const uint8_t *)"?", 1 };
	snprintf(path, sizeof path, "%s/train-00000-of-00001", directory);
	assert_int_equal(tfrecord_create(&w, path, e), 0);
	assert_int_equal(example_write(&b, &x), 0);
	assert_int_equal(tfrecord_append(&w, b.data, b.size, e), 0);
	assert_int_equal(tfrecord_commit(&w, e), 0);
	free(b.data);
	return origin_tfrecord(o, directory, LABELS_CHEXNET, NULL, NULL, e);
}

static void names_and_patients_that_have_no_room_are_refused(void **state)
{
	(void)state;
	static const struct {
		int64_t patient;
		size_t length;
		const char *refused;
	} records[] = {
		{ 5, SAMPLE_ID - 1, NULL },
		{ 5, SAMPLE_ID, "image/filename: 128 bytes, not 1 to 127" },
		{ 5, 1, NULL },
		{ 5, 0, "image/filename: " },
		{ (int64_t)UINT32_MAX + 8, 9, "patient/id: out of range: a patient's number is wanted" }, /* 7, were it cut */
	};
	char directory[FILE_PATH], name[SAMPLE_ID];

	memset(name, 'n', sizeof name);
	make_directory(directory, "room");
	for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
		struct origin o;
		struct error e = { 0 };
		int rc = open_one(directory, records[i].patient, name, records[i].length, &o, &e);

		if (rc != (records[i].refused ? -EXIT_DATA : 0) || (rc && !strstr(e.text, records[i].refused)))
			fail_msg("%zu: %d \"%s\"", i, rc, e.text);
		if (rc)
			continue;
		assert_int_equal(strlen(o.samples[0].id), records[i].length);
		assert_int_equal(o.samples[0].patient, 5);
		origin_close(&o);
	}
}

static void a_signal_ends_the_reading(void **state)
{
	(void)state;
	static const volatile sig_atomic_t stop = 1, go = 0;
	struct synth_case *cases = synth_plan(&synth);
	struct origin o;
	struct error e = { 0 }, more = { 0 };
	char directory[FILE_PATH];

	make_directory(directory, "stopped");
	write_records(directory, "train-00000-of-00001", own, 0, 5, cases, 1);
	assert_int_equal(origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, &stop, &e), -EXIT_INTERNAL);
	assert_string_equal(e.text, "interrupted; nothing is left behind");
	assert_int_equal(origin_tfrecord(&o, directory, LABELS_CHEXNET, NULL, &go, &more), 0);
	origin_close(&o);
	free(cases);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_signal_ends_the_reading),
		cmocka_unit_test(records_with_and_without_names_of_labels_are_not_mixed),
		cmocka_unit_test(a_copy_without_all_of_its_files_is_refused),
		cmocka_unit_test(a_split_that_could_not_be_listed_is_not_left_out),
		cmocka_unit_test(a_patient_with_the_number_0_leaks_too),
		cmocka_unit_test(a_set_without_a_record_is_refused),
		cmocka_unit_test(a_patient_comes_from_patient_id_or_from_a_name_of_nihs_that_does_not_contradict_it),
		cmocka_unit_test(a_label_that_is_not_known_is_in_no_share),
		cmocka_unit_test(what_is_not_known_moves_with_its_label),
		cmocka_unit_test(a_preparation_that_is_stopped_leaves_nothing),
		cmocka_unit_test(the_reference_trainers_records_are_read_and_their_label_order_found),
		cmocka_unit_test(an_order_is_inferred_only_where_each_label_is_one_findings),
		cmocka_unit_test(names_keep_their_folders_where_they_come_twice_without),
		cmocka_unit_test(where_a_set_was_mounted_is_in_no_name),
		cmocka_unit_test(names_and_patients_that_have_no_room_are_refused),
		cmocka_unit_test(a_name_that_ends_before_its_bytes_do_is_refused),
		cmocka_unit_test(a_set_of_other_patients_is_another_set),
		cmocka_unit_test(a_name_that_fits_on_no_line_or_is_no_utf_8_is_refused_where_it_is_read),
	};
	return cmocka_run_group_tests(tests, small_tree, scratch_remove);
}
