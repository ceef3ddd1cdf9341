/* SPDX-License-Identifier: Apache-2.0
 * The audit: planted faults are found and named, and a sound set has none. */
#include "tests/unit/audit_tree.h"

#include <math.h>

static void a_sound_set_has_no_problem(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	run_audit(&o, 1);
	assert_int_equal(audit.problems, 0);
	for (int i = 0; i < audit.n_items; i++)
		assert_int_not_equal(audit.items[i].kind, AUDIT_DROPPED); /* of none nothing is said */
	assert_int_equal(audit.images[0] + audit.images[1] + audit.images[2], IMAGES);
	origin_close(&o);
}

static void names_of_images_are_told_without_control_characters(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	for (int i = 0; i < IMAGES; i += IMAGES / 2)
		strcpy(o.samples[i].id, "\x1B[31m\xC2\x9B.png");
	run_audit(&o, 0);
	find(AUDIT_DUPLICATES, "1 name comes twice: ?[31m??.png");
	origin_close(&o);
}

static void a_leak_is_found_with_its_patient(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	uint32_t patient = 0;
	for (size_t i = 1; i < o.count && !patient; i++)
		if (o.samples[i].patient == o.samples[i - 1].patient && o.split[i] == SPLIT_TRAIN) {
			o.split[i] = SPLIT_TEST;
			patient = o.samples[i].patient;
		}
	for (size_t i = 0; i < o.count / 2; i++) { /* prepared images come in any order */
		size_t j = o.count - 1 - i * 7 % o.count;
		struct sample sample = o.samples[i];
		uint8_t split = o.split[i];

		o.samples[i] = o.samples[j];
		o.samples[j] = sample;
		o.split[i] = o.split[j];
		o.split[j] = split;
	}
	run_audit(&o, 0);
	char expected[160];
	snprintf(expected, sizeof expected, "1 patient is in both train and test (patient %u is one): 1 of %zu test images are theirs (%.0f %%)", patient, audit.images[SPLIT_TEST],
		 100.0 / (double)audit.images[SPLIT_TEST]);
	assert_int_equal(find(AUDIT_LEAK, expected)->count, 1);
	assert_int_equal(audit.problems, 1);
	origin_close(&o);
}

static void two_swapped_labels_are_named(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	for (size_t i = 0; i < o.count; i++) { /* Dell's trainer's table: Pneumonia and Pneumothorax */
		uint32_t l = o.samples[i].labels, a = l >> 6 & 1, b = l >> 7 & 1;
		o.samples[i].labels = (l & ~(3u << 6)) | a << 7 | b << 6;
	}
	run_audit(&o, 0);
	find(AUDIT_LABELS, "what is called Pneumonia here is Pneumothorax in the table");
	find(AUDIT_LABELS, "what is called Pneumothorax here is Pneumonia in the table");
	assert_int_equal(audit.problems, 2);
	origin_close(&o);
}

static void some_wrong_labels_are_counted(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	for (size_t i = 0; i < 9; i++)
		o.samples[i * 7].labels ^= 1u << 4;
	run_audit(&o, 0);
	assert_int_equal(find(AUDIT_LABELS, "Mass differs from the table in 9 of 400 images")->count, 9);
	origin_close(&o);
}

static void a_dropped_tail_is_found(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	size_t dropped = 0;
	for (size_t i = o.count - 40; i < o.count; i++)
		dropped += o.split[i] != SPLIT_TEST;
	o.count -= 40;
	run_audit(&o, 0);
	char expected[40];
	snprintf(expected, sizeof expected, "%zu of the ", dropped);
	find(AUDIT_DROPPED, "on the official train_val list are missing");
	assert_int_equal(find(AUDIT_DROPPED, expected)->count, dropped);
	o.count += 40;
	origin_close(&o);
}

