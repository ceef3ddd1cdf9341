/* SPDX-License-Identifier: Apache-2.0
 * The report: well-formed, self-contained, small, and honest about what the numbers cannot carry. */
#include "tests/unit/test.h"

#include <ctype.h>
#include <math.h>
#include <omp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/file.h"
#include "learn/report.h"
#include "learn/svg.h"
#include "utf8.h"

static char directory[512], path[640];

static int make_directory(void **state)
{
	const char *build = getenv("BUILD");

	(void)state;
	snprintf(directory, sizeof directory, "%s/tests/tmp", build ? build : "build");
	mkdir(directory, 0777);
	snprintf(directory, sizeof directory, "%s/tests/tmp/report.%d", build ? build : "build", (int)getpid());
	snprintf(path, sizeof path, "%s/log.jsonl", directory);
	return mkdir(directory, 0777);
}

static int remove_directory(void **state)
{
	(void)state;
	directory_remove(directory);
	return 0;
}

/* ---- predictions to report on ----------------------------------------------------------------------- */

static uint64_t random_state = 31;

static double uniform(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (double)(random_state >> 11) / 9007199254740992.0;
}

/* n images, three a patient; finding f in 1 of f + 2 images; the last `empty` findings never. */
static struct predictions draw(size_t n, int empty)
{
	struct predictions p = { .n = n, .samples = calloc(n, sizeof *p.samples), .logits = malloc(n * FINDINGS * sizeof *p.logits), .has_patients = 1 };

	for (size_t i = 0; i < n; i++) {
		snprintf(p.samples[i].id, SAMPLE_ID, "%08zu.png", i);
		p.samples[i].patient = (uint32_t)(i / 3);
		p.samples[i].known = 0x3FFF;
		for (int f = 0; f < FINDINGS; f++) {
			int positive = f < FINDINGS - empty && uniform() < 1.0 / (f + 2);

			p.samples[i].labels |= (uint32_t)positive << f;
			p.logits[i * FINDINGS + (size_t)f] = (float)(4 * uniform() - 4 + positive);
		}
	}
	strcpy(p.about.policy, "official");
	strcpy(p.about.split, "test");
	strcpy(p.about.model, "densenet121");
	return p;
}

static struct report_input input(const struct predictions *p)
{
	return (struct report_input){ .predictions = p, .path = "a.csv", .command = "chexnet report", .date = "2026-11-21", .resamples = 50, .seed = 1 };
}

static struct page make(const struct report_input *in)
{
	struct page page = { 0 };
	struct error e = { 0 };

	if (report_make(&page, NULL, in, &e))
		fail_msg("%s", e.text);
	assert_int_equal(strlen(page.text), page.size);
	return page;
}

/* ---- what HTML must be ------------------------------------------------------------------------------ */

static int is_void(const char *name)
{
	static const char *const names[] = { "meta", "br", "img", "line", "circle", "polyline", "path" };

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(names[i], name) == 0)
			return 1;
	return 0;
}

/* Every tag is closed by its own, attributes are quoted, and nothing is open in the end. */
static void assert_well_formed(const char *html)
{
	char open[64][16], name[16];
	int depth = 0;

	for (const char *p = strchr(html, '<'); p; p = strchr(p, '<')) {
		const char *end;
		size_t n;
		int closing = p[1] == '/', quotes = 0;

		if (p[1] == '!') {
			p++;
			continue;
		}
		p += 1 + closing;
		n = strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789");
		assert_in_range(n, 1, 15);
		snprintf(name, sizeof name, "%.*s", (int)n, p);
		for (end = p + n; *end && (*end != '>' || quotes % 2); end++)
			quotes += *end == '"';
		assert_true(*end == '>' && quotes % 2 == 0);
		p = end;
		if (closing) {
			if (depth == 0 || strcmp(open[depth - 1], name))
				fail_msg("</%s> closes %s, before: %.80s", name, depth ? open[depth - 1] : "nothing", end);
			depth--;
		} else if (!is_void(name)) {
			assert_in_range(depth, 0, 62);
			strcpy(open[depth++], name);
		}
	}
	assert_int_equal(depth, 0);
}

