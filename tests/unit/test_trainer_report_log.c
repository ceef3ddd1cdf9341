/* SPDX-License-Identifier: Apache-2.0
 * The training log as the report reads it: resumed, cut short, damaged, or of another model. */
#include "tests/unit/report_page.h"

#include <omp.h>

#include "learn/log.h"
#include "report/svg.h"

static struct train_log read_log(const char *text)
{
	struct error e = { 0 };
	struct train_log log;

	assert_int_equal(file_write(path, text, strlen(text), &e), 0);
	if (train_log_read(&log, path, &e))
		fail_msg("%s", e.text);
	return log;
}

/* A file system that was cut off leaves zeros where a line was, and what comes after them counts. */
static void lines_with_zeros_are_skipped_and_seeds_keep_their_digits(void **state)
{
	static const char start[] = "{\"event\":\"start\",\"ranks\":1,\"command\":\"\\\"seed\\\":7\",\"seed\":18446744073709551615}\n",
			  zeros[] = "{\"event\":\"step\",\0\0\0\0\n\0\0\0{\"event\":\"step\",\"step\":9,\"loss\":9}\n",
			  step[] = "{\"event\":\"step\",\"step\":1,\"loss\":0.9}\n\0\0\0";
	char text[sizeof start + sizeof zeros + sizeof step];
	struct train_log log;
	struct error e = { 0 };
	size_t size = 0;

	(void)state;
	memcpy(text + size, start, sizeof start - 1), size += sizeof start - 1;
	memcpy(text + size, zeros, sizeof zeros - 1), size += sizeof zeros - 1;
	memcpy(text + size, step, sizeof step - 1), size += sizeof step - 1;
	assert_int_equal(file_write(path, text, size, &e), 0);
	assert_int_equal(train_log_read(&log, path, &e), 0);
	assert_int_equal(log.skipped, 3);
	assert_int_equal(log.n_steps, 1);
	assert_close(log.steps[0].loss, 0.9, 0);
	assert_string_equal(log.seed, "18446744073709551615");
	train_log_free(&log);
}

static const char resumed[] =
	"{\"event\":\"start\",\"model\":\"densenet121\",\"ranks\":4,\"nodes\":2,\"global_batch\":64,\"seed\":1,\"places\":[{\"rank\":0,\"host\":\"<n1>\",\"gpu\":\"\",\"cpus\":\"0-1\",\"threads\":2}]}\n"
	"{\"event\":\"step\",\"step\":1,\"loss\":0.9,\"lr\":1e-4,\"images_per_s\":100}\n"
	"{\"event\":\"step\",\"step\":2,\"loss\":0.8,\"lr\":1e-4,\"images_per_s\":null}\n"
	"{\"event\":\"eval\",\"step\":2,\"split\":\"val\",\"loss\":0.85,\"mean\":{\"auroc\":0.6,\"low\":0.5,\"high\":0.7}}\n"
	"{\"event\":\"step\",\"step\":3,\"loss\":0.7,\"lr\":1e-4}\n"
	"{\"event\":\"step\",\"step\":4,\"los\n"
	"{\"event\":\"start\",\"model\":\"densenet121\",\"ranks\":2,\"global_batch\":32,\"splits\":{\"train\":{\"images\":78468,\"patients\":25207},\"val\":{\"images\":1,\"patients\":1},\"test\":{\"images\":-1}}}\r\n\n"
	"{\"event\":\"step\",\"step\":2,\"loss\":0.81,\"lr\":1e-4}\n"
	"{\"event\":\"step\",\"step\":3,\"loss\":0.71,\"lr\":1e-4}\n"
	"{\"event\":\"eval\",\"step\":3,\"split\":\"val\",\"loss\":0.7,\"mean\":{\"auroc\":null}}\n"
	"{\"event\":\"summary\",\"images\":64,\"seconds\":10,\"images_per_s\":6.4,\"input_share\":0.25,\"communication_share\":0.05}\n"
	"{\"event\":\"eval\",\"step\":3,\"split\":\"test\",\"mean\":{\"auroc\":0.8},\"findings\":{\"Mass\":{\"auroc\":0.8,\"oracle\":0.9}}}\n"
	"{\"event\":\"end\",\"code\":0}";

