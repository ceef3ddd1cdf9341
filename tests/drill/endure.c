/* SPDX-License-Identifier: Apache-2.0
 * Training whose result is known, to be killed: w follows a target by gradient descent, and a tensor of counters shows how
 * often each sample's gradient has reached the parameters. With on_death continue the survivors must end with the same
 * parameters, every sample counted once, and a loss that went on falling.
 *
 *   endure DIRECTORY STEPS [VICTIM:SIGNAL:MICROSECONDS]…
 *
 * VICTIM gets SIGNAL so long after the world was formed, of which DIRECTORY/formed tells; a stopped one is killed five seconds
 * later. Each rank leaves in DIRECTORY/rank.RANK what it was told about deaths, whether it stood still, and a line about its end. */
#include <hvd.h>

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LAYERS = 6, FLOATS = 40000, WEIGHTS = LAYERS * FLOATS, SAMPLES = 8192, LOCAL_BATCH = 2 };

struct state {
	uint64_t step, position;
};

struct training {
	struct hvd *h;
	struct hvd_plan *plan;
	struct state at;
	float *parameters;       /* [WEIGHTS] and [SAMPLES] counters */
	float *taken;            /* another rank's, while they are on their way */
	const char *directory;
	FILE *out;
	double loss, first_loss; /* before the last step; before the first */
	double died, resumed;    /* CLOCK_MONOTONIC s: told by the victims, 0: nobody; the first step that was through afterwards */
	int recoveries;
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Whether this process stood still so long that the others may have gone on without it, as libhvd sees it: the machine is to blame. */
static atomic_bool stood_still;
static _Atomic double looked;

static void look_at_clock(void)
{
	if (now() - looked > 0.9)
		stood_still = true;
	looked = now();
}

static void *go_on_looking(void *unused)
{
	for (;; usleep(20000))
		look_at_clock();
	return unused;
}

static void tell_standstill(const struct training *t)
{
	look_at_clock();
	if (stood_still)
		fprintf(t->out ? t->out : stderr, "stood still for about a second or more\n");
}

static int give_up(struct training *t, const char *what)
{
	tell_standstill(t);
	fprintf(t->out ? t->out : stderr, "gave up in %s: %s\n", what, hvd_error(t->h));
	return 70;
}

/* A process of its own, which is told through the pipe when the world is formed, so that it holds none of the world's sockets. */
static int hire_killer(const char *directory, int rank, int signal, useconds_t after)
{
	int pipes[2];
	char path[4096], go;
	pid_t victim = getpid();
	if (pipe(pipes))
		return -1;
	if (fork()) {
		close(pipes[0]);
		return pipes[1];
	}
	close(pipes[1]);
	snprintf(path, sizeof path, "%s/died.%d", directory, rank);
	if (read(pipes[0], &go, 1) != 1)
		_exit(0);
	usleep(after);
	FILE *f = fopen(path, "w");
	if (f) {
		fprintf(f, "%.6f\n", now());
		fclose(f);
	}
	kill(victim, signal);
	if (signal == SIGSTOP) {
		sleep(5);
		kill(victim, SIGKILL);
	}
	_exit(0);
}

/* The mean gradient over the local batch, layer by layer; then the counters, times LOCAL_BATCH. */
static int backward(struct training *t)
{
	float *g = hvd_plan_slab(t->plan);
	uint64_t first = t->at.position + (uint64_t)hvd_world(t->h)->rank * LOCAL_BATCH;
	double loss = 0;
	for (int layer = 0, i = 0; layer < LAYERS; layer++) {
		for (int end = i + FLOATS; i < end; i++) {
			float off = t->parameters[i] - (float)(i % 97);
			loss += (double)off * off;
			g[i] = off + (float)((first + (uint64_t)i) % 5) * 1e-3f;
		}
		int status = hvd_plan_ready(t->plan, layer);
		if (status)
			return status;
	}
	t->loss = loss / WEIGHTS;
	memset(g + WEIGHTS, 0, SAMPLES * sizeof *g);
	for (uint64_t s = first; s < first + LOCAL_BATCH; s++)
		g[WEIGHTS + s % SAMPLES] += 1;
	return hvd_plan_ready(t->plan, LAYERS);
}

static void update(struct training *t)
{
	const float *g = hvd_plan_slab(t->plan);
	int size = hvd_world(t->h)->size;
	for (int i = 0; i < WEIGHTS; i++)
		t->parameters[i] -= 0.01f * g[i];
	for (int i = WEIGHTS; i < WEIGHTS + SAMPLES; i++)
		t->parameters[i] += rintf(g[i] * (float)size);
	t->at.step++;
	t->at.position += (uint64_t)size * LOCAL_BATCH;
	if (t->recoveries && !t->resumed)
		t->resumed = now();
}

/* Who is left takes the state of the rank that got furthest. */
static int go_on(struct training *t)
{
	fprintf(t->out, "told: %s\n", hvd_error(t->h));
	int status = hvd_recover(t->h), root = 0;
	if (status)
		return status;
	int size = hvd_world(t->h)->size;
	uint64_t steps[16];
	if ((status = hvd_allgather(t->h, &t->at.step, steps, 1, HVD_U64)))
		return status;
	for (int r = 1; r < size; r++)
		root = steps[r] > steps[root] ? r : root;
	struct state at = t->at;
	memcpy(t->taken, t->parameters, (WEIGHTS + SAMPLES) * sizeof *t->taken);
	if ((status = hvd_broadcast(t->h, &at, sizeof at, HVD_U8, root)) ||
	    (status = hvd_broadcast(t->h, t->taken, WEIGHTS + SAMPLES, HVD_F32, root)))
		return status;
	t->at = at; /* all of it or nothing: root may have been lost on the way */
	memcpy(t->parameters, t->taken, (WEIGHTS + SAMPLES) * sizeof *t->taken);
	t->recoveries++;
	t->resumed = 0;
	return 0;
}

static int train(struct training *t, uint64_t steps)
{
	while (t->at.step < steps) {
		int status = backward(t);
		if (!status)
			status = hvd_plan_finish(t->plan);
		if (!status) {
			update(t);
			t->first_loss = t->at.step == 1 ? t->loss : t->first_loss;
			continue;
		}
		while (status == HVD_EPEER)
			status = go_on(t);
		if (status)
			return status;
	}
	return 0;
}

static void read_deaths(struct training *t, int size)
{
	for (int r = 0; r < size; r++) {
		char path[4096];
		double at = 0;
		snprintf(path, sizeof path, "%s/died.%d", t->directory, r);
		FILE *f = fopen(path, "r");
		if (!f)
			continue;
		if (fscanf(f, "%lf", &at) == 1 && at > t->died)
			t->died = at;
		fclose(f);
	}
}

static void report(struct training *t, int size)
{
	uint64_t hash = 0xcbf29ce484222325, wrong = 0;
	const uint8_t *p = (const uint8_t *)t->parameters;
	for (size_t i = 0; i < (WEIGHTS + SAMPLES) * sizeof(float); i++)
		hash = (hash ^ p[i]) * 0x100000001b3;
	for (uint64_t s = 0; s < SAMPLES; s++)
		wrong += t->parameters[WEIGHTS + s] != (s < t->at.position ? 1 : 0);
	read_deaths(t, size);
	tell_standstill(t);
	fprintf(t->out, "end: ranks %d recoveries %d step %llu position %llu hash %016llx wrong %llu falling %d resumed_ms %.1f\n", hvd_world(t->h)->size,
		t->recoveries, (unsigned long long)t->at.step, (unsigned long long)t->at.position, (unsigned long long)hash, (unsigned long long)wrong,
		t->loss < t->first_loss, t->recoveries && t->died > 0 ? (t->resumed - t->died) * 1e3 : -1);
}

int main(int argc, char **argv)
{
	static struct training t; /* what it holds is no leak where a rank gives up */
	const char *task = getenv("SLURM_PROCID");
	struct hvd_tensor tensors[LAYERS + 1] = { [LAYERS] = { "statistics", SAMPLES } };
	char path[4096], names[LAYERS][16];
	int me = task ? atoi(task) : 0, killer = -1;
	pthread_t clock;
	t.directory = argc > 2 ? argv[1] : NULL;
	if (argc < 3 || strtoull(argv[2], NULL, 10) * 4 * LOCAL_BATCH > SAMPLES)
		return 64;
	for (int i = 3; i < argc; i++) {
		int victim, signal;
		unsigned after;
		if (sscanf(argv[i], "%d:%d:%u", &victim, &signal, &after) != 3)
			return 64;
		if (victim == me)
			killer = hire_killer(t.directory, me, signal, after);
	}
	snprintf(path, sizeof path, "%s/rank.%d", t.directory, me);
	t.out = freopen(path, "w", stderr);
	if (!t.out)
		return 70;
	setvbuf(t.out, NULL, _IOLBF, 0);
	looked = now();
	if (pthread_create(&clock, NULL, go_on_looking, NULL) || hvd_init(&t.h, NULL))
		return give_up(&t, "hvd_init");
	int size = hvd_world(t.h)->size;
	for (int i = 0; i < LAYERS; i++) {
		snprintf(names[i], sizeof names[i], "layer%d", i);
		tensors[i] = (struct hvd_tensor){ names[i], FLOATS };
	}
	t.parameters = calloc(WEIGHTS + SAMPLES, sizeof *t.parameters);
	t.taken = calloc(WEIGHTS + SAMPLES, sizeof *t.taken);
	if (!t.parameters || !t.taken || hvd_plan_open(t.h, &t.plan, tensors, LAYERS + 1, 0) || hvd_barrier(t.h))
		return give_up(&t, "set-up");
	snprintf(path, sizeof path, "%s/formed", t.directory);
	FILE *formed = me ? NULL : fopen(path, "w");
	if (formed && (fputs("the world\n", formed) < 0 || fclose(formed)))
		return 70;
	if (killer >= 0 && write(killer, "", 1) != 1)
		return 70;
	if (train(&t, strtoull(argv[2], NULL, 10)))
		return give_up(&t, "training");
	report(&t, size);
	hvd_plan_close(t.plan);
	return hvd_close(t.h) ? 70 : 0;
}
