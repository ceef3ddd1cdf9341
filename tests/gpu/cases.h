/* SPDX-License-Identifier: Apache-2.0
 * Kernel tests that run on a GPU (nvcc) and on the CPU (tests/cuda/shim.h) from the same source: random inputs, the kernel,
 * and a reference in fp64 that rounds where the kernel promises to round. */
#ifndef GPU_CASES_H
#define GPU_CASES_H

#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "device.h"

struct kernel_case {
	std::string name;
	void (*check)(const kernel_case &);
	void (*time)(const kernel_case &); /* NULL: nothing to time */
	int number;                        /* the variant's, for a time function that serves several */
	bool wgmma = false;                /* needs a device with warpgroups: there is none of it elsewhere */
};

/* Every file of cases adds its own. */
void add_conv1x1_cases(std::vector<kernel_case> &cases);
void add_conv_weight_cases(std::vector<kernel_case> &cases);
void add_conv3x3_cases(std::vector<kernel_case> &cases);
void add_elementwise_cases(std::vector<kernel_case> &cases);
void add_residual_cases(std::vector<kernel_case> &cases);
void add_gray_cases(std::vector<kernel_case> &cases);
void add_layer_cases(std::vector<kernel_case> &cases);

/* ---- one case's state, reset before each ---- */

/* Largest error in units of its tolerance, over everything compared; > 1 is a failure. */
extern double worst_error;
extern std::string worst_place;

/* Records one comparison; a NaN on either side fails. `what` is a printf format for its arguments. */
void expect_near(double got, double want, double tolerance, const char *what, ...) __attribute__((format(printf, 4, 5)));
/* Fails the case at once with a line. */
[[noreturn]] void give_up(const char *format, ...) __attribute__((format(printf, 1, 2)));
void check_device(int code, const char *what);
/* Adds a number to the case's JSON row. */
void report(const char *key, double value);

/* ---- inputs ---- */

void seed_random(uint64_t seed);
uint64_t random_bits();
/* Uniform in [low, high). */
double random_uniform(double low, double high);
double random_normal();

template <class T> std::vector<T> random_numbers(size_t count, double mean, double deviation)
{
	std::vector<T> v(count);
	for (T &x : v)
		x = from_float<T>((float)(mean + deviation * random_normal()));
	return v;
}

/* ---- references ---- */

/* Sums in fp64, each with its terms' magnitudes: a sum in fp32 may be off by a part of those. */
struct sums {
	std::vector<double> value, terms;

	explicit sums(size_t count) : value(count), terms(count)
	{
	}
	/* A term for each: the factor times the row's. */
	void add(double factor, const float *row);
};

/* [rows][columns] → [columns][rows] */
template <class T> std::vector<float> transposed(const std::vector<T> &v, size_t rows, size_t columns)
{
	std::vector<float> t(v.size());
	for (size_t i = 0; i < v.size(); i++)
		t[i % columns * rows + i / columns] = to_float(v[i]);
	return t;
}

/* The same numbers so many times, one after the other. */
template <class T> std::vector<T> repeated(const std::vector<T> &v, long times)
{
	std::vector<T> all;
	for (; times > 0; times--)
		all.insert(all.end(), v.begin(), v.end());
	return all;
}

/* Rows of `pitch` numbers, made of what repeats after `period` of them: each must have the bits of the first that is made of the same, in `width` numbers. */
template <class T> void expect_repeated(const std::vector<T> &rows, size_t pitch, size_t width, size_t period, const char *what)
{
	for (size_t i = period; i < rows.size() / pitch; i++)
		if (memcmp(&rows[i * pitch], &rows[i % period * pitch], width * sizeof(T)))
			give_up("%s[%zu] has other bits than %s[%zu], which is made of the same", what, i, what, i % period);
}

/* Half a unit in the last place of T near x. */
template <class T> double half_ulp(double x);
template <> inline double half_ulp<bf16>(double x)
{
	return std::ldexp(1.0, std::ilogb(std::fmax(std::fabs(x), 0x1p-126)) - 8);
}
template <> inline double half_ulp<fp16>(double x)
{
	return std::ldexp(1.0, std::ilogb(std::fmax(std::fabs(x), 0x1p-14)) - 11);
}
template <> inline double half_ulp<float>(double x)
{
	return std::ldexp(1.0, std::ilogb(std::fmax(std::fabs(x), 0x1p-126)) - 24);
}

