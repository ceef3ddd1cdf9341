/* SPDX-License-Identifier: Apache-2.0
 * NIH's tables and lists as they really are, with their traps; and what is refused. */
#include <libdeflate.h>

#include "data/nih.h"
#include "files/csv.h"
#include "prepare/prepare.h"
#include "scratch.h"

#define HEADER_2020 "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]\n"
#define HEADER_2017 "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],\n"
#define ROW "00000001_000.png,Cardiomegaly|Pleural_Thickening,0,1,57,M,PA,2682,2749,0.143,0.143"

static int table_text(struct nih *n, const char *text, struct error *e)
{
	const char *path = scratch_path("Data_Entry_2017_v2020.csv");
	*e = (struct error){ 0 };
	scratch_write(path, text, strlen(text));
	return nih_open_tables(n, path, NULL, NULL, e);
}

static void expect_one_row(const char *text)
{
	struct nih n;
	struct error e;
	if (table_text(&n, text, &e))
		fail_msg("%s", e.text);
	assert_int_equal(n.count, 1);
	assert_string_equal(n.images[0].sample.id, "00000001_000.png");
	assert_int_equal(n.images[0].sample.patient, 1);
	assert_int_equal(n.images[0].sample.labels, 1 << 1 | 1 << 12);
	assert_int_equal(n.images[0].facts.view, strstr(text, "View Position") ? 'P' : 0);
	nih_close(&n);
}

static void expect_refusal(const char *text, const char *reason)
{
	struct nih n;
	struct error e;
	assert_int_equal(table_text(&n, text, &e), -EXIT_DATA);
	if (!strstr(e.text, reason) || !strstr(e.text, scratch))
		fail_msg("\"%s\" does not say \"%s\" and the file", e.text, reason);
}

static void both_generations_and_their_headers(void **state)
{
	(void)state;
	expect_one_row(HEADER_2020 ROW "\n");
	expect_one_row(HEADER_2017 ROW ",\n");
	expect_one_row(HEADER_2017 ROW "\n");
	expect_one_row("\"Image Index\",\"Finding Labels\",\"Patient ID\",\"OriginalImage[Width,Height]\"\n00000001_000.png,Cardiomegaly|PT,1,1,2\n");
	/* one quoted field where others have two */
	expect_one_row("\"OriginalImage[Width,Height]\",\"Patient ID\",\"Image Index\",\"Finding Labels\"\n"
		       "\"2682,2749\",1,\"00000001_000.png\",Cardiomegaly|Pleural Thickening\n");
}

static void columns_are_found_by_name(void **state)
{
	(void)state;
	expect_one_row("Patient ID,OriginalImage[Width,Height],Finding Labels,Image Index\n1,10,20,Cardiomegaly|Pleural_Thickening,00000001_000.png\n");
	expect_refusal("Patient ID,Finding Labels\n1,Mass\n", "no column \"Image Index\"");
	expect_refusal("Image Index,Finding Labels,Follow-up #\n00000001_000.png,Mass,0\n",
		       "no column \"Patient ID\" (there are: Image Index, Finding Labels, Follow-up #)");
	expect_refusal("Image Index,Finding Labels,Patient ID,Finding Labels\n00000001_000.png,Mass,1,Nodule\n", "columns 2 and 4 are both \"Finding Labels\"");
	expect_refusal("Patient Sex,Image Index,Finding Labels,Patient ID,Patient Gender\nM,00000001_000.png,Mass,1,F\n", "columns 1 and 5 are both \"Patient Gender\"");
	expect_refusal("", "empty");
	expect_refusal(HEADER_2020, "a header but no rows");
	expect_refusal(HEADER_2020 "00000001_000.png,Mass,0\n", ":2: 3 fields where the header has 11");
	expect_refusal(HEADER_2020 " \n", ":2: 1 field where the header has 11");
}

