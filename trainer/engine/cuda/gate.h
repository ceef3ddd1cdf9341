/* SPDX-License-Identifier: Apache-2.0
 * Whether a step whose gradients are reduced is made: decided once, by one thread on the device, before any weight is touched. The stop
 * word lies in the host's memory: if every block of the update asked for it, they would wait for the bus, and it may be set when some
 * have asked and others have not, which would leave weights of two steps. */
#ifndef CUDA_GATE_H
#define CUDA_GATE_H

#include <cstdint>

struct step_gate {
	int closed;      /* this step changes nothing: a rank was lost, or its gradients overflowed */
	uint64_t passed; /* steps that no stop word held up, since the engine was told its step */
};

#endif
