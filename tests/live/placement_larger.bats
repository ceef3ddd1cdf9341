#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Where tasks really are on nodes of two sockets with four cores of two threads and four GPUs, numbered in turn.

load helpers
load placement

setup_file() { cluster_up --shim --cores 4 --threads 2 --gpus 4 --gpu-order interleave --core-order interleave; }
teardown_file() { cluster_down; }
teardown() { cluster_logs; }

@test "larger nodes, GPUs and cores interleaved over the sockets" {
	run in_cluster srun -Q -N2 --exclusive --gpus-per-node=4 --gpu-bind=socket --hvd bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 8
	run in_cluster srun -Q -N1 --exclusive --gpus=4 --hvd --hvd-bind=gpu bash -c "$look"
	echo "$output"
	# shares of the nearest cores are disjoint and make up the node
	[ "$(cpu_numbers "$(tasks | cut -d' ' -f4 | paste -sd,)")" = "$(seq 0 15 | tr '\n' ' ')" ]
	[ -z "$(for cpus in $(tasks | cut -d' ' -f4); do cpu_numbers "$cpus" | xargs -n1; done | sort | uniq -d)" ]
	run in_cluster srun -Q -N1 --exclusive --gpus=4 --hvd --hvd-bind=socket,smt=off bash -c "$look"
	[ "$(cpu_numbers "$(tasks | head -n 1 | cut -d' ' -f4)" | wc -w)" -eq 4 ]
	# the same in Slurm's words
	run in_cluster srun -Q -N1 --exclusive --gpus=4 --threads-per-core=1 --hvd bash -c "$look"
	[ "$(cpu_numbers "$(tasks | head -n 1 | cut -d' ' -f4)" | wc -w)" -eq 4 ]
	run in_cluster srun -Q -N1 --exclusive --gpus=4 --hint=nomultithread --hvd bash -c "$look"
	[ "$(cpu_numbers "$(tasks | head -n 1 | cut -d' ' -f4)" | wc -w)" -eq 4 ]
	run in_cluster srun -Q -N1 --exclusive --gpus=4 --hint=nomultithread --hvd --hvd-bind=smt=on bash -c "$look"
	[ "$(cpu_numbers "$(tasks | head -n 1 | cut -d' ' -f4)" | wc -w)" -eq 8 ]
	# or in the user's shell
	run in_cluster env SLURM_HINT=nomultithread srun -Q -N1 --exclusive --gpus=4 --hvd bash -c "$look"
	[ "$(cpu_numbers "$(tasks | head -n 1 | cut -d' ' -f4)" | wc -w)" -eq 4 ]
	run in_cluster env SLURM_HINT=nomultithread srun -Q -N1 --exclusive --gpus=4 --hvd --hvd-bind=smt=on bash -c "$look"
	[ "$(cpu_numbers "$(tasks | head -n 1 | cut -d' ' -f4)" | wc -w)" -eq 8 ]
	# whose CPUs stay as Slurm set them computes on no more of them
	# shellcheck disable=SC2016
	run in_cluster srun -Q -N1 --exclusive --gpus=2 --hvd --hvd-bind=none bash -c 'echo "task $HVD_THREADS $(taskset -cp $$ | sed "s/.*: //")"'
	echo "$output"
	[ "$(grep -c '^task 1 [0-9]*\(,[0-9]*\)\?$' <<<"$output")" -eq 2 ]
	# what is typed beats what the job was submitted with
	local job typed
	for job in --hint=nomultithread --threads-per-core=1; do
		run in_cluster salloc -Q -N1 -n4 --exclusive --gpus=4 $job srun -Q --hvd bash -c "$look"
		[ "$(cpu_numbers "$(tasks | head -n 1 | cut -d' ' -f4)" | wc -w)" -eq 4 ]
		run in_cluster salloc -Q -N1 -n4 --exclusive --gpus=4 $job srun -Q --hint=multithread --hvd bash -c "$look"
		echo "$job: $output"
		[ "$(cpu_numbers "$(tasks | head -n 1 | cut -d' ' -f4)" | wc -w)" -eq 8 ]
	done
	for typed in --hint=multithread --threads-per-core=2; do
		run in_cluster env SLURM_HINT=nomultithread srun -Q -N1 --exclusive --gpus=4 $typed --hvd bash -c "$look"
		echo "$typed: $output"
		[ "$(cpu_numbers "$(tasks | head -n 1 | cut -d' ' -f4)" | wc -w)" -eq 8 ]
	done
	# also where nobody but the site asked for a binding
	sed -i 's/$/ enable=always/' "$CLUSTER/etc/plugstack.conf"
	for typed in --hint=nomultithread --threads-per-core=1 --threads-per-core=2; do
		run in_cluster srun -Q -N1 -n4 --exclusive --gpus=4 $typed bash -c "$look"
		echo "$typed: $output"
		[ "$(cpu_numbers "$(tasks | head -n 1 | cut -d' ' -f4)" | wc -w)" -eq "$([[ $typed != *=2 ]]; echo $((4 + 4 * $?)))" ]
		[ -z "$(tasks | cut -d' ' -f5 | grep -v '^GPU-[^,]*$')" ]
	done
	sed -i 's/ enable=always$//' "$CLUSTER/etc/plugstack.conf"
}

@test "share: two tasks on each GPU, each on its socket" {
	run in_cluster srun -Q -N1 -n8 --exclusive --gpus=4 --hvd --hvd-bind=share bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 8 shared
	[ "$(tasks | cut -d' ' -f5 | sort | uniq -c | awk '{ print $1 }' | xargs)" = '2 2 2 2' ]
}

@test "two jobs on one node keep to their own GPUs and cores" {
	local first cpus
	in_cluster srun -Q -w n1 -n2 -c4 --gpus=2 --hvd bash -c "$look; sleep 2" >"$SCRATCH/first" 3>&- &
	first=$!
	wait_for 15 grep -q '^task' "$SCRATCH/first"
	run in_cluster srun -Q -w n1 -n2 -c4 --gpus=2 --hvd bash -c "$look"
	wait $first
	output+=$'\n'$(cat "$SCRATCH/first")
	echo "$output"
	[ "$(tasks | wc -l)" -eq 4 ]
	[ -z "$(tasks | cut -d' ' -f5 | sort | uniq -d)" ]
	# no CPU belongs to both jobs
	cpus=$(for job in "$(cut -d' ' -f4 "$SCRATCH/first")" "$(tasks | grep -vxFf "$SCRATCH/first" | cut -d' ' -f4)"; do
		cpu_numbers "$(paste -sd, <<<"$job")" | xargs -n1
	done)
	[ "$(sort -n <<<"$cpus" | uniq -d)" = '' ]
	[ "$(wc -l <<<"$cpus")" -eq 16 ]
}

@test "cores that the job has and the step does not: the cure is -c" {
	run in_cluster salloc -Q -N1 --gpus=4 --cpus-per-gpu=4 srun -Q --exact -c1 --gpus=4 --hvd --hvd-bind=gpus-per-task=2 bash -c "$look"
	echo "$output"
	[ "$(grep -c 'no core on the socket.*: the job has more cores than this step, also there: type -c N' <<<"$output")" -eq 1 ]
	run in_cluster salloc -Q -N1 --gpus=4 --cpus-per-gpu=4 srun -Q --exact -c8 --gpus=4 --hvd --hvd-bind=gpus-per-task=2 bash -c "$look"
	echo "$output"
	! grep -q 'no core' <<<"$output" || false
}