template <class T> const char *type_name();
template <> inline const char *type_name<float>() { return "fp32"; }
template <> inline const char *type_name<bf16>() { return "bf16"; }
template <> inline const char *type_name<fp16>() { return "fp16"; }

/* Device memory of a case: filled with NaNs unless uploaded. */
template <class T> class device_array {
public:
	explicit device_array(size_t n) : count(n)
	{
		check_device(device_alloc((void **)&p, n * sizeof(T)), "device_alloc");
		check_device(device_fill(p, 0xff, n * sizeof(T), nullptr), "device_fill");
	}
	explicit device_array(const std::vector<T> &v) : device_array(v.size())
	{
		check_device(device_upload(p, v.data(), count * sizeof(T), nullptr), "device_upload");
		check_device(device_wait(nullptr), "device_upload");
	}
	device_array(const device_array &) = delete;
	device_array &operator=(const device_array &) = delete;
	~device_array()
	{
		device_free(p);
	}
	std::vector<T> download() const
	{
		std::vector<T> v(count);
		check_device(device_wait(nullptr), "kernel");
		check_device(device_download(v.data(), p, count * sizeof(T), nullptr), "device_download");
		check_device(device_wait(nullptr), "device_download");
		return v;
	}
	operator T *() const
	{
		return p;
	}

private:
	size_t count;
	T *p;
};

/* ---- timing (on a GPU only) ---- */

#ifdef __CUDACC__
#include <functional>
#include <memory>
/* How often maps of so many pixels are repeated for every multiprocessor to have several tiles, one after the other while all are at work: what a tile leaves to the next
 * may go wrong only then, and only now and then. Once where a sanitizer, which takes long, looks on (GPU_SANITIZED). */
inline long busy_times(long pixels)
{
	return getenv("GPU_SANITIZED") ? 1 : 4L * 128 * device_sms() / pixels + 1;
}
/* Enqueues what is timed, on the buffers of a set that is counted from 0. */
typedef std::function<void(int set, device_stream stream)> timed_run;
/* Median microseconds of `run`, replayed as a CUDA graph of at least a millisecond in which the sets take turns. */
double median_us(int sets, const timed_run &run);
/* How many sets of buffers there must be, of which a launch moves `bytes`, so that none is in the second-level cache when its turn comes. */
int sets_beyond_cache(double bytes);
/* GB/s (read + written) of a copy of `bytes` by a kernel, which is what kernels can reach; *by_driver, unless NULL: of the driver's own copy, which on an
 * H200 gets two thirds of the memory's rate (NVIDIA/cccl#1672): shares of that would say too much. */
double copy_rate(size_t bytes, double *by_driver);
/* Reports median_us, gb_per_s for the bytes moved at least once, and the share of copy_rate(). */
void report_rate(double us, double bytes);

/* Random numbers without a host copy of several gigabytes: a random megabyte, repeated. */
template <class T> void fill_random(T *to, size_t count, double deviation)
{
	const std::vector<T> noise = random_numbers<T>((1 << 20) + 8, 0.1, deviation); /* an odd period against the rows' */
	for (size_t at = 0; at < count; at += noise.size())
		check_device(device_upload(to + at, noise.data(), (count - at < noise.size() ? count - at : noise.size()) * sizeof(T), nullptr), "upload");
	check_device(device_wait(nullptr), "upload");
}

/* The maps of all sets; weights, coefficients and partial sums are the same for every set, as they are for every layer of a step. */
template <class T> struct timed_maps {
	std::vector<std::unique_ptr<device_array<T>>> arrays;

	T *add(size_t count, bool filled)
	{
		arrays.emplace_back(new device_array<T>(count));
		if (filled)
			fill_random<T>(*arrays.back(), count, 1);
		return *arrays.back();
	}
};
#endif

#endif
