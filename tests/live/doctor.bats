#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chexnet doctor: says that a step is set up right, and what is wrong where it is not.
bats_require_minimum_version 1.5.0
load helpers

setup_file() {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	cluster_up --gpus 2
	need_pmix
	"$BUILD/chexnet" synth --out "$SCRATCH/tree" --images 60 --size 32 >"$SCRATCH/synth.out"
	"$BUILD/chexnet" prepare nih "$SCRATCH/tree" "$SCRATCH/data" --size 32 >>"$SCRATCH/synth.out"
	mkdir "$SCRATCH/writable"
}
teardown_file() { cluster_down; }
teardown() { cluster_logs; }

@test "the literal line: a place a rank, right sums, a step, data and output" {
	run in_cluster srun -Q -N2 --gpus-per-node=2 --gpu-bind=socket --hvd "$BUILD/chexnet" doctor --data "$SCRATCH/data" --output "$SCRATCH/writable"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"ok       world      4 ranks on 2 nodes, back end cpu"* ]]
	[ "$(grep -cE '^ +[0-3] +n[12] +0000:' <<<"$output")" -eq 4 ]
	[[ $output == *"every sum right"* && $output == *"a training step of a small network has loss 0."* ]]
	[[ $output == *"rank 0 on n1 was given "*", and no CUDA driver answers there, nor on 3 other ranks"* ]] # the GPUs of the private cluster are not real
	[[ $output == *"opened and one image decoded on every rank"* && $output == *"can be written to from every rank"* ]]
	[[ $output == *"0 problems, "* ]]
}

@test "two ranks on one GPU and on the same CPUs" {
	run in_cluster srun -Q -O --mpi=pmix -N1 -n2 --cpu-bind=none env CUDA_VISIBLE_DEVICES=GPU-1 "$BUILD/chexnet" doctor
	echo "$output"
	[ "$status" -eq 70 ]
	[[ $output == *"PROBLEM  GPU        ranks 0 and 1 on n1 both have GPU GPU-1: one process per GPU"* ]]
	[[ $output == *"warning  CPUs       ranks 0 and 1 on n1 may both run on CPU "*": srun --hvd --hvd-bind=gpu gives each its own"* ]]
	[[ $output == *"1 problem, "* ]]
	# which the CPU does not need, and so one rank may have one and the other none
	# shellcheck disable=SC2016
	run in_cluster srun -Q -O --mpi=pmix -N1 -n3 --cpu-bind=none bash -c '[ "$SLURM_PROCID" = 0 ] || export CUDA_VISIBLE_DEVICES=GPU-1; exec "$0" doctor --engine cpu' "$BUILD/chexnet"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"ok       GPU        none is used, as --engine says that the CPU computes"* && $output == *"0 problems, "* ]]
	# of several GPUs a rank computes on the first
	# shellcheck disable=SC2016
	run in_cluster srun -Q -O --mpi=pmix -N1 -n2 --cpu-bind=none bash -c 'lists=(GPU-1,GPU-2 GPU-1); CUDA_VISIBLE_DEVICES=${lists[SLURM_PROCID]} exec "$0" doctor' "$BUILD/chexnet"
	[[ $output == *"PROBLEM  GPU        ranks 0 and 1 on n1 both have GPU GPU-1: one process per GPU"* ]]
	# two instances of one GPU are two, and one name may begin as the other
	# shellcheck disable=SC2016
	run in_cluster srun -Q --mpi=pmix -N1 -n2 env HVD_GPU=0000:15:00.0 bash -c 'names=(MIG-1 MIG-12); CUDA_VISIBLE_DEVICES=${names[SLURM_PROCID]} exec "$0" doctor' "$BUILD/chexnet"
	echo "$output"
	[[ $output != *"both have GPU"* ]]
	[ "$(grep -cE '^ +[01] +n1 +MIG-12? ' <<<"$output")" -eq 2 ]
	# on one socket ranks overlap because the policy is socket, as long as there is a CPU for each
	run in_cluster srun -Q --mpi=pmix -N1 -n2 --cpu-bind=none env HVD_POLICY=socket "$BUILD/chexnet" doctor
	echo "$output"
	[[ $output != *"may both run on CPU"* ]]
	[[ $output == *"ok       CPUs       ranks on one socket share its CPUs, as the policy means"* ]]
	run in_cluster srun -Q -N1 -n2 -O --gpus=1 --gpu-bind=socket --hvd --hvd-bind=share "$BUILD/chexnet" doctor
	echo "$output"
	[[ $output == *"warning  CPUs       ranks 0 and 1 on n1 may both run on CPU "*": ask for more CPUs a rank (a larger -c)"* ]]
	run in_cluster srun -Q -O --mpi=pmix -N1 -n2 --cpu-bind=none env HVD_POLICY=gpu "$BUILD/chexnet" doctor
	echo "$output"
	[[ $output == *"warning  CPUs       ranks 0 and 1 on n1 may both run on CPU "*": ask for more CPUs a rank (a larger -c)"* ]]
}

@test "ranks that lie in turn on two nodes" {
	for order in cyclic block; do
		run in_cluster srun -Q -N2 -n3 --mpi=pmix --cpu-bind=none -m $order "$BUILD/chexnet" doctor
		echo "$output"
		[ "$status" -eq 0 ]
		[[ $output == *"warning  world      neighbouring ranks lie on different nodes, so a sum crosses 2 links between nodes instead of 1: srun --distribution=block"* ]] || [ $order = block ]
		[[ $output != *"neighbouring ranks"* ]] || [ $order = cyclic ]
	done
}

