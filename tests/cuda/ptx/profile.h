/* SPDX-License-Identifier: Apache-2.0
 * What a kernel asks of a GPU, counted: with PTX_PROFILE=FILE in the environment, one line of JSON a kernel when the program ends. Counts, not
 * times: they say where the bytes go and what is not coalesced, before there is a GPU to say how long it takes. */
#ifndef TESTS_PTX_PROFILE_H
#define TESTS_PTX_PROFILE_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace ptx {

struct counts {
	uint64_t launches, blocks, instructions /* of warps, in PTX, without moves */, products /* mma */, group_products /* wgmma, as many mma */;
	/* Shared memory: a wavefront serves every bank once; `least`: as many as there were without two words of one bank. */
	uint64_t wavefronts, least;
	/* Global memory, in sectors of 32 bytes: as requests of warps ask for them, and each once a launch. */
	uint64_t sectors, sectors_read, sectors_written;
	uint64_t bytes; /* of all lanes' reads and writes */
};

/* NULL: nobody wants to know. The kernel that runs now, or one of the library's calls. */
counts *profile_of(const std::string &name);
/* Adds one request of a warp. addresses[lanes]: where each lane that takes part begins, `bytes` of each. */
void count_shared(counts &c, const uint64_t *addresses, int lanes, size_t bytes);
void count_global(counts &c, const uint64_t *addresses, int lanes, size_t bytes);

}

#endif
