/* SPDX-License-Identifier: Apache-2.0
 * Questions to a machine with a GPU; each prints one JSON object.
 *
 *     gpu-probe launch          microseconds a kernel costs, launched and in a graph
 *     gpu-probe nccl-graph      all-reduce of one rank captured in a graph
 *     gpu-probe nccl-two-ranks  two processes, told apart by NCCL_HOSTID, on one GPU
 *     gpu-probe nccl-abort      a graph whose all-reduce waits for a rank that never comes is aborted
 *
 * NCCL is opened at run time: the machine may have it only inside a Python wheel. Its communicators do not block and every wait has
 * an end: where two ranks cannot connect, the object says so. */
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

enum { LIMIT = 15 /* seconds for one wait */, ABORT_LIMIT = 5 };

struct nccl_library {
	decltype(&ncclGetVersion) version;
	decltype(&ncclGetUniqueId) unique_id;
	decltype(&ncclCommInitRankConfig) init;
	decltype(&ncclAllReduce) all_reduce;
	decltype(&ncclCommFinalize) finalize;
	decltype(&ncclCommDestroy) destroy;
	decltype(&ncclCommAbort) abort;
	decltype(&ncclCommGetAsyncError) async_error;
	decltype(&ncclGetErrorString) error_string;
	decltype(&ncclGetLastError) last_error;
} nccl;

ncclComm_t communicator;

/* Of two processes; rank 1 is the child. */
int rank;
pid_t child;
struct last_words {
	std::atomic<bool> said;
	char text[512];
} *of_rank_1; /* shared; only rank 0 prints */

[[noreturn]] void give_up(const char *format, ...) __attribute__((format(printf, 1, 2)));
void give_up(const char *format, ...)
{
	char text[sizeof of_rank_1->text];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	for (char *p = text; *p; p++)
		*p = *p == '"' || *p == '\\' || (unsigned char)*p < ' ' ? ' ' : *p;
	if (rank) {
		strcpy(of_rank_1->text, text);
		of_rank_1->said = true;
	} else {
		const bool both = of_rank_1 && of_rank_1->said;
		printf("{\"note\": \"%s%s%s\"}\n", text, both ? "; rank 1: " : "", both ? of_rank_1->text : "");
		fflush(stdout);
	}
	if (child > 0)
		kill(child, SIGKILL);
	alarm(ABORT_LIMIT); /* the object is out: an abort that hangs, too, is not waited for */
	if (communicator)
		nccl.abort(communicator);
	_exit(1);
}

void cuda(cudaError_t code, const char *what)
{
	if (code != cudaSuccess)
		give_up("%s: %s", what, cudaGetErrorString(code));
}

template <class F> void find(void *library, F &function, const char *name)
{
	function = (F)dlsym(library, name);
	if (!function)
		give_up("libnccl.so.2 has no %s", name);
}

int open_nccl()
{
	void *library = dlopen("libnccl.so.2", RTLD_NOW);
	if (!library)
		give_up("%s", dlerror());
	find(library, nccl.version, "ncclGetVersion");
	find(library, nccl.unique_id, "ncclGetUniqueId");
	find(library, nccl.init, "ncclCommInitRankConfig");
	find(library, nccl.all_reduce, "ncclAllReduce");
	find(library, nccl.finalize, "ncclCommFinalize");
	find(library, nccl.destroy, "ncclCommDestroy");
	find(library, nccl.abort, "ncclCommAbort");
	find(library, nccl.async_error, "ncclCommGetAsyncError");
	find(library, nccl.error_string, "ncclGetErrorString");
	find(library, nccl.last_error, "ncclGetLastError");
	int version = 0;
	nccl.version(&version);
	return version;
}

double now()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* One look of a wait for `what`, which began at `begin`. */
void wait_on(const char *what, double begin)
{
	if (rank == 0 && of_rank_1 && of_rank_1->said)
		give_up("%s: rank 1 has given up", what);
	if (now() - begin > LIMIT)
		give_up("%s: not through within %d s", what, LIMIT);
	usleep(20);
}

/* Until NCCL is through with what it was asked for; its kernels may still run. */
void settle(ncclResult_t code, const char *what)
{
	for (const double begin = now(); code == ncclInProgress; wait_on(what, begin)) {
		const ncclResult_t asked = nccl.async_error(communicator, &code);
		code = asked ? asked : code;
	}
	if (code)
		give_up("%s: %s; %s", what, nccl.error_string(code), nccl.last_error(communicator));
}

cudaError_t drained(cudaStream_t stream, const char *what)
{
	cudaError_t code;
	for (const double begin = now(); (code = cudaStreamQuery(stream)) == cudaErrorNotReady;)
		wait_on(what, begin);
	return code;
}

void drain(cudaStream_t stream, const char *what)
{
	cuda(drained(stream, what), what);
}

enum { COUNT = 1 << 20 };

__global__ void fill(float *to, float value)
{
	for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < COUNT; i += (int)(gridDim.x * blockDim.x))
		to[i] = value;
}

__global__ void tiny(float *p)
{
	if (threadIdx.x == 0 && blockIdx.x == 0)
		p[0] += 1;
}

