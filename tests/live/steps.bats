#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Steps as sites and users have them beside the plain one: suspended by turns, several at a time on one node, queued again, of several programs.

load helpers

setup_file() {
	mkdir -p "$SCRATCH.conf"
	printf '%s\n' PreemptType=preempt/partition_prio PreemptMode=SUSPEND,GANG SchedulerTimeSlice=5 \
		'PartitionName=slices Nodes=ALL OverSubscribe=FORCE:2' 'PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=30' \
		'PartitionName=high Nodes=ALL PriorityTier=9 PreemptMode=OFF' >"$SCRATCH.conf/conf"
	export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 # slurmd's LD_PRELOAD is its tasks', too
	cluster_up --shim --cores 4 --gpus 4 --conf "$SCRATCH.conf/conf"
	rm -r "$SCRATCH.conf"
	export EXAMPLES=$BUILD/examples SHOW=$SCRATCH/show
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/bash' 'echo "task $SLURM_PROCID of $SLURM_STEP_NUM_TASKS: $(hostname) ${CUDA_VISIBLE_DEVICES-none} ${HVD_CPUS-all}"' >"$SHOW"
	chmod 755 "$SHOW"
}
teardown_file() { cluster_down; }
teardown() { cluster_logs; }

# how many different GPUs the tasks of the output have, by node and name
gpus() { grep -o '^task.*: n[0-9]* GPU-[0-9a-f-]*' <<<"$output" | cut -d: -f2 | sort -u | wc -l; }

world_is() { [ "$(in_cluster squeue -h -o %T --name world)" = "$1" ]; }
more_steps() { [ "$(grep -c '^step' "$SCRATCH/world.out")" -gt "$1" ]; } # THAN

@test "a world that takes turns with another job (PreemptMode=SUSPEND,GANG), longer than the deadline: nobody is called dead" {
	need_pmix
	local before
	in_cluster srun -Q -p slices -J world -N2 -n4 -c4 --hvd=deadline=2 "$EXAMPLES/gradients" 100000000 0 >"$SCRATCH/world.out" 2>&1 3>&- &
	wait_for 20 more_steps 0
	in_cluster sbatch -Q -p slices -J other -N2 -n4 -c4 -o /dev/null --wrap "sleep 1000"
	for _ in 1 2; do
		wait_for 30 world_is SUSPENDED
		before=$(grep -c '^step' "$SCRATCH/world.out")
		wait_for 30 world_is RUNNING
		wait_for 20 more_steps "$before"
	done
	run grep 'lost\|died\|error' "$SCRATCH/world.out"
	in_cluster scancel -n world
	in_cluster scancel -n other
	wait
	echo "$output"
	[ -z "$output" ]
	wait_for 20 queue_is_empty
}

@test "two steps at a time on the nodes of one job: each has GPUs and cores of its own" {
	# shellcheck disable=SC2016
	run in_cluster salloc -Q -N2 --gpus-per-node=4 --exclusive bash -c '
		for step in 1 2; do srun -Q --exact -n4 -c2 --ntasks-per-node=2 --gpus-per-node=2 --hvd bash -c "\$0; sleep 2" "$0" & done; wait' "$SHOW"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c '^task . of 4: n[12] GPU-' <<<"$output")" -eq 8 ]
	[ "$(gpus)" -eq 8 ]
	if [ -z "${WITHOUT_PMIX-}" ]; then
		# shellcheck disable=SC2016
		run in_cluster salloc -Q -N2 --gpus-per-node=4 --exclusive bash -c '
			for step in 1 2; do srun -Q --exact -n4 -c1 --ntasks-per-node=2 --gpus-per-node=2 --hvd "$0" & done; wait' "$EXAMPLES/mean"
		echo "$output"
		[ "$(grep -c '^rank . of 4, .*: mean 1.500$' <<<"$output")" -eq 8 ]
	fi
}

@test "beside a step that runs: --overlap says that it shares, and a look at the node is no step of the world" {
	# shellcheck disable=SC2016
	run in_cluster salloc -Q -N1 --gpus=4 --exclusive bash -c 'srun -Q --hvd sleep 30 & sleep 1
		srun -Q --overlap --gpus=4 --hvd "$0"; srun -Q --overlap -n1 --gpus=0 "$0"; kill %1; wait' "$SHOW"
	echo "$output"
	[ "$(grep -c '^hvd: --overlap: other steps of this job may be using the same GPUs$' <<<"$output")" -eq 1 ]
	[ "$(grep -c '^task . of 4: n[12] GPU-' <<<"$output")" -eq 4 ]
	grep -q '^task 0 of 1: n[12] none all$' <<<"$output"
}

