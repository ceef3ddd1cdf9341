/* SPDX-License-Identifier: Apache-2.0
 * The software GPU's instructions: arithmetic, moves, and the table of all. */
#include <algorithm>
#include <cfenv>
#include <cmath>

#include "warp.h"

namespace ptx {

namespace {

/* ---- values ---- */

template <class D, class T, class F> void unary(warp &w, const instruction &i, uint32_t lanes, F f)
{
	uint64_t *d = w.row(i.row[0]);
	const uint64_t *a = w.row(i.row[1]);
	each(lanes, [=](int l) { d[l] = bits<D>(f(value<T>(a[l]))); });
}

template <class D, class T, class F> void binary(warp &w, const instruction &i, uint32_t lanes, F f)
{
	uint64_t *d = w.row(i.row[0]);
	const uint64_t *a = w.row(i.row[1]), *b = w.row(i.row[2]);
	each(lanes, [=](int l) { d[l] = bits<D>(f(value<T>(a[l]), value<T>(b[l]))); });
}

template <class D, class T, class F> void ternary(warp &w, const instruction &i, uint32_t lanes, F f)
{
	uint64_t *d = w.row(i.row[0]);
	const uint64_t *a = w.row(i.row[1]), *b = w.row(i.row[2]), *c = w.row(i.row[3]);
	each(lanes, [=](int l) { d[l] = bits<D>(f(value<T>(a[l]), value<T>(b[l]), value<T>(c[l]))); });
}

void keep_predicate(warp &w, int p, uint32_t lanes, uint32_t value)
{
	uint32_t &old = w.predicates[(size_t)p];
	old = (old & ~lanes) | (value & lanes);
}

template <class T, class F> void compare(warp &w, const instruction &i, uint32_t lanes, F f)
{
	const uint64_t *a = w.row(i.row[0]), *b = w.row(i.row[1]);
	uint32_t p = 0;
	each(lanes, [&](int l) { p |= (uint32_t)(f(value<T>(a[l]), value<T>(b[l])) ? 1 : 0) << l; });
	keep_predicate(w, i.predicate[0], lanes, p);
}

template <class T> T divided(T a, T b)
{
	return b == 0 || (b == (T)-1 && (T)-1 < 0) ? (b ? (T)(0 - (uint64_t)a) : (T)-1) : (T)(a / b);
}

template <class T> T remainder_of(T a, T b)
{
	return b == 0 || (b == (T)-1 && (T)-1 < 0) ? (b ? 0 : a) : (T)(a % b);
}

template <class T> T shifted_left(T a, uint32_t n)
{
	return n >= 8 * sizeof(T) ? 0 : (T)(a << n);
}

template <class T> T shifted_right(T a, uint32_t n)
{
	return n >= 8 * sizeof(T) ? (T)(a < 0 ? -1 : 0) : (T)(a >> n);
}

template <class T, class F> void shift(warp &w, const instruction &i, uint32_t lanes, F f)
{
	uint64_t *d = w.row(i.row[0]);
	const uint64_t *a = w.row(i.row[1]), *n = w.row(i.row[2]);
	each(lanes, [=](int l) { d[l] = bits<T>(f(value<T>(a[l]), (uint32_t)n[l])); });
}

float fused(float a, float b, float c, int mode)
{
	volatile float x = a, y = b, z = c;
	fesetround(mode);
	volatile float r = fmaf(x, y, z);
	fesetround(FE_TONEAREST);
	return r;
}

float saturated(float x)
{
	return x > 1 ? 1 : x > 0 ? x : 0; /* NaN: 0 */
}

/* The first operand is the high half. */
template <class T, bool relu> void convert_pair(warp &w, const instruction &i, uint32_t lanes)
{
	uint64_t *d = w.row(i.row[0]);
	auto half = [&](int from, int l) {
		const float x = value<float>(w.row(i.row[from])[l]);
		return (uint32_t)from_float<T>(relu && x <= 0 ? 0 : x).bits;
	};
	each(lanes, [=](int l) { d[l] = half(1, l) << 16 | half(2, l); });
}

/* ---- moves ---- */

/* mov d, a; mov {d0, d1}, a; mov d, {a0, a1} */
template <int width> void move(warp &w, const instruction &i, uint32_t lanes)
{
	const int half = width / 2;
	const uint64_t mask = half >= 64 ? ~0ull : (1ull << half) - 1;
	uint64_t *d = w.row(i.row[0]), *next = w.row(i.row[1]);
	const uint64_t *last = w.row(i.row[2]);
	if (i.count == 2)
		each(lanes, [=](int l) { d[l] = next[l]; });
	else if (i.unpacks)
		each(lanes, [=](int l) {
			const uint64_t a = last[l];
			d[l] = a & mask;
			next[l] = a >> half & mask;
		});
	else
		each(lanes, [=](int l) { d[l] = (next[l] & mask) | (last[l] & mask) << half; });
}

void select_row(warp &w, const instruction &i, uint32_t lanes)
{
	const uint32_t p = w.predicates[(size_t)i.predicate[0]];
	uint64_t *d = w.row(i.row[0]);
	const uint64_t *a = w.row(i.row[1]), *b = w.row(i.row[2]);
	each(lanes, [=](int l) { d[l] = p >> l & 1 ? a[l] : b[l]; });
}

void permute_bytes(warp &w, const instruction &i, uint32_t lanes)
{
	for (int l = 0; l < WARP; l++) {
		const uint64_t both = (uint32_t)w.row(i.row[1])[l] | w.row(i.row[2])[l] << 32;
		uint32_t result = 0;
		for (int b = 0; b < 4; b++) {
			const unsigned choice = (unsigned)(w.row(i.row[3])[l] >> 4 * b & 15);
			uint32_t byte = (uint32_t)(both >> 8 * (choice & 7) & 255);
			if (choice & 8)
				byte = byte & 128 ? 255 : 0;
			result |= byte << 8 * b;
		}
		if (lanes >> l & 1)
			w.row(i.row[0])[l] = result;
	}
}

/* bfi.b32 d, a, b, first, bits: those bits of a in b's place. */
void insert_bits(warp &w, const instruction &i, uint32_t lanes)
{
	for (int l = 0; l < WARP; l++)
		if (lanes >> l & 1) {
			const unsigned first = (unsigned)w.row(i.row[3])[l] & 255, bits = (unsigned)w.row(i.row[4])[l] & 255;
			const uint32_t mask = first > 31 ? 0 : (bits > 31 ? 0xffffffff : (1u << bits) - 1) << first;
			w.row(i.row[0])[l] = ((uint32_t)w.row(i.row[2])[l] & ~mask) | (first > 31 ? 0 : (uint32_t)w.row(i.row[1])[l] << first & mask);
		}
}

void wait_for_kernels(warp &w, const instruction &, uint32_t lanes)
{
	w.waited |= lanes;
}

void nothing(warp &, const instruction &, uint32_t)
{
}

/* ---- the table ---- */

struct entry {
	action run;
	enum flow flow;
};

#define DO(...) { [](warp &w, const instruction &i, uint32_t lanes) { __VA_ARGS__; }, flow::ON }
#define UNARY(NAME, D, T, EXPRESSION) { NAME, DO((unary<D, T>(w, i, lanes, [](T a) -> D { return EXPRESSION; }))) }
#define BINARY(NAME, T, EXPRESSION) { NAME, DO((binary<T, T>(w, i, lanes, [](T a, T b) -> T { return EXPRESSION; }))) }
#define TERNARY(NAME, T, EXPRESSION) { NAME, DO((ternary<T, T>(w, i, lanes, [](T a, T b, T c) -> T { return EXPRESSION; }))) }
#define COMPARE(NAME, T, EXPRESSION) { NAME, DO(compare<T>(w, i, lanes, [](T a, T b) -> bool { return EXPRESSION; })) }
#define SHIFT(NAME, T, FUNCTION) { NAME, DO(shift<T>(w, i, lanes, [](T a, uint32_t n) -> T { return FUNCTION(a, n); })) }
#define LOGIC(NAME, EXPRESSION) { NAME, DO(const uint32_t a = w.predicates[(size_t)i.predicate[1]], b = w.predicates[(size_t)i.predicate[2]]; (void)b; \
	keep_predicate(w, i.predicate[0], lanes, EXPRESSION)) }
