/* SPDX-License-Identifier: Apache-2.0
 * The machine in software sees what it is there to see: kernels with one fault each, and one without. */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "device.h"
#include "profile.h"
#include "warpgroup.h"

struct work {
	float *data; /* [256] */
	float *other;
	int which;
};

enum { THREADS_A_BLOCK = 64, NUMBERS = 256 };

/* Each warp's values through shared memory to the other warp, and back to memory. */
template <bool barrier> KERNEL THREADS(THREADS_A_BLOCK, 1) exchange_kernel(const work p)
{
	begin_kernel();
	float *shared = (float *)shared_memory();
	shared[threadIdx.x] = 0;
	sync_block();
	shared[threadIdx.x] = p.data[threadIdx.x];
	if (barrier)
		sync_block();
	p.other[threadIdx.x] = shared[threadIdx.x ^ 32];
}

/* A barrier is there, and the next round writes before all have read. */
KERNEL THREADS(THREADS_A_BLOCK, 1) overwrite_kernel(const work p)
{
	begin_kernel();
	float *shared = (float *)shared_memory();
	SERIAL for (int round = 0; round < 2; round++) {
		shared[threadIdx.x] = p.data[threadIdx.x + 64 * round];
		sync_block();
		p.other[threadIdx.x + 64 * round] = shared[threadIdx.x ^ 32];
	}
}

/* Thread 32 comes late to a place of which thread 0 touched the last two bytes, and no barrier is between. */
enum { READS_WRITTEN, WRITES_WRITTEN, WRITES_READ, WRITES_READ_BY_BOTH };

template <int what, class T> KERNEL THREADS(THREADS_A_BLOCK, 1) late_kernel(const work p)
{
	begin_kernel();
	T *place = (T *)shared_memory();
	unsigned short *last = (unsigned short *)(place + 1) - 1;
	if (threadIdx.x == 0)
		*place = *(const T *)p.data;
	sync_block();
	if (threadIdx.x == 0) {
		if (what == READS_WRITTEN || what == WRITES_WRITTEN)
			*last = 1;
		else
			p.other[0] = *last;
	}
	if (threadIdx.x != 32)
		return;
	float sum = 0;
	SERIAL for (int i = 0; i < 3000; i++)
		sum += *(const volatile float *)(p.data + i % 64);
	p.other[1] = sum;
	if (what == WRITES_READ_BY_BOTH)
		p.other[2] = *last;
	if (what == READS_WRITTEN)
		*(T *)(p.other + 4) = *place;
	else
		*place = *(const T *)(p.data + 4);
}

/* Two tiles on their way, the first is used. */
template <int left> KERNEL THREADS(THREADS_A_BLOCK, 1) copies_kernel(const work p)
{
	begin_kernel();
	float *shared = (float *)shared_memory();
	for (int tile = 0; tile < 2; tile++) {
		if (threadIdx.x < 16)
			copy_async(shared + 64 * tile + 4 * threadIdx.x, p.data + 64 * tile + 4 * threadIdx.x, true);
		copies_commit();
	}
	copies_wait<left>();
	sync_block();
	p.other[threadIdx.x] = shared[threadIdx.x];
	copies_wait<0>();
}

KERNEL THREADS(THREADS_A_BLOCK, 1) between_blocks_kernel(const work p)
{
	begin_kernel();
	p.other[(blockIdx.x * THREADS_A_BLOCK + threadIdx.x) % 96] = (float)blockIdx.x;
}

KERNEL THREADS(THREADS_A_BLOCK, 1) beyond_kernel(const work p)
{
	begin_kernel();
	p.other[threadIdx.x + NUMBERS - THREADS_A_BLOCK + 1] = 1;
}

KERNEL THREADS(THREADS_A_BLOCK, 1) beyond_shared_kernel(const work p)
{
	begin_kernel();
	float *shared = (float *)shared_memory();
	shared[threadIdx.x + 1] = p.data[threadIdx.x];
}

