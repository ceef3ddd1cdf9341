/* SPDX-License-Identifier: Apache-2.0
 * Masked labels: no gradient, no part in the loss, no AUROC, not in the mean; and what a mask file may say. */
#include "data/label_mask.h"
#include "data/loader.h"
#include "data/synth.h"
#include "learn/auroc.h"
#include "scratch.h"
#include "small_net.h"

static struct dataset *open_data(void)
{
	struct synth_conf c = SYNTH_BUILTIN;
	struct dataset *d;
	struct error e = { 0 };
	c.images = 60;
	c.size = 16;
	if (dataset_open_synthetic(&d, &c, "train", &e))
		fail_msg("%s", e.text);
	return d;
}

static struct label_mask read_mask(const char *text)
{
	struct label_mask m;
	struct error e = { 0 };
	if (label_mask_read(&m, text, &e))
		fail_msg("%s", e.text);
	return m;
}

static const char *mask_file(const char *text)
{
	static char name[FILE_PATH + 8];
	snprintf(name, sizeof name, "file:%s", scratch_path("mask.csv"));
	scratch_write(name + 5, text, strlen(text));
	return name;
}

static void a_list_masks_every_image(void **state)
{
	(void)state;
	struct dataset *d = open_data();
	struct label_mask m = read_mask("Hernia,Pleural Thickening");
	uint64_t hash = dataset_hash(d);
	size_t n = dataset_count(d);
	assert_int_equal(label_mask_apply(&m, d), 2 * n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(dataset_samples(d)[i].known, (1 << FINDINGS) - 1 - (3 << 12));
	assert_int_equal(dataset_hash(d), hash); /* so that checkpoints and leak checks know the data again */
	assert_int_equal(label_mask_apply(&m, d), 0);
	struct loader_conf conf = { .dataset = d, .seed = 1, .batch = 8, .micros = 1, .ranks = 1, .threads = 2, .depth = 2 };
	struct loader *l;
	struct loader_batch b;
	struct error e = { 0 };
	assert_int_equal(loader_open(&l, &conf, &e), 0);
	assert_int_equal(loader_next(l, &b, NULL, &e), 1);
	for (int i = 0; i < b.batch.count; i++)
		assert_int_equal(b.batch.known[i], (1 << FINDINGS) - 1 - (3 << 12));
	loader_close(l);
	label_mask_free(&m);
	dataset_close(d);
}

static void a_file_masks_the_images_it_names(void **state)
{
	(void)state;
	struct dataset *d = open_data(), *whole = open_data();
	const struct sample *s = dataset_samples(d);
	char text[300];
	snprintf(text, sizeof text, "%s,Mass|Hernia\r\n%s,All\n99999999_000.png,Edema\n", s[7].id, s[3].id);
	struct label_mask m = read_mask(mask_file(text));
	assert_int_equal(label_mask_unused(&m), 3);
	assert_int_equal(label_mask_apply(&m, d), 2 + FINDINGS);
	assert_int_equal(label_mask_unused(&m), 1);
	int scored = 0;
	for (int f = 0; f < FINDINGS; f++) { /* what an oracle scores on all labels is no measure for those that are left; of image 3 all are out */
		assert_true(isnan(dataset_oracle(d)[f]));
		scored += !isnan(dataset_oracle(whole)[f]);
	}
	assert_true(scored > FINDINGS / 2);
	dataset_close(whole);
	for (size_t i = 0; i < dataset_count(d); i++)
		assert_int_equal(s[i].known, i == 3 ? 0 : (1 << FINDINGS) - 1 - (i == 7 ? 1 << 4 | 1 << 13 : 0));
	struct label_mask other = read_mask("Mass"), none = read_mask("Hernia");
	assert_true(other.hash != m.hash && other.hash != none.hash);
	/* by its hash ranks and resumed runs know a mask again: every row counts, and not where it stands */
	static const char *const rows[] = { "a.png,Mass\nb.png,Edema\n", "b.png,Edema\na.png,Mass\n", "a.png,Mass\nc.png,Edema\n", "a.png,Mass\nb.png,Hernia\n", "a.png,Edema\nb.png,Edema\n" };
	uint64_t first = 0;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct label_mask one = read_mask(mask_file(rows[i]));
		if (i == 0)
			first = one.hash;
		assert_int_equal(one.hash == first, i < 2);
		label_mask_free(&one);
	}
	label_mask_free(&m);
	dataset_close(d);
}

