/* SPDX-License-Identifier: Apache-2.0
 * A GPU of one warp scheduler and no speed: kernel bodies of trainer/engine/cuda as CPU functions.
 *
 * Every thread of a block is a fiber. Fibers run one at a time, in random order, in most blocks those of some warps before all others, each until its next barrier or warp
 * collective, so that a missing barrier shows as a wrong result. Shared memory starts as NaNs and is exactly as large
 * as asked for. An asynchronous copy lands at a random moment between its issue and the wait for it. A barrier or
 * collective that not all threads reach ends the program with the kernel's block and thread. */
#ifndef CUDA_SHIM_H
#define CUDA_SHIM_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "number.h"

#define KERNEL static inline void
#define DEVICE inline
#define THREADS(threads, blocks_per_sm)
#define UNROLL
#define UNROLL_FOUR
#define UNROLL_EIGHT
#define UNROLL_PAIR
#define SERIAL
#define HAVE_SM80 1
#define HAVE_WARPGROUPS true

struct shim_index {
	unsigned x, y, z;
};
extern struct shim_index threadIdx, blockIdx, blockDim, gridDim;

/* Random order of lanes and blocks; tests print the seed. */
void shim_seed(uint64_t seed);
/* Runs a grid to its end. */
void shim_run(unsigned blocks, unsigned threads, size_t shared_bytes, const std::function<void()> &thread);

unsigned char *shared_memory();
void wait_for_writes();
inline void begin_early_kernel()
{
}
inline void begin_kernel()
{
	wait_for_writes();
}
void sync_block();
void sync_warpgroup();
float shuffle_xor(float value, int mask);
float shuffle_from(float value, int from);

inline double inverse_root(double value)
{
	return 1 / std::sqrt(value);
}

inline int one_for_warp(int value)
{
	return value;
}

void load_matrices(uint32_t (&out)[4], const void *row);
void load_matrices_transposed(uint32_t (&out)[4], const void *row);
void copy_async(void *shared, const void *global, bool inside);
void copies_commit();
void shim_copies_wait(int left);

struct shim_product {
	float *d;
	float a[8], b[4]; /* a: rows lane/4 and +8, columns 2(lane%4), +1, +8, +9 in PTX's order */
};
void shim_multiply_add(struct shim_product *product);

template <int left> inline void copies_wait()
{
	shim_copies_wait(left);
}

template <class T> inline void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	struct shim_product product = { d, {}, { low_half<T>(b0), high_half<T>(b0), low_half<T>(b1), high_half<T>(b1) } };
	for (int i = 0; i < 4; i++) {
		product.a[2 * i] = low_half<T>(a[i]);
		product.a[2 * i + 1] = high_half<T>(a[i]);
	}
	shim_multiply_add(&product);
}

/* Products of warpgroups are done at once or when they are waited for; until then their sums are NaNs. */
struct shim_group_product {
	float *d; /* this thread's [n8][4] */
	int n8;
	uint64_t a, b;
	bool a_across, b_across, add;
	float (*value)(uint16_t bits);
	const uint32_t *registers; /* a's, or NULL: it is in shared memory */
};
void shim_group_multiply(struct shim_group_product *product);
void shim_group_wait(int left);
uint64_t group_matrix(const void *start, int panel_bytes = 0);
uint64_t group_plain(const void *start, int k_bytes, int mn_bytes);
void group_commit();

inline void async_fence()
{
}

template <class A> inline void group_fence(A &)
{
}

template <int n> inline void group_fence_read(uint32_t (&)[n][4])
{
}

template <int left, class A> inline void group_wait(A &)
{
	shim_group_wait(left);
}

template <class T> inline float shim_value(uint16_t bits)
{
	return to_float(T{ bits });
}

template <class T, bool a_across, bool b_across, int n8> inline void group_multiply(float (&d)[n8][4], uint64_t a, uint64_t b)
{
	struct shim_group_product product = { d[0], n8, a, b, a_across, b_across, false, shim_value<T>, nullptr };
	shim_group_multiply(&product);
}

template <class T, bool a_across, bool b_across, int n8> inline void group_multiply_add(float (&d)[n8][4], uint64_t a, uint64_t b)
{
	struct shim_group_product product = { d[0], n8, a, b, a_across, b_across, true, shim_value<T>, nullptr };
	shim_group_multiply(&product);
}

template <class T, bool b_across, int n8> inline void group_multiply_add(float (&d)[n8][4], const uint32_t (&a)[4], uint64_t b)
{
	struct shim_group_product product = { d[0], n8, 0, b, false, b_across, true, shim_value<T>, a };
	shim_group_multiply(&product);
}