static void assert_absent(const char *html, const char *what)
{
	const char *at = strstr(html, what);

	if (at)
		fail_msg("\"%s\" in: %.120s", what, at > html + 40 ? at - 40 : at);
}

static void assert_present(const char *html, const char *what)
{
	if (!strstr(html, what))
		fail_msg("not in the report: \"%s\"", what);
}

static void assert_sound(const struct page *page)
{
	static const char *const outside[] = { "://", "<script", "<link", "@import", "url(", "<iframe", "src=\"/", "href=" };

	assert_well_formed(page->text);
	for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
		assert_absent(page->text, outside[i]);
	for (const char *p = page->text; (p = strstr(p, "src=\"")); p++)
		assert_int_equal(strncmp(p, "src=\"data:image/png;base64,", 27), 0);
	/* no coordinate that is not a number */
	for (const char *p = page->text; (p = strstr(p, "nan")); p++)
		assert_true(isalpha((unsigned char)p[3]) || isalpha((unsigned char)p[-1]));
	assert_absent(page->text, "\"inf");
	assert_absent(page->text, ",inf");
}

/* ---- the claims ------------------------------------------------------------------------------------- */

static void it_says_what_the_measures_say(void **state)
{
	struct predictions p = draw(900, 0);
	struct report_input in = input(&p);
	struct page page = make(&in);
	struct score_arrays a;
	struct auroc_table t;
	char text[128];

	(void)state;
	assert_sound(&page);
	assert_int_equal(predictions_scores(&p, &a), 0);
	assert_int_equal(auroc_bootstrap(&a.scores, in.resamples, in.seed, &t, NULL), 0);
	snprintf(text, sizeof text, "<div class=\"big\">%.3f</div>", t.mean.value);
	assert_present(page.text, text);
	snprintf(text, sizeof text, "interval <b>%.3f to %.3f</b>", t.mean.low, t.mean.high);
	assert_present(page.text, text);
	for (int f = 0; f < FINDINGS; f++) {
		snprintf(text, sizeof text, "%.3f <small>%.3f&#8211;%.3f</small>", t.class[f].value, t.class[f].low, t.class[f].high);
		assert_present(page.text, text);
		snprintf(text, sizeof text, "AUROC <span class=\"ka\">%.3f</span>", t.class[f].value);
		assert_present(page.text, text);
	}
	assert_present(page.text, "Pleural Thickening");
	assert_present(page.text, "<dd>300</dd>"); /* patients */
	score_arrays_free(&a);
	free(page.text);
	predictions_free(&p);
}

