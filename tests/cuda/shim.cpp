/* SPDX-License-Identifier: Apache-2.0 */
#include "shim.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <deque>
#include <map>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#include "warpgroup.h"
#include "wgmma.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

struct shim_index threadIdx, blockIdx, blockDim, gridDim;
size_t shim_shared = 227 * 1024, shim_pinned_most = SIZE_MAX;
int shim_sms = 3; /* small and odd: blocks get unequal shares */

namespace {

enum { WARP = 32, STACK = 128 * 1024 };

struct copy {
	void *to;
	const void *from; /* NULL: zeros */
	int group;
};

struct fiber {
	ucontext_t context;
	jmp_buf resume;
	char *stack;
	bool started, begun, finished;
	std::vector<copy> copies; /* issued, not landed yet, oldest first */
	int group;                /* groups closed so far */
};

typedef void (*collective)(void *const args[]);

/* A warp or a warpgroup. */
struct team {
	collective what;
	void *args[WARPGROUP];
	unsigned arrived;
};

/* A product of a warpgroup that is not done yet: what each thread had, where its sums go. */
struct product_coming {
	shim_group_product p;
	float left[64][16]; /* a, where it is in registers */
	std::vector<float> before[WARPGROUP];
	float *to[WARPGROUP];
	int group;
};

struct product_queue {
	std::vector<product_coming> coming; /* oldest first */
	int group;                          /* closed so far */
};

std::vector<fiber> fibers;
std::vector<team> warps, groups;
std::vector<product_queue> products; /* of each warpgroup */
std::vector<unsigned> runnable[2]; /* those that go first, and the others, which wait until none of the first can */
unsigned slow_from, slow_to;
const std::function<void()> *body;
unsigned current, at_barrier, finished;
unsigned char *block_memory;
size_t block_bytes;
uint64_t random_state = 88172645463325252ull;
#ifndef __SANITIZE_ADDRESS__
jmp_buf scheduler;
#else
ucontext_t scheduler_context;
void *scheduler_fake;
const void *scheduler_stack;
size_t scheduler_stack_size;
#endif

uint32_t random_below(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)((random_state >> 32) * n >> 32);
}

[[noreturn]] void misuse(const char *what)
{
	fprintf(stderr, "block %u thread %u: %s\n", blockIdx.x, current, what);
	abort();
}

/* ---- switching. Plain builds jump (no system call); AddressSanitizer wants to be told, and gets swapcontext. ---- */

#ifdef __SANITIZE_ADDRESS__
void to_scheduler(bool last)
{
	void *fake = nullptr;
	__sanitizer_start_switch_fiber(last ? nullptr : &fake, scheduler_stack, scheduler_stack_size);
	swapcontext(&fibers[current].context, &scheduler_context);
	__sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

void to_fiber(fiber &f)
{
	__sanitizer_start_switch_fiber(&scheduler_fake, f.stack, STACK);
	swapcontext(&scheduler_context, &f.context);
	__sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr);
}
#else
void to_scheduler(bool)
{
	if (!_setjmp(fibers[current].resume))
		_longjmp(scheduler, 1);
}

void to_fiber(fiber &f)
{
	if (_setjmp(scheduler))
		return;
	if (f.started)
		_longjmp(f.resume, 1);
	f.started = true;
	setcontext(&f.context);
}
#endif

void may_run(unsigned thread)
{
	runnable[thread >= slow_from && thread < slow_to].push_back(thread);
}

void fiber_main()
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_size);
#endif
	(*body)();
	if (!fibers[current].begun)
		misuse("the kernel does not call begin_kernel()");
	fibers[current].finished = true;
	finished++;
	to_scheduler(true);
	abort();
}

void yield()
{
	unsigned self = current;
	to_scheduler(false);
	current = self;
	threadIdx.x = self;
}

void land(fiber &f, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const copy &c = f.copies[i];
		if (c.from)
			memcpy(c.to, c.from, 16);
		else
			memset(c.to, 0, 16);
	}
	f.copies.erase(f.copies.begin(), f.copies.begin() + (ptrdiff_t)count);
}

