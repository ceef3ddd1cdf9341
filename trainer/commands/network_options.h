/* SPDX-License-Identifier: Apache-2.0
 * Options about the network and its engine, which train, eval, predict and bench share. */
#ifndef COMMANDS_NETWORK_OPTIONS_H
#define COMMANDS_NETWORK_OPTIONS_H

#include "learn/model.h"
#include "options.h"

struct network_options {
	const char *model;
	int model_typed; /* by the user, also where it is the default */
	int growth, init_channels;
	struct option_ints blocks;
	int image_size;
};

struct engine_options {
	int engine;    /* enum engine_choice */
	int precision; /* enum precision */
	int precision_typed;
	int threads;
};

extern const char *const engine_choices[], *const engine_others[], *const precision_choices[];

#define NETWORK_OPTIONS(config, field, size_default, size_min, size_help) \
	OPTION_GROUP("Network"), \
	OPTION(STRING, config, field.model, "model", "NAME", "densenet121", "densenet121, densenet169, densenet201, resnet50, or densenet or resnet with the next three", \
	       .typed = offsetof(config, field.model_typed)), \
	OPTION(INT, config, field.growth, "growth", "N", "32", "channels that each layer of a densenet adds", .min = 1, .max = 256), \
	OPTION(INT, config, field.init_channels, "init-channels", "N", "0", "channels of its first convolution; 0: twice the growth, in a resnet 64", .min = 0, .max = 1024), \
	OPTION(INTS, config, field.blocks, "blocks", "N,N,…", "6,12,24,16", "its layers in each block, or residual blocks in each stage", .min = 1, .max = 64), \
	OPTION(INT, config, field.image_size, "image-size", "PIXELS", size_default, size_help, .min = size_min, .max = 1024)

#define ENGINE_OPTIONS(config, field) \
	OPTION_GROUP("Engine"), \
	OPTION(CHOICE, config, field.engine, "engine", "NAME", "auto", "what computes; auto: the GPU where there is one, else the CPU", \
	       .choices = engine_choices, .others = engine_others), \
	OPTION(CHOICE, config, field.precision, "precision", "NAME", "fp32", "arithmetic of convolutions", .choices = precision_choices, \
	       .typed = offsetof(config, field.precision_typed)), \
	OPTION(INT, config, field.threads, "threads", "N", "0", "CPU threads for computing; 0: HVD_THREADS or this rank's share of its CPUs, or of a quota on their time (cgroups)", \
	       .min = 0, .max = 1024)

/* EXIT_USAGE where numbers are given for a network whose name fixes them. */
int check_network_options(const struct network_options *o, struct error *e);

/* The network that the options describe, for FINDINGS outputs. */
struct network network_from_options(const struct network_options *o);

/* --threads, or this rank's share. */
int threads_from_options(const struct engine_options *o, const struct world *w);

/* The size that a file of weights notes, or where it does not, that which --OPTION was given; 0: neither says. Negative, EXIT_USAGE: they differ. */
int size_of_weights(const char *path, const char *option, int noted, int typed, struct error *e);

/* What a GPU would do better with another --precision than the default; NULL where there is nothing to say. */
const char *precision_advice(const struct engine_options *o, enum engine_kind kind);

/* EXIT_USAGE where --weights (or --checkpoint) was not typed, or more than once: nobody is to take one model's results for those of several. */
int check_weights(const char *path, int typed, struct error *e);

/* The line that COMMAND says of a file of weights that names no findings: its outputs are taken in this program's order. */
void say_findings(const char *command, const char *path);

/* Side of the network's window for images of source_size when --image-size is 0. A DenseNet's is the multiple of its last cells' pitch that is
 * nearest to 7/8 of them (of 32: 224 of 256, 288 of 320), so that activation maps cover the window. Where none lies from 13/16 to 15/16 the rim
 * would be too wide or too narrow (of 128 pixels, 96 or 128): then, and in a ResNet, whose cells cover no multiple, 7/8, a multiple of 8 (112). halving: the engine
 * halves a DenseNet's maps and has none of odd sides between two blocks, so it is the nearest multiple nevertheless, if there is one (64 of 64). */
int default_image_size(const struct network *n, int source_size, int halving);

/* The same for a window that shows about as much of them as one of `window` pixels of images of `of`: of a DenseNet no more than a sixteenth of
 * the image off, else as much to the pixel. */
int image_size_like(const struct network *n, int window, int of, int source_size);

#endif
