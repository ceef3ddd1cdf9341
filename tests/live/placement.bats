#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Where tasks really are: their own sched_getaffinity and environment, against the machine's description
# (topology.xml and the driver's files), never against what the plugin says about itself.

load helpers
load placement

setup_file() {
	cluster_up
}
teardown_file() { cluster_down; }
teardown() { cluster_logs; }

# The same cluster with other nodes.
cluster_again() {
	hvd_cluster down
	hvd_cluster up --owner "$BATS_ROOT_PID" "$@"
}

# For words of slurm.conf and gres.conf that are read at the start only.
start_slurm_again() {
	local n
	for n in 1 2; do hvd_cluster crash $n; done
	in_cluster sh -c 'pid=$(cat /run/slurm/slurmctld.pid); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done; slurmctld -c'
	for n in 1 2; do hvd_cluster boot $n; done
	wait_for 20 nodes_are_idle 2
}

# The same cluster with GPUs on the first node only; to Slurm the other has none, whatever it shows.
gpus_on_n1_only() {
	cluster_again
	sed -i 's/^\(NodeName=n\)\[1-2\]\( NodeAddr=.*\.\)\[11-12\]\(.*\)\( Gres=.*\)/\11\211\3\4\n\12\212\3/' "$CLUSTER/etc/slurm.conf"
	sed -i 's/^Name=/NodeName=n1 &/' "$CLUSTER/etc/gres.conf"
	start_slurm_again
}

@test "each task has one GPU and the cores of that GPU's socket" {
	run in_cluster srun -Q -N2 --gpus-per-node=2 --gpu-bind=socket --hvd bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 4
}

@test "the same as an ordinary user" {
	run in_cluster --user srun -Q -N2 --gpus-per-node=2 --gpu-bind=socket --hvd bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 4
}

@test "stock Slurm leaves every task with all GPUs: the check above can fail" {
	run in_cluster srun -Q -N2 -n4 --gpus-per-node=2 bash -c "$look"
	echo "$output"
	[ "$(tasks | grep -c ' 0,1$')" -eq 4 ]
}

@test "the same with the plugin as optional" {
	sed -i 's/^required/optional/' "$CLUSTER/etc/plugstack.conf"
	run in_cluster srun -Q -N2 --gpus-per-node=2 --gpu-bind=socket --hvd bash -c "$look"
	sed -i 's/^optional/required/' "$CLUSTER/etc/plugstack.conf"
	echo "$output"
	tasks_are_near_their_gpus 4
}

@test "one task on each node is bound too" {
	run in_cluster srun -Q -N2 --ntasks-per-node=1 --gpus-per-node=1 -c2 --gpu-bind=socket bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 2
}

@test "heterogeneous job: the tasks of each component are near that component's GPUs" {
	without_mpi
	run in_cluster salloc -Q -N1 -n2 --gpus=2 : -N1 -n1 -c2 --gpus=1 srun -Q --het-group=0,1 --hvd --hvd-bind=verbose bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 3
	[ "$(grep -o 'hvd: rank . of its component' <<<"$output" | cut -d' ' -f3 | sort | xargs)" = '0 0 1' ]
	[ "$(tasks | cut -d' ' -f2 | uniq -c | awk '{ print $1 }' | sort | xargs)" = '1 2' ]
	run in_cluster srun -Q -N1 -n1 --gpus=1 --hvd bash -c "$look" : -N1 -n2 --gpus=2 bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 3
}

@test "heterogeneous job: each component has its own --gres" {
	without_mpi
	run in_cluster salloc -Q -N1 -n2 --gres=gpu:2 : -N1 -n1 --gres=gpu:1 srun -Q --het-group=0,1 --hvd bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 3
}