/* The table of 2017 writes ages with a unit and has some that are none; what cannot be read is not told, and no error. */
static void age_sex_and_follow_up_are_read_as_both_tables_write_them(void **state)
{
	(void)state;
	static const struct {
		const char *row; /* Follow-up #, Patient Age, Patient Gender */
		struct nih_facts facts;
	} cases[] = {
		{ "0,57,M", { .sex = 'M', .age = 57, .follow_up = 0 } },    { "12,058Y,F", { .sex = 'F', .age = 58, .follow_up = 12 } },
		{ "3,006M,M", { .sex = 'M', .age = 0.5f, .follow_up = 3 } }, { "3,000D,M", { .sex = 'M', .age = 0, .follow_up = 3 } },
		{ "1,414,F", { .sex = 'F', .age = -1, .follow_up = 1 } },   { ",,", { .age = -1, .follow_up = -1 } },
		{ "-1,-5,m", { .age = -1, .follow_up = -1 } },		    { "x,nan,O", { .age = -1, .follow_up = -1 } },
		{ "99999999999,57 years,MF", { .age = -1, .follow_up = -1 } }, { "4,012W,F", { .sex = 'F', .age = -1, .follow_up = 4 } },
		{ "4,120,F", { .sex = 'F', .age = 120, .follow_up = 4 } },
	};
	static const char *const sex[] = { "Patient Gender", "Patient Sex" };
	for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
		struct nih n;
		struct error e;
		char text[300];
		const struct nih_facts *want = &cases[i / 2].facts;
		snprintf(text, sizeof text, "Image Index,Finding Labels,Patient ID,Follow-up #,Patient Age,%s\n00000001_000.png,Mass,1,%s\n", sex[i % 2], cases[i / 2].row);
		if (table_text(&n, text, &e))
			fail_msg("%s", e.text);
		const struct nih_facts *got = &n.images[0].facts;
		if (got->view || got->sex != want->sex || got->age != want->age || got->follow_up != want->follow_up)
			fail_msg("%s: sex %d, age %g, follow-up %d", cases[i / 2].row, got->sex, (double)got->age, got->follow_up);
		nih_close(&n);
	}
}

static void marks_line_ends_and_quotes(void **state)
{
	(void)state;
	expect_one_row("\xef\xbb\xbfImage Index,Finding Labels,Patient ID\r\n00000001_000.png,Cardiomegaly|PT,1\r\n");
	expect_one_row("Image Index,Finding Labels,Patient ID\n\n00000001_000.png,Cardiomegaly|PT,1");
	expect_one_row("Image Index,Note,Finding Labels,Patient ID\n00000001_000.png,\"a \"\"quoted\"\", comma\nand line\",Cardiomegaly|PT,1\n");
	expect_refusal("Image Index,Note,Finding Labels,Patient ID\n00000001_000.png,\"of\ntwo lines\",Mass,1\n00000002_000.png,,Mas,2\n", ":4: unknown finding \"Mas\"");
	expect_refusal("Image Index,Finding Labels,Patient ID\n00000001_000.png,\"Mass,1\n", ":2: a quote that is never closed");
	expect_refusal("Image Index,Finding Labels,Patient ID\n00000001_000.png,\"Mass\"x,1\n", ":2: text behind a closing quote");
}

static void what_is_no_text_is_refused(void **state)
{
	(void)state;
	static const char cut[] = HEADER_2020 ROW "\n\0\0\0\0", little[] = "\xff\xfeI\0m\0", big[] = "\xfe\xff\0I\0m";
	const struct {
		const char *text, *says;
		size_t size;
	} cases[] = { { cut, "holds binary data, not text", sizeof cut }, { little, "text in UTF-16", sizeof little }, { big, "text in UTF-16", sizeof big } };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *path = scratch_path("Data_Entry_2017_v2020.csv");
		struct error e = { 0 };
		struct nih n;

		scratch_write(path, cases[i].text, cases[i].size);
		assert_int_equal(nih_open_tables(&n, path, NULL, NULL, &e), -EXIT_DATA);
		assert_non_null(strstr(e.text, cases[i].says));
	}
}

static void labels_are_exact(void **state)
{
	(void)state;
	struct nih n;
	struct error e;
	assert_int_equal(table_text(&n, "Image Index,Finding Labels,Patient ID\n00000001_000.png,No Finding,1\n", &e), 0);
	assert_int_equal(n.images[0].sample.labels, 0);
	assert_int_equal(n.images[0].sample.known, (1 << FINDINGS) - 1);
	nih_close(&n);
	expect_refusal(HEADER_2020 "00000001_000.png,Pnuemonia,0,1,57,M,PA,1,1,1,1\n", ":2: unknown finding \"Pnuemonia\" (did you mean Pneumonia?)");
	expect_refusal(HEADER_2020 "00000001_000.png,Mass |Nodule,0,1,57,M,PA,1,1,1,1\n", "unknown finding \"Mass \" (did you mean Mass?)");
	expect_refusal(HEADER_2020 "00000001_000.png,,0,1,57,M,PA,1,1,1,1\n", "unknown finding \"\"");
	expect_refusal(HEADER_2020 "00000001_000.png,Mass|Mass,0,1,57,M,PA,1,1,1,1\n", "Mass comes twice");
	expect_refusal(HEADER_2020 "00000001_000.png,Mass|No Finding,0,1,57,M,PA,1,1,1,1\n", "\"No Finding\" together with a finding");
}