template <int n> inline void still_needed(const uint32_t (&)[n][4])
{
}

/* ---- the host side of device.h ---- */

/* A stream is a queue: what is put into it runs when somebody waits, in the stream's order, and any of the other streams' in between. So a copy
 * whose source is gone or changed meanwhile, and an order between streams that nobody asked for, show as wrong results. What goes to the NULL
 * stream runs at once. */
typedef struct shim_stream *device_stream;

/* What a block may have, an H100's; tests take others. */
extern size_t shim_shared;
extern int shim_sms;

/* A graph is a list of what was enqueued, while it was captured, on the streams that take part: the one on which the capture began, and those
 * that since then waited for an event of one that does. As on a device the host cannot wait or allocate meanwhile, and all must have been joined with
 * the first one at the end. */
struct shim_graph {
	std::vector<std::function<void()>> steps;
};
extern shim_graph *shim_capturing;
bool shim_is_captured(device_stream stream);
bool shim_captures(); /* any stream */
extern int shim_replays;
extern int shim_launches, shim_late; /* and those that are not early */
/* So many calls to the device go well, and the next one does not; negative: all do. */
extern long shim_calls_left;
bool shim_fails();

void shim_launched();
void shim_put(device_stream stream, const std::function<void()> &what);
/* On the stream that was used last, or into the graph: for all-reduces of tests. */
void shim_enqueue(const std::function<void()> &what);

template <class Args>
inline int launch(void (*kernel)(Args), unsigned blocks, unsigned threads, size_t shared_bytes, device_stream stream, const Args &args)
{
	if (shared_bytes > shim_shared || shim_fails())
		return 1;
	shim_launched();
	shim_put(stream, [=] { shim_run(blocks, threads, shared_bytes, [&] { kernel(args); }); });
	return 0;
}

enum { DEVICE_NO_MEMORY = 2 };

inline const char *device_error(int code)
{
	return code == DEVICE_NO_MEMORY ? "no memory" : "refused";
}

inline int device_alloc(void **p, size_t bytes)
{
	*p = shim_capturing || shim_fails() ? nullptr : aligned_alloc(256, (bytes + 255) / 256 * 256);
	if (*p)
		memset(*p, 0xff, bytes);
	return *p ? 0 : shim_capturing ? 900 : DEVICE_NO_MEMORY;
}

inline void device_free(void *p)
{
	free(p);
}

/* Pinned: copies from and to it are made when the stream comes to them; others before the call returns. A piece has at most so many bytes. */
extern size_t shim_pinned_most;
int device_alloc_host(void **p, size_t bytes);
void device_free_host(void *p);
/* 900 in a capture: a step that is captured copies nothing. */
int device_upload(void *device, const void *host, size_t bytes, device_stream stream);
int device_download(void *host, const void *device, size_t bytes, device_stream stream);
int device_fill(void *device, int byte, size_t bytes, device_stream stream);
int device_wait(device_stream stream);

inline int device_sms()
{
	return shim_sms;
}

inline double device_memory()
{
	return 0;
}

/* $SHIM_MEMORY bytes. */
inline double device_room()
{
	const char *bytes = getenv("SHIM_MEMORY");
	return bytes ? atof(bytes) : 0;
}

inline size_t device_shared()
{
	return shim_shared;
}

int device_stream_make(device_stream *stream);
void device_stream_free(device_stream stream);

typedef struct shim_event *device_event;
int device_event_make(device_event *event);
void device_event_free(device_event event);
int device_event_record(device_event event, device_stream stream);
int device_stream_after(device_stream stream, device_event event);
int device_event_wait(device_event event);
int device_event_come(device_event event);

/* Whether p is device memory: of what came from outside, what a test says. */
inline bool (*shim_reaches)(const void *p) = nullptr;

inline bool device_reaches(const void *p)
{
	return shim_reaches && shim_reaches(p);
}

inline int device_describe(char *text, size_t size, int *capability)
{
	snprintf(text, size, "CPU shim");
	*capability = 90;
	return 0;
}

inline bool device_has_warpgroups()
{
	return true;
}

typedef shim_graph *device_graph;

int device_capture_begin(device_stream stream);
/* 904, and no graph, where a stream was not joined. */
int device_capture_end(device_stream stream, device_graph *graph);

inline int device_graph_launch(device_graph graph, device_stream stream)
{
	if (shim_fails())
		return 1;
	shim_put(stream, [=] {
		for (const std::function<void()> &step : graph->steps)
			step();
	});
	shim_replays++;
	return 0;
}

inline void device_graph_free(device_graph graph)
{
	delete graph;
}

#endif
