#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Which node tasks are on, of three with more cores than GPUs.

load helpers
load placement

setup_file() { cluster_up --nodes 3 --shim --cores 8 --gpus 4; }
teardown_file() { cluster_down; }
teardown() { cluster_logs; }

@test "more cores than GPUs: tasks go to the nodes where their GPUs are, not to the first cores" {
	local words
	for words in "--gpus-per-node=2 --gpu-bind=socket" "--gres=gpu:2" "--gpus-per-node=2 -n4" "--gpus-per-node=2 --ntasks-per-node=2" \
		"--gpus-per-node=2 -m cyclic" "--gpus-per-node=2 --cpus-per-gpu=2" "--gpus-per-node=4 --hvd-bind=gpus-per-task=2"; do
		# shellcheck disable=SC2086
		run in_cluster srun -Q -N2 $words --hvd bash -c "$look"
		tasks_of_nodes '2 2'
	done
	run in_cluster srun -Q -w n1,n2 --gpus-per-node=2 --hvd bash -c "$look"
	tasks_of_nodes '2 2'
	run in_cluster srun -Q -N2 -n6 --gpus-per-node=2 --hvd --hvd-bind=share bash -c "$look"
	tasks_of_nodes '3 3'
	run in_cluster salloc -Q -N2 --gpus-per-node=2 --exclusive srun -Q --hvd bash -c "$look"
	tasks_of_nodes '2 2'
	# of two numbers, Slurm gives a step the one for each node
	run in_cluster salloc -Q -N2 -n4 --gpus=4 --gpus-per-node=2 --exclusive srun -Q -N1 -n2 --hvd bash -c "$look"
	tasks_of_nodes 2
	# a step's part of its job's GPUs, in one number for all nodes: as many on each, which Slurm left to its cores
	run in_cluster salloc -Q -N2 --gpus-per-node=4 --exclusive srun -Q --gpus=4 --hvd bash -c "$look"
	tasks_of_nodes '2 2'
	# a step that a task starts asks for what it names itself
	run in_cluster salloc -Q -N2 --gpus-per-node=4 --exclusive srun -Q --gpus=4 --hvd bash -c 'echo "SLURM_GRES=${SLURM_GRES-}"'
	[ "$(sort -u <<<"$output")" = SLURM_GRES= ]
	run in_cluster salloc -Q -N2 --gres=gpu:4 --cpus-per-gpu=1 srun -Q --gpus=2 --hvd bash -c "$look"
	tasks_of_nodes '1 1'
	run in_cluster salloc -Q -N2 --gpus-per-node=4 --exclusive srun -Q -N1 --gpus=3 --hvd bash -c "$look"
	tasks_of_nodes 3
	without_mpi
	# components inside an ordinary job do not have all its nodes each
	run in_cluster salloc -Q -N2 --gpus-per-node=2 --exclusive srun -Q --gpus-per-node=2 --hvd bash -c "$look" : --gpus-per-node=2 bash -c "$look"
	tasks_of_nodes '2 2'
	run in_cluster srun -Q -N2 --gpus-per-node=2 --hvd bash -c "$look" : -N1 --gpus=1 bash -c "$look"
	[ "$(tasks | wc -l)" -eq 5 ]
}

@test "--hvd-bind=none deals each task a GPU near the CPUs that Slurm gave it" {
	local task host local_rank cpus uuid
	run in_cluster srun -Q -N1 -n4 --gpus=4 --hvd-bind=none bash -c "$look"
	echo "$output"
	[ "$(tasks | cut -d' ' -f5 | sort -u | wc -l)" -eq 4 ]
	# Slurm has dealt the tasks to the sockets in turn, and the first two GPUs are on the first one
	[ "$(tasks | cut -d' ' -f4 | xargs)" = '0 8 1 9' ]
	while read -r task host local_rank cpus uuid; do
		[[ " $(package_cpus "$(gpu_bus "$uuid")") " == *" $cpus "* ]]
	done < <(tasks)
	# where all have the same CPUs, in bus order
	run in_cluster srun -Q -N1 -n4 --gpus=4 --cpu-bind=none --hvd-bind=none bash -c "$look"
	echo "$output"
	[ "$(tasks | cut -d' ' -f5 | sed 's/.*0000//' | xargs)" = "$(tasks | cut -d' ' -f5 | sed 's/.*0000//' | sort | xargs)" ]
	# GPUs that Slurm itself binds stay where only the site wants a binding
	sed -i 's/$/ enable=always hvd-bind=none/' "$CLUSTER/etc/plugstack.conf"
	run in_cluster srun -Q -N1 -n4 --gpus-per-task=1 bash -c "$look"
	sed -i 's/ enable=always hvd-bind=none$//' "$CLUSTER/etc/plugstack.conf"
	echo "$output"
	[ "$(tasks | cut -d' ' -f5 | grep -cx '[0-3]')" -eq 4 ]
}

