/* SPDX-License-Identifier: Apache-2.0
 * Gradients in buckets: contiguous ranges of one slab, in the order in which the backward pass finishes them. */
#include "planner.h"
#include "queue.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_BUCKET_BYTES (2u << 20)
#define BUCKETS_MAX 16 /* of a cut by measurement; more gain nothing on any link that was modelled */
#define WARM_UP 3      /* steps before ready times are taken, … */
#define MEASURED 4     /* … and steps over which their mean is */

struct bucket {
	size_t begin, end; /* floats of the slab */
	int last_tensor;
};

struct hvd_plan {
	struct hvd *h;
	float *slab;
	size_t floats;
	int tensors, buckets;
	struct bucket *bucket; /* [buckets], room for [tensors] */
	size_t *count;         /* [tensors] floats */
	size_t bucket_bytes;   /* of the first cut */
	bool statistics;       /* are the last tensor */
	bool by_measurement;   /* is a later cut */
	bool measuring;        /* the cut is still the first one; ready times are taken */
	unsigned step;
	double begin, *ready;  /* of this step; [tensors] seconds into it, summed over the measured steps */
	int next_tensor, next_bucket; /* of this step */
	unsigned epoch;               /* of the world in which this step began */
	long last;                    /* number of the collective posted last */
	double exposed;
};

/* The first cut: after each tensor that fills a bucket; running statistics, which are ready last, travel alone. */
static void first_cut(struct hvd_plan *p)
{
	size_t begin = 0, end = 0;
	p->buckets = 0;
	for (int i = 0; i < p->tensors; i++) {
		end += p->count[i];
		if ((end - begin) * sizeof(float) >= p->bucket_bytes || (p->statistics && i == p->tensors - 2) || i == p->tensors - 1) {
			p->bucket[p->buckets++] = (struct bucket){ begin, end, i };
			begin = end;
		}
	}
	p->epoch = p->h->world.epoch;
	p->next_tensor = p->next_bucket = 0;
	p->measuring = p->by_measurement;
	p->step = 0;
	memset(p->ready, 0, (size_t)p->tensors * sizeof *p->ready);
}

static uint64_t hash(uint64_t h, const void *data, size_t n)
{
	const uint8_t *p = data;
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3; /* FNV-1a */
	return h;
}

struct declaration {
	uint64_t hash, bucket_bytes;
	int64_t tensors;
};

/* All ranks know the hashes of all tensors of all ranks now: the first difference has a name. */
static int name_difference(struct hvd *h, const struct declaration *d, const struct hvd_tensor *tensors, const uint64_t *mine, int n)
{
	int r = 1;
	while (d[r].hash == d[0].hash && d[r].tensors == d[0].tensors && d[r].bucket_bytes == d[0].bucket_bytes)
		r++;
	const char *host = h->mesh->peer[r].host;
	if (d[r].bucket_bytes != d[0].bucket_bytes)
		return fail(h, HVD_EMISMATCH, "hvd_plan_open: rank %d on %.32s asks for buckets of %llu bytes, rank 0 of %llu", r, host,
			    (unsigned long long)d[r].bucket_bytes, (unsigned long long)d[0].bucket_bytes);
	int most = 0;
	for (int i = 0; i < h->world.size; i++)
		most = d[i].tensors > most ? (int)d[i].tensors : most;
	size_t row = (size_t)most * sizeof(uint64_t);
	uint64_t *padded = calloc((size_t)most, sizeof *padded), *all = calloc((size_t)h->world.size, row);
	int first = 0, status = padded && all ? 0 : fail(h, HVD_ESYS, "no memory for %d tensors", most);
	if (!status) {
		memcpy(padded, mine, (size_t)n * sizeof *mine);
		status = mesh_gather(h->mesh, padded, row, all);
	}
	if (!status) {
		while (first < most - 1 && all[first] == all[(size_t)r * (size_t)most + (size_t)first])
			first++;
		status = fail(h, HVD_EMISMATCH,
			      "hvd_plan_open: rank %d on %.32s declares other gradients than rank 0, from number %d on (here %.80s, %zu floats); %lld and %lld in all",
			      r, host, first, first < n ? tensors[first].name : "none", first < n ? tensors[first].count : 0,
			      (long long)d[r].tensors, (long long)d[0].tensors);
	}
	free(padded);
	free(all);
	return status;
}