/* As chexnet eval judges a finding. */
static void a_rare_finding_is_counted_by_patients(void **state)
{
	(void)state;
	static const struct {
		size_t images, alike; /* of one patient */
		const char *says;
	} cases[] = {
		{ 5, 2, "Hernia: 5 positives of 4 patients in test: too few for an interval of its AUROC" },
		{ 4, 1, "Hernia: 4 positives in test: too few for an interval of its AUROC" },
		{ 3, 3, "Hernia: 3 positives of 1 patient in test: too few for an interval of its AUROC" },
		{ 6, 2, "Hernia: 6 positives of 5 patients in test: the 95 % interval of an AUROC of 0.85 is about +-0.2" },
		{ 13, 1, "Hernia: 13 positives in test: the 95 % interval of an AUROC of 0.85 is about +-0.14" }, /* as of the 13 in Dell's validation set */
		{ 31, 2, NULL },
	};
	for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		struct origin o = open_tree(tree);
		size_t test = 0;
		for (size_t i = 0; i < o.count; i++) {
			o.samples[i].labels &= 0x1FFF;
			if (o.split[i] != SPLIT_TEST)
				continue;
			o.samples[i].labels |= (uint32_t)(test < cases[c].images) << 13;
			o.samples[i].patient = 100000 + (uint32_t)(test < cases[c].alike ? 0 : test);
			test++;
		}
		assert_true(test > 40);
		run_audit(&o, 0);
		assert_int_equal(audit.positives[SPLIT_TEST][13], cases[c].images);
		assert_int_equal(audit.positive_patients[SPLIT_TEST][13], cases[c].images - cases[c].alike + 1);
		assert_int_equal(audit.negative_patients[SPLIT_TEST][13], test - cases[c].images);
		if (cases[c].says)
			note_of(cases[c].says);
		for (int i = 0; !cases[c].says && i < audit.n_items; i++)
			assert_null(strstr(audit.items[i].text, "Hernia: 31"));
		origin_close(&o);
	}
}

/* Of a finding that nearly everybody has, those without it are the few. */
static void those_without_a_finding_may_be_the_few(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	size_t test = 0;
	for (size_t i = 0; i < o.count; i++)
		if (o.split[i] == SPLIT_TEST)
			o.samples[i].labels = (o.samples[i].labels & ~1u) | (test++ >= 1);
	run_audit(&o, 0);
	note_of("Atelectasis: 1 negative in test: too few for an interval of its AUROC");
	origin_close(&o);
}

static void no_item_says(const char *words)
{
	for (int i = 0; i < audit.n_items; i++)
		if (strstr(audit.items[i].text, words))
			fail_msg("\"%s\" is said: %s", words, audit.items[i].text);
}

/* Neither with a finding nor without it: as chexnet eval counts them. */
static void a_label_that_is_not_known_counts_for_nothing(void **state)
{
	(void)state;
	static const struct {
		size_t positives, negatives; /* that are known in the test split, of Hernia, each of another patient */
		const char *says;
	} cases[] = {
		{ 35, 3, "Hernia: 3 negatives in test: too few for an interval of its AUROC" },
		{ 35, 0, "Hernia: no negatives: its AUROC is not defined in test" },
		{ 0, 3, "Hernia: no positives: its AUROC is not defined in test" },
		{ 0, 0, "Hernia: no label is known in test" },
		{ 35, 30, NULL },
	};
	for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		struct origin o = open_tree(tree);
		size_t test = 0, positives = cases[c].positives, told = positives + cases[c].negatives;
		for (size_t i = 0; i < o.count; i++) {
			uint32_t hernia = 1u << 13;
			o.split[i] = SPLIT_TEST;
			o.samples[i].labels = (o.samples[i].labels & ~hernia) | (test < positives || (test >= told && test % 2) ? hernia : 0);
			o.samples[i].known &= test < told ? ~0u : ~hernia;
			o.samples[i].patient = 100000 + (uint32_t)test++;
		}
		assert_true(test > told + 2);
		run_audit(&o, 0);
		assert_int_equal(audit.positives[SPLIT_TEST][13], positives);
		assert_int_equal(audit.negatives[SPLIT_TEST][13], cases[c].negatives);
		assert_int_equal(audit.positive_patients[SPLIT_TEST][13], positives);
		assert_int_equal(audit.negative_patients[SPLIT_TEST][13], cases[c].negatives);
		if (cases[c].says)
			note_of(cases[c].says);
		for (int i = 0; !cases[c].says && i < audit.n_items; i++)
			assert_false(strstr(audit.items[i].text, "Hernia:") && strstr(audit.items[i].text, "test"));
		origin_close(&o);
	}
}

