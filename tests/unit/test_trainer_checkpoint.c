/* SPDX-License-Identifier: Apache-2.0
 * Model files: what is written comes back bit by bit, a failure leaves the old file, and what does not fit is named. */
#include "tests/unit/checkpoint_files.h"

#include <signal.h>
#include <sys/resource.h>

#include "learn/checkpoint.h"
#include "learn/model.h"
#include "learn/safetensors.h"

static void everything_comes_back(void **state)
{
	(void)state;
	struct net_plan plan, again;
	struct model_values out, in;
	struct checkpoint_notes notes;
	struct net_conf net;
	struct checkpoint *c;
	struct safetensors *file;
	struct error e = { 0 };

	make_small_net(&plan, 14);
	make_values(&out, &plan, 1);
	assert_int_equal(checkpoint_write(path, &plan, &out, &example, &e), 0);
	assert_int_equal(safetensors_open(&file, path, &e), 0);
	static const char *const noted[][2] = { { "chexnet", HVD_VERSION }, { "model", "densenet" }, { "classes", "14" }, { "growth", "4" }, { "init_channels", "8" },
						{ "blocks", "2,3" } };

	for (size_t i = 0; i < sizeof noted / sizeof noted[0]; i++)
		assert_string_equal(safetensors_note(file, noted[i][0]), noted[i][1]);
	safetensors_close(file);
	assert_int_equal(checkpoint_open(&c, path, &net, &notes, &e), 0);
	assert_true(checkpoint_resumable(c));
	assert_int_equal(notes.untrained, 1 << 3 | 1 << 13);
	assert_false(notes.unnamed);
	assert_true(notes.seed == example.seed && notes.position == example.position && notes.step == example.step);
	assert_true(notes.data_hash == example.data_hash);
	assert_true(notes.val_hash == example.val_hash);
	assert_int_equal(notes.global_batch, 64);
	assert_int_equal(notes.batch, 16);
	assert_int_equal(notes.bucket_bytes, 1 << 21);
	assert_int_equal(notes.source_size, 64);
	assert_true(notes.leaky && !notes.unchecked);
	assert_string_equal(notes.split_policy, "official");
	assert_string_equal(notes.resize, "area");
	assert_string_equal(notes.mask, example.mask);
	assert_string_equal(notes.optimizer, "sgd");
	assert_string_equal(notes.precision, "fp32");
	assert_string_equal(notes.pos_weight, "balanced");
	assert_string_equal(notes.stored_as, "jpeg");
	assert_string_equal(notes.options, example.options);
	assert_true(notes.validated == 1200 && notes.window == 3 && notes.window_layout == example.window_layout);
	assert_int_equal(notes.image_size, 32);
	assert_string_equal(notes.trained_on, example.trained_on);
	assert_true(notes.best_auroc == example.best_auroc && notes.best_step == 1200);
	assert_true(notes.best_loss == 0.1625 && notes.stale == 2 && notes.rate_factor == 0.01);
	assert_true(notes.loss_scale == 4096 && notes.scale_good == 77 && notes.skipped == 5);
	assert_int_equal(net_plan_make(&again, &net, &e), 0);
	assert_int_equal(again.n_weights, plan.n_weights);
	assert_int_equal(again.image_size, 32);
	assert_int_equal(model_values_alloc(&in, &again, 1, &e), 0);
	int fresh = 7;

	assert_int_equal(checkpoint_load(c, &again, &in, &fresh, &e), 0);
	assert_int_equal(fresh, 0);
	assert_memory_equal(in.params, out.params, plan.n_weights * 4);
	assert_memory_equal(in.moment1, out.moment1, plan.n_weights * 4);
	assert_memory_equal(in.moment2, out.moment2, plan.n_weights * 4);
	assert_memory_equal(in.mean, out.mean, plan.n_bn_channels * 4);
	assert_memory_equal(in.variance, out.variance, plan.n_bn_channels * 4);
	checkpoint_close(c);
	model_values_free(&in);
	model_values_free(&out);
	net_plan_free(&plan);
	net_plan_free(&again);
}

