/* SPDX-License-Identifier: Apache-2.0
 * Which convolutions of the engine cuDNN offers plans for.
 *
 *     cudnn-plans h200|a100|t4    asks for a described device: needs no GPU
 *     cudnn-plans live            builds the plans on the GPU that is there
 *     cudnn-plans time [h200|…]   times the first plans of each convolution (cudnn_time.h); of a described device it only counts them
 *
 * One line a convolution; the last line is a JSON object. Exit 1 where a needed plan is missing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn_time.h"
#include "engine/cuda/devices.h"

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
	{ "transition 1, back", 28, 28, 256, 128, 1, 1, 0, 256, 128 },
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
	struct gpu_sheet sheet = { 0 };
	struct error e = { 0 };
	char json[2048] = "";
	const int timing = argc >= 2 && !strcmp(argv[1], "time");
	const char *device = argc == 2 + timing ? argv[1 + timing] : timing && argc == 2 ? "live" : "";
	int live = !strcmp(device, "live"), asked = 0, missing = 0;
	if (!live && gpu_sheet_find(&sheet, device, &e)) {
		fprintf(stderr, "usage: cudnn-plans [time] h200|a100|t4|live%s%s\n", e.code ? ": " : "", e.text);
		return EXIT_USAGE;
	}
	gpu_sheet_json(&sheet, json, sizeof json);
	struct cudnn *cudnn;
	if (cudnn_open(&cudnn, live ? NULL : json, &e)) {
		printf("{\"note\": \"%s\"}\n", e.text);
		return e.code;
	}
	if (timing) {
		const int status = cudnn_time(cudnn, live, 60);
		cudnn_close(cudnn);
		return status;
	}
	for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
		for (int precision = PRECISION_FP32; precision <= PRECISION_FP16; precision++)
			for (int pass = CUDNN_PASS_FORWARD; pass <= CUDNN_PASS_WEIGHT; pass++) {
				if (!live && sheet.capability < 80 && (precision == PRECISION_BF16 || precision == PRECISION_TF32))
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
	       live ? "live" : sheet.full_name, asked, missing, asked - missing, asked);
	cudnn_close(cudnn);
	return missing != 0;
}