int launch()
{
	enum { KERNELS = 300, REPEATS = 20 };
	cudaStream_t stream;
	float *p;
	cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
	cuda(cudaMalloc((void **)&p, sizeof *p), "cudaMalloc");
	cuda(cudaMemsetAsync(p, 0, sizeof *p, stream), "cudaMemset"); /* the default stream and this one do not wait for each other */
	auto run = [&] {
		for (int i = 0; i < KERNELS; i++)
			tiny<<<132, 128, 0, stream>>>(p);
	};
	run();
	cuda(cudaStreamSynchronize(stream), "tiny");
	double begin = now();
	for (int i = 0; i < REPEATS; i++)
		run();
	cuda(cudaStreamSynchronize(stream), "tiny");
	double launched = (now() - begin) / (KERNELS * REPEATS);

	cudaGraph_t graph;
	cudaGraphExec_t executable;
	cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
	run();
	cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
	cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
	cuda(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
	cuda(cudaStreamSynchronize(stream), "graph");
	begin = now();
	for (int i = 0; i < REPEATS; i++)
		cuda(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
	cuda(cudaStreamSynchronize(stream), "graph");
	double replayed = (now() - begin) / (KERNELS * REPEATS);
	float counted;
	cuda(cudaMemcpy(&counted, p, sizeof counted, cudaMemcpyDeviceToHost), "cudaMemcpy");
	if (counted != KERNELS * (2 * REPEATS + 2))
		give_up("%d kernels ran as %g", KERNELS * (2 * REPEATS + 2), counted);
	printf("{\"launched_us\": %.3f, \"in_graph_us\": %.3f, \"note\": \"%.2f us a kernel launched, %.2f us in a graph\"}\n", launched * 1e6, replayed * 1e6,
	       launched * 1e6, replayed * 1e6);
	return 0;
}

struct world {
	cudaStream_t stream;
	float *data;
	cudaGraphExec_t graph;
};

/* Communicator, one eager all-reduce, the same in a graph. A mean, as libhvd's: of one rank's sum in place NCCL makes nothing at all. */
void join(struct world *w, ncclUniqueId id, int size)
{
	cuda(cudaSetDevice(0), "cudaSetDevice");
	cuda(cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking), "cudaStreamCreate");
	cuda(cudaMalloc((void **)&w->data, COUNT * sizeof(float)), "cudaMalloc");
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	config.blocking = 0;
	settle(nccl.init(&communicator, size, id, rank, &config), "ncclCommInitRank");
	fill<<<64, 256, 0, w->stream>>>(w->data, (float)(rank + 1));
	settle(nccl.all_reduce(w->data, w->data, COUNT, ncclFloat, ncclAvg, communicator, w->stream), "ncclAllReduce");
	drain(w->stream, "eager all-reduce");
	cudaGraph_t graph;
	cuda(cudaStreamBeginCapture(w->stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
	fill<<<64, 256, 0, w->stream>>>(w->data, (float)(rank + 1));
	settle(nccl.all_reduce(w->data, w->data, COUNT, ncclFloat, ncclAvg, communicator, w->stream), "ncclAllReduce in capture");
	cuda(cudaStreamEndCapture(w->stream, &graph), "cudaStreamEndCapture");
	size_t nodes = 0;
	cuda(cudaGraphGetNodes(graph, nullptr, &nodes), "cudaGraphGetNodes");
	if (nodes < 2)
		give_up("the graph holds nothing of NCCL's");
	cuda(cudaGraphInstantiate(&w->graph, graph, 0), "cudaGraphInstantiate");
	cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

/* NCCL ends no communicator, not by an abort either, before the last graph that holds its collectives is gone. */
void drop_graph(struct world *w)
{
	cuda(cudaGraphExecDestroy(w->graph), "cudaGraphExecDestroy");
}

/* Microseconds of a replay; gives up if a mean is wrong. */
double replay(struct world *w, int size)
{
	enum { REPEATS = 20 };
	cuda(cudaGraphLaunch(w->graph, w->stream), "cudaGraphLaunch");
	drain(w->stream, "graph with all-reduce");
	double begin = now();
	for (int i = 0; i < REPEATS; i++)
		cuda(cudaGraphLaunch(w->graph, w->stream), "cudaGraphLaunch");
	drain(w->stream, "graph with all-reduce");
	double us = (now() - begin) / REPEATS * 1e6;
	float *host = (float *)malloc(COUNT * sizeof *host);
	cuda(cudaMemcpy(host, w->data, COUNT * sizeof *host, cudaMemcpyDeviceToHost), "cudaMemcpy");
	for (int i = 0; i < COUNT; i++)
		if (host[i] != (float)(size + 1) / 2)
			give_up("element %d of %d ranks' mean is %g", i, size, host[i]);
	free(host);
	return us;
}

void leave(struct world *w)
{
	drop_graph(w);
	settle(nccl.finalize(communicator), "ncclCommFinalize");
	const ncclResult_t code = nccl.destroy(communicator);
	communicator = nullptr;
	if (code)
		give_up("ncclCommDestroy: %s", nccl.error_string(code));
}

int nccl_graph()
{
	int version = open_nccl();
	ncclUniqueId id;
	struct world w;
	settle(nccl.unique_id(&id), "ncclGetUniqueId");
	join(&w, id, 1);
	double us = replay(&w, 1);
	leave(&w);
	printf("{\"nccl\": %d, \"replay_us\": %.1f, \"note\": \"captured and replayed\"}\n", version, us);
	return 0;
}

/* Starts rank 1 as a child before anything of CUDA is touched. The id goes through a pipe. */
void two_processes(ncclUniqueId *id)
{
	int ends[2];
	void *shared = mmap(nullptr, sizeof *of_rank_1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || pipe(ends))
		give_up("no shared memory, or no pipe: %s", strerror(errno));
	of_rank_1 = (struct last_words *)shared;
	child = fork();
	if (child < 0)
		give_up("fork: %s", strerror(errno));
	rank = child == 0;
	close(ends[rank ? 1 : 0]); /* rank 0 that gives up ends the other's wait */
	setenv("NCCL_HOSTID", rank ? "one" : "zero", 1);
	static const char *const settings[][2] = { { "NCCL_SOCKET_IFNAME", "lo" }, { "NCCL_NET", "Socket" }, { "NCCL_IB_DISABLE", "1" }, { "NCCL_MNNVL_ENABLE", "0" },
		                                   { "NCCL_RAS_ENABLE", "0" }, { "NCCL_ALGO", "Ring" }, { "NCCL_PROTO", "Simple" }, { "NCCL_MAX_NCHANNELS", "1" } };
	for (const auto &s : settings)
		setenv(s[0], s[1], 0);
	open_nccl();
	if (rank == 0) {
		settle(nccl.unique_id(id), "ncclGetUniqueId");
		if (write(ends[1], id, sizeof *id) != (ssize_t)sizeof *id)
			give_up("write: %s", strerror(errno));
	} else if (read(ends[0], id, sizeof *id) != (ssize_t)sizeof *id) {
		give_up("rank 0 sent no id");
	}
}

int nccl_two_ranks()
{
	ncclUniqueId id;
	struct world w;
	two_processes(&id);
	join(&w, id, 2);
	double us = replay(&w, 2);
	leave(&w);
	if (rank)
		_exit(0);
	int status = 0;
	waitpid(child, &status, 0);
	child = 0;
	if (status)
		give_up("rank 0 is through, rank 1 ended with status 0x%x", status);
	printf("{\"replay_us\": %.1f, \"note\": \"two ranks on one GPU by NCCL_HOSTID, %.0f us for 4 MB\"}\n", us, us);
	return 0;
}

/* Rank 1 leaves after the set-up; rank 0's graph can only end by an abort from another thread. */
int nccl_abort()
{
	ncclUniqueId id;
	struct world w;
	two_processes(&id);
	join(&w, id, 2);
	replay(&w, 2);
	if (rank) {
		sleep(4 * LIMIT); /* alive but silent, until it is killed: its death alone must not be what ends the wait */
		_exit(1);
	}
	cuda(cudaGraphLaunch(w.graph, w.stream), "cudaGraphLaunch");
	sleep(2);
	if (cudaStreamQuery(w.stream) != cudaErrorNotReady)
		give_up("the all-reduce ended without its peer");
	const double begin = now();
	std::atomic<double> abort_s{ 0 };
	std::thread watcher([&abort_s, begin, aborted = communicator] {
		nccl.abort(aborted);
		abort_s = now() - begin;
	});
	communicator = nullptr;
	const cudaError_t end = drained(w.stream, "the stream after ncclCommAbort");
	const double drained_s = now() - begin;
	drop_graph(&w);
	while (abort_s == 0)
		wait_on("ncclCommAbort", begin);
	watcher.join();
	fill<<<64, 256, 0, w.stream>>>(w.data, 1);
	const cudaError_t after = drained(w.stream, "a kernel after ncclCommAbort");
	kill(child, SIGKILL);
	waitpid(child, nullptr, 0);
	printf("{\"abort_s\": %.3f, \"drained_s\": %.3f, \"stream\": \"%s\", \"after\": \"%s\", \"note\": \"stream drained %.2f s after abort, GPU usable: %s\"}\n", abort_s.load(),
	       drained_s, cudaGetErrorString(end), cudaGetErrorString(after), drained_s, after == cudaSuccess ? "yes" : "no");
	return after != cudaSuccess;
}

} // namespace

int main(int argc, char **argv)
{
	const struct {
		const char *name;
		int (*function)();
	} questions[] = { { "launch", launch }, { "nccl-graph", nccl_graph }, { "nccl-two-ranks", nccl_two_ranks }, { "nccl-abort", nccl_abort } };
	for (const auto &q : questions)
		if (argc == 2 && !strcmp(argv[1], q.name))
			return q.function();
	fprintf(stderr, "usage: gpu-probe launch|nccl-graph|nccl-two-ranks|nccl-abort\n");
	return 64;
}
