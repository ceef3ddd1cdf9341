/* SPDX-License-Identifier: Apache-2.0
 * The pipelines in words. */
#include "data/sequence.h"

const char *const sequence_names[SEQUENCES] = { "old", "new", "ours" };

static const struct sequence_step old_steps[] = {
	{ "list", "names of all files" },
	{ "read", "one file after the other, record by record" },
	{ "map", "check, parse and decode every record, N at a time" },
	{ "shard", "keep every R-th decoded image: a rank decodes the other ranks' images too" },
	{ "shuffle", "buffer of 500 decoded images" },
	{ "repeat", "from the first file on" },
	{ "batch", "copy images together" },
	{ "prefetch", "batches ahead of the step" },
};

static const struct sequence_step new_steps[] = {
	{ "list", "names of all files" },
	{ "data set", "of names, not of records" },
	{ "shard", "names dealt out to the ranks: unequal shares unless their number divides" },
	{ "shuffle", "order of the files" },
	{ "interleave", "ten files read in turn" },
	{ "prefetch", "records ahead of their decoding" },
	{ "shuffle", "buffer of 500 records: same-patient neighbours stay near each other" },
	{ "repeat", "from the first file on" },
	{ "map and batch", "parse and decode into the batch, N at a time; the last batch is dropped" },
	{ "prefetch", "batches ahead of the step" },
};

static const struct sequence_step our_steps[] = {
	{ "list", "manifest.json: files, counts, findings, source" },
	{ "check", "CRC and schema of every record, named to file, record and byte; patients in two splits are refused" },
	{ "order", "keyed permutation of all images, or of a few files at a time (--shuffle-window); no state" },
	{ "share", "positions dealt out: rank, micro-batch and row are arithmetic, so all ranks make equal steps" },
	{ "fetch", "mapped files, any record at once" },
	{ "decode", "N threads take tickets by one atomic addition; the ticket is position, slot and row: no queue, no copy" },
	{ "augment", "window and flip keyed by (seed, epoch, image), cut on the device" },
	{ "hand over", "ring of slots, pinned for GPUs: the next steps are ready while one computes" },
	{ "normalise", "uint8 x 1 channel to the device, normalised there" },
	{ "resume", "at the exact position, on any number of ranks" },
};

const struct sequence_step *sequence_steps(enum sequence_kind kind, int *count)
{
	static const struct {
		const struct sequence_step *steps;
		int n;
	} all[SEQUENCES] = {
		{ old_steps, sizeof old_steps / sizeof *old_steps },
		{ new_steps, sizeof new_steps / sizeof *new_steps },
		{ our_steps, sizeof our_steps / sizeof *our_steps },
	};

	*count = all[kind].n;
	return all[kind].steps;
}
