/* SPDX-License-Identifier: Apache-2.0
 * Files that cross to other programs, as those programs have read and written them. tests/golden/torchvision-*.safetensors and
 * interchange.json are PyTorch's (tests/compat/interchange.py), golden.tfevents is one that TensorBoard has read
 * (tests/compat/results.py); with TEST_GOLDEN_EVENTS=FILE this program writes it. */
#include "tests/unit/scratch.h"

#include <cjson/cJSON.h>
#include <math.h>

#include "data/findings.h"
#include "engine/engine.h"
#include "files/file.h"
#include "learn/checkpoint.h"
#include "learn/events.h"
#include "learn/safetensors.h"

enum { SIZE = 64 };

/* ---- models --------------------------------------------------------------------------------------------- */

static void open_model(const char *path, struct checkpoint **c, struct net_plan *plan, struct model_values *values, int classes, int *fresh)
{
	struct net_conf net;
	struct error e = { 0 };

	checkpoint_open(c, path, &net, NULL, &e);
	assert_string_equal(e.text, "");
	net.image_size = SIZE;
	net.classes = classes ? classes : net.classes;
	assert_int_equal(net_plan_make(plan, &net, &e), 0);
	assert_int_equal(model_values_alloc(values, plan, 0, &e), 0);
	checkpoint_load(*c, plan, values, fresh, &e);
	assert_string_equal(e.text, "");
}

static void close_model(struct checkpoint *c, struct net_plan *plan, struct model_values *values)
{
	checkpoint_close(c);
	model_values_free(values);
	net_plan_free(plan);
}

/* What interchange.py computes too. */
static uint8_t pixel(uint64_t i)
{
	return (uint8_t)(i * 2654435761u >> 13);
}

static void evaluate(const struct net_plan *plan, const struct model_values *v, float logits[FINDINGS])
{
	struct engine_layout layout;
	struct engine *engine;
	struct error e = { 0 };
	static uint8_t pixels[SIZE * SIZE];
	uint64_t token;

	for (size_t i = 0; i < sizeof pixels; i++)
		pixels[i] = pixel(i);
	assert_int_equal(engine_layout_make(&layout, plan, &e), 0);
	struct engine_conf conf = { .plan = plan, .layout = &layout, .precision = PRECISION_FP64, .batch = 1, .channels = 1, .source_size = SIZE, .threads = 1 };

	engine_open(&engine, ENGINE_REFERENCE, &conf, &e);
	assert_string_equal(e.text, "");
	engine_put(engine, ENGINE_PARAMS, 0, v->params, plan->n_weights);
	engine_put(engine, ENGINE_RUNNING_MEAN, 0, v->mean, plan->n_bn_channels);
	engine_put(engine, ENGINE_RUNNING_VAR, 0, v->variance, plan->n_bn_channels);
	struct engine_batch batch = { .count = 1, .pixels = pixels };

	assert_int_equal(engine_forward(engine, &batch, logits, NULL, &token), 0);
	assert_int_equal(engine_done(engine, token, 1), 1);
	engine_close(engine);
	engine_layout_free(&layout);
}

static void check_logits(const char *model, const char *key)
{
	struct checkpoint *c;
	struct net_plan plan;
	struct model_values v;
	struct mapped_file file;
	struct error e = { 0 };
	float logits[FINDINGS];

	open_model(model, &c, &plan, &v, 0, NULL);
	assert_int_equal(plan.classes, FINDINGS);
	evaluate(&plan, &v, logits);
	assert_int_equal(file_map(&file, "tests/golden/interchange.json", &e), 0);
	cJSON *json = cJSON_ParseWithLength((const char *)file.data, file.size);
	const cJSON *theirs = cJSON_GetObjectItem(json, key);

	assert_int_equal(cJSON_GetArraySize(theirs), FINDINGS);
	for (int f = 0; f < FINDINGS; f++)
		assert_close(logits[f], cJSON_GetArrayItem(theirs, f)->valuedouble, 1e-6);
	cJSON_Delete(json);
	file_unmap(&file);
	close_model(c, &plan, &v);
}

static void a_model_that_pytorch_wrote_gives_pytorch_s_logits(void **state)
{
	(void)state;
	check_logits("tests/golden/torchvision-14.safetensors", "logits");
	check_logits("tests/golden/torchvision-resnet.safetensors", "resnet_logits");
}

