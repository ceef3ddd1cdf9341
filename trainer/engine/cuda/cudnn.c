/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/cudnn.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cudnn_graph.h>

#include "engine/cuda/library.h"

typedef cudnnBackendDescriptor_t descriptor;

enum { MAX_CONFIGS = 64, ALIGNMENT = 16, UID_IN = 1, UID_WEIGHT = 2, UID_OUT = 3 };

struct cudnn {
	void *library;
	cudnnHandle_t handle; /* NULL without a device */
	descriptor device;    /* NULL with one */
	size_t (*version)(void);
	const char *(*error_string)(cudnnStatus_t);
	cudnnStatus_t (*create)(cudnnHandle_t *);
	cudnnStatus_t (*destroy)(cudnnHandle_t);
	cudnnStatus_t (*set_stream)(cudnnHandle_t, cudaStream_t);
	cudnnStatus_t (*make)(cudnnBackendDescriptorType_t, descriptor *);
	cudnnStatus_t (*drop)(descriptor);
	cudnnStatus_t (*finalize)(descriptor);
	cudnnStatus_t (*set)(descriptor, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t, const void *);
	cudnnStatus_t (*get)(const descriptor, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t, int64_t *, void *);
	cudnnStatus_t (*execute)(cudnnHandle_t, descriptor, descriptor);
};

struct cudnn_plan {
	descriptor plan; /* NULL for a described device: it can be counted on, not run */
	size_t workspace;
};

/* A convolution's operation graph and the heuristics' answer to it. */
struct question {
	descriptor in, weight, out, convolution, operation, graph, heuristics;
	descriptor configs[MAX_CONFIGS];
	int offered; /* configs that the heuristics returned */
};

/* libcudnn.so.9 opens its parts by name when it first needs them, and those in LD_LIBRARY_PATH, which come before its own folder, may be another
 * version's: it then ends the program. What is loaded already is not looked for. */
static void load_parts(void *library)
{
	static const char *const parts[] = { "graph", "ext", "ops", "cnn", "heuristic", "engines_precompiled", "engines_runtime_compiled", "engines_tensor_ir" };
	void *function = dlsym(library, "cudnnGetVersion");
	Dl_info shim;
	char path[4096];

	if (!function || !dladdr(function, &shim) || !strrchr(shim.dli_fname, '/'))
		return;
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		const int folder = (int)(strrchr(shim.dli_fname, '/') - shim.dli_fname);

		if (snprintf(path, sizeof path, "%.*s/libcudnn_%s.so.9", folder, shim.dli_fname, parts[i]) < (int)sizeof path)
			dlopen(path, RTLD_LAZY | RTLD_LOCAL); /* two came after 9.19; one that is not there is for cuDNN to miss */
	}
}

static int load(struct cudnn *c, struct error *e)
{
	c->library = library_open("libcudnn.so.9", e);
	if (!c->library)
		return -e->code;
	load_parts(c->library);
	const struct {
		const char *name;
		void *function;
	} wanted[] = {
		{ "cudnnGetVersion", &c->version }, { "cudnnGetErrorString", &c->error_string }, { "cudnnCreate", &c->create },
		{ "cudnnDestroy", &c->destroy }, { "cudnnSetStream", &c->set_stream }, { "cudnnBackendCreateDescriptor", &c->make },
		{ "cudnnBackendDestroyDescriptor", &c->drop }, { "cudnnBackendFinalize", &c->finalize }, { "cudnnBackendSetAttribute", &c->set },
		{ "cudnnBackendGetAttribute", &c->get }, { "cudnnBackendExecute", &c->execute },
	};
	for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
		void *address = dlsym(c->library, wanted[i].name);
		if (!address)
			return fail(e, EXIT_INTERNAL, "libcudnn.so.9 has no %s: version 9 or newer is needed", wanted[i].name);
		memcpy(wanted[i].function, &address, sizeof address);
	}
	return 0;
}

static int checked(struct cudnn *c, cudnnStatus_t status, const char *what, struct error *e)
{
	return status == CUDNN_STATUS_SUCCESS ? 0 : fail(e, EXIT_INTERNAL, "cuDNN %zu, %s: %s", c->version(), what, c->error_string(status));
}