static void it_warns_of_what_the_numbers_cannot_carry(void **state)
{
	static const char *const warnings[] = {
		"<b>Leak.</b> The model was trained on images of 7 patients", "Leak not checked", "Not NIH's official split", "Few patients", "Validation split.",
		"These are training images", "Too few to judge:", "Not part of the mean:", "No patients are named", "Synthetic images",
	};
	static const struct {
		long leaked;
		const char *policy, *split;
		size_t n;
		int empty, anonymous;
		unsigned expected; /* bit i: warnings[i] */
	} cases[] = {
		{ 0, "official", "test", 900, 0, 0, 0 },
		{ 7, "official", "test", 900, 0, 0, 1u << 0 },
		{ -1, "official", "test", 900, 0, 0, 1u << 1 },
		{ 0, "chexnet", "test", 900, 0, 0, 1u << 2 },
		{ 0, "official", "val", 900, 0, 0, 1u << 4 },
		{ 0, "official", "train", 900, 0, 0, 1u << 5 },
		{ 0, "official", "test", 900, 2, 0, 1u << 7 },
		{ 0, "official", "test", 900, 0, 1, 1u << 8 },
		{ 0, "synthetic", "test", 60, 0, 0, 1u << 3 | 1u << 6 | 1u << 9 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct predictions p = draw(cases[i].n, cases[i].empty);
		struct report_input in = input(&p);

		p.about.leaked = cases[i].leaked;
		p.has_patients = !cases[i].anonymous;
		strcpy(p.about.policy, cases[i].policy);
		strcpy(p.about.split, cases[i].split);
		struct page page = make(&in);

		assert_sound(&page);
		for (size_t w = 0; w < sizeof warnings / sizeof warnings[0]; w++)
			if ((strstr(page.text, warnings[w]) != NULL) != (cases[i].expected >> w & 1))
				fail_msg("case %zu: \"%s\" is %s", i, warnings[w], cases[i].expected >> w & 1 ? "missing" : "there");
		free(page.text);
		predictions_free(&p);
	}
}

static void names_cannot_break_out_of_the_page(void **state)
{
	struct predictions p = draw(60, 0), q = draw(60, 0);
	struct report_input in = input(&p);
	static const char nasty[] = "\"><script>alert('&')</script>";

	(void)state;
	for (size_t i = 0; i < q.n; i++)
		q.samples[i] = p.samples[i];
	strcpy(p.about.model, nasty);
	strcpy(p.about.command, nasty);
	strcpy(p.about.split, "<b>");
	in.command = in.date = in.path = in.other_path = nasty;
	in.other = &q;
	in.pictures = &(struct report_picture){ nasty, "\x89PNG", 4 };
	in.n_pictures = 1;
	struct page page = make(&in);

	assert_sound(&page);
	assert_present(page.text, "&quot;&gt;&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;");
	free(page.text);
	predictions_free(&p);
	predictions_free(&q);
}

static void bytes_that_are_no_utf_8_become_question_marks(void **state)
{
	static const char *const cases[][2] = {
		{ "plain", "plain" },
		{ "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\xAB\x81 \xED\x9F\xBF \xF4\x8F\xBF\xBF", "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\xAB\x81 \xED\x9F\xBF \xF4\x8F\xBF\xBF" },
		{ "b\xE4" "d", "b?d" },                      /* Latin-1 */
		{ "\xC3\"", "?\"" },                        /* cut short: what follows stays */
		{ "\xE2\x82", "??" },
		{ "\xF0\x9F\xAB", "???" },
		{ "\x80\xBF", "??" },                       /* nothing that they continue */
		{ "\xC0\xAF \xE0\x80\xAF \xF0\x80\x80\xAF", "?? ??? ????" }, /* overlong */
		{ "\xED\xA0\x80", "???" },                  /* a surrogate */
		{ "\xF4\x90\x80\x80 \xF5 \xFE \xFF", "???? ? ? ?" },
	};
	char text[64];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		strcpy(text, cases[i][0]);
		assert_ptr_equal(utf8_mend(text), text);
		assert_string_equal(text, cases[i][1]);
	}
	assert_null(utf8_mend(NULL));
}

static void with_nothing_to_judge_it_still_stands(void **state)
{
	(void)state;
	for (size_t n = 1; n < 8; n++) {
		struct predictions p = draw(n, n % 2 ? FINDINGS : 0), q = draw(n, n % 2 ? FINDINGS : 0);
		struct report_input in = input(&p);

		for (size_t i = 0; i < n; i++)
			q.samples[i] = p.samples[i];
		in.other = &q;
		in.other_path = "b.csv";
		struct page page = make(&in);

		assert_sound(&page);
		if (n % 2)
			assert_present(page.text, "<div class=\"big\">n/a</div>");
		free(page.text);
		predictions_free(&p);
		predictions_free(&q);
	}
}