static void weights_have_a_hash_of_their_own_whichever_file_holds_them(void **state)
{
	(void)state;
	struct net_plan plan;
	struct model_values v, read;
	struct checkpoint *c;
	struct error e = { 0 };
	char hash[WEIGHTS_HASH], again[WEIGHTS_HASH];

	make_small_net(&plan, 14);
	make_values(&v, &plan, 1);
	model_values_hash(hash, &v, &plan);
	assert_int_equal(strlen(hash), 16);
	for (int moments = 1; moments >= 0; moments--) {
		struct model_values out = v;
		struct checkpoint_notes notes = example;

		notes.step += (uint64_t)moments;
		if (!moments)
			out.moment1 = out.moment2 = NULL;
		assert_int_equal(checkpoint_write(path, &plan, &out, &notes, &e), 0);
		assert_int_equal(checkpoint_open(&c, path, NULL, NULL, &e), 0);
		assert_int_equal(model_values_alloc(&read, &plan, 0, &e), 0);
		assert_int_equal(checkpoint_load(c, &plan, &read, NULL, &e), 0);
		model_values_hash(again, &read, &plan);
		assert_string_equal(again, hash);
		model_values_free(&read);
		checkpoint_close(c);
	}
	/* by it a map or a file of predictions is known to be of these weights: of every one of them, and of what evaluation normalises by */
	for (size_t i = 0; i < plan.n_weights + 2 * plan.n_bn_channels; i++) {
		size_t at = i < plan.n_weights ? 0 : i - plan.n_weights;
		float *changed = i < plan.n_weights ? &v.params[i] : at < plan.n_bn_channels ? &v.mean[at] : &v.variance[at - plan.n_bn_channels], before = *changed;

		*changed = nextafterf(before, INFINITY);
		model_values_hash(again, &v, &plan);
		assert_string_not_equal(again, hash);
		*changed = before;
	}
	model_values_free(&v);
	net_plan_free(&plan);
}

static void what_is_known_of_a_leak_comes_back(void **state)
{
	(void)state;
	struct net_plan plan;
	struct model_values v;
	struct checkpoint *c;
	struct error e = { 0 };

	make_small_net(&plan, 14);
	make_values(&v, &plan, 0);
	for (int i = 0; i < 4; i++) {
		struct checkpoint_notes notes = example, again;

		notes.leaky = i & 1;
		notes.unchecked = i >> 1;
		assert_int_equal(checkpoint_write(path, &plan, &v, &notes, &e), 0);
		assert_int_equal(checkpoint_open(&c, path, NULL, &again, &e), 0);
		assert_int_equal(again.leaky, i & 1);
		assert_int_equal(again.unchecked, i >> 1);
		assert_int_equal(checkpoint_leaked(&again, 0), i >> 1 ? -1 : 0); /* a leak among other splits is none of this one */
		assert_int_equal(checkpoint_leaked(&again, 7), 7);
		checkpoint_close(c);
	}
	model_values_free(&v);
	net_plan_free(&plan);
}

/* A network's least tensors. */
static void least_tensors(struct tensor tensors[4])
{
	static const char *const names[] = { "features.conv0.weight", "features.denseblock1.denselayer1.conv1.weight",
					     "features.denseblock1.denselayer1.conv2.weight", "classifier.weight" };
	static const float three[3] = { 1, 2, 3 };

	for (int i = 0; i < 4; i++) {
		tensors[i] = (struct tensor){ .type = TENSOR_F32, .ndim = 1, .shape = { 3 }, .data = three, .bytes = sizeof three };
		snprintf(tensors[i].name, sizeof tensors[i].name, "%s", names[i]);
	}
}

/* Opens a file of them and this note. */
static int open_with_note(const char *key, const char *value, struct checkpoint_notes *notes, struct error *e)
{
	const struct tensor_note note = { key, value };
	struct tensor tensors[4];
	struct checkpoint *c;

	least_tensors(tensors);
	assert_int_equal(safetensors_write(path, tensors, 4, &note, 1, e), 0);
	int rc = checkpoint_open(&c, path, NULL, notes, e);

	checkpoint_close(c);
	return rc;
}

/* Earlier versions said "yes" also of clean data behind leaky weights, whose patients nobody compared. */
static void a_leak_of_an_earlier_version_is_not_checked(void **state)
{
	(void)state;
	struct checkpoint_notes notes;
	struct error e = { 0 };

	assert_int_equal(open_with_note("leak", "yes", &notes, &e), 0);
	assert_true(notes.leaky && notes.unchecked);
}