static void names_and_patients_are_checked_against_each_other(void **state)
{
	(void)state;
	expect_refusal(HEADER_2020 "00000001_000.png,Mass,0,2,57,M,PA,1,1,1,1\n",
		       ":2: image 00000001_000.png belongs to patient 1 by its name, but to 2 by its row");
	expect_refusal(HEADER_2020 "../../etc/passwd,Mass,0,1,57,M,PA,1,1,1,1\n", "\"../../etc/passwd\" is no NIH image name");
	static const char *const others[] = { "0000001_0000.png", "0000000x_000.png", "00000001-000.png", "00000001_00x.png", "00000001_000.jpg", "00000001_000.png~" };
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		char text[300];
		snprintf(text, sizeof text, HEADER_2020 "%s,Mass,0,1,57,M,PA,1,1,1,1\n", others[i]);
		expect_refusal(text, "is no NIH image name");
	}
	static const char *const numbers[] = { "one", "1x", "", "1.0", "-1", "+1", " 1" };
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		char text[300];
		char reason[80];
		snprintf(text, sizeof text, HEADER_2020 "00000001_000.png,Mass,0,%s,57,M,PA,1,1,1,1\n", numbers[i]);
		snprintf(reason, sizeof reason, ":2: patient ID \"%s\" is no number of digits alone", numbers[i]);
		expect_refusal(text, reason);
	}
	/* 2⁶⁴ + 1, which is 1 where what does not fit is cut off */
	expect_refusal(HEADER_2020 "00000001_000.png,Mass,0,18446744073709551617,57,M,PA,1,1,1,1\n", "belongs to patient 1 by its name, but to 18446744073709551617 by its row");
	expect_refusal(HEADER_2020 ROW "\n" ROW "\n", "two rows for image 00000001_000.png");
}

static void findings_by_every_spelling(void **state)
{
	(void)state;
	for (int f = 0; f < FINDINGS; f++)
		assert_int_equal(finding_index(finding_names[f], (int)strlen(finding_names[f])), f);
	assert_int_equal(finding_index("Infiltrate", 10), 3);
	assert_int_equal(finding_index("Pleural Thickening", 18), 12);
	assert_int_equal(finding_index("mass", 4), -1);
	assert_int_equal(finding_index("Mas", 3), -1);
	char hint[FINDING_HINT];
	assert_string_equal(finding_hint("Atelectasys", 11, hint), "did you mean Atelectasis?");
	assert_string_equal(finding_hint("Foo", 3, hint), "known: Atelectasis, Cardiomegaly, Effusion, Infiltration, Mass, Nodule, Pneumonia, Pneumothorax, Consolidation, Edema, "
			    "Emphysema, Fibrosis, Pleural_Thickening, Hernia");
}

/* What the table was called by who copied it says nothing of its labels. */
static void a_table_of_another_name_is_of_either_year(void **state)
{
	static const struct {
		const char *name, *generation;
	} cases[] = { { "Data_Entry_2017.csv", "2017" }, { "Data_Entry_2017_v2020.csv", "2020" }, { "table.csv", "2017 or 2020" } };
	static const char rows[] = "Image Index,Finding Labels,Patient ID\n00000001_000.png,Mass,1\n";

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const char *table = scratch_path("%s", cases[i].name);
		struct error e = { 0 };
		struct nih n;

		scratch_write(table, rows, sizeof rows - 1);
		assert_int_equal(nih_open_tables(&n, table, NULL, NULL, &e), 0);
		assert_string_equal(n.generation, cases[i].generation);
		nih_close(&n);
	}
}

static int with_lists(struct nih *n, const char *train, const char *test, struct error *e)
{
	const char *table = scratch_path("Data_Entry_2017.csv"), *a = scratch_path("a.txt"), *b = scratch_path("b.txt");
	static const char rows[] = "Image Index,Finding Labels,Patient ID\n00000001_000.png,Mass,1\n00000001_001.png,Mass,1\n00000002_000.png,Mass,2\n";
	*e = (struct error){ 0 };
	scratch_write(table, rows, sizeof rows - 1);
	scratch_write(a, train, strlen(train));
	scratch_write(b, test, strlen(test));
	return nih_open_tables(n, table, a, b, e);
}