static void a_label_that_is_not_known_differs_from_no_table(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	for (size_t i = 0; i < o.count; i++)
		if (i % 2) {
			o.samples[i].labels = 0;
			o.samples[i].known = 1; /* Atelectasis alone */
		}
	for (size_t i = 0; i < o.count; i++)
		o.samples[i].labels ^= i < 2 ? 1u << 4 : 0; /* of one image it is known */
	run_audit(&o, 0);
	find(AUDIT_LABELS, "Mass differs from the table in 1 of 200 images");
	origin_close(&o);
}

/* Whether the views come with the images or from the table. */
static void a_finding_that_the_view_tells_is_named(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	size_t with = 0, ap = 0;
	struct error e = { 0 };
	struct audit_conf conf = { .threads = 2 };

	for (size_t i = 0; i < o.count; i++) { /* all with Effusion are AP, and every third of the others */
		int effusion = i % 4 == 0;
		o.samples[i].labels = (o.samples[i].labels & ~4u) | (uint32_t)effusion << 2;
		o.facts[i].view = effusion || i % 3 == 0 ? 'A' : 'P';
		with += (size_t)effusion;
		ap += !effusion && o.facts[i].view == 'A';
	}
	char expected[160];
	snprintf(expected, sizeof expected, "Effusion: 100 %% of the images with it are AP views, of the others %.0f %%: a model may tell it by the view",
		 100.0 * (double)ap / (double)(o.count - with));
	assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
	note_of(expected);
	note_of("not looked at: tubes, drains");
	assert_true(fabs(audit.shortcuts.of[SHORTCUT_VIEW][2].auroc - (1 - 0.5 * (double)ap / (double)(o.count - with))) < 1e-6);
	run_audit(&o, 0); /* the table says that all are PA */
	no_item_says("AP views");
	for (size_t i = 0; i < o.count; i++) /* of an image that is not AP it is not known */
		o.samples[i].known &= o.facts[i].view == 'A' ? ~0u : ~4u;
	assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
	no_item_says("Effusion: 100 %");
	origin_close(&o);
}

/* Each column tells one finding: the old have Hernia, women Mass, and late images Pneumothorax. */
static void a_finding_that_age_sex_or_follow_up_tells_is_named(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	struct error e = { 0 };
	struct audit_conf conf = { .threads = 2 };

	for (size_t i = 0; i < o.count; i++) {
		struct nih_facts *f = &o.facts[i];
		*f = (struct nih_facts){ .view = i % 2 ? 'A' : 'P', .sex = i % 4 < 2 ? 'M' : 'F', .age = (float)(i * 7 % 90), .follow_up = (int)(i * 11 % 17) };
		o.samples[i].labels = (uint32_t)(f->age >= 60) << 13 | (uint32_t)(f->sex == 'F') << 4 | (uint32_t)(f->follow_up > 8) << 7 | (i % 3 == 0) << 1;
	}
	assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
	note_of("Hernia: the median age is 74 years in the images with it and 29 in the others: a model may tell it by the age (AUROC of age alone: 1.00)");
	note_of("Mass: 0 % of the images with it are of men, of the others 100 %: a model may tell it by the sex");
	note_of("Pneumothorax: the median follow-up number is 12 in the images with it and 4 in the others: a model may tell it by what treatment");
	note_of("at most 0.5");
	note_of(", 1.00 (age, Hernia), 1.00 (sex, Mass), 1.00 (follow-up number, Pneumothorax)");
	no_item_says("Cardiomegaly: the median");
	assert_true(audit.shortcuts.of[SHORTCUT_SEX][4].auroc == 0 && audit.shortcuts.of[SHORTCUT_AGE][13].auroc == 1);
	assert_true(isnan(audit.shortcuts.of[SHORTCUT_AGE][0].auroc)); /* no image has it */
	for (size_t i = 0; i < o.count; i++) /* what is not told tells nothing */
		o.facts[i] = (struct nih_facts){ .view = i % 2 ? 'A' : 'P', .age = i < 200 ? o.facts[i].age : -1, .follow_up = -1 };
	assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
	note_of("Hernia: the median age is ");
	note_of("not looked at: sex, follow-up number, which NIH's table tells (--table), tubes, ");
	no_item_says("of men");
	origin_close(&o);
}