/* They make the head's bias and the weights of --pos-weight: an image whose label is not known counts neither as with nor as without the finding. */
static void shares_of_positives_are_of_known_labels(void **state)
{
	(void)state;
	struct dataset *d = open_data();
	const struct sample *s = dataset_samples(d);
	size_t n = dataset_count(d);
	char text[60 * 40] = "";
	double share[FINDINGS];
	for (size_t i = 0; i < n; i++)
		sprintf(text + strlen(text), "%s,Edema%s\n", s[i].id, i % 3 ? "" : "|Effusion");
	struct label_mask m = read_mask(mask_file(text));
	label_mask_apply(&m, d);
	dataset_prevalence(d, share);
	for (int f = 0; f < FINDINGS; f++) {
		int with = 0, without = 0;
		for (size_t i = 0; i < n; i++)
			if (f != 9 && !(f == 2 && i % 3 == 0))
				*(s[i].labels & 1u << f ? &with : &without) += 1;
		assert_close(share[f], f == 9 ? 0 : (double)with / (with + without), 1e-15);
		assert_int_equal(dataset_labelled(d, 1) >> f & 1, with > 0);
		assert_int_equal(dataset_labelled(d, 0) >> f & 1, without > 0);
	}
	assert_true(share[2] > 0 && share[2] < 1);
	label_mask_free(&m);
	dataset_close(d);
}

static void refused(const char *text, int code, const char *words)
{
	struct label_mask m;
	struct error e = { 0 };
	assert_int_equal(label_mask_read(&m, text, &e), -code);
	if (!strstr(e.text, words))
		fail_msg("\"%s\" does not say \"%s\"", e.text, words);
}

static void what_is_wrong_is_named(void **state)
{
	(void)state;
	refused("Hernja", EXIT_USAGE, "--mask=Hernja: unknown finding \"Hernja\" (did you mean Hernia?)");
	refused("Mass,Mass", EXIT_USAGE, "Mass comes twice");
	refused("Mass,", EXIT_USAGE, "unknown finding \"\"");
	refused("No Finding", EXIT_USAGE, "unknown finding \"No Finding\" (known: Atelectasis, ");
	char all[400] = "";
	for (int f = 0; f < FINDINGS; f++)
		sprintf(all + strlen(all), "%s%s", f ? "," : "", finding_names[f]);
	refused(all, EXIT_USAGE, "no finding is left");
	refused("file:/nowhere.csv", EXIT_DATA, "/nowhere.csv");
	refused(mask_file("00000001_000.png,Mass\n00000002_000.png,Efusion\n"), EXIT_DATA, "mask.csv:2: unknown finding \"Efusion\" (did you mean Effusion?)");
	refused(mask_file("00000001_000.png,Mass\n00000001_000.png,Edema\n"), EXIT_DATA, "mask.csv: image 00000001_000.png comes twice");
	struct label_mask headed = read_mask(mask_file("Image,Findings\r\n00000001_000.png,Mass\r\n")); /* a first row may name the columns */
	assert_int_equal(headed.n, 1);
	label_mask_free(&headed);
	refused(mask_file("00000001_000.png\n"), EXIT_DATA, "mask.csv:1: 1 column, not two");
	char longer[SAMPLE_ID + 16];
	snprintf(longer, sizeof longer, "%0*d,Mass\n", SAMPLE_ID, 7);
	refused(mask_file(longer), EXIT_DATA, "is no image name");
	refused(mask_file(",Mass\n"), EXIT_DATA, "mask.csv:1: \"\" is no image name");
}

