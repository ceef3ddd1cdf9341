/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "data/loader.h"
#include "progress.h"

/* ---- scoring ----------------------------------------------------------------------------------------- */

static int check_logits(const float *logits, const struct loader_batch *b, const struct evaluation_conf *conf, struct error *e)
{
	for (int i = 0; i < b->batch.count * FINDINGS; i++)
		if (!isfinite(logits[i]))
			return fail(e, EXIT_INTERNAL, "image %s: the network's output is not a number%s", dataset_samples(conf->dataset)[b->sample[i / FINDINGS]].id, conf->trains ?
				    ": the training has diverged, more likely than that the image is bad: lower the learning rate" : "");
	return 0;
}

/* A micro-batch that the engine was given, until it is through. */
struct scored_batch {
	struct loader_batch b;
	float *logits;
	uint64_t token;
	int waits; /* for `token` */
};

struct scoring {
	struct model *m;
	const struct evaluation_conf *conf;
	struct loader *loader;
	struct progress progress;
	float *own; /* [share][FINDINGS], row k is sample rank + k * ranks */
	size_t done;
	int stopped;
};

static int begin(struct scoring *s, struct scored_batch *b, struct error *e)
{
	const struct evaluation_conf *conf = s->conf;
	const uint64_t first = b->b.sample[0], ranks = (uint64_t)s->m->world->at->size;

	if ((int)(first % ranks) != s->m->world->at->rank)
		return fail(e, EXIT_INTERNAL, "evaluation reads sample %llu on rank %d", (unsigned long long)first, s->m->world->at->rank);
	b->logits = s->own + first / ranks * FINDINGS;
	if (conf->crops != CROPS_NONE)
		return crops_forward(s->m->engine, &b->b.batch, conf->crops, dataset_image_size(conf->dataset), s->m->plan.image_size, FINDINGS, b->logits, NULL) < 0 ?
			       model_fail(s->m, e) : 0;
	if (engine_forward(s->m->engine, &b->b.batch, b->logits, NULL, &b->token) < 0)
		return model_fail(s->m, e);
	b->waits = 1;
	return 0;
}

static int end(struct scoring *s, struct scored_batch *b, struct error *e)
{
	const int waits = b->waits;

	b->waits = 0;
	if (waits && engine_done(s->m->engine, b->token, 1) < 0)
		return model_fail(s->m, e);
	if (check_logits(b->logits, &b->b, s->conf, e) < 0)
		return -e->code;
	loader_release(s->loader, b->b.slot);
	s->done += (size_t)b->b.batch.count * (size_t)s->m->world->at->size; /* the others are about as far */
	progress_tell(&s->progress, s->done < s->progress.total ? s->done : s->progress.total);
	s->stopped = s->conf->stop && *s->conf->stop;
	return 0;
}

/* A GPU has the next micro-batch when it is through with one. */
static int score_own(struct scoring *s, struct error *e)
{
	struct scored_batch turn[2] = { 0 };
	double waited;
	int more = 1, rc = 0;

	for (int i = 0, held = 0; rc == 0 && !s->stopped && (more || held); i ^= 1) {
		more = more ? loader_next(s->loader, &turn[i].b, &waited, e) : 0;
		rc = more < 0 ? -e->code : more ? begin(s, &turn[i], e) : 0;
		if (held && rc == 0)
			rc = end(s, &turn[!i], e);
		held = more == 1;
	}
	for (int i = 0; i < 2; i++) /* after a failure, or when it was stopped */
		if (turn[i].waits)
			engine_done(s->m->engine, turn[i].token, 1);
	return rc;
}

static int run_loader(struct scoring *s, int batch, struct error *e)
{
	const struct evaluation_conf *conf = s->conf;
	const struct hvd_world *at = s->m->world->at;
	struct loader_conf lc = {
		.dataset = conf->dataset, .batch = batch, .micros = 1, .rank = at->rank, .ranks = at->size, .evaluate = 1, .threads = conf->decode_threads,
		.depth = s->m->kind == ENGINE_CUDA ? 4 : 3, /* two with the engine */
	};

	if (loader_open(&s->loader, &lc, e) < 0)
		return -e->code;
	progress_begin(&s->progress, at->rank == 0 ? conf->tell : NULL, dataset_count(conf->dataset));
	int rc = score_own(s, e);

	progress_end(&s->progress);
	loader_close(s->loader);
	return rc;
}

