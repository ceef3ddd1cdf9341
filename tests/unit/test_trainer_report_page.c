/* SPDX-License-Identifier: Apache-2.0
 * The report as a page: well-formed and self-contained whatever is in it, small, to be read on paper and by ear, its charts uncut. */
#include "tests/unit/report_page.h"

#include <omp.h>

/* Models that hardly differ need digits on the axis that they differ on. */
static void ticks_of_a_scale_are_told_apart(void **state)
{
	struct predictions p = draw(900, 0), q = draw(900, 0);
	struct report_input in = input(&p);

	(void)state;
	for (size_t i = 0; i < p.n * FINDINGS; i++)
		q.logits[i] = p.logits[i] + 0.02f * (float)uniform();
	compare_with(&in, &q);
	struct page page = make(&in);
	int scales = 0;

	for (const char *svg = page.text; (svg = strstr(svg, "aria-label=\"scale\"")); svg++, scales++) {
		const char *end = strstr(svg, "</svg>");
		char last[32] = "";

		for (const char *t = svg; (t = strstr(t, "<text class=\"tick\"")) && t < end; t++) {
			char text[32];

			t = strchr(t, '>') + 1;
			snprintf(text, sizeof text, "%.*s", (int)strcspn(t, "<"), t);
			assert_string_not_equal(text, last);
			strcpy(last, text);
		}
	}
	assert_int_equal(scales, 2);
	free(page.text);
	predictions_free(&p);
	predictions_free(&q);
}

/* Paper does not scroll: what a wide table hides there is lost. */
static void on_paper_tables_are_whole(void **state)
{
	struct predictions p = draw(60, 0);
	struct report_input in = input(&p);
	struct page page = make(&in);
	const char *print = strstr(page.text, "@media print{");

	(void)state;
	assert_non_null(print);
	assert_non_null(strstr(print, ".wide{overflow:visible}"));
	assert_non_null(strstr(print, "svg{min-width:0}"));
	assert_absent(page.text, "of the images whose label is known"); /* all are */
	free(page.text);
	predictions_free(&p);
}

static void who_cannot_see_it_is_told(void **state)
{
	struct predictions p = draw(900, 1), q = draw(900, 0);
	struct report_input in = input(&p);

	(void)state;
	compare_with(&in, &q);
	struct page page = make(&in);

	assert_sound(&page);
	assert_int_equal(occurrences(page.text, "<th"), occurrences(page.text, "<th scope=\"") + occurrences(page.text, "<thead"));
	assert_int_equal(occurrences(page.text, "<table"), 4);
	assert_int_equal(occurrences(page.text, "<caption>"), 4);
	assert_int_equal(occurrences(page.text, "<div class=\"wide\" tabindex=\"0\" role=\"region\""), 4);
	assert_true(occurrences(page.text, "aria-label=\"B minus A ") == 14 && occurrences(page.text, "aria-label=\"AUROC of A ") == 14);
	assert_absent(page.text, "title=\""); /* a tooltip is nothing for paper, fingers and ears */
	assert_present(page.text, "AP <span class=\"ka\">A</span>");
	assert_present(page.text, "AP <span class=\"kb\">B</span>");
	assert_present(page.text, "<h2>Calibration of A</h2>");
	assert_present(page.text, ">sensitivity</text>");
	assert_present(page.text, ">precision</text>");
	assert_present(page.text, ">share that shows it</text>");
	free(page.text);
	for (size_t i = 0; i < p.n; i++)
		p.samples[i].labels &= ~1u | (uint32_t)(i < 18);
	in.other = NULL;
	page = make(&in);
	assert_present(page.text, "<span class=\"warn\">!</span> Fewer than 10 patients show it, or do not.");
	free(page.text);
	predictions_free(&p);
	predictions_free(&q);
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
	assert_present(page.text, "Pictures without a probability");
	free(page.text);
	predictions_free(&p);
	predictions_free(&q);
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
		for (size_t i = 0; i < n; i++)
			p.logits[i * FINDINGS] *= -1; /* a slope below 0 */
		struct page page = make(&in);

		assert_true(assert_texts_inside(page.text) > 200);
		assert_absent(page.text, "&#8211;-"); /* a dash before a minus */
		free(page.text);
		predictions_free(&p);
		predictions_free(&other);
	}
}

/* ---- what is drawn ------------------------------------------------------------------------------------ */

enum { MOST_POINTS = 4000 };

struct drawn {
	double x[MOST_POINTS], y[MOST_POINTS]; /* 0 to 1 of the frame, upwards */
	int n;
};

/* Where (0, 0) and (1, 1) are, as the diagonal of a ROC curve has them. */
struct frame {
	double x0, y0, x1, y1;
};

static double attribute(const char *tag, const char *name)
{
	char text[16];

	snprintf(text, sizeof text, " %s=\"", name);
	const char *at = strstr(tag, text);

	assert_true(at && at < strchr(tag, '>'));
	return strtod(at + strlen(text), NULL);
}