@test "GPUs that nothing names: the first one computes, on two ranks of a node as well" {
	[ -x "$BUILD/cuda/chexnet" ] && [ -e "$BUILD/cuda/libcuda.so.1" ] || skip "no stand-in for a GPU"
	step=(srun -Q -O --mpi=pmix -N1 --cpu-bind=none env -u CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH="$BUILD/cuda")
	run in_cluster "${step[@]}" "$BUILD/cuda/chexnet" doctor
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"ok       GPU        named on no rank: the first that a driver shows computes"* && $output == *"cuda: CPU shim"* && $output == *"engine     fp32, the default, leaves"* && $output != *"none on any rank"* ]]
	[ "$(grep -cE '^ +0 +n1 +not named ' <<<"$output")" -eq 1 ]
	run in_cluster srun -n2 "${step[@]:1}" "$BUILD/cuda/chexnet" doctor
	echo "$output"
	[ "$status" -eq 70 ]
	[[ $output == *"PROBLEM  GPU        ranks 0 and 1 on n1 both compute on the first one, as neither HVD_GPU nor CUDA_VISIBLE_DEVICES names theirs: one process per GPU"* ]]
	[[ $output == *"1 problem, "* && $output != *"ok       GPU"* ]]
	run in_cluster srun -n2 "${step[@]:1}" "$BUILD/cuda/chexnet" doctor --engine cpu # which needs none
	echo "$output"
	[[ $output == *"ok       GPU        none on any rank"* && $output == *"0 problems"* ]]
}

@test "HVD_THREADS that is no number of threads is refused, by every command and once" {
	for threads in junk 8x 0 -3 1.5 1e1 99999 99999999999999999999 " "; do
		for command in "doctor" "bench" "predict --weights none image.png"; do
			# shellcheck disable=SC2086
			HVD_THREADS=$threads run --separate-stderr -64 "$BUILD/chexnet" $command
			[ "$stderr" = "chexnet ${command%% *}: HVD_THREADS=$threads: must be a whole number from 1 to 8192; srun --hvd sets it to a task's share of its CPUs" ]
		done
	done
	# shellcheck disable=SC2016
	run --separate-stderr -64 in_cluster srun -Q -O --mpi=pmix -N2 -n4 bash -c '[ "$SLURM_PROCID" != 2 ] || export HVD_THREADS=x; exec "$0" doctor' "$BUILD/chexnet"
	[ "$(grep -c 'chexnet doctor: rank 2 on n2: HVD_THREADS=x: must be a whole number' <<<"$stderr")" = 1 ]
	[ "$(grep -c chexnet <<<"$stderr")" = 1 ]
	for threads in 1 "" +1; do
		HVD_THREADS=$threads run -0 "$BUILD/chexnet" doctor
		[[ $output != *" threads on "* ]]
	done
	# more threads than CPUs make a run crawl
	HVD_THREADS=7 run -0 taskset -c 0 "$BUILD/chexnet" doctor
	[[ $output == *"warning  CPUs       rank 0 on "*" computes with 7 threads on 1 CPU, as HVD_THREADS says"* ]]
	run -0 taskset -c 0 "$BUILD/chexnet" doctor --threads 8
	[[ $output == *" computes with 8 threads on 1 CPU, as --threads says"* ]]
}

@test "data that one node does not have end it with the name and 65" {
	# shellcheck disable=SC2016
	run in_cluster srun -Q -O --mpi=pmix -N2 -n2 bash -c '[ "$SLURM_PROCID" = 0 ] || set -- "$1" "$1.gone"; exec "$0" doctor --data "${2:-$1}"' \
		"$BUILD/chexnet" "$SCRATCH/data"
	echo "$output"
	[ "$status" -eq 65 ]
	[[ $output == *"$SCRATCH/data.gone: no such directory"* ]]
}

@test "the same images with other pixels on one node are found before train refuses them" {
	"$BUILD/chexnet" prepare nih "$SCRATCH/tree" "$SCRATCH/jpeg" --size 32 --format jpeg >>"$SCRATCH/synth.out"
	for command in "doctor" "eval --weights $SCRATCH/none" "train --output $SCRATCH/none"; do
		# shellcheck disable=SC2016,SC2086
		run in_cluster srun -Q -O --mpi=pmix -N2 -n2 bash -c 'data=$1 && [ "$SLURM_PROCID" = 0 ] || data=$2; shift 2; exec "$0" "$@" --data "$data"' \
			"$BUILD/chexnet" "$SCRATCH/data" "$SCRATCH/jpeg" $command
		echo "$output"
		[ "$status" -eq 65 ]
		[[ $output == *"the data set differs between ranks: give every node the same --data, prepared with the same --format"* ]]
	done
	# so is a split that one node lacks
	for split in val test; do
		cp -r "$SCRATCH/data" "$SCRATCH/less-$split"
		rm "$SCRATCH/less-$split/$split"-*
		python3 -c 'import json, sys; m = json.load(open(sys.argv[1])); m["splits"][sys.argv[2]].update(images=0, patients=0, shards=0); json.dump(m, open(sys.argv[1], "w"))' \
			"$SCRATCH/less-$split/manifest.json" $split
		for command in "doctor" "train --output $SCRATCH/none"; do
			# shellcheck disable=SC2016,SC2086
			run in_cluster srun -Q -O --mpi=pmix -N2 -n2 bash -c 'data=$1 && [ "$SLURM_PROCID" = 0 ] || data=$2; shift 2; exec "$0" "$@" --data "$data"' \
				"$BUILD/chexnet" "$SCRATCH/data" "$SCRATCH/less-$split" $command
			echo "$output"
			[ "$status" -eq 65 ]
			[[ $output == *"the data set differs between ranks: "* ]]
		done
	done
}