@test "heterogeneous job: each component of #SBATCH lines has its own --gres" {
	without_mpi
	printf '%s\n' '#!/bin/bash' '#SBATCH -Q -N1 --cpus-per-gpu=2 --gres=gpu:1' '#SBATCH hetjob' '#SBATCH -N1 --cpus-per-gpu=1 --gres=gpu:2' \
		"for g in \$1; do srun -Q --het-group=\$g --hvd bash -c '${look//\'/\'\\\'\'}'; done" >"$SCRATCH/job"
	local groups
	for groups in 0=1 1=2 0,1=3; do
		in_cluster sbatch -W -o "$SCRATCH/out" "$SCRATCH/job" "${groups%=*}"
		output=$(cat "$SCRATCH/out")
		echo "$output"
		tasks_are_near_their_gpus "${groups#*=}"
	done
}

@test "heterogeneous job: GPUs that its words bind to tasks stay" {
	without_mpi
	run in_cluster salloc -Q -N1 -n2 --gpus=2 --gpu-bind=map_gpu:1,0 : -N1 -n1 --gpus=1 --gpu-bind=map_gpu:0 srun -Q --het-group=0,1 --hvd bash -c "$look"
	echo "$output"
	[ "$(tasks | cut -d' ' -f3,5)" = $'0 1\n1 0\n0 0' ]
	# of a component that the command does not have, nothing counts; and the command line beats them
	run in_cluster salloc -Q -N1 -n2 --gpus=2 : -N1 -n1 --gpus=1 --gpu-bind=map_gpu:0 srun -Q --hvd bash -c "$look"
	tasks_are_near_their_gpus 2
	run in_cluster salloc -Q -N1 -n2 --gpus=2 --gpu-bind=map_gpu:1,0 : -N1 -n1 --gpus=1 srun -Q --hvd --gpu-bind=socket bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 2
	# one component's binding says nothing of the other's GPUs
	local line='hvd: --gpu-bind differs between the components of one command: start them as separate steps'
	run in_cluster salloc -Q -N1 -n2 --gpus=2 --gpu-bind=map_gpu:1,0 : -N1 -n2 --gpus=2 srun -Q --het-group=0,1 --hvd bash -c "$look"
	echo "$output"
	[ "$status" -eq 64 ]
	[ "$output" = "$line" ]
	run in_cluster srun -Q -N1 -n1 --gpus=1 --hvd true : -N1 -n2 --gpus=2 --gpu-bind=map_gpu:1,0 true
	[ "$status" -eq 64 ]
	[ "$output" = "$line" ]
	# nor does our word of one say anything of another that has its own
	local first second
	for first in socket map_gpu:1,0 none; do
		second=$([ $first = socket ] && echo single:1 || echo socket)
		run in_cluster srun -Q -N1 -n2 --gpus=2 --gpu-bind=$first true : -N1 -n2 --gpus=2 --gpu-bind=$second true
		echo "$first, $second: $output"
		[ "$status" -eq 64 ]
		[ "$output" = "$line" ]
	done
	run in_cluster srun -Q -N1 -n2 --gpus=2 --gpu-bind=socket bash -c "$look" : -N1 -n1 --gpus=1 bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 3
	run in_cluster srun -Q -N1 -n2 --gpus=2 --gpu-bind=map_gpu:1,0 --hvd-bind=socket bash -c "$look" : -N1 -n1 true
	echo "$output"
	[ "$(tasks | cut -d' ' -f3,5)" = $'0 1\n1 0' ]
	# a component without GPUs has nothing to agree on, whatever it says
	run in_cluster srun -Q -N1 -n2 --gpus=2 --gpu-bind=socket bash -c "$look" : -N1 -n1 --gpu-bind=closest true
	echo "$output"
	tasks_are_near_their_gpus 2
	run in_cluster srun -Q -N1 -n1 --gpu-bind=closest true : -N1 -n2 --gpus=2 --gpu-bind=socket bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 2
	run in_cluster salloc -Q -N2 -n4 --gres=gpu:2 srun -Q -N1 -n2 --gpu-bind=socket bash -c "$look" : -N1 -n1 --gres=none --gpu-bind=closest true
	echo "$output"
	tasks_are_near_their_gpus 2
}