/* Two men with a hundred images of a finding are two men: as many of any finding are by chance. The same images of a hundred men are not. */
static void what_few_patients_share_is_put_down_to_chance(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	struct error e = { 0 };
	struct audit_conf conf = { .threads = 2 };

	for (size_t i = 0; i < o.count; i++) {
		o.facts[i] = (struct nih_facts){ .view = 'P', .sex = i < 100 || i % 2 ? 'M' : 'F', .age = i < 100 ? 80 : (float)(i % 70), .follow_up = (int)(i % 3) };
		o.samples[i].patient = (uint32_t)(i < 100 ? i % 2 : i);
		o.samples[i].labels = (uint32_t)(i < 100) << 13;
	}
	assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
	no_item_says("a model may tell it by");
	note_of("1.00 (age, Hernia), 0.75 (sex, Hernia)"); /* but said all the same */
	for (size_t i = 0; i < o.count; i++)
		o.samples[i].patient = (uint32_t)i;
	assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
	note_of("Hernia: 100 % of the images with it are of men, of the others 50 %: a model may tell it by the sex");
	/* 30 patients with it and 370 without: three standard deviations, as Mann and Whitney have them, are 0.1646 */
	for (size_t men = 246; men <= 250; men += 4) {
		for (size_t i = 0; i < o.count; i++) {
			o.samples[i].labels = (uint32_t)(i < 30) << 13;
			o.facts[i].sex = i < 30 + men ? 'M' : 'F';
		}
		assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
		assert_close(audit.shortcuts.of[SHORTCUT_SEX][13].auroc - 0.5, men == 246 ? 0.1676 : 0.1622, 5e-5);
		assert_int_equal(audit.shortcuts.of[SHORTCUT_SEX][13].notable, men == 246);
	}
	origin_close(&o);
}

static void tell_nothing(struct origin *o, size_t from)
{
	for (size_t i = from; i < o->count; i++)
		o->facts[i] = (struct nih_facts){ .age = -1, .follow_up = -1 };
}

static void a_column_that_is_not_looked_at_is_said(void **state)
{
	static const char all[] = "not looked at: the view (AP or PA), age, sex, follow-up number, ";
	struct error e = { 0 };
	struct audit_conf conf = { .threads = 2 }, with_table = { .threads = 2, .table = scratch_path("without-view.csv") };
	struct origin o = open_tree(tree);
	char *table = NULL, said[200];
	size_t size = 0;

	(void)state;
	FILE *f = open_memstream(&table, &size);
	fputs("Image Index,Finding Labels,Patient ID\n", f);
	for (size_t i = 0; i < o.count; i++)
		fprintf(f, "%s,No Finding,%u\n", o.samples[i].id, o.samples[i].patient);
	fclose(f);
	scratch_write(with_table.table, table, size);
	free(table);
	tell_nothing(&o, 58); /* 58: no finding can have 30 images on both sides */
	assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
	snprintf(said, sizeof said, "%ssince no finding has 30 images with it and 30 without that tell theirs, tubes", all);
	note_of(said);
	no_item_says("AUROC of at most");
	for (size_t i = 0; i < o.count; i++) {
		o.facts[i].age = (float)(i % 90);
		o.samples[i].labels = i % 90 >= 60;
	}
	if (audit_run(&audit, &o, &with_table, &e)) /* this table tells none, and takes none of the data set's own away */
		fail_msg("%s", e.text);
	note_of("AUROC of at most 1.00 (age, Atelectasis)");
	tell_nothing(&o, 0);
	assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
	snprintf(said, sizeof said, "%swhich NIH's table tells (--table), tubes", all);
	note_of(said);
	if (audit_run(&audit, &o, &with_table, &e))
		fail_msg("%s", e.text);
	snprintf(said, sizeof said, "%stubes", all);
	note_of(said);
	for (size_t i = 0; i < o.count; i++) /* another source's names: NIH's table has no row for them */
		snprintf(o.samples[i].id, sizeof o.samples[i].id, "patient%05zu-view1.jpg", i);
	assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
	note_of(said);
	origin_close(&o);
}

