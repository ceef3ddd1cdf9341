/* SPDX-License-Identifier: Apache-2.0
 * A SPANK plugin that stands in for Slurm's AutoDetect=nvml on a node with MIG instances: before the plugin looks, the
 * step's CUDA_VISIBLE_DEVICES becomes the list in $TEST_INSTANCES. */
#include <slurm/spank.h>

SPANK_PLUGIN(mig_list, 1)

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
	char list[4096];
	(void)argc, (void)argv;
	if (spank_remote(spank) == 1 && spank_getenv(spank, "TEST_INSTANCES", list, sizeof list) == ESPANK_SUCCESS)
		spank_setenv(spank, "CUDA_VISIBLE_DEVICES", list, 1);
	return 0;
}
