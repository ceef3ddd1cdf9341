/* SPDX-License-Identifier: Apache-2.0
 * Files of predictions: what is written is read back bit for bit, and what cannot be trusted is refused by line and column. */
#include "tests/unit/test.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/file.h"
#include "learn/predictions.h"
#include "utf8.h"

static char directory[512], path[640];

static int make_directory(void **state)
{
	const char *build = getenv("BUILD");

	(void)state;
	snprintf(directory, sizeof directory, "%s/tests/tmp", build ? build : "build");
	mkdir(directory, 0777);
	snprintf(directory, sizeof directory, "%s/tests/tmp/predictions.%d", build ? build : "build", (int)getpid());
	snprintf(path, sizeof path, "%s/p.csv", directory);
	return mkdir(directory, 0777);
}

static int remove_directory(void **state)
{
	(void)state;
	directory_remove(directory);
	return 0;
}

static struct sample samples[] = {
	{ "00000013_000.png", 13, 1u << 2 | 1u << 13, 0x3FFF },
	{ "00000013_001.png", 13, 0, 0x1FFF },
	{ "a, b.png", 4294967295u, 1, 0x3FFF },
};
static float logits[3][FINDINGS];

static struct predictions three(void)
{
	struct predictions p = { .n = 3, .samples = samples, .logits = &logits[0][0], .has_patients = 1, .about.leaked = 4 };

	for (int i = 0; i < 3 * FINDINGS; i++)
		logits[i / FINDINGS][i % FINDINGS] = (float)(sin(i) * pow(10, i % 9 - 4));
	logits[2][5] = 0x1p-140f; /* a denormal */
	logits[2][6] = nextafterf(1000, 2000); /* eight digits are not enough for it */
	strcpy(p.about.model, "densenet121");
	strcpy(p.about.policy, "official");
	strcpy(p.about.trained_on, "synthetic, then TFRecord, labels in named order");
	strcpy(p.about.source, "ChestX-ray14, labels of 2020");
	strcpy(p.about.split, "test");
	strcpy(p.about.checkpoint, "my run/100%41\x7F/best.safetensors");
	strcpy(p.about.weights_hash, "00c0ffee00c0ffee,0123456789abcdef");
	p.about.has_oracle = 1;
	for (int f = 0; f < FINDINGS; f++)
		p.about.oracle[f] = f % 4 == 1 ? NAN : 0.5 + f / 32.0;
	strcpy(p.about.command, "chexnet eval --data \"x y\"\t\xC3\xA9");
	return p;
}

