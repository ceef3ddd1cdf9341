/* SPDX-License-Identifier: Apache-2.0
 * How the fused kernels of dense layers are cut for which device. */
#ifndef CUDA_FUSED_TILES_H
#define CUDA_FUSED_TILES_H

#include "conv1x1_backward_wgmma.h"
#include "conv3x3_forward_wgmma.h"
#include "conv3x3_joined_wgmma.h"

#include <type_traits>

/* For the 227 KiB of shared memory that a block has on an H100. */
struct large_tiles {
	enum { SIDES_BELOW = 128 }; /* of maps for the 3×3 kernels: their least ROWS */
	typedef conv1x1_forward_shape<128, 3, false> forward_1x1;
	/* Weights that stay in shared memory, where they have room and serve several tiles: streamed beside x they come from the second-level cache again with
	 * every tile, as many bytes as x. */
	typedef conv1x1_forward_shape<128, 3, true> resident_1x1;
	typedef conv1x1_backward_shape<64, 2, 8, true, true, 1, 32> backward_1x1;
	typedef conv3x3_forward_shape<128, 32, 2> forward_3x3;
	typedef conv3x3_data_shape<128, 32, 64> data_3x3;
	typedef conv3x3_weight_shape<128> weight_3x3;
};
/* For an H100's tensor cores (sm_90a). */
struct wgmma_tiles : large_tiles {
	enum { SIDES_BELOW = conv3x3_joined_wgmma_shape::SIDES_BELOW }; /* larger maps have large_tiles */
	typedef conv1x1_forward_shape<128, 5, false, 1, true> forward_1x1; /* of five stages three steps are on their way, of four only two */
	typedef conv1x1_forward_shape<64, 4, true, 1, true> resident_1x1;
	typedef conv1x1_backward_wgmma_shape<3> backward_1x1;
	typedef conv3x3_forward_wgmma_shape forward_3x3;
	typedef conv3x3_joined_wgmma_shape data_3x3, weight_3x3;
};
/* For the 163 KiB on an A100; what needs more than others have is not fused there. */
struct small_tiles {
	enum { SIDES_BELOW = 64 };
	typedef conv1x1_forward_shape<128, 3, false> forward_1x1;
	typedef conv1x1_forward_shape<128, 3, true> resident_1x1;
	typedef conv1x1_backward_shape<32, 3, 8, true, true> backward_1x1;
	typedef conv3x3_forward_shape<64, 32, 4> forward_3x3;
	typedef conv3x3_data_shape<64, 32, 32> data_3x3;
	typedef conv3x3_weight_shape<128> weight_3x3;
};
/* For maps of few pixels, on any device. A step of the 1×1 forward, 64 channels of a tile, takes about as long as its pixels are many, and with few tiles
 * nothing else hides it: half the pixels and half the output channels on four times the multiprocessors. Each tile reads the weights anew and each half of the channels the
 * pixels, which only few tiles can afford. */
struct few_tiles : small_tiles {
	typedef conv1x1_forward_shape<64, 5, false, 1, false, 64> forward_1x1; /* a tile that nothing hides waits for the memory in each step: with five stages only for a quarter of the time */
	typedef forward_1x1 resident_1x1; /* a block has one tile */
	typedef conv3x3_weight_shape<128, 3> weight_3x3; /* a third of the products for each block, and of the sums that it writes */
};
/* The same on an H100: of 1×1 backward, 64 pixels take there 2.0 µs, 32 by mma.sync 2.4 (H200, 2026-11-27, batch 16). Of 1×1 forward each warpgroup takes half of the channels: few_tiles'
 * took 1.25 µs for each 64 channels, one after the other. A block has a multiprocessor to itself: where several kernels wait for each other there is room for two of few_tiles' blocks on
 * one, and a kernel takes as long as its slowest block. */
struct few_wgmma_tiles : few_tiles {
	typedef conv1x1_forward_shape<64, 4, false, 1, true> forward_1x1;
	typedef forward_1x1 resident_1x1;
	typedef wgmma_tiles::backward_1x1 backward_1x1;
};
/* The same with the 3×3 backward of larger maps: fewer blocks, which leave multiprocessors to what is merged beside them. */
struct few_joined_tiles : few_wgmma_tiles {
	enum { SIDES_BELOW = wgmma_tiles::SIDES_BELOW };
	typedef conv3x3_joined_wgmma_shape data_3x3, weight_3x3;
};

/* One kernel makes both gradients of the 3×3. */
template <class tiles> constexpr bool joined_3x3 = std::is_same<typename tiles::data_3x3, typename tiles::weight_3x3>::value;

#endif
