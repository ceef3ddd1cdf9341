#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Whatever a refusal or a warning says to type is typed: it has to help, whatever else stands on the line or in the job.

load helpers

setup_file() { cluster_up --nodes 3 --shim --cores 4 --gpus 4; }
teardown_file() { cluster_down; }
teardown() { cluster_logs; }

advice_helps() { # LEAST: lines of stdin, with so many cures in them; fewer with newer releases of Slurm, which need fewer
	run in_cluster env SLURM_MPI_TYPE=none python3 "$BATS_TEST_DIRNAME/advice.py"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ ${lines[-1]} =~ ^([0-9]+)" cures typed, 0 wrong"$ ]]
	[ "${BASH_REMATCH[1]}" -ge "$1" ]
}

@test "beside --ntasks-per-socket, -core, -gpu and -node" {
	local how gpus tasks
	for how in --hvd --gpu-bind=socket; do
		for gpus in "-N2 --gpus-per-node=4" "-N2 --gpus=8" "-N1 --gpus=4" "--gpus=4" "-N2 --gpus-per-node=2"; do
			for tasks in -n4 --ntasks-per-node=2 --ntasks-per-socket=1 --ntasks-per-core=1 --ntasks-per-gpu=1; do
				echo "$gpus $tasks $how"
			done
		done
		[ "$how" != --hvd ] || echo "-N2 --gpus=6 -n4 --hvd"
		echo "-N2 --gpus-per-node=4 -n2 --ntasks-per-core=1 $how"
		echo "-N2 --gpus=8 -n6 --ntasks-per-socket=2 $how"
	done >"$SCRATCH/lines"
	advice_helps 40 <"$SCRATCH/lines"
}

@test "in jobs that were asked for with tasks of each GPU, socket or task" {
	advice_helps 4 <<-'E'
	-N2 --gpus-per-node=4 --cpus-per-gpu=1 --ntasks-per-gpu=1 | --hvd -n4
	-N2 --gpus-per-node=4 --cpus-per-gpu=1 --ntasks-per-gpu=1 | --gpu-bind=socket -n4
	-N2 --gpus-per-node=4 --cpus-per-gpu=1 --ntasks-per-gpu=1 | --gpu-bind=socket -n6 --ntasks-per-socket=2
	-N2 --gpus-per-node=4 --exclusive | SLURM_NTASKS_PER_GPU=1 --gpu-bind=socket -n4
	-N2 --gpus-per-node=4 --exclusive | --hvd --ntasks-per-socket=1
	-N2 --gpus-per-node=4 --ntasks-per-socket=2 | --hvd
	-N2 --gpus-per-node=4 --ntasks-per-socket=2 | --gpu-bind=socket -n2
	-N2 -n4 --gpus-per-task=1 | --hvd -n8
	-N2 --gpus=4 --exclusive | --gpu-bind=socket -n2
	E
}

@test "beside --gres, in place of which another one has to stand" {
	advice_helps 8 <<-'E'
	-N2 --gres=gpu:4 -n4 --hvd
	-N1 --gres=gpu:4 -n2 --hvd
	-N2 --gres=gpu:2 -n8 --gpu-bind=socket
	-N2 --gres=gpu:2 --exclusive | --gpu-bind=socket -n8
	-N2 --gres=gpu:2 --exclusive | --gres=gpu:2 --gpu-bind=socket -n8
	-N2 --gpus-per-node=4 --exclusive | --gres=gpu:2 --hvd -n2
	E
}

@test "GPUs asked for in one number for all nodes follow a number of tasks for each" {
	advice_helps 0 <<-'E'
	--gpus=4 --ntasks-per-node=2 --hvd
	-N2 --gpus=4 --ntasks-per-node=2 --hvd
	-N2 --gpus=4 --ntasks-per-node=1 --hvd --hvd-bind=gpus-per-task=2
	E
	[ "${lines[-1]}" = "0 cures typed, 0 wrong" ]
}