static void a_resumed_run_counts_every_step_once_as_it_was_done_last(void **state)
{
	struct train_log log = read_log(resumed);

	(void)state;
	assert_int_equal(log.starts, 2);
	assert_int_equal(log.skipped, 1);
	assert_int_equal(log.n_steps, 3);
	assert_close(log.steps[0].loss, 0.9, 0);
	assert_close(log.steps[1].loss, 0.81, 0);
	assert_close(log.steps[2].loss, 0.71, 0);
	assert_true(isnan(log.steps[1].images_per_s));
	assert_int_equal(log.n_evals, 2);
	assert_close(log.evals[0].mean.high, 0.7, 0);
	assert_true(isnan(log.evals[1].mean.value));
	assert_close(json_get_number(log.start, "ranks"), 2, 0);
	assert_true(log.has_oracle && log.oracle[4] == 0.9 && isnan(log.oracle[0]));
	assert_close(json_get_number(log.end, "code"), 0, 0);
	train_log_free(&log);
}

/* By starts: a recovery says for itself what it changed. A line that is JSON and no event is skipped. */
static void a_global_batch_that_changes_is_noticed_either_way(void **state)
{
	static const int batch[][2] = { { 32, 32 }, { 32, 33 }, { 33, 32 } };

	(void)state;
	for (size_t i = 0; i < sizeof batch / sizeof batch[0]; i++) {
		char text[400];

		snprintf(text, sizeof text, "{\"event\":\"start\",\"global_batch\":%d}\n{\"event\":\"end\",\"code\":75}\n{\"step\":1}\n[1]\n{\"event\":\"start\",\"global_batch\":%d}\n",
			 batch[i][0], batch[i][1]);
		struct train_log log = read_log(text);

		assert_int_equal(log.mixed, batch[i][0] != batch[i][1]);
		assert_int_equal(log.skipped, 2);
		assert_null(log.end); /* it may still run */
		train_log_free(&log);
	}
}

/* Rank 0 told its own end, and the others went on. */
static void an_end_before_a_recovery_is_not_the_trainings(void **state)
{
	struct train_log log = read_log("{\"event\":\"start\",\"step\":0}\n{\"event\":\"end\",\"code\":65}\n{\"event\":\"recovered\",\"ranks\":1,\"step\":0}\n");

	(void)state;
	assert_null(log.end);
	train_log_free(&log);
}

static void a_course_that_was_left_is_not_in_the_log(void **state)
{
	(void)state;
	struct train_log log;
	struct error e = { 0 };
	FILE *f = fopen(path, "w");

	fputs("{\"event\":\"start\",\"step\":0}\n{\"event\":\"end\",\"code\":75}\n{\"event\":\"start\",\"step\":0}\n", f);
	for (int i = 0; i < 6; i++)
		fprintf(f, "{\"event\":\"step\",\"step\":%d,\"loss\":1}\n{\"event\":\"eval\",\"split\":\"val\",\"step\":%d,\"mean\":{\"auroc\":0.%d}}\n", i, i + 1, i + 1);
	/* back to step 2, and the next validation comes after step 6 */
	fputs("{\"event\":\"start\",\"step\":2}\n{\"event\":\"step\",\"step\":2,\"loss\":2}\n", f);
	fclose(f);
	assert_int_equal(train_log_read(&log, path, &e), 0);
	assert_int_equal(log.n_steps, 3);
	assert_int_equal(log.n_evals, 2);
	assert_true(log.evals[1].step == 2);
	assert_null(log.end); /* that was of the run before */
	train_log_free(&log);
	/* so do survivors, and a start that has made no step yet */
	f = fopen(path, "a");
	fputs("{\"event\":\"step\",\"step\":3}\n{\"event\":\"recovered\",\"step\":3}\n{\"event\":\"start\"}\n", f);
	fclose(f);
	assert_int_equal(train_log_read(&log, path, &e), 0);
	assert_int_equal(log.n_steps, 3);
	train_log_free(&log);
	f = fopen(path, "a");
	fputs("{\"event\":\"start\",\"step\":0}\n", f);
	fclose(f);
	assert_int_equal(train_log_read(&log, path, &e), 0);
	assert_int_equal(log.n_steps + log.n_evals, 0);
	train_log_free(&log);
}