@test "a task gets the variables of the contract" {
	# shellcheck disable=SC2016
	run in_cluster srun -Q -N1 --gpus=2 --hvd=deadline=7,on_death=continue,trace=/tmp/x \
		bash -c 'env | sed -n "s/^\(HVD_\|OMP_NUM\|CUDA_DEV\)/task $SLURM_LOCALID \1/p"'
	echo "$output"
	[ "$(grep -c '^task . HVD_CPUS=' <<<"$output")" -eq 2 ]
	grep -qx 'task 0 HVD_GPU=0000:15:00.0' <<<"$output"
	grep -qx 'task 1 HVD_GPU=0000:1b:00.0' <<<"$output"
	grep -qx 'task 0 HVD_CPUS=0' <<<"$output"
	grep -qx 'task 1 HVD_CPUS=1' <<<"$output"
	grep -qx 'task 0 HVD_NIC=mlx5_0' <<<"$output"
	grep -qx 'task 1 HVD_NIC=mlx5_1' <<<"$output"
	grep -qx 'task 0 HVD_NUMA=0' <<<"$output"
	grep -qx 'task 0 HVD_THREADS=1' <<<"$output"
	grep -qx 'task 0 HVD_POLICY=socket' <<<"$output"
	grep -qx 'task 0 HVD_DEADLINE=7' <<<"$output"
	grep -qx 'task 0 HVD_ON_DEATH=continue' <<<"$output"
	grep -qx 'task 0 HVD_TRACE=/tmp/x' <<<"$output"
	grep -qx 'task 0 OMP_NUM_THREADS=1' <<<"$output"
	! grep -q CUDA_DEVICE_ORDER <<<"$output" || false
}

@test "OMP_NUM_THREADS of the user stays; indices come with CUDA_DEVICE_ORDER" {
	# shellcheck disable=SC2016
	run in_cluster env OMP_NUM_THREADS=5 srun -Q --gpus=2 --hvd --hvd-bind=ids=index \
		bash -c 'echo "task $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $OMP_NUM_THREADS"'
	[ "$(tasks)" = $'task 0 PCI_BUS_ID 5\ntask 1 PCI_BUS_ID 5' ]
}

@test "verbose: a line per task with rank, host, GPU, CPUs, NUMA node, NIC and reason" {
	run in_cluster srun -Q -N2 --gpus-per-node=2 --hvd --hvd-bind=verbose true
	echo "$output"
	[ "$(grep -c '^hvd: rank ' <<<"$output")" -eq 4 ]
	grep -Eq "^hvd: rank 3 on n2: GPU 0000:1b:00.0 \(GPU-[0-9a-f-]+\), CPUs 1, NUMA 0, NIC mlx5_1, 1 thread: the GPU's socket$" <<<"$output"
}

@test "one task of a partial node gets the GPU next to its core" {
	# the job that waits holds the first core and its GPU
	in_cluster srun -Q -w n1 -n1 -c1 --gpus=1 --hvd bash -c "touch $CLUSTER/home/holds; sleep 30" 3>&- &
	local holder=$!
	wait_for 15 test -e "$CLUSTER/home/holds"
	run in_cluster srun -Q -w n1 -n1 -c1 --gpus=1 --hvd bash -c "$look"
	echo "$output"
	in_cluster scancel --name=bash --state=RUNNING
	wait $holder || true
	rm "$CLUSTER/home/holds"
	tasks_are_near_their_gpus 1
	[ "$(tasks | cut -d' ' -f4)" = 1 ]
}

@test "a core on the wrong socket is told with its cure" {
	run in_cluster srun -Q -N1 -n3 -O --gpus=2 --hvd --hvd-bind=share true
	echo "$output"
	grep -q 'no core on the socket of GPU 0000:1b:00.0.*--cpus-per-gpu=N' <<<"$output"
}