static void what_another_program_does_not_note_is_not_known(void **state)
{
	(void)state;
	struct checkpoint_notes notes;
	struct error e = { 0 };

	assert_int_equal(open_with_note("format", "pt", &notes, &e), 0);
	assert_true(notes.unnamed && notes.unchecked && !notes.leaky);
	assert_true(!notes.seed && !notes.position && !notes.step && !notes.validated && !notes.data_hash && !notes.val_hash);
	assert_true(!notes.batch && !notes.global_batch && !notes.bucket_bytes && !notes.window && !notes.source_size && !notes.image_size);
	assert_true(notes.best_auroc == 0 && notes.best_loss == 0 && notes.rate_factor == 0 && notes.loss_scale == 0);
	assert_true(!*notes.trained_on && !*notes.options && !*notes.mask && !*notes.optimizer);
	assert_int_equal(open_with_note("untrained", "Mass,Cough", &notes, &e), 0); /* of another list of findings */
	assert_int_equal(notes.untrained, 0);
}

/* Predict and eval print such a note, and a terminal would do what it says. */
static void what_foreign_weights_note_tells_a_terminal_nothing(void **state)
{
	static const char *const cases[][2] = {
		{ "\x1b]0;mine\a\x1b[31mred\nchexnet: done\r\x7f", "?]0;mine??[31mred?chexnet: done??" },
		{ "\xC2\x9B" "2J \xC2\xA0\xC3\xA9", "??2J \xC2\xA0\xC3\xA9" }, /* CSI of one byte */
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct checkpoint_notes notes;
		struct error e = { 0 };

		assert_int_equal(open_with_note("trained_on", cases[i][0], &notes, &e), 0);
		assert_string_equal(notes.trained_on, cases[i][1]);
		assert_int_equal(open_with_note("split_policy", cases[i][0], &notes, &e), 0);
		assert_string_equal(notes.split_policy, cases[i][1]);
	}
}

/* As an editor leaves them: a training would go on from somewhere else. */
static void notes_that_are_no_numbers_are_refused_by_name(void **state)
{
	(void)state;
	static const struct tensor_note wrong[] = { { "position", "40 images" }, { "step", "" }, { "seed", "-1" }, { "validated", "18446744073709551616" },
						    { "batch", "4294967300" }, { "data_hash", "0x12g" }, { "rate_factor", "0,1" }, { "best_loss", "" },
						    { "rate_factor", "nan" }, { "rate_factor", "-0.1" }, { "rate_factor", "10" }, { "loss_scale", "nan" }, { "loss_scale", "inf" },
						    { "loss_scale", "-1" }, { "loss_scale", "1e999" }, { "best_auroc", "NaN" }, { "best_auroc", "1.5" }, { "best_loss", "inf" }, { "best_loss", "-1" } };
	struct checkpoint_notes notes;
	char says[64];

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct error e = { 0 };

		assert_int_equal(open_with_note(wrong[i].key, wrong[i].value, &notes, &e), -EXIT_DATA);
		snprintf(says, sizeof says, ": its %s is \"%s\"", wrong[i].key, wrong[i].value);
		if (!strstr(e.text, says))
			fail_msg("%s", e.text);
	}
	struct error e = { 0 };
	assert_int_equal(open_with_note("loss_scale", "16777216", &notes, &e), 0); /* where doubling ends */
	assert_int_equal(open_with_note("best_loss", "nan", &notes, &e), 0); /* what no image has labels for */
}