int cudnn_open(struct cudnn **cudnn, const char *device, struct error *e)
{
	struct cudnn *c = *cudnn = calloc(1, sizeof *c);
	if (!c)
		return fail(e, EXIT_INTERNAL, "no memory for cuDNN");
	int rc = load(c, e);
	if (!rc && !device)
		rc = checked(c, c->create(&c->handle), "cudnnCreate", e);
	if (!rc && device) {
		rc = checked(c, c->make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &c->device), "device description", e);
		if (!rc)
			rc = checked(c, c->set(c->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(device) + 1, device), "device description", e);
		if (!rc)
			rc = checked(c, c->finalize(c->device), "device description", e);
	}
	if (rc) {
		cudnn_close(c);
		*cudnn = NULL;
	}
	return rc;
}

void cudnn_close(struct cudnn *c)
{
	if (!c)
		return;
	if (c->device)
		c->drop(c->device);
	if (c->handle)
		c->destroy(c->handle);
	free(c); /* the library stays: CUDA does not like it to be closed, and to load it again takes seconds */
}

size_t cudnn_version(const struct cudnn *c)
{
	return c->version();
}

/* ---- descriptors: each setter gives up after the first failure ---- */

static int set(struct cudnn *c, int rc, descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void *values, struct error *e)
{
	return rc ? rc : checked(c, c->set(d, name, type, count, values), "cudnnBackendSetAttribute", e);
}

static cudnnDataType_t data_type(enum precision precision)
{
	switch (precision) {
	case PRECISION_BF16:
		return CUDNN_DATA_BFLOAT16;
	case PRECISION_FP16:
		return CUDNN_DATA_HALF;
	default:
		return CUDNN_DATA_FLOAT;
	}
}

/* dims and strides in cuDNN's order n, c, h, w. */
static int make_tensor(struct cudnn *c, descriptor *d, int64_t uid, cudnnDataType_t type, const int64_t dims[4], const int64_t strides[4], struct error *e)
{
	const int64_t alignment = ALIGNMENT;
	int rc = checked(c, c->make(CUDNN_BACKEND_TENSOR_DESCRIPTOR, d), "tensor", e);
	rc = set(c, rc, *d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid, e);
	rc = set(c, rc, *d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, e);
	rc = set(c, rc, *d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment, e);
	rc = set(c, rc, *d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims, e);
	rc = set(c, rc, *d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides, e);
	return rc ? rc : checked(c, c->finalize(*d), "tensor", e);
}

static int make_map(struct cudnn *c, descriptor *d, int64_t uid, cudnnDataType_t type, int images, int channels, int side, int pitch, struct error *e)
{
	const int64_t dims[4] = { images, channels, side, side }, strides[4] = { (int64_t)side * side * pitch, 1, (int64_t)side * pitch, pitch };
	return make_tensor(c, d, uid, type, dims, strides, e);
}

static int make_convolution(struct cudnn *c, descriptor *d, const struct cudnn_convolution *v, struct error *e)
{
	const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
	const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	const int64_t spatial = 2, pad[2] = { v->pad, v->pad }, stride[2] = { v->stride, v->stride }, dilation[2] = { 1, 1 };
	int rc = checked(c, c->make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, d), "convolution", e);
	rc = set(c, rc, *d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial, e);
	rc = set(c, rc, *d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute, e);
	rc = set(c, rc, *d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode, e);
	rc = set(c, rc, *d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad, e);
	rc = set(c, rc, *d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad, e);
	rc = set(c, rc, *d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation, e);
	rc = set(c, rc, *d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride, e);
	return rc ? rc : checked(c, c->finalize(*d), "convolution", e);
}

/* The attributes of the three operations, in the order in, weight, out. */
static const struct operation {
	cudnnBackendDescriptorType_t type;
	cudnnBackendAttributeName_t tensor[3], convolution, alpha, beta;
} operations[] = {
	[CUDNN_PASS_FORWARD] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
	                         { CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y },
	                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA },
	[CUDNN_PASS_DATA] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
	                      { CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY },
	                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA },
	[CUDNN_PASS_WEIGHT] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
	                        { CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY },
	                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA },
};