#define INTEGERS(SUFFIX, T, U)                                                                                                      \
	BINARY("add." SUFFIX, T, (T)((U)a + (U)b)), BINARY("sub." SUFFIX, T, (T)((U)a - (U)b)), BINARY("mul.lo." SUFFIX, T, (T)((U)a * (U)b)), \
	TERNARY("mad.lo." SUFFIX, T, (T)((U)a * (U)b + (U)c)), BINARY("div." SUFFIX, T, divided<T>(a, b)), BINARY("rem." SUFFIX, T, remainder_of<T>(a, b)), \
	BINARY("min." SUFFIX, T, a < b ? a : b), BINARY("max." SUFFIX, T, a > b ? a : b), UNARY("neg." SUFFIX, T, T, (T)(0 - (U)a)), \
	SHIFT("shr." SUFFIX, T, shifted_right<T>), COMPARE("setp.eq." SUFFIX, T, a == b), COMPARE("setp.ne." SUFFIX, T, a != b), \
	COMPARE("setp.lt." SUFFIX, T, a < b), COMPARE("setp.le." SUFFIX, T, a <= b), COMPARE("setp.gt." SUFFIX, T, a > b), COMPARE("setp.ge." SUFFIX, T, a >= b)
#define BITS(SUFFIX, T)                                                                                                             \
	BINARY("and." SUFFIX, T, a & b), BINARY("or." SUFFIX, T, a | b), BINARY("xor." SUFFIX, T, a ^ b), UNARY("not." SUFFIX, T, T, (T)~a), \
	SHIFT("shl." SUFFIX, T, shifted_left<T>), COMPARE("setp.eq." SUFFIX, T, a == b), COMPARE("setp.ne." SUFFIX, T, a != b)