static void ranks_that_were_lost_are_told_of(void **state)
{
	static const char lost[] = "{\"event\":\"recovered\",\"ranks\":3,\"step\":7,\"position\":224,\"global_batch\":24}\n", two[] = "{\"event\":\"step\",\"step\":1,\"loss\":0.7}\n{\"event\":\"step\",\"step\":2,\"loss\":0.6}\n",
			  end[] = "{\"event\":\"summary\",\"images\":64,\"seconds\":10,\"images_per_s\":6.4}\n", now[] = "from step 7 on with 3 ranks and a global batch of 24";
	char text[2000];
	(void)state;
	for (int later = 0; later < 3; later++) { /* not at all, before the last start, after it */
		const char *start = "{\"event\":\"start\",\"ranks\":4,\"nodes\":2,\"global_batch\":32}\n";
		snprintf(text, sizeof text, "%s%s%s%s%s%s", start, two, later == 1 ? lost : "", later ? start : "", later == 2 ? lost : "", end);
		struct predictions p = draw(900, 0);
		struct report_input in = input(&p);
		struct train_log log = read_log(text);
		in.log = &log;
		struct page page = make(&in);

		assert_sound(&page);
		assert_int_equal(strstr(page.text, now) != NULL, later > 0);
		assert_int_equal(strstr(page.text, "on 4 ranks of 2 nodes, 3 in the end") != NULL, later == 2);
		assert_int_equal(strstr(page.text, "Global batch in the end") != NULL, later == 2);
		assert_int_equal(strstr(page.text, " a rank") != NULL, later != 2);
		assert_absent(page.text, "not always with the same global batch");
		free(page.text);
		train_log_free(&log);
		predictions_free(&p);
	}
}

/* The last start was killed before it had any summary, or only judged what was trained: ranks, engine and losses are those of the one that has it. */
static void speed_is_that_of_the_start_that_has_a_summary(void **state)
{
	static const char steps[] = "{\"event\":\"step\",\"step\":0,\"loss\":0.7,\"input_share\":0.1,\"communication_share\":0.02}\n"
				    "{\"event\":\"step\",\"step\":1,\"loss\":0.6,\"input_share\":0.3,\"communication_share\":0.04}\n",
			  start4[] = "{\"event\":\"start\",\"ranks\":4,\"nodes\":2,\"global_batch\":32,\"precision\":\"bf16\",\"engine\":\"one\",\"step\":0,"
				     "\"places\":[{\"rank\":0,\"host\":\"n7\",\"gpu\":\"0000:07:00.0\",\"cpus\":\"4-11\",\"threads\":7}]}\n",
			  start1[] = "{\"event\":\"start\",\"ranks\":1,\"nodes\":1,\"global_batch\":32,\"precision\":\"%s\",\"engine\":\"two\",\"step\":2,"
				     "\"places\":[{\"rank\":0,\"host\":\"n8\",\"gpu\":\"\",\"cpus\":\"0\",\"threads\":1}]}\n",
			  lost[] = "{\"event\":\"recovered\",\"ranks\":3,\"step\":2,\"global_batch\":24}\n",
			  end[] = "{\"event\":\"summary\",\"images\":2000,\"seconds\":%s,\"images_per_s\":400}\n";
	char text[3000], again[500], summary[200];

	(void)state;
	for (int both = 0; both < 2; both++)
		for (int died = 0; died < 2; died++) {
			snprintf(again, sizeof again, start1, both ? "fp32" : "bf16");
			snprintf(summary, sizeof summary, end, "5.04");
			size_t used = (size_t)snprintf(text, sizeof text, "%s%s%s%s", start4, steps, died ? lost : "", summary);

			used += (size_t)snprintf(text + used, sizeof text - used, "%s", again);
			snprintf(summary, sizeof summary, end, "0.04");
			snprintf(text + used, sizeof text - used, "%s", both ? summary : "");
			struct predictions p = draw(900, 0);
			struct report_input in = input(&p);
			struct train_log log = read_log(text);

			in.log = &log;
			struct page page = make(&in);

			assert_sound(&page);
			assert_present(page.text, both ? "400 images/s on 1 rank of 1 node<" : died ? "400 images/s on 4 ranks of 2 nodes, 3 in the end" : "400 images/s on 4 ranks of 2 nodes<");
			assert_present(page.text, both ? ": 2,000 images in 0.0 s, in start 2 of 2." : ": 2,000 images in 5.0 s, in start 1 of 2.");
			assert_present(page.text, both ? "Engine: two" : "Engine: one");
			assert_present(page.text, both ? "<td>n8</td><td>none</td><td>0</td><td class=\"n\">1</td>" : "<td>n7</td><td>0000:07:00.0</td><td>4-11</td><td class=\"n\">7</td>");
			assert_present(page.text, "waiting for input 20.0&nbsp;%");
			assert_present(page.text, "waiting for communication 3.0&nbsp;%");
			assert_absent(page.text, both ? "<td>n7</td>" : "<td>n8</td>");
			assert_int_equal(strstr(page.text, " a rank") != NULL, !both && !died);
			assert_int_equal(strstr(page.text, ", not always with the same precision;") != NULL, both);
			assert_int_equal(strstr(page.text, "Precision in the end") != NULL, both);
			free(page.text);
			train_log_free(&log);
			predictions_free(&p);
		}
}

