/* SPDX-License-Identifier: Apache-2.0
 * Synthetic X-rays as a directory in NIH's layout: images/, Data_Entry_2017_v2020.csv, train_val_list.txt, test_list.txt,
 * BBox_List_2017.csv; and oracle.csv and oracle.json, which no real one has. */
#ifndef PREPARE_SYNTH_TREE_H
#define PREPARE_SYNTH_TREE_H

#include <signal.h>

#include "data/synth.h"

struct synth_report {
	size_t images[2], patients[2];     /* train_val, test */
	size_t positives[FINDINGS], test_positives[FINDINGS]; /* of all images, and of the test list */
	double oracle[FINDINGS], se[FINDINGS]; /* AUROC on the test list and its standard error (Hanley and McNeil 1982); NAN: no positives,
						  of the error also where they are few or all are told apart */
	double oracle_mean;
	size_t leaked;                     /* patients on both lists */
};

/* Writes the tree; it appears whole or not at all. threads 0: as many as there are CPUs. tell: who says how far it is (progress.h), or NULL. */
int synth_tree(const struct synth_conf *conf, const char *out, int overwrite, int threads, const volatile sig_atomic_t *stop, const char *tell,
	       struct synth_report *report, struct error *e);

#endif