static void without_lists_patients_are_divided_as_prepare_would(void **state)
{
	(void)state;
	struct origin o;
	struct error e = { 0 };
	char list[FILE_PATH + 64], away[FILE_PATH + 64], other[FILE_PATH + 64], aside[FILE_PATH + 64];

	snprintf(list, sizeof list, "%s/test_list.txt", tree);
	snprintf(away, sizeof away, "%s/list.away", tree);
	snprintf(other, sizeof other, "%s/train_val_list.txt", tree);
	snprintf(aside, sizeof aside, "%s/other.away", tree);
	assert_int_equal(rename(list, away), 0);
	assert_int_equal(audit_open(&o, tree, &e), -EXIT_DATA); /* one of the two is missing */
	assert_non_null(strstr(e.text, "are not both there (prepare --split chexnet divides without them)"));
	assert_int_equal(rename(other, aside), 0);
	o = open_tree(tree);
	assert_int_equal(rename(away, list), 0);
	assert_int_equal(rename(aside, other), 0);
	assert_string_equal(o.policy, "chexnet");
	run_audit(&o, 0);
	assert_true(audit.images[SPLIT_VAL] > 0 && audit.images[SPLIT_TEST] > audit.images[SPLIT_VAL]);
	assert_int_equal(audit.problems, 0);
	origin_close(&o);
}

static int no_image(const struct origin *o, size_t i, struct decoder *d, struct image *image, struct error *e)
{
	(void)d, (void)image;
	return fail(e, EXIT_DATA, "%s: gone", o->samples[i].id);
}

static size_t broken(void)
{
	size_t n = 0;

	for (int i = 0; i < audit.n_items; i++)
		n += strstr(audit.items[i].text, ": gone") != NULL;
	return n;
}

/* Whoever has to fetch them again needs their names; of a directory that cannot be read at all, the first thousand do. */
static void a_thousand_broken_images_are_named_and_more_are_counted(void **state)
{
	(void)state;
	for (size_t count = 1000; count <= 1001; count++) {
		struct origin o = { .count = count, .samples = calloc(count, sizeof *o.samples), .split = calloc(count, 1), .decode = no_image };

		for (size_t i = 0; i < count; i++) {
			snprintf(o.samples[i].id, SAMPLE_ID, "%08zu_000.png", i);
			o.samples[i].patient = (uint32_t)i;
		}
		run_audit(&o, 1);
		assert_int_equal(broken(), 1000);
		for (int i = 0; i < audit.n_items; i++) /* what has no pixels has not those of another one */
			assert_int_not_equal(audit.items[i].kind, AUDIT_DUPLICATES);
		if (count > 1000)
			find(AUDIT_IMAGES, "1001 images cannot be decoded in all");
		origin_close(&o);
	}
}

static int keeps_back(const struct origin *o, size_t i, struct decoder *d, struct image *image, struct error *e)
{
	(void)d, (void)image;
	return fail(e, i == 7 ? EXIT_INTERNAL : EXIT_DATA, "%s: cannot be read: Permission denied", o->samples[i].id);
}

static void what_could_not_be_looked_at_is_not_called_broken(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	struct audit_conf conf = { .pixels = 1, .threads = 2 };
	struct error e = { 0 };

	o.decode = keeps_back;
	assert_int_equal(audit_run(&audit, &o, &conf, &e), -EXIT_INTERNAL);
	assert_memory_equal(e.text, o.samples[7].id, strlen(o.samples[7].id));
	origin_close(&o);
}

