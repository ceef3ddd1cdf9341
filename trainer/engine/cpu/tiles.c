/* SPDX-License-Identifier: Apache-2.0
 * Operands of the products on AMX, made of what the element-wise kernels pack. */
#include "engine/cpu/cpu.h"

void cpu_tiles_begin(const struct cpu_engine *e, const struct conv *c)
{
	if (c->tiles)
		e->amx->begin();
}

void cpu_tiles_end(const struct cpu_engine *e, const struct conv *c)
{
	if (c->tiles)
		e->amx->end();
}

struct grads cpu_narrow(const struct cpu_engine *e, const struct conv *c, int pixels, int channels, struct grads packed, struct grads to)
{
	if (!c->tiles)
		return packed;
	e->amx->narrow(pixels, round_up(channels, LANES) / LANES, packed.data, packed.plane, to.data, to.plane);
	return to;
}

/* A row of turned values is read up to a tile's depth behind its last pixel. An odd number of cache lines, so that the 16 rows of a tile
 * do not meet in one set of the cache. */
struct tile_room cpu_tile_room(const struct conv *c, int run, int channels, int pixels, float *at)
{
	if (!c->tiles)
		return (struct tile_room){ 0 };
	int stride = round_up(pixels + AMX_DEPTH - 1, AMX_DEPTH), out = round_up(c->c_out, LANES);
	stride += stride / AMX_DEPTH % 2 ? 0 : AMX_DEPTH;
	size_t pairs = (size_t)round_up(run, AMX_DEPTH) * (size_t)out, turned = (size_t)stride * (size_t)round_up(channels, LANES);
	return (struct tile_room){ (uint16_t *)at, (uint16_t *)at + pairs, (ptrdiff_t)round_up(run, AMX_DEPTH) * LANES, stride, (pairs + turned) / 2 };
}

void cpu_tile_gradient(const struct cpu_engine *e, const struct conv *c, const struct tile_room *room, int run, struct grads gradient)
{
	for (int k = 0; c->tiles && k < round_up(c->c_out, LANES) / LANES; k++)
		e->amx->pair(run, gradient.data + k * gradient.plane, room->pairs + k * room->pairs_plane);
}

void cpu_tile_weights(const struct cpu_engine *e, const struct conv *c, const struct tile_room *room, int run, int taps, const ptrdiff_t *tap, int channels,
                      int pixels, const float *values, ptrdiff_t plane, float *sums, size_t tap_count)
{
	int in = round_up(channels, LANES), out = round_up(c->c_out, LANES);
	for (int k = 0; k < in; k += LANES)
		e->amx->transpose(pixels, values + k / LANES * plane, room->turned + k * room->turned_stride, room->turned_stride);
	for (int o = 0; o < out; o += PANEL)
		for (int k = 0; k < in; k += PANEL)
			for (int t = 0; t < taps; t++)
				e->amx->outer(run, in - k > LANES ? PANEL : LANES, out - o > LANES ? PANEL : LANES,
				              room->turned + k * room->turned_stride + tap[t] / LANES, room->turned_stride, room->pairs + o / LANES * room->pairs_plane,
				              room->pairs_plane, sums + (size_t)t * tap_count + (size_t)k * (size_t)out + o, out);
}
