/* SPDX-License-Identifier: Apache-2.0
 * libhvd's NCCL back end with the CUDA engine on it, in a world of processes that share one GPU; each prints one JSON object.
 *
 *     gpu-world sums RANKS     collectives on device memory against those on host memory, which go through the CPU back end
 *     gpu-world train RANKS    steps, from the third on as graphs with their all-reduces: against the CPU back end; train-bf16: of fused kernels, which begin early
 *     gpu-world death RANKS    one rank is killed while the others' graph waits for it: no weight is touched, the others go on without it
 *
 * NCCL refuses two ranks on one GPU unless each says that it is another host (NCCL_HOSTID), and then connects them by sockets: this
 * shows that things are right, not how fast they are. The same source runs without a GPU, on tests/cuda/shim.h and tests/gpu/nccl_stand_in.cpp. */
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "device.h"
#include "meeting.h"

extern "C" {
#include "engine/backend.h"
#include "engine/engine.h"

/* engine.c names every engine. */
int engine_cpu_open(engine **, const engine_conf *, error *e)
{
	return fail(e, EXIT_USAGE, "no CPU engine in this program");
}

int engine_reference_open(engine **, const engine_conf *, error *e)
{
	return fail(e, EXIT_USAGE, "no reference engine in this program");
}
}

