/* SPDX-License-Identifier: Apache-2.0
 * Gradients in buckets: contiguous ranges of one slab, in the order in which the backward pass finishes them. */
#include "chain.h"
#include "planner.h"
#include "queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WARM_UP 3      /* steps before ready times are taken, … */
#define MEASURED 4     /* … and steps over which their mean is */
#define SAMPLE_BYTES (2u << 20)
/* Slower than an all-reduce that nothing disturbs, as it was measured: a cut without slack has every bucket late when one is (11.9 ms exposed
 * of 400 at 1 Gbit/s, where the model had 0.9). What it exposes is its last bucket, which the slack does not change. */
#define MARGIN 1.15

struct hvd_plan {
	struct hvd *h;
	char *file;            /* of the cut, on rank 0; NULL: none */
	float *slab;
	size_t floats;
	int tensors, buckets;
	int *cut;              /* [buckets], room for [tensors]: the last tensor of each */
	size_t *bytes;         /* [tensors] */
	size_t bucket_bytes;   /* that were asked for; 0: a cut by measurement */
	bool statistics;       /* are the last tensor */
	bool by_measurement;   /* is a later cut */
	bool from_file;        /* is this cut: it stays */
	int every, pass;       /* gradient accumulation: passes a step, this one */
	uint64_t hash;         /* of names and sizes */
	unsigned step;
	double begin, period;  /* of this step; from one step to the next without waiting, summed over the measured steps */
	double *ready;         /* [tensors] seconds into a step, summed likewise */
	double *mean;          /* [tensors + 3] of what ranks measure; with sample, for the cut by measurement, which is to allocate nothing */
	float *sample;         /* [SAMPLE_BYTES] what is reduced to see what that costs */
	int next_tensor, next_bucket; /* of this step */
	size_t begun, filled;         /* floats of the slab before that bucket, and up to that tensor */
	unsigned epoch;               /* of the world in which this step began */
	long last;                    /* number of the collective posted last */
	double exposed;
};

static void begin_pass(struct hvd_plan *p)
{
	p->next_tensor = p->next_bucket = 0;
	p->begun = p->filled = 0;
}