static int make_graph(struct cudnn *c, struct question *q, const struct cudnn_convolution *v, struct error *e)
{
	const struct operation *op = &operations[v->pass];
	const cudnnDataType_t type = data_type(v->precision), weight_type = v->pass == CUDNN_PASS_WEIGHT && v->weight_fp32 ? CUDNN_DATA_FLOAT : type;
	const int64_t k = v->kernel, dims[4] = { v->c_out, v->c_in, k, k }, strides[4] = { k * k * v->c_in, 1, k * v->c_in, v->c_in };
	const float one = 1, zero = 0;
	int rc = make_map(c, &q->in, UID_IN, type, v->images, v->c_in, v->h_in, v->in_pitch, e);
	if (!rc)
		rc = make_tensor(c, &q->weight, UID_WEIGHT, weight_type, dims, strides, e);
	if (!rc)
		rc = make_map(c, &q->out, UID_OUT, type, v->images, v->c_out, v->h_out, v->out_pitch, e);
	if (!rc)
		rc = make_convolution(c, &q->convolution, v, e);
	if (!rc)
		rc = checked(c, c->make(op->type, &q->operation), "operation", e);
	const descriptor tensors[3] = { q->in, q->weight, q->out };
	for (int i = 0; i < 3; i++)
		rc = set(c, rc, q->operation, op->tensor[i], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[i], e);
	rc = set(c, rc, q->operation, op->convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &q->convolution, e);
	rc = set(c, rc, q->operation, op->alpha, CUDNN_TYPE_FLOAT, 1, &one, e);
	rc = set(c, rc, q->operation, op->beta, CUDNN_TYPE_FLOAT, 1, &zero, e);
	if (!rc)
		rc = checked(c, c->finalize(q->operation), "operation", e);
	if (!rc)
		rc = checked(c, c->make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &q->graph), "operation graph", e);
	rc = set(c, rc, q->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &q->operation, e);
	if (c->handle)
		rc = set(c, rc, q->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &c->handle, e);
	return rc ? rc : checked(c, c->finalize(q->graph), "operation graph", e);
}

static int ask_heuristics(struct cudnn *c, struct question *q, cudnnBackendHeurMode_t mode, struct error *e)
{
	int rc = checked(c, c->make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &q->heuristics), "heuristics", e);
	rc = set(c, rc, q->heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &q->graph, e);
	rc = set(c, rc, q->heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, e);
	if (c->device)
		rc = set(c, rc, q->heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->device, e);
	if (rc)
		return rc;
	if (c->finalize(q->heuristics) != CUDNN_STATUS_SUCCESS)
		return 0; /* nothing offered for this graph on this device: no error */
	for (int i = 0; i < MAX_CONFIGS && !rc; i++)
		rc = checked(c, c->make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &q->configs[i]), "engine configuration", e);
	int64_t count = 0;
	if (!rc)
		rc = checked(c, c->get(q->heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &count, q->configs), "heuristics", e);
	q->offered = rc ? 0 : (int)(count < MAX_CONFIGS ? count : MAX_CONFIGS);
	return rc;
}

static void drop_answer(struct cudnn *c, struct question *q)
{
	for (int i = 0; i < MAX_CONFIGS; i++)
		if (q->configs[i])
			c->drop(q->configs[i]);
	if (q->heuristics)
		c->drop(q->heuristics);
	memset(q->configs, 0, sizeof q->configs);
	q->heuristics = NULL;
	q->offered = 0;
}

static void drop_question(struct cudnn *c, struct question *q)
{
	const descriptor all[] = { q->graph, q->operation, q->convolution, q->in, q->weight, q->out };
	drop_answer(c, q);
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		if (all[i])
			c->drop(all[i]);
}

