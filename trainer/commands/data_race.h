/* SPDX-License-Identifier: Apache-2.0
 * Input pipelines run against each other over several numbers of ranks: a table, a picture. */
#ifndef COMMANDS_DATA_RACE_H
#define COMMANDS_DATA_RACE_H

#include "data/sequence.h"
#include "options.h"

struct race_conf {
	const char *directory;     /* prepared as TFRecords; NULL: synthetic X-rays made for the occasion */
	int run[SEQUENCES];        /* which take part */
	struct option_ints ranks;  /* numbers of ranks */
	int threads, batch;        /* of a rank */
	double seconds;            /* of each measurement */
	uint64_t seed;
	const char *svg;           /* file for the picture; NULL: none */
	int json;
};

/* Every rank is a process on CPUs of its own, as far as there are so many. Returns 0 or a negative exit code. */
int data_race(const struct race_conf *conf, struct error *e);

#endif