/* Three images for training, two for validation and one for the test are one patient's, and all but those for training are. */
static void a_leak_is_measured_by_the_images_of_the_later_split(void **state)
{
	(void)state;
	struct origin o = { .count = 9, .samples = calloc(9, sizeof *o.samples), .split = calloc(9, 1) };
	struct audit_conf conf = { .threads = 1 };
	struct error e = { 0 };

	for (size_t i = 0; i < 9; i++) {
		snprintf(o.samples[i].id, SAMPLE_ID, "%zu.png", i);
		o.samples[i].patient = i < 6 ? 1 : 2;
		o.split[i] = i == 5 ? SPLIT_TEST : i == 3 || i == 4 ? SPLIT_VAL : SPLIT_TRAIN;
	}
	assert_int_equal(audit_run(&audit, &o, &conf, &e), 0);
	find(AUDIT_LEAK, "1 patient is in both train and val (patient 1 is one): 2 of 2 val images are theirs (100 %)");
	find(AUDIT_LEAK, "1 patient is in both train and test (patient 1 is one): 1 of 1 test images are theirs (100 %)");
	find(AUDIT_LEAK, "1 patient is in both val and test (patient 1 is one): 1 of 1 test images are theirs (100 %)");
	origin_close(&o);
}

/* Labels that a table does not have are wrong ones, and no other order, where they fit another finding hardly better. */
static void wrong_labels_are_not_called_another_order(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	int one = 0;

	for (size_t i = 0; i < o.count; i++) {
		int here = !one && (o.samples[i].labels >> 5 & 1) && !(o.samples[i].labels >> 4 & 1); /* one that is Nodule and not Mass */
		one |= here;
		o.samples[i].labels = (o.samples[i].labels & ~(1u << 4)) | (uint32_t)here << 4;
	}
	assert_true(one);
	run_audit(&o, 0);
	find(AUDIT_LABELS, "Mass differs from the table in ");
	origin_close(&o);
}

/* Fewer than one in ten of the images in it. */
static void another_data_sets_table_is_not_compared(void **state)
{
	(void)state;
	for (size_t in_it = 39; in_it <= 40; in_it++) {
		struct origin o = open_tree(tree);
		int compared = 0;

		for (size_t i = 0; i < o.count; i++)
			if (i < in_it)
				o.samples[i].labels ^= 1u << 4;
			else
				snprintf(o.samples[i].id, SAMPLE_ID, "other-%zu.png", i);
		run_audit(&o, 0);
		for (int i = 0; i < audit.n_items; i++)
			compared += strstr(audit.items[i].text, "Mass differs from the table") != NULL;
		assert_int_equal(compared, in_it == 40);
		note_of(in_it == 40 ? "360 of 400 images have no row in " : ": another data set's table, not compared");
		origin_close(&o);
	}
}

/* As much at once as there can be: nothing is left out of the list. */
static void every_problem_is_in_the_list(void **state)
{
	(void)state;
	struct origin o = open_tree(tree);
	int listed = 0;

	for (size_t i = 0; i < o.count; i++) { /* no finding in any split, patients in all of them, and no image */
		o.samples[i].labels = 0;
		o.samples[i].patient = 1 + (uint32_t)i / 6;
		o.split[i] = (uint8_t)(i % 3);
		o.facts[i] = (struct nih_facts){ .view = 'A' };
	}
	memcpy(o.samples[0].id, o.samples[1].id, SAMPLE_ID);
	o.decode = no_image;
	run_audit(&o, 1);
	for (int i = 0; i < audit.n_items; i++)
		listed += audit.items[i].problem;
	assert_int_equal(listed, audit.problems);
	assert_true(audit.n_items > 70 && audit.n_items < AUDIT_ITEMS);
	assert_int_equal(broken(), o.count);
	note_of("Atelectasis: no positives: its AUROC is not defined in train");
	note_of("Hernia: no positives: its AUROC is not defined in test");
	origin_close(&o);
}