/* Images of which nobody says what they are are not called others. */
static void drawings_and_radiographs_are_told_apart(void **state)
{
	static const struct {
		const char *trained_on, *judged;
		int differs;
	} cases[] = {
		{ "synthetic", "ChestX-ray14, labels of 2020", 1 },
		{ "ChestX-ray14, labels of 2017", "synthetic", 1 },
		{ "synthetic, then ChestX-ray14, labels of 2020", "synthetic", 1 },
		{ "ChestX-ray14, labels of 2017, then synthetic", "ChestX-ray14, labels of 2017", 1 },
		{ "synthetic", "synthetic", 0 },
		{ "ChestX-ray14, labels of 2017", "ChestX-ray14, labels of 2020", 0 },
		{ "synthetic, then ChestX-ray14, labels of 2020", "ChestX-ray14, labels of 2020", 0 },
		{ "", "synthetic", 0 },
		{ "synthetic", "", 0 },
		{ "synthetic", "TFRecord, labels in dell order", 0 },
		{ "synthetic, then TFRecord, labels in dell order", "ChestX-ray14, labels of 2020", 0 },
		{ "several", "synthetic", 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		if (source_differs(cases[i].trained_on, cases[i].judged) != cases[i].differs)
			fail_msg("\"%s\" and \"%s\"", cases[i].trained_on, cases[i].judged);
}

static void what_is_written_is_read_back_bit_for_bit(void **state)
{
	struct error e = { 0 };
	struct predictions p = three(), q;

	(void)state;
	p.about.leaky = 1;
	assert_int_equal(predictions_write(path, &p, &e), 0);
	assert_int_equal(predictions_read(&q, path, &e), 0);
	assert_int_equal(q.about.leaky, 1);
	assert_int_equal(q.n, 3);
	assert_int_equal(q.has_patients, 1);
	assert_memory_equal(q.logits, logits, sizeof logits);
	for (size_t i = 0; i < q.n; i++) {
		assert_string_equal(q.samples[i].id, samples[i].id);
		assert_int_equal(q.samples[i].patient, samples[i].patient);
		assert_int_equal(q.samples[i].labels, samples[i].labels);
		assert_int_equal(q.samples[i].known, samples[i].known);
	}
	assert_int_equal(q.about.has_oracle, 1);
	for (int f = 0; f < FINDINGS; f++)
		if (f % 4 == 1)
			assert_true(isnan(q.about.oracle[f]));
		else
			assert_close(q.about.oracle[f], p.about.oracle[f], 1e-6);
	assert_string_equal(q.about.model, p.about.model);
	assert_string_equal(q.about.checkpoint, p.about.checkpoint);
	assert_string_equal(q.about.weights_hash, p.about.weights_hash);
	assert_string_equal(q.about.command, p.about.command);
	assert_string_equal(q.about.policy, "official");
	assert_string_equal(q.about.trained_on, p.about.trained_on);
	assert_string_equal(q.about.source, p.about.source);
	assert_string_equal(q.about.split, "test");
	assert_string_equal(q.about.data, "");
	assert_int_equal(q.about.leaked, 4);
	predictions_free(&q);
}

/* Comparisons print where predictions come from; a name of a file is left as it is, as it is looked for. */
static void where_they_come_from_tells_a_terminal_nothing(void **state)
{
	struct error e = { 0 };
	struct predictions p = three(), q;

	(void)state;
	strcpy(p.about.policy, "\x1b[31mofficial\n");
	strcpy(p.about.weights_hash, "\x1b]0;title\a");
	strcpy(p.about.trained_on, "\xC2\x9B" "2J");
	strcpy(p.about.split, "te\x1bst");
	strcpy(p.about.checkpoint, "run\x1b/\n/model.safetensors");
	assert_int_equal(predictions_write(path, &p, &e), 0);
	assert_int_equal(predictions_read(&q, path, &e), 0);
	assert_string_equal(q.about.policy, "?[31mofficial?");
	assert_string_equal(q.about.weights_hash, "?]0;title?");
	assert_string_equal(q.about.trained_on, "??2J");
	assert_string_equal(q.about.split, "te?st");
	assert_string_equal(q.about.checkpoint, p.about.checkpoint);
	predictions_free(&q);
}

static void a_path_of_any_bytes_is_written_as_utf_8_and_read_as_it_was(void **state)
{
	struct error e = { 0 };
	struct predictions p = three(), q;
	char *text;
	size_t size;

	(void)state;
	strcpy(p.about.checkpoint, "lat\xE9/\xC3\xA9 \xE2\x82/\xF0\x9F\xAB\x81\xED\xA0\x80.safetensors\xC3");
	strcpy(p.about.command, "chexnet eval --weights=lat\xE9");
	assert_int_equal(predictions_write(path, &p, &e), 0);
	assert_int_equal(file_read(&text, &size, path, &e), 0);
	assert_true(utf8_valid(text));
	assert_non_null(strstr(text, " checkpoint=lat%E9/\xC3\xA9%20%E2%82/\xF0\x9F\xAB\x81%ED%A0%80.safetensors%C3 "));
	free(text);
	assert_int_equal(predictions_read(&q, path, &e), 0);
	assert_string_equal(q.about.checkpoint, p.about.checkpoint);
	assert_string_equal(q.about.command, p.about.command);
	predictions_free(&q);
}

/* Another program's file may have such names, which the average of several models would hand on. */
static void a_name_that_is_no_utf_8_is_not_written(void **state)
{
	struct error e = { 0 };
	struct predictions p = three();
	char before[SAMPLE_ID];

	(void)state;
	memcpy(before, samples[1].id, sizeof before);
	strcpy(samples[1].id, "caf\xE9.png");
	assert_int_equal(predictions_write(path, &p, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "caf\xE9.png: a name that is not UTF-8 cannot be written"));
	memcpy(samples[1].id, before, sizeof before);
}

/* What was not checked is no leak of 0 patients, and no other way round. */
static void whether_a_leak_was_looked_for_comes_back(void **state)
{
	static const struct {
		long leaked;
		const char *line;
	} cases[] = { { -1, " leak=unchecked\n" }, { 0, " leak=0\n" }, { 1, " leak=1\n" } };
	struct predictions p = three(), q;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct error e = { 0 };
		size_t size;
		char *text;

		p.about.leaked = cases[i].leaked;
		assert_int_equal(predictions_write(path, &p, &e), 0);
		assert_int_equal(file_read(&text, &size, path, &e), 0);
		assert_non_null(strstr(text, cases[i].line));
		free(text);
		assert_int_equal(predictions_read(&q, path, &e), 0);
		assert_int_equal(q.about.leaked, cases[i].leaked);
		predictions_free(&q);
	}
}

/* Those of three() behind another first line. */
static struct predictions read_behind(const char *line)
{
	struct predictions p = three(), q;
	struct error e = { 0 };
	size_t size;
	char *text, *other;

	assert_int_equal(predictions_write(path, &p, &e), 0);
	assert_int_equal(file_read(&text, &size, path, &e), 0);
	assert_true(asprintf(&other, "%s%s", line, strchr(text, '\n') + 1) > 0);
	assert_int_equal(file_write(path, other, strlen(other), &e), 0);
	assert_int_equal(predictions_read(&q, path, &e), 0);
	free(other);
	free(text);
	return q;
}

static void what_a_spreadsheet_adds_to_the_first_line_takes_nothing_from_it(void **state)
{
	static const char line[] = "\xEF\xBB\xBF# rows=3 model=densenet121 leak=0 leaky=yes,,,,,\r\n";
	struct predictions q = read_behind(line);

	(void)state;
	assert_string_equal(q.about.model, "densenet121");
	assert_int_equal(q.about.leaked, 0);
	assert_int_equal(q.about.leaky, 1);
	predictions_free(&q);
}

/* Older versions noted the command alone. */
static void an_older_file_says_by_its_command_how_many_crops_there_were(void **state)
{
	static const struct {
		const char *command, *crops;
	} of[] = {
		{ "chexnet eval --weights=a --data=b --split=test --crops=ten", "ten" },
		{ "chexnet eval --weights=a --data=b --split=test --crops=none", "" },
		{ "chexnet ensemble --average=logits out.csv --crops=ten", "" }, /* a name */
	};

	(void)state;
	for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
		struct predictions p = three(), q;
		struct error e = { 0 };

		snprintf(p.about.command, sizeof p.about.command, "%s", of[i].command);
		assert_int_equal(predictions_write(path, &p, &e), 0);
		assert_int_equal(predictions_read(&q, path, &e), 0);
		assert_string_equal(q.about.crops, of[i].crops);
		predictions_free(&q);
	}
}