static int agree(struct hvd *h, const struct hvd_tensor *tensors, int n, size_t bucket_bytes)
{
	struct declaration mine = { .hash = 0xcbf29ce484222325, .bucket_bytes = bucket_bytes, .tensors = n };
	struct declaration *all = calloc((size_t)h->world.size, sizeof *all);
	uint64_t *hashes = calloc((size_t)n, sizeof *hashes);
	int status = all && hashes ? queue_drain(h) : fail(h, HVD_ESYS, "no memory for %d tensors", n);
	for (int i = 0; !status && i < n; i++) {
		uint64_t count = tensors[i].count;
		mine.hash = hash(hash(mine.hash, tensors[i].name, strlen(tensors[i].name) + 1), &count, sizeof count);
		hashes[i] = mine.hash;
	}
	if (!status)
		status = mesh_gather(h->mesh, &mine, sizeof mine, all);
	bool same = true;
	for (int r = 1; !status && r < h->world.size; r++)
		same &= !memcmp(&all[r], &all[0], sizeof *all);
	if (!status && !same)
		status = name_difference(h, all, tensors, hashes, n);
	else if (status && h->mesh->failed)
		fail(h, status, "%s", h->mesh->fault);
	free(all);
	free(hashes);
	return status;
}

int hvd_plan_open(struct hvd *h, struct hvd_plan **out, const struct hvd_tensor *tensors, int n, size_t bucket_bytes)
{
	*out = NULL;
	if (n < 1)
		return fail(h, HVD_EINVAL, "hvd_plan_open: no tensors");
	bool measure = !bucket_bytes && h->world.size > 1 && !h->backend->post;
	bucket_bytes = bucket_bytes ? bucket_bytes : DEFAULT_BUCKET_BYTES;
	mesh_doing(h->mesh, DOING_PLAN, 0);
	int status = h->world.size > 1 ? agree(h, tensors, n, bucket_bytes) : 0;
	if (status)
		return status;
	struct hvd_plan *p = calloc(1, sizeof *p);
	struct bucket *bucket = calloc((size_t)n, sizeof *bucket);
	if (!p || !bucket) {
		free(p);
		free(bucket);
		return fail(h, HVD_ESYS, "hvd_plan_open: no memory for %d tensors", n);
	}
	*p = (struct hvd_plan){ .h = h, .tensors = n, .bucket = bucket, .bucket_bytes = bucket_bytes, .by_measurement = measure && n > 1,
				.statistics = !strcmp(tensors[n - 1].name, "statistics") };
	p->count = calloc((size_t)n, sizeof *p->count);
	p->ready = calloc((size_t)n, sizeof *p->ready);
	if (!p->count || !p->ready) {
		hvd_plan_close(p);
		return fail(h, HVD_ESYS, "hvd_plan_open: no memory for %d tensors", n);
	}
	for (int i = 0; i < n; i++)
		p->count[i] = tensors[i].count;
	first_cut(p);
	p->floats = bucket[p->buckets - 1].end;
	p->slab = hvd_alloc(h, p->floats * sizeof(float));
	if (!p->slab) {
		hvd_plan_close(p);
		return h->mesh->failed ? h->mesh->failed : HVD_ESYS;
	}
	*out = p;
	return 0;
}

float *hvd_plan_slab(const struct hvd_plan *p)
{
	return p->slab;
}

/* ---- the cut by measurement ----------------------------------------------------------------------- */

/* What an all-reduce costs here: the least of a few of each size, so that waiting for a late rank does not count. */
static int measure_cost(struct hvd *h, struct cost *cost)
{
	static const size_t sizes[] = { 4096, 65536, 524288, 2097152 };
	double bytes[4], seconds[4];
	float *p = hvd_alloc(h, sizes[3]);
	int status = p ? 0 : h->mesh->failed ? h->mesh->failed : HVD_ESYS;
	for (int k = 0; !status && k < 4; k++) {
		bytes[k] = (double)sizes[k];
		seconds[k] = 1e300;
		for (int round = 0; !status && round < 5; round++) {
			double begin = now();
			status = hvd_allreduce(h, p, p, sizes[k] / sizeof *p, HVD_F32, HVD_SUM);
			double took = now() - begin;
			seconds[k] = round && took < seconds[k] ? took : seconds[k];
		}
	}
	if (p)
		hvd_free(h, p);
	*cost = plan_fit(bytes, seconds, 4);
	return status;
}

