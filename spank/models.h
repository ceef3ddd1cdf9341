/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SPANK_MODELS_H
#define SPANK_MODELS_H

/* Bandwidth in GB/s of the device memory of a GPU with this model name ("NVIDIA A100-SXM4-80GB", or as the PCI list has
 * it, "GA100 [A100 SXM4 80GB]"), as NVIDIA's data sheets say; 0: not known. Training DenseNet and its like waits for
 * memory, so of two GPUs this tells the slower. */
int model_bandwidth(const char *model);

#endif