static void prepared_sets_of_every_format_are_audited(void **state)
{
	(void)state;
	for (enum encoding encoding = ENCODING_PNG; encoding <= ENCODING_PACKED; encoding++) {
		struct origin o = open_tree(tree);
		struct prepare_report r;
		struct error e = { 0 };
		struct prepare_conf conf = { .out = scratch_path("set-%d", encoding), .size = SIDE, .encoding = encoding, .seed = 1 };
		assert_int_equal(prepare(&conf, &o, &r, &e), 0);
		origin_close(&o);
		o = open_tree(conf.out);
		assert_int_equal(o.count, IMAGES);
		run_audit(&o, 1);
		assert_int_equal(audit.problems, 0);
		o.samples[3].labels ^= 1 << 2;
		o.samples[4].labels ^= 1 << 2;
		run_audit(&o, 0);
		assert_int_equal(audit.problems, 1);
		origin_close(&o);
	}
}

static void a_file_wise_shuffle_is_told_from_a_global_one(void **state)
{
	(void)state;
	/* NIH-like: patients with four images each, 20,000 images in the order of their names */
	enum { N = 20000 };
	struct sample *samples = calloc(N, sizeof *samples);
	struct shuffle_quality q;
	struct error e = { 0 };
	for (int i = 0; i < N; i++) {
		samples[i].patient = (uint32_t)(i / 4 + 1);
		snprintf(samples[i].id, sizeof samples[i].id, "%08d_%03d.png", i / 4 + 1, i % 4);
	}
	assert_int_equal(shuffle_measure(&q, samples, N, 64, 1, &e), 0);
	printf("# pairs a batch: chance %.3f, keyed %.3f, files one by one %.3f, in turn %.3f\n", q.chance, q.keyed, q.old, q.new);
	assert_close(q.chance, 64 * 63 / 2.0 * 3 / (N - 1), 1e-9);
	assert_close(q.keyed, q.chance, 0.15); /* 312 batches: standard error 0.03 */
	/* An image stays in the buffer for 500 others on average, geometrically: of two neighbours that come in together both leave
	 * within one batch of 64 in about 64 / 2 / 500 of all cases; 64 * 3 / 2 pairs begin in a batch's span. */
	assert_close(q.old, 64 * 3 / 2.0 * 64 / 2 / 500, 1.2);
	assert_true(q.new > 10 * q.chance);
	free(samples);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sound_set_has_no_problem),
		cmocka_unit_test(names_of_images_are_told_without_control_characters),
		cmocka_unit_test(a_leak_is_found_with_its_patient),
		cmocka_unit_test(two_swapped_labels_are_named),
		cmocka_unit_test(some_wrong_labels_are_counted),
		cmocka_unit_test(a_dropped_tail_is_found),
		cmocka_unit_test(a_rare_finding_is_counted_by_patients),
		cmocka_unit_test(a_label_that_is_not_known_counts_for_nothing),
		cmocka_unit_test(a_label_that_is_not_known_differs_from_no_table),
		cmocka_unit_test(a_finding_that_the_view_tells_is_named),
		cmocka_unit_test(a_finding_that_age_sex_or_follow_up_tells_is_named),
		cmocka_unit_test(what_few_patients_share_is_put_down_to_chance),
		cmocka_unit_test(a_column_that_is_not_looked_at_is_said),
		cmocka_unit_test(a_thousand_broken_images_are_named_and_more_are_counted),
		cmocka_unit_test(what_could_not_be_looked_at_is_not_called_broken),
		cmocka_unit_test(a_leak_is_measured_by_the_images_of_the_later_split),
		cmocka_unit_test(wrong_labels_are_not_called_another_order),
		cmocka_unit_test(another_data_sets_table_is_not_compared),
		cmocka_unit_test(every_problem_is_in_the_list),
		cmocka_unit_test(without_lists_patients_are_divided_as_prepare_would),
		cmocka_unit_test(those_without_a_finding_may_be_the_few),
		cmocka_unit_test(prepared_sets_of_every_format_are_audited),
		cmocka_unit_test(a_file_wise_shuffle_is_told_from_a_global_one),
	};
	return cmocka_run_group_tests(tests, set_up, scratch_remove);
}