KERNEL THREADS(THREADS_A_BLOCK, 1) unwritten_kernel(const work p)
{
	begin_kernel();
	p.data[threadIdx.x] = p.other[threadIdx.x];
}

KERNEL THREADS(THREADS_A_BLOCK, 1) unwritten_shared_kernel(const work p)
{
	begin_kernel();
	p.other[threadIdx.x] = ((float *)shared_memory())[threadIdx.x];
}

KERNEL THREADS(THREADS_A_BLOCK, 1) misaligned_kernel(const work p)
{
	begin_kernel();
	*(float4 *)(p.other + 4 * threadIdx.x % 64) = *(const float4 *)(p.data + p.which);
}

KERNEL THREADS(THREADS_A_BLOCK, 1) lone_shuffle_kernel(const work p)
{
	begin_kernel();
	float x = p.data[threadIdx.x];
	if (x > p.data[3])
		x = shuffle_xor(x, 1);
	p.other[threadIdx.x] = x;
}

KERNEL THREADS(THREADS_A_BLOCK, 1) lone_barrier_kernel(const work p)
{
	begin_kernel();
	if (p.data[threadIdx.x] > p.data[3])
		sync_block();
	p.other[threadIdx.x] = 1;
}

/* Numbers through shared memory to others of the same warpgroup, with a barrier of its own, or to the other warpgroup, which that barrier says nothing about: not when both are
 * at their first, and not when one is at its second; but a barrier of all does. */
enum { WITHIN, ACROSS, ACROSS_AND_AHEAD, ACROSS_BEHIND_ALL, LEFT_OUT };

template <int how> KERNEL THREADS(2 * WARPGROUP, 1) warpgroups_kernel(const work p)
{
	begin_kernel();
	const unsigned t = threadIdx.x;
	float *shared = (float *)shared_memory();
	shared[t] = 0;
	sync_block();
	shared[t] = p.data[t];
	if (how != LEFT_OUT || t / 32 != 1)
		sync_warpgroup();
	if ((how == ACROSS_AND_AHEAD || how == ACROSS_BEHIND_ALL) && t < WARPGROUP)
		sync_warpgroup();
	if (how == ACROSS_BEHIND_ALL)
		sync_block();
	p.other[t] = shared[how == LEFT_OUT ? t : how == WITHIN ? t ^ 32 : t ^ WARPGROUP];
	if (how == WITHIN)
		sync_warpgroup();
	else if (how == ACROSS_BEHIND_ALL)
		sync_block();
	if (how == WITHIN || how == ACROSS_BEHIND_ALL)
		shared[t] = 1;
}

/* A kernel that begins before those in front of it have ended: this one writes, as the update of the weights does, … */
KERNEL THREADS(THREADS_A_BLOCK, 1) write_kernel(const work p)
{
	begin_kernel();
	p.other[threadIdx.x] = p.data[threadIdx.x];
}

/* … and this one reads what was there all the time, and then what is not there until it has waited. */
enum { IN_ORDER, READS_FIRST, COPIES_FIRST, WRITES_FIRST, NEVER_WAITS, READS_AS_CONSTANT };

template <int how> KERNEL THREADS(THREADS_A_BLOCK, 1) early_kernel(const work p)
{
	begin_early_kernel();
	float *shared = (float *)shared_memory();
	if (threadIdx.x < 16)
		copy_async(shared + 4 * threadIdx.x, (how == COPIES_FIRST ? p.other : p.data) + 4 * threadIdx.x, true);
	copies_commit();
	float sum = how == READS_FIRST ? p.other[threadIdx.x] : 0;
	if (how == WRITES_FIRST)
		p.other[64 + threadIdx.x] = 0;
	if (how != NEVER_WAITS)
		wait_for_writes();
	if (how == IN_ORDER)
		sum = p.other[threadIdx.x];
	if (how == READS_AS_CONSTANT)
		sum = __ldg(p.other + threadIdx.x);
	copies_wait<0>();
	sync_block();
	if (how != NEVER_WAITS)
		p.other[128 + threadIdx.x] = sum + shared[threadIdx.x];
}

