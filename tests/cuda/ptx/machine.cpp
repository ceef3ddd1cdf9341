/* SPDX-License-Identifier: Apache-2.0
 * Carrying PTX out: blocks one after the other in random order, a block's warps in turns of random length, a warp's lanes together
 * as long as they go the same way. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>

#include "profile.h"
#include "warp.h"

namespace ptx {

struct limits machine;
uint64_t machine_launches, machine_instructions;
uint32_t settled;

void fault(const warp &w, const instruction &i, int lane, const char *what)
{
	int status;
	char *name = abi::__cxa_demangle(w.k->name.c_str(), nullptr, nullptr, &status);
	auto file = w.k->files->find(i.file);
	fprintf(stderr, "%s: block %u thread %u: %s\n  at %s:%d: %s\n", name ? name : w.k->name.c_str(), w.block, w.first_thread + (unsigned)lane, what,
	        file == w.k->files->end() ? "?" : file->second.c_str(), i.line, i.text);
	abort();
}

namespace {

enum { BARRIERS = 16 /* of a block */ };

uint64_t random_state = 88172645463325252ull;

uint32_t random_below(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)((random_state >> 32) * n >> 32);
}

/* ---- a warp ---- */

/* The lanes that are least far go on; those that meet go on together. */
void choose(warp &w)
{
	if (w.lanes)
		w.elsewhere.push_back({ w.at, w.lanes });
	w.lanes = 0;
	if (w.elsewhere.empty())
		return;
	w.at = std::min_element(w.elsewhere.begin(), w.elsewhere.end(), [](const group &a, const group &b) { return a.at < b.at; })->at;
	auto joins = [&](const group &g) {
		w.lanes |= g.at == w.at ? g.lanes : 0;
		return g.at == w.at;
	};
	w.elsewhere.erase(std::remove_if(w.elsewhere.begin(), w.elsewhere.end(), joins), w.elsewhere.end());
}

void branch(warp &w, const instruction &i, uint32_t taken)
{
	const uint32_t stay = w.lanes & ~taken;
	for (const product &p : w.products)
		if (taken && i.target <= w.at && p.registers) {
			check_left(w, i, p);
			fault(w, i, __builtin_ctz(taken), "wgmma: a loop goes back to its start before a product that reads registers was waited for: ptxas may give them to others there");
		}
	if (stay && taken)
		w.elsewhere.push_back({ w.at + 1, stay });
	w.lanes = taken ? taken : stay;
	w.at = taken ? i.target : w.at + 1;
}

/* Up to `turns` instructions. */
void advance(warp &w, uint32_t turns)
{
	while (turns-- && w.alive && w.waits < 0) {
		if (!w.elsewhere.empty() || !w.lanes)
			choose(w);
		const instruction &i = w.k->code.at((size_t)w.at);
		uint32_t lanes = w.lanes;
		if (i.guard >= 0)
			lanes &= i.guard_not ? ~w.predicates[(size_t)i.guard] : w.predicates[(size_t)i.guard];
		machine_instructions += !i.is_move;
		switch (i.flow) {
		case flow::ON:
			if (lanes)
				i.run(w, i, lanes);
			w.at++;
			break;
		case flow::TOGETHER:
			if (lanes != 0xffffffff)
				fault(w, i, __builtin_ctz(~lanes), "not all lanes of the warp come here together");
			i.run(w, i, lanes);
			w.at++;
			break;
		case flow::BARRIER:
			if (lanes != w.alive)
				fault(w, i, __builtin_ctz(w.alive & ~lanes), "not all threads of the warp come to this barrier together");
			w.waits = (int)w.row(i.row[0])[__builtin_ctz(lanes)];
			if (w.waits >= BARRIERS)
				fault(w, i, __builtin_ctz(lanes), "comes to a barrier that a block does not have");
			w.waits_with = w.waits ? (unsigned)w.row(i.row[1])[__builtin_ctz(lanes)] : 0;
			w.at++;
			break;
		case flow::BRANCH:
			branch(w, i, lanes);
			break;
		case flow::EXIT:
			if (lanes & ~w.waited)
				fault(w, i, __builtin_ctz(lanes & ~w.waited), "ends and has not waited (griddepcontrol.wait) for the kernels before, which the one after it takes for done");
			w.alive &= ~lanes;
			w.lanes &= ~lanes;
			if (w.lanes)
				w.at++;
			break;
		}
	}
}