/* Results must repeat bit by bit, and fp32 must stay fp32. */
static int acceptable(struct cudnn *c, descriptor config, enum precision precision)
{
	descriptor engine = NULL;
	cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	int64_t count = 0, one = 0;
	int good = c->make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) == CUDNN_STATUS_SUCCESS &&
	           c->get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &engine) == CUDNN_STATUS_SUCCESS &&
	           c->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) == CUDNN_STATUS_SUCCESS;
	for (int64_t i = 0; i < count && good; i++) {
		if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC || notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
			good = 0;
		if (precision == PRECISION_FP32 && (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
			good = 0;
	}
	if (engine)
		c->drop(engine);
	return good;
}

/* Best plans first; those of last resort only where there are no others. */
static const cudnnBackendHeurMode_t modes[] = { CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK };
enum { N_MODES = sizeof modes / sizeof modes[0] };

int cudnn_offers(struct cudnn *c, const struct cudnn_convolution *v, int *count, struct error *e)
{
	struct question q = { 0 };
	*count = 0;
	int rc = make_graph(c, &q, v, e);
	for (int m = 0; m < N_MODES && !rc && *count == 0; m++) {
		rc = ask_heuristics(c, &q, modes[m], e);
		for (int i = 0; i < q.offered; i++)
			*count += acceptable(c, q.configs[i], v->precision);
		drop_answer(c, &q);
	}
	drop_question(c, &q);
	return rc;
}

/* 0 and *plan where the device can run this configuration; a described one is believed to. */
static int build(struct cudnn *c, descriptor config, struct cudnn_plan *plan)
{
	int64_t workspace = 0, one = 0;
	plan->plan = NULL;
	if (!c->handle) {
		if (c->get(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &one, &workspace) != CUDNN_STATUS_SUCCESS)
			return -1;
		plan->workspace = (size_t)workspace;
		return 0;
	}
	if (c->make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->plan) != CUDNN_STATUS_SUCCESS)
		return -1;
	if (c->set(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &c->handle) == CUDNN_STATUS_SUCCESS &&
	    c->set(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config) == CUDNN_STATUS_SUCCESS &&
	    c->finalize(plan->plan) == CUDNN_STATUS_SUCCESS &&
	    c->get(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &one, &workspace) == CUDNN_STATUS_SUCCESS) {
		plan->workspace = (size_t)workspace;
		return 0;
	}
	c->drop(plan->plan);
	return -1;
}

int cudnn_plans_make(struct cudnn *c, const struct cudnn_convolution *v, int most, struct cudnn_plan **plans, int *count, struct error *e)
{
	struct question q = { 0 };
	struct cudnn_plan plan = { 0 };
	int offered = 0, rc = make_graph(c, &q, v, e);
	*count = 0;
	for (int m = 0; m < N_MODES && !rc && *count == 0; m++) {
		rc = ask_heuristics(c, &q, modes[m], e);
		offered += q.offered;
		for (int i = 0; i < q.offered && *count < most && !rc; i++) {
			if (!acceptable(c, q.configs[i], v->precision) || build(c, q.configs[i], &plan))
				continue;
			plans[*count] = malloc(sizeof plan);
			if (plans[*count])
				*plans[(*count)++] = plan;
			else
				rc = fail(e, EXIT_INTERNAL, "no memory for a cuDNN plan");
		}
		drop_answer(c, &q);
	}
	if (!rc && *count == 0) {
		static const char *const pass[] = { "forward", "data gradient", "weight gradient" };
		rc = fail(e, EXIT_INTERNAL, "cuDNN %zu has no deterministic %s of a %dx%d convolution %d -> %d on %dx%d maps, %d of them (%d plans offered)", c->version(),
		          pass[v->pass], v->kernel, v->kernel, v->c_in, v->c_out, v->h_in, v->h_in, v->images, offered);
	}
	drop_question(c, &q);
	while (rc && *count > 0)
		cudnn_plan_free(c, plans[--*count]);
	return rc;
}

int cudnn_plan_make(struct cudnn *c, const struct cudnn_convolution *v, struct cudnn_plan **plan, struct error *e)
{
	int count;
	*plan = NULL;
	return cudnn_plans_make(c, v, 1, plan, &count, e);
}

void cudnn_plan_free(struct cudnn *c, struct cudnn_plan *plan)
{
	if (plan && plan->plan)
		c->drop(plan->plan);
	free(plan);
}

size_t cudnn_plan_workspace(const struct cudnn_plan *plan)
{
	return plan->workspace;
}

int cudnn_plan_run(struct cudnn *c, const struct cudnn_plan *plan, void *in, void *weight, void *out, void *workspace, void *stream, struct error *e)
{
	const int64_t uids[3] = { UID_IN, UID_WEIGHT, UID_OUT };
	void *pointers[3] = { in, weight, out };
	descriptor pack = NULL;
	int rc = checked(c, c->make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack), "variant pack", e);
	rc = set(c, rc, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uids, e);
	rc = set(c, rc, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers, e);
	rc = set(c, rc, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace, e);
	if (!rc)
		rc = checked(c, c->finalize(pack), "variant pack", e);
	if (!rc)
		rc = checked(c, c->set_stream(c->handle, stream), "cudnnSetStream", e);
	if (!rc)
		rc = checked(c, c->execute(c->handle, plan->plan, pack), "cudnnBackendExecute", e);
	if (pack)
		c->drop(pack);
	return rc;
}
