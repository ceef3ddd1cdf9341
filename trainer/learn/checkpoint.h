/* SPDX-License-Identifier: Apache-2.0
 * A model in a safetensors file: parameters and running statistics under torchvision's names, so that PyTorch's
 * load_state_dict() takes the file; a checkpoint also holds the optimiser's moments and where in the stream it was. */
#ifndef LEARN_CHECKPOINT_H
#define LEARN_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "error.h"
#include "files/file.h"
#include "net/plan.h"

/* All of a model's numbers in table order (net/plan.h); moments NULL where they are not wanted. */
struct model_values {
	float *params;           /* [n_weights] */
	float *mean, *variance;  /* [n_bn_channels] running statistics */
	float *moment1, *moment2; /* [n_weights] */
};
int model_values_alloc(struct model_values *v, const struct net_plan *plan, int with_moments, struct error *e);
void model_values_free(struct model_values *v);

/* What a network computes with, parameters and running statistics, as 16 hexadecimal digits: which file they are in, with which moments and
 * notes, makes no difference. */
enum { WEIGHTS_HASH = 17 };
void model_values_hash(char text[WEIGHTS_HASH], const struct model_values *v, const struct net_plan *plan);

/* What a file says beside its tensors. Resuming needs seed, position, step and bucket_bytes, and data_hash to be sure that the
 * stream is the same. */
struct checkpoint_notes {
	uint64_t seed, position, step; /* position: images consumed by all ranks since the start of the stream */
	uint64_t data_hash;            /* dataset_hash() of the training split */
	uint64_t val_hash;             /* of the validation split; 0: there was none, or it is not noted */
	char mask[20];                 /* hash of what --mask left out, "none"; "": not noted */
	uint32_t untrained;            /* findings of which the last training had no label, or only labels that say the same: what the network says of them means nothing */
	char options[384];             /* of learning, "--learning-rate=0.004 --momentum=0.9 …"; "": not noted */
	int global_batch, batch;       /* images an optimiser step, and a micro-batch (the BN group) */
	int window;                    /* files in a shuffle window; 0: all images in one order */
	uint64_t window_layout;        /* window_layout() of the training split where there are windows */
	int bucket_bytes;              /* bound of a gradient bucket; 0: the runtime's default */
	int source_size;               /* side of the prepared images, pixels */
	int unnamed;                   /* whether a file that was opened does not say which findings its outputs stand for */
	int image_size;                /* side of the network's window in them, as a file says that was opened; 0: it does not. What is written says the plan's */
	int leaky;                     /* trained with --allow-leak on splits that share patients, now or before */
	int unchecked;                 /* nobody knows on whom, before */
	char split_policy[64];
	char resize[32];               /* how the prepared images were made from the originals */
	char precision[16];
	char pos_weight[12];           /* --pos-weight; "balanced": its sigmoids are above the probabilities. "": not noted */
	char stored_as[12];            /* dataset_stored_as() of the training's images; "": not noted */
	char trained_on[160];          /* dataset_source() of the training's images, behind that of earlier trainings: "synthetic, then …"; "": not noted */
	char optimizer[8];             /* whose moments these are; "": not noted */
	double loss_scale;             /* fp16's, of the next step; 0: not noted */
	uint64_t scale_good, skipped;  /* steps without an overflow since it changed; steps skipped for one */
	uint64_t validated;            /* step of the last validation that was not cut short; of a file that does not say: its own */
	double best_auroc;             /* highest mean AUROC on the validation split so far; 0: not evaluated yet */
	uint64_t best_step;            /* and the step it was reached at */
	double best_loss;              /* lowest validation loss so far, weighted as pos_weight says; 0: not evaluated yet */
	int stale;                     /* validations since then */
	double rate_factor;            /* of the plateau rule; 0 counts as 1 */
};

/* Patients of a split that a model knows, where its last training shares `shared` of them: -1, not checked, where an earlier one may
 * have had others. */
static inline long checkpoint_leaked(const struct checkpoint_notes *notes, size_t shared)
{
	return shared ? (long)shared : notes->unchecked ? -1 : 0;
}