@test "tasks that the user binds far from GPUs are warned of once a node, with the cure" {
	run in_cluster salloc -Q -w n1 --exclusive --gpus=2 srun -Q -n8 -O --cpu-bind=map_cpu:0 --hvd --hvd-bind=share true
	echo "$output"
	[ "$(grep -c 'no core on the socket of GPU' <<<"$output")" -eq 1 ]
	grep -q '^hvd: rank [0-7] and others on n1: no core on the socket of GPU 0000:1b:00.0.*leave out --cpu-bind' <<<"$output"
	# which would not help where the step has no other core
	run in_cluster srun -Q -w n1 -n8 -O --gpus=2 --cpu-bind=map_cpu:0 --hvd --hvd-bind=share true
	echo "$output"
	grep -q '^hvd: rank [0-7] and others on n1: no core on the socket of GPU 0000:1b:00.0.*: give the job more cores' <<<"$output"
}

@test "CPUs follow the user's --gpu-bind, GPUs follow the user's --cpu-bind" {
	run in_cluster srun -Q -w n1 -n2 --gpus=2 --gpu-bind=map_gpu:1,0 --hvd bash -c "$look"
	echo "$output"
	[ "$(tasks)" = $'task n1 0 1 1\ntask n1 1 0 0' ]
	run in_cluster srun -Q -w n1 -n2 --gpus=2 --cpu-bind=map_cpu:1,0 --hvd bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 2
	[ "$(tasks | cut -d' ' -f4 | xargs)" = '1 0' ]
}

@test "memory is preferred on the NUMA nodes of the task's CPUs, not bound to them" {
	[ -e /proc/self/numa_maps ] || skip "this kernel does not show memory policies"
	run in_cluster srun -Q --gpus=2 --hvd bash -c 'echo "task $(cut -d" " -f2,3 /proc/self/numa_maps | sort -u | head -n 1)"'
	echo "$output"
	[[ $(tasks | sort -u) =~ ^task\ prefer(\ \(many\))?:0 ]]
	local words
	for words in "srun --mem-bind=none" "env SLURM_MEM_BIND=none srun"; do
		# shellcheck disable=SC2086
		run in_cluster $words -Q --gpus=2 --hvd bash -c 'echo "task $(cut -d" " -f2 /proc/self/numa_maps | sort -u | head -n 1)"'
		[ "$words: $(tasks | sort -u)" = "$words: task default" ]
	done
}

@test "job arrays and overlapping steps" {
	local words
	for words in "-n2 --gpus=2" "--cpus-per-gpu=1 --gres=gpu:2"; do
		# shellcheck disable=SC2086
		in_cluster sbatch -Q -W --array=0-2 -N1 $words -o "$SCRATCH/array-%a" --wrap "srun -Q --hvd bash -c '${look//\'/\'\\\'\'}; sleep 1'"
		for n in 0 1 2; do
			output=$(cat "$SCRATCH/array-$n")
			echo "$words: $output"
			tasks_are_near_their_gpus 2
		done
	done
	run in_cluster salloc -Q -N1 -n2 --gpus=2 bash -c "for n in 1 2; do srun -Q --overlap --hvd bash -c '${look//\'/\'\\\'\'}; sleep 1' & done; wait"
	echo "$output"
	[ "$(tasks | wc -l)" -eq 4 ]
	[ "$(tasks | sort -u | wc -l)" -eq 2 ]
}

@test "confined devices: tasks share the step's GPUs' device files, and each still sees one GPU" {
	[ "$(id -u)" = 0 ] || skip "control groups need root"
	cluster_again --cgroup v1 || skip "no usable cgroup v1 here"
	# shellcheck disable=SC2016
	run in_cluster srun -Q -N2 --gpus-per-node=2 --hvd bash -c "$look"'; for n in 0 1; do { : <"/dev/nvidia$n"; } 2>&1 | sed "s/.*: /open $n /"; done'
	echo "$output"
	tasks_are_near_their_gpus 4
	# ENXIO is "allowed, but there is no such device"; a denied device would be EPERM
	[ "$(grep -c '^open . No such device or address' <<<"$output")" -eq 8 ]
	run in_cluster srun -Q -w n1 -n2 --gpus=2 --gpu-bind=map_gpu:1,0 --hvd bash -c "$look"
	[ "$(tasks)" = $'task n1 0 1 0\ntask n1 1 0 0' ]
}

