/* SPDX-License-Identifier: Apache-2.0
 * The software GPU's loads, stores and asynchronous copies. */
#include <algorithm>

#include "profile.h"
#include "warp.h"

namespace ptx {

void check_alignment(const warp &w, const instruction &i, int lane, uint64_t address, size_t bytes)
{
	if (address % bytes)
		fault(w, i, lane, "the address is not a multiple of the bytes");
}

namespace {

/* Before it has waited for the kernels in front of its own, a thread may read what they do not write; by ld.global.nc, for what no one writes while the kernel is there, after that no more. */
void check_order(const warp &w, const instruction &i, int lane, const uint8_t *p, size_t bytes, bool write)
{
	const bool waited = w.waited >> lane & 1;
	if (waited && !i.is_constant)
		return;
	const char *wrong = write ? "writes before griddepcontrol.wait" : memory_may_read_early(p, bytes, w.now(lane), settled, waited ? "by ld.global.nc" : "before griddepcontrol.wait");
	if (wrong)
		fault(w, i, lane, wrong);
}

/* Where a lane reads or, with data, writes. */
uint8_t *resolve(warp &w, const instruction &i, int lane, uint64_t address, const uint8_t *data)
{
	const bool write = data;
	const size_t bytes = (size_t)i.width * i.count;
	const char *wrong = nullptr;
	uint8_t *p = nullptr;
	check_alignment(w, i, lane, address, bytes);
	switch (i.space) {
	case space::GLOBAL:
		p = (uint8_t *)address;
		check_order(w, i, lane, p, bytes, write);
		wrong = write ? memory_may_write(p, data, bytes, w.now(lane), i.is_volatile) : memory_may_read(p, bytes, w.now(lane), i.is_volatile);
		break;
	case space::SHARED:
		address &= 0xffffffff;
		wrong = write ? shared_may_write(address, bytes, w.now(lane)) : shared_may_read(address, bytes, w.now(lane));
		p = shared_bytes() + address;
		break;
	case space::LOCAL:
		p = w.local.data() + (size_t)lane * w.k->local_bytes + address;
		wrong = address + bytes > w.k->local_bytes ? "outside the thread's local memory" : nullptr;
		break;
	case space::PARAM:
		p = const_cast<uint8_t *>(w.params) + address;
		wrong = write || address + bytes > w.k->param_bytes ? "outside the kernel's parameters" : nullptr;
		break;
	}
	if (wrong)
		fault(w, i, lane, wrong);
	return p;
}

}

void count_request(const uint64_t *base, int64_t offset, uint32_t lanes, enum space space, size_t bytes)
{
	uint64_t addresses[WARP];
	int n = 0;
	for (int l = 0; l < WARP; l++)
		if (lanes >> l & 1)
			addresses[n++] = base[l] + (uint64_t)offset;
	if (space == space::SHARED)
		count_shared(*tally, addresses, n, bytes);
	else if (space == space::GLOBAL)
		count_global(*tally, addresses, n, bytes);
}

namespace {

/* Of a load or store; returns its addresses. */
const uint64_t *count_access(warp &w, const instruction &i, uint32_t lanes)
{
	const uint64_t *base = w.row(i.row[4]);
	if (tally)
		count_request(base, i.offset, lanes, i.space, (size_t)i.width * i.count);
	return base;
}

/* memcpy() of a number whose width is known only now. */
inline void copy_number(void *to, const void *from, unsigned width)
{
	switch (width) {
	case 1: memcpy(to, from, 1); break;
	case 2: memcpy(to, from, 2); break;
	case 4: memcpy(to, from, 4); break;
	default: memcpy(to, from, 8);
	}
}

}

void load(warp &w, const instruction &i, uint32_t lanes)
{
	const uint64_t *base = count_access(w, i, lanes);
	for (int l = 0; l < WARP; l++) {
		if (!(lanes >> l & 1))
			continue;
		const uint8_t *p = resolve(w, i, l, base[l] + (uint64_t)i.offset, nullptr);
		for (int e = 0; e < i.count; e++) {
			uint64_t x = 0;
			copy_number(&x, p + e * i.width, i.width);
			if (i.is_signed && i.width < 8 && x >> (8 * i.width - 1) & 1)
				x |= ~0ull << 8 * i.width;
			w.row(i.row[e])[l] = x;
		}
	}
}

void store(warp &w, const instruction &i, uint32_t lanes)
{
	const uint64_t *base = count_access(w, i, lanes);
	for (int l = 0; l < WARP; l++) {
		if (!(lanes >> l & 1))
			continue;
		uint8_t data[16];
		for (int e = 0; e < i.count; e++)
			copy_number(data + e * i.width, &w.row(i.row[e])[l], i.width);
		memcpy(resolve(w, i, l, base[l] + (uint64_t)i.offset, data), data, (size_t)i.width * i.count);
	}
}

/* cp.async.cg.shared.global [to], [from], 16, bytes: what was read lands at some moment until the wait. */
void copy_async(warp &w, const instruction &i, uint32_t lanes)
{
	if (tally) {
		uint32_t reading = 0;
		for (int l = 0; l < WARP; l++)
			reading |= (lanes >> l & 1 && (i.count < 4 || w.row(i.row[3])[l])) ? 1u << l : 0;
		count_request(w.row(i.row[0]), 0, lanes, space::SHARED, 16);
		count_request(w.row(i.row[1]), 0, reading, space::GLOBAL, 16);
	}
	for (int l = 0; l < WARP; l++) {
		if (!(lanes >> l & 1))
			continue;
		const uint64_t to = w.row(i.row[0])[l] & 0xffffffff, from = w.row(i.row[1])[l];
		const size_t size = w.row(i.row[2])[l], bytes = i.count > 3 ? w.row(i.row[3])[l] : size;
		coming c = { to, {}, l, w.groups[l] };
		check_alignment(w, i, l, to, size);
		check_alignment(w, i, l, from, size);
		const char *wrong = size != 16 || bytes > 16 || i.offset ? "a copy of 16 bytes has no offset, and 16 bytes" : nullptr;
		if (!wrong && bytes)
			check_order(w, i, l, (const uint8_t *)from, bytes, false);
		if (!wrong && bytes)
			wrong = memory_may_read((const void *)from, bytes, w.now(l), false);
		if (!wrong)
			wrong = shared_copy_begins(to, 16, w.now(l));
		if (wrong)
			fault(w, i, l, wrong);
		memcpy(c.data, (const void *)from, bytes);
		w.copies.push_back(c);
	}
}

void copies_commit(warp &w, const instruction &, uint32_t lanes)
{
	for (int l = 0; l < WARP; l++)
		w.groups[l] += lanes >> l & 1;
}

void copies_wait(warp &w, const instruction &i, uint32_t lanes)
{
	auto landed = [&](const coming &c) {
		if (!(lanes >> c.lane & 1) || c.group >= w.groups[c.lane] - i.offset)
			return false;
		shared_copy_lands(c.to, c.data, 16, w.now(c.lane));
		return true;
	};
	w.copies.erase(std::remove_if(w.copies.begin(), w.copies.end(), landed), w.copies.end());
}

void hand_over(warp &w, const instruction &, uint32_t lanes)
{
	for (int l = 0; l < WARP; l++)
		if (lanes >> l & 1)
			shared_handed_over(w.now(l));
}

}