/* The last lane to arrive carries the collective out for all. */
void meet(std::vector<team> &teams, unsigned size, collective what, void *args)
{
	struct team &w = teams[current / size];
	if (w.arrived && w.what != what)
		misuse("lanes of a warp or warpgroup meet in different collectives");
	w.what = what;
	w.args[current % size] = args;
	if (++w.arrived < size) {
		yield();
		return;
	}
	what(w.args);
	w.arrived = 0;
	unsigned first = current / size * size;
	for (unsigned i = first; i < first + size; i++)
		if (i != current)
			may_run(i);
}

void meet(collective what, void *args)
{
	meet(warps, WARP, what, args);
}

void meet_group(collective what, void *args)
{
	if (blockDim.x % WARPGROUP)
		misuse("a product of warpgroups in a block that has none");
	meet(groups, WARPGROUP, what, args);
}

struct shuffle {
	float in, out;
	int from;
};

struct matrix {
	const void *row;
	uint32_t *out;
	bool transposed;
};

void run_shuffle(void *const args[])
{
	for (int i = 0; i < WARP; i++) {
		shuffle *s = (shuffle *)args[i];
		s->out = ((shuffle *)args[s->from])->in;
	}
}

void run_matrices(void *const args[])
{
	for (int lane = 0; lane < WARP; lane++) {
		matrix *m = (matrix *)args[lane];
		for (int i = 0; i < 4; i++) {
			uint16_t pair[2];
			for (int j = 0; j < 2; j++) {
				int row = lane / 4, column = 2 * (lane % 4) + j;
				if (m->transposed) {
					int swap = row;
					row = column;
					column = swap;
				}
				memcpy(&pair[j], (const char *)((matrix *)args[8 * i + row])->row + 2 * column, 2);
			}
			m->out[i] = (uint32_t)pair[0] | (uint32_t)pair[1] << 16;
		}
	}
}

void run_product(void *const args[])
{
	float a[16][16], b[16][8];
	for (int lane = 0; lane < WARP; lane++) {
		const shim_product *p = (const shim_product *)args[lane];
		int row = lane / 4, column = 2 * (lane % 4);
		for (int j = 0; j < 2; j++) {
			a[row][column + j] = p->a[j];
			a[row + 8][column + j] = p->a[2 + j];
			a[row][column + 8 + j] = p->a[4 + j];
			a[row + 8][column + 8 + j] = p->a[6 + j];
			b[column + j][row] = p->b[j];
			b[column + 8 + j][row] = p->b[2 + j];
		}
	}
	float d[16][8] = {};
	for (int row = 0; row < 16; row++)
		for (int k = 0; k < 16; k++)
			for (int column = 0; column < 8; column++)
				d[row][column] += a[row][k] * b[k][column];
	for (int lane = 0; lane < WARP; lane++) {
		const shim_product *p = (const shim_product *)args[lane];
		for (int i = 0; i < 4; i++)
			p->d[i] += d[lane / 4 + (i / 2) * 8][2 * (lane % 4) + i % 2];
	}
}

float group_value(const shim_group_product &p, const wgmma_matrix &m, int mn, int k)
{
	const uint64_t at = m.element(mn, k);
	uint16_t bits;
	if (at + 2 > block_bytes)
		misuse("a product of a warpgroup reads outside the block's shared memory");
	memcpy(&bits, block_memory + at, 2);
	return p.value(bits);
}