namespace {

enum { DEADLINE = 20, BATCH = 2, SIDE = 16, SOURCE = 20, STEPS = 8, EAGER = 3 /* times that the host is asked: two steps, and the capture */ };
/* What ranks tell the process that forked them. */
enum { NOTE_WORST, NOTE_HASH, NOTE_BITS, NOTE_CALLS, NOTE_STEP_MS, NOTE_DRAIN_S, NOTE_LATER_HASH, NOTE_RECOVER_S, NOTE_COMPARED };

int rank, ranks;
precision maps = PRECISION_FP32; /* their format */
char folder[300]; /* of traces */

[[noreturn]] void give_up(const char *format, ...) __attribute__((format(printf, 1, 2)));
void give_up(const char *format, ...)
{
	char text[600];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	for (char *p = text; *p; p++)
		*p = *p == '"' || *p == '\\' || (unsigned char)*p < ' ' ? ' ' : *p;
	printf("rank %d: %s\n", rank, text);
	fflush(stdout);
	_exit(1);
}

double now()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void works(hvd *h, int status, const char *what)
{
	if (status < 0)
		give_up("%s: %s", what, hvd_error(h));
}

void device(int code, const char *what)
{
	if (code)
		give_up("%s: %s", what, device_error(code));
}

hvd *join(const char *backend, int number, const char *trace = nullptr)
{
	hvd_conf conf = {};
	conf.size = sizeof conf;
	conf.backend = backend;
	conf.interface = "lo";
	conf.deadline = DEADLINE;
	conf.on_death = 1;
	conf.trace = trace;
	hvd *h = nullptr;
	const int status = meeting_join(&h, &conf, rank, number); /* before h is handed on */
	works(h, status, "joining the world");
	if (strcmp(hvd_world(h)->backend, backend))
		give_up("the back end is %s", hvd_world(h)->backend);
	return h;
}

/* ---- collectives ---- */

/* Small whole numbers: every order of sums gives the same, in every type. */
template <class V> std::vector<V> numbers(size_t count, unsigned seed)
{
	std::vector<V> v(count);
	for (size_t i = 0; i < count; i++)
		v[i] = (V)((int)((i * 2654435761u + seed * 40503u) >> 7 & 15) - 7);
	return v;
}

/* In the formats that C has no type for: of whole numbers of few bits, the upper half of fp32 is bf16. */
std::vector<uint16_t> bf16_numbers(size_t count, unsigned seed)
{
	std::vector<uint16_t> v;
	for (float x : numbers<float>(count, seed))
		v.push_back(from_float<bf16>(x).bits);
	return v;
}

struct call {
	const char *name;
	size_t in, out; /* elements for a world of this size */
	int (*run)(hvd *, const void *in, void *out, size_t n, hvd_type type);
};

const size_t N = 3000;

int sum_of(hvd *h, const void *in, void *out, size_t n, hvd_type type) { return hvd_allreduce(h, in, out, n, type, HVD_SUM); }
int mean_of(hvd *h, const void *in, void *out, size_t n, hvd_type type) { return hvd_allreduce(h, in, out, n, type, HVD_AVG); }
int least_of(hvd *h, const void *in, void *out, size_t n, hvd_type type) { return hvd_allreduce(h, in, out, n, type, HVD_MIN); }
int most_of(hvd *h, const void *in, void *out, size_t n, hvd_type type) { return hvd_allreduce(h, in, out, n, type, HVD_MAX); }
int gather_of(hvd *h, const void *in, void *out, size_t n, hvd_type type) { return hvd_allgather(h, in, out, n, type); }
int scatter_of(hvd *h, const void *in, void *out, size_t n, hvd_type type) { return hvd_reduce_scatter(h, in, out, n, type, HVD_SUM); }
int all_to_all_of(hvd *h, const void *in, void *out, size_t n, hvd_type type) { return hvd_alltoall(h, in, out, n, type); }
int broadcast_of(hvd *h, const void *, void *out, size_t n, hvd_type type) { return hvd_broadcast(h, out, n, type, ranks - 1); }
int unequal_of(hvd *h, const void *in, void *out, size_t n, hvd_type type)
{
	std::vector<size_t> blocks;
	for (int r = 0; r < ranks; r++)
		blocks.push_back(n - (size_t)r);
	return hvd_allgatherv(h, in, out, blocks.data(), type);
}

template <class V> void compare(hvd *h, const call &c, hvd_type type, const std::vector<V> &in, int inexact, double *worst, int *compared)
{
	std::vector<V> want(c.out), got(c.out);
	for (size_t i = 0; i < c.out && i < c.in; i++)
		want[i] = in[i];
	V *din = (V *)hvd_alloc(h, c.in * sizeof(V)), *dout = (V *)hvd_alloc(h, c.out * sizeof(V));
	if (!din || !dout)
		give_up("hvd_alloc: %s", hvd_error(h));
	device_stream stream = (device_stream)hvd_stream(h);
	device(device_upload(din, in.data(), c.in * sizeof(V), stream), "upload");
	device(device_upload(dout, want.data(), c.out * sizeof(V), stream), "upload");
	works(h, c.run(h, din, dout, N, type), c.name);
	works(h, hvd_copy(h, got.data(), dout, c.out * sizeof(V)), "download");
	works(h, c.run(h, in.data(), want.data(), N, type), c.name);
	size_t different = 0, first = 0;
	for (size_t i = c.out; i--;)
		if (got[i] != want[i]) {
			different++;
			first = i;
		}
	if (different && !inexact)
		give_up("%s of type %d: %zu of %zu elements are not the CPU back end's, the first at %zu: %g, not %g", c.name, (int)type, different, c.out, first, (double)got[first], (double)want[first]);
	for (size_t i = 0; i < c.out; i++)
		*worst = std::fmax(*worst, std::fabs((double)got[i] - (double)want[i]) / (1 + std::fabs((double)want[i])));
	if (!(*worst < 1e-6))
		give_up("%s of type %d: relative error %g", c.name, (int)type, *worst);
	hvd_free(h, din);
	hvd_free(h, dout);
	++*compared;
}

void sums()
{
	hvd *h = join("nccl", 0);
	const size_t all = (size_t)ranks;
	const call calls[] = {
		{ "sum", N, N, sum_of }, { "least", N, N, least_of }, { "most", N, N, most_of }, { "gather", N, all * N, gather_of },
		{ "scatter", all * N, N, scatter_of }, { "all to all", all * N, all * N, all_to_all_of }, { "broadcast", N, N, broadcast_of },
		{ "unequal gather", N - (size_t)rank, all * N - all * (all - 1) / 2, unequal_of },
	};
	double worst = 0;
	int compared = 0;
	for (const call &c : calls) {
		compare(h, c, HVD_F32, numbers<float>(c.in, (unsigned)rank), 0, &worst, &compared);
		compare(h, c, HVD_F64, numbers<double>(c.in, (unsigned)rank), 0, &worst, &compared);
		compare(h, c, HVD_I32, numbers<int32_t>(c.in, (unsigned)rank), 0, &worst, &compared);
		compare(h, c, HVD_I64, numbers<int64_t>(c.in, (unsigned)rank), 0, &worst, &compared);
		if (c.run != least_of && c.run != most_of) /* as bits, they have another order than as numbers */
			compare(h, c, HVD_BF16, bf16_numbers(c.in, (unsigned)rank), 0, &worst, &compared);
	}
	/* a mean is divided before or after: by a power of two that is the same */
	const call mean = { "mean", N, N, mean_of };
	compare(h, mean, HVD_F32, numbers<float>(N, (unsigned)rank), ranks & (ranks - 1), &worst, &compared);
	meeting_notes(rank)[NOTE_WORST] = worst;
	meeting_notes(rank)[NOTE_COMPARED] = compared;
	works(h, hvd_close(h), "hvd_close");
}

/* ---- training ---- */

struct trainer {
	hvd *h;
	hvd_plan *buckets;
	net_plan plan;
	engine_layout layout;
	engine *g;
	error e;
	int calls; /* of ready() */
	std::vector<uint8_t> pixels;
	std::vector<uint32_t> labels;
};

int on_ready(void *context, int group)
{
	trainer *t = (trainer *)context;
	t->calls += group == 0;
	return hvd_plan_ready(t->buckets, group);
}

int on_finish(void *context)
{
	trainer *t = (trainer *)context;
	int rc = hvd_plan_finish(t->buckets);
	if (rc >= 0)
		hvd_plan_exposed(t->buckets); /* as chexnet asks, in the middle of a capture, too */
	return rc;
}

void fine(trainer &t, int rc, const char *what)
{
	if (rc < 0)
		give_up("%s: %s; %s", what, t.e.text, hvd_error(t.h));
}

void open_trainer(trainer &t, hvd *h)
{
	net_conf net = {};
	net.model = "densenet";
	net.image_size = SIDE;
	net.classes = 5;
	net.growth = 8;
	net.init_channels = 16;
	net.n_blocks = 2;
	net.block[0] = 2;
	net.block[1] = 1;
	t.h = h;
	fine(t, net_plan_make(&t.plan, &net, &t.e), "the network");
	fine(t, engine_layout_make(&t.layout, &t.plan, &t.e), "the layout");
	std::vector<hvd_tensor> tensors;
	for (int i = 0; i < t.layout.n_groups; i++)
		tensors.push_back({ t.layout.groups[i].name, t.layout.groups[i].count });
	works(h, hvd_plan_open(h, &t.buckets, tensors.data(), t.layout.n_groups, 4096), "hvd_plan_open");
	engine_conf conf = {};
	conf.plan = &t.plan;
	conf.layout = &t.layout;
	conf.precision = maps;
	conf.beta1 = 0.9;
	conf.beta2 = 0.999;
	conf.epsilon = 1e-8;
	conf.batch = BATCH;
	conf.channels = 1;
	conf.source_size = SOURCE;
	conf.slab = hvd_plan_slab(t.buckets);
	conf.ready = on_ready;
	conf.finish = on_finish;
	conf.context = &t;
	conf.stream = hvd_stream(h);
	conf.stop = hvd_stop_word(h);
	fine(t, engine_open(&t.g, ENGINE_CUDA, &conf, &t.e), "the engine");
	std::vector<float> start(t.plan.n_weights), ones(t.plan.n_bn_channels, 1);
	net_init(&t.plan, 7, nullptr, start.data());
	fine(t, engine_put(t.g, ENGINE_PARAMS, 0, start.data(), start.size()), "the weights");
	fine(t, engine_put(t.g, ENGINE_RUNNING_VAR, 0, ones.data(), ones.size()), "the running variances");
	t.pixels.resize(BATCH * SOURCE * SOURCE);
	t.labels.resize(BATCH);
}

void close_trainer(trainer &t)
{
	engine_close(t.g);
	hvd_plan_close(t.buckets);
	engine_layout_free(&t.layout);
	net_plan_free(&t.plan);
}

/* Each rank's own images of this step. 0, or what engine_train() or engine_done() said. */
int train(trainer &t, int step)
{
	uint64_t z = (uint64_t)(step * MEETING_RANKS + rank) * 0x9e3779b97f4a7c15ull + 1, token;
	for (uint8_t &p : t.pixels) {
		z ^= z << 13, z ^= z >> 7, z ^= z << 17;
		p = (uint8_t)(z >> 40);
	}
	for (uint32_t &l : t.labels)
		l = (uint32_t)(z = z * 6364136223846793005ull + 1442695040888963407ull) >> 8;
	engine_batch batch = {};
	batch.count = BATCH;
	batch.pixels = t.pixels.data();
	batch.labels = t.labels.data();
	int rc = engine_train(t.g, &batch, 0, 1, 1e-3, &token);
	return rc ? rc : engine_done(t.g, token, 1) == 1 ? 0 : -EXIT_INTERNAL;
}

std::vector<float> state(trainer &t)
{
	std::vector<float> all;
	for (engine_what what : { ENGINE_PARAMS, ENGINE_MOMENT1, ENGINE_MOMENT2, ENGINE_RUNNING_MEAN, ENGINE_RUNNING_VAR }) {
		std::vector<float> v(what == ENGINE_RUNNING_MEAN || what == ENGINE_RUNNING_VAR ? t.plan.n_bn_channels : t.plan.n_weights);
		fine(t, engine_get(t.g, what, 0, v.data(), v.size()), "engine_get");
		all.insert(all.end(), v.begin(), v.end());
	}
	return all;
}

/* Of 48 bits, so that a double holds it. */
double hash_of(const std::vector<float> &v)
{
	uint64_t hash = 0xcbf29ce484222325ull;
	for (const float &x : v) {
		uint32_t bits;
		memcpy(&bits, &x, sizeof bits);
		hash = (hash ^ bits) * 0x100000001b3ull;
	}
	return (double)(hash >> 16);
}

/* *reduced: buckets of all steps, as many as a trace of them should have. */
std::vector<float> trained(const char *backend, int number, const char *trace, int *calls, int *reduced, double *ms)
{
	trainer t = {};
	hvd *h = join(backend, number, trace);
	open_trainer(t, h);
	double begin = 0, before = 0;
	int told = 0;
	for (int step = 0; step < STEPS; step++) {
		begin = step == STEPS - 3 ? now() : begin;
		fine(t, train(t, step), "a step");
		const double exposed = hvd_plan_exposed(t.buckets);
		told += step >= EAGER && exposed != before; /* a measured time is hardly the same twice */
		before = exposed;
	}
	if (ranks > 1 && !told)
		give_up("in the steps of a graph nobody tells how long they wait for all-reduces");
	*ms = (now() - begin) * 1e3 / 3;
	const std::vector<float> all = state(t);
	*calls = t.calls;
	*reduced = ranks > 1 ? STEPS * hvd_plan_buckets(t.buckets) : 0;
	close_trainer(t);
	works(h, hvd_close(h), "hvd_close");
	return all;
}

void training()
{
	int calls, reduced, unused, steps = 0;
	double ms, host_ms, error = 0, norm = 0;
	const std::vector<float> device_all = trained("nccl", 0, folder, &calls, &reduced, &ms);
	const int traced = meeting_traced(folder, rank, &steps);
	if (traced != reduced || (reduced && steps != STEPS))
		give_up("the trace knows of %d buckets and of %d steps: it should be %d and %d, replayed ones included", traced, steps, reduced, STEPS);
	/* of a world of one there is nothing to reduce: it is run again */
	const std::vector<float> host_all = trained(ranks > 1 ? "cpu" : "nccl", 1, nullptr, &unused, &unused, &host_ms);
	for (size_t i = 0; i < host_all.size(); i++) {
		error += ((double)device_all[i] - host_all[i]) * ((double)device_all[i] - host_all[i]);
		norm += (double)host_all[i] * host_all[i];
	}
	double *note = meeting_notes(rank);
	note[NOTE_WORST] = std::sqrt(error / norm);
	note[NOTE_HASH] = hash_of(device_all);
	note[NOTE_BITS] = hash_of(host_all) == note[NOTE_HASH];
	note[NOTE_CALLS] = calls;
	note[NOTE_STEP_MS] = ms;
	if (!(note[NOTE_WORST] < 1e-4))
		give_up("after %d steps the state is %g away from the CPU back end's", STEPS, note[NOTE_WORST]);
	if (calls != EAGER)
		give_up("%d of %d steps asked the host for their all-reduces: a graph holds them from step %d on", calls, STEPS, EAGER);
}

void training_bf16()
{
	maps = PRECISION_BF16;
	training();
}

/* ---- a death ---- */

void death()
{
	trainer t = {};
	hvd *h = join("nccl", 0);
	double *note = meeting_notes(rank), *killed = &meeting_notes(ranks - 1)[NOTE_DRAIN_S];
	open_trainer(t, h);
	for (int step = 0; step < EAGER + 2; step++)
		fine(t, train(t, step), "a step");
	const std::vector<float> before = state(t);
	meeting_wait(0, ranks);
	if (rank == ranks - 1) {
		sleep(2); /* the others' graph is waiting by then */
		*killed = now();
		raise(SIGKILL);
	}
	const double begin = now();
	train(t, EAGER + 2); /* fails or not: the device may be through before anybody says why */
	while (!*hvd_stop_word(h))
		if (now() - begin > DEADLINE + 10)
			give_up("nobody says that rank %d is lost", ranks - 1);
	note[NOTE_DRAIN_S] = now() - *killed;
	if (!(*killed > begin && note[NOTE_DRAIN_S] > 0))
		give_up("the step did not wait for the rank that was to be killed");
	sleep(1); /* NCCL is through with what hung, and would not end what comes now: the step of a program that has not heard yet */
	train(t, EAGER + 3);
	uint64_t made;
	fine(t, engine_made(t.g, &made), "engine_made");
	if (hash_of(state(t)) != hash_of(before))
		give_up("the step that was broken off changed the state");
	if (made != EAGER + 2)
		give_up("the device counts %d steps", (int)made);
	double flag = 0; /* what a program hears of it */
	if (hvd_allreduce(h, &flag, &flag, 1, HVD_F64, HVD_SUM) != HVD_EPEER || hvd_lost(h) != ranks - 1)
		give_up("the next collective says: %s", hvd_error(h));
	const double recovering = now();
	fine(t, engine_set_step(t.g, EAGER + 2), "engine_set_step");
	works(h, hvd_recover(h), "hvd_recover");
	note[NOTE_RECOVER_S] = now() - recovering;
	if (hvd_world(h)->size != ranks - 1 || *hvd_stop_word(h))
		give_up("%d ranks are left", hvd_world(h)->size);
	for (int step = EAGER + 2; step < EAGER + 2 + STEPS; step++)
		fine(t, train(t, step), "a step without the lost rank");
	const std::vector<float> after = state(t);
	note[NOTE_LATER_HASH] = hash_of(after);
	for (float x : after)
		if (!std::isfinite(x))
			give_up("the state is not finite after the death");
	if (note[NOTE_LATER_HASH] == hash_of(before))
		give_up("no step was made after the death");
	close_trainer(t);
	works(h, hvd_close(h), "hvd_close");
}

/* ---- all ranks ---- */

/* NCCL as documented for ranks that share a GPU. */
void pretend_hosts()
{
	char host[16];
	snprintf(host, sizeof host, "rank%d", rank);
	setenv("NCCL_HOSTID", host, 1);
	static const char *const settings[][2] = { { "NCCL_SOCKET_IFNAME", "lo" }, { "NCCL_NET", "Socket" }, { "NCCL_IB_DISABLE", "1" }, { "NCCL_MNNVL_ENABLE", "0" },
		                                   { "NCCL_RAS_ENABLE", "0" }, { "NCCL_ALGO", "Ring" }, { "NCCL_PROTO", "Simple" }, { "NCCL_MAX_NCHANNELS", "1" } };
	for (const auto &s : settings)
		setenv(s[0], s[1], 0);
}

bool equal_notes(int note, int of)
{
	for (int r = 1; r < of; r++)
		if (meeting_notes(r)[note] != meeting_notes(0)[note])
			return false;
	return true;
}

double greatest_note(int note, int of)
{
	double most = 0;
	for (int r = 0; r < of; r++)
		most = std::fmax(most, meeting_notes(r)[note]);
	return most;
}

int tell(const char *what, int bad)
{
	const double *first = meeting_notes(0);
	const bool death = !strcmp(what, "death");
	const int left = death ? ranks - 1 : ranks;
	const bool equal = equal_notes(NOTE_HASH, left) && equal_notes(NOTE_LATER_HASH, left);
	char note[200];
	if (bad)
		snprintf(note, sizeof note, "%d of %d ranks did not end well", bad, ranks);
	else if (!equal)
		snprintf(note, sizeof note, "ranks hold different weights");
	else if (death)
		snprintf(note, sizeof note, "%d ranks: drained %.3f s after the kill, weights untouched, %d went on after %.3f s", ranks, greatest_note(NOTE_DRAIN_S, left), left,
		         greatest_note(NOTE_RECOVER_S, left));
	else if (!strcmp(what, "sums"))
		snprintf(note, sizeof note, "%d ranks: %d collectives equal the CPU back end's", ranks, (int)first[NOTE_COMPARED]);
	else
		snprintf(note, sizeof note, "%d ranks: %s %s, %.2f ms a replayed step", ranks, first[NOTE_BITS] > 0 ? "the same bits as" : "as near as rounding to",
		         ranks > 1 ? "the CPU back end's" : "a second run's", first[NOTE_STEP_MS]);
	printf("{\"ranks\": %d, \"relative_error\": %.3g, \"same_bits\": %s, \"host_asked\": %d, \"step_ms\": %.3f, \"drained_s\": %.3f, \"recovered_s\": %.3f, \"note\": \"%s\"}\n", ranks,
	       greatest_note(NOTE_WORST, left), first[NOTE_BITS] > 0 ? "true" : "false", (int)first[NOTE_CALLS], first[NOTE_STEP_MS], greatest_note(NOTE_DRAIN_S, left),
	       greatest_note(NOTE_RECOVER_S, left), note);
	return bad || !equal;
}

} // namespace