static struct frame frame_of(const char *line)
{
	return (struct frame){ attribute(line, "x1"), attribute(line, "y1"), attribute(line, "x2"), attribute(line, "y2") };
}

/* Pairs of numbers up to the next quote. */
static void read_points(const char *at, const struct frame *frame, struct drawn *d)
{
	double v[2];
	int n = 0;

	for (d->n = 0; *at != '"'; at++) {
		char *end;

		if (!isdigit((unsigned char)*at) && *at != '-')
			continue;
		v[n++ % 2] = strtod(at, &end);
		at = end - 1;
		if (n % 2)
			continue;
		assert_in_range(d->n, 0, MOST_POINTS - 1);
		d->x[d->n] = (v[0] - frame->x0) / (frame->x1 - frame->x0);
		d->y[d->n++] = (v[1] - frame->y0) / (frame->y1 - frame->y0);
	}
}

static double area_below(const struct drawn *d)
{
	double area = 0;

	for (int i = 1; i < d->n; i++)
		area += (d->x[i] - d->x[i - 1]) * (d->y[i] + d->y[i - 1]) / 2;
	return area;
}

/* The band goes from 0 to 1, and the curve does not leave it. */
static void assert_within(const struct drawn *curve, const struct drawn *band)
{
	const int n = band->n / 2;

	assert_true(n > 10 && band->n == 2 * n && fabs(band->x[0]) < 0.01 && fabs(band->x[n - 1] - 1) < 0.01);
	for (int i = 0; i < n; i++) {
		double x = band->x[i], low = 1, high = 0;

		for (int k = 1; k < curve->n; k++)
			if (curve->x[k - 1] <= x + 0.006 && curve->x[k] >= x - 0.006) {
				low = fmin(low, fmin(curve->y[k - 1], curve->y[k]));
				high = fmax(high, fmax(curve->y[k - 1], curve->y[k]));
			}
		if (x + 0.006 < curve->x[0])
			continue; /* a precision begins at the first finding that is found */
		assert_true(fabs(band->x[band->n - 1 - i] - x) < 0.001 && band->y[i] <= band->y[band->n - 1 - i]);
		if (band->y[i] > high + 0.01 || band->y[band->n - 1 - i] < low - 0.01)
			fail_msg("at %.2f the band is %.3f to %.3f, the curve %.3f to %.3f", x, band->y[i], band->y[band->n - 1 - i], low, high);
	}
}

/* The text behind `what` in a chart, which has to be there. */
static const char *behind(const char *svg, const char *what)
{
	const char *at = strstr(svg, what);

	assert_true(at && at < strstr(svg, "</svg>"));
	return at + strlen(what);
}

/* A chart's curves have the areas that its title says: its own, and that of the model beside it. */
static void assert_areas(const char *svg, const char *measure, const struct frame *frame, double within)
{
	struct drawn curve, band, other;
	char *end;
	const double own = strtod(behind(svg, measure), &end), beside = strtod(end + strlen(", of B "), NULL);

	read_points(behind(svg, "<polyline class=\"line a\" points=\""), frame, &curve);
	read_points(behind(svg, "<polyline class=\"line b\" points=\""), frame, &other);
	read_points(behind(svg, "<path class=\"band a\" d=\""), frame, &band);
	assert_close(area_below(&curve), own, within);
	assert_close(area_below(&other), beside, within);
	assert_within(&curve, &band);
}

static void curves_are_drawn_where_their_figures_are(void **state)
{
	struct predictions p = draw(1500, 2), q = draw(1500, 2);
	struct report_input in = input(&p);
	struct frame frame = { 0 };
	int roc = 0, pr = 0, reliability = 0;

	(void)state;
	for (size_t i = 0; i < p.n * FINDINGS; i++)
		q.logits[i] = p.logits[i] + 2 * (float)uniform();
	in.resamples = 200;
	compare_with(&in, &q);
	struct page page = make(&in);

	for (const char *svg = page.text; (svg = strstr(svg, "<svg ")); svg++) {
		const char *label = behind(svg, "aria-label=\""), *end = strstr(svg, "</svg>");

		if (strncmp(label, "ROC curve", 9) == 0) {
			frame = frame_of(behind(svg, "<line class=\"rule\""));
			assert_areas(svg, ", AUROC ", &frame, 0.005);
			roc++;
		} else if (strncmp(label, "Precision", 9) == 0) {
			struct frame share = frame_of(behind(svg, "<line class=\"rule\""));
			int f = pr++, positives = 0;

			for (size_t i = 0; i < p.n; i++)
				positives += p.samples[i].labels >> f & 1;
			assert_close((share.y0 - frame.y0) / (frame.y1 - frame.y0), (double)positives / (double)p.n, 0.002);
			assert_areas(svg, ", average precision ", &frame, 0.02);
		} else if (strncmp(label, "Reliability", 11) == 0) {
			const char *bar = svg, *dot = svg;
			int n = 0;

			for (reliability++; (dot = strstr(dot, "<circle class=\"dot a\"")) && dot < end; dot++, n++) {
				bar = strstr(bar + 1, "<line class=\"bar a\"");
				assert_true(bar && bar < end && attribute(bar, "x1") == attribute(dot, "cx") && attribute(bar, "x2") == attribute(dot, "cx"));
				assert_true(attribute(bar, "y1") >= attribute(dot, "cy") && attribute(dot, "cy") >= attribute(bar, "y2"));
			}
			assert_in_range(n, 2, 20);
		}
	}
	assert_int_equal(occurrences(page.text, ">1 − specificity</text>"), FINDINGS - 2);
	assert_int_equal(occurrences(page.text, ">recall</text>"), FINDINGS - 2);
	assert_int_equal(occurrences(page.text, "A, solid"), 2);
	assert_int_equal(occurrences(page.text, "Not for findings that too few patients show, or do not: Pleural Thickening, Hernia (fewer than "), 4);
	assert_int_equal(roc, FINDINGS - 2);
	assert_int_equal(pr, FINDINGS - 2);
	assert_int_equal(reliability, FINDINGS - 2);
	free(page.text);
	predictions_free(&p);
	predictions_free(&q);
}