@test "srun --exclusive where cores are confined: memory and threads are those of the cores that the step may use" {
	[ "$(id -u)" = 0 ] || skip "control groups need root"
	cluster_again --cgroup v1 || skip "no usable cgroup v1 here"
	local show='echo "task $HVD_CPUS $(taskset -cp $$ | sed "s/.*: //") $HVD_THREADS"'
	run in_cluster srun -Q -w n1 -n1 --exclusive --gpus=2 --hvd --hvd-bind=gpus-per-task=2,verbose bash -c "$show"
	echo "$output"
	[[ $output == *"hvd: n1: srun --exclusive leaves the step 1 of its job's 2 CPUs: type -c 2"* ]]
	[[ $output =~ "CPUs "[01]", " ]] # not 0-1
	[[ $(tasks) =~ ^"task "([01])" "([01])" 1"$ ]]
	[ "${BASH_REMATCH[1]}" = "${BASH_REMATCH[2]}" ]
	run in_cluster srun -Q -w n1 -n1 -c2 --exclusive --gpus=2 --hvd --hvd-bind=gpus-per-task=2 bash -c "$show"
	echo "$output"
	[ "$(tasks)" = 'task 0-1 0,1 1' ]
	[[ $output != *exclusive* ]]
}

@test "devices that Slurm does not confine: the numbers are the node's, and each task still sees its own GPU" {
	[ "$(id -u)" = 0 ] || skip "control groups need root"
	cluster_again --cgroup v1 --constrain-devices no || skip "no usable cgroup v1 here"
	# shellcheck disable=SC2016
	run in_cluster srun -Q -w n1 -n1 --gpus=1 --hvd bash -c "$look"'; for n in 0 1; do { : <"/dev/nvidia$n"; } 2>&1 | sed "s/.*: /open $n /"; done'
	echo "$output"
	tasks_are_near_their_gpus 1
	# the other GPU's file may be opened, too: nothing but the environment tells the task which one is its own
	[ "$(grep -c '^open . No such device or address' <<<"$output")" -eq 2 ]
	run in_cluster srun -Q -w n1 -n2 --gpus=2 --gpu-bind=map_gpu:1,0 --hvd bash -c "$look"
	echo "$output"
	[ "$(tasks)" = $'task n1 0 1 1\ntask n1 1 0 0' ]
}