/* all: [ranks][share][FINDINGS] to record order. */
static void interleave(const float *all, size_t share, int ranks, size_t n, float *logits)
{
	for (size_t i = 0; i < n; i++)
		memcpy(logits + i * FINDINGS, all + ((i % (size_t)ranks) * share + i / (size_t)ranks) * FINDINGS, FINDINGS * sizeof(float));
}

static int gather(struct evaluation *ev, struct model *m, const struct evaluation_conf *conf, int batch, struct error *e)
{
	struct world *w = m->world;
	size_t share = (ev->n + (size_t)w->at->size - 1) / (size_t)w->at->size, floats = share * FINDINGS;
	float *own = calloc(floats + 1, sizeof *own), *all = calloc(floats * (size_t)w->at->size + 1, sizeof *all);
	struct scoring s = { .m = m, .conf = conf, .own = own };
	int32_t stopped, anyone = 0;

	if (!own || !all)
		fail(e, EXIT_INTERNAL, "no memory for the outputs of %zu images", ev->n);
	else
		run_loader(&s, batch, e);
	stopped = s.stopped;
	if (world_agree(w, e) == 0) {
		if (hvd_allreduce(w->hvd, &stopped, &anyone, 1, HVD_I32, HVD_MAX) < 0 || hvd_allgather(w->hvd, own, all, floats, HVD_F32) < 0)
			world_fail(w, e);
		else
			interleave(all, share, w->at->size, ev->n, ev->logits);
	}
	ev->stopped = anyone;
	free(own);
	free(all);
	return e->code ? -e->code : 0;
}

/* ---- judging ----------------------------------------------------------------------------------------- */

