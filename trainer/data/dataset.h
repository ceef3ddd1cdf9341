/* SPDX-License-Identifier: Apache-2.0
 * A prepared data set: what `chexnet prepare` writes and training reads.
 *
 *   DIR/manifest.json             format, image size, finding names in order, splits with counts, seed, hash of the source
 *   DIR/train-00000-of-00004 …    TFRecords, records in a seeded random order; likewise val-… and test-…
 *
 * Each record is a tf.train.Example with image/encoded (PNG or JPEG), image/label (14 int64), image/filename, image/format,
 * image/height, image/width, patient/id, label/names. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "data/findings.h"
#include "error.h"

enum { SAMPLE_ID = 128 }; /* CheXpert's and MIMIC-CXR's names are paths of up to 100 bytes */

enum split { SPLIT_TRAIN, SPLIT_VAL, SPLIT_TEST, SPLITS, SPLIT_NONE = SPLITS };
extern const char *const split_names[SPLITS]; /* "train", "val", "test" */
int split_index(const char *name);            /* -1: no split is called that */

struct sample {
	char id[SAMPLE_ID];     /* "00000001_000.png"; UTF-8 that fits on a line */
	uint32_t patient;
	uint32_t labels, known; /* bit f: finding f present; known */
};

/* Takes a record's image/filename as its id. EXIT_DATA, the reason alone in *why, where it is none. */
int sample_name(char id[SAMPLE_ID], const void *name, size_t size, struct error *why);

/* Sorts samples by their ids. One whose id another one has too, or NULL. */
const struct sample *sample_twin(const struct sample **samples, size_t n);

/* A list of the first few ids, for a message, without their control characters; of zeros where it begins. */
struct sample_names {
	char text[5 * (SAMPLE_ID + 2) + 8];
	size_t used, count; /* count: of all that were added */
};
void sample_names_add(struct sample_names *n, const char *id);

struct dataset; /* one split, open for reading; thread-safe */

/* split: "train", "val" or "test". Checks every record's frame and CRC once, builds the index. directory NULL: the built-in
 * synthetic X-rays (all three splits, with an oracle): SYNTH_BUILTIN of data/synth.h. */
int dataset_open(struct dataset **d, const char *directory, const char *split, struct error *e);
void dataset_close(struct dataset *d);

/* Synthetic X-rays (data/synth.h), drawn when they are first read and kept in memory; policy "synthetic". */
struct synth_conf;
int dataset_open_synthetic(struct dataset **d, const struct synth_conf *conf, const char *split, struct error *e);

size_t dataset_count(const struct dataset *d);
int dataset_image_size(const struct dataset *d); /* side of the stored squares, pixels */
const struct sample *dataset_samples(const struct dataset *d); /* [count], in record order */
const char *dataset_split(const struct dataset *d);            /* "train" */
const char *dataset_split_policy(const struct dataset *d);     /* "official", "chexnet", "synthetic" …: how patients were divided */
/* 1 when the directory (NULL: built-in images) holds images of that split; 0 otherwise; negative where its manifest cannot be read. */
int dataset_has(const char *directory, const char *split, struct error *e);
const char *dataset_resize(const struct dataset *d);           /* how images were made from the originals: "area" … */
const char *dataset_source(const struct dataset *d);           /* "synthetic", "ChestX-ray14, labels of 2020" …: as prepare found them */
const char *dataset_stored_as(const struct dataset *d);        /* "exact" (PNG, packed, drawn) or "jpeg", whose pixels are others */
/* [FINDINGS] AUROC that no network passes on average on this split, NAN where unknown; NULL: the data have no oracle. The first
 * call on synthetic images may take a second; not for several threads at once. */
const double *dataset_oracle(const struct dataset *d);
const char *dataset_describe(const struct dataset *d);         /* "TFRecord, 4 shards, 61.2 MB": for the banner */
size_t dataset_patients(const struct dataset *d);
uint64_t dataset_hash(const struct dataset *d);                /* of ids and labels; what images a checkpoint was trained on */
uint64_t dataset_pixel_hash(const struct dataset *d);          /* of ids, labels and how pixels are stored: equal on all ranks or training stops */

/* Two of what dataset_source() says, the first perhaps a sequence of trainings, "synthetic, then ChestX-ray14, labels of 2020", whose last one
 * counts. 1: one is of drawings, the other of radiographs; 0: they are alike, or nobody knows. */
int source_differs(const char *trained_on, const char *judged);
int source_is_synthetic(const char *source);
int source_is_chestxray14(const char *source); /* as NIH publishes it */

/* From now on keeps decoded pixels in memory, so that every image is decoded once. 1: it does; 0: they would take more than
 * `limit` bytes, and nothing changes. Before the first dataset_read(). */
int dataset_keep(struct dataset *d, size_t limit);
size_t dataset_keep_bytes(const struct dataset *d); /* what that takes; 0: it is in memory or mapped as it is */
size_t dataset_kept_bytes(const struct dataset *d); /* room that it has taken for them, written to as they are first read; 0: none are kept */

/* Decodes sample `index` into pixels [size][size] gray uint8. `scratch` belongs to the calling thread: dataset_scratch(). */
struct dataset_scratch;
struct dataset_scratch *dataset_scratch(const struct dataset *d);
void dataset_scratch_free(struct dataset_scratch *s);
int dataset_read(const struct dataset *d, size_t index, struct dataset_scratch *s, uint8_t *pixels, struct error *e);

/* The files, or pieces of one file, that are read front to back: *first [shards + 1] gets the index of each one's first sample.
 * Returns how many there are, 0 where images are not in files. */
size_t dataset_shards(const struct dataset *d, const uint64_t **first);
uint64_t dataset_stored(const struct dataset *d); /* bytes of them all */

/* Reads a shard front to back, so that its records are in the page cache when they are wanted. Nothing is read where all of its
 * images are kept in memory. */
int dataset_fetch(const struct dataset *d, size_t shard, struct error *e);

/* Patients that two splits share: count, and the lowest such patient in *example. */
size_t dataset_leak(const struct dataset *a, const struct dataset *b, uint32_t *example);

/* Bit f: some image is known to show finding f, or with shows 0 known not to. */
uint32_t dataset_labelled(const struct dataset *d, int shows);

/* Share of known samples that carry each finding. */
void dataset_prevalence(const struct dataset *d, double prevalence[FINDINGS]);

#endif