#define FLOATS(SUFFIX, T)                                                                                                           \
	BINARY("add." SUFFIX, T, a + b), BINARY("add.rn." SUFFIX, T, a + b), BINARY("sub." SUFFIX, T, a - b), BINARY("mul." SUFFIX, T, a * b), \
	BINARY("mul.rn." SUFFIX, T, a * b), BINARY("div.rn." SUFFIX, T, a / b), TERNARY("fma.rn." SUFFIX, T, std::fma(a, b, c)), \
	BINARY("max." SUFFIX, T, std::fmax(a, b)), BINARY("min." SUFFIX, T, std::fmin(a, b)), UNARY("neg." SUFFIX, T, T, -a), UNARY("abs." SUFFIX, T, T, std::fabs(a)), \
	UNARY("sqrt.rn." SUFFIX, T, T, std::sqrt(a)), UNARY("rcp.rn." SUFFIX, T, T, 1 / a), \
	COMPARE("setp.eq." SUFFIX, T, a == b), COMPARE("setp.ne." SUFFIX, T, a < b || a > b), COMPARE("setp.lt." SUFFIX, T, a < b), \
	COMPARE("setp.le." SUFFIX, T, a <= b), COMPARE("setp.gt." SUFFIX, T, a > b), COMPARE("setp.ge." SUFFIX, T, a >= b), \
	COMPARE("setp.equ." SUFFIX, T, !(a < b || a > b)), COMPARE("setp.neu." SUFFIX, T, a != b), COMPARE("setp.ltu." SUFFIX, T, !(a >= b)), \
	COMPARE("setp.leu." SUFFIX, T, !(a > b)), COMPARE("setp.gtu." SUFFIX, T, !(a <= b)), COMPARE("setp.geu." SUFFIX, T, !(a < b)), \
	COMPARE("setp.num." SUFFIX, T, a == a && b == b), COMPARE("setp.nan." SUFFIX, T, a != a || b != b)

/* Eight bits are lost, more than on a GPU: what a kernel makes of an approximation has to be exact all the same. */
float coarse(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	bits &= ~0xffu;
	memcpy(&value, &bits, sizeof value);
	return value;
}

