/* SPDX-License-Identifier: Apache-2.0
 * Synthetic X-rays: reproducible, honest (no thumbnail gives the labels away), with an oracle that is a ceiling. */
#include <math.h>
#include <omp.h>

#include "data/random.h"
#include "data/source.h"
#include "learn/auroc.h"
#include "prepare/synth_tree.h"
#include "prepare/thumbnail.h"
#include "scratch.h"

static struct synth_conf small(size_t images, int size, double contrast)
{
	struct synth_conf c = SYNTH_BUILTIN;
	c.images = images;
	c.size = size;
	c.contrast = contrast;
	return c;
}

static uint8_t *draw(const struct synth_conf *c, const struct synth_case *which)
{
	float *work = malloc(SYNTH_WORK * sizeof *work * (size_t)(c->size * c->size));
	uint8_t *pixels = malloc((size_t)(c->size * c->size));
	synth_draw(c, which, work, pixels, NULL, NULL);
	free(work);
	return pixels;
}

static void the_same_seed_gives_the_same_images_in_any_order(void **state)
{
	(void)state;
	struct synth_conf c = small(40, 64, 1), other = c;
	struct synth_case *a = synth_plan(&c), *b = synth_plan(&c);
	assert_memory_equal(a, b, 40 * sizeof *a);
	other.seed = 2;
	struct synth_case *d = synth_plan(&other);
	assert_memory_not_equal(a, d, 40 * sizeof *a);
	uint8_t *last = draw(&c, &a[39]), *first = draw(&c, &a[0]), *again = draw(&c, &a[39]), *reseeded = draw(&other, &a[39]);
	assert_memory_equal(last, again, 64 * 64);
	assert_memory_not_equal(last, first, 64 * 64);
	assert_memory_not_equal(last, reseeded, 64 * 64);
	free(a), free(b), free(d), free(last), free(first), free(again), free(reseeded);
}

static void labels_have_the_asked_prevalence(void **state)
{
	(void)state;
	struct synth_conf c = small(40000, 64, 1);
	double wanted[FINDINGS];
	c.prevalence_floor = 0;
	synth_prevalence(&c, wanted);
	assert_close(wanted[0], 11559 / 112120.0, 1e-12);
	assert_close(wanted[13], 227 / 112120.0, 1e-12);
	struct synth_case *cases = synth_plan(&c);
	for (int f = 0; f < FINDINGS; f++) {
		size_t labels = 0, signs = 0;
		for (size_t i = 0; i < c.images; i++) {
			labels += cases[i].sample.labels >> f & 1;
			signs += cases[i].visible >> f & 1;
		}
		/* images of a patient are correlated: twice the binomial standard deviation is generous */
		double tolerance = 4 * 2 * sqrt(wanted[f] / (double)c.images);
		assert_close((double)labels / (double)c.images, wanted[f], tolerance);
		assert_close((double)signs / (double)c.images, wanted[f], tolerance);
	}
	free(cases);
	c.prevalence_floor = 0.2;
	c.prevalence_scale = 100;
	synth_prevalence(&c, wanted);
	assert_close(wanted[13], 0.2024, 0.001);
	assert_close(wanted[3], 0.5, 0);
}

/* It stands in files of predictions and checkpoints for which images these were: nothing that is said of any of them may change unnoticed. */
static void a_data_set_s_hash_is_of_every_word_on_every_image(void **state)
{
	(void)state;
	struct synth_conf c = small(40, 16, 1);
	struct dataset *d;
	struct error e = { 0 };
	assert_int_equal(dataset_open_synthetic(&d, &c, "train", &e), 0);
	const uint64_t hash = dataset_hash(d);
	for (size_t i = 0; i < d->count; i++)
		for (int what = 0; what < 2 * FINDINGS + 2; what++) {
			struct sample *s = &d->samples[i], before = *s;
			if (what < 2 * FINDINGS)
				*(what < FINDINGS ? &s->labels : &s->known) ^= 1u << what % FINDINGS;
			else if (what == 2 * FINDINGS)
				s->patient ^= 1;
			else
				s->id[0] ^= 1;
			dataset_seal(d, &e);
			assert_int_not_equal(dataset_hash(d), hash);
			*s = before;
		}
	dataset_seal(d, &e);
	assert_int_equal(dataset_hash(d), hash);
	dataset_close(d);
}