/* Of the stand-in: room that all ranks share. */
extern "C" int stand_in_make(int ranks) __attribute__((weak));
extern "C" void stand_in_rank(int rank) __attribute__((weak));

int main(int argc, char **argv)
{
	const struct {
		const char *name;
		void (*run)();
	} all[] = { { "sums", sums }, { "train", training }, { "train-bf16", training_bf16 }, { "death", death } };
	void (*run)() = nullptr;
	for (const auto &a : all)
		if (argc == 3 && !strcmp(argv[1], a.name))
			run = a.run;
	ranks = argc == 3 ? atoi(argv[2]) : 0;
	if (!run || ranks < 1 || ranks > MEETING_RANKS || (run == death && ranks < 2)) {
		fprintf(stderr, "usage: gpu-world sums|train|train-bf16|death RANKS\n");
		return EXIT_USAGE;
	}
	if (meeting_make(ranks) || (stand_in_make && stand_in_make(ranks))) {
		printf("{\"note\": \"no shared memory\"}\n");
		return 1;
	}
	const char *temporary = getenv("TMPDIR");
	if (snprintf(folder, sizeof folder, "%s/gpu-world.XXXXXX", temporary ? temporary : "/tmp") >= (int)sizeof folder || !mkdtemp(folder)) {
		printf("{\"note\": \"no folder for traces\"}\n");
		return 1;
	}
	std::vector<pid_t> children;
	for (rank = 0; rank < ranks; rank++) {
		const pid_t child = fork(); /* before anything of CUDA is touched */
		if (!child) {
			alarm(100);
			pretend_hosts();
			if (stand_in_rank)
				stand_in_rank(rank);
			run();
			fflush(stdout);
			_exit(0);
		}
		children.push_back(child);
	}
	int bad = 0;
	for (int r = 0; r < ranks; r++) {
		int status = 1;
		waitpid(children[(size_t)r], &status, 0);
		const bool killed = run == death && r == ranks - 1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		bad += status != 0 && !killed;
		if (status && !killed)
			printf("rank %d ended with status %d, signal %d\n", r, WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	}
	rmdir(folder);
	return tell(argv[1], bad);
}
