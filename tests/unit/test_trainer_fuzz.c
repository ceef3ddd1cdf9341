/* SPDX-License-Identifier: Apache-2.0
 * Every parser of foreign bytes that the trainer has, on mutated input: no crash, no hang, no leak (with SAN=1), and errors that say something.
 *
 *   TEST_FUZZ_SECONDS=600  how long each parser is fed; 0.4 s unless told
 *   TEST_SEED=N            another sequence
 *   TEST_FUZZ_ONLY=masks   one of them; * and ? stand for others */
#include <libdeflate.h>
#include <turbojpeg.h>

#include "data/example.h"
#include "data/label_mask.h"
#include "data/manifest.h"
#include "data/nih.h"
#include "data/packed.h"
#include "data/source.h"
#include "files/crc32c.h"
#include "files/csv.h"
#include "files/tfrecord.h"
#include "fuzzing.h"
#include "image/image.h"
#include "learn/cam.h"
#include "learn/checkpoint.h"
#include "learn/pointing_read.h"
#include "learn/predictions.h"
#include "learn/safetensors.h"
#include "learn/train_log.h"
#include "net/plan.h"
#include "prepare/origin.h"

static struct input example_input(void)
{
	struct example x = { .height = 8, .width = 8, .patient = 1, .n_label = FINDINGS, .n_known = FINDINGS, .n_name = FINDINGS };
	struct bytes b = { 0 };
	x.encoded = (struct span){ (const uint8_t *)"picture", 7 };
	x.filename = (struct span){ (const uint8_t *)"00000001_000.png", 16 };
	x.format = (struct span){ (const uint8_t *)"png", 3 };
	for (int f = 0; f < FINDINGS; f++)
		x.name[f] = (struct span){ (const uint8_t *)finding_names[f], strlen(finding_names[f]) };
	assert_int_equal(example_write(&b, &x), 0);
	return (struct input){ b.data, b.size };
}

static void parse_example(const uint8_t *data, size_t size)
{
	struct example x;
	struct error e = { 0 };
	uint32_t labels, known;
	int rc = example_parse(data, size, &x, &e);
	if (rc == 0)
		rc = example_labels(&x, NULL, &labels, &known, &e);
	if (rc == 0)
		assert_int_equal((labels | known) >> FINDINGS, 0);
	if (rc < 0)
		assert_true(e.code == EXIT_DATA && e.text[0]);
}

static void examples(void **state)
{
	(void)state;
	struct input in = example_input();
	feed("example", &in, 1, parse_example);
	free(in.data);
}

static void parse_records(const uint8_t *data, size_t size)
{
	struct tfrecord r;
	struct error e = { 0 };
	size_t at = 0;
	int rc;
	while ((rc = tfrecord_at(data, size, at, &r, &e)) > 0) {
		assert_true(r.next > at && r.next <= size);
		at = r.next;
	}
	says_why(rc, &e);
}

static void records(void **state)
{
	(void)state;
	struct tfrecord_writer w;
	struct error e = { 0 };
	struct input in;
	char *text;
	assert_int_equal(tfrecord_create(&w, scratch_path("records"), &e), 0);
	for (int i = 0; i < 5; i++)
		tfrecord_append(&w, "some bytes of a record", (size_t)(4 * i + 3), &e);
	assert_int_equal(tfrecord_commit(&w, &e), 0);
	assert_int_equal(file_read(&text, &in.size, scratch_path("records"), &e), 0);
	in.data = (uint8_t *)text;
	feed("records", &in, 1, parse_records);
	free(text);
}

static void put_crc(uint8_t *to, const uint8_t *data, size_t size)
{
	uint32_t crc = crc32c_mask(crc32c(0, data, size));
	for (int k = 0; k < 4; k++)
		to[k] = (uint8_t)(crc >> 8 * k);
}

