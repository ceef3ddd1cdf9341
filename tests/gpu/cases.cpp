/* SPDX-License-Identifier: Apache-2.0
 * Runs kernel cases.
 *
 *     gpu-kernels                  all checks, as TAP
 *     gpu-kernels list check|time  names of cases
 *     gpu-kernels check NAME       one check; a JSON object, exit 0 or 1
 *     gpu-kernels time NAME        one timing; a JSON object
 *     gpu-kernels copy MB          device copy rate; a JSON object
 *
 * SEED in the environment chooses the random numbers; the seed used is printed. */
#include "cases.h"
#include "reduce.h"
#include "warpgroup.h"

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <ctime>

double worst_error;
std::string worst_place;

namespace {

uint64_t random_state;
double second_normal = NAN; /* numbers come in twos */
std::string json, failure;
jmp_buf abandoned;

std::string formatted(const char *format, va_list arguments)
{
	char text[512];
	vsnprintf(text, sizeof text, format, arguments);
	return text;
}

} // namespace

void expect_near(double got, double want, double tolerance, const char *what, ...)
{
	double error = std::fabs(got - want) / tolerance;
	if (error <= worst_error)
		return;
	va_list arguments;
	va_start(arguments, what);
	worst_place = formatted(what, arguments);
	va_end(arguments);
	char numbers[160];
	snprintf(numbers, sizeof numbers, ": %.9g, not %.9g (tolerance %.3g)", got, want, tolerance);
	worst_place += numbers;
	worst_error = error == error ? error : INFINITY;
}

void give_up(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	failure = formatted(format, arguments);
	va_end(arguments);
	longjmp(abandoned, 1);
}

void check_device(int code, const char *what)
{
	if (code)
		give_up("%s: %s", what, device_error(code));
}

void report(const char *key, double value)
{
	char text[96];
	snprintf(text, sizeof text, ", \"%s\": %.6g", key, value);
	json += text;
}

void seed_random(uint64_t seed)
{
	random_state = seed;
	second_normal = NAN;
}

uint64_t random_bits()
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

double random_uniform(double low, double high)
{
	return low + (high - low) * (double)(random_bits() >> 11) * 0x1p-53;
}

double random_normal()
{
	double x = second_normal;
	second_normal = NAN;
	if (x == x)
		return x;
	const double radius = std::sqrt(-2 * std::log(1 - random_uniform(0, 1)));
	sincos(6.283185307179586 * random_uniform(0, 1), &second_normal, &x);
	second_normal *= radius;
	return radius * x;
}

#ifndef __clang__ /* it makes vectors without being asked */
__attribute__((optimize("O3")))
#endif
static void add_products(double factor, const float *__restrict row, size_t count, double *__restrict value, double *__restrict terms)
{
	for (size_t i = 0; i < count; i++) {
		const double term = factor * row[i];
		value[i] += term;
		terms[i] += std::fabs(term);
	}
}

void sums::add(double factor, const float *row)
{
	add_products(factor, row, value.size(), value.data(), terms.data());
}

#ifdef __CUDACC__
/* Bytes of the device's second-level cache. */
static double cache_bytes()
{
	int device = 0, cache = 0;
	if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device) != cudaSuccess || cache <= 0)
		cache = 64 << 20;
	return cache;
}

int sets_beyond_cache(double bytes)
{
	return (int)std::fmin(std::fmax(std::ceil(4 * cache_bytes() / bytes), 1), 32);
}

/* Times graphs on a stream of its own; nothing is freed, as a process times one case. */
struct stopwatch {
	device_stream stream;
	cudaEvent_t from, to;

	stopwatch()
	{
		check_device(device_stream_make(&stream), "cudaStreamCreate");
		check_device(cudaEventCreate(&from), "cudaEventCreate");
		check_device(cudaEventCreate(&to), "cudaEventCreate");
	}
	device_graph capture(int launches, int sets, const timed_run &run) const
	{
		device_graph graph = nullptr;
		check_device(device_capture_begin(stream), "begin of a capture");
		for (int i = 0; i < launches; i++)
			run(i % sets, stream);
		check_device(device_capture_end(stream, &graph), "end of a capture");
		return graph;
	}
	/* Milliseconds of a replay. The one before it keeps the device busy until it is enqueued: its launch is not in the time. */
	double replay(device_graph graph) const
	{
		float ms = 0;
		check_device(device_graph_launch(graph, stream), "cudaGraphLaunch");
		check_device(cudaEventRecord(from, stream), "cudaEventRecord");
		check_device(device_graph_launch(graph, stream), "cudaGraphLaunch");
		check_device(cudaEventRecord(to, stream), "cudaEventRecord");
		check_device(cudaEventSynchronize(to), "timed run");
		check_device(cudaEventElapsedTime(&ms, from, to), "cudaEventElapsedTime");
		return ms;
	}
};