/* A split's pixels do not depend on who draws them. */
static void threads_do_not_change_the_pixels(void **state)
{
	(void)state;
	struct synth_conf c = small(200, 32, 1);
	struct dataset *a, *b;
	struct error e = { 0 };
	assert_int_equal(dataset_open_synthetic(&a, &c, "train", &e), 0);
	assert_int_equal(dataset_open_synthetic(&b, &c, "train", &e), 0);
	assert_true(dataset_count(a) > 100);
	assert_int_equal(dataset_hash(a), dataset_hash(b));
	int differ = 0;
#pragma omp parallel num_threads(8) reduction(+ : differ)
	{
		struct dataset_scratch *s = dataset_scratch(a);
		uint8_t x[32 * 32], y[32 * 32];
		struct error mine = { 0 };
		for (size_t k = 0; k < dataset_count(a); k++) { /* all threads, the same images, at the same time */
			dataset_read(a, k, s, x, &mine);
			dataset_read(b, dataset_count(a) - 1 - k, s, y, &mine);
			dataset_read(b, k, s, y, &mine);
			differ += memcmp(x, y, sizeof x) != 0;
		}
		dataset_scratch_free(s);
	}
	assert_int_equal(differ, 0);
	dataset_close(a);
	dataset_close(b);
}

static void a_mirrored_or_brighter_sign_is_no_easier(void **state)
{
	(void)state;
	/* with and without each sign, the mean gray value is the same to a fraction of a gray level */
	struct synth_conf c = small(60, 64, 1);
	struct synth_case *cases = synth_plan(&c);
	for (int f = 0; f < FINDINGS; f++) {
		double difference = 0;
		for (int i = 0; i < 60; i++) {
			struct synth_case with = cases[i], without = cases[i];
			with.visible = 1u << f;
			without.visible = 0;
			uint8_t *a = draw(&c, &with), *b = draw(&c, &without);
			long sum = 0;
			for (int p = 0; p < 64 * 64; p++)
				sum += a[p] - b[p];
			if (labs(sum) > 64 * 64 / 4) /* a sign touches an eighth of the pixels by tens of levels */
				fail_msg("sign %d of image %d changes the sum by %ld", f, i, sum);
			difference += (double)sum / (64 * 64) / 60;
			free(a), free(b);
		}
		assert_true(fabs(difference) < 0.1);
	}
	free(cases);
}

static void the_oracle_is_one_half_without_contrast(void **state)
{
	(void)state;
	struct synth_conf c = small(3000, 32, 0);
	struct dataset *d;
	struct error e = { 0 };
	assert_int_equal(dataset_open_synthetic(&d, &c, "test", &e), 0);
	const double *oracle = dataset_oracle(d);
	for (int f = 0; f < FINDINGS; f++)
		assert_close(oracle[f], 0.5, 0);
	dataset_close(d);
}

static void the_oracle_of_clear_signs_is_the_label_noise(void **state)
{
	(void)state;
	struct synth_conf c = small(6000, 64, 1);
	struct dataset *d;
	struct error e = { 0 };
	double prevalence[FINDINGS], sum = 0, expected = 0;
	synth_prevalence(&c, prevalence);
	assert_int_equal(dataset_open_synthetic(&d, &c, "test", &e), 0);
	const double *oracle = dataset_oracle(d);
	for (int f = 0; f < FINDINGS; f++) {
		assert_close(oracle[f], synth_ceiling(&c, prevalence[f]), 0.06); /* 120 positives: standard error 0.012 */
		sum += oracle[f] / FINDINGS;
		expected += synth_ceiling(&c, prevalence[f]) / FINDINGS;
	}
	assert_close(sum, expected, 0.012);
	dataset_close(d);
}