@test "device numbers in another order than the bus: what tasks may open tells, or plugstack.conf says how Slurm counts" {
	[ "$(id -u)" = 0 ] || skip "control groups need root"
	cluster_again --gpus 4 --inventory minors=3,2,1,0
	run in_cluster srun -Q -N1 -w n1 -n2 --gpus=2 --hvd true
	echo "$output"
	[ "$status" -eq 70 ]
	[ "$(grep '^hvd' <<<"$output")" = 'hvd: n1: GPU 0 is /dev/nvidia3 by bus order, and Slurm may mean another one: hvd-map selfcheck tells which numbers=… plugstack.conf needs' ]
	# all of them are the same ones in any order
	run in_cluster srun -Q -N1 -w n1 -n2 --gpus=4 --hvd --hvd-bind=gpus-per-task=2 bash -c 'echo "task $SLURM_PROCID $HVD_GPU"'
	[ "$(tasks)" = $'task 0 0000:15:00.0,0000:1b:00.0\ntask 1 0000:21:00.0,0000:27:00.0' ]
	cluster_again --cgroup v1 --inventory minors=1,0 || skip "no usable cgroup v1 here"
	local gpu='echo "task $HVD_GPU"; for n in 0 1; do { : <"/dev/nvidia$n"; } 2>&1 | sed "s/.*: /open $n /"; done' numbers order
	for order in "" -r; do
		sort $order -o "$CLUSTER/etc/gres.conf" "$CLUSTER/etc/gres.conf"
		in_cluster scontrol reconfigure
		wait_for 15 nodes_are_idle 2
		run in_cluster srun -Q -w n1 -n1 --gpus=1 --hvd bash -c "$gpu"
		echo "$output"
		[ "$(tasks)" = "task 0000:$(grep -q '^open 1 No such' <<<"$output" && echo 15 || echo 1b):00.0" ]
	done
	for numbers in bus minor; do
		sed -i "s|\( numbers=.*\)*$| numbers=$numbers|" "$CLUSTER/etc/plugstack.conf"
		[ $numbers = bus ] || sort -o "$CLUSTER/etc/gres.conf" "$CLUSTER/etc/gres.conf"
		run "$BUILD/hvd-map" selfcheck --gres "$CLUSTER/etc/gres.conf" --topology "$CLUSTER/topology.xml" --proc "$CLUSTER/proc"
		echo "$output"
		[ "$status" -eq 65 ]
		grep -q "write numbers=$numbers in plugstack.conf" <<<"$output"
		"$BUILD/hvd-map" selfcheck --gres "$CLUSTER/etc/gres.conf" --topology "$CLUSTER/topology.xml" --proc "$CLUSTER/proc" --numbers $numbers
		in_cluster scontrol reconfigure
		wait_for 15 nodes_are_idle 2
		run in_cluster srun -Q -w n1 -n1 --gpus=1 --hvd bash -c "$gpu"
		echo "$output"
		# in 22.05 it is Slurm's first one, in 24.11 the one near the core: either way Slurm's number was understood, not corrected by what may be opened
		[ "$(tasks)" = "task 0000:$(grep -q '^open 1 No such' <<<"$output" && echo 15 || echo 1b):00.0" ]
		[[ $output != *"whatever was said of it"* ]]
		# of one GPU that it may open, the index is 0
		run in_cluster srun -Q -w n1 -n1 --gpus=1 --hvd --hvd-bind=ids=index bash -c 'echo "task $CUDA_VISIBLE_DEVICES"'
		[ "$(tasks)" = 'task 0' ]
	done
}

@test "types in another order in slurm.conf than in gres.conf: tasks get the GPUs that Slurm lets them open" {
	[ "$(id -u)" = 0 ] || skip "control groups need root"
	cluster_again --cgroup v1 || skip "no usable cgroup v1 here"
	local gpu='echo "task $HVD_GPU $HVD_CPUS"; for n in 0 1; do { : <"/dev/nvidia$n"; } 2>&1 | sed "s/.*: /open $n /"; done' type
	sed -i 's/Gres=gpu:2/Gres=gpu:b:1,gpu:a:1/' "$CLUSTER/etc/slurm.conf"
	printf 'Name=gpu Type=%s File=/dev/nvidia%s Cores=%s\n' a 0 0 b 1 1 >"$CLUSTER/etc/gres.conf"
	start_slurm_again
	for type in a b; do
		run in_cluster srun -Q -w n1 --gres=gpu:$type:1 --hvd bash -c "$gpu"
		echo "$output"
		[ "$status" -eq 0 ]
		grep -q "^hvd: n1: GPU 0000:$([ $type = a ] && echo 1b || echo 15):00.0 is not this step's, whatever was said of it" <<<"$output"
		[ "$(tasks)" = "task 0000:$([ $type = a ] && echo '15:00.0 0' || echo '1b:00.0 1')" ]
		grep -q "^open $([ $type = a ] && echo 0 || echo 1) No such device" <<<"$output"
		grep -q "^open $([ $type = a ] && echo 1 || echo 0) Operation not permitted" <<<"$output"
	done
	# a type without a number is one of it, as for Slurm
	local words
	for words in --gpus=b --gpus-per-node=b --gpus-per-task=b:1; do
		run in_cluster srun -Q -w n1 $words --hvd bash -c 'echo "task $SLURM_STEP_NUM_TASKS $HVD_GPU"'
		echo "$words: $output"
		[ "$(tasks)" = 'task 1 0000:1b:00.0' ]
	done
	# of each task it is one only for some releases
	run in_cluster srun -Q -w n1 -n1 --gpus-per-task=b --hvd true
	echo "$output"
	[ "$status" -eq 64 ]
	[[ $output == *"--gpus-per-task=b: "*": type --gpus-per-task=b:1" ]]
}

