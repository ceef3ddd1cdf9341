/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/reference/fp32.h"
#include "engine/reference/fp64.h"

int engine_reference_open(struct engine **engine, const struct engine_conf *conf, struct error *e)
{
	switch (conf->precision) {
	case PRECISION_FP32:
		return reference_open_fp32(engine, conf, e);
	case PRECISION_FP64:
	case PRECISION_BF16: /* what bf16 storage does to a net, apart from any other rounding */
		return reference_open_fp64(engine, conf, e);
	default:
		return fail(e, EXIT_USAGE, "the reference engine computes in fp32, in fp64, or in fp64 on activations stored in bf16");
	}
}