struct grid {
	const kernel &k;
	const launch &how;
	const uint8_t *params;
};

void prepare(warp &w, const grid &g, unsigned block, unsigned first)
{
	const unsigned count = std::min(g.how.threads - first, (unsigned)WARP);
	w.k = &g.k;
	w.params = g.params;
	w.block = block;
	w.first_thread = first;
	w.step = 1;
	w.at = 0;
	w.alive = w.lanes = count == WARP ? 0xffffffff : (1u << count) - 1;
	w.waited = g.how.early ? 0 : 0xffffffff;
	w.waits = -1;
	w.elsewhere.clear();
	w.copies.clear();
	memset(w.groups, 0, sizeof w.groups);
	w.products.clear();
	w.product_groups = 0;
	w.may_multiply = false;
	if (w.rows.size() != (size_t)g.k.rows)
		w.rows = std::vector<lanes64>((size_t)g.k.rows);
	w.predicates.assign((size_t)g.k.predicates, 0);
	w.local.assign(WARP * g.k.local_bytes, 0xff);
	for (const auto &n : g.k.numbers)
		std::fill_n(w.row(n.first), (int)WARP, n.second);
	for (const auto &s : g.k.specials)
		for (unsigned l = 0; l < WARP; l++)
			w.row(s.first)[l] = s.second == special::TID_X ? first + l : s.second == special::NTID_X ? g.how.threads : s.second == special::CTAID_X ? block : g.how.blocks;
}

/* Warps that have come to a barrier go on: in a new step, which is that of all if it was the block's. */
void meet(const std::vector<warp *> &warps, bool all)
{
	uint16_t step = 0;
	for (const warp *w : warps)
		step = std::max(step, w->step);
	for (warp *w : warps) {
		w->waits = -1;
		w->step = (uint16_t)(step + 1);
	}
	if (all)
		common_step = (uint16_t)(step + 1);
}

void run_block(const grid &g, unsigned block, std::vector<warp> &warps)
{
	common_step = 1;
	for (size_t i = 0; i < warps.size(); i++)
		prepare(warps[i], g, block, (unsigned)i * WARP);
	for (;;) {
		std::vector<warp *> ready, waiting[BARRIERS];
		size_t alive = 0;
		for (warp &w : warps) {
			alive += w.alive != 0;
			if (w.alive && w.waits < 0)
				ready.push_back(&w);
			else if (w.alive)
				waiting[w.waits].push_back(&w);
		}
		if (!alive)
			break;
		bool met = false;
		for (int id = 0; id < BARRIERS; id++) /* those that have ended are not waited for at the block's, as on a GPU */
			if (!waiting[id].empty() && (id ? waiting[id].size() * WARP >= waiting[id][0]->waits_with : waiting[id].size() == alive)) {
				meet(waiting[id], id == 0);
				met = true;
			}
		if (!met && ready.empty()) {
			const warp &w = **std::find_if(std::begin(waiting), std::end(waiting), [](const std::vector<warp *> &at) { return !at.empty(); })->begin();
			fault(w, w.k->code[(size_t)w.at - 1], 0, "waits at a barrier to which the others do not come");
		}
		if (!met)
			advance(*ready[random_below((uint32_t)ready.size())], 1 + random_below(400));
	}
	for (warp &w : warps)
		if (!w.copies.empty())
			fault(w, g.k.code.back(), w.copies[0].lane, "ends with copies on their way");
	for (warp &w : warps)
		if (!w.products.empty())
			fault(w, g.k.code.back(), 0, "ends with a product of its warpgroup that nobody waited for");
}

}

void run(const kernel &k, const launch &how, const void *params)
{
	const grid g = { k, how, (const uint8_t *)params };
	std::vector<warp> warps((how.threads + WARP - 1) / WARP);
	std::vector<unsigned> order(how.blocks);
	machine_launches++;
	settled = how.settled;
	tally = profile_of(k.name);
	const uint64_t before = machine_instructions;
	for (unsigned i = 0; i < how.blocks; i++) {
		const unsigned j = random_below(i + 1);
		order[i] = order[j];
		order[j] = i;
	}
	for (unsigned block : order) {
		shared_begin(how.shared_bytes);
		run_block(g, block, warps);
	}
	if (tally) {
		tally->launches++;
		tally->blocks += how.blocks;
		tally->instructions += machine_instructions - before;
	}
}

}
