/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <vector>

#include "profile.h"
#include "ptx.h"

namespace ptx {

namespace {

enum : unsigned { GRAIN = 2, MANY = 0xffff, PRODUCT = 0x8000 /* and on: no thread, a product of a warpgroup */, SEVERAL = 0xffffffff }; /* bytes that share one record: no kernel's threads write single neighbouring bytes of a pair … */

/* … and the last to write and to read them. */
struct record {
	moment writer, reader; /* launch 0: nobody */
};

struct allocation {
	size_t bytes;
	std::vector<uint8_t> written;
	record *records; /* [bytes / GRAIN + 1], zeros until touched */
	std::vector<uint32_t> read_in, written_in; /* [sectors]: the last launch that did, while somebody counts */
};

std::map<uintptr_t, allocation> allocations;
char words[200];

/* What find() found last: mostly it is asked for the same again. */
std::map<uintptr_t, allocation>::iterator last_found = allocations.end();

allocation *find(const void *p, size_t bytes, uintptr_t *begin)
{
	auto it = last_found;
	if (it == allocations.end() || (uintptr_t)p - it->first >= it->second.bytes) {
		auto next = allocations.upper_bound((uintptr_t)p);
		if (next == allocations.begin())
			return nullptr;
		it = last_found = std::prev(next);
	}
	*begin = it->first;
	return (uintptr_t)p + bytes <= it->first + it->second.bytes ? &it->second : nullptr;
}

/* Whether each of a few bytes is 1. */
inline bool all_one(const uint8_t *p, size_t bytes)
{
	uint64_t words[2] = { 0x0101010101010101, 0x0101010101010101 };
	if (bytes == 16)
		memcpy(words, p, 16);
	else if (bytes == 8)
		memcpy(words, p, 8);
	else if (bytes == 4)
		memcpy(words, p, 4);
	else
		return std::all_of(p, p + bytes, [](uint8_t b) { return b == 1; });
	return words[0] == 0x0101010101010101 && words[1] == 0x0101010101010101;
}

const char *outside(const char *what, const void *p, size_t bytes)
{
	auto next = allocations.upper_bound((uintptr_t)p);
	if (next == allocations.begin()) {
		snprintf(words, sizeof words, "%s of %zu bytes at %p, where nothing is allocated", what, bytes, p);
	} else {
		auto it = std::prev(next);
		snprintf(words, sizeof words, "%s of %zu bytes at %p, %td bytes after the start of an allocation of %zu", what, bytes, p, (intptr_t)((uintptr_t)p - it->first), it->second.bytes);
	}
	return words;
}

/* Could the two be one before or one after the other, on another day? */
bool unordered(const moment &then, const moment &now)
{
	if (then.launch != now.launch || !then.launch)
		return false;
	return then.block != now.block || (then.thread != now.thread && then.step == now.step);
}

const char *race(const char *what, const char *before, const moment &then, const moment &now)
{
	char who[64];
	if (then.block != now.block)
		snprintf(who, sizeof who, "another block");
	else if (then.thread == MANY)
		snprintf(who, sizeof who, "several threads");
	else if (then.thread >= PRODUCT)
		snprintf(who, sizeof who, "wgmma");
	else
		snprintf(who, sizeof who, "thread %u", then.thread);
	snprintf(words, sizeof words, "race: %s what %s %s, with nothing that orders the two", what, who, before);
	return words;
}

void remember_reader(moment &reader, const moment &now)
{
	const bool here = reader.launch == now.launch, other_block = here && reader.block != now.block;
	const bool other_thread = here && reader.step == now.step && reader.thread != now.thread;
	reader = now;
	if (other_block)
		reader.block = SEVERAL;
	if (other_thread)
		reader.thread = MANY;
}

const char *may_read(record &r, const moment &now)
{
	if (unordered(r.writer, now))
		return race("reads", "wrote", r.writer, now);
	remember_reader(r.reader, now);
	return nullptr;
}

/* same: what is there already is written again, which no order can change. */
const char *may_write(record &r, const moment &now, bool same)
{
	if (unordered(r.writer, now) && !same)
		return race("writes", "wrote", r.writer, now);
	if (unordered(r.reader, now))
		return race("writes", "read", r.reader, now);
	r.writer = now;
	return nullptr;
}

/* ---- a block's: all that touch it are of one block and one launch ---- */

/* A moment's rest; step 0: nobody. */
struct touch {
	uint16_t thread, step, group; /* warpgroup */

