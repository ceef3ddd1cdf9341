/* SPDX-License-Identifier: Apache-2.0
 * What the tests of the whole CUDA engine share: small networks, a batch, and engines opened on them, beside the reference engine in fp64. On
 * the CPU through the shim; with ON_DEVICE the library on the GPU that is there, cuDNN included, without the tests that look behind the waist. */
#ifndef CUDA_NETWORK_TEST_H
#define CUDA_NETWORK_TEST_H

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#ifdef ON_DEVICE
extern "C" {
#include "engine/backend.h"
}
#define chexnet_cuda_open engine_cuda_open
#define chexnet_cuda_plan engine_cuda_plan
#else
#include "cuda_engine.h"
#include "shim.h"
#endif

/* ---- one test's state, reset before each ---- */

extern int failures;
extern std::string note;
uint64_t random_bits();
/* Fails the test; the first line is its note. */
void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the test that is under way, whose note says why. */
struct test_ended {};

/* ---- networks ---- */

net_conf small_net(const char *model, int image_size, int growth, int init_channels, std::vector<int> blocks);
net_conf densenet(int growth, std::vector<int> blocks);
/* Odd maps: what a step of two leaves over. */
net_conf resnet(std::vector<int> blocks);

/* Images of 32 × 32 that make more tiles of 128 pixels in the first block than there are multiprocessors: only then do fused kernels take their large tiles,
 * several of them a block. */
#ifdef ON_DEVICE
enum { MANY_TILES = 280 }; /* for up to 140 multiprocessors */
#else
enum { MANY_TILES = 7 }; /* the shim has three */
#endif

/* A small net with its layout, a batch, and starting values: what every test opens engines on. */
struct problem {
	net_plan plan;
	engine_layout layout;
	engine_conf conf;
	std::vector<uint8_t> pixels;
	std::vector<uint32_t> labels, known;
	std::vector<float> weight, start;
	std::vector<augment> windows;
	engine_batch batch;
	error e;

	problem(const net_conf &net, int batch_size, enum precision precision, enum loss_kind loss = LOSS_BCE, int channels = 1);
	~problem();
	/* Without an engine there is no test: it ends with what the engine said. */
	engine *open(int reference, enum precision precision);
	std::vector<float> get(engine *g, engine_what what);
};

/* ---- what engines do and have ---- */

void run_backward(problem &p, engine *g);
void train_steps(problem &p, engine *g, int steps, int micros = 1);
/* What an optimiser step may change. */
std::vector<float> everything(problem &p, engine *g);
#ifndef ON_DEVICE
/* Everything after three steps of two micro-batches, with CHEXNET_FUSED=bits, whose gradients go to another rank as soon as they are said to be there. */
std::vector<float> trained_with(problem &p, const char *bits);
#endif

/* ---- comparisons ---- */

/* Relative to the stretch's own norm, or to `floor` if that is more. */
double relative(const std::vector<float> &got, const std::vector<float> &want, size_t from, size_t count, double floor = 0);
void compare(const char *what, const std::vector<float> &got, const std::vector<float> &want, double tolerance);
bool same(const std::vector<float> &a, const std::vector<float> &b);

/* ---- the tests ---- */

struct network_test {
	const char *name, *claim;
	void (*function)();
};

/* Every file of tests adds its own. */
void add_number_tests(std::vector<network_test> &tests);
void add_step_tests(std::vector<network_test> &tests);
void add_room_tests(std::vector<network_test> &tests);

#endif