/* A warpgroup multiplies a matrix by itself: 64 rows of 16 numbers along the rows, and against them. */
enum { RIGHT, NOT_HANDED_OVER, HANDED_OVER_LATE, NO_FENCE, NO_BARRIER, OVERWRITTEN, NOT_WAITED_FOR, AMIDST };

template <int fault> KERNEL THREADS(WARPGROUP, 1) product_kernel(const work p)
{
	begin_kernel();
	unsigned char *matrix = shared_memory();
	for (int i = (int)threadIdx.x; i < PANEL * PANEL; i += WARPGROUP)
		((bf16 *)tile<PANEL>::chunk(matrix, i / PANEL, i % PANEL / 8))[i % 8] = from_float<bf16>((float)(i / PANEL - i % PANEL % 7));
	if (fault != NOT_HANDED_OVER && fault != HANDED_OVER_LATE)
		async_fence();
	if (fault != NO_BARRIER)
		sync_block();
	if (fault == HANDED_OVER_LATE)
		async_fence();
	float d[8][4];
	if (fault != NO_FENCE)
		group_fence(d);
	group_multiply<bf16, false, true>(d, group_matrix(matrix + (fault == AMIDST ? 128 : 0)), group_matrix(matrix));
	group_multiply_add<bf16, false, true>(d, group_matrix(matrix + 32), group_matrix(matrix + 16 * 128));
	group_commit();
	if (fault == OVERWRITTEN)
		*(float *)matrix = 0;
	if (fault == NOT_WAITED_FOR)
		group_wait<1>(d);
	else
		group_wait<0>(d);
	if (threadIdx.x < 32)
		UNROLL for (int i = 0; i < 8; i++)
			p.other[threadIdx.x * 8 + i] = d[i][3];
}

/* The same of matrices without a swizzle, which begin anywhere: PLACES lines of 16 bytes for each eight columns. */
enum { PLACES = 64 + 3, PLANE = PLACES * 16 };

template <int k_bytes> KERNEL THREADS(WARPGROUP, 1) plain_kernel(const work p)
{
	begin_kernel();
	unsigned char *matrix = shared_memory() + 3 * 16;
	for (int i = (int)threadIdx.x; i < PANEL * PANEL; i += WARPGROUP)
		((bf16 *)(matrix + i % PANEL / 8 * PLANE + i / PANEL * 16))[i % 8] = from_float<bf16>((float)(i / PANEL - i % PANEL % 7));
	async_fence();
	sync_block();
	float d[8][4];
	group_fence(d);
	const uint64_t left = group_plain(matrix, k_bytes, 128), right = group_plain(matrix, 128, PLANE);
	group_multiply<bf16, false, true>(d, left, right);
	group_multiply_add<bf16, false, true>(d, further(left, 2 * PLACES), further(right, 16));
	group_commit();
	group_wait<0>(d);
	if (threadIdx.x < 32)
		UNROLL for (int i = 0; i < 8; i++)
			p.other[threadIdx.x * 8 + i] = d[i][3];
}

static work numbers()
{
	work p = {};
	float values[NUMBERS];
	for (int i = 0; i < NUMBERS; i++)
		values[i] = (float)i;
	if (device_alloc((void **)&p.data, sizeof values) || device_alloc((void **)&p.other, sizeof values) || device_upload(p.data, values, sizeof values, nullptr))
		abort();
	return p;
}

static void run(void (*kernel)(work), unsigned blocks = 1, unsigned threads = THREADS_A_BLOCK, size_t shared = 4 * THREADS_A_BLOCK, int which = 0)
{
	work p = numbers();
	p.which = which;
	if (launch(kernel, blocks, threads, shared, nullptr, p))
		abort();
}

