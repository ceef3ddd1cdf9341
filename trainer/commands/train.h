/* SPDX-License-Identifier: Apache-2.0
 * A training run: asked for (train_options.c, train_presets.c), set up (train_setup.c, train_start.c), driven (train_loop.c), judged (train_judge.c), told (train_report.c). */
#ifndef COMMANDS_TRAIN_H
#define COMMANDS_TRAIN_H

#include <signal.h>

#include "clock.h"
#include "commands/network_options.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "learn/evaluate.h"
#include "learn/gpu_meter.h"
#include "learn/events.h"
#include "learn/schedule.h"

struct train_conf {
	const char *data, *mask, *output, *resume, *weights, *log_json, *preset;
	const char *command; /* as it was typed, for provenance */
	int goes_on; /* that command, typed once more, goes on with what was stopped */
	struct network_options network;
	struct engine_options engine;
	int allow_leak, augment, resident, shuffle_window;
	int batch, accumulate, decode_threads, bucket_kib;
	int optimizer, scaling, base_batch, decay, pos_weight;
	double rate, warmup_epochs, momentum, weight_decay;
	double epochs, max_seconds;
	uint64_t steps, seed;
	int seed_typed;
	int eval_every, checkpoint_every, keep, resamples;
	int patience, log_hash, tensorboard, data_memory, fetch_every;
	double loss_scale;
	int dynamic_loss_scale;
};

extern const char *const optimizer_choices[];

enum { TRAIN_SLOTS = 4 }; /* micro-batches in the loader's ring */

/* How far a training is. When a rank is lost, one survivor may have heard that all have saved and another not: they take the furthest of theirs. */
enum train_stage {
	TRAIN_STEPS,
	TRAIN_STOPPING, /* to be saved, and to go on another day */
	TRAIN_STOPPED,
	TRAIN_MADE,     /* all its steps, and saved */
};

/* Seconds and images since some moment, on this rank. */
struct tally {
	double begin;           /* now() */
	double input, exposed;  /* seconds spent waiting for images, for other ranks */
	uint64_t images;        /* of all ranks */
};

struct train {
	const struct train_conf *conf; /* &settled */
	struct train_conf settled; /* as given, with --batch=auto replaced by what it found */
	struct world *world;
	struct run_log log;
	struct dataset *train, *val, *test; /* val, test: NULL where the data set has none */
	int validates;            /* val has a label that is known, by which weights can be chosen */
	char memory[400];         /* what is kept in memory, in words */
	char masked[400];         /* which labels --mask leaves out, in words */
	uint64_t mask_hash;
	char mask[20];            /* that as checkpoints note it */
	int leak;                 /* patients are shared, and --allow-leak was given */
	char weights_hash[WEIGHTS_HASH]; /* of model.safetensors, on rank 0; "": not written yet */
	struct network network;
	struct model model;
	struct model_values values; /* for checkpoints and sharing */
	struct loader *loader;
	struct schedule schedule;
	struct checkpoint_notes at; /* where the run is; what a checkpoint says */
	uint64_t stage;           /* enum train_stage */
	int summed;               /* the summary has been told */
	uint64_t first_step;      /* of this process */
	uint64_t saved;           /* step of its last checkpoint; first_step before that: what OUTPUT holds of later ones is of a course that it left */
	char output[4096];
	int made_output;          /* it was not there before */
	int leaves;               /* train_start.leaves */
	char *best;               /* the bytes of a best.safetensors of another directory, which the start brings along; NULL: none */
	size_t best_size;
	int lock;                 /* rank 0's claim to OUTPUT, a file descriptor; -1: none */
	struct events *events;    /* TensorBoard's; NULL: none */
	struct gpu_meter *gpu;    /* of this rank; NULL: none, or NVML does not answer */
	double known;             /* share of the training split's labels that are, of findings that can be learnt */
	double loss;              /* mean over those, as read last (--fetch-every) */
	int loss_fetched;         /* in the last step */
	uint64_t sound;           /* position before which the loss was a number when it was read last */
	double rate;              /* of the last step */
	float pos_weight[FINDINGS];
	double step_seconds, step_input; /* of the last step: all of it, and waiting for images */
	struct tally total, recent; /* of this process; since the last progress line */
	double val_seconds;       /* that the last validation of this process took; 0: there was none yet */
	double images_per_s;      /* in those recent steps: of a single one, a GPU's call returns before it is done, or waits for others too */
};

/* argv with the words of --preset=NAME put before what the user typed, so that the user wins; to be freed. *argc is adapted.
 * NULL with *e set for an unknown name. */
char **train_presets(int *argc, char **argv, struct error *e);

extern volatile sig_atomic_t train_stop; /* set by SIGTERM, SIGINT, SIGUSR1, SIGHUP */

extern const struct option train_options[]; /* for struct train_conf */

/* Reads argv with its presets. `command`, of `size` bytes, gets the line as it was typed and must stay as long as conf. Return
 * values as options_parse(). */
int train_read_options(const struct command *c, int argc, char **argv, struct train_conf *conf, char *command, size_t size, struct error *e);

/* "--learning-rate=0.004 --momentum=0.9 …": the options that decide how this training learns, for its checkpoints. */
void train_note_options(const struct train_conf *conf, char *text, size_t size);
/* A line for each of them that is another one than in `before`, a checkpoint's; "" has none. */
void train_tell_changes(struct run_log *log, const char *before, const char *options);
/* The same in one line: "--learning-rate=0.001 (0.0001 then), …". */
void train_list_changes(const char *before, const char *options, char *text, size_t size);