/* Makes the CRCs of all records right again. */
static void mend_records(uint8_t *data, size_t size)
{
	for (size_t at = 0; size - at >= TFRECORD_HEADER + TFRECORD_FOOTER;) {
		uint64_t length;
		memcpy(&length, data + at, 8);
		put_crc(data + at + 8, data + at, 8);
		if (length > size - at - TFRECORD_HEADER - TFRECORD_FOOTER)
			return;
		put_crc(data + at + TFRECORD_HEADER + length, data + at + TFRECORD_HEADER, length);
		at += TFRECORD_HEADER + length + TFRECORD_FOOTER;
	}
}

/* Another program's, as one file of a training split. */
static void parse_foreign(const uint8_t *data, size_t size)
{
	uint8_t *mended = malloc(size + 1);
	struct origin o;
	struct error e = { 0 };
	memcpy(mended, data, size);
	mend_records(mended, size);
	memory_file(mended, size);
	free(mended);
	int rc = origin_tfrecord(&o, scratch_path("foreign"), LABELS_DELL, NULL, NULL, &e);
	says_why(rc, &e);
	for (size_t i = 0; rc == 0 && i < o.count; i++)
		assert_true(o.samples[i].labels >> FINDINGS == 0 && o.split[i] == SPLIT_TRAIN && strlen(o.samples[i].id) < SAMPLE_ID);
	if (rc == 0)
		origin_close(&o);
}

static void foreign(void **state)
{
	(void)state;
	static const char *const names[] = { "a/00000001_000.png", "b/00000001_000.png", "patient7/view1.jpg" };
	struct tfrecord_writer w;
	struct error e = { 0 };
	struct input in;
	char *text;
	assert_int_equal(tfrecord_create(&w, scratch_path("foreign-records"), &e), 0);
	for (int i = 0; i < 3; i++) {
		struct example x = { .height = 8, .width = 8, .patient = i < 2 ? 1 : 7, .n_label = FINDINGS, .format = { (const uint8_t *)"png", 3 } };
		struct bytes b = { 0 };
		x.encoded = (struct span){ (const uint8_t *)"picture", 7 };
		x.filename = (struct span){ (const uint8_t *)names[i], strlen(names[i]) };
		assert_int_equal(example_write(&b, &x), 0);
		assert_int_equal(tfrecord_append(&w, b.data, b.size, &e), 0);
		free(b.data);
	}
	assert_int_equal(tfrecord_commit(&w, &e), 0);
	assert_int_equal(file_read(&text, &in.size, scratch_path("foreign-records"), &e), 0);
	in.data = (uint8_t *)text;
	assert_int_equal(mkdir(scratch_path("foreign"), 0777), 0);
	assert_int_equal(symlink(memory_file(in.data, in.size), scratch_path("foreign/train-00000-of-00001")), 0);
	parse_foreign(in.data, in.size);
	feed("foreign", &in, 1, parse_foreign);
	free(text);
}

static struct decoder *decoder;