static void run_good()
{
	work p = numbers();
	float got[THREADS_A_BLOCK];
	if (launch(exchange_kernel<true>, 1, THREADS_A_BLOCK, 4 * THREADS_A_BLOCK, nullptr, p) || device_download(got, p.other, sizeof got, nullptr))
		abort();
	for (int i = 0; i < THREADS_A_BLOCK; i++)
		if (got[i] != (float)(i ^ 32))
			abort();
	if (launch(copies_kernel<1>, 1, THREADS_A_BLOCK, 512, nullptr, numbers()))
		abort();
}

/* Wavefronts and sectors of one request of 32 lanes, `apart` bytes from each other. */
static void expect_counts(size_t apart, size_t bytes, uint64_t wavefronts, uint64_t least, uint64_t sectors)
{
	ptx::counts c = {};
	uint64_t addresses[32];
	for (size_t l = 0; l < 32; l++)
		addresses[l] = 4096 + l * apart;
	ptx::count_shared(c, addresses, 32, bytes);
	ptx::count_global(c, addresses, 32, bytes);
	if (c.wavefronts != wavefronts || c.least != least || c.sectors != sectors || c.bytes != 32 * bytes)
		abort();
}

static void run_counts()
{
	expect_counts(4, 4, 1, 1, 4);
	expect_counts(0, 4, 1, 1, 1);       /* the same word for all */
	expect_counts(8, 4, 2, 1, 8);       /* every other bank */
	expect_counts(128, 4, 32, 1, 32);   /* one bank */
	expect_counts(132, 4, 1, 1, 32);    /* a row and a word apart: every bank once */
	expect_counts(8, 8, 2, 2, 8);
	expect_counts(16, 16, 4, 4, 16);
	expect_counts(128, 16, 32, 4, 32);  /* eight lanes at a time, all in the same four banks */
}

static void run_freed()
{
	work p = numbers();
	p.other = p.data; /* nothing else is touched between */
	for (int i = 0; i < 2; i++) {
		if (launch(exchange_kernel<true>, 1, THREADS_A_BLOCK, 4 * THREADS_A_BLOCK, nullptr, p))
			exit(2);
		device_free(p.data);
	}
}

/* The left matrix in registers, which change while it is multiplied, or between the fence and that, or might change as a loop goes round. */
enum { IN_TIME, TOO_EARLY, TOO_LATE, NEXT_UNFENCED, LOOPED };

template <int when> KERNEL THREADS(WARPGROUP, 1) registers_kernel(const work p)
{
	begin_kernel();
	unsigned char *matrix = shared_memory();
	for (int i = (int)threadIdx.x; i < 96 * PANEL; i += WARPGROUP)
		((bf16 *)tile<PANEL>::chunk(matrix, i / PANEL, i % PANEL / 8))[i % 8] = from_float<bf16>(1);
	async_fence();
	sync_block();
	float d[12][4] = {};
	uint32_t left[1][4] = {};
	auto fill = [&](int round) {
		const uint32_t next = pack<bf16>((float)round, (float)round);
		UNROLL for (int j = 0; j < 4; j++)
			asm volatile("mov.b32 %0, %1;" : "=r"(left[0][j]) : "r"(next));
	};
	SERIAL for (int round = 0; round < p.which; round++) {
		if (when == LOOPED)
			group_wait<0>(d);
		if (when == TOO_LATE)
			group_fence(d);
		if (when != TOO_EARLY || !round)
			fill(round);
		if (when != TOO_LATE)
			group_fence(d);
		group_multiply_add<bf16, false>(d, left[0], group_matrix(matrix));
		group_commit();
		if (when == TOO_EARLY)
			fill(round + 1);
		if (when == NEXT_UNFENCED) { /* whose sums are on their way, and its left matrix is new */
			uint32_t other[4];
			UNROLL for (int j = 0; j < 4; j++)
				asm volatile("mov.b32 %0, %1;" : "=r"(other[j]) : "r"(left[0][j]));
			group_multiply_add<bf16, false>(d, other, group_matrix(matrix));
			group_commit();
		}
		if (when == IN_TIME || when == TOO_LATE)
			group_wait<0>(d);
	}
	group_wait<0>(d);
	p.other[threadIdx.x] = d[0][0];
}