/* Keys that only begin as ours do, and percent signs that begin no byte, are others'. */
static void the_first_line_is_read_key_by_key(void **state)
{
	static const char line[] = "# rows=3 model=a%20b%4a%4A%%41%4G%4 mod=no modelling=no command=%7f%4 leak=0 oracle=1,0,1.5,0.5\n";
	struct predictions q = read_behind(line);

	(void)state;
	assert_string_equal(q.about.model, "a bJJ%A%4G%4");
	assert_string_equal(q.about.command, "\x7f%4");
	assert_int_equal(q.about.leaked, 0);
	for (int f = 0; f < FINDINGS; f++)
		if (f == 0 || f == 3)
			assert_close(q.about.oracle[f], f ? 0.5 : 1, 0);
		else
			assert_true(isnan(q.about.oracle[f]));
	predictions_free(&q);
}

static void any_name_that_fits_on_a_line_comes_back(void **state)
{
	static const char *const names[] = { "\"", "\"quoted\".png", "a \"b\", c.png", "6\" film.png", "patient00001/study1/view1_frontal.jpg", "\xC3\xA9 .png" };
	struct predictions p = three(), q;

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct sample named[3] = { samples[0], samples[1], samples[2] };
		struct error e = { 0 };

		strcpy(named[1].id, names[i]);
		p.samples = named;
		assert_int_equal(predictions_write(path, &p, &e), 0);
		assert_int_equal(predictions_read(&q, path, &e), 0);
		assert_string_equal(q.samples[1].id, names[i]);
		assert_int_equal(q.samples[1].patient, 13);
		predictions_free(&q);
		memset(named[1].id, '"', SAMPLE_ID - 1); /* the longest line */
		named[1].id[SAMPLE_ID - 1] = '\0';
		assert_int_equal(predictions_write(path, &p, &e), 0);
		assert_int_equal(predictions_read(&q, path, &e), 0);
		assert_string_equal(q.samples[1].id, named[1].id);
		predictions_free(&q);
		strcpy(named[1].id, "two\nlines.png");
		assert_int_equal(predictions_write(path, &p, &e), -EXIT_DATA);
	}
}