/* Makes the CRCs of all chunks right again, so that the damage reaches what is behind them. */
static void mend_png(uint8_t *data, size_t size)
{
	if (size < 8 || memcmp(data, "\x89PNG", 4) != 0)
		return;
	for (size_t at = 8; at + 12 <= size;) {
		size_t length = (size_t)data[at] << 24 | (size_t)data[at + 1] << 16 | (size_t)data[at + 2] << 8 | data[at + 3];
		if (length > size - at - 12)
			return;
		uint32_t crc = libdeflate_crc32(0, data + at + 4, length + 4);
		for (int i = 0; i < 4; i++)
			data[at + 8 + length + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
		at += 12 + length;
	}
}

static void parse_image(const uint8_t *data, size_t size)
{
	struct image image;
	struct error e = { 0 };
	uint8_t *mended = malloc(size + 1);
	says_why(decode_image(decoder, data, size, &image, &e), &e);
	memcpy(mended, data, size);
	mend_png(mended, size);
	e.code = 0;
	int rc = decode_image(decoder, mended, size, &image, &e);
	if (rc == 0) {
		volatile uint8_t last = image.pixels[(size_t)image.width * (size_t)image.height - 1];
		(void)last;
	}
	says_why(rc, &e);
	free(mended);
}

/* With a chunk or segment put in. */
static struct input with(const struct input *from, size_t at, const void *what, size_t size)
{
	struct input in = { malloc(from->size + size), from->size + size };
	memcpy(in.data, from->data, at);
	memcpy(in.data + at, what, size);
	memcpy(in.data + at + size, from->data + at, from->size - at);
	return in;
}

static void images(void **state)
{
	(void)state;
	enum { WIDTH = 40, HEIGHT = 72, BEHIND_IHDR = 33 }; /* enough rows for every way of decoding: 16 at once in PNG, 8 stretches of JPEG */
	static const uint8_t exif[] = "\xFF\xE1\0\x22" "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x01\0\0\0\0\0\0"; /* orientation 1 */
	uint8_t pixels[WIDTH * HEIGHT], rgb[WIDTH * HEIGHT * 3], palette[12 + 768] = { 0, 0, 3, 0, 'P', 'L', 'T', 'E' }, chunk[12 + 26] = { 0, 0, 0, 26, 'e', 'X', 'I', 'f' };
	struct input in[8];
	for (int i = 0; i < WIDTH * HEIGHT; i++) {
		pixels[i] = (uint8_t)(i * 5 + i / 24);
		memset(rgb + 3 * i, pixels[i], 3);
	}
	for (int i = 0; i < 768; i++)
		palette[8 + i] = (uint8_t)(i / 3);
	memcpy(chunk + 8, exif + 10, 26);
	in[0].data = encode_png(pixels, WIDTH, HEIGHT, 1, &in[0].size);
	in[1].data = encode_png(pixels, WIDTH, HEIGHT, 4, &in[1].size);
	in[2].data = encode_jpeg(pixels, WIDTH, HEIGHT, 90, &in[2].size);
	in[3] = with(&in[0], BEHIND_IHDR, chunk, sizeof chunk);
	in[3].data[19] = WIDTH / 2; /* of 16 bits as many bytes */
	in[3].data[24] = 16;
	in[4] = with(&in[0], BEHIND_IHDR, palette, sizeof palette);
	in[4].data[25] = 3;
	in[5] = with(&in[2], 2, exif, 36);
	tjhandle compress = tjInitCompress();
	unsigned char *colour = NULL;
	unsigned long length = 0;
	assert_int_equal(tjCompress2(compress, rgb, WIDTH, 0, HEIGHT, TJPF_RGB, &colour, &length, TJSAMP_420, 90, TJFLAG_PROGRESSIVE), 0);
	in[6] = (struct input){ colour, length };
	in[7] = with(&in[6], 2, exif, 36);
	decoder = decoder_new();
	for (int i = 0; i < 8; i++) {
		struct image image;
		struct error e = { 0 };
		mend_png(in[i].data, in[i].size);
		if (decode_image(decoder, in[i].data, in[i].size, &image, &e))
			fail_msg("example %d: %s", i, e.text);
	}
	feed("images", in, 8, parse_image);
	decoder_free(decoder);
	for (int i = 0; i < 8; i++)
		if (i != 6)
			free(in[i].data);
	tjFree(colour);
	tjDestroy(compress);
}

static void parse_map(const uint8_t *data, size_t size)
{
	uint8_t *mended = malloc(size + 1);
	struct cam_about about;
	memcpy(mended, data, size);
	mend_png(mended, size);
	int rc = cam_read_about(mended, size, &about);
	assert_in_range(rc, 0, 1);
	if (rc)
		assert_true(about.finding >= 0 && about.finding < FINDINGS && about.probability >= 0 && about.probability <= 1 && about.raised >= 0 && about.side > 0);
	free(mended);
}

static void maps(void **state)
{
	(void)state;
	struct cam_about about = { .finding = 3, .probability = 0.25, .raised = 1.5, .side = 7, .window = { 1024, 1000, 64, 50, 896, 900 },
				   .weights_hash = "0123456789abcdef", .image_hash = "fedcba9876543210" };
	uint8_t rgb[8 * 8 * 3] = { 0 };
	struct error e = { 0 };
	struct input in;
	char *text;
	assert_int_equal(cam_write_png(scratch_path("map.png"), rgb, 8, &about, &e), 0);
	assert_int_equal(file_read(&text, &in.size, scratch_path("map.png"), &e), 0);
	in.data = (uint8_t *)text;
	assert_int_equal(cam_read_about(in.data, in.size, &about), 1);
	feed("maps", &in, 1, parse_map);
	free(text);
}

static void parse_table(const uint8_t *data, size_t size)
{
	struct nih n;
	struct error e = { 0 };
	int rc = nih_open_tables(&n, memory_file(data, size), NULL, NULL, &e);
	says_why(rc, &e);
	if (rc == 0)
		nih_close(&n);
}

static void tables(void **state)
{
	(void)state;
	static char text[2][512] = {
		"Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,OriginalImage[Width,Height],"
		"OriginalImagePixelSpacing[x,y]\n00000001_000.png,Cardiomegaly|Mass,0,1,57,M,PA,2682,2749,0.143,0.143\n"
		"00000002_000.png,No Finding,0,2,58,F,AP,2682,2749,0.143,0.143\n",
		"\xef\xbb\xbf\"Image Index\",\"Note, \"\"quoted\"\"\",Finding Labels,Patient ID\r\n00000001_000.png,\"a\nb\",Hernia,1\r\n",
	};
	struct input in[2] = { { (uint8_t *)text[0], strlen(text[0]) }, { (uint8_t *)text[1], strlen(text[1]) } };
	feed("tables", in, 2, parse_table);
}

static struct nih six; /* a good table of six images */

static void open_six(void)
{
	static const char table[] = "Image Index,Finding Labels,Patient ID\n00000001_000.png,Cardiomegaly|Mass,1\n00000001_001.png,No Finding,1\n"
				    "00000002_000.png,No Finding,2\n00000003_000.png,Hernia,3\n00000003_001.png,Edema,3\n00000003_002.png,Edema|PT,3\n";
	struct error e = { 0 };
	scratch_write(scratch_path("six.csv"), table, sizeof table - 1);
	assert_int_equal(nih_open_tables(&six, scratch_path("six.csv"), NULL, NULL, &e), 0);
}

/* The mutated list stands where either of NIH's may; the other is good. */
static void parse_list(const uint8_t *data, size_t size)
{
	static int other;
	const char *good = scratch_path("good.txt"), *bad = memory_file(data, size);
	struct nih n;
	struct error e = { 0 };
	other = !other;
	int rc = nih_open_tables(&n, scratch_path("six.csv"), other ? good : bad, other ? bad : good, &e);
	says_why(rc, &e);
	if (rc)
		return;
	for (size_t i = 0; i < n.count; i++)
		assert_in_range(n.images[i].list, NIH_UNLISTED, NIH_TEST);
	nih_close(&n);
}

static void lists(void **state)
{
	(void)state;
	static char text[2][200] = { "00000001_000.png\n00000001_001.png\n00000002_000.png\n", "\xef\xbb\xbf" "00000001_000.png\r\n\r\n00000002_000.png" };
	struct input in[2] = { { (uint8_t *)text[0], strlen(text[0]) }, { (uint8_t *)text[1], strlen(text[1]) } };
	open_six();
	scratch_write(scratch_path("good.txt"), "00000003_000.png\n00000003_001.png\n", 34);
	parse_list(in[0].data, in[0].size);
	feed("lists", in, 2, parse_list);
	nih_close(&six);
}

static void parse_division(const uint8_t *data, size_t size)
{
	struct error e = { 0 };
	uint8_t split[6];
	int rc = nih_divide_file(&six, memory_file(data, size), split, &e);
	says_why(rc, &e);
	for (size_t i = 0; rc == 0 && i < six.count; i++)
		assert_in_range(split[i], SPLIT_TRAIN, SPLIT_NONE);
}

static void divisions(void **state)
{
	(void)state;
	static char text[2][200] = { "00000001_000.png,train\n00000001_001.png,train\n00000002_000.png,val\n00000003_000.png,test\n",
				     "\"00000001_000.png\",\"val\"\r\n00000003_002.png,test" };
	struct input in[2] = { { (uint8_t *)text[0], strlen(text[0]) }, { (uint8_t *)text[1], strlen(text[1]) } };
	open_six();
	uint8_t split[6];
	struct error e = { 0 };
	assert_int_equal(nih_divide_file(&six, memory_file(in[1].data, in[1].size), split, &e), 0);
	feed("divisions", in, 2, parse_division);
	nih_close(&six);
}

static void parse_mask(const uint8_t *data, size_t size)
{
	char name[80];
	struct label_mask m;
	struct error e = { 0 };
	snprintf(name, sizeof name, "file:%s", memory_file(data, size));
	int rc = label_mask_read(&m, name, &e);
	says_why(rc, &e);
	if (rc)
		return;
	for (size_t i = 0; i < m.n; i++)
		assert_true(m.rows[i].findings && m.rows[i].findings >> FINDINGS == 0 && memchr(m.rows[i].id, '\0', SAMPLE_ID));
	label_mask_free(&m);
}

static void masks(void **state)
{
	(void)state;
	static char text[] = "00000001_000.png,Mass|Hernia\n00000001_001.png,All\r\n\"00000002_000.png\",Pleural Thickening\n";
	struct input in = { (uint8_t *)text, strlen(text) };
	feed("masks", &in, 1, parse_mask);
}

static void parse_predictions(const uint8_t *data, size_t size)
{
	struct predictions p;
	struct error e = { 0 };
	says_why(predictions_read(&p, memory_file(data, size), &e), &e);
	predictions_free(&p);
}

static void predictions(void **state)
{
	(void)state;
	struct sample samples[3] = { { "00000001_000.png", 1, 5, 0x3FFF }, { "00000002_000.png", 2, 0, 0x3FFE }, { "00000003_000.png", 3, 0x2000, 0x3FFF } };
	float logits[3 * FINDINGS];
	struct predictions p = { .n = 3, .samples = samples, .logits = logits, .has_patients = 1, .about = { .model = "densenet121", .split = "test", .command = "chexnet eval --crops=ten", .has_oracle = 1 } };
	struct error e = { 0 };
	struct input in;
	char *text;
	for (int i = 0; i < 3 * FINDINGS; i++)
		logits[i] = (float)i / 7 - 3;
	assert_int_equal(predictions_write(scratch_path("p.csv"), &p, &e), 0);
	assert_int_equal(file_read(&text, &in.size, scratch_path("p.csv"), &e), 0);
	in.data = (uint8_t *)text;
	feed("predictions", &in, 1, parse_predictions);
	free(text);
}

static void parse_boxes(const uint8_t *data, size_t size)
{
	struct boxes b;
	struct error e = { 0 };
	says_why(boxes_read(&b, memory_file(data, size), &e), &e);
	boxes_free(&b);
}

static void boxes(void **state)
{
	(void)state;
	static char text[] = "Image Index,Finding Label,Bbox [x,y,w,h],,,\n00000001_000.png,Mass,225.1,547,86.7,79.2,,,\n00000002_000.png,Infiltrate,6,5,4,3e1\n";
	struct input in = { (uint8_t *)text, strlen(text) };
	feed("boxes", &in, 1, parse_boxes);
}

static void parse_pointing(const uint8_t *data, size_t size)
{
	struct pointing_file p;
	struct pointing_table t;
	struct error e = { 0 };
	int rc = pointing_read(&p, memory_file(data, size), &e);

	says_why(rc, &e);
	if (rc == 0) {
		assert_int_equal(pointing_judge(&p.pointing, 3, 1, &t), 0);
		assert_true(t.all.maps >= (int)p.images && t.all.hits <= t.all.maps);
	}
	pointing_file_free(&p);
}

static void pointings(void **state)
{
	(void)state;
	static char text[] = "[{\"image\":\"a/00000001_000.png\",\"weights_hash\":\"0123\",\"pointing\":{\"patient\":1,\"findings\":{\"Mass\":{\"hit\":true,\"chance\":0.25},"
			     "\"Edema\":{\"hit\":false,\"chance\":0}}}},{\"image\":\"b.png\",\"error\":\"no\"},{\"image\":\"c.png\",\"weights_hash\":\"0123\",\"pointing\":"
			     "{\"patient\":null,\"findings\":{\"Hernia\":{\"hit\":false,\"chance\":1}}}}]\n";
	struct input in = { (uint8_t *)text, strlen(text) };
	feed("pointings", &in, 1, parse_pointing);
}

static void parse_log(const uint8_t *data, size_t size)
{
	struct train_log log;
	struct error e = { 0 };
	int rc = train_log_read(&log, memory_file(data, size), &e);
	says_why(rc, &e);
	for (size_t i = 1; rc == 0 && i < log.n_steps; i++)
		assert_true(log.steps[i].step > log.steps[i - 1].step);
	train_log_free(&log);
}

static void logs(void **state)
{
	(void)state;
	static char text[] = "{\"event\":\"start\",\"time\":1.5,\"seed\":7,\"global_batch\":4}\n{\"event\":\"step\",\"step\":1,\"loss\":0.5}\n"
			     "{\"event\":\"eval\",\"split\":\"val\",\"step\":1,\"mean\":{\"auroc\":0.5},\"findings\":{\"Mass\":{\"oracle\":0.9}}}\n"
			     "{\"event\":\"summary\",\"images_per_s\":9}\n{\"event\":\"start\",\"step\":1,\"precision\":\"bf16\"}\n"
			     "{\"event\":\"recovered\",\"ranks\":2}\n{\"event\":\"step\",\"step\":1,\"loss\":1e-3}\n{\"event\":\"end\",\"code\":0}\n";
	struct input in = { (uint8_t *)text, strlen(text) };
	feed("logs", &in, 1, parse_log);
}

/* As a training does that starts from a file: its network, its notes, its tensors. */
static void load_checkpoint(const char *path)
{
	enum { MOST = 100000 };
	struct checkpoint *c;
	struct checkpoint_notes notes;
	struct net_conf net;
	struct net_plan plan = { 0 };
	struct model_values v;
	struct error e = { 0 };
	int fresh;
	int rc = checkpoint_open(&c, path, &net, &notes, &e);
	says_why(rc, &e);
	if (rc)
		return;
	if (net_plan_make(&plan, &net, &e) == 0 && plan.n_weights < MOST) {
		assert_int_equal(model_values_alloc(&v, &plan, checkpoint_resumable(c), &e), 0);
		says_why(checkpoint_load(c, &plan, &v, &fresh, &e), &e);
		model_values_free(&v);
	}
	if (e.code)
		assert_true(strlen(e.text) > 5);
	net_plan_free(&plan);
	checkpoint_close(c);
}

/* Makes the checksum what the error says that it is; 0: that is not what is wrong. */
static int mend_tensors(uint8_t *data, size_t size, const struct error *e)
{
	const char *is = strstr(e->text, "notes and tensors is ");
	uint8_t *noted = is ? memmem(data, size, "\"crc32c\":\"", 10) : NULL;
	if (!noted || noted + 18 > data + size)
		return 0;
	memcpy(noted + 10, is + 21, 8);
	return 1;
}

static void parse_tensors(const uint8_t *data, size_t size)
{
	const char *path = memory_file(data, size);
	uint8_t *mended = malloc(size + 1);
	struct safetensors *f;
	struct error e = { 0 };
	int rc = safetensors_open(&f, path, &e);
	says_why(rc, &e);
	memcpy(mended, data, size);
	if (rc && mend_tensors(mended, size, &e)) {
		memory_file(mended, size);
		e = (struct error){ 0 };
		rc = safetensors_open(&f, path, &e);
		says_why(rc, &e);
	}
	free(mended);
	if (rc)
		return;
	for (int i = 0; i < safetensors_count(f); i++) {
		const struct tensor *t = safetensors_at(f, i);
		float *values = malloc(tensor_elements(t) * sizeof *values + 1);
		assert_true(safetensors_find(f, t->name) == t);
		tensor_to_float(t, values);
		free(values);
	}
	safetensors_close(f);
	load_checkpoint(path);
}

/* Half of a small file is header, so that mutations meet names, types, shapes and offsets as often as numbers. */
static void checkpoints(void **state)
{
	(void)state;
	struct net_conf net = { .model = "densenet", .image_size = 16, .classes = FINDINGS, .growth = 2, .init_channels = 2, .n_blocks = 1, .block = { 1 } };
	struct checkpoint_notes notes = { .seed = 1, .position = 64, .step = 2, .global_batch = 32, .batch = 16, .window = 2 };
	static const uint64_t words[4] = { 1, 2, 3, 4 };
	struct tensor kinds[] = {
		{ .name = "a", .type = TENSOR_F64, .ndim = 2, .shape = { 2, 2 }, .data = words, .bytes = 32 },
		{ .name = "b", .type = TENSOR_BF16, .ndim = 1, .shape = { 4 }, .data = words, .bytes = 8 },
		{ .name = "c", .type = TENSOR_F16, .ndim = 3, .shape = { 1, 2, 2 }, .data = words, .bytes = 8 },
		{ .name = "d", .type = TENSOR_I64, .data = words, .bytes = 8 },
		{ .name = "e", .type = TENSOR_F32, .ndim = 1, .shape = { 0 }, .data = words },
	};
	/* inside another model, and with early names */
	struct tensor others[] = {
		{ .name = "m.features.norm0.norm.1.weight", .type = TENSOR_F32, .ndim = 1, .shape = { 2 }, .data = words, .bytes = 8 },
		{ .name = "m.classifier.0.weight", .type = TENSOR_F32, .ndim = 2, .shape = { 1, 2 }, .data = words, .bytes = 8 },
		{ .name = "m.conv1.weight", .type = TENSOR_F32, .ndim = 4, .shape = { 2, 1, 1, 1 }, .data = words, .bytes = 8 },
		{ .name = "m.layer1.0.conv1.weight", .type = TENSOR_F32, .ndim = 1, .shape = { 2 }, .data = words, .bytes = 8 },
		{ .name = "m.fc.weight", .type = TENSOR_F32, .ndim = 2, .shape = { 2, 1 }, .data = words, .bytes = 8 },
	};
	struct net_plan plan;
	struct model_values v;
	struct error e = { 0 };
	struct input in[4];
	char *text[4];
	assert_int_equal(net_plan_make(&plan, &net, &e), 0);
	for (int moments = 0; moments < 2; moments++) {
		assert_int_equal(model_values_alloc(&v, &plan, moments, &e), 0);
		assert_int_equal(checkpoint_write(scratch_path("%d.safetensors", moments), &plan, &v, &notes, &e), 0);
		model_values_free(&v);
	}
	net_plan_free(&plan);
	assert_int_equal(safetensors_write(scratch_path("2.safetensors"), kinds, 5, NULL, 0, &e), 0);
	assert_int_equal(safetensors_write(scratch_path("3.safetensors"), others, 5, NULL, 0, &e), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(file_read(&text[i], &in[i].size, scratch_path("%d.safetensors", i), &e), 0);
		in[i].data = (uint8_t *)text[i];
		parse_tensors(in[i].data, in[i].size);
	}
	feed("checkpoints", in, 4, parse_tensors);
	for (int i = 0; i < 4; i++)
		free(text[i]);
}

static void parse_manifest(const uint8_t *data, size_t size)
{
	struct manifest m;
	struct error e = { 0 };
	memory_file(data, size);
	int rc = manifest_read(&m, scratch, &e);
	says_why(rc, &e);
	if (rc == 0)
		assert_true(m.size >= 1 && m.size <= IMAGE_MAX_SIDE && m.split[0].shards >= 0);
}

static void manifests(void **state)
{
	(void)state;
	struct manifest m = { .size = 64, .policy = "official", .source = "x", .split = { { 10, 5, 1, 1, { 0.9 } }, { 2, 1, 1, 0, { 0 } }, { 0 } } };
	struct error e = { 0 };
	struct input in;
	char *text;
	assert_int_equal(manifest_write(&m, scratch, &e), 0);
	assert_int_equal(file_read(&text, &in.size, scratch_path("manifest.json"), &e), 0);
	in.data = (uint8_t *)text;
	unlink(scratch_path("manifest.json"));
	assert_int_equal(symlink(memory_file(in.data, in.size), scratch_path("manifest.json")), 0);
	feed("manifests", &in, 1, parse_manifest);
	free(text);
}

/* Makes the CRCs of header and entries right again. */
static void mend_packed(uint8_t *data, size_t size)
{
	enum { HEADER = 384, ENTRIES = 3 * 32 };
	const size_t from[] = { 0, HEADER }, to[] = { HEADER - 4, HEADER + ENTRIES };
	for (int i = 0; i < 2 && to[i] + 4 <= size; i++) {
		uint32_t crc = crc32c(0, data + from[i], to[i] - from[i]);
		for (int k = 0; k < 4; k++)
			data[to[i] + (size_t)k] = (uint8_t)(crc >> 8 * k);
	}
}

static void read_packed(const uint8_t *data, size_t size)
{
	struct dataset *d = calloc(1, sizeof *d);
	struct error e = { 0 };
	struct dataset_scratch none = { 0 };
	uint8_t pixels[64];
	d->size = 8;
	int rc = packed_open(d, memory_file(data, size), SPLIT_VAL, 3, 8, 77, &e);
	for (size_t i = 0; !rc && i < 3; i++)
		rc = dataset_read(d, i, &none, pixels, &e);
	says_why(rc, &e);
	for (size_t i = 0; d->shards && i < 3; i++)
		assert_int_equal((d->samples[i].labels | d->samples[i].known) >> FINDINGS, 0);
	dataset_close(d);
}

static void parse_packed(const uint8_t *data, size_t size)
{
	uint8_t *mended = malloc(size + 1);
	read_packed(data, size);
	memcpy(mended, data, size);
	mend_packed(mended, size);
	read_packed(mended, size);
	free(mended);
}

static void packed(void **state)
{
	(void)state;
	struct packed_writer w;
	struct error e = { 0 };
	struct sample sample = { .id = "00000001_000.png", .patient = 1, .known = (1 << FINDINGS) - 1 };
	uint8_t pixels[64] = { 9 };
	struct input in;
	char *text;
	assert_int_equal(packed_create(&w, scratch_path("packed.cxp"), SPLIT_VAL, 8, 3, 77, &e), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(packed_append(&w, &sample, pixels, &e), 0);
	assert_int_equal(packed_commit(&w, &e), 0);
	assert_int_equal(file_read(&text, &in.size, scratch_path("packed.cxp"), &e), 0);
	in.data = (uint8_t *)text;
	parse_packed(in.data, in.size);
	feed("packed", &in, 1, parse_packed);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(examples), cmocka_unit_test(records),   cmocka_unit_test(images),
		cmocka_unit_test(tables),   cmocka_unit_test(lists),     cmocka_unit_test(divisions),
		cmocka_unit_test(masks),    cmocka_unit_test(manifests), cmocka_unit_test(packed),
		cmocka_unit_test(predictions), cmocka_unit_test(checkpoints), cmocka_unit_test(boxes), cmocka_unit_test(pointings),
		cmocka_unit_test(logs),     cmocka_unit_test(foreign),   cmocka_unit_test(maps),
	};
	if (getenv("TEST_FUZZ_ONLY"))
		cmocka_set_test_filter(getenv("TEST_FUZZ_ONLY"));
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