void finish_product(product_coming &c)
{
	const wgmma_matrix a = { c.p.a, c.p.a_across }, b = { c.p.b, c.p.b_across };
	static float left[64][16], right[16][128], d[64][128];
	const int columns = 8 * c.p.n8;
	for (int k = 0; k < 16; k++) {
		for (int m = 0; m < 64; m++)
			left[m][k] = c.p.registers ? c.left[m][k] : group_value(c.p, a, m, k);
		for (int n = 0; n < columns; n++)
			right[k][n] = group_value(c.p, b, n, k);
	}
	memset(d, 0, sizeof d);
	for (int m = 0; m < 64; m++)
		for (int k = 0; k < 16; k++)
			for (int n = 0; n < columns; n++)
				d[m][n] += left[m][k] * right[k][n];
	for (int t = 0; t < WARPGROUP; t++)
		for (int i = 0; i < c.p.n8; i++)
			for (int j = 0; j < 4; j++)
				c.to[t][4 * i + j] = (c.p.add ? c.before[t][(size_t)(4 * i + j)] : 0) + d[wgmma_row(t, j)][wgmma_column(t, i, j)];
}

/* Products that use the same sums are done in their order. */
void run_group_product(void *const args[])
{
	product_queue &q = products[current / WARPGROUP];
	const shim_group_product &p = *(const shim_group_product *)args[0];
	product_coming c = { p, {}, {}, {}, q.group };
	for (int t = 0; t < WARPGROUP; t++) {
		const shim_group_product &mine = *(const shim_group_product *)args[t];
		if (mine.a != p.a || mine.b != p.b)
			misuse("threads of a warpgroup multiply different matrices");
		c.to[t] = mine.d;
		for (int e = 0; e < 8 && p.registers; e++)
			c.left[wgmma_row(t, e)][2 * (t % 4) + e % 2 + e / 4 * 8] = p.value((uint16_t)(mine.registers[e / 4 * 2 + e % 4 / 2] >> 16 * (e % 2)));
	}
	const wgmma_matrix a = { p.a, p.a_across }, b = { p.b, p.b_across };
	const char *wrong = !p.registers && a.wrong() ? a.wrong() : b.wrong();
	if (wrong)
		misuse(wrong);
	bool late = random_below(2);
	for (const product_coming &before : q.coming)
		late |= before.to[0] == c.to[0];
	if (!late) {
		for (int t = 0; t < WARPGROUP; t++)
			c.before[t].assign(c.to[t], c.to[t] + 4 * p.n8);
		finish_product(c);
		return;
	}
	q.coming.push_back(c);
	if (std::none_of(q.coming.begin(), q.coming.end() - 1, [&](const product_coming &before) { return before.to[0] == c.to[0]; }))
		for (int t = 0; t < WARPGROUP; t++) {
			q.coming.back().before[t].assign(c.to[t], c.to[t] + 4 * p.n8);
			std::fill_n(c.to[t], 4 * p.n8, NAN);
		}
}

void run_group_commit(void *const[])
{
	products[current / WARPGROUP].group++;
}

void run_group_wait(void *const args[])
{
	product_queue &q = products[current / WARPGROUP];
	while (!q.coming.empty() && q.coming[0].group < q.group - *(const int *)args[0]) {
		product_coming c = q.coming[0];
		q.coming.erase(q.coming.begin());
		for (int t = 0; t < WARPGROUP; t++)
			if (c.before[t].empty()) /* one before it made them */
				c.before[t].assign(c.to[t], c.to[t] + 4 * c.p.n8);
		finish_product(c);
	}
}

void start_block(unsigned threads, size_t shared_bytes)
{
	memset(block_memory, 0xff, shared_bytes);
	at_barrier = finished = 0;
	for (std::vector<unsigned> &r : runnable)
		r.clear();
	const unsigned warp = random_below(threads / WARP) * WARP;
	slow_from = random_below(2) * warp; /* in most blocks some warps go as far as barriers let them before others begin */
	slow_to = slow_from ? threads : random_below(2) * warp;
	for (std::vector<team> *teams : { &warps, &groups })
		for (team &w : *teams)
			w.arrived = 0;
	for (product_queue &q : products)
		q = {};
	for (unsigned i = 0; i < threads; i++) {
		fiber &f = fibers[i];
		f.started = f.begun = f.finished = false;
		f.copies.clear();
		f.group = 0;
		getcontext(&f.context);
		f.context.uc_stack.ss_sp = f.stack;
		f.context.uc_stack.ss_size = STACK;
		f.context.uc_link = nullptr;
		makecontext(&f.context, fiber_main, 0);
		may_run(i);
	}
}

