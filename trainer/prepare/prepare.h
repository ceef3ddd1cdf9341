/* SPDX-License-Identifier: Apache-2.0
 * From the images and labels of an origin to a prepared data set. */
#ifndef PREPARE_PREPARE_H
#define PREPARE_PREPARE_H

#include <signal.h>

#include "data/manifest.h"
#include "files/staging.h"
#include "prepare/origin.h"

enum { PREPARE_JPEG_QUALITY = 95, PREPARE_SHARD = 400 /* records, unless told … */, PREPARE_SHARDS = 10000 /* … as far as these do: each is mapped, and a process has 65,530 maps */ };

struct prepare_conf {
	const char *out;
	const char *source;      /* directory that the origin reads, which OUT may not replace; or NULL */
	int size;                /* side of the stored squares, pixels */
	enum encoding encoding;
	int shards;              /* of each split; 0: of PREPARE_SHARD records, or at most PREPARE_SHARDS */
	uint64_t seed;           /* of the order of records */
	int threads;             /* 0: those of the affinity mask */
	int overwrite;
	const volatile sig_atomic_t *stop; /* set by a signal: give up and leave nothing; or NULL */
	const char *tell;        /* who says how far it is (progress.h), or NULL */
};

struct prepare_report {
	struct manifest manifest;
	size_t positives[SPLITS][FINDINGS], known[SPLITS][FINDINGS]; /* images; positives: of those whose label is known */
	size_t leaked;           /* patients in more than one split: NIH's own lists have none */
	uint32_t leak_example;
	uint64_t bytes;          /* written */
	struct sample_names stretched, enlarged; /* images of which the square shows something else than a radiograph (image/resize.h) */
};

/* Takes conf->out for this preparation, as staging_open(): to be done before the origin is opened, which reads the whole of a set of TFRecords.
 * staging_discard() in the end, also where it fails. */
int prepare_claim(const struct prepare_conf *conf, struct staging *staging, struct error *e);

/* Fills what was claimed and gives it its name. */
int prepare_claimed(const struct prepare_conf *conf, struct staging *staging, const struct origin *origin, struct prepare_report *report, struct error *e);

/* Both. */
int prepare(const struct prepare_conf *conf, const struct origin *origin, struct prepare_report *report, struct error *e);

#endif