double median_us(int sets, const timed_run &run)
{
	const stopwatch watch;
	check_device(device_wait(nullptr), "inputs");
	for (int set = 0; set < sets; set++)
		run(set, watch.stream); /* modules are loaded, and attributes set, before anything is captured */
	check_device(device_wait(watch.stream), "first run");
	device_graph graph = watch.capture(sets, sets, run);
	watch.replay(graph);
	const double round = watch.replay(graph);
	device_graph_free(graph);
	const int launches = sets * (int)std::fmin(std::fmax(std::ceil(1 / round), 1), 500);
	graph = watch.capture(launches, sets, run);
	double warm = 0, timed = 0; /* milliseconds: clocks rise for a while */
	for (int i = 0; i < 2 || (warm < 200 && i < 10000); i++)
		warm += 2 * watch.replay(graph);
	std::vector<double> ms;
	while (ms.size() < 15 || (timed < 100 && ms.size() < 10000)) {
		ms.push_back(watch.replay(graph));
		timed += ms.back();
	}
	device_graph_free(graph);
	std::sort(ms.begin(), ms.end());
	return 1000 * ms[ms.size() / 2] / launches;
}

/* Four loads of 16 bytes in flight a thread. */
struct plain_copy {
	const vector16 *from;
	vector16 *to;
	size_t count;
};

KERNEL THREADS(256, 8) plain_copy_kernel(const plain_copy p)
{
	begin_kernel();
	const size_t first = (size_t)blockIdx.x * 4 * 256 + threadIdx.x;
	vector16 v[4];
	UNROLL for (int i = 0; i < 4; i++)
		v[i] = first + i * 256 < p.count ? p.from[first + i * 256] : vector16{};
	UNROLL for (int i = 0; i < 4; i++)
		if (first + i * 256 < p.count)
			p.to[first + i * 256] = v[i];
}