static void a_plain_model_carries_torchvisions_names_only(void **state)
{
	(void)state;
	struct net_plan plan;
	struct model_values v;
	struct safetensors *f;
	struct checkpoint *c;
	struct error e = { 0 };

	make_small_net(&plan, 14);
	make_values(&v, &plan, 0);
	assert_int_equal(checkpoint_write(path, &plan, &v, &example, &e), 0);
	assert_int_equal(safetensors_open(&f, path, &e), 0);
	assert_int_equal(safetensors_count(f), plan.n_params + 3 * plan.n_bns);
	assert_non_null(safetensors_find(f, "features.conv0.weight"));
	assert_non_null(safetensors_find(f, "features.denseblock2.denselayer3.norm2.running_var"));
	assert_non_null(safetensors_find(f, "classifier.bias"));
	assert_string_equal(safetensors_note(f, "format"), "pt");
	const struct tensor *tracked = safetensors_find(f, "features.norm0.num_batches_tracked");
	int64_t steps;

	assert_int_equal(tracked->ndim, 0);
	memcpy(&steps, tracked->data, sizeof steps);
	assert_int_equal(steps, 1234);
	safetensors_close(f);
	assert_int_equal(checkpoint_open(&c, path, NULL, NULL, &e), 0);
	assert_false(checkpoint_resumable(c));
	checkpoint_close(c);
	model_values_free(&v);
	net_plan_free(&plan);
}

static void another_classifier_is_an_error_or_a_fresh_head(void **state)
{
	(void)state;
	struct net_plan thousand, ours;
	struct model_values out, in;
	struct checkpoint *c;
	struct error e = { 0 };
	int fresh;

	make_small_net(&thousand, 20);
	make_small_net(&ours, 14);
	make_values(&out, &thousand, 0);
	assert_int_equal(checkpoint_write(path, &thousand, &out, &example, &e), 0);
	assert_int_equal(checkpoint_open(&c, path, NULL, NULL, &e), 0);
	assert_int_equal(model_values_alloc(&in, &ours, 0, &e), 0);
	assert_int_equal(checkpoint_load(c, &ours, &in, NULL, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "tensor classifier.weight is [20, 20], the network wants [14, 20]"));
	e = (struct error){ 0 };
	assert_int_equal(checkpoint_load(c, &ours, &in, &fresh, &e), 0);
	assert_int_equal(fresh, 1);
	assert_memory_equal(in.params, out.params, (size_t)ours.params[net_param_find(&ours, "classifier.weight")].offset * 4);
	checkpoint_close(c);
	model_values_free(&in);
	model_values_free(&out);
	net_plan_free(&thousand);
	net_plan_free(&ours);
}

static void what_lacks_a_part_of_a_network_is_none(void **state)
{
	(void)state;
	for (int without = 0; without < 4; without++) {
		struct tensor tensors[4];
		struct checkpoint *c;
		struct error e = { 0 };

		least_tensors(tensors);
		snprintf(tensors[without].name, sizeof tensors[without].name, "other.weight");
		assert_int_equal(safetensors_write(path, tensors, 4, NULL, 0, &e), 0);
		assert_int_equal(checkpoint_open(&c, path, NULL, NULL, &e), -EXIT_DATA);
		assert_null(c);
		assert_non_null(strstr(e.text, "neither a DenseNet"));
	}
}

static void a_network_that_there_cannot_be_is_refused_with_its_file(void **state)
{
	(void)state;
	struct tensor tensors[4];
	struct checkpoint *c;
	struct error e = { 0 };

	least_tensors(tensors);
	tensors[2] = (struct tensor){ .name = "features.denseblock1.denselayer1.conv2.weight", .type = TENSOR_F32, .ndim = 2, .shape = { 300, 0 }, .data = "" };
	assert_int_equal(safetensors_write(path, tensors, 4, NULL, 0, &e), 0);
	assert_int_equal(checkpoint_open(&c, path, NULL, NULL, &e), -EXIT_DATA);
	assert_int_equal(strncmp(e.text, path, strlen(path)), 0);
	assert_non_null(strstr(e.text, "growth 300"));
}

/* An output's place says which finding it stands for. */
static void findings_in_another_order_are_refused(void **state)
{
	(void)state;
	struct error e = { 0 };

	assert_int_equal(open_with_note("findings", "Mass,Nodule", NULL, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "its findings are in another order (Mass,Nodule)"));
}