@test "enable=always leaves no task fewer cores than Slurm gave it" {
	local words stock
	for words in "-n2 -c8 --gpus=2" "-n1 -c12 --gpus=1" "-n4 -c4 --gpus=4" "-n2 --gpus=2 --exclusive"; do
		# shellcheck disable=SC2086
		run in_cluster srun -Q -N1 $words bash -c "$look"
		stock=$(tasks | cut -d' ' -f4)
		sed -i 's/$/ enable=always/' "$CLUSTER/etc/plugstack.conf"
		# shellcheck disable=SC2086
		run in_cluster srun -Q -N1 $words bash -c "$look"
		sed -i 's/ enable=always$//' "$CLUSTER/etc/plugstack.conf"
		echo "$words: Slurm alone $(xargs <<<"$stock"), then"$'\n'"$output"
		[ "$(grep -c '^task ' <<<"$output")" -eq "$(wc -l <<<"$output")" ]
		[ -z "$(tasks | cut -d' ' -f5 | grep -v '^GPU-[^,]*$')" ]
		case $words in
		# the GPUs are on the first socket, which has half of the step's cores
		*-c8* | *-c12*) [ "$(tasks | cut -d' ' -f4)" = "$stock" ] ;;
		*) tasks_are_near_their_gpus "$(wc -l <<<"$stock")" ;;
		esac
	done
}

@test "more cores than sockets, no GPUs: as many tasks on a node as it has sockets" {
	run in_cluster srun -Q -N2 --hvd bash -c "$look"
	tasks_of_nodes '2 2'
}