/* Collective: what the ranks were told alike, such as --seed, but not what each may have of its own, such as --threads. */
int train_same_options(struct world *w, const struct train_conf *conf, struct error *e);

/* SIGTERM, SIGUSR1, SIGINT and SIGHUP save and stop; SIGPIPE is ignored. */
void train_catch_signals(void);
/* Whether this process was stopped and went on, as with scontrol suspend, since this was last asked. Only behind train_catch_signals(). */
int train_was_suspended(void);

/* A whole training; collective. Returns the exit code; the error has been told. */
int train_run(struct world *world, const struct train_conf *conf);

/* What rank 0 found out about the start, for all. */
struct train_start {
	int from_file, resume, fresh_head;
	int leaves;        /* OUTPUT holds later checkpoints than that which is resumed from */
	struct network network;
	struct checkpoint_notes notes;
	char output[4096]; /* every rank may have to write one day: --hvd=on_death=continue */
};

/* On rank 0: makes the output directory, in which nothing is written yet, and opens the file to start from. *c stays open for its weights; NULL for a fresh start. */
int train_find_start(struct train *t, struct train_start *s, struct checkpoint **c, struct error *e);

/* On rank 0, when nothing can refuse the start any more: logs, and the best weights that are brought along. */
int train_begin_output(struct train *t, struct error *e);

/* On rank 0: OUTPUT/lock keeps other trainings out of OUTPUT as long as this process lives. */
int train_claim_output(struct train *t, struct error *e);
/* On rank 0, before it writes to OUTPUT, and where it could not: an error where another training has it by now. */
int train_keep_output(struct train *t, struct error *e);
/* Removes OUTPUT too, where it was not there before and holds nothing. */
void train_release_output(struct train *t);

/* Rates and shares are those of training: what was done since `begin` is left out of them. */
static inline void train_leave_out(struct train *t, double begin)
{
	t->recent.begin += now() - begin;
	t->total.begin += now() - begin;
}

/* Whether the next checkpoint is the first after the training went back behind others of OUTPUT, of a course that it leaves. */
static inline int train_leaves_later(const struct train *t)
{
	return t->leaves && t->saved == t->first_step;
}

/* Everything up to the first step; collective, errors are agreed. */
int train_setup(struct train *t, struct world *world, const struct train_conf *conf, struct error *e);
void train_close(struct train *t);

/* How many steps there are, and their rates, for the global batch and from the step and position of t->at. */
void train_set_schedule(struct train *t);

/* Steps until the end, a signal or the time limit. 0: the end, EXIT_RESUMABLE: stopped and saved, negative: failed. */
int train_steps(struct train *t, struct error *e);

/* Takes the best weights, judges them on the test split, writes model.safetensors. Return values as train_steps(). */
int train_finish(struct train *t, struct error *e);

/* --decode-threads, also of an evaluation. */
int train_decode_threads(const struct train *t);
/* Decode threads from here to the end of the stream; collective. */
int train_open_loader(struct train *t, struct error *e);
/* On rank 0: where events go. */
int train_open_logs(struct train *t, struct error *e);

/* After a failed step, with on_death=continue: the survivors go on from the rank that got furthest, and repeat the positions of
 * the step that failed. 0: all is ready for the next step; negative: the error stands. */
int train_recover(struct train *t, struct error *e);

/* Collective: evaluates, tells, keeps the weights when they are the best so far. EXIT_RESUMABLE: a signal cut it short, nothing has
 * changed. */
int train_validate(struct train *t, struct error *e);

/* TensorBoard: scalars of a step and of an evaluation of the weights of `step`, precision-recall curves of the test split. A file that cannot be written
 * any more is said once and given up. */
void tell_events_step(struct train *t);
void tell_events_evaluation(struct train *t, const struct evaluation *ev, const struct dataset *d, int64_t step);
void tell_events_end(struct train *t);

void tell_start(struct train *t);
void tell_left(struct train *t, const struct checkpoint_left *left);
void tell_step(struct train *t, const uint64_t *hashes, int n_hashes);
void tell_progress(struct train *t);
/* Validations to come: that of the step which was made last, where it is due, to that of the last step. */
uint64_t train_validations_left(const struct train *t);
void tell_validation(struct train *t, const struct evaluation *ev);
int tell_summary(struct train *t, struct error *e); /* collective */
void tell_end(struct train *t, int code, const char *reason);

/* Collective: --batch=auto becomes the largest that fits, and one that does not fit is refused with both numbers. */
int train_settle_batch(struct train *t, int resumed_batch, struct error *e);

/* Findings that cannot be learnt: no label of a training image is known, or all that are say the same. Nor are they judged. */
static inline uint32_t train_untaught(const struct train *t)
{
	return ALL_FINDINGS & ~(dataset_labelled(t->train, 1) & dataset_labelled(t->train, 0));
}

/* Validation losses are the same on all ranks, so they decide alike. */
static inline int train_out_of_patience(const struct train *t)
{
	return t->conf->patience && t->at.stale >= t->conf->patience;
}

/* Whether no step is left, or no patience. */
static inline int train_is_over(const struct train *t)
{
	return t->at.step >= t->schedule.steps || train_out_of_patience(t);
}

static inline uint64_t train_epoch_steps(const struct train *t)
{
	uint64_t n = dataset_count(t->train), batch = (uint64_t)t->at.global_batch;

	return (n + batch - 1) / batch;
}

#endif