template <int when> static void run_registers()
{
	work p = numbers();
	float got[WARPGROUP];
	p.which = 3;
	if (launch(registers_kernel<when>, 1, WARPGROUP, 96 * PANEL * 2, nullptr, p) || device_download(got, p.other, sizeof got, nullptr))
		abort();
	for (float x : got)
		if (x != 16 * (0 + 1 + 2))
			abort();
}

static void expect_product(void (*kernel)(work), size_t shared)
{
	work p = numbers();
	float got[NUMBERS];
	if (launch(kernel, 1, WARPGROUP, shared, nullptr, p) || device_download(got, p.other, sizeof got, nullptr))
		abort();
	for (int t = 0; t < 32; t++)
		for (int i = 0; i < 8; i++) {
			const int m = t / 4 + 8, n = 8 * i + 2 * (t % 4) + 1;
			float want = 0;
			for (int k = 0; k < 32; k++)
				want += (float)(m - k % 7) * (float)(k - n % 7);
			if (got[8 * t + i] != want)
				abort();
		}
}

template <int fault> static void run_product()
{
	expect_product(product_kernel<fault>, PANEL * PANEL * 2);
}

template <int k_bytes> static void run_plain()
{
	expect_product(plain_kernel<k_bytes>, 8 * PLANE);
}

static void without_permission()
{
	work p = numbers();
	void *list[] = { &p };
	if (cudaLaunchKernel((const void *)exchange_kernel<true>, dim3(1), dim3(THREADS_A_BLOCK), list, 60000, nullptr))
		abort();
}

static void capture(void (*what)(cudaStream_t))
{
	cudaStream_t stream;
	if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) || cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal))
		abort();
	what(stream);
}

/* A second stream joins the capture of the first one, and a kernel runs there, which ran before. */
static const work *forked_numbers;

static void fork_to(cudaStream_t first, cudaStream_t second)
{
	cudaEvent_t fork;
	if (cudaEventCreateWithFlags(&fork, cudaEventDisableTiming) || cudaEventRecord(fork, first) || cudaStreamWaitEvent(second, fork, 0) ||
	    launch(exchange_kernel<true>, 1, THREADS_A_BLOCK, 400, second, *forked_numbers))
		abort();
}

enum { NOT_JOINED, JOINED, JOINED_BEFORE_ITS_END, JOINED_THROUGH_A_THIRD };

template <int how> static void forked_capture()
{
	const work p = numbers();
	cudaStream_t first, second, third;
	cudaEvent_t join;
	cudaGraph_t graph;
	forked_numbers = &p;
	for (cudaStream_t *s : { &first, &second, &third })
		if (cudaStreamCreateWithFlags(s, cudaStreamNonBlocking))
			abort();
	if (launch(exchange_kernel<true>, 1, THREADS_A_BLOCK, 400, first, p) || cudaEventCreateWithFlags(&join, cudaEventDisableTiming) ||
	    cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal))
		abort();
	fork_to(first, second);
	if (how == JOINED_THROUGH_A_THIRD) {
		fork_to(second, third);
		if (cudaEventRecord(join, third) || cudaStreamWaitEvent(first, join, 0))
			abort();
	} else if (how != NOT_JOINED && (cudaEventRecord(join, second) || cudaStreamWaitEvent(first, join, 0))) {
		abort();
	}
	if (how == JOINED_BEFORE_ITS_END && launch(exchange_kernel<true>, 1, THREADS_A_BLOCK, 400, second, p))
		abort();
	if (cudaStreamEndCapture(first, &graph))
		abort();
	/* the other streams are as before, and what was recorded in the capture says nothing about them */
	if (launch(exchange_kernel<true>, 1, THREADS_A_BLOCK, 400, second, p) || cudaStreamSynchronize(second))
		abort();
	if (how == JOINED)
		cudaStreamWaitEvent(second, join, 0);
}