/* Digits of the size that charts use are 6 wide. Returns the number of texts. */
static int assert_texts_inside(const char *html)
{
	int texts = 0;

	for (const char *svg = html; (svg = strstr(svg, "<svg viewBox=\"0 0 ")); svg++) {
		const char *end = strstr(svg, "</svg>");
		double width = strtod(svg + 18, NULL);

		for (const char *t = svg; (t = strstr(t, "<text class=\"tick\"")) && t < end; t++, texts++) {
			const char *anchor = strstr(t, "anchor=\"") + 8, *at = strstr(t, " x=\"") + 4, *text = strchr(t, '>') + 1;
			double x = strtod(at, NULL), length = 6.0 * (double)strcspn(text, "<");
			double left = *anchor == 'm' ? x - length / 2 : *anchor == 'e' ? x - length : x;

			if (left < 0 || left + length > width)
				fail_msg("\"%.*s\" is cut: %.1f to %.1f of %.0f", (int)strcspn(text, "<"), text, left, left + length, width);
		}
	}
	return texts;
}

static void texts_of_charts_lie_inside_them(void **state)
{
	(void)state;
	for (size_t n = 60; n < 4000; n *= 2) { /* scales of many widths */
		struct predictions p = draw(n, 0), other = draw(n, 0);
		struct report_input in = input(&p);

		memcpy(other.samples, p.samples, n * sizeof *p.samples);
		for (size_t i = 0; i < n * FINDINGS; i++)
			other.logits[i] = p.logits[i] + (float)uniform();
		in.other = &other;
		in.other_path = "b.csv";
		in.resamples = 20;
		struct page page = make(&in);

		assert_true(assert_texts_inside(page.text) > 200);
		free(page.text);
		predictions_free(&p);
		predictions_free(&other);
	}
}

static void its_size_does_not_grow_with_the_images(void **state)
{
	struct predictions few = draw(3000, 0), many = draw(24000, 0);
	struct report_input a = input(&few), b = input(&many);

	(void)state;
	a.resamples = b.resamples = 3;
	struct page small = make(&a), large = make(&b);

	printf("# %zu bytes for 3,000 images, %zu for 24,000\n", small.size, large.size);
	assert_true(large.size < 1000000 && large.size < 2 * small.size);
	free(small.text);
	free(large.text);
	predictions_free(&few);
	predictions_free(&many);
}

/* ---- the training log ------------------------------------------------------------------------------- */

static struct train_log read_log(const char *text)
{
	struct error e = { 0 };
	struct train_log log;

	assert_int_equal(file_write(path, text, strlen(text), &e), 0);
	if (train_log_read(&log, path, &e))
		fail_msg("%s", e.text);
	return log;
}

static const char resumed[] =
	"{\"event\":\"start\",\"model\":\"densenet121\",\"ranks\":4,\"nodes\":2,\"global_batch\":64,\"seed\":1,\"places\":[{\"rank\":0,\"host\":\"<n1>\",\"gpu\":\"\",\"cpus\":\"0-1\",\"threads\":2}]}\n"
	"{\"event\":\"step\",\"step\":1,\"loss\":0.9,\"lr\":1e-4,\"images_per_s\":100}\n"
	"{\"event\":\"step\",\"step\":2,\"loss\":0.8,\"lr\":1e-4,\"images_per_s\":null}\n"
	"{\"event\":\"eval\",\"step\":2,\"split\":\"val\",\"loss\":0.85,\"mean\":{\"auroc\":0.6,\"low\":0.5,\"high\":0.7}}\n"
	"{\"event\":\"step\",\"step\":3,\"loss\":0.7,\"lr\":1e-4}\n"
	"{\"event\":\"step\",\"step\":4,\"los\n"
	"{\"event\":\"start\",\"model\":\"densenet121\",\"ranks\":2,\"global_batch\":32}\r\n\n"
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

