/* SPDX-License-Identifier: Apache-2.0
 * A drawn set of images for the audit, and what it says of one. */
#ifndef TESTS_AUDIT_TREE_H
#define TESTS_AUDIT_TREE_H

#include "prepare/audit.h"
#include "prepare/prepare.h"
#include "prepare/pipeline.h"
#include "prepare/synth_tree.h"
#include "scratch.h"

enum { SIDE = 32, IMAGES = 400 };

static struct synth_conf synth = SYNTH_BUILTIN;
static struct audit audit;
static char tree[FILE_PATH];

static inline int set_up(void **state)
{
	struct synth_report r;
	struct error e = { 0 };
	if (scratch_make(state))
		return -1;
	synth.images = IMAGES;
	synth.size = SIDE;
	snprintf(tree, sizeof tree, "%s", scratch_path("tree"));
	return synth_tree(&synth, tree, 0, 2, NULL, NULL, &r, &e);
}

static inline void run_audit(struct origin *o, int pixels)
{
	struct error e = { 0 };
	char table[FILE_PATH + 64], train[FILE_PATH + 64], test[FILE_PATH + 64];
	snprintf(table, sizeof table, "%s/Data_Entry_2017_v2020.csv", tree);
	snprintf(train, sizeof train, "%s/train_val_list.txt", tree);
	snprintf(test, sizeof test, "%s/test_list.txt", tree);
	struct audit_conf conf = { .table = table, .train_val_list = train, .test_list = test, .pixels = pixels, .threads = 2 };
	if (audit_run(&audit, o, &conf, &e))
		fail_msg("%s", e.text);
}

static inline struct origin open_tree(const char *path)
{
	struct origin o;
	struct error e = { 0 };
	if (audit_open(&o, path, &e))
		fail_msg("%s", e.text);
	return o;
}

static inline const struct audit_item *find(enum audit_kind kind, const char *words)
{
	for (int i = 0; i < audit.n_items; i++)
		if (audit.items[i].kind == kind && audit.items[i].problem && strstr(audit.items[i].text, words))
			return &audit.items[i];
	for (int i = 0; i < audit.n_items; i++)
		printf("# %d %s\n", audit.items[i].problem, audit.items[i].text);
	fail_msg("no problem says \"%s\"", words);
	return NULL;
}

static inline const char *note_of(const char *words)
{
	for (int i = 0; i < audit.n_items; i++)
		if (!audit.items[i].problem && strstr(audit.items[i].text, words))
			return audit.items[i].text;
	fail_msg("no note says \"%s\"", words);
	return NULL;
}

#endif