static void a_head_of_1000_outputs_gives_way_to_ours_and_the_rest_is_taken(void **state)
{
	(void)state;
	struct checkpoint *c[2];
	struct net_plan plan[2];
	struct model_values v[2];
	int fresh[2];

	open_model("tests/golden/torchvision-14.safetensors", &c[0], &plan[0], &v[0], FINDINGS, &fresh[0]);
	open_model("tests/golden/torchvision-1000.safetensors", &c[1], &plan[1], &v[1], FINDINGS, &fresh[1]);
	assert_false(fresh[0]);
	assert_true(fresh[1]);
	const struct net_param *head = &plan[0].params[net_param_find(&plan[0], "classifier.weight")];

	assert_memory_equal(v[0].params, v[1].params, head->offset * sizeof(float)); /* both files have the same trunk */
	assert_memory_equal(v[0].variance, v[1].variance, plan[0].n_bn_channels * sizeof(float));
	for (size_t i = 0; i < head->count; i++)
		assert_close(v[1].params[head->offset + i], 0, 0);
	for (int i = 0; i < 2; i++)
		close_model(c[i], &plan[i], &v[i]);
}

/* A file that PyTorch wrote, read and written again: the same tensors with the same bytes, so PyTorch takes it back. */
static void check_rewritten(const char *golden)
{
	struct checkpoint *c;
	struct net_plan plan;
	struct model_values v;
	struct checkpoint_notes notes = { .step = 3 };
	struct safetensors *theirs, *ours;
	struct error e = { 0 };
	const char *path = scratch_path("model.safetensors");

	open_model(golden, &c, &plan, &v, 0, NULL);
	assert_int_equal(checkpoint_write(path, &plan, &v, &notes, &e), 0);
	assert_int_equal(safetensors_open(&theirs, golden, &e), 0);
	assert_int_equal(safetensors_open(&ours, path, &e), 0);
	assert_int_equal(safetensors_count(ours), safetensors_count(theirs));
	for (int i = 0; i < safetensors_count(theirs); i++) {
		const struct tensor *a = safetensors_at(theirs, i), *b = safetensors_find(ours, a->name);

		assert_non_null(b);
		assert_int_equal(a->type, b->type);
		assert_int_equal(a->ndim, b->ndim);
		assert_memory_equal(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]);
		assert_memory_equal(a->data, b->data, a->bytes); /* num_batches_tracked is 3 there, too */
	}
	assert_string_equal(safetensors_note(ours, "format"), safetensors_note(theirs, "format"));
	safetensors_close(theirs);
	safetensors_close(ours);
	close_model(c, &plan, &v);
}

/* `name` with a prefix before it, as programs of 2017 wrote it: "norm1" of a dense layer was "norm.1", and a sigmoid came after the classifier. */
static void spell_as_in_2017(struct tensor *t, const char *prefix, const char *name)
{
	static const char *const spelled[][2] = { { ".norm1.", ".norm.1." }, { ".norm2.", ".norm.2." }, { ".conv1.", ".conv.1." }, { ".conv2.", ".conv.2." },
						  { "classifier.", "classifier.0." } };
	snprintf(t->name, sizeof t->name, "%s%s", prefix, name);
	for (int k = 0; k < 5; k++) {
		const char *at = strstr(name, spelled[k][0]);

		if (at)
			snprintf(t->name, sizeof t->name, "%s%.*s%s%s", prefix, (int)(at - name), name, spelled[k][1], at + strlen(spelled[k][0]));
	}
}

/* The state of a model inside others and of early programs, and of one of whose tensors only some carry such a name. */
static void names_of_wrapped_and_of_early_models_are_those_of_the_model(void **state)
{
	static struct tensor tensors[400];
	static const char golden[] = "tests/golden/torchvision-14.safetensors";
	static const char *const prefixes[] = { "module.", "_orig_mod.module.", "module.densenet121.", "", "module.densenet121." };
	struct safetensors *theirs;
	struct checkpoint *c;
	struct error e = { 0 };
	const char *path = scratch_path("wrapped.safetensors");

	(void)state;
	assert_int_equal(safetensors_open(&theirs, golden, &e), 0);
	int n = safetensors_count(theirs);

	assert_in_range(n, 1, 400);
	for (int k = 0; k < 5; k++) {
		for (int i = 0; i < n; i++) {
			tensors[i] = *safetensors_at(theirs, i);
			if (k < 3)
				snprintf(tensors[i].name, sizeof tensors[i].name, "%s%s", prefixes[k], safetensors_at(theirs, i)->name);
			else
				spell_as_in_2017(&tensors[i], prefixes[k], safetensors_at(theirs, i)->name);
		}
		assert_int_equal(safetensors_write(path, tensors, n, NULL, 0, &e), 0);
		check_logits(path, "logits");
	}
	tensors[n - 1] = *safetensors_at(theirs, n - 1);
	assert_int_equal(safetensors_write(path, tensors, n, NULL, 0, &e), 0);
	assert_int_equal(checkpoint_open(&c, path, NULL, NULL, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "neither a DenseNet"));
	safetensors_close(theirs);
}