static void a_name_with_the_sign_of_a_comment_is_quoted(void **state)
{
	struct predictions p = three();
	struct sample named[3] = { samples[0], samples[1], samples[2] };
	struct error e = { 0 };
	char *text;
	size_t size;

	(void)state;
	strcpy(named[0].id, "#1.png");
	strcpy(named[2].id, "film #2.png");
	p.samples = named;
	assert_int_equal(predictions_write(path, &p, &e), 0);
	assert_int_equal(file_read(&text, &size, path, &e), 0);
	assert_non_null(strstr(text, "\n\"#1.png\","));
	assert_non_null(strstr(text, "\n\"film #2.png\","));
	free(text);
}

static void an_unknown_label_leaves_its_image_out_of_that_finding_only(void **state)
{
	struct predictions p = three();
	float score[3];
	uint8_t positive[3];

	(void)state;
	assert_int_equal(predictions_of(&p, 13, score, positive), 2);
	assert_close(score[1], logits[2][13], 0);
	assert_int_equal(positive[0], 1);
	assert_int_equal(predictions_of(&p, 12, score, positive), 3);
}

static void a_logit_that_is_not_a_number_is_refused_and_nothing_is_written(void **state)
{
	struct error e = { 0 };
	struct predictions p = three();

	(void)state;
	unlink(path);
	logits[1][6] = NAN;
	assert_int_equal(predictions_write(path, &p, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "00000013_001.png"));
	assert_non_null(strstr(e.text, "Pneumonia"));
	assert_int_equal(access(path, F_OK), -1);
}

/* Reads the text of a good file in which the first `from` is replaced by `to`, and returns the error. */
static struct error reading_with(const char *from, const char *to)
{
	struct error e = { 0 };
	struct predictions p = three();
	char *text;
	size_t size;

	assert_int_equal(predictions_write(path, &p, &e), 0);
	assert_int_equal(file_read(&text, &size, path, &e), 0);
	char *changed = malloc(size + strlen(to) + 1), *at = strstr(text, from);