/* A weaker observer: it knows where a sign would be and what it looks like, but sees the image, not the noise alone. Drawing the
 * image with and without the sign gives its template. */
static void nobody_who_sees_the_image_beats_the_oracle(void **state)
{
	(void)state;
	struct synth_conf c = small(700, 32, 0.05), clear = small(700, 32, 1);
	struct synth_case *cases = synth_plan(&c);
	float score[700], ratio[FINDINGS], oracle_score[700], *work = malloc(SYNTH_WORK * 32 * 32 * sizeof *work);
	uint8_t positive[700];
	c.label_noise = clear.label_noise = 0;
	double mean_oracle = 0, mean_score = 0;
	for (int f = 0; f < FINDINGS; f += 3) {
		for (int i = 0; i < 700; i++) {
			struct synth_case with = cases[i], without = cases[i];
			with.visible |= 1u << f;
			without.visible &= ~(1u << f);
			uint8_t *a = draw(&clear, &with), *b = draw(&clear, &without), *seen = draw(&c, &cases[i]);
			double sum = 0;
			for (int p = 0; p < 32 * 32; p++)
				sum += (a[p] - b[p]) * (seen[p] - 110.0);
			score[i] = (float)sum;
			synth_oracle(&c, &cases[i], work, ratio);
			oracle_score[i] = ratio[f];
			positive[i] = cases[i].visible >> f & 1;
			free(a), free(b), free(seen);
		}
		struct interval o = auroc_delong(oracle_score, positive, 700), s = auroc_delong(score, positive, 700);
		assert_true(o.value > 0.6 && o.value < 0.9999); /* weak signs: the oracle errs too */
		assert_true(s.value < o.value + 3 * s.se);
		mean_oracle += o.value / 5;
		mean_score += s.value / 5;
	}
	assert_true(mean_score < mean_oracle);
	assert_true(mean_score > 0.55); /* it does see something */
	free(cases);
	free(work);
}

static double thumbnail_mean(const struct synth_conf *c)
{
	struct dataset *train, *test;
	struct thumbnail_fit fit;
	struct error e = { 0 };
	assert_int_equal(dataset_open_synthetic(&train, c, "train", &e), 0);
	assert_int_equal(dataset_open_synthetic(&test, c, "test", &e), 0);
	assert_int_equal(thumbnail_fit(train, test, &fit, &e), 0);
	assert_int_equal(fit.counted, FINDINGS);
	dataset_close(train);
	dataset_close(test);
	return fit.mean;
}

static void thumbnails_give_nothing_away(void **state)
{
	(void)state;
	struct synth_conf c = small(6000, 64, 1);
	double mean = thumbnail_mean(&c);
	printf("# mean thumbnail AUROC %.3f\n", mean);
	assert_in_range((int)(1000 * mean), 450, 560);
}

static void label_bright_images(struct dataset *d)
{
	struct dataset_scratch *s = dataset_scratch(d);
	uint8_t pixels[32 * 32];
	struct error e = { 0 };
	double *mean = calloc(d->count, sizeof *mean), all = 0;
	for (size_t i = 0; i < d->count; i++) {
		dataset_read(d, i, s, pixels, &e);
		for (int p = 0; p < 32 * 32; p++)
			mean[i] += pixels[p];
		all += mean[i] / (double)d->count;
	}
	for (size_t i = 0; i < d->count; i++)
		d->samples[i].labels = mean[i] > all;
	dataset_scratch_free(s);
	free(mean);
}

/* The check itself must be able to see: labels that say which images are bright. */
static void the_thumbnail_fit_finds_a_shortcut(void **state)
{
	(void)state;
	struct synth_conf c = small(1500, 32, 1);
	struct dataset *train, *test;
	struct thumbnail_fit fit;
	struct error e = { 0 };
	assert_int_equal(dataset_open_synthetic(&train, &c, "train", &e), 0);
	assert_int_equal(dataset_open_synthetic(&test, &c, "test", &e), 0);
	label_bright_images(train);
	label_bright_images(test);
	assert_int_equal(thumbnail_fit(train, test, &fit, &e), 0);
	assert_true(fit.auroc[0] > 0.8);
	assert_int_equal(fit.counted, 1);
	assert_true(isnan(fit.auroc[1]));
	dataset_close(train);
	dataset_close(test);
}