static void a_tensor_too_few_one_too_many_and_one_of_another_shape_are_named(void **state)
{
	(void)state;
	static const struct {
		const char *from, *to, *says; /* the tensor `from` is called `to`, or of another shape where that is its name */
	} cases[] = { { "features.norm0.bias", "features.norm0.shift", ": tensor features.norm0.bias is missing" },
		      { "spare", "features.norm7.bias", ": tensor features.norm7.bias is not part of the network" },
		      { "spare", "adam.lr", "" },
		      { "features.conv0.weight", "features.conv0.weight", ": tensor features.conv0.weight is [8, 3, 49, 1], the network wants [8, 3, 7, 7]" } };
	struct net_plan plan;
	struct model_values v;
	struct safetensors *f;
	struct error e = { 0 };

	make_small_net(&plan, 14);
	make_values(&v, &plan, 0);
	for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
		struct checkpoint *c;

		assert_int_equal(checkpoint_write(path, &plan, &v, &example, &e), 0);
		assert_int_equal(safetensors_open(&f, path, &e), 0);
		int n = safetensors_count(f);
		struct tensor *tensors = calloc((size_t)n + 1, sizeof *tensors);
		const int spare = strcmp(cases[k].from, "spare") == 0;

		tensors[0] = (struct tensor){ .name = "spare", .type = TENSOR_F32, .ndim = 1, .shape = { 3 }, .data = v.params, .bytes = 12 };
		for (int i = 0; i < n; i++)
			tensors[i + 1] = *safetensors_at(f, i);
		for (int i = 0; i <= n; i++) {
			struct tensor *t = &tensors[i];

			if (strcmp(t->name, cases[k].from) != 0)
				continue;
			if (strcmp(cases[k].from, cases[k].to) == 0) {
				t->shape[2] *= t->shape[3];
				t->shape[3] = 1;
			}
			snprintf(t->name, sizeof t->name, "%s", cases[k].to);
		}
		assert_int_equal(safetensors_write(path, tensors + !spare, n + spare, NULL, 0, &e), 0);
		safetensors_close(f);
		free(tensors);
		assert_int_equal(checkpoint_open(&c, path, NULL, NULL, &e), 0);
		assert_int_equal(checkpoint_load(c, &plan, &v, NULL, &e), *cases[k].says ? -EXIT_DATA : 0);
		if (!strstr(e.text, cases[k].says))
			fail_msg("\"%s\" does not say \"%s\"", e.text, cases[k].says);
		checkpoint_close(c);
		e = (struct error){ 0 };
	}
	model_values_free(&v);
	net_plan_free(&plan);
}

/* As a command notes it, which opens the network later. */
static void a_noted_network_is_the_one_that_was_asked_for(void **state)
{
	(void)state;
	const struct net_conf conf = { .model = "densenet", .image_size = 96, .classes = 5, .growth = 4, .init_channels = 7, .n_blocks = 2, .block = { 2, 1 } };
	const struct network noted = network_of(&conf);
	const struct net_conf again = network_conf(&noted);

	assert_string_equal(again.model, conf.model);
	assert_int_equal(again.image_size, conf.image_size);
	assert_int_equal(again.classes, conf.classes);
	assert_int_equal(again.growth, conf.growth);
	assert_int_equal(again.init_channels, conf.init_channels);
	assert_int_equal(again.n_blocks, conf.n_blocks);
	assert_memory_equal(again.block, conf.block, sizeof again.block);
}

/* By its tensors' names and first dimensions, without a note; one layer less is another network. */
static void a_published_network_is_known_by_its_tensors(void **state)
{
	(void)state;
	static const char *const models[] = { "densenet121", "densenet169", "densenet201", "resnet50" };
	static const float zeros[4096];

	for (int m = 0; m < 4; m++) {
		struct net_conf net, conf = { .model = models[m], .image_size = 224, .classes = 14 };
		struct net_plan plan;
		struct checkpoint *c;
		struct error e = { 0 };
		int n = 0;

		assert_int_equal(net_plan_make(&plan, &conf, &e), 0);
		struct tensor *tensors = calloc((size_t)plan.n_params, sizeof *tensors);

		for (int i = 0; i < plan.n_params; i++) {
			const struct net_param *p = &plan.params[i];

			assert_in_range(p->shape[0], 1, 4096);
			tensors[n] = (struct tensor){ .type = TENSOR_F32, .ndim = 1, .shape = { p->shape[0] }, .data = zeros, .bytes = (size_t)p->shape[0] * sizeof *zeros };
			snprintf(tensors[n++].name, sizeof tensors->name, "%s", p->name);
		}
		for (int whole = 1; whole >= 0; whole--) {
			for (int i = 0; i < n && !whole; i++)
				if (strcmp(tensors[i].name, m == 3 ? "layer4.2.conv1.weight" : "features.denseblock4.denselayer16.conv1.weight") == 0)
					tensors[i--] = tensors[--n];
			assert_int_equal(safetensors_write(path, tensors, n, NULL, 0, &e), 0);
			assert_int_equal(checkpoint_open(&c, path, &net, NULL, &e), 0);
			assert_string_equal(net.model, whole ? models[m] : m == 3 ? "resnet" : "densenet");
			assert_int_equal(net.image_size, 224);
			assert_int_equal(net.classes, 14);
			checkpoint_close(c);
		}
		free(tensors);
		net_plan_free(&plan);
	}
}