	assert_non_null(at);
	sprintf(changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	assert_int_equal(file_write(path, changed, strlen(changed), &e), 0);
	free(changed);
	free(text);
	predictions_read(&p, path, &e);
	predictions_free(&p);
	return e;
}

static void bad_files_are_refused_by_line_and_column(void **state)
{
	static char longer[SAMPLE_ID + 1];
	static const struct {
		const char *from, *to, *says;
	} cases[] = {
		{ "id,", "name,", "no column \"id\"" },
		{ "Edema_logit", "Oedema_logit", "no column \"Edema_logit\"" },
		{ "Edema_logit", "Mass_logit", "two columns \"Mass_logit\"" },
		{ ",split,", ",patient,", "two columns \"patient\"" },
		{ ",split,", ",id,", "two columns \"id\"" },
		{ ",13,test,", ",13x,test,", "line 3, column patient: not a patient number: \"13x\"" },
		{ ",13,test,", ",-13,test,", "line 3, column patient: not a patient number: \"-13\"" },
		{ ",13,test,", ", 13,test,", "line 3, column patient: not a patient number: \" 13\"" },
		{ ",13,test,", ",4294967296,test,", "line 3, column patient: not a patient number: \"4294967296\"" },
		{ ",13,test,", ",,test,", "line 4, column patient: a patient here, but none on the lines before: \"13\"" },
		{ "00000013_001.png,13,", "00000013_000.png,13,", "00000013_000.png comes twice" },
		{ "00000013_001.png,13,", "00000013_001.png,,", "line 4, column patient" },
		{ "00000013_001.png,13,", "00000013_001.png,-1,", "line 4, column patient" },
		{ "001.png,13,test", "001.png,13,val", "line 4, column split" },
		{ "13,test,0,", "13,test,2,", "line 3, column Atelectasis: a label is 0, 1 or empty: \"2\"" },
		{ "13,test,0,", "13,test,0.5,", "line 3, column Atelectasis: a label is 0, 1 or empty: \"0.5\"" },
		{ "13,test,0,", "13,test,", "line 3: 30 columns where the header has 31" },
		{ ",1000.00006,", ",nan,", "line 5, column Pneumonia: a logit must be a finite number: \"nan\"" },
		{ ",1000.00006,", ",-inf,", "line 5, column Pneumonia: a logit must be a finite number: \"-inf\"" },
		{ ",1000.00006,", ",1e39,", "line 5, column Pneumonia: a logit must be a finite number: \"1e39\"" },
		{ ",1000.00006,", ",1000.0x,", "line 5, column Pneumonia: a logit must be a finite number: \"1000.0x\"" },
		{ ",1000.00006,", ",,", "line 5, column Pneumonia: a logit must be a finite number: \"\"" },
		{ "\"a, b.png\"", "\"a, b.png", "quotation mark" },
		{ "\"a, b.png\"", "\"a\" b.png", "quotation mark" },
		{ "rows=3", "rows=4", "rows=4 and there are 3" },
		{ "rows=3", "rows=2", "rows=2 and there are 3" },
		{ "00000013_000.png", longer, "line 3, column id: longer than an image's name" },
		{ "00000013_000.png", "", "line 3, column id: must not be empty" },
	};

	(void)state;
	memset(longer, 'n', SAMPLE_ID);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct error e = reading_with(cases[i].from, cases[i].to);

		if (e.code != EXIT_DATA || !strstr(e.text, cases[i].says))
			fail_msg("\"%s\" for \"%s\": code %d, \"%s\"", cases[i].to, cases[i].from, e.code, e.text);
		assert_non_null(strstr(e.text, path));
	}
}

static void a_trainings_log_is_called_one(void **state)
{
	static const char log[] = "{\"event\":\"start\",\"time\":1.5}\n{\"event\":\"end\",\"time\":2,\"code\":0}\n";
	struct error e = { 0 };
	struct predictions p;

	(void)state;
	assert_int_equal(file_write(path, log, strlen(log), &e), 0);
	assert_int_equal(predictions_read(&p, path, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, path));
	assert_non_null(strstr(e.text, "a training's log, not predictions"));
	predictions_free(&p);
}

/* As a spreadsheet does where the comma is a decimal one. */
static void a_file_with_semicolons_is_told_of_commas(void **state)
{
	struct error e = { 0 };
	struct predictions p;

	(void)state;
	assert_int_equal(file_write(path, "id;patient\nx.png;1\n", 19, &e), 0);
	assert_int_equal(predictions_read(&p, path, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "no column \"id\": what sets columns apart is to be a comma"));
	predictions_free(&p);
}

static void files_of_other_programs_need_only_the_columns(void **state)
{
	struct error e = { 0 };
	struct predictions p;
	char text[4096] = "\xEF\xBB\xBFid,note";

	(void)state;
	for (int i = 0; i < 2 * FINDINGS; i++)
		sprintf(text + strlen(text), ",%s_%s", finding_names[FINDINGS - 1 - i / 2], i % 2 ? "label" : "logit");
	strcat(text, "\r\n\r\nx.png,\"said \"\"ok\"\", twice\"");
	for (int i = 0; i < FINDINGS; i++)
		sprintf(text + strlen(text), ",%d.5,%s", FINDINGS - 1 - i, i == FINDINGS - 1 ? "\"1\"" : (const char *[]){ "", "1.0", "0.0" }[i % 3]); /* so pandas writes labels some of which are empty */
	assert_int_equal(file_write(path, text, strlen(text), &e), 0);
	assert_int_equal(predictions_read(&p, path, &e), 0);
	assert_int_equal(p.n, 1);
	assert_int_equal(p.has_patients, 0);
	assert_int_equal(p.about.leaked, -1);
	assert_int_equal(p.about.leaky, 0);
	for (int f = 0; f < FINDINGS; f++) {
		assert_close(p.logits[f], f + 0.5, 0);
		assert_int_equal(p.samples[0].known >> f & 1, (FINDINGS - 1 - f) % 3 != 0);
		assert_int_equal(p.samples[0].labels >> f & 1, (FINDINGS - 1 - f) % 3 == 1);
	}
	predictions_free(&p);
}