static void what_we_write_is_what_pytorch_wrote(void **state)
{
	(void)state;
	check_rewritten("tests/golden/torchvision-14.safetensors");
	check_rewritten("tests/golden/torchvision-resnet.safetensors");
}

/* ---- events --------------------------------------------------------------------------------------------- */

/* results.py knows these values. */
static void write_events(char path[FILE_PATH])
{
	static const uint8_t png[] = { /* one gray pixel of 128 */
		0x89, 'P', 'N', 'G', 13, 10, 26, 10, 0, 0, 0, 13, 'I', 'H', 'D', 'R', 0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55,
		0, 0, 0, 10, 'I', 'D', 'A', 'T', 0x78, 0x9c, 0x63, 0x68, 0, 0, 0, 0x82, 0, 0x81, 0x77, 0xcd, 0x72, 0xb6, 0, 0, 0, 0, 'I', 'E', 'N', 'D',
		0xae, 0x42, 0x60, 0x82,
	};
	static const float logits[] = { -3, -2, -1, 0, 1, 2, 3, 4 };
	static const uint8_t positive[] = { 0, 0, 1, 0, 1, 0, 1, 1 };
	struct events *ev;
	struct error e = { 0 };

	assert_int_equal(events_open(&ev, scratch_path("events"), &e), 0);
	snprintf(path, FILE_PATH, "%s", events_path(ev));
	events_at(ev, 1700000000.5);
	for (int step = 0; step < 3; step++)
		assert_int_equal(events_scalar(ev, "loss/train", step * 100, 0.75f / (float)(step + 1), &e), 0);
	assert_int_equal(events_image(ev, "map/Effusion", 200, png, sizeof png, 1, 1, 1, &e), 0);
	assert_int_equal(events_pr_curve(ev, "precision_recall/Effusion", 200, logits, positive, 8, &e), 0);
	events_close(ev);
}

/* Every byte but the time of opening in the first record, and that record's checksum. */
static void events_are_those_that_tensorboard_has_read(void **state)
{
	(void)state;
	enum { HEAD = 12, TIME = 9, VERSION_RECORD = HEAD + TIME + 15 + 4 };
	struct mapped_file golden, ours;
	struct error e = { 0 };
	char path[FILE_PATH];

	write_events(path);
	assert_int_equal(file_map(&ours, path, &e), 0);
	assert_int_equal(file_map(&golden, "tests/golden/golden.tfevents", &e), 0);
	assert_int_equal(ours.size, golden.size);
	assert_memory_equal(ours.data, golden.data, HEAD + 1); /* length, its checksum, the key of the time */
	assert_memory_equal(ours.data + HEAD + TIME, golden.data + HEAD + TIME, 15);
	assert_memory_equal(ours.data + VERSION_RECORD, golden.data + VERSION_RECORD, golden.size - VERSION_RECORD);
	file_unmap(&ours);
	file_unmap(&golden);
}

static int write_golden_events(const char *to)
{
	char path[FILE_PATH];

	scratch_make(NULL);
	write_events(path);
	int rc = rename(path, to);

	scratch_remove(NULL);
	return rc != 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_model_that_pytorch_wrote_gives_pytorch_s_logits),
		cmocka_unit_test(a_head_of_1000_outputs_gives_way_to_ours_and_the_rest_is_taken),
		cmocka_unit_test(names_of_wrapped_and_of_early_models_are_those_of_the_model),
		cmocka_unit_test(what_we_write_is_what_pytorch_wrote),
		cmocka_unit_test(events_are_those_that_tensorboard_has_read),
	};
	const char *golden = getenv("TEST_GOLDEN_EVENTS");

	return golden ? write_golden_events(golden) : cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
