# SPDX-License-Identifier: Apache-2.0
# A private cluster, and a program whose tasks show what they got, for tests of the words on command lines; loaded after helpers.
# shellcheck shell=bash

setup_file() {
	cluster_up
	export SHOW=$SCRATCH/show
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/bash' \
		'echo "task $SLURM_PROCID of $SLURM_STEP_NUM_TASKS: gpus=${CUDA_VISIBLE_DEVICES-none} mpi=${SLURM_MPI_TYPE-none} policy=${HVD_POLICY-none} args=$*"' >"$SHOW"
	chmod 755 "$SHOW"
}
teardown_file() { cluster_down; }
teardown() { cluster_logs; }

srun() { in_cluster srun -Q "$@"; }

# tasks N: exactly N tasks, in a step of N, each with one GPU, all of them by name
one_gpu_each() {
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c "^task [0-9]* of $1: gpus=GPU-[0-9a-f-]* " <<<"$output")" -eq "$1" ]
	[ "$(grep -c '^task' <<<"$output")" -eq "$1" ]
}

refused() { # TEXT: exit 64 and exactly this line
	echo "$output"
	[ "$status" -eq 64 ]
	[ "$output" = "hvd: $1" ]
}