static void a_log_of_another_model_is_noticed(void **state)
{
	struct predictions p = draw(900, 0);
	struct report_input in = input(&p);
	struct train_log log = read_log(resumed);

	(void)state;
	in.log = &log;
	assert_true(log.mixed);
	for (int other = 0; other < 2; other++) {
		strcpy(p.about.model, other ? "densenet169" : "densenet121");
		struct page page = make(&in);

		assert_int_equal(strstr(page.text, "may be of another run") != NULL, other);
		free(page.text);
	}
	train_log_free(&log);
	predictions_free(&p);
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

/* ---- the parts -------------------------------------------------------------------------------------- */

static void ticks_are_round_and_inside(void **state)
{
	(void)state;
	printf("# seed %llu\n", (unsigned long long)random_state);
	for (int round = 0; round < 5000; round++) {
		double scale = pow(10, floor(16 * uniform() - 8)), low = scale * (2 * uniform() - 1), high = low + scale * (0.01 + uniform());
		int most = 2 + (int)(9 * uniform());
		double ticks[TICKS_MAX];
		int n = nice_ticks(low, high, most, ticks);

		assert_in_range(n, 1, most);
		assert_true(n >= most / 2.5 - 1);
		for (int i = 0; i < n; i++)
			assert_true(ticks[i] >= low - 1e-6 * scale && ticks[i] <= high + 1e-6 * scale);
		if (n > 1) {
			double step = ticks[1] - ticks[0], lead = step / pow(10, floor(log10(step * (1 + 1e-9))));

			assert_true(fabs(lead - 1) < 1e-6 || fabs(lead - 2) < 1e-6 || fabs(lead - 5) < 1e-6);
		}
		double top = nice_top(high - low);

		assert_true(top >= (high - low) * (1 - 1e-9) && top <= 2.5 * (1 + 1e-9) * (high - low));
	}
	assert_int_equal(nice_ticks(1, 1, 5, (double[TICKS_MAX]){ 0 }), 0);
}

/* RFC 4648, section 10. */
static void data_addresses_are_base64(void **state)
{
	static const char *const vectors[][2] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "foob", "Zm9vYg==" },
						  { "fooba", "Zm9vYmE=" }, { "foobar", "Zm9vYmFy" } };

	(void)state;
	for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
		struct page page = { 0 };
		char expected[64];

		page_data(&page, "image/png", vectors[i][0], strlen(vectors[i][0]));
		snprintf(expected, sizeof expected, "data:image/png;base64,%s", vectors[i][1]);
		assert_string_equal(page.text, expected);
		free(page.text);
	}
}

static void counts_have_commas_where_they_belong(void **state)
{
	struct page page = { 0 };

	(void)state;
	for (size_t n = 1; n < 100000000; n *= 7) {
		page_count(&page, n);
		page_put(&page, " ");
	}
	page_rate(&page, 99.96);
	page_put(&page, " ");
	page_rate(&page, 7321.4);
	assert_string_equal(page.text, "1 7 49 343 2,401 16,807 117,649 823,543 5,764,801 40,353,607 100.0 7,321");
	free(page.text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_says_what_the_measures_say),
		cmocka_unit_test(it_warns_of_what_the_numbers_cannot_carry),
		cmocka_unit_test(names_cannot_break_out_of_the_page),
		cmocka_unit_test(bytes_that_are_no_utf_8_become_question_marks),
		cmocka_unit_test(with_nothing_to_judge_it_still_stands),
		cmocka_unit_test(texts_of_charts_lie_inside_them),
		cmocka_unit_test(its_size_does_not_grow_with_the_images),
		cmocka_unit_test(a_resumed_run_counts_every_step_once_as_it_was_done_last),
		cmocka_unit_test(ranks_that_were_lost_are_told_of),
		cmocka_unit_test(a_log_of_another_model_is_noticed),
		cmocka_unit_test(images_with_an_oracle_are_synthetic_even_without_a_log),
		cmocka_unit_test(a_file_without_events_is_refused),
		cmocka_unit_test(every_cut_log_is_reported_on_without_harm),
		cmocka_unit_test(ticks_are_round_and_inside),
		cmocka_unit_test(data_addresses_are_base64),
		cmocka_unit_test(counts_have_commas_where_they_belong),
	};

	omp_set_num_threads(1); /* small work: threads would only wait for each other */
	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