@test "shards, also those of salloc: Slurm is given no binding, and the GPUs stay" {
	cluster_again
	sed -i 's/Gres=gpu:2/Gres=gpu:2,shard:4/; s/GresTypes=gpu/GresTypes=gpu,shard/' "$CLUSTER/etc/slurm.conf"
	echo 'Name=shard Count=4' >>"$CLUSTER/etc/gres.conf"
	start_slurm_again
	run in_cluster salloc -Q -N1 --gres=gpu:1 srun -vv -n1 --hvd-bind=socket true
	[ "$(grep -c 'gpu-bind  *: none' <<<"$output")" -eq 1 ]
	run in_cluster salloc -Q -N1 --gres=shard:2 srun -vv -n1 --hvd-bind=socket bash -c 'echo "task ${SLURM_SHARDS_ON_NODE-none}"'
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(tasks)" = 'task 2' ]
	[ "$(grep -c 'gpu-bind  *: none' <<<"$output")" -eq 0 ]
	# a job with whole GPUs, submitted by a task that has a shard: the task's variables are none of that job's
	in_cluster srun -Q -w n1 -n1 --gres=shard:1 env -u SLURM_CPU_BIND -u SLURM_CPU_BIND_TYPE -u SLURM_CPU_BIND_LIST \
		sbatch -Q -W -w n2 -n2 --gpus-per-node=2 -o "$SCRATCH/out" --wrap "srun -Q --mpi=none --hvd bash -c '${look//\'/\'\\\'\'}'"
	output=$(cat "$SCRATCH/out")
	echo "$output"
	tasks_are_near_their_gpus 2
	# a job that Slurm does not describe, and one that this srun is not in
	echo 'int slurm_load_job() { return -1; }' | "${CC:-gcc}" -x c -shared -fPIC -o "$CLUSTER/etc/silent.so" -
	run in_cluster salloc -Q -N1 -n2 --gres=shard:2 env LD_PRELOAD="$CLUSTER/etc/silent.so" srun -n2 --hvd-bind=socket bash -c 'echo "task ${SLURM_SHARDS_ON_NODE-none}"'
	echo "$output"
	[ "$(tasks)" = $'task 2\ntask 2' ]
	run in_cluster salloc -Q -N1 -n2 --gres=shard:2 bash -c 'env -u SLURM_JOB_ID srun --jobid="$SLURM_JOB_ID" -n2 --hvd-bind=socket bash -c "echo task \$SLURM_SHARDS_ON_NODE"'
	echo "$output"
	[ "$(tasks)" = $'task 2\ntask 2' ]
	grep -q "^hvd: n[12]: Slurm divides this step's GPUs further (SLURM_SHARDS_ON_NODE): they stay as Slurm gave them to its 2 tasks$" <<<"$output"
}

