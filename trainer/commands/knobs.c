/* SPDX-License-Identifier: Apache-2.0 */
#include "commands/knobs.h"

#include <stdio.h>
#include <string.h>

#define KNOB(guide_name, theirs_name, ours_name, what, reason) \
	{ .theirs = theirs_name, .ours = ours_name, .guide = guide_name, .ablation = ABLATE_##what, .why = reason }

const struct knob knobs[] = {
	KNOB("PaddlePaddle", "DistributeTranspilerConfig.mode", "", NOTHING,
	     "collective only: a parameter server sends every gradient twice through few links, and its updates are stale"),
	KNOB("PaddlePaddle", "ParallelGraph", "", NOTHING,
	     "refused: several GPUs in one process share its locks and its NUMA node; --hvd starts one process for each"),
	KNOB("PaddlePaddle", "FLAGS_sync_nccl_allreduce", "--bucket=KIB", BUCKETS,
	     "never synchronous: buckets travel while the backward pass goes on"),
	KNOB("PaddlePaddle", "num_threads", "--threads=N", THREADS,
	     "CPU threads that compute; the default is the task's share of its CPUs"),
	KNOB("PaddlePaddle", "FLAGS_fraction_of_gpu_memory_to_use", "--batch=auto", NOTHING,
	     "all memory is asked for once, at the start, as much as the batch needs; auto takes the largest batch that fits"),
	KNOB("PaddlePaddle", "num_iteration_per_drop_scope", "", NOTHING,
	     "not applicable: nothing is allocated in a step, so there are no scopes to drop"),
	KNOB("PaddlePaddle", "fetch_list", "--fetch-every=STEPS", FETCH,
	     "reading the loss makes a GPU wait for its step; default 30 there, 1 on a CPU, where it is free"),
	KNOB("PaddlePaddle", "NCCL_IB_DISABLE", "NCCL_IB_DISABLE=1", GPU,
	     "NCCL's own variable, passed on untouched"),
	KNOB("PaddlePaddle", "DALI", "", NOTHING,
	     "no switch: crop, mirror and normalisation always run on the device, from uint8"),
	KNOB("PaddlePaddle", "batch_merge_repeat", "--accumulate=N", MERGE,
	     "micro-batches to one update: fewer messages and updates"),
	KNOB("PaddlePaddle", "use_double_buffer", "--decode-threads=N", PREFETCH,
	     "a ring of 4 micro-batches, filled ahead of the step"),
	KNOB("PaddlePaddle", "use_uint8_reader", "", NOTHING,
	     "no switch: images always travel as gray uint8, a twelfth of RGB in fp32"),
	KNOB("PaddlePaddle", "use_pinned_memory", "", NOTHING,
	     "no switch: slots that a GPU copies from are pinned"),
	KNOB("PaddlePaddle", "drop_last", "", NOTHING,
	     "no switch: the stream is infinite, an epoch may end inside a batch, no image is dropped"),
	KNOB("PaddlePaddle", "use_fp16", "--precision=bf16", BF16,
	     "bf16 needs no loss scaling; --precision=fp16 on GPUs"),
	KNOB("PaddlePaddle", "init_loss_scaling", "--loss-scale=S", GPU,
	     "factor for --precision=fp16; bf16 has fp32's range and needs none"),
	KNOB("PaddlePaddle", "use_dynamic_loss_scaling", "--dynamic-loss-scale", GPU,
	     "fp16 only: a step that overflows is skipped on every rank and halves the factor, 2,000 that do not double it"),
	KNOB("tf_cnn_benchmarks", "batch_size", "--batch=N", BATCH,
	     "images of a rank at a time; in training also the group of batch normalisation"),
	KNOB("tf_cnn_benchmarks", "num_batches", "--steps=N", NOTHING,
	     "how long a run is, no speed"),
	KNOB("tf_cnn_benchmarks", "num_gpus", "srun --hvd", NOTHING,
	     "one process for each GPU of the job step"),
	KNOB("tf_cnn_benchmarks", "xla", "", GPU,
	     "no switch: kernels are fused by hand, and a step is one CUDA graph"),
	KNOB("tf_cnn_benchmarks", "variable_update", "", NOTHING,
	     "what it calls horovod, always; parameter_server is refused: it sends every gradient twice through few links"),
	KNOB("tf_cnn_benchmarks", "data_dir", "--data=DIR", DATA,
	     "without it synthetic X-rays; the gain is that of pixels that need no decoding at all"),
	KNOB("Dell", "warmup_epochs", "--warmup-epochs=N", NOTHING,
	     "of accuracy, not of speed: epochs in which the rate rises to its full height"),
	KNOB("Dell", "lr_scaling", "--scaling=RULE", NOTHING,
	     "none, sqrt or linear; of accuracy, not of speed: chexnet lr-test says which won"),
	KNOB("Dell", "auto_batch", "--batch=auto", NOTHING,
	     "the largest that fits; one that does not fit is refused before the first step, with both numbers"),
	KNOB("PyTorch", "lr", "--learning-rate=RATE", NOTHING,
	     "of accuracy, not of speed: for a global batch up to --base-batch, above it grows as --scaling says"),
	KNOB("PyTorch", "num_workers", "--decode-threads=N", NOTHING,
	     "threads that decode, no processes; images that fit in memory are decoded once"),
	KNOB("PyTorch", "amp", "--precision=bf16", NOTHING,
	     "convolutions alone, as autocast; bf16 needs no loss scaling"),
	KNOB("PyTorch", "pretrained", "--weights=FILE", NOTHING,
	     "of accuracy, not of speed: safetensors of torchvision, timm or a reproduction; training starts a head of another width afresh"),
	KNOB("PyTorch", "freeze", "", NOTHING,
	     "no switch: all layers learn, those of --weights too"),
	KNOB("PyTorch", "AdamW", "--optimizer=adam", NOTHING,
	     "weight decay is added to the gradient, as torch.optim.Adam does, and not of normalisation and biases"),
	KNOB("PyTorch", "lr_scheduler", "--decay=COURSE", NOTHING,
	     "cosine, plateau or constant, after --warmup-epochs"),
	KNOB("PyTorch", "clip_grad_norm", "", NOTHING,
	     "no switch: gradients are not clipped; a step of fp16 that overflows is skipped"),
	KNOB("PyTorch", "label_smoothing", "", NOTHING,
	     "no switch: labels are 0 or 1; those that are not known are left out (--mask)"),
	KNOB("PyTorch", "class_weights", "--pos-weight=balanced", NOTHING,
	     "positives of a finding weigh as much as its negatives, up to 100 times one of them; there is no focal loss"),
	KNOB("PyTorch", "dropout", "", NOTHING,
	     "no switch: none, as in torchvision's DenseNet unless told"),
	KNOB("PyTorch", "betas", "--momentum=BETA", NOTHING,
	     "the second is 0.999 and epsilon 1e-8, as torch.optim.Adam has them"),
	KNOB("PyTorch", "ema", "", NOTHING,
	     "no switch: the weights of the step that validates best count, no mean of several steps"),
	KNOB("PyTorch", "early_stopping", "--patience=N", NOTHING,
	     "validations without a lower loss; the best weights are kept"),
	KNOB("PyTorch", "mixup", "--no-augment", NOTHING,
	     "a random window, mirrored or not, is all the augmentation that there is"),
	KNOB("PyTorch", "manual_seed", "--seed=N", NOTHING,
	     "the same seed on as many ranks and threads gives the same bits"),
	KNOB("PyTorch", "arch", "--model=NAME", NOTHING,
	     "densenet121 is CheXNet's"),
	KNOB("PyTorch", "device", "--engine=NAME", NOTHING,
	     "cuda or cpu; which GPU it is, --hvd says"),
	KNOB("PyTorch", "SyncBatchNorm", "", NOTHING,
	     "no switch: a micro-batch is normalised by itself, and running statistics are the mean over all ranks"),
	KNOB("PyTorch", "gradient_checkpointing", "", NOTHING,
	     "no switch: --batch=auto takes what fits, --accumulate=N makes more of it"),
	KNOB("PyTorch", "tta", "eval --crops=ten", NOTHING,
	     "corners and middle, each also mirrored, of accuracy, not of speed"),
	KNOB("torchrun", "nproc_per_node", "srun --hvd", NOTHING,
	     "one process for each GPU of the job step, on all of its nodes"),
	{ .theirs = NULL },
};

/* Other words for those, of PyTorch's own scripts, timm and Lightning. */
static const struct {
	const char *name, *theirs;
} aliases[] = {
	{ "adamw", "AdamW" }, { "scheduler", "lr_scheduler" }, { "sched", "lr_scheduler" }, { "step_size", "lr_scheduler" }, { "gamma", "lr_scheduler" },
	{ "milestones", "lr_scheduler" }, { "clip_grad", "clip_grad_norm" }, { "grad_clip", "clip_grad_norm" }, { "max_grad_norm", "clip_grad_norm" },
	{ "gradient_clip_val", "clip_grad_norm" }, { "smoothing", "label_smoothing" }, { "focal_loss", "class_weights" }, { "drop_rate", "dropout" },
	{ "drop", "dropout" }, { "eps", "betas" }, { "model_ema", "ema" }, { "cutmix", "mixup" }, { "auto_augment", "mixup" },
	{ "random_erasing", "mixup" }, { "deterministic", "manual_seed" }, { "backbone", "arch" }, { "sync_bn", "SyncBatchNorm" },
	{ "sync_batchnorm", "SyncBatchNorm" }, { "workers", "num_workers" }, { "pin_memory", "use_pinned_memory" },
	{ "prefetch_factor", "use_double_buffer" }, { "fp16", "use_fp16" }, { "half", "use_fp16" }, { "bf16", "amp" }, { "autocast", "amp" },
	{ "compile", "xla" }, { "gradient_accumulation_steps", "batch_merge_repeat" }, { "print_freq", "fetch_list" }, { "log_interval", "fetch_list" },
	{ "gpus", "nproc_per_node" }, { "nnodes", "nproc_per_node" }, { "world_size", "nproc_per_node" }, { "local_rank", "nproc_per_node" },
	{ "dist_backend", "nproc_per_node" }, { "dist_url", "nproc_per_node" }, { "master_addr", "nproc_per_node" },
};

/* torchrun and others take a hyphen for an underscore. */
static int same_name(const char *theirs, const char *name, size_t length)
{
	size_t i = 0;

	while (i < length && theirs[i] && (theirs[i] == name[i] || (theirs[i] == '_' && name[i] == '-')))
		i++;
	return i == length && !theirs[i];
}

static int is_of_training(const struct command *command, const char *ours)
{
	return strncmp(ours, "--", 2) == 0 && !option_named(command, ours + 2, strcspn(ours + 2, "="));
}

const char *knob_advice(const struct command *command, const char *name, size_t length, char *text, size_t size)
{
	const char *alias = NULL;

	for (size_t i = 0; i < sizeof aliases / sizeof aliases[0] && !alias; i++)
		alias = same_name(aliases[i].name, name, length) ? aliases[i].theirs : NULL;
	for (const struct knob *k = knobs; k->theirs; k++)
		if (alias ? strcmp(k->theirs, alias) == 0 : same_name(k->theirs, name, length)) {
			snprintf(text, size, "that is %s's; %s %s%s%s", alias ? "PyTorch" : k->guide, is_of_training(command, k->ours) ? "chexnet train has" : "here", k->ours, *k->ours ? ": " : "", k->why);
			return text;
		}
	return NULL;
}
