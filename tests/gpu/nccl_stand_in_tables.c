/* SPDX-License-Identifier: Apache-2.0
 * libhvd's tables of the CUDA driver's and NCCL's functions, filled with nccl_stand_in.cpp's. Linked with --wrap. */
#include "runtime/nccl_api.h"

void *stand_in_function(const char *name);
int __wrap_driver_bind(struct driver *cu, char why[WHY_BYTES]);
int __wrap_nccl_bind(struct api *nc, char why[WHY_BYTES]);

int __wrap_driver_bind(struct driver *cu, char why[WHY_BYTES])
{
	static const char *const names[] = { DRIVER_FUNCTIONS(LIBRARY_NAME) "cuEventElapsedTime" };
	void **slot = (void *)cu;
	(void)why;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		slot[i] = stand_in_function(names[i]);
	return 0;
}

int __wrap_nccl_bind(struct api *nc, char why[WHY_BYTES])
{
	static const char *const names[] = { NCCL_FUNCTIONS(LIBRARY_NAME) "ncclCommInitRankScalable", "ncclCommRevoke", "ncclCommShrink" };
	void **slot = (void *)nc;
	(void)why;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		slot[i] = stand_in_function(names[i]);
	return 0;
}