void run_block(unsigned threads)
{
	while (finished < threads) {
		std::vector<unsigned> &able = runnable[runnable[0].empty()];
		if (able.empty())
			misuse(at_barrier ? "threads wait at a barrier that others left out" : "lanes wait in a collective that others left out");
		unsigned pick = random_below((uint32_t)able.size());
		current = able[pick];
		able[pick] = able.back();
		able.pop_back();
		threadIdx.x = current;
		to_fiber(fibers[current]);
	}
	for (const product_queue &q : products)
		if (!q.coming.empty())
			misuse("the block ends with products that nobody waited for");
}

} // namespace

void shim_seed(uint64_t seed)
{
	random_state = seed * 0x9e3779b97f4a7c15ull | 1;
	for (int i = 0; i < 8; i++)
		random_below(2);
}

void shim_run(unsigned blocks, unsigned threads, size_t shared_bytes, const std::function<void()> &thread)
{
	if (threads % WARP) {
		fprintf(stderr, "a block of %u threads: the shim runs whole warps\n", threads);
		abort();
	}
	while (fibers.size() < threads) {
		fibers.emplace_back();
		fibers.back().stack = (char *)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (fibers.back().stack == MAP_FAILED)
			abort();
	}
	warps.resize(threads / WARP);
	groups.resize((threads + WARPGROUP - 1) / WARPGROUP);
	products.resize(groups.size());
	body = &thread;
	blockDim = { threads, 1, 1 };
	gridDim = { blocks, 1, 1 };
	block_memory = (unsigned char *)aligned_alloc(1024, (shared_bytes + 1023) / 1024 * 1024 + (shared_bytes ? 0 : 1024));
	block_bytes = shared_bytes;
	std::vector<unsigned> order(blocks);
	for (unsigned i = 0; i < blocks; i++) {
		order[i] = i;
		std::swap(order[i], order[random_below(i + 1)]);
	}
	for (unsigned block : order) {
		blockIdx = { block, 0, 0 };
		start_block(threads, shared_bytes);
		run_block(threads);
	}
	free(block_memory);
	block_memory = nullptr;
}

unsigned char *shared_memory()
{
	return block_memory;
}

void wait_for_writes()
{
	fibers[current].begun = true;
}

void sync_block()
{
	if (!fibers[current].begun)
		misuse("the kernel waits for other threads before begin_kernel()");
	if (++at_barrier < blockDim.x) {
		yield();
		return;
	}
	at_barrier = 0;
	for (unsigned i = 0; i < blockDim.x; i++)
		if (i != current)
			may_run(i);
}

void sync_warpgroup()
{
	if (!fibers[current].begun)
		misuse("the kernel waits for other threads before begin_kernel()");
	meet_group([](void *const[]) {}, nullptr);
}

float shuffle_xor(float value, int mask)
{
	return shuffle_from(value, (int)(current % WARP) ^ mask);
}

float shuffle_from(float value, int from)
{
	shuffle s = { value, 0, from };
	meet(run_shuffle, &s);
	return s.out;
}

void load_matrices(uint32_t (&out)[4], const void *row)
{
	matrix m = { row, out, false };
	meet(run_matrices, &m);
}

void load_matrices_transposed(uint32_t (&out)[4], const void *row)
{
	matrix m = { row, out, true };
	meet(run_matrices, &m);
}

void shim_multiply_add(struct shim_product *product)
{
	meet(run_product, product);
}

void copy_async(void *shared, const void *global, bool inside)
{
	if (((uintptr_t)shared | (inside ? (uintptr_t)global : 0)) % 16)
		misuse("an asynchronous copy of 16 bytes from or to an address that is no multiple of 16");
	fiber &f = fibers[current];
	f.copies.push_back({ shared, inside ? global : nullptr, f.group });
	if (random_below(4) == 0)
		land(f, random_below((uint32_t)f.copies.size() + 1));
}