/* Kernels one behind the other: one that writes, another or an operation that is none between the two, and one that begins early. */
enum { NOTHING_BETWEEN, KERNEL_BETWEEN, LATE_KERNEL_BETWEEN, FILL_BETWEEN, GRAPH_ENDS_BETWEEN, LATE };

template <int how, int between = NOTHING_BETWEEN> static void early()
{
	const work p = numbers(), more = numbers();
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	auto run_early = [&](bool is_early) {
		launch_early = is_early;
		if (launch(early_kernel<how>, 1, THREADS_A_BLOCK, 256, stream, p))
			abort();
	};
	auto write = [&](const work &what, bool is_early) {
		launch_early = is_early;
		if (launch(write_kernel, 1, THREADS_A_BLOCK, 0, stream, what))
			abort();
	};
	if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) || cudaMemset(p.other, 0, NUMBERS * sizeof(float)))
		abort();
	if (between == GRAPH_ENDS_BETWEEN) {
		write(p, true);
		if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal))
			abort();
	}
	write(p, true);
	if (between == KERNEL_BETWEEN || between == LATE_KERNEL_BETWEEN)
		write(more, between == KERNEL_BETWEEN);
	if (between == FILL_BETWEEN && cudaMemsetAsync(more.other, 0, 4, stream))
		abort();
	if (between == GRAPH_ENDS_BETWEEN && (cudaStreamEndCapture(stream, &graph) || cudaGraphInstantiate(&exec, graph, 0) || cudaGraphLaunch(exec, stream)))
		abort();
	run_early(between != LATE);
}

static void asked_in_a_capture(cudaStream_t)
{
	cudaEvent_t event;
	if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) || cudaEventQuery(event))
		abort();
}

static void copied_in_a_capture(cudaStream_t stream)
{
	static float *to, from[4];
	cudaStreamCaptureStatus ours;
	cudaGraph_t graph;
	if (cudaStreamIsCapturing(stream, &ours) || ours != cudaStreamCaptureStatusActive || cudaStreamEndCapture(stream, &graph))
		abort();
	if (cudaMalloc((void **)&to, sizeof from) || (uintptr_t)to % 512 != 256 || cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal))
		abort();
	cudaMemcpyAsync(to, from, sizeof from, cudaMemcpyHostToDevice, stream);
}

static void first_in_a_capture()
{
	static const work p = numbers();
	forked_numbers = &p;
	capture([](cudaStream_t s) { launch(exchange_kernel<true>, 1, THREADS_A_BLOCK, 400, s, *forked_numbers); });
}