/* Written and read under torchvision's names; a head of another width starts afresh, nothing else may differ. */
static void residual_networks_come_back_too(void **state)
{
	(void)state;
	struct checkpoint_notes notes;
	struct net_conf conf = { .model = "resnet", .image_size = 32, .classes = 5, .init_channels = 4, .n_blocks = 2, .block = { 2, 1 } }, net;
	struct net_plan plan, again;
	struct model_values out, in;
	struct checkpoint *c;
	struct error e = { 0 };
	int fresh;

	assert_int_equal(net_plan_make(&plan, &conf, &e), 0);
	make_values(&out, &plan, 0);
	assert_int_equal(checkpoint_write(path, &plan, &out, &example, &e), 0);
	assert_int_equal(checkpoint_open(&c, path, &net, &notes, &e), 0);
	assert_string_equal(net.model, "resnet");
	assert_true(notes.unnamed); /* five outputs are not the findings */
	assert_int_equal(net_plan_make(&again, &net, &e), 0);
	assert_int_equal(again.n_weights, plan.n_weights);
	assert_int_equal(model_values_alloc(&in, &again, 0, &e), 0);
	assert_int_equal(checkpoint_load(c, &again, &in, NULL, &e), 0);
	assert_memory_equal(in.params, out.params, plan.n_weights * 4);
	assert_memory_equal(in.mean, out.mean, plan.n_bn_channels * 4);
	model_values_free(&in);
	net_plan_free(&again);

	net.classes = 3;
	assert_int_equal(net_plan_make(&again, &net, &e), 0);
	assert_int_equal(model_values_alloc(&in, &again, 0, &e), 0);
	assert_int_equal(checkpoint_load(c, &again, &in, &fresh, &e), 0);
	assert_int_equal(fresh, 1);
	assert_int_equal(checkpoint_load(c, &again, &in, NULL, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "fc."));
	model_values_free(&in);
	model_values_free(&out);
	checkpoint_close(c);
	net_plan_free(&again);
	net_plan_free(&plan);
}

static void without_room_the_old_file_stays_and_nothing_else(void **state)
{
	(void)state;
	struct net_plan plan;
	struct model_values v;
	struct checkpoint_notes notes = example, found;
	struct rlimit old, small;
	struct checkpoint *c;
	struct error e = { 0 };

	make_small_net(&plan, 14);
	make_values(&v, &plan, 1);
	assert_int_equal(checkpoint_write(path, &plan, &v, &notes, &e), 0);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	small = (struct rlimit){ 20000, old.rlim_max };
	setrlimit(RLIMIT_FSIZE, &small);
	notes.step = 9999;
	int rc = checkpoint_write(path, &plan, &v, &notes, &e);

	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(rc, -EXIT_INTERNAL);
	assert_non_null(strstr(e.text, path));
	assert_int_equal(files_in_directory(), 1);
	e = (struct error){ 0 };
	assert_int_equal(checkpoint_open(&c, path, NULL, &found, &e), 0);
	assert_int_equal(found.step, example.step);
	checkpoint_close(c);
	model_values_free(&v);
	net_plan_free(&plan);
}