static inline int checkpoint_balanced(const struct checkpoint_notes *notes)
{
	return strcmp(notes->pos_weight, "balanced") == 0;
}

/* The file as opened: which network it holds, and its notes. */
struct checkpoint;

/* Opens and checks a file; a file without our notes (torchvision, timm) is recognised by its tensors. *net gets the network
 * (its strings belong to the checkpoint), *notes what is noted, zeroes elsewhere, unchecked. Either may be NULL. */
int checkpoint_open(struct checkpoint **c, const char *path, struct net_conf *net, struct checkpoint_notes *notes, struct error *e);
void checkpoint_close(struct checkpoint *c);

/* Whether it holds the optimiser's moments and a position: whether it can be resumed from. */
int checkpoint_resumable(const struct checkpoint *c);

/* Fills values; every tensor of the plan must be there with its shape, with finite values and no variance below 0, and no other. A classifier of another
 * width is left untouched and *fresh_head set where fresh_head is not NULL, else it is an error. */
int checkpoint_load(const struct checkpoint *c, const struct net_plan *plan, struct model_values *values, int *fresh_head, struct error *e);

/* Atomically writes PATH. Without moments it is a plain model. Values that are not finite are refused with EXIT_INTERNAL. */
int checkpoint_write(const char *path, const struct net_plan *plan, const struct model_values *values, const struct checkpoint_notes *notes, struct error *e);

/* DIR/checkpoint-00001234.safetensors */
void checkpoint_path(char *path, size_t size, const char *directory, uint64_t step);
/* The checkpoint of the highest step in DIR. 1: found, 0: there is none, negative: the directory cannot be read. */
int checkpoint_latest(char *path, size_t size, const char *directory, struct error *e);
/* The same among those below *step, which becomes the step of the one that was found. */
int checkpoint_below(char *path, size_t size, const char *directory, uint64_t *step, struct error *e);
/* Whether a file is one of DIR's checkpoints, by whatever path. 1, 0, or negative where it cannot be told. */
int checkpoint_is_of(const char *path, const char *directory, struct error *e);
/* Whether a file holds the best weights that `at` names. 1, 0, or negative where it cannot be told: it may be whole. */
int checkpoint_holds_best(const char *path, const struct checkpoint_notes *at, struct error *e);
/* The file with the best weights that `at` names among those of DIR: also of a course that was left. Return values as checkpoint_holds_best(). */
int checkpoint_find_best(char path[FILE_PATH], const char *directory, const struct checkpoint_notes *at, struct error *e);
/* New best weights are DIR/best.safetensors.new until there is a checkpoint that names them: then they take their place. */
int checkpoint_take_best(const char *directory, const struct checkpoint_notes *at, struct error *e);
/* The same where DIR/best.safetensors may be another course's, which then is called .abandoned. Whether it was: one that
 * cannot be read just now is not, and is an error. */
int checkpoint_take_over_best(const char *directory, const struct checkpoint_notes *at, struct error *e);
/* The first checkpoint of a training that went back to step `after`, where DIR holds later ones, is written as DIR/checkpoint-STEP.safetensors.new-AFTER. */
int checkpoint_new_path(char path[FILE_PATH], const char *directory, uint64_t step, uint64_t after, struct error *e);
/* What a training left when it went back to step `after`. */
struct checkpoint_left {
	uint64_t after;
	int checkpoints, best; /* that were set aside */
	struct error why;      /* of the first that could not be renamed */
};
/* Where DIR holds such a checkpoint, later ones and the best weights of their course are called .abandoned (.abandoned-2, …: nothing is replaced), so
 * that nothing goes on from them, and the new ones get their names: also after a training that was killed in the middle of it. */
int checkpoint_take_over(const char *directory, struct checkpoint_left *left, struct error *e);
/* Removes all but the `keep` latest checkpoints up to `step` from DIR. Later ones, which a run went back behind, are neither counted nor removed. */
void checkpoint_prune(const char *directory, int keep, uint64_t step);
/* Finds the half-written checkpoints, models and predictions of trainings that were killed, and with `removing`, for who holds DIR alone,
 * removes them. Returns how many there are, with the name of one. */
int checkpoint_sweep(const char *directory, int removing, char name[FILE_NAME]);

#endif