static const struct fault {
	const char *claim, *told; /* NULL: nothing, it is right */
	void (*run)();
} faults[] = {
	{ "what is right runs, and its numbers are right", NULL, run_good },
	{ "wavefronts, conflicts and sectors are counted as banks and sectors lie", NULL, run_counts },
	{ "a barrier that is missing", "race: ", [] { run(exchange_kernel<false>); } },
	{ "memory that is written again too early", "race: ", [] { run(overwrite_kernel, 1, THREADS_A_BLOCK); } },
	{ "a race for the last two of 16 bytes", "race: reads what thread 0 wrote", [] { run(late_kernel<READS_WRITTEN, float4>, 1, THREADS_A_BLOCK); } },
	{ "a race for the last two of 8 bytes", "race: reads what thread 0 wrote", [] { run(late_kernel<READS_WRITTEN, float2>, 1, THREADS_A_BLOCK); } },
	{ "a race for the last two of 4 bytes", "race: reads what thread 0 wrote", [] { run(late_kernel<READS_WRITTEN, float>, 1, THREADS_A_BLOCK); } },
	{ "a race: written after written", "race: writes what thread 0 wrote", [] { run(late_kernel<WRITES_WRITTEN, float4>, 1, THREADS_A_BLOCK); } },
	{ "a race: written after read", "race: writes what thread 0 read", [] { run(late_kernel<WRITES_READ, float4>, 1, THREADS_A_BLOCK); } },
	{ "a race: written after the writer and another thread read", "race: writes what several threads read", [] { run(late_kernel<WRITES_READ_BY_BOTH, float4>, 1, THREADS_A_BLOCK); } },
	{ "memory that was freed", "read of 4 bytes at", run_freed },
	{ "a copy that is not waited for", "where a copy is on its way", [] { run(copies_kernel<2>, 1, THREADS_A_BLOCK, 512); } },
	{ "blocks that write the same place", "race: writes what another block wrote", [] { run(between_blocks_kernel, 2); } },
	{ "a write beyond the end", "write of 4 bytes at", [] { run(beyond_kernel); } },
	{ "a write beyond the block's shared memory", "write of 4 bytes of shared memory at 256; the block has 256", [] { run(beyond_shared_kernel); } },
	{ "a read of what nobody wrote", "read of a byte that nobody wrote", [] { run(unwritten_kernel); } },
	{ "a read of shared memory that nobody wrote", "of shared memory, that nobody wrote", [] { run(unwritten_shared_kernel); } },
	{ "an address that is no multiple of 16", "not a multiple", [] { run(misaligned_kernel, 1, THREADS_A_BLOCK, 256, 1); } },
	{ "a shuffle by some lanes", "not all lanes of the warp", [] { run(lone_shuffle_kernel); } },
	{ "a barrier for some threads", "not all threads of the warp", [] { run(lone_barrier_kernel); } },
	{ "a barrier of a warpgroup orders its threads", NULL, [] { run(warpgroups_kernel<WITHIN>, 1, 2 * WARPGROUP, 1024); } },
	{ "and not those of another one", "race: ", [] { run(warpgroups_kernel<ACROSS>, 1, 2 * WARPGROUP, 1024); } },
	{ "nor when one of the two has come to more of them", "race: ", [] { run(warpgroups_kernel<ACROSS_AND_AHEAD>, 1, 2 * WARPGROUP, 1024); } },
	{ "which a barrier of the block does", NULL, [] { run(warpgroups_kernel<ACROSS_BEHIND_ALL>, 1, 2 * WARPGROUP, 1024); } },
	{ "a barrier of a warpgroup to which a warp does not come", "to which the others do not come", [] { run(warpgroups_kernel<LEFT_OUT>, 1, 2 * WARPGROUP, 1024); } },
	{ "a block of more threads than the kernel is for", "more threads than the kernel was compiled for", [] { run(exchange_kernel<true>, 1, 96, 400); } },
	{ "much shared memory without permission", "more shared memory than the function was allowed", without_permission },
	{ "an early kernel reads what was there, waits, and reads what the one before wrote", NULL, early<IN_ORDER> },
	{ "an early kernel that reads too early", "reads before griddepcontrol.wait what launch 1 wrote, 1 before this one", early<READS_FIRST> },
	{ "an early kernel that copies too early", "reads before griddepcontrol.wait", early<COPIES_FIRST> },
	{ "one that reads what the last kernel but one wrote", "wrote, 2 before this one", early<READS_FIRST, KERNEL_BETWEEN> },
	{ "which is there when the one between came after it", NULL, early<READS_FIRST, LATE_KERNEL_BETWEEN> },
	{ "or when no kernel is between, but something else", NULL, early<READS_FIRST, FILL_BETWEEN> },
	{ "or when a graph ends between", NULL, early<READS_FIRST, GRAPH_ENDS_BETWEEN> },
	{ "or when the kernel is not launched early", NULL, early<READS_FIRST, LATE> },
	{ "an early kernel that writes too early", "writes before griddepcontrol.wait", early<WRITES_FIRST> },
	{ "an early kernel that does not wait", "ends and has not waited", early<NEVER_WAITS> },
	{ "one that waits, and takes what is written meanwhile for what never changes", "reads by ld.global.nc what launch 1 wrote, 1 before this one", early<READS_AS_CONSTANT> },
	{ "which it does not where it is not launched early", NULL, early<READS_AS_CONSTANT, LATE> },
	{ "a warpgroup's product is right", NULL, run_product<RIGHT> },
	{ "a matrix that was not handed over to wgmma", "has not handed over", run_product<NOT_HANDED_OVER> },
	{ "a matrix that was handed over to wgmma after the barrier", "has not handed over", run_product<HANDED_OVER_LATE> },
	{ "a matrix that others still write when wgmma reads it", "read" /* too early: nobody wrote, or a race */, run_product<NO_BARRIER> },
	{ "sums that wgmma may not use yet", "no wgmma.fence", run_product<NO_FENCE> },
	{ "a matrix that is overwritten before wgmma was waited for", "that wgmma reads", run_product<OVERWRITTEN> },
	{ "a product that is not waited for", "that nobody waited for", run_product<NOT_WAITED_FOR> },
	{ "a product of registers is right", NULL, run_registers<IN_TIME> },
	{ "registers that change before their product was waited for", "registers that a product reads were changed", run_registers<TOO_EARLY> },
	{ "a loop that goes round with such a product on its way", "goes back to its start before a product", run_registers<LOOPED> },
	{ "registers that no wgmma.fence came behind", "no wgmma.fence since the registers", run_registers<NEXT_UNFENCED> },
	{ "registers that change after wgmma.fence", "were changed since wgmma.fence", run_registers<TOO_LATE> },
	{ "a matrix that begins amidst its swizzle", "does not begin with a pattern of its swizzle", run_product<AMIDST> },
	{ "a product of matrices without a swizzle is right", NULL, run_plain<PLANE> },
	{ "a matrix without a swizzle whose columns all lie in one place", "no distance from eight to the next", run_plain<0> },
	{ "an allocation in a capture", "cudaMalloc: while a stream is being captured", [] { capture([](cudaStream_t) { numbers(); }); } },
	{ "a wait in a capture", "cudaStreamSynchronize or a query: while a stream is being captured", [] { capture([](cudaStream_t s) { device_wait(s); }); } },
	{ "a question about any event in a capture", "cudaEventSynchronize or a query: while a stream is being captured", [] { capture(asked_in_a_capture); } },
	{ "a copy of pageable memory in a capture", "of host memory that is not pinned", [] { capture(copied_in_a_capture); } },
	{ "a kernel that was never launched before its capture", "for the first time in a capture", first_in_a_capture },
	{ "a stream that joins a capture and is not joined", "work that nothing in the first one waits for", forked_capture<NOT_JOINED> },
	{ "a stream that was joined before its last work", "work that nothing in the first one waits for", forked_capture<JOINED_BEFORE_ITS_END> },
	{ "a stream that is joined through a third one is right", NULL, forked_capture<JOINED_THROUGH_A_THIRD> },
	{ "an event of a capture that has ended", "recorded in a capture that has ended", forked_capture<JOINED> },
};

/* What it writes to standard error; *status: as waitpid() gives it. */
static std::string told_by(void (*run)(), int *status)
{
	int ends[2];
	std::string text;
	char buffer[512];
	if (pipe(ends))
		abort();
	fflush(stdout);
	const pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		alarm(60);
		run();
		_exit(0);
	}
	close(ends[1]);
	for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
		text.append(buffer, (size_t)n);
	close(ends[0]);
	waitpid(child, status, 0);
	return text;
}

int main()
{
	int number = 0, failed = 0;
	printf("1..%zu\n", sizeof faults / sizeof faults[0]);
	for (const fault &f : faults) {
		int status;
		const std::string text = told_by(f.run, &status);
		const bool right = f.told ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && text.find(f.told) != std::string::npos : status == 0;
		printf("%sok %d - %s\n", right ? "" : "not ", ++number, f.claim);
		for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
			printf("# %s\n", text.substr(at, text.find('\n', at) - at).c_str());
		failed |= !right;
	}
	return failed;
}