/* Gradient of the classifier's row for class c, as a sum of magnitudes. */
static double head_gradient(struct net *n, struct engine *engine, int c)
{
	float *grads = read_array(n, engine, ENGINE_GRADS);
	double sum = 0;
	for (int p = 0; p < n->plan.n_params; p++) {
		const struct net_param *param = &n->plan.params[p];
		if (!net_param_is_head(&n->plan, param->name))
			continue;
		size_t row = param->count / (size_t)n->plan.classes;
		for (size_t i = (size_t)c * row; i < ((size_t)c + 1) * row; i++)
			sum += fabs(grads[param->offset + i]);
	}
	free(grads);
	return sum;
}

/* Loss and all gradients must not depend on what a masked label says. */
static void a_masked_finding_has_no_gradient(void **state)
{
	(void)state;
	enum { BATCH = 4, MASKED = 5 };
	static const enum engine_kind kinds[] = { ENGINE_REFERENCE, ENGINE_CPU };
	for (int k = 0; k < 2; k++) {
		struct net n;
		double loss[2], open;
		float *grads[2];
		make_net(&n, &(struct net_conf){ .model = "densenet", .image_size = 32, .classes = FINDINGS, .growth = 8, .init_channels = 16, .n_blocks = 2, .block = { 1, 1 } }, BATCH, 1);
		n.batch.weight = NULL;
		struct engine *engine = open_engine(&n, kinds[k], PRECISION_FP32, 0, 1);
		for (int lie = 0; lie < 2; lie++) {
			for (int i = 0; i < BATCH; i++) {
				n.known[i] = ((1u << FINDINGS) - 1) & ~(1u << MASKED);
				n.labels[i] ^= lie ? 1u << MASKED : 0;
			}
			assert_int_equal(engine_backward(engine, &n.batch), 0);
			engine_loss(engine, &loss[lie]);
			grads[lie] = read_array(&n, engine, ENGINE_GRADS);
			for (int c = 0; c < FINDINGS; c++) {
				double g = head_gradient(&n, engine, c);
				assert_true(c == MASKED ? g == 0 : g > 0);
			}
		}
		assert_true(loss[0] == loss[1]);
		assert_memory_equal(grads[0], grads[1], n.plan.n_weights * sizeof(float));
		for (int i = 0; i < BATCH; i++)
			n.known[i] |= 1u << MASKED;
		assert_int_equal(engine_backward(engine, &n.batch), 0);
		engine_loss(engine, &open);
		assert_true(open > loss[0] && head_gradient(&n, engine, MASKED) > 0);
		free(grads[0]);
		free(grads[1]);
		engine_close(engine);
		free_net(&n);
	}
}

static void the_mean_auroc_leaves_a_masked_finding_out(void **state)
{
	(void)state;
	enum { N = 200 };
	static float logits[N * FINDINGS];
	uint32_t labels[N], known[N];
	struct auroc_table all, masked;
	noise_state = 3;
	for (int i = 0; i < N; i++) {
		labels[i] = noise() & ((1 << FINDINGS) - 1);
		known[i] = (1 << FINDINGS) - 1 - (1 << 2);
		for (int f = 0; f < FINDINGS; f++) /* finding 2 is perfect, so that leaving it out is seen */
			logits[i * FINDINGS + f] = (float)(noise() % 1000) + (labels[i] >> f & 1) * (f == 2 ? 2000.0f : 100.0f);
	}
	struct scores s = { .n = N, .classes = FINDINGS, .logits = logits, .labels = labels };
	assert_int_equal(auroc_bootstrap(&s, 0, 1, &all, NULL), 0);
	s.known = known;
	assert_int_equal(auroc_bootstrap(&s, 0, 1, &masked, NULL), 0);
	assert_int_equal(all.counted, FINDINGS);
	assert_int_equal(masked.counted, FINDINGS - 1);
	assert_true(isnan(masked.class[2].value) && masked.positives[2] == 0 && masked.negatives[2] == 0);
	assert_close(all.class[2].value, 1, 0);
	assert_close(masked.mean.value, (all.mean.value * FINDINGS - 1) / (FINDINGS - 1), 1e-12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_masks_every_image),
		cmocka_unit_test(a_file_masks_the_images_it_names),
		cmocka_unit_test(shares_of_positives_are_of_known_labels),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(a_masked_finding_has_no_gradient),
		cmocka_unit_test(the_mean_auroc_leaves_a_masked_finding_out),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