/* "A 0.812, interval 0.790 to 0.834" as a dot and a bar, in pixels of a scale of which this is where `at` is 0 and how wide 1 is. */
static void assert_interval(const char *svg, const char *label, const char *class, double at, double wide)
{
	char text[48], *rest;
	double value = strtod(label, &rest), ends[2];

	snprintf(text, sizeof text, "<circle class=\"dot %s\"", class);
	assert_close(attribute(behind(svg, text), "cx"), at + wide * value, 0.5);
	if (strncmp(rest, ", interval ", 11) != 0)
		return;
	ends[0] = strtod(rest + 11, &rest);
	ends[1] = strtod(rest + 4, NULL);
	snprintf(text, sizeof text, "<line class=\"bar %s\"", class);
	assert_close(attribute(behind(svg, text), "x1"), at + wide * ends[0], 0.5);
	assert_close(attribute(behind(svg, text), "x2"), at + wide * ends[1], 0.5);
}

static void intervals_are_drawn_where_their_figures_are(void **state)
{
	struct predictions p = draw(1500, 0), q = draw(1500, 0);
	struct report_input in = input(&p);
	double at = 0, wide = 0;
	int areas = 0, differences = 0;

	(void)state;
	for (size_t i = 0; i < p.n * FINDINGS; i++)
		q.logits[i] = p.logits[i] + 2 * (float)uniform();
	compare_with(&in, &q);
	struct page page = make(&in);

	for (const char *svg = page.text; (svg = strstr(svg, "<svg ")); svg++) {
		const char *label = behind(svg, "aria-label=\"");

		if (strncmp(label, "scale", 5) == 0) {
			const char *tick[2] = { behind(svg, "<text class=\"tick\"") };

			tick[1] = behind(tick[0], "<text class=\"tick\"");
			for (int i = 0; i < 2; i++) {
				const double x = attribute(tick[i], "x"), value = strtod(strchr(tick[i], '>') + 1, NULL);

				wide = i ? (x - at) / (value - wide) : value;
				at = i ? x - wide * value : x;
			}
		} else if (strncmp(label, "AUROC of A ", 11) == 0) {
			assert_interval(svg, label + 11, "a", at, wide);
			assert_interval(svg, strstr(label, "; of B ") + 7, "b", at, wide);
			areas++;
		} else if (strncmp(label, "B minus A ", 10) == 0) {
			const char *end = strstr(svg, "</svg>"), *dot = strstr(svg, "<circle class=\"dot a\"");

			assert_interval(svg, label + 10, dot && dot < end ? "a" : "b", at, wide);
			differences++;
		}
	}
	assert_int_equal(areas, FINDINGS + 1);
	assert_int_equal(differences, FINDINGS + 1);
	free(page.text);
	predictions_free(&p);
	predictions_free(&q);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ticks_of_a_scale_are_told_apart),
		cmocka_unit_test(on_paper_tables_are_whole),
		cmocka_unit_test(who_cannot_see_it_is_told),
		cmocka_unit_test(names_cannot_break_out_of_the_page),
		cmocka_unit_test(with_nothing_to_judge_it_still_stands),
		cmocka_unit_test(texts_of_charts_lie_inside_them),
		cmocka_unit_test(curves_are_drawn_where_their_figures_are),
		cmocka_unit_test(intervals_are_drawn_where_their_figures_are),
		cmocka_unit_test(its_size_does_not_grow_with_the_images),
	};

	omp_set_num_threads(1); /* small work: threads would only wait for each other */
	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