static void lists_without_a_last_newline(void **state)
{
	(void)state;
	struct nih n;
	struct error e;
	assert_int_equal(with_lists(&n, "00000001_000.png\n00000001_001.png", "00000002_000.png", &e), 0);
	assert_string_equal(n.generation, "2017");
	assert_int_equal(n.images[1].list, NIH_TRAIN_VAL);
	assert_int_equal(n.images[2].list, NIH_TEST);
	assert_int_equal(n.unlisted, 0);
	nih_close(&n);
	assert_int_equal(with_lists(&n, "00000001_000.png\r00000001_001.png\r", "00000002_000.png\r\n", &e), 0); /* carriage returns alone */
	assert_int_equal(n.unlisted, 0);
	nih_close(&n);
	assert_int_equal(with_lists(&n, "00000001_000.png\n", "", &e), 0);
	assert_int_equal(n.unlisted, 2);
	nih_close(&n);
	assert_int_equal(with_lists(&n, "00000009_000.png", "", &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "a.txt:1: image \"00000009_000.png\" has no row in"));
	assert_int_equal(with_lists(&n, "00000001_000.png", "\n00000001_000.png", &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "b.txt:2: image 00000001_000.png is in both lists"));
	assert_int_equal(with_lists(&n, "00000001_000.png\n00000001_000.png\n", "", &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "a.txt:2: image 00000001_000.png comes twice"));
}

/* One of the two may be another picture, or half of one. */
static void an_image_that_is_in_two_folders_and_a_folder_that_leads_nowhere_are_refused(void **state)
{
	(void)state;
	static const char *const folders[] = { "twofold", "twofold/images", "twofold/images_002" };
	static const char row[] = "Image Index,Finding Labels,Patient ID\n00000001_000.png,Mass,1\n";
	struct nih n;
	struct error e = { 0 };

	for (int i = 0; i < 3; i++)
		assert_int_equal(mkdir(scratch_path("%s", folders[i]), 0777), 0);
	scratch_write(scratch_path("twofold/Data_Entry_2017.csv"), row, sizeof row - 1);
	scratch_write(scratch_path("twofold/images/00000001_000.png"), "x", 1);
	assert_int_equal(nih_open(&n, scratch_path("twofold"), &e), 0);
	nih_close(&n);
	scratch_write(scratch_path("twofold/images_002/00000001_000.png"), "y", 1);
	assert_int_equal(nih_open(&n, scratch_path("twofold"), &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "twofold/images_002: image 00000001_000.png is in images too"));
	e = (struct error){ 0 };
	assert_int_equal(unlink(scratch_path("twofold/images_002/00000001_000.png")), 0);
	assert_int_equal(symlink("not/mounted", scratch_path("twofold/images_003")), 0);
	assert_int_equal(nih_open(&n, scratch_path("twofold"), &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "twofold/images_003: cannot be read: No such file or directory"));
}

/* Unpacks FILE.gz of the shared sample into the scratch directory. */
static const char *unpack(const char *name, size_t limit)
{
	char path[FILE_PATH];
	struct mapped_file file;
	struct error e = { 0 };
	size_t size;
	snprintf(path, sizeof path, "%s/nih-sample/%s.gz", shared_dir(), name);
	if (file_map(&file, path, &e))
		fail_msg("%s", e.text);
	uint8_t *out = malloc(limit);
	struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
	assert_int_equal(libdeflate_gzip_decompress(d, file.data, file.size, out, limit, &size), LIBDEFLATE_SUCCESS);
	libdeflate_free_decompressor(d);
	file_unmap(&file);
	const char *result = scratch_path("%s", name);
	scratch_write(result, out, size);
	free(out);
	return result;
}

static size_t patients_in(const struct nih *n, const uint8_t *split, int which)
{
	uint8_t *seen = calloc(40000, 1);
	size_t count = 0;
	for (size_t i = 0; i < n->count; i++)
		if (split[i] == which && !seen[n->images[i].sample.patient]++)
			count++;
	free(seen);
	return count;
}

static void no_patient_is_in_two_splits(const struct nih *n, const uint8_t *split)
{
	uint8_t *where = calloc(40000, 1);
	for (size_t i = 0; i < n->count; i++) {
		uint8_t *w = &where[n->images[i].sample.patient];
		assert_true(*w == 0 || *w == split[i] + 1);
		*w = (uint8_t)(split[i] + 1);
	}
	free(where);
}

