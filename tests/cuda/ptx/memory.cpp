/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

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

allocation *find(const void *p, size_t bytes, uintptr_t *begin)
{
	auto next = allocations.upper_bound((uintptr_t)p);
	if (next == allocations.begin())
		return nullptr;
	auto it = std::prev(next);
	*begin = it->first;
	return (uintptr_t)p + bytes <= it->first + it->second.bytes ? &it->second : nullptr;
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

/* ---- a block's ---- */

/* When a thread last handed over to wgmma: in a step, and before that step's barrier. */
struct handing {
	uint64_t in_step, before;
	uint16_t step;
};

std::vector<uint8_t> block;
std::vector<record> block_records;
std::vector<uint8_t> block_written, block_coming; /* coming: copies on their way to a byte */
std::vector<uint16_t> block_multiplied;           /* [grains]: products that read it at the moment */
std::vector<uint64_t> block_write_time;           /* [grains] */
std::vector<handing> handed_over;                 /* [threads] */
uint64_t block_time;

const char *shared_place(const char *what, uint64_t address, size_t bytes)
{
	if (address + bytes <= block.size())
		return nullptr;
	snprintf(words, sizeof words, "%s of %zu bytes of shared memory at %llu; the block has %zu", what, bytes, (unsigned long long)address, block.size());
	return words;
}

}

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
	for (size_t i = 0; i < bytes; i++)
		if (!a->written[at + i]) {
			snprintf(words, sizeof words, "read of a byte that nobody wrote, %zu bytes after the start of an allocation of %zu", at + i, a->bytes);
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

void shared_begin(size_t bytes)
{
	block.assign(bytes, 0xff);
	block_records.assign(bytes / GRAIN + 1, record());
	block_written.assign(bytes, 0);
	block_coming.assign(bytes, 0);
	block_multiplied.assign(bytes / GRAIN + 1, 0);
	block_write_time.assign(bytes / GRAIN + 1, 0);
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
	for (size_t i = address; i < address + bytes; i++)
		if (block_coming[i] || !block_written[i]) {
			snprintf(words, sizeof words, "read of byte %zu of shared memory, %s", i, block_coming[i] ? "where a copy is on its way" : "that nobody wrote");
			return words;
		}
	const char *wrong = nullptr;
	for (size_t g = address / GRAIN; !wrong && g <= (address + bytes - 1) / GRAIN; g++)
		wrong = may_read(block_records[g], now);
	return wrong;
}

const char *shared_may_write(uint64_t address, size_t bytes, const moment &now)
{
	if (const char *wrong = shared_place("write", address, bytes))
		return wrong;
	const char *wrong = nullptr;
	for (size_t i = address; i < address + bytes; i++) {
		if (block_coming[i]) {
			snprintf(words, sizeof words, "write to byte %zu of shared memory, where a copy is on its way", i);
			return words;
		}
		block_written[i] = 1;
	}
	block_time++;
	for (size_t g = address / GRAIN; !wrong && g <= (address + bytes - 1) / GRAIN; g++) {
		wrong = block_multiplied[g] ? "write to shared memory that wgmma reads, which nobody has waited for" : may_write(block_records[g], now, false);
		block_write_time[g] = block_time;
	}
	return wrong;
}

const char *shared_copy_begins(uint64_t address, size_t bytes, const moment &now)
{
	const char *wrong = shared_may_write(address, bytes, now);
	if (!wrong)
		memset(&block_coming[address], 1, bytes);
	return wrong;
}

void shared_copy_lands(uint64_t address, const void *from, size_t bytes, const moment &now)
{
	memcpy(&block[address], from, bytes);
	memset(&block_coming[address], 0, bytes);
	block_time++;
	for (size_t g = address / GRAIN; g <= (address + bytes - 1) / GRAIN; g++) {
		block_records[g].writer = now;
		block_write_time[g] = block_time;
	}
}

const char *shared_product_begins(uint64_t address, size_t bytes, const moment &now)
{
	moment reader = now;
	reader.thread = (uint16_t)(PRODUCT + now.thread / WARP);
	if (const char *wrong = shared_may_read(address, bytes, reader))
		return wrong;
	for (size_t g = address / GRAIN; g <= (address + bytes - 1) / GRAIN; g++) {
		const unsigned writer = block_records[g].writer.thread;
		const handing &h = handed_over[writer];
		if ((h.step < now.step ? h.in_step : h.before) < block_write_time[g]) {
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