const std::unordered_map<std::string, entry> &table()
{
	static const std::unordered_map<std::string, entry> entries = {
		INTEGERS("s16", int16_t, uint16_t), INTEGERS("u16", uint16_t, uint16_t), INTEGERS("s32", int32_t, uint32_t),
		INTEGERS("u32", uint32_t, uint32_t), INTEGERS("s64", int64_t, uint64_t), INTEGERS("u64", uint64_t, uint64_t),
		BITS("b16", uint16_t), BITS("b32", uint32_t), BITS("b64", uint64_t), FLOATS("f32", float), FLOATS("f64", double),
		LOGIC("and.pred", a & b), LOGIC("or.pred", a | b), LOGIC("xor.pred", a ^ b), LOGIC("not.pred", ~a), LOGIC("mov.pred", a),
		{ "mul.wide.s32", DO((binary<int64_t, int32_t>(w, i, lanes, [](int32_t a, int32_t b) { return (int64_t)a * b; }))) },
		{ "mul.wide.u32", DO((binary<uint64_t, uint32_t>(w, i, lanes, [](uint32_t a, uint32_t b) { return (uint64_t)a * b; }))) },
		{ "mul.wide.s16", DO((binary<int32_t, int16_t>(w, i, lanes, [](int16_t a, int16_t b) { return (int32_t)a * b; }))) },
		{ "mul.wide.u16", DO((binary<uint32_t, uint16_t>(w, i, lanes, [](uint16_t a, uint16_t b) { return (uint32_t)a * b; }))) },
		BINARY("mul.hi.s32", int32_t, (int32_t)((int64_t)a * b >> 32)), BINARY("mul.hi.u32", uint32_t, (uint32_t)((uint64_t)a * b >> 32)),
		BINARY("mul.hi.s64", int64_t, (int64_t)((__int128)a * b >> 64)), BINARY("mul.hi.u64", uint64_t, (uint64_t)((unsigned __int128)a * b >> 64)),
		TERNARY("fma.rm.f32", float, fused(a, b, c, FE_DOWNWARD)), BINARY("add.rz.f32", float, fused(a, 1, b, FE_TOWARDZERO)),
		UNARY("rsqrt.approx.f32", float, float, coarse(1 / std::sqrt(a))), UNARY("ex2.approx.ftz.f32", float, float, std::exp2(a)), UNARY("rcp.approx.ftz.f64", double, double, 1 / a),
		UNARY("cvt.s64.s32", int64_t, int32_t, a), UNARY("cvt.u64.u32", uint64_t, uint32_t, a), UNARY("cvt.u32.u64", uint32_t, uint64_t, (uint32_t)a),
		UNARY("cvt.u32.u16", uint32_t, uint16_t, a), UNARY("cvt.u16.u32", uint16_t, uint32_t, (uint16_t)a), UNARY("cvt.s32.s16", int32_t, int16_t, a),
		UNARY("cvt.u64.u16", uint64_t, uint16_t, a), UNARY("cvt.s64.s16", int64_t, int16_t, a), UNARY("cvt.u16.u64", uint16_t, uint64_t, (uint16_t)a),
		UNARY("cvt.s32.s8", int32_t, int8_t, a), UNARY("cvt.u32.u8", uint32_t, uint8_t, a), UNARY("cvt.u16.u8", uint16_t, uint8_t, a), UNARY("cvt.s16.s8", int16_t, int8_t, a),
		UNARY("cvt.rn.f32.s32", float, int32_t, (float)a), UNARY("cvt.rn.f32.u32", float, uint32_t, (float)a), UNARY("cvt.rn.f32.s64", float, int64_t, (float)a),
		UNARY("cvt.rn.f32.u64", float, uint64_t, (float)a), UNARY("cvt.rn.f32.u16", float, uint16_t, (float)a), UNARY("cvt.rn.f32.s16", float, int16_t, (float)a),
		UNARY("cvt.rn.f64.s32", double, int32_t, a), UNARY("cvt.rn.f64.u32", double, uint32_t, a), UNARY("cvt.rn.f64.u64", double, uint64_t, (double)a), UNARY("cvt.rn.f64.s64", double, int64_t, (double)a),
		UNARY("cvt.f64.f32", double, float, a), UNARY("cvt.rn.f32.f64", float, double, (float)a), UNARY("cvt.rzi.f64.f64", double, double, std::trunc(a)),
		UNARY("cvt.rzi.s32.f32", int32_t, float, (int32_t)a), UNARY("cvt.rzi.s32.f64", int32_t, double, (int32_t)a), UNARY("cvt.sat.f32.f32", float, float, saturated(a)),
		UNARY("cvt.f32.f16", float, fp16, to_float(a)), UNARY("cvt.rn.f16.f32", fp16, float, from_float<fp16>(a)), UNARY("cvt.rn.bf16.f32", bf16, float, from_float<bf16>(a)),
		{ "cvt.rn.bf16x2.f32", { convert_pair<bf16, false>, flow::ON } }, { "cvt.rn.f16x2.f32", { convert_pair<fp16, false>, flow::ON } },
		{ "cvt.rn.relu.bf16x2.f32", { convert_pair<bf16, true>, flow::ON } }, { "cvt.rn.relu.f16x2.f32", { convert_pair<fp16, true>, flow::ON } },
		{ "prmt.b32", { permute_bytes, flow::ON } }, { "bfi.b32", { insert_bits, flow::ON } },
		{ "cvta.to.global.u64", { move<64>, flow::ON } },
		{ "cp.async.cg.shared.global", { copy_async, flow::ON } },
		{ "cp.async.commit_group", { copies_commit, flow::ON } },
		{ "cp.async.wait_group", { copies_wait, flow::ON } },
		{ "shfl.sync.bfly.b32", { shuffle<false>, flow::TOGETHER } }, { "shfl.sync.idx.b32", { shuffle<true>, flow::TOGETHER } },
		{ "ldmatrix.sync.aligned.m8n8.x4.shared.b16", { load_matrices<false>, flow::TOGETHER } },
		{ "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", { load_matrices<true>, flow::TOGETHER } },
		{ "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", { multiply_add<bf16>, flow::TOGETHER } },
		{ "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", { multiply_add<fp16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16", { group_multiply<bf16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16", { group_multiply<fp16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", { group_multiply<bf16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", { group_multiply<fp16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16", { group_multiply<bf16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", { group_multiply<bf16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16", { group_multiply<fp16>, flow::TOGETHER } },
		{ "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", { group_multiply<fp16>, flow::TOGETHER } },
		{ "wgmma.fence.sync.aligned", { group_fence, flow::TOGETHER } },
		{ "wgmma.commit_group.sync.aligned", { group_commit, flow::TOGETHER } },
		{ "wgmma.wait_group.sync.aligned", { group_wait, flow::TOGETHER } },
		{ "fence.proxy.async.shared::cta", { hand_over, flow::ON } },
		{ "griddepcontrol.launch_dependents", { nothing, flow::ON } }, { "griddepcontrol.wait", { wait_for_kernels, flow::ON } },
		{ "bar.sync", { nothing, flow::BARRIER } },
		{ "bra", { nothing, flow::BRANCH } }, { "bra.uni", { nothing, flow::BRANCH } },
		{ "ret", { nothing, flow::EXIT } }, { "exit", { nothing, flow::EXIT } },
	};
	return entries;
}

}

action find_action(const std::string &opcode, enum flow *flow)
{
	const std::string word = opcode.substr(0, opcode.find('.')), suffix = opcode.substr(opcode.rfind('.') + 1);
	*flow = flow::ON;
	if (word == "ld")
		return load;
	if (word == "st")
		return store;
	if (word == "selp")
		return select_row;
	auto found = table().find(opcode);
	if (found != table().end()) {
		*flow = found->second.flow;
		return found->second.run;
	}
	if (word == "mov")
		return suffix.substr(1) == "64" ? move<64> : suffix.substr(1) == "32" ? move<32> : move<16>;
	return nullptr;
}

}