@test "a heterogeneous job, --hvd for one of its components" {
	without_mpi
	# shellcheck disable=SC2016
	run in_cluster salloc -Q -N1 --gpus=2 -n2 : -N1 -n1 bash -c 'srun -Q --het-group=0 --hvd "$0"; srun -Q --het-group=1 "$0"' "$SHOW"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(gpus)" -eq 2 ]
	[ "$(grep -c '^task . of 2: ' <<<"$output")" -eq 2 ]
	grep -q '^task 0 of 1: n[12] none all$' <<<"$output"
}

@test "--multi-prog, -W and a job that is queued again" {
	printf '%s\n' "0 $SHOW" "1-3 $SHOW" >"$SCRATCH/programs"
	run in_cluster srun -Q -N1 --gpus=4 --hvd --multi-prog "$SCRATCH/programs"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c '^task . of 4: ' <<<"$output")" -eq 4 ]
	[ "$(gpus)" -eq 4 ]
	# shellcheck disable=SC2016
	run in_cluster srun -Q -W 1 -N1 --gpus=2 --hvd bash -c 'if [ "$SLURM_PROCID" = 0 ]; then exit 0; fi; sleep 100; echo survived'
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output != *survived* ]]
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/bash' '#SBATCH -N2 --gpus-per-node=2 --cpus-per-gpu=1 --requeue --open-mode=append' "#SBATCH -o $SCRATCH/again.out" \
		"srun --hvd bash -c '$SHOW; exec sleep \$((\${SLURM_RESTART_COUNT:-0} ? 0 : 100))'" 'echo "ended $? after ${SLURM_RESTART_COUNT:-0}"' >"$SCRATCH/again"
	local job
	job=$(in_cluster sbatch --parsable "$SCRATCH/again")
	wait_for 20 grep -q '^task 3 of 4' "$SCRATCH/again.out"
	in_cluster scontrol requeue "$job"
	wait_for 40 grep -q '^ended 0 after 1$' "$SCRATCH/again.out"
	run cat "$SCRATCH/again.out"
	echo "$output"
	[ "$(gpus)" -eq 4 ]
	[ "$(grep -c '^task . of 4: ' <<<"$output")" -eq 8 ]
}

@test "chexnet.sbatch, preempted by a more important job or queued again by an administrator: it saves, and goes on from there" {
	need_pmix
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	local job count=0 times=0 act
	trains_past() { [ "$(grep -c '"event":"step"' "$SCRATCH/work/run/log.jsonl" 2>/dev/null)" -gt "$1" ]; }
	has_resumed() { [ "$(grep -c '^resumes at step [1-9]' "$SCRATCH/work/job.out")" -eq "$1" ]; }
	mkdir "$SCRATCH/work"
	ln -s "$BUILD/chexnet" "$SCRATCH/work/chexnet"
	job=$(in_cluster sbatch --parsable -D "$SCRATCH/work" -p low --nodes=2 --gpus-per-node=2 --cpus-per-gpu=1 --output=job.out "$TOP/contrib/sbatch/chexnet.sbatch" \
		train --model densenet --blocks 1 --growth 8 --image-size 32 --batch 4 --epochs 1000 --resume auto --output run)
	for act in "srun -Q -p high -N2 -n16 true" "scontrol requeue $job"; do
		wait_for 30 trains_past "$count"
		# shellcheck disable=SC2086
		in_cluster $act
		times=$((times + 1))
		wait_for 60 has_resumed $times
		count=$(grep -c '"event":"step"' "$SCRATCH/work/run/log.jsonl")
	done
	wait_for 30 trains_past "$count"
	in_cluster scancel "$job"
	cat "$SCRATCH/work/job.out"
	[ "$(grep -c '^stopped at step [1-9].*, all saved' "$SCRATCH/work/job.out")" -ge 2 ]
	in_cluster scontrol show job "$job" | grep -q 'Restarts=2 '
}