uint64_t group_matrix(const void *start, int panel_bytes)
{
	return matrix_words((uint32_t)((const unsigned char *)start - block_memory), panel_bytes);
}

uint64_t group_plain(const void *start, int k_bytes, int mn_bytes)
{
	return plain_words((uint32_t)((const unsigned char *)start - block_memory), k_bytes, mn_bytes);
}

void shim_group_multiply(struct shim_group_product *product)
{
	meet_group(run_group_product, product);
}

void group_commit()
{
	meet_group(run_group_commit, nullptr);
}

void shim_group_wait(int left)
{
	meet_group(run_group_wait, &left);
}

void copies_commit()
{
	fibers[current].group++;
}

void shim_copies_wait(int left)
{
	fiber &f = fibers[current];
	size_t count = 0;
	while (count < f.copies.size() && f.copies[count].group < f.group - left)
		count++;
	land(f, count);
}

/* ---- streams ---- */

struct shim_event {
	uint64_t recorded, come;
	shim_stream *stream; /* in a capture: the event is one of its steps, after `steps` of this stream's */
	uint64_t capture, steps; /* capture: which one, 0: none */
};

struct shim_op {
	std::function<void()> run;
	shim_event *after; /* runs once this event has come `count` times; NULL: at any time */
	uint64_t count;
};

struct shim_stream {
	std::deque<shim_op> ops;
	bool captured;
	uint64_t steps, joined; /* of the capture: on this stream, and those that the first stream waits for */
};

shim_graph *shim_capturing;
int shim_replays;
int shim_launches, shim_late;
long shim_calls_left = -1;

namespace {

std::vector<shim_stream *> streams;
shim_stream *captured_first;
uint64_t captures;
std::map<char *, size_t> pinned;
device_stream last_used;

bool is_pinned(const void *p, size_t bytes)
{
	auto at = pinned.upper_bound((char *)p);
	return at != pinned.begin() && (--at, (const char *)p + bytes <= at->first + at->second);
}

/* One step of a stream that can go on, or false. */
bool advance()
{
	std::vector<shim_stream *> able;
	for (shim_stream *s : streams)
		if (!s->ops.empty() && (!s->ops.front().after || s->ops.front().after->come >= s->ops.front().count))
			able.push_back(s);
	if (able.empty())
		return false;
	shim_stream *s = able[random_below((uint32_t)able.size())];
	const shim_op op = s->ops.front();
	s->ops.pop_front();
	op.run();
	return true;
}

template <class F> void advance_until(F there)
{
	while (!there())
		if (!advance())
			misuse("streams wait for each other");
}

void wait_until_through(device_stream stream)
{
	advance_until([=] { return stream->ops.empty(); });
}

int put(device_stream stream, const shim_op &op)
{
	if (stream)
		stream->ops.push_back(op);
	else
		op.run();
	last_used = stream;
	return 0;
}

} // namespace

bool shim_fails()
{
	return shim_calls_left >= 0 && shim_calls_left-- == 0;
}

void shim_launched()
{
	shim_launches++;
	shim_late += !launch_early;
}

void shim_put(device_stream stream, const std::function<void()> &what)
{
	if (!shim_is_captured(stream)) {
		put(stream, { what, nullptr, 0 });
		return;
	}
	shim_capturing->steps.push_back(what);
	stream->steps++;
}

bool shim_captures()
{
	return shim_capturing;
}

bool shim_is_captured(device_stream stream)
{
	return stream && stream->captured;
}

void shim_enqueue(const std::function<void()> &what)
{
	shim_put(last_used, what);
}

int device_alloc_host(void **p, size_t bytes)
{
	int code = bytes > shim_pinned_most ? (int)DEVICE_NO_MEMORY : device_alloc(p, bytes);
	if (!code)
		pinned[(char *)*p] = bytes;
	return code;
}