/* Without file_write()'s fsync(), for a thousand small files. */
static void write_quickly(const char *text, size_t size)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, size, f), size);
	fclose(f);
}

/* With SAN=1: nothing is read beyond its end. */
static void a_file_that_ends_within_its_first_line_is_refused(void **state)
{
	struct error e = { 0 };
	struct predictions p;

	(void)state;
	write_quickly("# leaky=y", 9);
	assert_int_equal(predictions_read(&p, path, &e), -EXIT_DATA);
	predictions_free(&p);
}

static void every_cut_file_is_refused(void **state)
{
	struct error e = { 0 };
	struct predictions p = three(), q;
	char *text;
	size_t size, refused = 0;

	(void)state;
	assert_int_equal(predictions_write(path, &p, &e), 0);
	assert_int_equal(file_read(&text, &size, path, &e), 0);
	for (size_t cut = 0; cut < size; cut++) {
		struct error why = { 0 };

		write_quickly(text, cut);
		refused += predictions_read(&q, path, &why) == -EXIT_DATA;
		predictions_free(&q);
	}
	free(text);
	assert_int_equal(refused, size);
}

/* What compare and the report warn of: 1 only where both files name something, and name different things. */
static void splits_differ_where_both_are_named(void **state)
{
	static const struct {
		const char *split[2], *policy[2];
		int differ;
	} cases[] = {
		{ { "test", "test" }, { "official", "official" }, 0 }, { { "test", "val" }, { "official", "official" }, 1 },
		{ { "test", "test" }, { "official", "chexnet" }, 1 },  { { "test", "" }, { "official", "official" }, -1 },
		{ { "test", "test" }, { "", "official" }, -1 },        { { "", "test" }, { "official", "chexnet" }, 1 },
		{ { "", "" }, { "", "" }, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		for (int turned = 0; turned < 2; turned++) {
			struct provenance a = { 0 }, b = { 0 };

			strcpy(a.split, cases[i].split[turned]);
			strcpy(b.split, cases[i].split[!turned]);
			strcpy(a.policy, cases[i].policy[turned]);
			strcpy(b.policy, cases[i].policy[!turned]);
			assert_int_equal(splits_differ(&a, &b), cases[i].differ);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(drawings_and_radiographs_are_told_apart),
		cmocka_unit_test(what_is_written_is_read_back_bit_for_bit),
		cmocka_unit_test(where_they_come_from_tells_a_terminal_nothing),
		cmocka_unit_test(a_path_of_any_bytes_is_written_as_utf_8_and_read_as_it_was),
		cmocka_unit_test(a_name_that_is_no_utf_8_is_not_written),
		cmocka_unit_test(whether_a_leak_was_looked_for_comes_back),
		cmocka_unit_test(what_a_spreadsheet_adds_to_the_first_line_takes_nothing_from_it),
		cmocka_unit_test(an_older_file_says_by_its_command_how_many_crops_there_were),
		cmocka_unit_test(the_first_line_is_read_key_by_key),
		cmocka_unit_test(any_name_that_fits_on_a_line_comes_back),
		cmocka_unit_test(a_name_with_the_sign_of_a_comment_is_quoted),
		cmocka_unit_test(an_unknown_label_leaves_its_image_out_of_that_finding_only),
		cmocka_unit_test(a_logit_that_is_not_a_number_is_refused_and_nothing_is_written),
		cmocka_unit_test(bad_files_are_refused_by_line_and_column),
		cmocka_unit_test(a_trainings_log_is_called_one),
		cmocka_unit_test(a_file_with_semicolons_is_told_of_commas),
		cmocka_unit_test(files_of_other_programs_need_only_the_columns),
		cmocka_unit_test(a_file_that_ends_within_its_first_line_is_refused),
		cmocka_unit_test(splits_differ_where_both_are_named),
		cmocka_unit_test(every_cut_file_is_refused),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
