/* SPDX-License-Identifier: Apache-2.0
 * Which convolutions of the engine cuDNN offers plans for.
 *
 *     cudnn-plans h200|a100|t4    asks for a described device: needs no GPU
 *     cudnn-plans live            builds the plans on the GPU that is there
 *
 * One line a convolution; the last line is a JSON object. Exit 1 where a needed plan is missing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/cudnn.h"

static const struct device {
	const char *name;
	int capability, sms, clock_khz, memory_khz, l2, shared, bf16;
	const char *full_name;
} devices[] = {
	{ "h200", 900, 132, 1980000, 3201000, 62914560, 232448, 1, "NVIDIA H200" },
	{ "a100", 800, 108, 1410000, 1593000, 41943040, 166912, 1, "NVIDIA A100-SXM4-80GB" },
	{ "t4", 750, 40, 1590000, 5001000, 4194304, 65536, 0, "Tesla T4" },
};

static void describe(const struct device *d, char *json, size_t size)
{
	snprintf(json, size,
	         "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"warpSize\":32,"
	         "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":%d,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":%d,"
	         "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":15000000000,"
	         "\"smClockRateKHz\":%d,\"memClockRateKHz\":%d,\"l2CacheSize\":%d,\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"deviceName\":\"%s\"}",
	         d->sms, d->shared, d->capability >= 800 ? 1024 : 0, d->capability >= 800 ? 32 : 16, d->capability >= 800 ? 2048 : 1024, d->clock_khz, d->memory_khz, d->l2,
	         d->capability, d->full_name);
}

/* DenseNet-121's kinds of convolution at 224², on slices of a block's buffer as the engine keeps them, and ResNet-50's others. */
static const struct {
	const char *name;
	int h_in, h_out, c_in, c_out, kernel, stride, pad, in_pitch, out_pitch;
} shapes[] = {
	{ "gray stem 4x4", 115, 112, 8, 64, 4, 1, 0, 8, 64 },
	{ "stem 7x7", 224, 112, 8, 64, 7, 2, 3, 8, 64 },
	{ "block 1 1x1", 56, 56, 64, 128, 1, 1, 0, 64, 128 },
	{ "block 2 1x1", 28, 28, 320, 128, 1, 1, 0, 512, 128 },
	{ "block 4 1x1", 7, 7, 992, 128, 1, 1, 0, 1024, 128 },
	{ "block 1 3x3", 56, 56, 128, 32, 3, 1, 1, 128, 256 },
	{ "block 3 3x3", 14, 14, 128, 32, 3, 1, 1, 128, 1024 },
	{ "block 4 3x3", 7, 7, 128, 32, 3, 1, 1, 128, 1024 },
	{ "transition 1", 28, 28, 256, 128, 1, 1, 0, 256, 512 },
	{ "resnet 3x3 stride 2", 56, 28, 128, 128, 3, 2, 1, 128, 128 },
	{ "resnet shortcut", 56, 28, 256, 512, 1, 2, 0, 256, 512 },
};

static const char *const pass_names[] = { "forward", "data", "weight" };
static const char *const precision_names[] = { "fp32", "tf32", "bf16", "fp16" };

/* Number of acceptable plans, or of built ones (1) on a live device; negative: an error. */
static int plans(struct cudnn *cudnn, const struct cudnn_convolution *v, int live, struct error *e)
{
	int count = 0;
	if (!live)
		return cudnn_offers(cudnn, v, &count, e) ? -1 : count;
	struct cudnn_plan *plan;
	if (cudnn_plan_make(cudnn, v, &plan, e))
		return 0;
	cudnn_plan_free(cudnn, plan);
	return 1;
}

int main(int argc, char **argv)
{
	const struct device *device = NULL;
	int live = argc == 2 && !strcmp(argv[1], "live"), asked = 0, missing = 0;
	for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++)
		if (argc == 2 && !strcmp(argv[1], devices[i].name))
			device = &devices[i];
	if (!device && !live) {
		fprintf(stderr, "usage: cudnn-plans h200|a100|t4|live\n");
		return EXIT_USAGE;
	}
	char json[2048] = "";
	if (device)
		describe(device, json, sizeof json);
	struct error e = { 0 };
	struct cudnn *cudnn;
	if (cudnn_open(&cudnn, live ? NULL : json, &e)) {
		printf("{\"note\": \"%s\"}\n", e.text);
		return e.code;
	}
	for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
		for (int precision = PRECISION_FP32; precision <= PRECISION_FP16; precision++)
			for (int pass = CUDNN_PASS_FORWARD; pass <= CUDNN_PASS_WEIGHT; pass++) {
				if (device && ((precision == PRECISION_BF16 && !device->bf16) || (precision == PRECISION_TF32 && device->capability < 800)))
					continue;
				struct cudnn_convolution v = { pass, precision, 64, shapes[s].h_in, shapes[s].h_out, shapes[s].c_in, shapes[s].c_out, shapes[s].kernel,
					                       shapes[s].stride, shapes[s].pad, shapes[s].in_pitch, shapes[s].out_pitch, 0 };
				struct error why = { 0 };
				int count = plans(cudnn, &v, live, &why);
				printf("%-20s %-8s %s: %d%s%s\n", shapes[s].name, pass_names[pass], precision_names[precision], count, why.code ? " " : "", why.code ? why.text : "");
				asked++;
				missing += count <= 0;
			}
	printf("{\"cudnn\": %zu, \"device\": \"%s\", \"asked\": %d, \"missing\": %d, \"note\": \"%d of %d convolutions have plans\"}\n", cudnn_version(cudnn),
	       live ? "live" : device->full_name, asked, missing, asked - missing, asked);
	cudnn_close(cudnn);
	return missing != 0;
}
