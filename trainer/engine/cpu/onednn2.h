/* SPDX-License-Identifier: Apache-2.0
 * oneDNN 3's C API in terms of oneDNN 2's, as far as the baseline uses it: 3.0 took the operation descriptors away and made memory descriptors opaque.
 * Source of both: the developer guide's pages of the primitives. */
#ifndef CHEXNET_ENGINE_CPU_ONEDNN2_H
#define CHEXNET_ENGINE_CPU_ONEDNN2_H

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR == 2
#include <stdlib.h>

typedef dnnl_memory_desc_t *memory_desc;
typedef const dnnl_memory_desc_t *const_dnnl_memory_desc_t;

static inline dnnl_status_t dnnl_memory_desc_create_with_tag(memory_desc *desc, int n_dims, const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
	*desc = malloc(sizeof **desc);
	dnnl_status_t status = *desc ? dnnl_memory_desc_init_by_tag(*desc, n_dims, dims, type, tag) : dnnl_out_of_memory;
	if (status)
		free(*desc);
	return status;
}

static inline dnnl_status_t dnnl_memory_desc_destroy(memory_desc desc)
{
	free(desc);
	return dnnl_success;
}

static inline dnnl_status_t dnnl_convolution_forward_primitive_desc_create(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, dnnl_prop_kind_t prop,
                                                                           dnnl_alg_kind_t alg, const_dnnl_memory_desc_t x, const_dnnl_memory_desc_t weights,
                                                                           const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t y, const dnnl_dims_t strides,
                                                                           const dnnl_dims_t dilates, const dnnl_dims_t pad, const dnnl_dims_t pad_end,
                                                                           const_dnnl_primitive_attr_t attr)
{
	dnnl_convolution_desc_t op;
	dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(&op, prop, alg, x, weights, bias, y, strides, dilates, pad, pad_end);
	return status ? status : dnnl_primitive_desc_create(desc, &op, attr, engine, NULL);
}

static inline dnnl_status_t dnnl_convolution_backward_data_primitive_desc_create(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, dnnl_alg_kind_t alg,
                                                                                 const_dnnl_memory_desc_t dx, const_dnnl_memory_desc_t weights,
                                                                                 const_dnnl_memory_desc_t dy, const dnnl_dims_t strides, const dnnl_dims_t dilates,
                                                                                 const dnnl_dims_t pad, const dnnl_dims_t pad_end,
                                                                                 const_dnnl_primitive_desc_t forward, const_dnnl_primitive_attr_t attr)
{
	dnnl_convolution_desc_t op;
	dnnl_status_t status = dnnl_dilated_convolution_backward_data_desc_init(&op, alg, dx, weights, dy, strides, dilates, pad, pad_end);
	return status ? status : dnnl_primitive_desc_create(desc, &op, attr, engine, forward);
}

static inline dnnl_status_t dnnl_convolution_backward_weights_primitive_desc_create(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, dnnl_alg_kind_t alg,
                                                                                    const_dnnl_memory_desc_t x, const_dnnl_memory_desc_t dweights,
                                                                                    const_dnnl_memory_desc_t dbias, const_dnnl_memory_desc_t dy,
                                                                                    const dnnl_dims_t strides, const dnnl_dims_t dilates, const dnnl_dims_t pad,
                                                                                    const dnnl_dims_t pad_end, const_dnnl_primitive_desc_t forward,
                                                                                    const_dnnl_primitive_attr_t attr)
{
	dnnl_convolution_desc_t op;
	dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(&op, alg, x, dweights, dbias, dy, strides, dilates, pad, pad_end);
	return status ? status : dnnl_primitive_desc_create(desc, &op, attr, engine, forward);
}

static inline dnnl_status_t dnnl_batch_normalization_forward_primitive_desc_create(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, dnnl_prop_kind_t prop,
                                                                                   const_dnnl_memory_desc_t x, const_dnnl_memory_desc_t y, float epsilon,
                                                                                   unsigned flags, const_dnnl_primitive_attr_t attr)
{
	(void)y; /* as x */
	dnnl_batch_normalization_desc_t op;
	dnnl_status_t status = dnnl_batch_normalization_forward_desc_init(&op, prop, x, epsilon, flags);
	return status ? status : dnnl_primitive_desc_create(desc, &op, attr, engine, NULL);
}

static inline dnnl_status_t dnnl_batch_normalization_backward_primitive_desc_create(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, dnnl_prop_kind_t prop,
                                                                                    const_dnnl_memory_desc_t dx, const_dnnl_memory_desc_t dy,
                                                                                    const_dnnl_memory_desc_t x, float epsilon, unsigned flags,
                                                                                    const_dnnl_primitive_desc_t forward, const_dnnl_primitive_attr_t attr)
{
	(void)dy; /* as dx */
	dnnl_batch_normalization_desc_t op;
	dnnl_status_t status = dnnl_batch_normalization_backward_desc_init(&op, prop, dx, x, epsilon, flags);
	return status ? status : dnnl_primitive_desc_create(desc, &op, attr, engine, forward);
}

static inline dnnl_status_t dnnl_pooling_forward_primitive_desc_create(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, dnnl_prop_kind_t prop,
                                                                       dnnl_alg_kind_t alg, const_dnnl_memory_desc_t x, const_dnnl_memory_desc_t y,
                                                                       const dnnl_dims_t strides, const dnnl_dims_t window, const dnnl_dims_t dilates,
                                                                       const dnnl_dims_t pad, const dnnl_dims_t pad_end, const_dnnl_primitive_attr_t attr)
{
	dnnl_pooling_v2_desc_t op;
	dnnl_status_t status = dnnl_pooling_v2_forward_desc_init(&op, prop, alg, x, y, strides, window, dilates, pad, pad_end);
	return status ? status : dnnl_primitive_desc_create(desc, &op, attr, engine, NULL);
}

static inline dnnl_status_t dnnl_pooling_backward_primitive_desc_create(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, dnnl_alg_kind_t alg,
                                                                        const_dnnl_memory_desc_t dx, const_dnnl_memory_desc_t dy, const dnnl_dims_t strides,
                                                                        const dnnl_dims_t window, const dnnl_dims_t dilates, const dnnl_dims_t pad,
                                                                        const dnnl_dims_t pad_end, const_dnnl_primitive_desc_t forward,
                                                                        const_dnnl_primitive_attr_t attr)
{
	dnnl_pooling_v2_desc_t op;
	dnnl_status_t status = dnnl_pooling_v2_backward_desc_init(&op, alg, dx, dy, strides, window, dilates, pad, pad_end);
	return status ? status : dnnl_primitive_desc_create(desc, &op, attr, engine, forward);
}
#else
typedef dnnl_memory_desc_t memory_desc;
#endif

#endif