/* In a world that has just been formed a step begins anew: survivors may be one apart. */
static void follow_world(struct hvd_plan *p)
{
	if (p->epoch == p->h->world.epoch)
		return;
	if (!p->from_file)
		p->buckets = plan_fill(p->bytes, p->tensors, p->bucket_bytes ? p->bucket_bytes : BUCKET_BYTES, p->statistics, p->cut);
	p->epoch = p->h->world.epoch;
	begin_pass(p);
	p->pass = 0;
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

/* All ranks know now that rank r declares something else: the first difference has a number, and a name. */
static int name_difference(struct hvd *h, const struct declaration *d, int r, const struct hvd_tensor *tensors, const uint64_t *mine, int n)
{
	const char *host = hvd_host(h, r);
	if (d[r].hash == d[0].hash && d[r].tensors == d[0].tensors)
		return fail(h, HVD_EMISMATCH, "hvd_plan_open: rank %d on %.63s asks for buckets of %llu bytes, rank 0 of %llu (0: by measurement)", r, host,
			    (unsigned long long)d[r].bucket_bytes, (unsigned long long)d[0].bucket_bytes);
	uint64_t *first_ranks = calloc((size_t)d[0].tensors, sizeof *first_ranks);
	int32_t first = 0;
	int status = first_ranks ? 0 : fail(h, HVD_ESYS, "no memory for %lld tensors", (long long)d[0].tensors);
	if (!status && h->world.rank == 0)
		memcpy(first_ranks, mine, (size_t)n * sizeof *mine);
	if (!status)
		status = hvd_broadcast(h, first_ranks, (size_t)d[0].tensors, HVD_U64, 0);
	while (!status && first < n && first < d[0].tensors && mine[first] == first_ranks[first])
		first++;
	if (!status)
		status = hvd_broadcast(h, &first, 1, HVD_I32, r);
	free(first_ranks);
	if (status)
		return status;
	return fail(h, HVD_EMISMATCH, "hvd_plan_open: rank %d on %.63s declares other gradients than rank 0, from number %d on (here %.80s, %zu floats); %lld and %lld in all",
		    r, host, first, first < n ? tensors[first].name : "none", first < n ? tensors[first].count : 0, (long long)d[r].tensors,
		    (long long)d[0].tensors);
}

static int agree(struct hvd *h, const struct hvd_tensor *tensors, int n, size_t bucket_bytes, const uint64_t *hashes)
{
	struct declaration mine = { .hash = hashes[n - 1], .bucket_bytes = bucket_bytes, .tensors = n };
	int status, r = 1;
	struct declaration *all = gathered(h, &mine, sizeof mine, &status);
	while (!status && r < h->world.size && !memcmp(&all[r], &all[0], sizeof *all))
		r++;
	if (!status && r < h->world.size)
		status = name_difference(h, all, r, tensors, hashes, n);
	free(all);
	return status;
}

/* Statistics are not rounded on the wire, so no gradient travels with them: else it would be the cut, measured anew by every run, that says which ones are. */
static void part_statistics(struct hvd_plan *p)
{
	const int last = p->tensors - 1;
	if (p->h->conf.wire == HVD_BF16 && p->statistics && last && p->buckets && (p->buckets == 1 || p->cut[p->buckets - 2] < last - 1)) {
		p->cut[p->buckets - 1] = last - 1;
		p->cut[p->buckets++] = last;
	}
}

/* Rank 0's file decides, if it is there; all ranks hear of it. */
static int cut_from_file(struct hvd_plan *p)
{
	struct hvd *h = p->h;
	int32_t *cut = calloc((size_t)p->tensors + 1, sizeof *cut); /* number of buckets, or a failure; the last tensor of each */
	char why[WHY_BYTES] = "rank 0 says why";
	int ranks = h->world.size;
	if (!cut)
		return fail(h, HVD_ESYS, "no memory for %d tensors", p->tensors);
	if (p->file)
		cut[0] = plan_read(p->file, p->hash, p->tensors, cut + 1, &ranks, why);
	if (p->file && !cut[0])
		cut[0] = plan_writable(p->file, why); /* told now, and not after a long while */
	if (ranks != h->world.size)
		fprintf(stderr, "hvd: HVD_PLAN: %s holds the best cut for %d ranks, which %d now take\n", h->conf.plan, ranks, h->world.size);
	int status = hvd_broadcast(h, cut, (size_t)p->tensors + 1, HVD_I32, 0);
	if (!status && cut[0] < 0)
		status = fail(h, HVD_EMISMATCH, "HVD_PLAN: %s", why);
	p->from_file = !status && cut[0] > 0;
	if (p->from_file) {
		p->by_measurement = false;
		p->buckets = cut[0];
		memcpy(p->cut, cut + 1, (size_t)cut[0] * sizeof *p->cut);
		part_statistics(p);
	}
	free(cut);
	return status;
}

/* The cut stays from now on: rank 0 writes it down, with the measurements behind it (may be NULL); not that of a world that lost ranks. */
static void keep_cut(struct hvd_plan *p, const struct profile *measured)
{
	char why[WHY_BYTES];
	if (p->file && !p->h->world.epoch && plan_write(p->file, p->hash, p->tensors, p->cut, p->buckets, measured, why))
		fprintf(stderr, "hvd: HVD_PLAN: %s: this program goes on with its plan, and the next measures anew\n", why);
}

/* That the program cannot move by chdir(). NULL: no memory. */
static char *absolute(const char *path)
{
	char *here = *path == '/' ? NULL : getcwd(NULL, 0), *whole = NULL;
	if (asprintf(&whole, "%s%s%s", here ? here : "", here ? "/" : "", path) < 0)
		whole = NULL;
	free(here);
	return whole;
}

/* On rank 0. */
static int choose_file(struct hvd_plan *p)
{
	struct hvd *h = p->h;
	h->planned = h->planned ? h->planned : p->hash;
	if (!h->conf.plan || h->world.rank)
		return 0;
	if (h->parent)
		fprintf(stderr, "hvd: rank %d on %s: HVD_PLAN is the plan of the whole world: its sub-world of %d ranks neither reads nor writes it\n",
			h->of_parent[0], hvd_host(h, 0), h->world.size);
	else if (h->planned != p->hash)
		fprintf(stderr, "hvd: HVD_PLAN is the program's first plan: that of %d other gradients neither reads nor writes it\n", p->tensors);
	else if (!(p->file = absolute(h->conf.plan)))
		return fail(h, HVD_ESYS, "hvd_plan_open: no memory for the name of HVD_PLAN");
	return 0;
}

static int prepare(struct hvd_plan *p, const struct hvd_tensor *tensors)
{
	struct hvd *h = p->h;
	const int n = p->tensors;
	uint64_t *hashes = calloc((size_t)n, sizeof *hashes);
	p->cut = calloc((size_t)n, sizeof *p->cut);
	p->bytes = calloc((size_t)n, sizeof *p->bytes);
	p->ready = calloc((size_t)n, sizeof *p->ready);
	p->mean = calloc((size_t)n + 3, sizeof *p->mean);
	int status = hashes && p->cut && p->bytes && p->ready && p->mean ? 0 : fail(h, HVD_ESYS, "hvd_plan_open: no memory for %d tensors", n);
	p->hash = 0xcbf29ce484222325;
	for (int i = 0; !status && i < n; i++) {
		uint64_t count = tensors[i].count;
		if (count > SIZE_MAX / sizeof(float) - p->floats)
			status = fail(h, HVD_EINVAL, "hvd_plan_open: %.80s has %zu floats: more than memory has addresses", tensors[i].name, tensors[i].count);
		p->hash = hashes[i] = hash(hash(p->hash, tensors[i].name, strlen(tensors[i].name) + 1), &count, sizeof count);
		p->bytes[i] = count * sizeof(float);
		p->floats += count;
	}
	if (!status)
		status = agree(h, tensors, n, p->bucket_bytes, hashes);
	free(hashes);
	if (status)
		return status;
	status = choose_file(p);
	if (!status)
		status = cut_from_file(p);
	if (status)
		return status;
	follow_world(p);
	p->slab = hvd_alloc(h, p->floats * sizeof(float));
	if (p->slab && p->by_measurement)
		p->sample = hvd_alloc(h, SAMPLE_BYTES);
	if (!p->slab || (p->by_measurement && !p->sample))
		return h->mesh->failed ? h->mesh->failed : HVD_ESYS;
	if (p->bucket_bytes && !p->from_file)
		keep_cut(p, NULL);
	return 0;
}

int hvd_plan_open(struct hvd *h, struct hvd_plan **out, const struct hvd_tensor *tensors, int n, size_t bucket_bytes)
{
	struct hvd_plan *p = *out = NULL;
	for (int i = 0; i < n; i++)
		if (!tensors[i].name)
			return fail(h, HVD_EINVAL, "hvd_plan_open: tensor %d has no name", i);
	p = *out = n < 1 ? NULL : calloc(1, sizeof *p);
	if (!p)
		return n < 1 ? fail(h, HVD_EINVAL, "hvd_plan_open: no tensors") : tell_lack(h, fail(h, HVD_ESYS, "hvd_plan_open: no memory"));
	*p = (struct hvd_plan){ .h = h, .tensors = n, .every = 1, .epoch = h->world.epoch - 1, .bucket_bytes = bucket_bytes,
				.by_measurement = !bucket_bytes && n > 1 && h->world.size > 1 && !h->backend->post,
				.statistics = !strcmp(tensors[n - 1].name, "statistics") };
	int status = queue_drain(h);
	mesh_doing(h->mesh, DOING_PLAN, 0);
	if (!status)
		status = prepare(p, tensors);
	if (status) {
		status = tell_lack(h, status);
		hvd_plan_close(p);
		*out = NULL;
	}
	return status;
}

float *hvd_plan_slab(const struct hvd_plan *p)
{
	return p->slab;
}

/* ---- the cut by measurement ----------------------------------------------------------------------- */

/* What an all-reduce costs here: the least of a few of each size, so that waiting for a late rank does not count. */
static int measure_cost(struct hvd *h, float *sample, struct cost *cost)
{
	static const size_t sizes[] = { 16384, 131072, 524288, SAMPLE_BYTES };
	double bytes[4], seconds[4];
	int status = 0;
	for (int k = 0; !status && k < 4; k++) {
		struct op op = { .kind = OP_ALLREDUCE, .bucket = -1, .in = sample, .out = sample, .n = sizes[k] / sizeof *sample, .narrow = h->conf.wire == HVD_BF16 };
		bytes[k] = (double)sizes[k];
		seconds[k] = 1e300;
		for (int round = 0; !status && round < 5; round++) {
			double begin = now();
			status = queue_run(h, &op);
			double took = now() - begin;
			seconds[k] = round && took < seconds[k] ? took : seconds[k];
		}
	}
	int links = h->world.nodes - 1, lanes = h->world.size / h->world.nodes; /* the same on every rank */
	if (!status)
		*cost = plan_fit(bytes, seconds, 4, links ? 2 * links - 1 : 0, (double)CHAIN_PIECE * (lanes < LANES_MAX ? lanes : LANES_MAX));
	return status;
}

/* All ranks take the means over all ranks, so all come to the same cut, without a further word. */
static int cut_by_measurement(struct hvd_plan *p)
{
	struct profile m = { .n = p->tensors, .ranks = p->h->world.size, .bytes = p->bytes };
	double *mean = p->mean;
	int status = measure_cost(p->h, p->sample, &m.cost);
	if (!status) {
		for (int i = 0; i < m.n; i++)
			mean[i] = p->ready[i] / MEASURED;
		mean[m.n] = m.cost.latency;
		mean[m.n + 1] = m.cost.per_byte;
		mean[m.n + 2] = p->period / (MEASURED - 1);
		status = hvd_allreduce(p->h, mean, mean, (size_t)m.n + 3, HVD_F64, HVD_AVG);
	}
	if (!status) {
		m.ready = mean;
		m.cost.latency = mean[m.n];
		m.cost.per_byte = mean[m.n + 1];
		struct cost careful = m.cost;
		careful.per_byte *= MARGIN;
		m.step = mean[m.n + 2] > mean[m.n - 1] ? mean[m.n + 2] : mean[m.n - 1];
		p->buckets = plan_cut(m.ready, m.bytes, m.n, &careful, BUCKETS_MAX, p->cut);
		part_statistics(p);
		m.cost.latency += m.cost.per_byte * m.cost.hops * m.cost.piece; /* the file has a line: that of large buckets */
		if (p->buckets)
			keep_cut(p, &m);
		else
			status = fail(p->h, HVD_ESYS, "no memory for a cut of %d tensors", m.n);
	}
	return status;
}

/* ---- a step --------------------------------------------------------------------------------------- */

/* What a device reduces it stamps itself: it is not through when a call returns, and graphs make none. */
static bool device_tells(const struct hvd *h)
{
	return h->backend->post && h->world.size > 1;
}

int hvd_plan_ready(struct hvd_plan *p, int i)
{
	follow_world(p);
	if (i != p->next_tensor || i == p->tensors)
		return fail(p->h, HVD_EINVAL, "hvd_plan_ready: gradient %d out of order, %d of %d is next", i, p->next_tensor, p->tensors);
	p->next_tensor++;
	p->filled += p->bytes[i] / sizeof(float);
	if (p->pass + 1 < p->every)
		return 0;
	if (p->by_measurement && p->step < WARM_UP + MEASURED) {
		double t = now();
		if (!i && p->step > WARM_UP)
			p->period += t - p->begin - p->exposed;
		p->begin = i ? p->begin : t;
		if (p->step >= WARM_UP)
			p->ready[i] += t - p->begin;
	}
	if (i != p->cut[p->next_bucket])
		return 0;
	float *data = p->slab + p->begun;
	size_t n = p->filled - p->begun;
	p->begun = p->filled;
	if (p->h->trace && !device_tells(p->h)) {
		double t = now();
		trace_add(p->h, TRACE_READY, t, t, p->h->step, (uint32_t)p->next_bucket, n * sizeof *data);
	}
	if (p->h->world.size > 1) {
		struct op op = { .kind = OP_ALLREDUCE, .bucket = p->next_bucket, .step = p->h->step, .in = data, .out = data, .n = n,
				 .type = HVD_F32, .op = HVD_AVG, .narrow = p->h->conf.wire == HVD_BF16 && !(p->statistics && i == p->tensors - 1) };
		int status = p->h->backend->post ? queue_drain_device(p->h) : 0; /* what was started before runs before */
		long number = status ? status : p->h->backend->post ? p->h->backend->post(p->h, &op) : queue_post(p->h, &op);
		if (number < 0)
			return (int)number;
		p->last = number;
	}
	p->next_bucket++;
	return 0;
}

int hvd_plan_finish(struct hvd_plan *p)
{
	follow_world(p);
	if (p->next_tensor != p->tensors)
		return fail(p->h, HVD_EINVAL, "hvd_plan_finish: gradient %d of %d was not declared ready", p->next_tensor, p->tensors);
	begin_pass(p);
	p->pass = (p->pass + 1) % p->every;
	if (p->pass)
		return 0;
	const uint32_t step = p->h->step; /* a device may be through with it, and count it, before this call is */
	double begin = now();
	int status = p->h->world.size == 1 ? 0 : p->h->backend->join ? p->h->backend->join(p->h) : hvd_wait(p->h, p->last);
	p->exposed = now() - begin;
	if (status)
		return status;
	if (!device_tells(p->h))
		trace_add(p->h, TRACE_WAIT, begin, begin + p->exposed, step, 0, p->floats * sizeof(float));
	p->step++;
	p->h->step = step + 1;
	if (p->by_measurement && p->step == WARM_UP + MEASURED)
		status = tell_lack(p->h, cut_by_measurement(p));
	return status;
}

int hvd_plan_accumulate(struct hvd_plan *p, int k)
{
	struct hvd *h = p->h;
	follow_world(p);
	if (k < 1 || p->next_tensor || p->pass)
		return fail(h, HVD_EINVAL, "hvd_plan_accumulate: %d passes a step%s", k, k < 1 ? "" : ", in the middle of one");
	int status = queue_drain(h);
	mesh_doing(h->mesh, DOING_ACCUMULATE, 0);
	int *all = status ? NULL : gathered(h, &k, sizeof k, &status);
	for (int r = 1; !status && r < h->world.size; r++)
		if (all[r] != all[0])
			status = fail(h, HVD_EMISMATCH, "hvd_plan_accumulate: rank %d on %.63s takes %d passes a step, rank 0 takes %d", r, hvd_host(h, r), all[r], all[0]);
	free(all);
	mesh_doing(h->mesh, DOING_COMPUTE, 0);
	p->every = status ? p->every : k;
	return status;
}

int hvd_plan_buckets(const struct hvd_plan *p)
{
	return p->buckets;
}

double hvd_plan_exposed(const struct hvd_plan *p)
{
	return device_tells(p->h) ? p->h->backend->exposed(p->h) : p->exposed;
}

void hvd_plan_close(struct hvd_plan *p)
{
	if (!p)
		return;
	hvd_free(p->h, p->slab); /* may be NULL */
	hvd_free(p->h, p->sample);
	free(p->file);
	free(p->cut);
	free(p->bytes);
	free(p->ready);
	free(p->mean);
	free(p);
}
