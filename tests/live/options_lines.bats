#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 200 random command lines through the real srun, sbatch and salloc, heterogeneous ones among them: a program is given
# exactly the arguments that stand behind it, whatever they look like, and the options before it are found.
#
#     TEST_LINES=200 SEED=7 tests/run options_lines    other lines, 200 through each of the three

load helpers

setup_file() {
	cluster_up
	export SEED=${SEED:-2026} SHOW=$SCRATCH/show LIMIT=${TEST_LIMIT:-300}
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/bash' 'file=$1; shift' \
		'printf "%q " "${HVD_POLICY-${SLURM_SPANK__SLURM_SPANK_OPTION_hvd_hvd_bind-none}}" "$@" >"$file"' >"$SHOW"
	chmod 755 "$SHOW"
}
teardown_file() { cluster_down; }
teardown() { cluster_logs; }

through() { # CLIENT LINES [COMMAND…]
	local client=$1 count=${TEST_LINES:-$2}
	shift 2
	run in_cluster "$@" bash "$BATS_TEST_DIRNAME/lines.bash" "$client" 0 "$count"
	echo "SEED=$SEED"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${lines[-1]}" = "$count lines, 0 wrong" ]
}

@test "srun: steps of one allocation with two components" {
	without_mpi
	through srun 120 salloc -Q -N1 -n2 --gpus=2 : -N1 -n2 --gpus=2
}

@test "sbatch: jobs and their scripts' arguments" {
	through sbatch 40
}

@test "salloc: jobs and the arguments of its command" {
	through salloc 40
}