@test "tasks that do not fit the nodes' GPUs are refused with words that help" {
	run in_cluster srun -Q -N2 -n4 --gpus-per-node=2 --gpu-bind=socket bash -c "$look"
	echo "$output"
	[ "$status" -ne 0 ]
	grep -qx 'hvd: n[123]: 3 tasks but 2 GPUs on this node: type --ntasks-per-node=2 if all nodes have 2 GPUs, or --hvd-bind=share' <<<"$output"
	run in_cluster srun -Q -N2 -n4 --gpus-per-node=2 --gpu-bind=socket --ntasks-per-node=2 bash -c "$look"
	tasks_of_nodes '2 2'
	# also where nobody says how many nodes there are
	run in_cluster srun -Q --gpus=8 --hvd true
	echo "$output"
	[ "$status" -eq 0 ] || [ "$(sed -n 's/^hvd: n[123]: [1-3] tasks* but 4 GPUs on this node: \(type .*\)/\1/p' <<<"$output" | sort -u)" = 'type --ntasks-per-node=4' ]
	run in_cluster srun -Q --gpus=8 --hvd --ntasks-per-node=4 bash -c "$look"
	tasks_of_nodes '4 4'
	run in_cluster salloc -Q -N2 --gpus-per-node=2 --exclusive srun -Q -n8 --gpu-bind=socket true
	grep -q 'hvd: n.: . tasks but 2 GPUs on this node: type -n 4 --ntasks-per-node=2 if all nodes have 2 GPUs, else submit' <<<"$output"
	run in_cluster salloc -Q -N2 --gpus-per-node=2 --exclusive srun -Q -n4 --ntasks-per-node=2 --gpu-bind=socket bash -c "$look"
	tasks_of_nodes '2 2'
	# GPUs that come with CPUs do not follow the tasks: all nodes say the same, and it helps
	run in_cluster srun -Q -N2 --gpus=4 --cpus-per-gpu=2 --hvd bash -c "$look"
	echo "$output"
	if [ "$(tasks | wc -l)" -ne 4 ]; then # in Slurm 23.11 they do
		[ "$(sed -n 's/^hvd: n.: 2 tasks but . GPUs* on this node: type -m plane=3, or \(type [^,]*\).*/\1/p' <<<"$output" | sort -u)" = 'type --gpus-per-node=2 --ntasks-per-node=2 if all nodes have 2 GPUs' ]
		run in_cluster srun -Q -N2 --gpus=4 --cpus-per-gpu=2 --hvd -m plane=3 bash -c "$look"
		tasks_of_nodes '3 1'
	fi
	run in_cluster salloc -Q -N2 --gpus=4 --exclusive srun -Q --hvd bash -c "$look"
	echo "$output"
	[ "$(sed -n 's/^hvd: n.: 2 tasks but . GPUs* on this node: type -m plane=3, or \(submit [^,]*\).*/\1/p' <<<"$output" | sort -u)" = 'submit the job with --gpus-per-node=2 --ntasks-per-node=2 if all nodes have 2 GPUs' ]
	run in_cluster salloc -Q -N2 --gpus=4 --exclusive srun -Q --hvd -m plane=3 bash -c "$look"
	tasks_of_nodes '3 1'
	# of a number for all nodes of the job, a step on one of them has a part
	run in_cluster salloc -Q -N2 --gpus=4 --exclusive srun -Q -N1 --hvd true
	[ "$status" -eq 64 ]
	[ "$output" = "hvd: this job's 4 GPUs are on 2 nodes, and this step on 1: type --gpus=N, too" ]
	run in_cluster salloc -Q -N2 --gpus=4 --exclusive srun -Q -N1 --hvd --gpus=1 bash -c "$look"
	tasks_of_nodes 1
	run in_cluster salloc -Q -N2 --gpus=4 --exclusive env SLURM_GPUS=1 srun -Q -N1 --hvd bash -c "$look"
	tasks_of_nodes 1
	# of three nodes that differ, tasks go where each is told to go
	# shellcheck disable=SC2016 # for the job's shell
	run in_cluster salloc -Q -N3 --gpus=5 --exclusive bash -c 'srun -Q --hvd true
		nodes=$(srun -Q -n3 bash -c "tr , \\\\n <<<\$CUDA_VISIBLE_DEVICES | sed s/.*/\$SLURMD_NODENAME/" | paste -sd,)
		srun -Q --hvd -m arbitrary -w $nodes bash -c "$0"' "$look"
	echo "$output"
	[ "$(grep -c "^hvd: n.: . tasks\? but . GPUs\? on this node: type .*, else -m arbitrary -w with each node's name once for each of its GPUs" <<<"$output")" -ge 1 ]
	[ "$(tasks | wc -l)" -eq 5 ]
	# nor where CPUs come with tasks, which then are where the CPUs are
	run in_cluster srun -Q -N2 --gpus=6 --hvd bash -c "$look"
	echo "$output"
	if [ "$(tasks | wc -l)" -ne 6 ]; then
		[ "$(sed -n 's/^hvd: n.: .* on this node: type --cpus-per-gpu=1, or \(type [^,]*\).*/\1/p' <<<"$output" | sort -u)" = 'type --gpus-per-node=3 --ntasks-per-node=3 if all nodes have 3 GPUs' ]
		run in_cluster srun -Q -N2 --gpus=6 --hvd --gpus-per-node=3 --ntasks-per-node=3 bash -c "$look"
		tasks_of_nodes '3 3'
		run in_cluster srun -Q -N2 --gpus=6 --cpus-per-gpu=1 --hvd bash -c "$look"
		[ "$(tasks | wc -l)" -eq 6 ]
	fi
	run in_cluster srun -Q -N2 --gpus-per-node=2 --ntasks-per-node=2 --cpus-per-gpu=2 --hvd bash -c "$look"
	tasks_of_nodes '2 2'
}