double copy_rate(size_t bytes, double *by_driver)
{
	const size_t count = bytes / sizeof(vector16);
	std::vector<vector16> noise(1 << 16), got(std::min(noise.size(), count));
	for (vector16 &v : noise)
		for (uint32_t &word : v.word)
			word = (uint32_t)random_bits();
	device_array<vector16> from(count), to(count);
	for (size_t at = 0; at < count; at += noise.size())
		check_device(cudaMemcpy(from + at, noise.data(), std::min(noise.size(), count - at) * sizeof(vector16), cudaMemcpyHostToDevice), "upload");
	const plain_copy p = { from, to, count };
	const double rate = 2.0 * (double)bytes / 1000;
	if (by_driver)
		*by_driver = rate / median_us(1, [&](int, device_stream stream) { check_device(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copy"); });
	check_device(device_fill(to, 0xff, bytes, nullptr), "device_fill");
	const double us = median_us(1, [&](int, device_stream stream) { check_device(launch(plain_copy_kernel, (unsigned)((count + 4 * 256 - 1) / (4 * 256)), 256, 0, stream, p), "copy"); });
	const size_t last = (count - 1) / noise.size() * noise.size();
	check_device(cudaMemcpy(got.data(), to + last, (count - last) * sizeof(vector16), cudaMemcpyDeviceToHost), "download");
	if (memcmp(got.data(), noise.data(), (count - last) * sizeof(vector16)))
		give_up("the copy is not what was copied");
	return rate / us;
}

/* The timer itself: sets take turns, and are enough of them. */
static void check_timing(const kernel_case &)
{
	const int sets = 3;
	const device_array<float> one(std::vector<float>(1, 1)), runs(std::vector<float>(sets, 0));
	const double us = median_us(sets, [&](int set, device_stream stream) { check_device(reduce_partials_launch({ one, runs + set, 1, 1, 1, 1, 1 }, stream), "reduce_partials"); });
	const std::vector<float> got = runs.download();
	if (!(us > 0) || got[0] < 30 || got[1] != got[0] || got[2] != got[0])
		give_up("%g us a launch; the sets were run %g, %g and %g times", us, got[0], got[1], got[2]);
	const double cache = cache_bytes();
	if (sets_beyond_cache(1e12) != 1 || sets_beyond_cache(cache) != 4 || sets_beyond_cache(cache / 100) != 32)
		give_up("with %g MB of cache, %d sets as large as that, %d of 1 TB", cache / 1e6, sets_beyond_cache(cache), sets_beyond_cache(1e12));
}

void report_rate(double us, double bytes)
{
	const char *known = getenv("GPU_COPY_RATE"); /* GB/s */
	double copy = known ? atof(known) : copy_rate((size_t)1 << 30, nullptr);
	report("median_us", us);
	report("mb", bytes / 1e6);
	report("sets", sets_beyond_cache(bytes));
	report("gb_per_s", bytes / us / 1000);
	report("copy_gb_per_s", copy);
	report("share_of_copy", bytes / us / 1000 / copy);
}
#endif

static int run_case(const kernel_case &c, void (*function)(const kernel_case &), uint64_t seed)
{
	worst_error = 0;
	worst_place = failure = json = "";
	seed_random(seed);
#ifndef __CUDACC__
	shim_seed(seed);
#endif
	if (!setjmp(abandoned))
		function(c);
	if (failure.empty() && !(worst_error <= 1))
		failure = worst_place;
	return !failure.empty();
}

static void print_json(const kernel_case &c, int failed, uint64_t seed)
{
	std::string text = failure;
	std::replace(text.begin(), text.end(), '"', '\'');
	printf("{\"case\": \"%s\", \"seed\": %llu, \"worst_error\": %.4g%s", c.name.c_str(), (unsigned long long)seed, std::fmin(worst_error, 1e300), json.c_str()); /* JSON has no infinity */
	if (failed)
		printf(", \"note\": \"%s\"", text.c_str());
	printf("}\n");
}

static int run_all(const std::vector<kernel_case> &cases, uint64_t seed)
{
	int failures = 0, number = 0;
	std::vector<const kernel_case *> checks;
	for (const kernel_case &c : cases)
		if (c.check)
			checks.push_back(&c);
	printf("1..%zu\n# seed %llu\n", checks.size(), (unsigned long long)seed);
	for (const kernel_case *c : checks) {
		int failed = run_case(*c, c->check, seed);
		printf("%sok %d - %s\n", failed ? "not " : "", ++number, c->name.c_str());
		printf("# %s\n", failed ? failure.c_str() : worst_place.c_str());
		fflush(stdout);
		failures += failed;
	}
	return failures ? 1 : 0;
}

static bool left_out(const kernel_case &c)
{
#ifdef WGMMA_ONLY
	return !c.wgmma;
#else
	return c.wgmma && !device_has_warpgroups();
#endif
}

int main(int argc, char **argv)
{
	std::vector<kernel_case> cases;
	add_conv1x1_cases(cases);
	add_conv_weight_cases(cases);
	add_conv3x3_cases(cases);
	add_elementwise_cases(cases);
	add_residual_cases(cases);
	add_gray_cases(cases);
	add_layer_cases(cases);
#ifdef __CUDACC__
	cases.push_back({ "timing", check_timing, nullptr, 0 });
#endif
	cases.erase(std::remove_if(cases.begin(), cases.end(), left_out), cases.end());
	const char *chosen = getenv("SEED");
	uint64_t seed = chosen ? strtoull(chosen, nullptr, 0) : (uint64_t)time(nullptr);
	if (argc == 3 && !strcmp(argv[1], "all")) {
		const std::string begin = std::string(argv[2]) + ":";
		cases.erase(std::remove_if(cases.begin(), cases.end(), [&](const kernel_case &c) { return (c.name + ":").compare(0, begin.size(), begin) != 0; }), cases.end());
	}
	if (argc == 1 || (argc == 3 && !strcmp(argv[1], "all")))
		return cases.empty() ? 64 : run_all(cases, seed);
	bool timing = argc == 3 && (!strcmp(argv[2], "time") || !strcmp(argv[1], "time"));
	if (argc == 3 && !strcmp(argv[1], "list")) {
		for (const kernel_case &c : cases)
			if (timing ? c.time != nullptr : c.check != nullptr)
				printf("%s\n", c.name.c_str());
		return 0;
	}
	if (argc == 3 && (!strcmp(argv[1], "check") || timing)) {
		for (const kernel_case &c : cases) {
			void (*function)(const kernel_case &) = timing ? c.time : c.check;
			if (c.name != argv[2] || !function)
				continue;
			int failed = run_case(c, function, seed);
			print_json(c, failed, seed);
			return failed;
		}
		fprintf(stderr, "no case %s: see list\n", argv[2]);
		return 64;
	}
	if (argc == 3 && !strcmp(argv[1], "copy")) {
#ifdef __CUDACC__
		kernel_case c = { "copy", nullptr, nullptr, atoi(argv[2]) };
		int failed = run_case(c, [](const kernel_case &k) {
			double by_driver;
			report("gb_per_s", copy_rate((size_t)k.number << 20, &by_driver));
			report("driver_gb_per_s", by_driver);
		}, seed);
		print_json(c, failed, seed);
		return failed;
#else
		printf("{\"skipped\": \"no GPU: a copy here is the CPU's\"}\n");
		return 0;
#endif
	}
	fprintf(stderr, "usage: gpu-kernels [all KERNEL | list check|time | check NAME | time NAME | copy MB]\n");
	return 64;
}