void device_free_host(void *p)
{
	pinned.erase((char *)p);
	free(p);
}

int device_upload(void *device, const void *host, size_t bytes, device_stream stream)
{
	if (shim_capturing || shim_fails())
		return 900;
	if (is_pinned(host, bytes))
		return put(stream, { [=] { memcpy(device, host, bytes); }, nullptr, 0 });
	std::vector<char> copy((const char *)host, (const char *)host + bytes);
	return put(stream, { [=] { memcpy(device, copy.data(), bytes); }, nullptr, 0 });
}

int device_download(void *host, const void *device, size_t bytes, device_stream stream)
{
	if (shim_capturing || shim_fails())
		return 900;
	put(stream, { [=] { memcpy(host, device, bytes); }, nullptr, 0 });
	if (stream && !is_pinned(host, bytes))
		wait_until_through(stream);
	return 0;
}

int device_fill(void *device, int byte, size_t bytes, device_stream stream)
{
	return shim_capturing || shim_fails() ? 900 : put(stream, { [=] { memset(device, byte, bytes); }, nullptr, 0 });
}

int device_wait(device_stream stream)
{
	if (shim_capturing || shim_fails())
		return 900;
	if (stream)
		wait_until_through(stream);
	return 0;
}

int device_stream_make(device_stream *stream)
{
	if (shim_fails())
		return 1;
	*stream = new shim_stream{};
	streams.push_back(*stream);
	return 0;
}

void device_stream_free(device_stream stream)
{
	if (!stream->ops.empty())
		misuse("a stream is freed before it is through");
	streams.erase(std::find(streams.begin(), streams.end(), stream));
	last_used = nullptr;
	delete stream;
}

int device_event_make(device_event *event)
{
	if (shim_fails())
		return 1;
	*event = new shim_event{};
	return 0;
}

void device_event_free(device_event event)
{
	delete event;
}

int device_event_record(device_event event, device_stream stream)
{
	if (shim_fails())
		return 1;
	event->capture = shim_is_captured(stream) ? captures : 0;
	event->stream = stream;
	if (event->capture) {
		event->steps = stream->steps;
		return 0;
	}
	const uint64_t count = ++event->recorded;
	return put(stream, { [=] { event->come = count; }, nullptr, 0 });
}

int device_stream_after(device_stream stream, device_event event)
{
	if (shim_fails())
		return 1;
	if (!event->capture)
		return shim_is_captured(stream) ? 905 : put(stream, { [] {}, event, event->recorded });
	if (!shim_capturing || event->capture != captures)
		return 907;
	if (!stream->captured) {
		stream->captured = true;
		stream->steps = 1;
		stream->joined = 0;
	} else if (stream == captured_first) {
		event->stream->joined = event->steps;
	}
	return 0;
}

int device_event_wait(device_event event)
{
	if (shim_capturing || event->capture || shim_fails())
		return 900;
	advance_until([=] { return event->come == event->recorded; });
	return 0;
}

int device_event_come(device_event event)
{
	if (shim_capturing || event->capture || shim_fails())
		return -900;
	if (random_below(2))
		advance();
	return event->come == event->recorded;
}

/* ---- graphs ---- */

int device_capture_begin(device_stream stream)
{
	if (shim_capturing || !stream || shim_fails())
		return 900;
	shim_capturing = new shim_graph;
	captured_first = stream;
	captures++;
	stream->captured = true;
	stream->steps = 0;
	return 0;
}

int device_capture_end(device_stream stream, device_graph *graph)
{
	bool joined = shim_capturing && stream == captured_first && !shim_fails();
	for (shim_stream *s : streams) {
		joined = joined && (!s->captured || s == captured_first || s->joined == s->steps);
		s->captured = false;
	}
	*graph = joined ? shim_capturing : nullptr;
	if (!joined)
		delete shim_capturing;
	shim_capturing = nullptr;
	return joined ? 0 : 904;
}