static void weights_that_went_wrong_are_not_written(void **state)
{
	(void)state;
	struct net_plan plan;
	struct model_values v;
	struct checkpoint_notes notes = example, found;
	struct checkpoint *c;
	struct error e = { 0 };

	make_small_net(&plan, 14);
	make_values(&v, &plan, 1);
	assert_int_equal(checkpoint_write(path, &plan, &v, &notes, &e), 0);
	float *const places[] = { &v.params[0], &v.params[plan.n_weights - 1], &v.variance[0], &v.moment1[3], &v.moment2[plan.n_weights / 2] };

	notes.step = 9999;
	for (int i = 0; i < 5; i++) {
		float before = *places[i];

		*places[i] = i & 1 ? INFINITY : NAN;
		e = (struct error){ 0 };
		assert_int_equal(checkpoint_write(path, &plan, &v, &notes, &e), -EXIT_INTERNAL);
		assert_non_null(strstr(e.text, "no finite number"));
		*places[i] = before;
	}
	assert_int_equal(files_in_directory(), 1);
	e = (struct error){ 0 };
	assert_int_equal(checkpoint_open(&c, path, NULL, &found, &e), 0);
	assert_int_equal(found.step, example.step);
	checkpoint_close(c);
	model_values_free(&v);
	net_plan_free(&plan);
}

/* A size that is noted decides how much memory is asked for. */
static void sizes_beyond_reason_are_refused_by_name(void **state)
{
	(void)state;
	static const int sizes[] = { -7, 5000, 2000000000 };
	struct net_plan plan;
	struct model_values v;

	make_small_net(&plan, 14);
	make_values(&v, &plan, 0);
	for (int i = 0; i < 3; i++) {
		struct checkpoint_notes notes = example;
		struct checkpoint *c;
		struct error e = { 0 };

		notes.source_size = sizes[i];
		assert_int_equal(checkpoint_write(path, &plan, &v, &notes, &e), 0);
		assert_int_equal(checkpoint_open(&c, path, NULL, NULL, &e), -EXIT_DATA);
		assert_non_null(strstr(e.text, "its source_size is \""));
	}
	model_values_free(&v);
	net_plan_free(&plan);
	static const struct {
		const char *key, *value;
		int good;
	} notes[] = { { "image_size", "0", 0 }, { "image_size", "1", 1 }, { "image_size", "4096", 1 }, { "image_size", "4097", 0 }, { "source_size", "0", 1 } };

	for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
		struct error e = { 0 };

		assert_int_equal(open_with_note(notes[i].key, notes[i].value, NULL, &e), notes[i].good ? 0 : -EXIT_DATA);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(everything_comes_back, empty_directory),
		cmocka_unit_test_teardown(weights_have_a_hash_of_their_own_whichever_file_holds_them, empty_directory),
		cmocka_unit_test_teardown(what_is_known_of_a_leak_comes_back, empty_directory),
		cmocka_unit_test_teardown(a_leak_of_an_earlier_version_is_not_checked, empty_directory),
		cmocka_unit_test_teardown(what_another_program_does_not_note_is_not_known, empty_directory),
		cmocka_unit_test_teardown(what_foreign_weights_note_tells_a_terminal_nothing, empty_directory),
		cmocka_unit_test_teardown(notes_that_are_no_numbers_are_refused_by_name, empty_directory),
		cmocka_unit_test_teardown(a_plain_model_carries_torchvisions_names_only, empty_directory),
		cmocka_unit_test_teardown(another_classifier_is_an_error_or_a_fresh_head, empty_directory),
		cmocka_unit_test_teardown(what_lacks_a_part_of_a_network_is_none, empty_directory),
		cmocka_unit_test_teardown(a_network_that_there_cannot_be_is_refused_with_its_file, empty_directory),
		cmocka_unit_test_teardown(findings_in_another_order_are_refused, empty_directory),
		cmocka_unit_test_teardown(a_tensor_too_few_one_too_many_and_one_of_another_shape_are_named, empty_directory),
		cmocka_unit_test_teardown(a_published_network_is_known_by_its_tensors, empty_directory),
		cmocka_unit_test(a_noted_network_is_the_one_that_was_asked_for), cmocka_unit_test_teardown(residual_networks_come_back_too, empty_directory),
		cmocka_unit_test_teardown(without_room_the_old_file_stays_and_nothing_else, empty_directory),
		cmocka_unit_test_teardown(weights_that_went_wrong_are_not_written, empty_directory),
		cmocka_unit_test_teardown(sizes_beyond_reason_are_refused_by_name, empty_directory),
	};
	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