static void a_log_of_another_model_is_noticed(void **state)
{
	struct predictions p = draw(900, 0);
	struct report_input in = input(&p);
	struct train_log log = read_log(resumed);

	(void)state;
	in.log = &log;
	assert_true(log.mixed);
	cJSON_AddStringToObject(log.start, "command", "chexnet train --seed=1");
	static const struct {
		const char *model, *command;
		int other;
	} cases[] = {
		{ "densenet121", "chexnet train --seed=1", 0 },
		{ "densenet121", "chexnet train --seed=2", 1 },
		{ "densenet121", "chexnet eval --weights=elsewhere", 0 }, /* no log tells of it */
		{ "densenet121", "", 0 },
		{ "densenet169", "chexnet train --seed=1", 1 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		strcpy(p.about.model, cases[i].model);
		strcpy(p.about.command, cases[i].command);
		struct page page = make(&in);

		assert_int_equal(strstr(page.text, "may be of another run") != NULL, cases[i].other);
		free(page.text);
	}
	train_log_free(&log);
	predictions_free(&p);
}

/* By the weights that it ends with. Those that a training chose are not its only ones: none of another hash is said to come from another training, and
 * what a file does not say is not known. */
static void whose_log_it_is_is_told_as_far_as_the_files_say(void **state)
{
	static const char one[] = "0123456789abcdef", two[] = "0123456789abcdee", both[] = "0123456789abcdee,0123456789abcdef";
	static const struct {
		const char *ends_with, *a, *b; /* b NULL: nothing is compared */
		const char *says;              /* NULL: nothing */
	} cases[] = {
		{ one, one, NULL, NULL },
		{ one, one, two, NULL },
		{ one, one, one, NULL },
		{ one, two, NULL, "<b>The log of another training, or of other weights of the same one.</b>" },
		{ one, two, two, "<b>The log of another training, or of other weights of the same one.</b>" },
		{ one, both, NULL, "<b>The training log is that of one of the averaged models:</b>" },
		{ one, two, one, "<b>The training log is that of the other model, B:</b>" },
		{ one, "", one, "<b>The training log is that of the other model, B:</b>" },
		{ one, "", both, "<b>The training log is that of one of the models that B averages:</b>" },
		{ one, "", NULL, "<b>Whose training log it is, is not known:</b>" },
		{ one, two, "", "<b>Whose training log it is, is not known:</b>" },
		{ "", one, NULL, "<b>Whose training log it is, is not known:</b>" },
		{ NULL, one, NULL, NULL }, /* it has no end, which is told */
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct predictions p = draw(60, 0), q = draw(60, 0);
		struct report_input in = input(&p);
		char text[256] = "{\"event\":\"start\",\"ranks\":1}\n";

		if (cases[i].ends_with && *cases[i].ends_with)
			sprintf(text + strlen(text), "{\"event\":\"end\",\"code\":0,\"weights_hash\":\"%s\"}\n", cases[i].ends_with);
		else if (cases[i].ends_with)
			strcat(text, "{\"event\":\"end\",\"code\":0}\n");
		struct train_log log = read_log(text);

		in.log = &log;
		compare_weights(&in, &p, cases[i].a, &q, cases[i].b);
		struct page page = make(&in);

		assert_sound(&page);
		assert_absent(page.text, "not of A");
		if (cases[i].says)
			assert_present(page.text, cases[i].says);
		else
			assert_null(report_whose_log(&in));
		assert_int_equal(report_foreign_log(&in), cases[i].says && strstr(cases[i].says, "another training") != NULL);
		free(page.text);
		train_log_free(&log);
		predictions_free(&p);
		predictions_free(&q);
	}
}

static void images_with_an_oracle_are_synthetic_even_without_a_log(void **state)
{
	struct predictions p = draw(900, 0);
	struct report_input in = input(&p);

	(void)state;
	p.about.has_oracle = 1;
	for (int f = 0; f < FINDINGS; f++)
		p.about.oracle[f] = f ? 0.9 : NAN;
	struct page page = make(&in);

	assert_sound(&page);
	assert_present(page.text, "Synthetic images");
	assert_present(page.text, "class=\"oracle\"");
	assert_absent(page.text, "mined from report texts");
	free(page.text);
	predictions_free(&p);
}

static void a_log_of_synthetic_images_makes_no_others_synthetic(void **state)
{
	struct predictions p = draw(900, 0);
	struct train_log log = read_log(resumed);
	struct report_input in = input(&p);

	(void)state;
	in.log = &log;
	for (int other = 0; other < 2; other++) {
		strcpy(p.about.source, other ? "ChestX-ray14 2020" : "synthetic");
		struct page page = make(&in);

		assert_int_equal(strstr(page.text, "Synthetic images") == NULL, other);
		assert_int_equal(strstr(page.text, "mined from report texts") != NULL, other);
		assert_present(page.text, "<dt>Trained on</dt><dd>78,468 images of 25,207 patients</dd>");
		assert_present(page.text, "<dt>Validated on</dt><dd>1 image of 1 patient, by which the weights were chosen</dd>");
		free(page.text);
	}
	train_log_free(&log);
	predictions_free(&p);
}

static void a_file_without_events_is_refused(void **state)
{
	struct error e = { 0 };
	struct train_log log;

	(void)state;
	assert_int_equal(file_write(path, "id,patient\n1,2\n", 15, &e), 0);
	assert_int_equal(train_log_read(&log, path, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, path));
	train_log_free(&log);
}

static void every_cut_log_is_reported_on_without_harm(void **state)
{
	struct predictions p = draw(30, 0);
	struct report_input in = input(&p);
	char *text = strdup(resumed);

	(void)state;
	in.log_path = path;
	in.resamples = 2;
	for (size_t cut = sizeof resumed - 1; cut > 0; cut -= cut > 29 ? 29 : cut) {
		struct error e = { 0 };
		struct train_log log;

		text[cut] = '\0';
		assert_int_equal(file_write(path, text, cut, &e), 0);
		if (train_log_read(&log, path, &e) == 0) {
			in.log = &log;
			struct page page = make(&in);

			assert_sound(&page);
			if (cut == sizeof resumed - 1) {
				assert_present(page.text, "waiting for input 25.0&nbsp;%");
				assert_present(page.text, "started 2 times");
				assert_present(page.text, "95&nbsp;% confidence interval shaded");
				assert_present(page.text, "Synthetic images");
			}
			if (!log.end)
				assert_present(page.text, "The training log has no end");
			free(page.text);
		}
		train_log_free(&log);
	}
	free(text);
	predictions_free(&p);
}

static void intervals_that_a_log_lacks_are_not_said_to_be_shaded(void **state)
{
	struct predictions p = draw(30, 0);
	struct report_input in = input(&p);
	struct train_log log = read_log("{\"event\":\"start\"}\n{\"event\":\"eval\",\"step\":2,\"split\":\"val\",\"mean\":{\"auroc\":0.6,\"low\":null,\"high\":null}}\n");

	(void)state;
	in.log_path = path;
	in.log = &log;
	in.resamples = 2;
	struct page page = make(&in);

	assert_sound(&page);
	assert_present(page.text, "Mean AUROC on the validation split");
	assert_absent(page.text, "interval shaded");
	free(page.text);
	train_log_free(&log);
	predictions_free(&p);
}

/* A line of the figure `name`: through two steps, of which the later one is half-way, or through one validation at the end; values are parts of its height. */
static void assert_line(const char *page, const char *name, const char *class, double left, double from, double to)
{
	const char *figure = strstr(page, name);
	char line[160];

	assert_non_null(figure);
	if (isnan(to))
		snprintf(line, sizeof line, "class=\"line %s\" points=\"444.0,%.1f\"", class, 10 + 188 * (1 - from));
	else
		snprintf(line, sizeof line, "class=\"line %s\" points=\"%.1f,%.1f %.1f,%.1f\"", class, left, 10 + 188 * (1 - from), (left + 444) / 2, 10 + 188 * (1 - to));
	const char *at = strstr(figure, line), *end = strstr(figure, "</figure>");

	if (!at || at > end)
		fail_msg("no %s in %.900s", line, figure);
}

static void charts_draw_what_the_log_says_of_each_step(void **state)
{
	struct predictions p = draw(30, 0);
	struct report_input in = input(&p);
	struct train_log log = read_log("{\"event\":\"start\"}\n{\"event\":\"step\",\"step\":0,\"loss\":4,\"lr\":0.002,\"images_per_s\":100}\n"
					"{\"event\":\"step\",\"step\":10,\"loss\":1,\"lr\":0.001,\"images_per_s\":50}\n"
					"{\"event\":\"eval\",\"step\":20,\"split\":\"val\",\"loss\":2,\"mean\":{\"auroc\":0.75}}\n{\"event\":\"summary\",\"images_per_s\":75}\n");
	const double loss = 1.1 * 3.94, rate = 1.1 * 0.00198, speed = 1.1 * 99; /* tops: a tenth above what 98 % of the steps reach */

	(void)state;
	in.log_path = path;
	in.log = &log;
	in.resamples = 2;
	struct page page = make(&in);

	assert_line(page.text, "<b>Loss</b>", "a thin", 46, 4 / loss, 1 / loss);
	assert_line(page.text, "<b>Loss</b>", "a", 46, 4 / loss, 1 / loss);
	assert_line(page.text, "<b>Loss</b>", "b solid", 46, 2 / loss, NAN);
	assert_line(page.text, "<b>Mean AUROC", "b solid", 46, 0.5, NAN);
	assert_line(page.text, "<b>Images per second", "a", 46, 100 / speed, 50 / speed);
	assert_line(page.text, "<b>Learning rate", "a", 58, 0.002 / rate, 0.001 / rate);
	/* of what it does not say nothing stands there */
	assert_absent(page.text, "Where every rank ran");
	assert_absent(page.text, "waiting for input");
	assert_absent(page.text, "in start 1 of 1");
	free(page.text);
	train_log_free(&log);
	predictions_free(&p);
}

/* After a start with another validation split, say, in which no finding could be judged. */
static void the_best_validation_is_marked_whatever_others_could_not_be_judged(void **state)
{
	static const char *const aurocs[][3] = { { "0.8", "null", "0.6" }, { "null", "0.6", "0.8" }, { "0.8", "0.6", "null" }, { "0.6", "0.8", "0.8" } };
	struct predictions p = draw(30, 0);
	struct report_input in = input(&p);
	char text[512];

	(void)state;
	for (size_t i = 0; i < sizeof aurocs / sizeof aurocs[0]; i++) {
		size_t used = (size_t)snprintf(text, sizeof text, "{\"event\":\"start\"}\n");

		for (int k = 0; k < 3; k++)
			used += (size_t)snprintf(text + used, sizeof text - used, "{\"event\":\"eval\",\"step\":%d,\"split\":\"val\",\"mean\":{\"auroc\":%s}}\n", k + 1, aurocs[i][k]);
		struct train_log log = read_log(text);

		in.log_path = path;
		in.log = &log;
		in.resamples = 2;
		struct page page = make(&in);

		assert_present(page.text, "best 0.800");
		free(page.text);
		train_log_free(&log);
	}
	predictions_free(&p);
}

static void numbers_beyond_reason_are_none(void **state)
{
	static const char text[] =
		"{\"event\":\"start\",\"ranks\":1e999,\"nodes\":-1e999,\"global_batch\":1e999,\"seed\":1,\"splits\":{\"train\":{\"images\":1e999,\"patients\":1},\"val\":{\"images\":-64,\"patients\":1}},\"places\":[{\"rank\":1e999,\"threads\":1}]}\n"
		"{\"event\":\"step\",\"step\":1e999,\"loss\":0.9}\n"
		"{\"event\":\"step\",\"step\":1,\"loss\":1e999,\"lr\":1e999,\"images_per_s\":-1e999,\"time\":1e999}\n"
		"{\"event\":\"step\",\"step\":2,\"loss\":0.5}\n"
		"{\"event\":\"eval\",\"step\":2,\"split\":\"val\",\"loss\":-1e999,\"mean\":{\"auroc\":1e999,\"low\":-1e999,\"high\":1e999}}\n"
		"{\"event\":\"recovered\",\"ranks\":1e999,\"step\":1e999,\"global_batch\":1e999}\n"
		"{\"event\":\"summary\",\"images\":-64,\"seconds\":3,\"images_per_s\":20,\"input_share\":1e999,\"communication_share\":1e999}\n";
	struct predictions p = draw(60, 0);
	struct report_input in = input(&p);
	struct train_log log = read_log(text);

	(void)state;
	assert_int_equal(log.n_steps, 2);
	in.log = &log;
	struct page page = make(&in);

	assert_sound(&page);
	assert_absent(page.text, " inf");
	assert_absent(page.text, "-inf");
	assert_absent(page.text, "18,446,744"); /* -64 as a count */
	assert_absent(page.text, "<dt>Trained on</dt>");
	assert_absent(page.text, "<dt>Validated on</dt>");
	free(page.text);
	train_log_free(&log);
	predictions_free(&p);
}

/* What the thread that reports a lost rank writes is what cJSON reads: quotes, control characters and cut-off UTF-8 too. */
static void a_text_that_is_escaped_without_memory_is_read_back(void **state)
{
	static const char text[] = "lost \"rank 2\" of C:\\n1\t\x01, caf\xc3\xa9 \xc3";
	char escaped[200], line[256], little[12];

	(void)state;
	snprintf(line, sizeof line, "{\"reason\":\"%s\"}", json_escape(escaped, sizeof escaped, text));
	cJSON *o = cJSON_Parse(line);
	const char *read = cJSON_GetStringValue(cJSON_GetObjectItem(o, "reason"));

	assert_non_null(read);
	assert_string_equal(read, "lost \"rank 2\" of C:\\n1\t\x01, caf\xc3\xa9 ?");
	cJSON_Delete(o);
	for (size_t size = sizeof "\\u0000"; size <= sizeof little; size++) { /* cut off between characters, never in an escape */
		memset(little, '#', sizeof little);
		json_escape(little, size, "\x01\x01\x01");
		assert_string_equal(little, "\\u0001");
		assert_true(size == sizeof little || little[size] == '#');
	}
}

/* The points that a line of n points becomes in a picture where a unit is a unit, y upwards from 0 to 100; returns their number. */
static size_t draw_line(const struct point *points, size_t n, double width, struct point *drawn)
{
	struct page page = { 0 };
	struct plot p = { .page = &page, .width = width, .height = 100, .x1 = width, .y1 = 100 };
	size_t k = 0;
	int used = 0;

	plot_line(&p, "a", points, n);
	assert_false(page.failed);
	const char *c = strstr(page.text, "points=\"") + strlen("points=\"");
	for (; sscanf(c, "%lf,%lf%n", &drawn[k].x, &drawn[k].y, &used) == 2; k++) {
		c += used;
		drawn[k].y = 100 - drawn[k].y;
	}
	assert_int_equal(*c, '"');
	free(page.text);
	return k;
}

static void a_long_line_is_drawn_with_few_points_that_show_all_of_it(void **state)
{
	enum { N = 200000, WIDTH = 400 };
	struct point *points = malloc(N * sizeof *points), *drawn = malloc(N * sizeof *drawn);
	static const struct point spike[] = { { 10, 20 }, { 10.1, 90 }, { 10.2, 20.4 }, { 60, 20 } };
	uint32_t random = 1;

	(void)state;
	assert_true(points && drawn);
	for (int i = 0; i < N; i++) {
		random = random * 1664525 + 1013904223;
		points[i] = (struct point){ (double)WIDTH * i / N, i == N / 2 ? 95 : 10 + 70 * (random >> 8) / 16777216.0 };
	}
	points[N - 1].y = 45;
	size_t n = draw_line(points, N, WIDTH, drawn);
	assert_in_range(n, WIDTH, N / 10);
	assert_close(drawn[n - 1].y, 45, 0.1);
	for (int column = 0; column < WIDTH; column++) { /* each unit's lowest and highest */
		double low = 100, high = 0, low_drawn = 100, high_drawn = 0;
		for (int i = column * (N / WIDTH); i < (column + 1) * (N / WIDTH); i++) {
			low = fmin(low, points[i].y);
			high = fmax(high, points[i].y);
		}
		for (size_t k = 0; k < n; k++)
			if (drawn[k].x >= column - 0.6 && drawn[k].x <= column + 1.6) {
				low_drawn = fmin(low_drawn, drawn[k].y);
				high_drawn = fmax(high_drawn, drawn[k].y);
			}
		assert_true(low_drawn < low + 0.6 && high_drawn > high - 0.6);
	}
	n = draw_line(spike, 4, WIDTH, drawn); /* the line leaves the spike from its foot */
	assert_int_equal(n, 4);
	assert_close(drawn[2].y, 20.4, 0.1);
	free(points);
	free(drawn);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_line_is_drawn_with_few_points_that_show_all_of_it),
		cmocka_unit_test(lines_with_zeros_are_skipped_and_seeds_keep_their_digits),
		cmocka_unit_test(a_resumed_run_counts_every_step_once_as_it_was_done_last),
		cmocka_unit_test(a_global_batch_that_changes_is_noticed_either_way),
		cmocka_unit_test(an_end_before_a_recovery_is_not_the_trainings),
		cmocka_unit_test(a_course_that_was_left_is_not_in_the_log),
		cmocka_unit_test(ranks_that_were_lost_are_told_of),
		cmocka_unit_test(speed_is_that_of_the_start_that_has_a_summary),
		cmocka_unit_test(a_log_of_another_model_is_noticed),
		cmocka_unit_test(whose_log_it_is_is_told_as_far_as_the_files_say),
		cmocka_unit_test(images_with_an_oracle_are_synthetic_even_without_a_log),
		cmocka_unit_test(a_log_of_synthetic_images_makes_no_others_synthetic),
		cmocka_unit_test(a_file_without_events_is_refused),
		cmocka_unit_test(every_cut_log_is_reported_on_without_harm),
		cmocka_unit_test(intervals_that_a_log_lacks_are_not_said_to_be_shaded),
		cmocka_unit_test(charts_draw_what_the_log_says_of_each_step),
		cmocka_unit_test(the_best_validation_is_marked_whatever_others_could_not_be_judged),
		cmocka_unit_test(numbers_beyond_reason_are_none),
		cmocka_unit_test(a_text_that_is_escaped_without_memory_is_read_back),
	};

	omp_set_num_threads(1); /* small work: threads would only wait for each other */
	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