/* log(1 + exp(x)) without overflow. */
static double softplus(double x)
{
	return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* weight: [FINDINGS] of positives, NULL: 1 */
static double mean_loss(const struct evaluation *ev, const float *weight)
{
	double sum = 0;
	size_t count = 0;

	for (size_t i = 0; i < ev->n; i++)
		for (int f = 0; f < FINDINGS; f++) {
			double x = ev->logits[i * FINDINGS + (size_t)f];

			if (!(ev->known[i] >> f & 1))
				continue;
			sum += ev->labels[i] >> f & 1 ? (weight ? weight[f] : 1) * softplus(-x) : softplus(x);
			count++;
		}
	return count ? sum / (double)count : NAN;
}

static int judge(struct evaluation *ev, const struct evaluation_conf *conf, int speaks, struct error *e)
{
	struct scores s = { .n = ev->n, .classes = FINDINGS, .logits = ev->logits, .labels = ev->labels, .known = ev->known, .patient = ev->patient };

	ev->loss = mean_loss(ev, NULL);
	ev->objective = mean_loss(ev, conf->pos_weight);
	if (auroc_bootstrap(&s, speaks ? conf->resamples : 0, conf->seed, &ev->table, NULL) < 0)
		return fail(e, EXIT_INTERNAL, "no memory for the intervals of %zu images", ev->n);
	return 0;
}

static void add_oracle(struct evaluation *ev, const struct dataset *d)
{
	const double *oracle = dataset_oracle(d);
	int counted = 0;

	ev->has_oracle = oracle != NULL;
	ev->oracle_mean = 0;
	for (int f = 0; f < FINDINGS; f++) {
		ev->oracle[f] = oracle ? oracle[f] : NAN;
		if (!isnan(ev->oracle[f]) && !isnan(ev->table.class[f].value)) {
			ev->oracle_mean += ev->oracle[f];
			counted++;
		}
	}
	ev->oracle_mean = counted ? ev->oracle_mean / counted : NAN;
}

int evaluate(struct evaluation *ev, struct model *m, const struct evaluation_conf *conf, struct error *e)
{
	const struct sample *samples = dataset_samples(conf->dataset);
	size_t n = dataset_count(conf->dataset);
	double begin = now();

	*ev = (struct evaluation){
		.n = n,
		.logits = calloc(n * FINDINGS + 1, sizeof(float)),
		.labels = calloc(n + 1, sizeof(uint32_t)),
		.known = calloc(n + 1, sizeof(uint32_t)),
		.patient = calloc(n + 1, sizeof(uint32_t)),
	};
	if (!ev->logits || !ev->labels || !ev->known || !ev->patient)
		fail(e, EXIT_INTERNAL, "no memory for %zu images", n);
	if (world_agree(m->world, e) < 0)
		return -e->code;
	for (size_t i = 0; i < n; i++) {
		ev->labels[i] = samples[i].labels;
		ev->known[i] = samples[i].known;
		ev->patient[i] = samples[i].patient;
	}
	if (gather(ev, m, conf, m->batch, e) < 0)
		return -e->code;
	ev->images_per_s = (double)n / (now() - begin);
	if (ev->stopped)
		return 0;
	if (judge(ev, conf, world_speaks(m->world), e) == 0)
		add_oracle(ev, conf->dataset);
	return world_agree(m->world, e);
}

void evaluation_free(struct evaluation *ev)
{
	free(ev->logits);
	free(ev->labels);
	free(ev->known);
	free(ev->patient);
	*ev = (struct evaluation){ 0 };
}

/* ---- telling ----------------------------------------------------------------------------------------- */

/* In place of an interval that is not given. */
static const char too_few[] = "n/a (too few)";

static void print_row(const char *name, const struct interval *r, int resampled, double oracle, FILE *out)
{
	fprintf(out, "%-28s", name);
	if (isnan(r->value))
		fprintf(out, "   n/a");
	else if (!isnan(r->low))
		fprintf(out, " %.4f  %.3f to %.3f", r->value, r->low, r->high);
	else
		fprintf(out, " %.4f  %-14s", r->value, resampled ? too_few : "");
	if (!isnan(oracle) && !isnan(r->value))
		fprintf(out, "  %.4f", oracle);
}

static void print_finding(const struct evaluation *ev, const struct evaluation_conf *conf, int f, FILE *out)
{
	const int resampled = conf->resamples > 0, untrained = conf->untrained >> f & 1;
	const struct auroc_table *t = &ev->table;
	const size_t patients = t->positive_patients[f], positives = t->positives[f];
	const int judged = resampled && !isnan(t->class[f].value), few = judged && patients < FEW_POSITIVES;
	char name[64], count[24];

	snprintf(count, sizeof count, "%zu", positives);
	snprintf(name, sizeof name, "%-20s %7s", finding_names[f], untrained ? "-" : positives + t->negatives[f] ? count : "n/a");
	print_row(name, &t->class[f], resampled, ev->has_oracle ? ev->oracle[f] : NAN, out);
	if (untrained)
		fprintf(out, "  not learnt");
	else if (positives + t->negatives[f] == 0)
		fprintf(out, "  no label is known");
	if (few)
		fprintf(out, "  few positives");
	if (patients != positives)
		fprintf(out, "%s of %zu patient%s", few ? ":" : " ", patients, patients == 1 ? "" : "s");
	if (judged && !few && auroc_patients(t, f) < FEW_POSITIVES)
		fprintf(out, "  few negatives");
	fputc('\n', out);
}

void evaluation_print(const struct evaluation *ev, const struct evaluation_conf *conf, FILE *out)
{
	const struct dataset *d = conf->dataset;
	char mean[64], loss[24] = "n/a";

	if (!isnan(ev->loss))
		snprintf(loss, sizeof loss, "%.4f", ev->loss);
	fprintf(out, "\nAUROC on the %s split (policy %s): %zu image%s of %zu patient%s, loss %s%s\n", dataset_split(d), dataset_split_policy(d), ev->n, ev->n == 1 ? "" : "s",
		ev->table.patients, ev->table.patients == 1 ? "" : "s", loss, conf->crops == CROPS_TEN ? ", ten crops" : "");
	if (conf->leaked < 0)
		fprintf(out, "leak not checked: patients of this split are not compared with all those that the weights were trained on\n");
	if (conf->leaked > 0)
		fprintf(out, "LEAK: patients of this split were trained on: these numbers say nothing about new patients\n");
	else if (conf->leaky)
		fprintf(out, "LEAK: these weights were trained on splits that share patients (--allow-leak)%s\n", conf->leaked ? "" : ", but on no patient of this split");
	if (source_differs(conf->trained_on, dataset_source(d)))
		fprintf(out, "other images than in training: the weights were trained on \"%s\", these are \"%s\"\n", conf->trained_on, dataset_source(d));
	else if (strcmp(dataset_split(d), "val") == 0) /* of other images a split of that name is none of the training's */
		fprintf(out, "validation split: weights are chosen on these images, so the numbers may flatter the model a little\n");
	else if (strcmp(dataset_split(d), "train") == 0)
		fprintf(out, "training images: the numbers say how well the model remembers, not how well it reads\n");
	if (ev->table.patients < 200 && conf->resamples)
		fprintf(out, "few patients: read the intervals, not the values\n");
	if (ev->has_oracle)
		fprintf(out, "oracle: the AUROC that no model passes on such synthetic images but by chance\n");
	fprintf(out, "%-20s %7s %6s  %-14s%s\n", "finding", "n+", "AUROC", conf->resamples ? "95 % interval" : "", ev->has_oracle ? "  oracle" : "");
	for (int f = 0; f < FINDINGS; f++)
		print_finding(ev, conf, f, out);
	snprintf(mean, sizeof mean, "mean of %d of %d", ev->table.counted, FINDINGS);
	print_row(mean, &ev->table.mean, 0, ev->has_oracle ? ev->oracle_mean : NAN, out);
	fputc('\n', out);
	if (ev->table.mostly_few)
		fprintf(out, "no interval of the mean: most of its findings are too few for one\n");
	else if (ev->table.left_out)
		fprintf(out, isnan(ev->table.mean.low) ? "no interval of the mean: %d of %d resamples lack a finding, and too few are left\n" :
			"the mean's interval leaves out %d of %d resamples, which lack a finding\n", ev->table.left_out, conf->resamples);
	fflush(out);
}

int evaluation_write(const struct evaluation *ev, const struct dataset *d, const char *path, struct provenance about, struct error *e)
{
	struct predictions p = {
		.about = about, .n = ev->n, .samples = (struct sample *)dataset_samples(d), .logits = ev->logits, .has_patients = 1,
	};

	snprintf(p.about.data, sizeof p.about.data, "%016llx", (unsigned long long)dataset_hash(d));
	snprintf(p.about.policy, sizeof p.about.policy, "%s", dataset_split_policy(d));
	snprintf(p.about.split, sizeof p.about.split, "%s", dataset_split(d));
	snprintf(p.about.source, sizeof p.about.source, "%s", dataset_source(d));
	snprintf(p.about.version, sizeof p.about.version, "%s", HVD_VERSION);
	p.about.has_oracle = ev->has_oracle;
	memcpy(p.about.oracle, ev->oracle, sizeof p.about.oracle);
	return predictions_write(path, &p, e);
}

static void interval_json(cJSON *object, const struct interval *r)
{
	json_number(object, "auroc", r->value);
	json_bounds(object, r);
}

void evaluation_json(const struct evaluation *ev, const struct evaluation_conf *conf, cJSON *object)
{
	cJSON *findings, *mean;

	if (!object)
		return;
	cJSON_AddStringToObject(object, "split", dataset_split(conf->dataset));
	cJSON_AddStringToObject(object, "split_policy", dataset_split_policy(conf->dataset));
	cJSON_AddStringToObject(object, "source", dataset_source(conf->dataset));
	json_text(object, "trained_on", conf->trained_on);
	json_leak(object, "leak", conf->leaked > 0 || conf->leaky, conf->leaked >= 0);
	cJSON_AddBoolToObject(object, "leak_checked", conf->leaked >= 0);
	cJSON_AddStringToObject(object, "crops", crops_choices[conf->crops]);
	json_number(object, "images", (double)ev->n);
	json_number(object, "patients", (double)ev->table.patients);
	json_number(object, "loss", ev->loss);
	if (conf->pos_weight)
		json_number(object, "weighted_loss", ev->objective);
	json_number(object, "images_per_s", ev->images_per_s);
	mean = cJSON_AddObjectToObject(object, "mean");
	interval_json(mean, &ev->table.mean);
	json_number(mean, "of", ev->table.counted);
	json_number(mean, "resamples_left_out", ev->table.left_out);
	if (ev->has_oracle)
		json_number(mean, "oracle", ev->oracle_mean);
	findings = cJSON_AddObjectToObject(object, "findings");
	for (int f = 0; f < FINDINGS; f++) {
		cJSON *row = cJSON_AddObjectToObject(findings, finding_names[f]);
		const int untrained = conf->untrained >> f & 1;

		json_number(row, "positives", untrained ? NAN : (double)ev->table.positives[f]);
		json_number(row, "positive_patients", untrained ? NAN : (double)ev->table.positive_patients[f]);
		json_number(row, "negatives", untrained ? NAN : (double)ev->table.negatives[f]);
		interval_json(row, &ev->table.class[f]);
		if (ev->has_oracle)
			json_number(row, "oracle", untrained ? NAN : ev->oracle[f]);
	}
}