/* All ranks take the means over all ranks, so all come to the same cut, without a further word. */
static int cut_by_measurement(struct hvd_plan *p)
{
	struct cost cost;
	int n = p->tensors, *last = calloc(BUCKETS_MAX, sizeof *last);
	size_t *bytes = calloc((size_t)n, sizeof *bytes);
	double *ready = calloc((size_t)n + 2, sizeof *ready), through;
	int status = last && bytes && ready ? measure_cost(p->h, &cost) : fail(p->h, HVD_ESYS, "no memory for %d tensors", n);
	if (!status) {
		for (int i = 0; i < n; i++) {
			ready[i] = p->ready[i] / MEASURED;
			bytes[i] = p->count[i] * sizeof(float);
		}
		ready[n] = cost.latency;
		ready[n + 1] = cost.per_byte;
		status = hvd_allreduce(p->h, ready, ready, (size_t)n + 2, HVD_F64, HVD_AVG);
	}
	if (!status) {
		cost = (struct cost){ ready[n], ready[n + 1] };
		int buckets = plan_cut(ready, bytes, n, &cost, BUCKETS_MAX < n ? BUCKETS_MAX : n, last, &through);
		size_t end = 0;
		for (int b = 0, i = 0; b < buckets; b++) {
			size_t begin = end;
			for (; i <= last[b]; i++)
				end += p->count[i];
			p->bucket[b] = (struct bucket){ begin, end, last[b] };
		}
		p->buckets = buckets ? buckets : p->buckets;
		p->measuring = false;
	}
	free(last);
	free(bytes);
	free(ready);
	return status;
}

/* ---- a step --------------------------------------------------------------------------------------- */

int hvd_plan_ready(struct hvd_plan *p, int i)
{
	if (p->epoch != p->h->world.epoch) /* survivors may be a step apart: all begin anew */
		first_cut(p);
	if (i != p->next_tensor)
		return fail(p->h, HVD_EINVAL, "hvd_plan_ready: gradient %d out of order, %d of %d is next", i, p->next_tensor, p->tensors);
	p->next_tensor++;
	if (p->measuring) {
		double t = now();
		p->begin = i ? p->begin : t;
		if (p->step >= WARM_UP)
			p->ready[i] += t - p->begin;
	}
	const struct bucket *b = &p->bucket[p->next_bucket];
	if (i != b->last_tensor)
		return 0;
	if (p->h->trace) {
		double t = now();
		trace_add(p->h, TRACE_READY, t, t, p->h->step, (uint32_t)p->next_bucket, (b->end - b->begin) * sizeof(float));
	}
	if (p->h->world.size > 1) {
		float *data = p->slab + b->begin;
		struct op op = { .kind = OP_ALLREDUCE, .bucket = p->next_bucket, .step = p->h->step, .in = data, .out = data, .n = b->end - b->begin,
				 .type = HVD_F32, .op = HVD_AVG };
		long number = p->h->backend->post ? p->h->backend->post(p->h, &op) : queue_post(p->h, &op);
		if (number < 0)
			return (int)number;
		p->last = number;
	}
	p->next_bucket++;
	return 0;
}

int hvd_plan_finish(struct hvd_plan *p)
{
	if (p->next_tensor != p->tensors)
		return fail(p->h, HVD_EINVAL, "hvd_plan_finish: gradient %d of %d was not declared ready", p->next_tensor, p->tensors);
	p->next_tensor = p->next_bucket = 0;
	double begin = now();
	int status = p->h->world.size == 1 ? 0 : p->h->backend->join ? p->h->backend->join(p->h) : queue_wait(p->h, p->last);
	p->exposed = now() - begin;
	trace_add(p->h, TRACE_WAIT, begin, begin + p->exposed, p->h->step, 0, p->floats * sizeof(float));
	p->step++;
	p->h->step++;
	if (!status && p->measuring && p->step == WARM_UP + MEASURED)
		status = cut_by_measurement(p);
	return status;
}

int hvd_plan_buckets(const struct hvd_plan *p)
{
	return p->buckets;
}

double hvd_plan_exposed(const struct hvd_plan *p)
{
	return p->exposed;
}

void hvd_plan_close(struct hvd_plan *p)
{
	if (!p)
		return;
	hvd_free(p->h, p->slab);
	free(p->count);
	free(p->ready);
	free(p->bucket);
	free(p);
}
