/* SPDX-License-Identifier: Apache-2.0
 * In srun, sbatch and salloc that are called from a job or one of its tasks: what of that one's variables the new step or job must not have. */
#include "plugin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

/* A variable with the text that we give it where its user does not. */
static void drop_ours(const char *name, const char *begin, const char *ours, const char *end)
{
	const char *value = getenv(name);
	char text[2048];

	snprintf(text, sizeof text, "%s%s%s", begin, ours ? ours : "", end);
	if (ours && value && !strcmp(value, text))
		unsetenv(name);
}

/* Slurm from 26.05 on writes the number of salloc's own shell as -6, before as 4294967290. */
static uint32_t own_step(void)
{
	const char *id = getenv("SLURM_STEP_ID");

	return id ? (uint32_t)strtoul(id, NULL, 10) : NO_VAL;
}

bool client_is_in_step(void)
{
	return own_step() < SLURM_MAX_NORMAL_STEP_ID;
}

/* By these srun asks for what the job was given that it is in; Slurm hands them on to a job that is submitted or asked for there, whose sruns
 * would ask for the other one's GPUs. */
static void drop_words_of_job(void)
{
	static const char *const words[] = { "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK",
		"SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_TRES", "SLURM_CPUS_PER_GPU", "SLURM_MEM_PER_GPU" };

	for (size_t i = 0; getenv("SLURM_JOB_ID") && i < sizeof words / sizeof *words; i++)
		unsetenv(words[i]);
}

/* Slurm takes none of this from a step or a job that is started here: not all of it where GPUs are, nothing on a node without gres/gpu. */
static void drop_gpus_of_node(bool steps, bool gpus_of_node)
{
	unsetenv("SLURM_STEP_GPUS");
	unsetenv("SLURM_SHARDS_ON_NODE");
	if (steps)
		return;
	drop_words_of_job();
	client_drop_mpi_of_shell(); /* whose number a batch script of 26.05 no longer has */
	if (client_is_in_step())
		unsetenv("SLURM_STEP_ID");
	unsetenv("SLURM_JOB_GPUS");
	unsetenv("SLURM_GPUS_ON_NODE");
	/* what salloc starts runs on this node */
	if (gpus_of_node && strcmp(program_invocation_short_name, "salloc"))
		unsetenv("CUDA_VISIBLE_DEVICES");
}

/* The step's keys of --hvd, unless the task has changed them, and what srun made of them. */
static void drop_keys(void)
{
	const char *given = getenv(KEYS_VARIABLE), *on_death = getenv("HVD_ON_DEATH");
	char *keys = strdup(given ? given : ""), *rest = NULL;

	if ((on_death && !strcmp(on_death, "continue")) || (given && strstr(given, "HVD_ON_DEATH=continue"))) {
		drop_ours("SLURM_KILL_BAD_EXIT", "", "0", "");
		drop_ours("SLURM_NO_KILL", "", "set", "");
	}
	for (char *key = keys ? strtok_r(keys, ",", &rest) : NULL; key; key = strtok_r(NULL, ",", &rest)) {
		const size_t length = strcspn(key, "=");
		const char *value = key[length] ? key + length + 1 : "";
		key[length] = '\0';
		drop_ours(key, "", value, "");
	}
	free(keys);
	unsetenv(KEYS_VARIABLE);
}

bool client_drop_inherited(bool steps)
{
	static const char *const placement[] = { "HVD_GPU", "HVD_CPUS", "HVD_NUMA", "HVD_NIC", "HVD_POLICY", "HVD_THREADS" };
	const bool gpus_of_node = getenv("SLURM_JOB_GPUS") || getenv("SLURM_STEP_GPUS");

	unsetenv(STEP_VARIABLE);
	drop_gpus_of_node(steps, gpus_of_node);
	if (!getenv("HVD_POLICY")) /* elsewhere HVD_THREADS is the user's */
		return gpus_of_node;
	if (steps && gpus_of_node)
		unsetenv("CUDA_VISIBLE_DEVICES");
	drop_keys();
	drop_ours("OMP_NUM_THREADS", "", getenv("HVD_THREADS"), "");
	drop_ours("NCCL_IB_HCA", "=", getenv("HVD_NIC"), "");
	for (char port[] = ":1"; port[1] <= '4'; port[1]++)
		drop_ours("UCX_NET_DEVICES", "", getenv("HVD_NIC"), port);
	for (size_t i = 0; i < sizeof placement / sizeof *placement; i++)
		unsetenv(placement[i]);
	return gpus_of_node;
}

void client_drop_mpi_of_shell(void)
{
	const char *mpi = getenv("SLURM_MPI_TYPE");

	if (mpi && !strcmp(mpi, "none") && own_step() == SLURM_INTERACTIVE_STEP)
		unsetenv("SLURM_MPI_TYPE");
}
