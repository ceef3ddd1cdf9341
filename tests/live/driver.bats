#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What only the NVIDIA driver knows, in a live step on a machine without one: a stand-in for its library (nvml.c), and a
# second plugin that gives the step the names of MIG instances, as Slurm with AutoDetect=nvml does (mig_list.c).
# Not seen here: a real driver's answers, its time, and instances that CUDA opens (tests/gpu needs a GPU for that).

load helpers
bats_require_minimum_version 1.5.0

setup_file() {
	need_plugin
	mkdir -p "$SCRATCH.so/driver" "$SCRATCH.so/users"
	"${CC:-gcc}" -shared -fPIC -o "$SCRATCH.so/driver/libnvidia-ml.so.1" "$BATS_TEST_DIRNAME/nvml.c"
	"${CC:-gcc}" -shared -fPIC -o "$SCRATCH.so/mig_list.so" "$BATS_TEST_DIRNAME/mig_list.c"
	export NVML_USER=$SCRATCH.so/user NVML_LOG=$SCRATCH.so/log
	: >"$NVML_LOG"
	chmod 666 "$NVML_LOG"
	# where slurmd, and so slurmstepd, look for libraries: root's choice
	LD_LIBRARY_PATH=$SCRATCH.so/driver cluster_up --nodes 1 --expose "$SCRATCH.so"
	sed -i "1i required $SCRATCH.so/mig_list.so" "$CLUSTER/etc/plugstack.conf"
}
teardown_file() {
	cluster_down
	rm -rf "$SCRATCH.so"
}
teardown() { cluster_logs; }

# shellcheck disable=SC2016
look='echo "task $SLURM_LOCALID $(taskset -cp $$ | sed "s/.*: //") $CUDA_VISIBLE_DEVICES $HVD_GPU"'
tasks() { grep '^task ' <<<"$output" | sort; }
one=MIG-15000000-1111-5222-8333-444444444444
other=MIG-1b000000-5555-5666-8777-888888888888

@test "a GPU on which a process outside the step holds memory is named with that process" {
	hvd_cluster node 1 bash -c "echo \$\$ >$NVML_USER.new; mv $NVML_USER.new $NVML_USER; exec sleep 60" 3>&- &
	wait_for 10 test -e "$NVML_USER"
	run in_cluster srun -Q --gpus=2 --hvd true
	echo "$output"
	[ "$status" -eq 0 ]
	grep -qx "hvd: n1: GPU 0000:1b:00.0 already holds memory of sleep (pid $(cat "$NVML_USER"), uid $(id -u), 5.0 GiB)" <<<"$output"
	[ "$(grep -c 'already holds' <<<"$output")" -eq 1 ]
	# placement alone does not ask the driver, unless the user wants to know
	run -0 in_cluster srun -Q -n2 --gpus=2 --hvd-bind=socket true
	[ -z "$output" ]
	run in_cluster srun -Q -n2 --gpus=2 --hvd-bind=socket,verbose true
	grep -q "already holds memory of sleep" <<<"$output"
	hvd_cluster node 1 kill "$(cat "$NVML_USER")"
	rm "$NVML_USER"
	run -0 in_cluster srun -Q --gpus=2 --hvd true
	[ -z "$output" ]
}

@test "the driver's library is opened by the user's processes only" {
	: >"$NVML_LOG"
	run in_cluster --user srun -Q --gpus=2 --hvd true
	[ "$status" -eq 0 ]
	cat "$NVML_LOG"
	[ "$(wc -l <"$NVML_LOG")" -eq 1 ]
	awk '{ exit !($1 == $2 && $2 == $3) }' "$NVML_LOG"
	[ "$(id -u)" != 0 ] || ! grep -q '^0 ' "$NVML_LOG"
}

@test "a library that the user names is not opened" {
	mv "$SCRATCH.so/driver/libnvidia-ml.so.1" "$SCRATCH.so/users/"
	: >"$NVML_LOG"
	run in_cluster env LD_LIBRARY_PATH="$SCRATCH.so/users" srun -Q --gpus=2 --hvd true
	mv "$SCRATCH.so/users/libnvidia-ml.so.1" "$SCRATCH.so/driver/"
	[ "$status" -eq 0 ]
	[ ! -s "$NVML_LOG" ]
}

@test "MIG instances: each task gets one by its name, and the CPUs next to the GPU that it is cut from" {
	run in_cluster env TEST_INSTANCES="$other,$one" srun -Q --gpus=2 --hvd --hvd-bind=verbose bash -c "$look"
	echo "$output"
	[ "$(tasks)" = "task 0 0 $one 0000:15:00.0"$'\n'"task 1 1 $other 0000:1b:00.0" ]
	grep -q "^hvd: rank 1 on n1: GPU $other of 0000:1b:00.0, CPUs 1, " <<<"$output"
}

@test "MIG instances of one GPU: two tasks beside each other" {
	run in_cluster env TEST_INSTANCES="$one,MIG-15000000-2222-5222-8333-444444444444" srun -Q --gpus=2 --hvd bash -c "$look"
	echo "$output"
	[ "$(tasks)" = "task 0 0 $one 0000:15:00.0"$'\n'"task 1 0 MIG-15000000-2222-5222-8333-444444444444 0000:15:00.0" ]
}

@test "MIG instances of one task are kept together, token by token" {
	run in_cluster env TEST_INSTANCES="$other,$one" srun -Q -n1 -c2 --gpus=2 --hvd --hvd-bind=gpus-per-task=2 bash -c "$look"
	echo "$output"
	[ "$(tasks)" = "task 0 0,1 $one,$other 0000:15:00.0,0000:1b:00.0" ]
}

@test "the older names of instances say the GPU; a job with one of them has that one" {
	local uuid
	uuid=$(sed -n 's/^GPU UUID:[ \t]*//p' "$CLUSTER/proc/gpus/0000:1b:00.0/information")
	run in_cluster env TEST_INSTANCES="MIG-$uuid/3/0" srun -Q -n1 -c2 --gpus=1 --hvd bash -c "$look"
	echo "$output"
	[ "$(tasks)" = "task 0 1 MIG-$uuid/3/0 0000:1b:00.0" ]
}

@test "instances of which nobody says where they are keep their names and the step's CPUs" {
	mv "$SCRATCH.so/driver/libnvidia-ml.so.1" "$SCRATCH.so/users/"
	run in_cluster env TEST_INSTANCES="$other,$one" srun -Q --gpus=2 --hvd bash -c "$look"
	mv "$SCRATCH.so/users/libnvidia-ml.so.1" "$SCRATCH.so/driver/"
	echo "$output"
	[ "$(tasks)" = "task 0 0,1 $other $other"$'\n'"task 1 0,1 $one $one" ]
}

@test "a name that the driver does not know is refused with it" {
	run in_cluster env TEST_INSTANCES=GPU-deadbeef,$one srun -Q --gpus=2 --hvd true
	echo "$output"
	[ "$status" -eq 70 ]
	grep -q "hvd: n1: the step has GPU 'GPU-deadbeef', which this node's driver does not show" <<<"$output"
}