static void patients_stay_together_unless_a_leak_is_asked_for(void **state)
{
	(void)state;
	struct synth_conf c = small(2000, 32, 1);
	struct dataset *train, *test;
	struct error e = { 0 };
	uint32_t example = 0;
	assert_int_equal(dataset_open_synthetic(&train, &c, "train", &e), 0);
	assert_int_equal(dataset_open_synthetic(&test, &c, "test", &e), 0);
	assert_int_equal(dataset_leak(train, test, &example), 0);
	dataset_close(train);
	dataset_close(test);
	c.leaky = 1;
	assert_int_equal(dataset_open_synthetic(&train, &c, "train", &e), 0);
	assert_int_equal(dataset_open_synthetic(&test, &c, "test", &e), 0);
	assert_true(dataset_leak(train, test, &example) > 50);
	assert_true(example > 0);
	dataset_close(train);
	dataset_close(test);
}

static char *slurp(const char *path, size_t *size)
{
	char *text;
	struct error e = { 0 };
	if (file_read(&text, size, path, &e))
		fail_msg("%s", e.text);
	return text;
}

static void a_tree_is_the_same_for_any_number_of_threads(void **state)
{
	(void)state;
	struct synth_conf c = small(60, 32, 1);
	struct synth_report r;
	struct error e = { 0 };
	const char *files[] = { "Data_Entry_2017_v2020.csv", "train_val_list.txt", "test_list.txt", "BBox_List_2017.csv", "oracle.csv", "oracle.json",
				"images/00000001_000.png" };
	char one[FILE_PATH], four[FILE_PATH];
	snprintf(one, sizeof one, "%s", scratch_path("one"));
	snprintf(four, sizeof four, "%s", scratch_path("four"));
	assert_int_equal(synth_tree(&c, one, 0, 1, NULL, NULL, &r, &e), 0);
	assert_int_equal(synth_tree(&c, four, 0, 4, NULL, NULL, &r, &e), 0);
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		char path[FILE_PATH + 64];
		size_t m, n;
		snprintf(path, sizeof path, "%s/%s", one, files[i]);
		char *a = slurp(path, &m);
		snprintf(path, sizeof path, "%s/%s", four, files[i]);
		char *b = slurp(path, &n);
		assert_int_equal(m, n);
		assert_memory_equal(a, b, m);
		free(a), free(b);
	}
	assert_int_equal(synth_tree(&c, one, 0, 1, NULL, NULL, &r, &e), -EXIT_USAGE);
	assert_non_null(strstr(e.text, "exists already"));
	static const volatile sig_atomic_t stopped = 1;
	e.code = 0;
	assert_int_equal(synth_tree(&c, scratch_path("stopped"), 0, 2, &stopped, NULL, &r, &e), -EXIT_INTERNAL);
	assert_int_equal(access(scratch_path("stopped"), F_OK), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_seed_gives_the_same_images_in_any_order),
		cmocka_unit_test(labels_have_the_asked_prevalence),
		cmocka_unit_test(a_data_set_s_hash_is_of_every_word_on_every_image),
		cmocka_unit_test(threads_do_not_change_the_pixels),
		cmocka_unit_test(a_mirrored_or_brighter_sign_is_no_easier),
		cmocka_unit_test(the_oracle_is_one_half_without_contrast),
		cmocka_unit_test(the_oracle_of_clear_signs_is_the_label_noise),
		cmocka_unit_test(nobody_who_sees_the_image_beats_the_oracle),
		cmocka_unit_test(thumbnails_give_nothing_away),
		cmocka_unit_test(the_thumbnail_fit_finds_a_shortcut),
		cmocka_unit_test(patients_stay_together_unless_a_leak_is_asked_for),
		cmocka_unit_test(a_tree_is_the_same_for_any_number_of_threads),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