@test "where Slurm gave the step no GPU, a list that came from elsewhere counts for nothing" {
	without_mpi
	gpus_on_n1_only
	seen() { tasks | awk '{ sub(/-.*/, "", $5); print $2, $3, $5 }'; }
	local words no_gpu='hvd: n2: Slurm gave this step no GPU: CUDA_VISIBLE_DEVICES=0, which is not from Slurm, is not counted'
	# the first node's GPUs, as its batch script knows them
	in_cluster sbatch -Q -W -o "$SCRATCH/out" -w n1 -n2 --gpus-per-node=2 : -w n2 -n2 --wrap "srun -Q --het-group=0,1 --hvd bash -c '${look//\'/\'\\\'\'}'"
	output=$(cat "$SCRATCH/out")
	echo "$output"
	[ "$(seen)" = $'n1 0 GPU\nn1 1 GPU\nn2 0 unset\nn2 1 unset' ]
	[ "$(wc -l <<<"$output")" -eq 4 ]
	# a step's, or a job's, that another job is submitted from: its script and its step
	# (newer Slurm tells the step's tasks of --gpus by a variable that an srun takes for a wish)
	printf '%s\n' '#!/bin/bash' 'unset SLURM_GPUS' "$look" "srun -Q --mpi=none --hvd bash -c '${look//\'/\'\\\'\'}'" >"$SCRATCH/job"
	for words in --hvd --hvd=off; do
		in_cluster srun -Q -w n1 -n1 --gpus=1 $words sbatch -Q -W -o "$SCRATCH/out" -w n2 -n2 "$SCRATCH/job"
		output=$(cat "$SCRATCH/out")
		echo "$output"
		[ "$(seen)" = $'n2 0 unset\nn2 0 unset\nn2 1 unset' ]
		[ "$(wc -l <<<"$output")" -eq 3 ]
	done
	in_cluster sbatch -Q -W -o /dev/null -w n1 -n1 --gres=gpu:1 --wrap "sbatch -Q -W -o $SCRATCH/out -w n2 -n2 $SCRATCH/job"
	output=$(cat "$SCRATCH/out")
	echo "$output"
	[ "$(seen)" = $'n2 0 unset\nn2 0 unset\nn2 1 unset' ]
	# the user's own, which stays in the tasks; the node shows GPUs
	for words in --hvd --hvd-bind=socket '--gpu-bind=closest --hvd-bind=socket'; do
		run in_cluster env CUDA_VISIBLE_DEVICES=0 srun -Q -w n2 -n2 $words bash -c "$look"
		echo "$output"
		[ "$status" -eq 0 ]
		[ "$(seen)" = $'n2 0 0\nn2 1 0' ]
		[ "$(grep -v '^task' <<<"$output")" = "$no_gpu" ]
	done
}

@test "heterogeneous job: a component without GPUs has a task for each socket, also where the first component has GPUs" {
	without_mpi
	gpus_on_n1_only
	printf '%s\n' '#!/bin/bash' "$look" >"$SCRATCH/look"
	chmod 755 "$SCRATCH/look"
	local words
	for words in '--het-group=1' '--het-group=0,1' "$SCRATCH/look :"; do
		in_cluster sbatch -Q -W -o "$SCRATCH/out" -w n1 --gpus-per-node=2 --cpus-per-gpu=1 : -w n2 --exclusive --wrap "srun -Q --hvd $words $SCRATCH/look"
		output=$(cat "$SCRATCH/out")
		echo "$output"
		[ "$(tasks | grep -c ' n2 .* unset$')" -eq 2 ]
		[ "$(tasks | grep -c ' n1 .* GPU-')" -eq "$([ "$words" = --het-group=1 ] && echo 0 || echo 2)" ]
	done
}

@test "GPU numbers and core numbers the other way round: identity would be wrong" {
	cluster_again --gpu-order reverse
	run in_cluster srun -Q -N2 --gpus-per-node=2 --gpu-bind=socket --hvd bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 4
	[ "$(tasks | cut -d' ' -f3,4)" = $'0 1\n1 0\n0 1\n1 0' ]
	# for this word of --cpu-bind Slurm leaves no list of CPUs
	run in_cluster srun -Q -N1 -n2 --gpus=2 --cpu-bind=rank --hvd bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 2
	cluster_again --core-order reverse
	run in_cluster srun -Q -N2 --gpus-per-node=2 --gpu-bind=socket --hvd bash -c "$look"
	echo "$output"
	tasks_are_near_their_gpus 4
	[ "$(tasks | cut -d' ' -f3,4)" = $'0 1\n1 0\n0 1\n1 0' ]
}