	bool unordered(const touch &now) const
	{
		return (thread != now.thread) & (group == now.group ? step == now.step : step >= common_step);
	}
};

touch touch_of(const moment &now)
{
	return { now.thread, now.step, (uint16_t)(now.thread >= PRODUCT ? (now.thread - PRODUCT) / (GROUP / WARP) : now.thread / GROUP) };
}

/* When a thread last handed over to wgmma: in a step, and before that step's barrier. */
struct handing {
	uint32_t in_step, before;
	uint16_t step;
};

enum : uint8_t { UNWRITTEN, WRITTEN, COMING /* a copy is on its way there */ };

std::vector<uint8_t> block, block_state;
std::vector<touch> block_writer, block_reader; /* [grains] */
std::vector<uint16_t> block_multiplied;        /* [grains]: products that read it at the moment */
std::vector<uint32_t> block_write_time;        /* [grains] */
std::vector<handing> handed_over;              /* [threads] */
uint32_t block_time;

/* f(grains) with a number of them that the compiler knows, for the sizes that are many. */
template <class F> inline auto with_grains(uint64_t address, size_t bytes, F f)
{
	const size_t n = (address + bytes - 1) / GRAIN + 1 - address / GRAIN;
	return n == 8 ? f((size_t)8) : n == 4 ? f((size_t)4) : n == 2 ? f((size_t)2) : n == 1 ? f((size_t)1) : f(n);
}

const char *shared_race(const char *what, const char *before, const touch *then, const moment &now)
{
	const touch here = touch_of(now);
	while (!then->unordered(here))
		then++;
	return race(what, before, { now.launch, now.block, then->thread, then->step }, now);
}

const char *shared_place(const char *what, uint64_t address, size_t bytes)
{
	if (address + bytes <= block.size())
		return nullptr;
	snprintf(words, sizeof words, "%s of %zu bytes of shared memory at %llu; the block has %zu", what, bytes, (unsigned long long)address, block.size());
	return words;
}

}

uint16_t common_step;

void *memory_allocate(size_t bytes)
{
	/* at a multiple of 256 and of no more: that is all CUDA promises */
	uint8_t *p = (uint8_t *)aligned_alloc(512, (bytes + 256 + 511) / 512 * 512);
	if (!p)
		return nullptr;
	p += 256;
	memset(p, 0xff, bytes);
	allocations[(uintptr_t)p] = { bytes, std::vector<uint8_t>(bytes), (record *)calloc(bytes / GRAIN + 1, sizeof(record)), {}, {} };
	return p;
}

bool memory_free(void *p)
{
	auto it = allocations.find((uintptr_t)p);
	if (it == allocations.end())
		return false;
	free(it->second.records);
	allocations.erase(it);
	last_found = allocations.end();
	free((uint8_t *)p - 256);
	return true;
}

bool memory_is_device(const void *p)
{
	uintptr_t begin;
	return find(p, 1, &begin);
}

void memory_written(void *p, size_t bytes)
{
	uintptr_t begin;
	if (allocation *a = find(p, bytes, &begin))
		memset(&a->written[(uintptr_t)p - begin], 1, bytes);
}

void memory_copy(void *to, const void *from, size_t bytes)
{
	uintptr_t begin_to, begin_from;
	allocation *t = find(to, bytes, &begin_to), *f = find(from, bytes, &begin_from);
	memmove(to, from, bytes);
	for (size_t i = 0; t && i < bytes; i++)
		t->written[(uintptr_t)to - begin_to + i] = !f || f->written[(uintptr_t)from - begin_from + i];
}

counts *tally;

static void count_once(std::vector<uint32_t> &last, const allocation &a, size_t at, uint32_t launch, uint64_t *count)
{
	if (last.empty())
		last.resize(a.bytes / 32 + 1);
	*count += last[at / 32] != launch;
	last[at / 32] = launch;
}

const char *memory_may_read(const void *p, size_t bytes, const moment &now, bool is_volatile)
{
	uintptr_t begin;
	allocation *a = find(p, bytes, &begin);
	if (!a)
		return outside("read", p, bytes);
	const size_t at = (uintptr_t)p - begin;
	if (tally)
		count_once(a->read_in, *a, at, now.launch, &tally->sectors_read);
	if (!all_one(&a->written[at], bytes)) {
		const size_t i = (size_t)(std::find(&a->written[at], &a->written[at] + bytes, 0) - a->written.data());
		snprintf(words, sizeof words, "read of a byte that nobody wrote, %zu bytes after the start of an allocation of %zu", i, a->bytes);
		return words;
	}
	const char *wrong = nullptr;
	for (size_t g = at / GRAIN; !is_volatile && !wrong && g <= (at + bytes - 1) / GRAIN; g++)
		wrong = may_read(a->records[g], now);
	return wrong;
}

const char *memory_may_write(void *p, const void *data, size_t bytes, const moment &now, bool is_volatile)
{
	uintptr_t begin;
	allocation *a = find(p, bytes, &begin);
	if (!a)
		return outside("write", p, bytes);
	const size_t at = (uintptr_t)p - begin;
	if (tally)
		count_once(a->written_in, *a, at, now.launch, &tally->sectors_written);
	const bool same = !memcmp(p, data, bytes);
	const char *wrong = nullptr;
	for (size_t g = at / GRAIN; !is_volatile && bytes > 1 && !wrong && g <= (at + bytes - 1) / GRAIN; g++)
		wrong = may_write(a->records[g], now, same);
	memset(&a->written[at], 1, bytes);
	return wrong;
}

const char *memory_may_read_early(const void *p, size_t bytes, const moment &now, uint32_t settled, const char *how)
{
	uintptr_t begin;
	const allocation *a = find(p, bytes, &begin);
	const size_t at = (uintptr_t)p - begin;
	for (size_t g = at / GRAIN; a && g <= (at + bytes - 1) / GRAIN; g++) {
		const uint32_t writer = a->records[g].writer.launch;
		if (writer > settled && writer != now.launch) {
			snprintf(words, sizeof words, "reads %s what launch %u wrote, %u before this one, which may not have ended", how, writer, now.launch - writer);
			return words;
		}
	}
	return nullptr;
}

void shared_begin(size_t bytes)
{
	const size_t grains = bytes / GRAIN + 1;
	block.assign(bytes, 0xff);
	block_state.assign(bytes, UNWRITTEN);
	block_writer.assign(grains, touch());
	block_reader.assign(grains, touch());
	block_multiplied.assign(grains, 0);
	block_write_time.assign(grains, 0);
	handed_over.assign(1024, handing());
	block_time = 0;
}

uint8_t *shared_bytes()
{
	return block.data();
}

const char *shared_may_read(uint64_t address, size_t bytes, const moment &now)
{
	if (const char *wrong = shared_place("read", address, bytes))
		return wrong;
	if (!all_one(&block_state[address], bytes)) {
		size_t i = address;
		while (block_state[i] == WRITTEN)
			i++;
		snprintf(words, sizeof words, "read of byte %zu of shared memory, %s", i, block_state[i] == COMING ? "where a copy is on its way" : "that nobody wrote");
		return words;
	}
	const touch here = touch_of(now);
	const touch *writer = &block_writer[address / GRAIN];
	touch *reader = &block_reader[address / GRAIN];
	const bool wrong = with_grains(address, bytes, [&](size_t n) __attribute__((always_inline)) {
		unsigned races = 0;
		for (size_t g = 0; g < n; g++) {
			races |= writer[g].unordered(here);
			reader[g] = !reader[g].unordered(here) ? here : touch{ MANY, here.step, reader[g].group == here.group ? here.group : (uint16_t)MANY };
		}
		return races != 0;
	});
	return wrong ? shared_race("reads", "wrote", writer, now) : nullptr;
}

const char *shared_may_write(uint64_t address, size_t bytes, const moment &now)
{
	if (const char *wrong = shared_place("write", address, bytes))
		return wrong;
	for (size_t i = address; i < address + bytes; i++) {
		if (block_state[i] == COMING) {
			snprintf(words, sizeof words, "write to byte %zu of shared memory, where a copy is on its way", i);
			return words;
		}
		block_state[i] = WRITTEN;
	}
	block_time++;
	const touch here = touch_of(now);
	const size_t first = address / GRAIN;
	touch *writer = &block_writer[first];
	const touch *reader = &block_reader[first];
	const uint16_t *multiplied = &block_multiplied[first];
	uint32_t *time = &block_write_time[first];
	enum : unsigned { AFTER_WRITE = 1, AFTER_READ = 2, MULTIPLIED = 4 };
	const unsigned wrong = with_grains(address, bytes, [&](size_t n) __attribute__((always_inline)) {
		unsigned found = 0;
		for (size_t g = 0; g < n; g++) {
			found |= (multiplied[g] ? MULTIPLIED : 0u) | (writer[g].unordered(here) ? AFTER_WRITE : 0u) | (reader[g].unordered(here) ? AFTER_READ : 0u);
			time[g] = block_time;
		}
		if (!found)
			std::fill_n(writer, n, here);
		return found;
	});
	if (wrong & MULTIPLIED)
		return "write to shared memory that wgmma reads, which nobody has waited for";
	if (wrong)
		return wrong & AFTER_WRITE ? shared_race("writes", "wrote", writer, now) : shared_race("writes", "read", reader, now);
	return nullptr;
}

const char *shared_copy_begins(uint64_t address, size_t bytes, const moment &now)
{
	const char *wrong = shared_may_write(address, bytes, now);
	if (!wrong)
		memset(&block_state[address], COMING, bytes);
	return wrong;
}

void shared_copy_lands(uint64_t address, const void *from, size_t bytes, const moment &now)
{
	memcpy(&block[address], from, bytes);
	memset(&block_state[address], WRITTEN, bytes);
	for (size_t g = address / GRAIN; g <= (address + bytes - 1) / GRAIN; g++) {
		block_writer[g] = touch_of(now);
		block_write_time[g] = 0; /* need not be handed over: warpgroup.h */
	}
}

const char *shared_product_begins(uint64_t address, size_t bytes, const moment &now)
{
	moment reader = now;
	reader.thread = (uint16_t)(PRODUCT + now.thread / WARP);
	if (const char *wrong = shared_may_read(address, bytes, reader))
		return wrong;
	for (size_t g = address / GRAIN; g <= (address + bytes - 1) / GRAIN; g++) {
		const unsigned writer = block_writer[g].thread;
		const handing &h = handed_over[writer];
		if ((h.step < (block_writer[g].group == now.thread / GROUP ? now.step : common_step) ? h.in_step : h.before) < block_write_time[g]) {
			snprintf(words, sizeof words, "wgmma reads byte %zu of shared memory, which thread %u wrote and has not handed over (fence.proxy.async) before the barrier", g * GRAIN, writer);
			return words;
		}
		block_multiplied[g]++;
	}
	return nullptr;
}

void shared_product_ends(uint64_t address, size_t bytes)
{
	for (size_t g = address / GRAIN; g <= (address + bytes - 1) / GRAIN; g++)
		block_multiplied[g]--;
}

void shared_handed_over(const moment &now)
{
	handing &h = handed_over[now.thread];
	if (h.step != now.step)
		h.before = h.in_step;
	h.step = now.step;
	h.in_step = block_time;
}

}
