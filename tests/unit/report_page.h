/* SPDX-License-Identifier: Apache-2.0
 * Predictions to report on, the page that is made of them, and what any such page must be. */
#ifndef TESTS_REPORT_PAGE_H
#define TESTS_REPORT_PAGE_H

#include "tests/unit/test.h"

#include <ctype.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/file.h"
#include "report/report.h"
#include "report/svg.h"
#include "utf8.h"

static char directory[512], path[640];

static inline int make_directory(void **state)
{
	const char *build = getenv("BUILD");

	(void)state;
	snprintf(directory, sizeof directory, "%s/tests/tmp", build ? build : "build");
	mkdir(directory, 0777);
	snprintf(directory, sizeof directory, "%s/tests/tmp/report.%d", build ? build : "build", (int)getpid());
	snprintf(path, sizeof path, "%s/log.jsonl", directory);
	return mkdir(directory, 0777);
}

static inline int remove_directory(void **state)
{
	(void)state;
	directory_remove(directory);
	return 0;
}

/* ---- predictions to report on ----------------------------------------------------------------------- */

static uint64_t random_state = 31;

static inline double uniform(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (double)(random_state >> 11) / 9007199254740992.0;
}

/* n images, three a patient; finding f in 1 of f + 2 images; the last `empty` findings never. */
static inline struct predictions draw(size_t n, int empty)
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

static inline struct report_input input(const struct predictions *p)
{
	return (struct report_input){ .predictions = p, .path = "a.csv", .command = "chexnet report", .date = "2026-11-21", .resamples = 50, .seed = 1 };
}

/* Beside those of the report q, of the same images. */
static inline void compare_with(struct report_input *in, struct predictions *q)
{
	memcpy(q->samples, in->predictions->samples, q->n * sizeof *q->samples);
	in->other = q;
	in->other_path = "b.csv";
}

/* The weights of p, and with those of b beside it q, of the same images. */
static inline void compare_weights(struct report_input *in, struct predictions *p, const char *a, struct predictions *q, const char *b)
{
	strcpy(p->about.weights_hash, a);
	if (b) {
		strcpy(q->about.weights_hash, b);
		compare_with(in, q);
	}
}

static inline struct page make(const struct report_input *in)
{
	struct page page = { 0 };
	struct error e = { 0 };

	if (report_make(&page, NULL, in, &e))
		fail_msg("%s", e.text);
	assert_int_equal(strlen(page.text), page.size);
	return page;
}

/* ---- what HTML must be ------------------------------------------------------------------------------ */

static inline int is_void(const char *name)
{
	static const char *const names[] = { "meta", "br", "wbr", "img", "line", "circle", "polyline", "path" };

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(names[i], name) == 0)
			return 1;
	return 0;
}

/* Every tag is closed by its own, attributes are quoted, and nothing is open in the end. */
static inline void assert_well_formed(const char *html)
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

static inline void assert_absent(const char *html, const char *what)
{
	const char *at = strstr(html, what);

	if (at)
		fail_msg("\"%s\" in: %.120s", what, at > html + 40 ? at - 40 : at);
}

static inline void assert_present(const char *html, const char *what)
{
	if (!strstr(html, what))
		fail_msg("not in the report: \"%s\"", what);
}

static inline int occurrences(const char *text, const char *what)
{
	int n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

static inline void assert_sound(const struct page *page)
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

#endif
