/* SPDX-License-Identifier: Apache-2.0
 * Two layers' neighbouring backward kernels as a step has them, a 1×1 and the next layer's 3×3: with what lies between them merged by a launch, and by blocks beside both. */
#include <cstring>
#include <memory>

#include "cases.h"
#include "fused_tiles.h"
#include "weight_gradient.h"

namespace {

enum { BOTTLENECK = 128, GROWTH = 32 };

/* The 1×1's; the 3×3 that follows it has the last of its channels. */
struct shape {
	int images, side, c_in, pitch;
};

template <class T, class tiles> class layer_pair {
public:
	layer_pair(const shape &s, int sms, bool even) : s(s), pixels((long)s.images * s.side * s.side), in((size_t)s.c_in), weight_parts(parts_3x3(sms)), data_blocks(joined_3x3<tiles> ? weight_parts : line_blocks(pixels, tiles::data_3x3::ROWS, sms)),
		splits(splits_1x1(sms, even)), behind((size_t)weight_parts * GROWTH * TAPS * BOTTLENECK), x(numbers(count() * s.pitch, 0.2, 1)), g(numbers(count() * s.pitch, 0, 1)), y(numbers(count() * BOTTLENECK, 0.1, 1)),
		next_y(numbers(count() * BOTTLENECK, 0.1, 1)), dz(numbers(count() * BOTTLENECK, 0, 1)), next_dz(count() * BOTTLENECK), weight_1x1(numbers(BOTTLENECK * in, 0, 0.05)), weight_3x3(numbers(GROWTH * TAPS * BOTTLENECK, 0, 0.05)),
		shared(floats(5 * in, 0.5)), inner(floats(5 * BOTTLENECK, 0.5)), coefficients(3 * BOTTLENECK), map_sums(floats(2 * in, 0.1)), tile_sums(floats((size_t)data_blocks * 2 * BOTTLENECK, 1)),
		next_tile_sums((size_t)data_blocks * 2 * BOTTLENECK), sums((size_t)splits * 2 * in), partial(first_partial()), slab(2 * in + 2 * BOTTLENECK + BOTTLENECK * in + GROWTH * TAPS * BOTTLENECK)
	{
	}
	int enqueue(bool beside, device_stream stream) const
	{
		float *const w1 = slab + 2 * in + 2 * BOTTLENECK, *const w3 = w1 + BOTTLENECK * in;
		const weight_gradient of_1x1 = { partial + behind, w1, nullptr, 1, BOTTLENECK, s.c_in, s.c_in, 1, splits, 0 }, of_3x3 = { partial, w3, nullptr, 1, GROWTH, BOTTLENECK, BOTTLENECK, TAPS, weight_parts, 0 };
		const double share = 1 / (double)pixels;
		float *const a = coefficients, *const b = a + BOTTLENECK, *const c = b + BOTTLENECK;
		const bn_backward_sums left = { tile_sums, inner, inner + BOTTLENECK, inner + 2 * BOTTLENECK, slab + 2 * in, slab + 2 * in + BOTTLENECK, nullptr, nullptr, a, b, c, nullptr, share, 1, 0, 0, data_blocks, BOTTLENECK, 0, 0 };
		bn_backward_sums of_map = { sums, shared, shared + in, shared + 2 * in, slab, slab + in, map_sums, map_sums + in, a, b, c, nullptr, share, 1, 0, 0, splits, s.c_in, s.c_in - GROWTH, GROWTH };
		const conv1x1_backward<T> p1 = { dz, y, a, b, c, x, g, weight_1x1, shared + 3 * in, shared + 4 * in, shared, shared + in, shared + 2 * in, sums, partial + behind, pixels, s.pitch, s.c_in, BOTTLENECK, splits, left };
		const conv3x3_backward<T> p3 = { g + (in - GROWTH), x + (in - GROWTH), a, b, c, next_y, weight_3x3, inner + 3 * BOTTLENECK, inner + 4 * BOTTLENECK, inner + BOTTLENECK, inner + 2 * BOTTLENECK, next_dz, next_tile_sums, partial,
			                   pixels, s.side, s.pitch, BOTTLENECK, GROWTH };
		if (beside) {
			of_map.a = of_map.b = of_map.c = nullptr;
			const int code = enqueue_1x1(conv1x1_merging<T>{ p1, layer_sums_of(of_3x3, {}, {}) }, stream);
			return code ? code : enqueue_3x3(conv3x3_merging<T>{ p3, of_map, layer_sums_of(of_1x1, {}, of_map) }, stream);
		}
		int code = enqueue_1x1(p1, stream);
		code = code ? code : layer_sums_launch(layer_sums_of(of_1x1, of_3x3, of_map), stream);
		return code ? code : enqueue_3x3(p3, stream);
	}
	/* All that both kernels and the merges between them made, but s1 and s2, of which those of the last channels are nobody's any more. */
	std::vector<unsigned char> results() const
	{
		std::vector<unsigned char> all;
		auto add = [&](const auto &v) { all.insert(all.end(), (const unsigned char *)v.data(), (const unsigned char *)(v.data() + v.size())); };
		add(next_dz.download());
		add(g.download());
		add(next_tile_sums.download());
		add(slab.download());
		std::vector<float> kept = map_sums.download();
		for (size_t i = 0; i < 2 * in; i++)
			if (i % in >= in - GROWTH)
				kept[i] = 0;
		add(kept);
		return all;
	}

private:
	template <class P> int enqueue_1x1(const P &p, device_stream stream) const
	{
		return conv1x1_backward_launch<T, typename tiles::backward_1x1>(p, stream);
	}
	template <class P> int enqueue_3x3(const P &p, device_stream stream) const
	{
		if constexpr (joined_3x3<tiles>)
			return conv3x3_joined_launch<T, typename tiles::weight_3x3>(p, weight_parts, stream);
		else
			return conv3x3_both_launch<T, typename tiles::data_3x3, typename tiles::weight_3x3>(p, (unsigned)data_blocks, (unsigned)weight_parts, stream);
	}
	size_t count() const
	{
		return (size_t)pixels;
	}
	int parts_3x3(int sms) const
	{
		if constexpr (joined_3x3<tiles>)
			return conv3x3_joined_parts(pixels, s.side, BOTTLENECK, sms);
		else
			return line_blocks(pixels, tiles::weight_3x3::ROWS, sms);
	}
	int splits_1x1(int sms, bool even) const
	{
		const int wanted = sms / ((s.c_in + 127) / 128), most = line_blocks(pixels, tiles::backward_1x1::ROWS, wanted < 1 ? 1 : wanted);
		return even ? even_blocks(pixels, tiles::backward_1x1::ROWS, most) : most;
	}
	static std::vector<T> numbers(size_t n, double mean, double deviation)
	{
		return random_numbers<T>(n, mean, deviation);
	}
	static std::vector<float> floats(size_t n, double mean)
	{
		return random_numbers<float>(n, mean, 0.1);
	}
	/* What the 3×3 before has left, and room for the 1×1's. */
	std::vector<float> first_partial() const
	{
		std::vector<float> v = random_numbers<float>(behind, 0, 1);
		v.resize(behind + (size_t)splits * BOTTLENECK * in);
		return v;
	}

	const shape s;
	const long pixels;
	const size_t in;
	const int weight_parts, data_blocks, splits;
	const size_t behind;
	device_array<T> x, g, y, next_y, dz, next_dz, weight_1x1, weight_3x3;
	device_array<float> shared, inner, coefficients, map_sums, tile_sums, next_tile_sums, sums, partial, slab;
};

/* Every bit is the same whoever merges. */
template <class T, class tiles> void check_shape(const shape &s, int sms)
{
	std::vector<unsigned char> results[2];
	const uint64_t seed = random_bits();
	for (int beside = 0; beside < 2; beside++) {
		seed_random(seed);
		const layer_pair<T, tiles> pair(s, sms, false);
		check_device(pair.enqueue(beside, nullptr), "a 1×1 and a 3×3");
		results[beside] = pair.results();
	}
	for (size_t i = 0; i < results[0].size(); i++)
		if (results[0][i] != results[1][i])
			give_up("byte %zu of %zu is another one where the merges are beside (%d images, %d², %d channels)", i, results[0].size(), s.images, s.side, s.c_in);
}

template <class T, class tiles> void check(const kernel_case &)
{
	check_shape<T, tiles>({ 2, 5, 40, 56 }, 3);
#ifdef __CUDACC__
	check_shape<T, tiles>({ 3, 7, 168, 256 }, 5);
	if (!getenv("GPU_SANITIZED") && device_sms() > 100)
		check_shape<T, tiles>({ 16, 14, 640, 1024 }, device_sms());
#endif
}

#ifdef __CUDACC__
/* Layers of blocks 3 and 4, batch 16, which stay in the second-level cache, as in a step. */
const shape timed_shapes[] = { { 16, 14, 384, 1024 }, { 16, 14, 640, 1024 }, { 16, 14, 896, 1024 }, { 16, 7, 768, 1024 } };

template <class T, class tiles> void time(const kernel_case &k)
{
	const int shape = k.number / 3, way = k.number % 3; /* launched, beside, beside with even blocks */
	launch_early = device_has_warpgroups();
	const layer_pair<T, tiles> pair(timed_shapes[shape], device_sms(), way == 2);
	report("median_us", median_us(1, [&](int, device_stream stream) { check_device(pair.enqueue(way > 0, stream), "a 1×1 and a 3×3"); }));
}
#endif

template <class T, class tiles> void add(std::vector<kernel_case> &cases, const char *variant, bool timed)
{
	const std::string name = std::string("layer_backward:") + variant + ":" + type_name<T>();
	const bool wgmma = tiles::backward_1x1::WGMMA;
	cases.push_back({ name, check<T, tiles>, nullptr, 0, wgmma });
#ifdef __CUDACC__
	static const char *const ways[] = { "launched", "beside", "beside-even" }, *const places[] = { "b3l4", "b3l12", "b3l20", "b4l8" };
	for (int i = 0; timed && i < 12; i++)
		cases.push_back({ name + ":" + ways[i % 3] + ":" + places[i / 3], nullptr, time<T, tiles>, i, wgmma });
#else
	(void)timed;
#endif
}

} // namespace

void add_layer_cases(std::vector<kernel_case> &cases)
{
	add<bf16, few_tiles>(cases, "1", false);       /* any device's */
	add<bf16, few_wgmma_tiles>(cases, "2", true);  /* an H100's */
	add<bf16, few_joined_tiles>(cases, "3", true); /* both gradients of the 3×3 by one kernel */
}