static void the_whole_of_chestxray14_has_the_published_counts(void **state)
{
	(void)state;
	static const size_t positives[FINDINGS] = { 11559, 2776, 13317, 19894, 5782, 6331, 1431, 5302, 4667, 2303, 2516, 1686, 3385, 227 };
	struct nih n;
	struct error e = { 0 };
	size_t count[SPLITS] = { 0 }, found[FINDINGS] = { 0 }, patients = 0;
	if (!shared_dir())
		skip_because("no shared material with the full label table here");
	const char *table = unpack("Data_Entry_2017_v2020.full.csv", 20 << 20), *train = unpack("train_val_list.full.txt", 4 << 20),
		   *test = unpack("test_list.full.txt", 4 << 20);
	if (nih_open_tables(&n, table, train, test, &e))
		fail_msg("%s", e.text);
	assert_int_equal(n.count, 112120);
	assert_string_equal(n.generation, "2020");
	assert_int_equal(n.unlisted, 0);
	for (size_t i = 0; i < n.count; i++) {
		patients += i == 0 || n.images[i].sample.patient != n.images[i - 1].sample.patient; /* NIH's rows go by patient */
		for (int f = 0; f < FINDINGS; f++)
			found[f] += n.images[i].sample.labels >> f & 1;
	}
	assert_int_equal(patients, 30805);
	assert_memory_equal(found, positives, sizeof positives);

	uint8_t *split = malloc(n.count), *again = malloc(n.count);
	assert_int_equal(nih_divide(&n, SPLIT_OFFICIAL, 1, split, &e), 0);
	for (size_t i = 0; i < n.count; i++)
		count[split[i]]++;
	assert_int_equal(count[SPLIT_TRAIN] + count[SPLIT_VAL], 86524);
	assert_int_equal(count[SPLIT_TEST], 25596);
	assert_int_equal(patients_in(&n, split, SPLIT_TEST), 2797);
	assert_int_equal(patients_in(&n, split, SPLIT_VAL), 2801);
	assert_int_equal(patients_in(&n, split, SPLIT_TRAIN) + 2801, 28008);
	no_patient_is_in_two_splits(&n, split);
	assert_int_equal(nih_divide(&n, SPLIT_OFFICIAL, 1, again, &e), 0);
	assert_memory_equal(split, again, n.count);
	assert_int_equal(nih_divide(&n, SPLIT_OFFICIAL, 2, again, &e), 0);
	assert_memory_not_equal(split, again, n.count);

	assert_int_equal(nih_divide(&n, SPLIT_CHEXNET, 1, split, &e), 0);
	no_patient_is_in_two_splits(&n, split);
	assert_int_equal(patients_in(&n, split, SPLIT_VAL), 3081);
	assert_int_equal(patients_in(&n, split, SPLIT_TEST), 6161);
	assert_int_equal(patients_in(&n, split, SPLIT_TRAIN), 30805 - 3081 - 6161);
	free(split);
	free(again);
	nih_close(&n);
}

static void real_images_are_prepared(void **state)
{
	(void)state;
	char source[FILE_PATH];
	struct prepare_report r;
	struct dataset *d;
	struct error e = { 0 };
	if (!shared_dir())
		skip_because("no shared material with real images here");
	snprintf(source, sizeof source, "%s/nih-sample", shared_dir());
	const char *out = scratch_path("real");
	struct prepare_conf conf = { .out = out, .size = 64, .seed = 1 };
	struct origin origin;
	if (origin_nih(&origin, source, SPLIT_OFFICIAL, 1, &e) || prepare(&conf, &origin, &r, &e))
		fail_msg("%s", e.text);
	assert_int_equal(r.manifest.split[SPLIT_TRAIN].images + r.manifest.split[SPLIT_VAL].images, 44);
	assert_int_equal(r.manifest.split[SPLIT_TEST].images, 20);
	assert_int_equal(r.leaked + origin.extra + origin.unlisted, 0);
	origin_close(&origin);
	assert_int_equal(dataset_open(&d, out, "test", &e), 0);
	assert_int_equal(dataset_count(d), 20);
	assert_null(dataset_oracle(d));
	dataset_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_generations_and_their_headers),
		cmocka_unit_test(columns_are_found_by_name),
		cmocka_unit_test(age_sex_and_follow_up_are_read_as_both_tables_write_them),
		cmocka_unit_test(marks_line_ends_and_quotes),
		cmocka_unit_test(what_is_no_text_is_refused),
		cmocka_unit_test(labels_are_exact),
		cmocka_unit_test(names_and_patients_are_checked_against_each_other),
		cmocka_unit_test(findings_by_every_spelling),
		cmocka_unit_test(a_table_of_another_name_is_of_either_year),
		cmocka_unit_test(lists_without_a_last_newline),
		cmocka_unit_test(an_image_that_is_in_two_folders_and_a_folder_that_leads_nowhere_are_refused),
		cmocka_unit_test(the_whole_of_chestxray14_has_the_published_counts),
		cmocka_unit_test(real_images_are_prepared),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
