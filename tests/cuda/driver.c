/* SPDX-License-Identifier: Apache-2.0
 * A CUDA driver that answers, and shows one GPU: as libcuda.so.1 before a chexnet whose CUDA engine is the shim's. */
int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);

int cuInit(unsigned flags)
{
	(void)flags;
	return 0;
}

int cuDeviceGetCount(int *count)
{
	*count = 1;
	return 0;
}
