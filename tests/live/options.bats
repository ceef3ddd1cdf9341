#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The words of srun, sbatch and salloc: what is ours, what is Slurm's, what is the application's.

load helpers

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

@test "one task per GPU, however the GPUs are asked for" {
	run srun --gpus=2 --hvd "$SHOW"
	one_gpu_each 2
	run srun -N2 --gpus=4 --hvd "$SHOW"
	one_gpu_each 4
	run srun -N2 --gpus-per-node=2 --hvd "$SHOW"
	one_gpu_each 4
	run srun -n4 --ntasks-per-node=2 --gpus-per-node=2 --hvd "$SHOW" # two nodes, as the two numbers say
	one_gpu_each 4
	run srun -N2 --gres=gpu:2 --hvd "$SHOW"
	one_gpu_each 4
	run srun -n2 --gpus-per-task=1 --hvd "$SHOW"
	one_gpu_each 2
	run srun --exclusive -N2 --gpus-per-node=2 --hvd "$SHOW"
	one_gpu_each 4
	run srun --gpus=2 --ntasks-per-gpu=1 --hvd "$SHOW"
	one_gpu_each 2
	# beside which Slurm takes no number of tasks for each node
	run srun -N2 -n4 --gpus-per-node=2 --ntasks-per-gpu=1 --hvd "$SHOW"
	one_gpu_each 4
	run srun -N2 -n4 --gpus-per-node=2 --ntasks-per-tres=1 --hvd "$SHOW"
	one_gpu_each 4
	run in_cluster salloc -Q -N2 --gpus-per-node=2 --cpus-per-gpu=1 --ntasks-per-gpu=1 srun -Q --hvd "$SHOW"
	one_gpu_each 4
}

@test "without GPUs: one task per socket, or as -n says" {
	need_pmix
	run srun -N2 --hvd "$SHOW"
	[ "$(grep -c '^task . of 4: gpus=none mpi=pmix' <<<"$output")" -eq 4 ]
	run srun -N2 -n2 --hvd "$SHOW"
	[ "$(grep -c '^task . of 2: gpus=none mpi=pmix' <<<"$output")" -eq 2 ]
	# who says nothing of GPUs where there are some may have forgotten them
	run srun --hvd true
	[ "$output" = 'hvd: this asks for no GPU, so its tasks compute on CPUs: for GPUs type --gpus-per-node=N' ]
	run in_cluster salloc -Q -N1 -n2 srun -Q --hvd --ntasks-per-node=2 true
	[ "$output" = '' ]
	run in_cluster salloc -Q -N1 srun -Q --hvd true
	[ "$output" = 'hvd: this job asked for no GPU, so its tasks compute on CPUs: for GPUs add #SBATCH --gpus-per-node=N' ]
	for words in -G0 --gres=none -n2; do
		run srun --hvd $words true
		[ "$output" = '' ]
	done
	# which Slurm refuses; the sockets have nothing to do with it
	run in_cluster salloc -Q -N1 srun -Q --hvd --ntasks-per-gpu=1 true
	echo "$output"
	[[ $output == *'this job asked for no GPU'* && $output != *sockets* ]]
}

@test "without GPUs: sockets, and GPUs to tell of, are those of the partition's nodes" {
	local told='hvd: this asks for no GPU, so its tasks compute on CPUs: for GPUs type --gpus-per-node=N'
	printf '%s\n' 'NodeName=c1 NodeAddr=198.18.0.99 Sockets=1 CPUs=1 State=DOWN' 'PartitionName=cpu Nodes=c1 Default=YES' 'PartitionName=cpu2 Nodes=n1' >"$SCRATCH/parts"
	# shellcheck disable=SC2016
	run hvd_cluster --dir "$SCRATCH/parts.d" run --nodes 1 --conf "$SCRATCH/parts" env SLURM_MPI_TYPE=none bash -c 'srun -Q -p cpu2 --hvd "$0"
		echo cpu:; SLURM_PARTITION=cpu2 srun -p cpu --hvd --test-only "$0"; echo none named:; srun --hvd --test-only "$0"; echo both:; srun -p cpu,cpu2 --hvd --test-only "$0"' "$SHOW"
	echo "$output"
	[ "$(grep -c '^task . of 2: gpus=none' <<<"$output")" -eq 2 ]
	# who names no partition may have forgotten it with the GPUs
	# nodes of one socket and of two have no number of tasks in common
	[ "$(grep '^hvd: \|:$' <<<"$output")" = "$told"$'\ncpu:\nnone named:\n'"$told"$'\nboth:\n'"$told
hvd: no GPU in this step, and how many sockets its nodes have is not known: one task per node" ]
}

@test "refusals carry both numbers, the -n to type, and status 64" {
	run srun -n3 --gpus=2 --hvd "$SHOW"
	refused '3 tasks but 2 GPUs: type -n 2, or --hvd-bind=share'
	run srun -n1 --gpus=2 --hvd "$SHOW"
	refused '1 task but 2 GPUs: type -n 2, -G 1, or --hvd-bind=gpus-per-task=2'
	run srun -N2 --gpus-per-node=2 -n2 --hvd "$SHOW"
	refused '2 tasks but 4 GPUs: type -n 4, --gpus-per-node=1, or --hvd-bind=gpus-per-task=2'
	# however the number was given
	run in_cluster env SLURM_NPROCS=1 srun -Q --gpus=2 --hvd "$SHOW"
	refused '1 task but 2 GPUs: type -n 2, -G 1, or --hvd-bind=gpus-per-task=2'
	run in_cluster env SLURM_NTASKS_PER_NODE=1 srun -Q -N2 --gpus-per-node=2 --hvd "$SHOW"
	refused '2 tasks but 4 GPUs: type -n 4, --gpus-per-node=1, or --hvd-bind=gpus-per-task=2'
	run srun --gpus=1 --hvd --hvd-bind=gpus-per-task=2 "$SHOW"
	refused 'gpus-per-task=2 but 1 GPU'
	# where the job says --hvd, not every step of it is a training
	run in_cluster env SLURM_HVD=backend=cpu srun -Q -n1 --gpus=2 "$SHOW"
	refused '1 task but 2 GPUs: type -n 2, -G 1, or --hvd-bind=gpus-per-task=2, or --hvd=off'
	run in_cluster env SLURM_HVD=backend=cpu srun -Q --gpus=1 --hvd-bind=gpus-per-task=2 "$SHOW"
	refused 'gpus-per-task=2 but 1 GPU: type --hvd=off to do without'
	run srun -N2 --gpus-per-socket=1 --sockets-per-node=2 --hvd "$SHOW"
	refused 'how many GPUs this step has is not known here: type -n N, one task for each GPU'
}

@test "what only the node can count is refused there, with status 64" {
	# three GPUs on two nodes make 2 + 1; three tasks can fall 1 + 2
	# and the tasks of the other node, which would wait for these, end with them
	SECONDS=0
	run srun -N2 -n4 --gpus=3 --gpu-bind=socket sleep 50
	echo "$output"
	[ "$status" -ne 0 ]
	[ "$SECONDS" -lt 40 ]
	grep -q '^hvd: n[12]: 2 tasks but 1 GPU' <<<"$output"
	# also those of another component, which is a job of its own
	SECONDS=0
	run srun -N1 -n3 -O --gpus=2 --gpu-bind=socket sleep 50 : -N1 -n2 --gpus=2 sleep 50
	echo "$output"
	[ "$status" -ne 0 ]
	[ "$SECONDS" -lt 40 ]
	grep -q '^hvd: n[12]: 3 tasks but 2 GPUs' <<<"$output"
	run srun -n3 --gpus=2 -O --gpu-bind=socket true
	[ "$status" -eq 64 ]
	grep -q '^hvd: n[12]: 3 tasks but 2 GPUs on this node: type -n 2, or --hvd-bind=share$' <<<"$output"
}

@test "a task that fails does not end the others: placement is placement only" {
	run srun -N1 -n2 --gpus=2 --gpu-bind=socket bash -c 'if [ "$SLURM_PROCID" = 0 ]; then exit 3; fi; sleep 1; echo survived'
	echo "$output"
	[ "$status" -eq 3 ]
	grep -qx survived <<<"$output"
}

@test "what the line says of GPUs stands for all that the job was given" {
	local words
	for words in --gpus=1 --gres=gpu:1 --gpus-per-task=1; do
		run in_cluster salloc -Q -N2 --gpus-per-node=2 srun -Q -N1 "$words" --hvd "$SHOW"
		one_gpu_each 1
	done
	run in_cluster salloc -Q -N2 --gpus=4 --cpus-per-gpu=1 srun -Q -N1 --gpus-per-node=1 --hvd "$SHOW"
	one_gpu_each 1
	# a component that names none has the job's
	without_mpi
	for words in --gpus-per-node=2 --gres=gpu:2; do
		run in_cluster salloc -Q -N2 $words --cpus-per-gpu=1 srun -Q --gpus=1 --hvd "$SHOW" : "$SHOW"
		one_gpu_each 3
	done
	run in_cluster salloc -Q -N1 -n2 --gpus=2 : -N1 -n2 --gpus-per-node=2 srun -Q --het-group=0 -n1 --gpus=1 --hvd "$SHOW" : --het-group=1 "$SHOW"
	one_gpu_each 3
	# none, also where the job's CPUs came with its GPUs
	for words in --gres=none --gpus=0 --gpus-per-node=0; do
		run in_cluster salloc -Q -N2 --gpus-per-node=2 --cpus-per-gpu=1 srun -Q "$words" -N1 -n1 --hvd bash -c 'echo "${CUDA_VISIBLE_DEVICES-none}"'
		[ "$output" = none ]
		run in_cluster salloc -Q -N1 --gpus-per-node=2 --cpus-per-gpu=1 : -N1 --gpus-per-node=2 --cpus-per-gpu=1 srun -Q --het-group=0,1 "$words" -n1 --hvd bash -c 'echo "${CUDA_VISIBLE_DEVICES-none}"'
		[ "$output" = $'none\nnone' ]
	done
	# of one component alone
	run in_cluster salloc -Q -N2 --gpus-per-node=2 --cpus-per-gpu=1 srun -Q --mpi=none -N1 -n1 --gres=none --hvd "$SHOW" : -N1 -n1 --gpus=1 "$SHOW"
	echo "$output"
	[[ "$output" = *'task 0 of 2: gpus=none '* ]]
	[[ "$output" = *'task 1 of 2: gpus=GPU-'* ]]
	# or whose memory, or tasks, came with them
	for words in '--mem-per-gpu=10 -n2' --ntasks-per-gpu=1 --ntasks-per-tres=1; do
		run in_cluster salloc -Q -N1 --gpus-per-node=2 $words srun -Q --gres=none -n1 --hvd bash -c 'echo "${CUDA_VISIBLE_DEVICES-none}"'
		[ "$output" = none ]
	done
}

@test "GPUs asked for by task alone: a step that leaves some of its job's idle is told the -n for all of them" {
	local told='hvd: this step has 2 GPUs of its job'"'"'s 4: for all of them type -n 4'
	for job in --gpus-per-node=2 --gres=gpu:2 --gpus=4; do
		run in_cluster salloc -Q -N2 --exclusive $job srun -Q --hvd --gpus-per-task=1 "$SHOW"
		echo "$output"
		[ "$(grep -c '^task . of 2: gpus=GPU-[^,]* ' <<<"$output")" -eq 2 ]
		[ "$(grep -v '^task' <<<"$output")" = "$told" ]
	done
	# shellcheck disable=SC2016
	run in_cluster salloc -Q -N2 --exclusive --gpus-per-node=2 bash -c 'for words in "--gpus-per-task=1 -n4" --gpus-per-task=2 "-N1 --gpus-per-task=1" "--gpus-per-task=1 --gpus=2"; do
		srun -Q --hvd $words "$0"; done' "$SHOW"
	echo "$output"
	[ "$(grep -c '^task . of ' <<<"$output")" -eq 9 ]
	[ "$(grep -v '^task' <<<"$output")" = '' ]
}

@test "a node is named once or twice: it is one node" {
	run srun -w n1,n1 --gpus-per-node=2 --hvd "$SHOW"
	one_gpu_each 2
}

@test "nodes that are named in a file are counted" {
	printf '%s\n' n1 '# twice' 'n[1-2]' >"$SCRATCH/hosts"
	local words
	for words in -F -w; do
		run srun $words "$SCRATCH/hosts" --gpus-per-node=2 --hvd "$SHOW"
		one_gpu_each 4
		run srun $words "$SCRATCH/hosts" -n2 --gpus-per-node=2 --hvd "$SHOW"
		refused '2 tasks but 4 GPUs: type -n 4, --gpus-per-node=1, or --hvd-bind=gpus-per-task=2'
		run srun $words "$SCRATCH/none" --gpus-per-node=2 --hvd "$SHOW"
		[ "$status" -eq 64 ]
		grep -q '^hvd: how many GPUs this step has is not known here: type -n N, one task for each GPU$' <<<"$output"
	done
}

@test "share and gpus-per-task allow other numbers" {
	run srun -N1 -n3 -O --gpus=2 --hvd --hvd-bind=share "$SHOW"
	grep -q "^hvd: rank 1 on n[12]: no core on the socket" <<<"$output"
	output=$(grep ^task <<<"$output")
	one_gpu_each 3
	run srun --gpus=2 --hvd --hvd-bind=gpus-per-task=2 "$SHOW"
	[ "$(grep -c '^task 0 of 1: gpus=GPU-[0-9a-f-]*,GPU-[0-9a-f-]* ' <<<"$output")" -eq 1 ]
}

@test "what is asked for in Slurm's words reaches the node: GPUs by task, tasks by GPU, threads by core" {
	run srun -N1 -n1 --gpus-per-task=2 --hvd-bind=socket "$SHOW"
	[ "$(grep -c '^task 0 of 1: gpus=GPU-[0-9a-f-]*,GPU-[0-9a-f-]* ' <<<"$output")" -eq 1 ]
	run srun -N2 -n2 -c2 --gpus-per-task=2 --hvd "$SHOW"
	echo "$output"
	[ "$(grep -c '^task . of 2: gpus=GPU-[0-9a-f-]*,GPU-[0-9a-f-]* ' <<<"$output")" -eq 2 ]
	run srun -N1 --gpus=1 --ntasks-per-gpu=2 --hvd "$SHOW"
	echo "$output"
	output=$(grep ^task <<<"$output")
	one_gpu_each 2
	run srun -n1 --gpus=1 --threads-per-core=1 --hvd-bind=socket bash -c 'echo "$SLURM_HVD_STEP ${HVD_POLICY-none}"'
	[ "$output" = ' socket' ]
	run srun -N1 -n2 --gpus=2 --cpu_bind=map_cpu:1,0 --hvd bash -c 'echo "$SLURM_LOCALID $HVD_CPUS"'
	[ "$(sort <<<"$output")" = $'0 1\n1 0' ]
}

@test "GPUs on the command line stand for those of SLURM_GRES too" {
	local variable
	for variable in SLURM_GRES SLURM_STEP_GRES; do
		run in_cluster salloc -Q -N1 --gpus=2 env $variable=gpu:2 srun -Q --gpus=1 --hvd "$SHOW"
		one_gpu_each 1
	done
	# what stands there beside GPUs stays
	run in_cluster salloc -Q -N1 --gpus=2 env SLURM_TRES_PER_TASK=cpu=1,gres/gpu:2 srun -Q --gpus=1 --hvd bash -c 'echo "$SLURM_TRES_PER_TASK ${CUDA_VISIBLE_DEVICES%%-*}"'
	[ "$output" = 'cpu=1 GPU' ]
}

@test "a thread percentage of the user's own MPS does not keep GPUs from being placed" {
	run in_cluster env CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 srun -Q --gpus=1 --hvd "$SHOW"
	one_gpu_each 1
	run in_cluster env CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 SLURM_STEP_ID=4294967290 srun -Q --gpus=1 --hvd "$SHOW"
	one_gpu_each 1
	# in the job of a batch script, wherever that was submitted
	in_cluster srun -Q -n1 bash -c 'export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50; exec "$@"' bash sbatch -Q -W -n2 --gpus-per-node=2 -o "$SCRATCH/out" --wrap "srun -Q --cpu-bind=none --hvd $SHOW"
	output=$(cat "$SCRATCH/out") status=0
	one_gpu_each 2
	# Slurm's own: of the job, of a component of it, or of the step that this srun is in
	for slurm in SLURM_GRES_HET_GROUP_1=mps:50 SLURM_STEP_ID=0; do
		run in_cluster env CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 $slurm srun -Q --gpus=1 --hvd "$SHOW"
		echo "$slurm: $output"
		[[ $output == 'task 0 of 1: gpus=0 '* ]]
	done
}

@test "where shards or MPS are asked for, Slurm is given no binding" {
	local words
	for words in none= SLURM_GRES_HET_GROUP_1=gpu:1,shard:2 SLURM_GRES_HET_GROUP_1=mps:50; do
		run in_cluster env "$words" srun -vv -n1 --gpus=1 --hvd true
		[ "$status" -eq 0 ]
		[ "$words: $(grep -c 'gpu-bind  *: none' <<<"$output")" = "$words: $([ "$words" = none= ] && echo 1 || echo 0)" ]
	done
}

@test "the manual's lines for PyTorch give each rank what env:// reads" {
	need_pmix
	mkdir -p "$SCRATCH/bin"
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/bash' 'echo "task $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT ${CUDA_VISIBLE_DEVICES//[^,]} $*"' >"$SCRATCH/bin/python"
	chmod 755 "$SCRATCH/bin/python"
	(echo '#!/bin/bash' && sed -n 's/\\//g; /^ *export MASTER_ADDR/,/train.py/p' "$TOP/spank/spank_hvd.8") >"$SCRATCH/job"
	cat "$SCRATCH/job"
	run in_cluster env PATH="$SCRATCH/bin:$PATH" sbatch -Q -W -N2 --gpus-per-node=2 --cpus-per-gpu=1 -o "$SCRATCH/out" "$SCRATCH/job"
	cat "$SCRATCH/out"
	[ "$(sort "$SCRATCH/out")" = "$(printf 'task %d 4 0 n1:29500  train.py\n' 0 1 2 3)" ]
}

@test "SLURM_HVD=on is --hvd; an empty SLURM_HVD or SLURM_HVD_BIND asks for nothing" {
	run in_cluster env SLURM_HVD=on srun -Q --gpus=2 "$SHOW"
	one_gpu_each 2
	run in_cluster env SLURM_HVD= SLURM_HVD_BIND= srun -Q --gpus=2 "$SHOW"
	[ "$output" = "task 0 of 1: gpus=0,1 mpi=${SLURM_MPI_TYPE-none} policy=none args=" ]
	# nor has it anything to say where srun starts nothing
	local words
	for words in --help --usage --version --mpi=list; do
		run in_cluster env SLURM_HVD=on SLURM_JOB_ID=4711 SLURM_GPUS_ON_NODE=2 srun $words
		[ "$status" -eq 0 ]
		[ "$words: $(grep -c '^hvd: ' <<<"$output")" = "$words: 0" ]
	done
}

@test "a step in somebody's job, started from outside: its GPUs are not known here, and it keeps to its own cores" {
	in_cluster salloc -Q -N1 -n2 --gpus=2 -J host bash -c "squeue -h -n host -o %i >$CLUSTER/home/host; sleep 20" 3>&- &
	local host=$! job
	wait_for 15 test -s "$CLUSTER/home/host"
	job=$(cat "$CLUSTER/home/host")
	rm "$CLUSTER/home/host"
	run srun --jobid="$job" --hvd "$SHOW"
	refused 'how many GPUs this step has is not known here: type -n N, one task for each GPU'
	run srun --jobid="$job" --overlap -n1 -c1 --exact --gpus=1 --hvd bash -c 'echo "task $HVD_CPUS"'
	# its CPUs are not those of the job that srun is started in
	in_cluster salloc -Q -N1 -n1 srun -Q --jobid="$job" --overlap -n2 --gpus=2 --hvd echo fits >"$SCRATCH/fits" 2>&1 || true
	in_cluster scancel "$job"
	wait "$host" || true
	cat "$SCRATCH/fits"
	[ "$(grep -c '^fits$' "$SCRATCH/fits")" -eq 2 ]
	echo "$output"
	[[ $(grep ^task <<<"$output") =~ ^task\ [01]$ ]]
	# its own job by its number is no other one
	run in_cluster salloc -Q -N1 --gres=gpu:2 --cpus-per-gpu=1 bash -c 'srun -Q --jobid="$SLURM_JOB_ID" --hvd "$0"' "$SHOW"
	one_gpu_each 2
}

@test "GPUs that only the batch script's node shows are not counted, nor taken for none" {
	in_cluster sbatch -Q -W -N1 --gpus=2 --cpus-per-gpu=1 -o "$SCRATCH/out" --wrap "unset SLURM_GPUS; srun -Q --hvd $SHOW" || true
	cat "$SCRATCH/out"
	[ "$(cat "$SCRATCH/out")" = 'hvd: how many GPUs this step has is not known here: type -n N, one task for each GPU' ]
}

@test "too few CPUs: our line, with the words to add, before Slurm's" {
	in_cluster sbatch -Q -W -N2 --gpus-per-node=2 -o "$SCRATCH/out" --wrap "srun -Q --hvd $SHOW; echo status \$?"
	cat "$SCRATCH/out"
	[ "$(cat "$SCRATCH/out")" = $'hvd: n1: 2 GPUs but 1 CPU: add #SBATCH --cpus-per-gpu=1\nstatus 64' ]
	in_cluster sbatch -Q -W -N2 --gpus-per-node=2 --cpus-per-gpu=1 -o "$SCRATCH/out" --wrap "srun -Q --hvd $SHOW"
	output=$(cat "$SCRATCH/out") status=0
	one_gpu_each 4
	# beside -c, sbatch takes no --cpus-per-gpu
	in_cluster sbatch -Q -W -w n1 --gpus-per-node=2 -c1 -o "$SCRATCH/out" --wrap "srun -Q --hvd $SHOW"  || true
	[ "$(cat "$SCRATCH/out")" = 'hvd: n1: 2 GPUs but 1 CPU: write #SBATCH --cpus-per-gpu=1 in place of --cpus-per-task' ]
	# what the job has suffices for fewer CPUs a task
	run in_cluster salloc -Q -w n1 --gpus=2 --cpus-per-gpu=1 srun -Q -c2 --hvd "$SHOW"
	refused 'n1: 2 tasks of 2 CPUs but 2 CPUs: type -c 1'
	run in_cluster salloc -Q -N2 --gpus-per-node=2 --cpus-per-gpu=1 srun -Q -c8 --hvd "$SHOW"
	refused 'n1: 2 tasks of 8 CPUs but 2 CPUs: type -c 1'
	# one thread of each core, where the job counts threads: which -c fits is not known
	local one
	for one in --hint=nomultithread --threads-per-core=1; do
		run in_cluster salloc -Q -w n1 --gpus=2 --cpus-per-gpu=1 srun -Q -c2 $one --hvd "$SHOW"
		refused 'n1: 2 tasks of 2 CPUs but 2 CPUs: type a smaller -c'
		run in_cluster salloc -Q -w n1 -n2 --gpus=2 $one srun -Q -c2 $one --hvd "$SHOW"
		refused 'n1: 2 tasks of 2 CPUs but 2 CPUs: type -c 1'
	done
	run in_cluster salloc -Q -w n1 -n1 srun -Q -n2 --hvd "$SHOW"
	refused 'n1: 2 tasks of 1 CPU but 1 CPU: the job needs #SBATCH --ntasks=2 --cpus-per-task=1'
	# the CPUs of a node that the step does not have do not count
	run in_cluster salloc -Q -N2 -n2 --gpus-per-node=2 srun -Q -N1 --gpus=2 --hvd "$SHOW"
	refused '1 node: 2 GPUs but 1 CPU: add #SBATCH --cpus-per-gpu=1'
	# nor do those of a node that has fewer
	run in_cluster salloc -Q -N2 -n3 --gpus-per-node=2 srun -Q -N1 -n2 --gpus-per-node=2 --hvd "$SHOW"
	one_gpu_each 2
	run in_cluster salloc -Q -N2 -n2 --gpus-per-node=2 srun -Q -N1 -n2 --gpus-per-node=2 --hvd "$SHOW"
	refused 'one of the nodes: 2 GPUs but 1 CPU: add #SBATCH --cpus-per-gpu=1'
	# where GPUs come with tasks a larger job would not put more of them on one node
	run in_cluster salloc -Q -N2 -n3 --gpus-per-task=1 srun -Q -N1 --hvd "$SHOW"
	refused '1 node: 3 GPUs but 2 CPUs: type -n 2'
	run in_cluster salloc -Q -N2 -n3 --gpus-per-task=1 srun -Q -N1 -n2 --hvd "$SHOW"
	one_gpu_each 2
	# who overcommits has enough
	run in_cluster salloc -Q -w n1 --gpus=2 srun -Q -O --hvd "$SHOW"
	one_gpu_each 2
	run in_cluster salloc -Q -w n1 --gpus=2 env SLURM_OVERCOMMIT=1 srun -Q --hvd "$SHOW"
	one_gpu_each 2
	# three tasks, two CPUs on one node and one on the other
	run in_cluster salloc -Q -N2 -n3 --gpus-per-task=1 srun -Q --hvd "$SHOW"
	one_gpu_each 3
}

@test "--gpu-bind=socket without --hvd is placement only" {
	need_pmix
	run srun -n2 --gpus=2 --gpu-bind=socket "$SHOW"
	one_gpu_each 2
	[ "$(grep -c 'mpi=none policy=socket' <<<"$output")" -eq 2 ]
	# Slurm's own form is [verbose,]<type>
	for words in --gpu-bind=verbose,socket '--gpu-bind verbose,none:socket'; do
		# shellcheck disable=SC2086
		run srun -n2 --gpus=2 $words "$SHOW"
		echo "$output"
		[ "$(grep -c '^hvd: rank [01] on n[12]: GPU 0000:' <<<"$output")" -eq 2 ]
		output=$(grep '^task' <<<"$output")
		one_gpu_each 2
	done
	run in_cluster env SALLOC_GPU_BIND=verbose,socket salloc -Q -n2 --gpus=2 srun -Q "$SHOW"
	[ "$(grep -c '^hvd: rank [01] on n[12]: GPU 0000:' <<<"$output")" -eq 2 ]
	# one task as Slurm would start, and the other GPU is named
	run srun --gpus=2 --gpu-bind socket "$SHOW"
	echo "$output"
	grep -q '^task 0 of 1: gpus=GPU-' <<<"$output"
	grep -q '^hvd: n[12]: no task uses GPU 0000:1b:00.0: type -n 2, or --hvd-bind=gpus-per-task=2$' <<<"$output"
	run srun -N2 --gpus-per-node=2 --gpu-bind socket "$SHOW"
	echo "$output"
	[ "$(grep -c ': type -n 4 --ntasks-per-node=2 if all nodes have 2 GPUs, or --hvd-bind=gpus-per-task=2$' <<<"$output")" -eq 2 ]
	run srun -N2 -n4 --ntasks-per-node=2 --gpus-per-node=2 --gpu-bind=socket "$SHOW"
	one_gpu_each 4
	run in_cluster env SLURM_OVERLAP=1 srun -Q -n1 --gpus=1 --gpu-bind=socket true
	[ "$output" = 'hvd: --overlap: other steps of this job may be using the same GPUs' ]
}

@test "a GPU that the user's own binding gives to no task is named, once" {
	local words
	for words in '-n2 -O --gpu-bind=single:2' '-n2 --gpu-bind=map_gpu:0,0' '-n1 --cpu-bind=none'; do
		# shellcheck disable=SC2086
		run in_cluster srun -Q --gpus=2 $words --hvd-bind=socket true
		echo "$words: $output"
		[ "$(grep -c '^hvd: n[12]: no task uses GPU 0000:1[5b]:00.0' <<<"$output")" -eq 1 ]
	done
	for words in --gpu-bind=map_gpu:1,0 --gpu-bind=none; do
		run in_cluster srun -Q -n2 --gpus=2 $words --hvd-bind=socket true
		echo "$words: $output"
		[[ $output != *"no task uses"* ]]
	done
}

@test "the application's own --gpu-bind=socket arrives untouched" {
	need_pmix
	run srun -n1 "$SHOW" --gpu-bind=socket --gpu-bind socket --hvd
	[ "$output" = 'task 0 of 1: gpus=none mpi=none policy=none args=--gpu-bind=socket --gpu-bind socket --hvd' ]
	run srun -n1 --gpus=1 --gpu-bind=socket --hvd -- "$SHOW" --gpu-bind=socket --hvd=off --hvd-bind=none
	echo "$output"
	[[ $output == *'policy=socket args=--gpu-bind=socket --hvd=off --hvd-bind=none' ]]
	run srun -ln 1 --gpu-bin=socket --gpus=1 -D / "$SHOW" -n 7 --gpu-bind socket
	[[ $output == *'policy=socket args=-n 7 --gpu-bind socket' ]]
}

@test "other values of --gpu-bind and --cpu-bind are left to Slurm" {
	need_pmix
	run srun -n2 --gpus=2 --gpu-bind=map_gpu:1,0 "$SHOW"
	[ "$(sort <<<"$output")" = $'task 0 of 2: gpus=1 mpi=none policy=none args=\ntask 1 of 2: gpus=0 mpi=none policy=none args=' ]
	run srun -n2 --gpus=2 --gpu-bind=map_gpu:1,0 --hvd "$SHOW"
	[ "$(sort <<<"$output")" = $'task 0 of 2: gpus=1 mpi=pmix policy=socket args=\ntask 1 of 2: gpus=0 mpi=pmix policy=socket args=' ]
	# of several the last one counts, and the command line beats the environment
	run in_cluster env SLURM_GPU_BIND=socket srun -Q -n2 --gpus=2 --gpu-bind=closest --gpu-bind socket --gpu-bind map_gpu:1,0 "$SHOW"
	[ "$(sort <<<"$output")" = $'task 0 of 2: gpus=1 mpi=none policy=none args=\ntask 1 of 2: gpus=0 mpi=none policy=none args=' ]
	run in_cluster env SLURM_GPU_BIND=socket srun -Q -n2 --gpus=2 --gpu-bind=map_gpu:1,1 "$SHOW"
	[ "$(grep -c 'gpus=1 mpi=none policy=none' <<<"$output")" -eq 2 ]
	run srun -n2 --gpu-bind=map_gpu:1,1 --gpus=2 --gpu-bind=socket "$SHOW"
	one_gpu_each 2
	run in_cluster env SBATCH_GPU_BIND=socket sbatch -Q -W -n2 --gpus=2 --gpu-bind=none -o "$SCRATCH/out" --wrap "srun -Q $SHOW"
	cat "$SCRATCH/out"
	[ "$status" -eq 0 ]
	[ "$(grep -c 'policy=none' "$SCRATCH/out")" -eq 2 ]
	run srun -n1 --gpus=1 --gpu-bind=sockets "$SHOW"
	[ "$status" -ne 0 ]
	grep -q 'Invalid --gpu-bind argument: .*sockets' <<<"$output"
	# a word of ours that Slurm 22.05 would take for none
	run srun -n1 --gpus=1 --gpu-bind=verbose,numa "$SHOW"
	refused '--gpu-bind=numa: no word of Slurm'"'s: type --hvd-bind=numa"
}

@test "CPUs are the user's choice with --cpu-bind or SLURM_CPU_BIND, but not where these only print, nor by what Slurm leaves in a task" {
	local words
	chosen() { sed -n 's/^hvd: rank 0 on .* threads*: //p' <<<"$output"; }
	for words in --cpu-bind=v --cpu-bind=verbose --cpu-bind=quiet -Q; do
		run srun -n1 --gpus=1 $words --hvd-bind=verbose true
		echo "$output"
		[ "$words: $(chosen)" = "$words: the GPU's socket" ]
	done
	run in_cluster srun -Q -n1 --gpus=1 srun -Q --overlap -n1 --gpus=1 --hvd-bind=verbose true
	[ "$(chosen)" = "the GPU's socket" ]
	for words in map_cpu:0 verbose,map_cpu:0; do
		run in_cluster env SLURM_CPU_BIND=$words srun -Q -n1 --gpus=1 --hvd-bind=verbose true
		echo "$output"
		[ "$words: $(chosen)" = "$words: CPUs as the user set them" ]
	done
}

@test "--accel-bind=g binds GPUs, too: they stay, and CPUs follow them" {
	local words
	for words in g nvg "n --accel-bind=g"; do
		# shellcheck disable=SC2086
		run srun -n2 --gpus=2 --accel-bind=$words --hvd-bind=socket "$SHOW"
		echo "$words: $output"
		# which ones is Slurm's business: releases differ, and 24.11 shows none
		[ "$(grep -cE "^task . of 2: gpus=([01](,1)?|none) mpi=${SLURM_MPI_TYPE-none} policy=socket" <<<"$output")" -eq 2 ]
	done
	run srun -n2 --gpus=2 --accel-bind=n --hvd-bind=socket "$SHOW"
	one_gpu_each 2
}

@test "a --gpu-bind that shows several GPUs to each rank of a world is told, once a node and with the cure" {
	need_pmix
	local line="hvd: n[12]: --gpu-bind or --accel-bind, the step's or the job's, shows several of the 2 GPUs to each of 2 tasks: type --gpu-bind=socket instead to give each its own"
	run srun -N2 --gpus-per-node=2 --gpu-bind=none --hvd "$SHOW"
	echo "$output"
	[ "$(grep -cx "$line" <<<"$output")" -eq 2 ]
	[ "$(grep -c '^task' <<<"$output")" -eq 4 ]
	run in_cluster sbatch -Q -W -N1 -n2 --gpus=2 --gpu-bind=closest -o "$SCRATCH/out" --wrap "srun -Q --hvd --cpu-bind=none $SHOW; srun -Q --hvd --gpu-bind=socket $SHOW"
	cat "$SCRATCH/out"
	[ "$status" -eq 0 ]
	[ "$(grep -cx "$line" "$SCRATCH/out")" -eq 1 ]
	[ "$(grep -c '^task . of 2: gpus=0,1 ' "$SCRATCH/out")" -eq 2 ]
	[ "$(grep -c '^task . of 2: gpus=GPU-' "$SCRATCH/out")" -eq 2 ]
	# a GPU each, placement alone, or wanted
	for words in "--gpu-bind=map_gpu:1,0 --hvd" "--gpu-bind=none" "--gpu-bind=none --hvd --hvd-bind=share"; do
		# shellcheck disable=SC2086
		run srun -n2 --gpus=2 $words "$SHOW"
		echo "$words: $output"
		[ "$(grep -c '^task' <<<"$output")" -eq 2 ]
		[[ $output != *"the step's or the job's"* ]]
	done
}

@test "--hvd-bind=none without --hvd: CPUs stay, each task has its GPU, and verbose says it" {
	local show='echo "task $SLURM_PROCID ${HVD_POLICY-unset} ${SLURM_GPU_BIND-unset} ${SLURM_HVD_STEP-unset} $(taskset -cp $$ | sed "s/.*: //") ${CUDA_VISIBLE_DEVICES-unset}"'
	run srun -n2 --gpus=2 --hvd-bind=none,verbose bash -c "$show"
	echo "$output"
	[ "$(grep -c '^hvd: rank [01] on n[12]: GPU 0000:' <<<"$output")" -eq 2 ]
	[ "$(grep '^task' <<<"$output" | sort | cut -d- -f1)" = $'task 0 none unset unset 0 GPU\ntask 1 none unset unset 1 GPU' ]
	# other numbers are nobody's business
	run srun -n1 --gpus=2 --hvd-bind=none bash -c "$show"
	echo "$output"
	[ "$(grep '^task' <<<"$output" | cut -d' ' -f1-5,7)" = 'task 0 none unset unset 0,1' ]
	run srun -N1 -n3 -O --gpus=2 --hvd-bind=none bash -c "$show"
	echo "$output"
	[ "$(grep -c '^task . none unset unset .* 0,1$' <<<"$output")" -eq 3 ]
}

@test "SLURM_GPU_BIND=socket, and the spelling that #SBATCH can carry" {
	run in_cluster env SLURM_GPU_BIND=socket srun -Q -n2 --gpus=2 "$SHOW"
	one_gpu_each 2
	run srun -n2 --gpus=2 --gpu-bind=none:socket "$SHOW"
	one_gpu_each 2
	printf '%s\n' '#!/bin/bash' '#SBATCH -Q -N2 -n4 --gpus-per-node=2 --hvd-bind=socket' '#SBATCH --hvd=deadline=9' "srun -Q $SHOW" >"$SCRATCH/job"
	in_cluster sbatch -W -o "$SCRATCH/out" "$SCRATCH/job"
	output=$(cat "$SCRATCH/out") status=0
	one_gpu_each 4
	sed -i 's/--hvd-bind=socket/--gpu-bind=none:socket/; s/^#SBATCH --hvd=.*//' "$SCRATCH/job"
	in_cluster sbatch -W -o "$SCRATCH/out" "$SCRATCH/job"
	output=$(cat "$SCRATCH/out") status=0
	one_gpu_each 4
}

@test "options of sbatch reach the sruns inside, and --hvd=off switches them off" {
	need_pmix
	in_cluster sbatch -Q -W -N2 -n4 --gpus-per-node=2 --gpu-bind=socket --hvd -o "$SCRATCH/out" \
		--wrap "echo batch \${HVD_POLICY-none} \${HVD_GPU-none} \${SLURM_MPI_TYPE-none}; srun -Q $SHOW; srun -Q --hvd=off $SHOW"
	cat "$SCRATCH/out"
	[ "$(head -n 1 "$SCRATCH/out")" = 'batch none none none' ]
	[ "$(grep -c 'gpus=GPU-.*mpi=pmix policy=socket' "$SCRATCH/out")" -eq 4 ]
	[ "$(grep -c 'gpus=0,1 mpi=none policy=none' "$SCRATCH/out")" -eq 4 ]
}

@test "srun --hvd without keys keeps those of the batch script or of SLURM_HVD, with some or with on it has its own" {
	need_pmix
	# shellcheck disable=SC2016
	local keys='printenv HVD_DEADLINE || echo none'
	in_cluster sbatch -Q -W -N1 --gpus-per-node=1 --hvd=deadline=7 -o "$SCRATCH/out" \
		--wrap "for hvd in --hvd --hvd=deadline=9 --hvd=on --hvd=off -Q; do srun -Q \$hvd bash -c '$keys'; done"
	[ "$(xargs <"$SCRATCH/out")" = '7 9 none none 7' ]
	# of words that a shell's profile has, the job's hold
	in_cluster sbatch -Q -W -N1 --gpus-per-node=1 --hvd=deadline=7 --hvd-bind=numa -o "$SCRATCH/out" \
		--wrap "SLURM_HVD=deadline=5 SLURM_HVD_BIND=gpu srun -Q printenv HVD_DEADLINE HVD_POLICY"
	[ "$(xargs <"$SCRATCH/out")" = '7 numa' ]
	run in_cluster env SLURM_HVD=deadline=5 srun -Q --gpus=1 --hvd bash -c "$keys"
	[ "$output" = 5 ]
	run in_cluster env SLURM_HVD=dedline=5 srun -Q --gpus=1 --hvd bash -c "$keys"
	refused "SLURM_HVD: unknown key 'dedline', the nearest known one is 'deadline'"
	run in_cluster env SLURM_HVD=off srun -Q --gpus=1 --hvd bash -c 'echo $HVD_POLICY'
	[ "$output" = socket ]
}

@test "salloc, and the GPUs of its --gres" {
	run in_cluster salloc -Q -N2 --gres=gpu:2 --cpus-per-gpu=1 srun -Q --hvd "$SHOW"
	one_gpu_each 4
	# since 24.05 the job's -c stands there, since 23.11 its --gpu-bind, and what --gpus-per-task implies
	run in_cluster salloc -Q -N1 -n2 --gres=gpu:2 env SLURM_TRES_PER_TASK=cpu=1 SLURM_TRES_BIND=gres/gpu:per_task:1 srun -Q --hvd "$SHOW"
	one_gpu_each 2
	run in_cluster salloc -Q -N1 -n2 --gpus=2 env SLURM_TRES_BIND=gres/gpu:per_task:1 srun -Q --hvd-bind=socket \
		bash -c 'echo "${SLURM_TRES_BIND-unset} ${CUDA_VISIBLE_DEVICES%%-*}"'
	[ "$output" = $'unset GPU\nunset GPU' ]
	# a choice of the user's, which stays: this Slurm, if it does not read it, leaves the tasks all GPUs
	run in_cluster salloc -Q -N1 -n2 --gpus=2 env SLURM_TRES_BIND=gres/gpu:single:1 srun -Q --hvd-bind=socket bash -c 'echo "$SLURM_TRES_BIND $CUDA_VISIBLE_DEVICES"'
	[ "$(grep -c '^gres/gpu:single:1 [01]' <<<"$output")" -eq 2 ]
	run in_cluster env SALLOC_GPU_BIND=socket salloc -Q -N1 --gpus=2 -n2 srun -Q "$SHOW"
	one_gpu_each 2
	# the controller knows them; a job without our words finds no word of ours
	in_cluster sbatch -Q -W -N1 -n2 --gres=gpu:2 -o "$SCRATCH/out" --wrap "env; srun -Q --hvd $SHOW"
	output=$(grep '^task' "$SCRATCH/out") status=0
	one_gpu_each 2
	! grep '^SLURM_HVD' "$SCRATCH/out" || false
	# a controller that cannot be asked: nothing is guessed
	run in_cluster salloc -Q -N1 -c2 --gres=gpu:2 env SLURM_JOB_ID=4711 srun -Q --hvd "$SHOW"
	refused 'how many GPUs this step has is not known here: type -n N, one task for each GPU'
}

@test "neither a step nor a job that a task starts inherits its placement" {
	local ours='^(HVD_(GPU|CPUS|NUMA|NIC|POLICY|THREADS)|OMP_NUM_THREADS|NCCL_IB_HCA|UCX_NET_DEVICES|SLURM_HVD_STEP)='
	run in_cluster salloc -Q -N1 -n2 --gpus=2 srun -Q --gpus=2 -n2 --hvd --hvd-bind=nic=hint bash -c \
		'if [ "$SLURM_PROCID" = 0 ]; then env | sed s/^/task:/; UCX_NET_DEVICES=$HVD_NIC:2 srun -Q --overlap -n1 --gpus=2 env; fi'
	echo "$output" | grep 'HVD_\|OMP\|CUDA\|NCCL\|UCX' || true
	[ "$status" -eq 0 ]
	[ "$(sed -n 's/^task://p' <<<"$output" | grep -Ec "$ours")" -eq 9 ]
	grep -q '^CUDA_VISIBLE_DEVICES=0,1$' <<<"$output"
	! grep -Eq "$ours" <<<"$output" || false
	in_cluster srun -Q -n1 --gpus=1 --hvd --hvd-bind=nic=hint sbatch -Q -o "$SCRATCH/out" --wrap 'env; echo end'
	wait_for 20 grep -qsx end "$SCRATCH/out"
	! grep -E "$ours" "$SCRATCH/out" || false
	# what the task has set otherwise stays
	run in_cluster srun -Q -n1 --gpus=1 --hvd --hvd-bind=nic=hint env OMP_NUM_THREADS=7 NCCL_IB_HCA==other UCX_NET_DEVICES=other:1 srun -Q --overlap -n1 env
	[ "$(grep -cE '^(OMP_NUM_THREADS=7|NCCL_IB_HCA==other|UCX_NET_DEVICES=other:1)$' <<<"$output")" -eq 3 ]
	# the user's own
	in_cluster env HVD_THREADS=3 sbatch -Q -W -o "$SCRATCH/out" --wrap 'env; srun -Q env'
	[ "$(grep -c '^HVD_THREADS=3$' "$SCRATCH/out")" -eq 2 ]
}

@test "neither a step nor a job that a task starts inherits its step's keys; the user's own stay" {
	local keys='^(HVD_(ON_DEATH|DEADLINE|BACKEND|TRACE|KEYS)|SLURM_KILL_BAD_EXIT|SLURM_NO_KILL)='
	# shellcheck disable=SC2016
	run in_cluster env HVD_DEADLINE=7 KEYS="$keys" srun -Q -n1 --gpus=1 --hvd=on_death=continue,backend=cpu,deadline=7,trace="$SCRATCH" bash -c '
		inner() { echo "$1" $("${@:2}" env 2>/dev/null | grep -E "$KEYS" | sort); }
		echo task $(env | grep -Ec "$KEYS")
		inner on srun -Q --overlap -n1 --gpus=1 --hvd=on
		inner abort srun -Q --overlap -n1 --gpus=1 --hvd=on_death=abort
		inner continue srun -Q --overlap -n1 --gpus=1 --hvd=on_death=continue
		inner none srun -Q --overlap -n1
		inner own env HVD_DEADLINE=9 HVD_ON_DEATH=abort srun -Q --overlap -n1 --gpus=1 --hvd'
	echo "$output"
	[ "$output" = "task 7
on HVD_DEADLINE=7
abort HVD_DEADLINE=7 HVD_KEYS=HVD_ON_DEATH=abort HVD_ON_DEATH=abort
continue HVD_DEADLINE=7 HVD_KEYS=HVD_ON_DEATH=continue HVD_ON_DEATH=continue SLURM_KILL_BAD_EXIT=0 SLURM_NO_KILL=set
none HVD_DEADLINE=7
own HVD_DEADLINE=9 HVD_ON_DEATH=abort" ]
	in_cluster srun -Q -n1 --gpus=1 --hvd=on_death=continue,deadline=7 sbatch -Q -o "$SCRATCH/out" --wrap 'env; echo end'
	wait_for 20 grep -qsx end "$SCRATCH/out"
	! grep -E "$keys" "$SCRATCH/out" || false
	# what salloc starts stays on this node, with its GPU
	run in_cluster srun -Q -w n1 -n1 --gpus=1 --hvd salloc -Q -w n2 -n1 printenv CUDA_VISIBLE_DEVICES
	[[ $output == GPU-* ]]
	# the keys of a job are those of its steps, wherever these start
	in_cluster sbatch -Q -W -n1 --gpus=1 --hvd=deadline=8 -o "$SCRATCH/out" --wrap 'srun -Q --hvd bash -c "srun -Q --overlap --hvd printenv HVD_DEADLINE; srun -Q --overlap --hvd=on printenv HVD_DEADLINE || echo none" 2>/dev/null'
	[ "$(xargs <"$SCRATCH/out")" = '8 none' ]
}

@test "the user's MPI type and an inherited choice win" {
	need_pmix
	run srun -n2 --gpus=2 --mpi=none --hvd "$SHOW"
	[ "$(grep -c 'mpi=none policy=socket' <<<"$output")" -eq 2 ]
	run in_cluster env SLURM_MPI_TYPE=pmi2 srun -Q --gpus=1 --hvd "$SHOW"
	grep -q 'mpi=pmi2 policy=socket' <<<"$output"
	run in_cluster env SLURM_MPI_TYPE=none srun -Q --gpus=1 --hvd "$SHOW"
	grep -q 'mpi=none policy=socket' <<<"$output"
}

@test "in salloc's own shell, which Slurm starts without MPI, --hvd means PMIx" {
	need_pmix
	command -v script >/dev/null || skip "no script(1) for a terminal"
	local conf
	conf=$(cat "$CLUSTER/etc/slurm.conf")
	echo 'LaunchParameters=use_interactive_step' >>"$CLUSTER/etc/slurm.conf"
	printf '%s\n' '#!/bin/bash' 'echo "shell $SLURM_MPI_TYPE"' "srun -Q --gpus=2 --gpu-bind=socket --hvd $SHOW" "srun -Q --mpi=none --gpus=2 --hvd $SHOW chosen" \
		"sbatch -Q -W -n2 --gpus=2 -o $SCRATCH/out --wrap 'srun -Q --hvd $SHOW batch'" >"$SCRATCH/shell"
	chmod +x "$SCRATCH/shell"
	# salloc starts $SHELL, which need not be set here
	in_cluster script -qc "SHELL=$SCRATCH/shell salloc -Q -n2 --gpus=2 --hvd" /dev/null </dev/null >"$SCRATCH/seen"
	echo "$conf" >"$CLUSTER/etc/slurm.conf"
	tr -d '\r' <"$SCRATCH/seen"
	cat "$SCRATCH/out"
	# one shell, whose --hvd is its steps'
	[ "$(grep -c 'shell none' "$SCRATCH/seen")" -eq 1 ]
	[ "$(grep -c 'of 2: gpus=GPU-.* mpi=pmix policy=socket args=.$' "$SCRATCH/seen")" -eq 2 ]
	[ "$(grep -c 'mpi=none policy=socket args=chosen' "$SCRATCH/seen")" -eq 2 ]
	[ "$(grep -c 'mpi=pmix policy=socket args=batch' "$SCRATCH/out")" -eq 2 ]
}

@test "on_death=continue: the step outlives a task" {
	# the second task says that it runs: Slurm can lose the signal for one that it has not started yet
	# shellcheck disable=SC2016
	run srun -n2 --gpus=2 -K1 --hvd bash -c '
		if [ "$SLURM_PROCID" = 0 ]; then
			until [ -e "$1" ]; do sleep 0.1; done
			exit 3
		fi
		touch "$1"
		sleep 30
		echo survived' bash "$SCRATCH/second"
	echo "$output"
	! grep -q survived <<<"$output" || false
	[[ $status -eq 143 || $status -eq 137 ]] # the other task's, which a signal ended
	run srun -n2 --gpus=2 --hvd=on_death=continue bash -c 'echo "bad-exit ${SLURM_KILL_BAD_EXIT-unset} no-kill ${SLURM_NO_KILL-unset}"'
	[ "$(sort -u <<<"$output")" = 'bad-exit 0 no-kill set' ]
	# so does the user's own variable, before which the command line holds
	local words
	for words in --hvd --hvd=on --hvd=backend=cpu --hvd=on_death=abort; do
		run in_cluster env HVD_ON_DEATH=continue srun -Q -n1 --gpus=1 $words bash -c 'echo "$HVD_ON_DEATH ${SLURM_KILL_BAD_EXIT-unset} ${SLURM_NO_KILL-unset}"'
		[ "$words $output" = "$words $([ "$words" = --hvd=on_death=abort ] && echo abort unset unset || echo continue 0 set)" ]
	done
	run in_cluster env HVD_BACKEND=gpu srun -Q --gpus=1 --hvd true
	refused 'HVD_BACKEND: backend=gpu: auto|nccl|cpu expected'
	run in_cluster env HVD_BACKEND=gpu srun -Q --gpus=1 --hvd=off true # where it has nothing to say
	[ "$status" -eq 0 ]
}

@test "unknown words: the word, the nearest known one, status 64; in srun, sbatch and salloc" {
	run srun --gpus=1 --hvd=on_deth=continue "$SHOW"
	refused "--hvd: unknown key 'on_deth', the nearest known one is 'on_death'"
	# of others Slurm speaks, once
	run srun --no-such --hvd true
	echo "$output"
	[ "$(grep -c 'no-such' <<<"$output")" -eq 1 ]
	run srun --gpus=1 --hvd-bind=sockets "$SHOW"
	refused "--hvd-bind: unknown key 'sockets', the nearest known one is 'socket'"
	run in_cluster sbatch -Q --hvd=dead=1 --wrap true
	refused "--hvd: unknown key 'dead', the nearest known one is 'deadline'"
	run in_cluster env SLURM_HVD=on_deth=continue srun -Q --gpus=1 "$SHOW"
	refused "SLURM_HVD: unknown key 'on_deth', the nearest known one is 'on_death'"
	run srun --gpus=1 --hvd=deadline=5,deadline=6 "$SHOW"
	refused "--hvd: 'deadline' is given twice"
	run in_cluster salloc -Q --hvd-bind=socket,numa true
	refused "--hvd-bind: 'socket' and 'numa' exclude each other: say one of them once"
	printf '%s\n' '#!/bin/bash' '#SBATCH --hvd=bakend=cpu' true >"$SCRATCH/job"
	run in_cluster sbatch -Q "$SCRATCH/job"
	refused "--hvd: unknown key 'bakend', the nearest known one is 'backend'"
}

@test "a command line that is too long to be read is refused where our words are on it" {
	local many
	many=$(printf -- '--comment=x %.0s' {1..600})
	# shellcheck disable=SC2086
	for words in --hvd --hvd-bind=socket; do
		run srun -n2 --gpus=2 $many $words true
		refused 'a command line of more than 512 options, or 128 components, is not read'
	done
	# shellcheck disable=SC2086
	run srun $many true
	[ "$status" -eq 0 ]
}

@test "--hvd=help and --hvd-bind=help list the words, as Slurm's --cpu-bind=help does" {
	local word words
	run srun --hvd=help "$SHOW"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -cE '^  (on|off|on_death=abort\|continue|deadline=N|backend=auto\|nccl\|cpu|trace=NAME|iface=NAME) ' <<<"$output")" -eq 7 ]
	if grep '^task' <<<"$output"; then false; fi
	status=0
	srun --hvd=help "$SHOW" >/dev/full 2>"$SCRATCH/full" || status=$?
	[ "$status" -eq 1 ]
	grep -x 'hvd: the output cannot be written' "$SCRATCH/full"
	run in_cluster sbatch --hvd-bind=help --wrap true
	[ "$status" -eq 0 ]
	[ "$(grep -cE '^  (socket|numa|gpu|none|verbose) ' <<<"$output")" -eq 5 ]
	if grep 'Submitted' <<<"$output"; then false; fi
	# each word that is listed is understood, and in the manual
	for word in hvd hvd-bind; do
		run srun "--$word=help" "$SHOW"
		words=$(sed -n 's/^  \([a-z_-]*\).*/\1/p' <<<"$output")
		[ "$(wc -l <<<"$words")" -gt 5 ]
		for words in $words; do
			sed 's/\\//g' "$TOP/spank/spank_hvd.8" | grep -qE "^\.(B|BR|BI)( .*[^a-z_-])? ?\"?$words([^a-z_-]|\$)" || { echo "$words is not in the manual"; false; }
		done
	done
}

@test "heterogeneous steps: each component has its own count, and keeps its own arguments" {
	without_mpi
	run srun -N1 --gpus=2 --gpu-bind=socket --hvd "$SHOW" a --gpu-bind=socket : -N1 --gpus=1 --hvd "$SHOW" b --gpu-bind=socket
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c 'of 3: gpus=GPU-.*args=a --gpu-bind=socket$' <<<"$output")" -eq 2 ]
	[ "$(grep -c 'of 3: gpus=GPU-.*args=b --gpu-bind=socket$' <<<"$output")" -eq 1 ]
	# one that fails ends the others, unless they are to go on
	local words
	for words in --hvd --hvd=on_death=continue; do
		run srun -N1 -n1 --gpus=1 $words printenv SLURM_KILL_BAD_EXIT : -N1 -n1 --gpus=1 printenv SLURM_KILL_BAD_EXIT
		[ "$words: $(xargs <<<"$output")" = "$words: $([ $words = --hvd ] && echo 1 1 || echo 0 0)" ]
	done
	run srun -N1 --gpus=1 --hvd-bind=socket "$SHOW" : -N1 --gpus=1 --hvd-bind=numa "$SHOW"
	refused '--hvd-bind differs between the components of one command: start them as separate steps'
	run srun -N1 --gpus=2 --hvd "$SHOW" : -N1 -n1 --gpus-per-task=1 "$SHOW"
	one_gpu_each 3
	run srun -N1 -n1 --hvd "$SHOW" : -N1 -n1 --gpus-per-task=2 "$SHOW"
	echo "$output"
	[ "$(grep -c 'task 1 of 2: gpus=GPU-[0-9a-f-]*,GPU-' <<<"$output")" -eq 1 ]
	run srun -N1 --gpus=2 --hvd "$SHOW" : -N1 -n1 --gpus-per-task=2 "$SHOW"
	refused '--gpus-per-task differs between the components of one command: start them as separate steps'
	run srun -N1 --gpus=2 --hvd --hvd-bind=gpus-per-task=2 "$SHOW" : -N1 -n1 --gpus-per-task=2 "$SHOW"
	echo "$output"
	[ "$(grep -c 'of 2: gpus=GPU-[0-9a-f-]*,GPU-' <<<"$output")" -eq 2 ]
}

@test "next to a second SPANK plugin, whose options take a word of their own" {
	cat >"$SCRATCH/other.c" <<-'E'
		#include <slurm/spank.h>
		SPANK_PLUGIN(other, 1)
		static int take(int value, const char *text, int remote)
		{
			if (!remote)
				slurm_spank_log("other: %s", text);
			return value - 1;
		}
		static struct spank_option option = { "other", "word", "an option of another plugin", 1, 1, take };
		int slurm_spank_init(spank_t spank, int argc, char *argv[])
		{
			(void)argc, (void)argv;
			return spank_option_register(spank, &option);
		}
	E
	"${CC:-gcc}" -shared -fPIC -o "$CLUSTER/etc/other.so" "$SCRATCH/other.c"
	sed -i "1i required $CLUSTER/etc/other.so" "$CLUSTER/etc/plugstack.conf"
	run srun --other ./word --gpu-bind socket --gpus=2 --hvd "$SHOW" --other x
	sed -i 1d "$CLUSTER/etc/plugstack.conf"
	echo "$output"
	grep -q '^other: ./word$' <<<"$output"
	output=$(grep '^task' <<<"$output")
	one_gpu_each 2
	[ "$(grep -c 'args=--other x$' <<<"$output")" -eq 2 ]
}

@test "plugstack.conf: defaults of the site, aliases off, never" {
	need_pmix
	local stack words
	stack=$(cat "$CLUSTER/etc/plugstack.conf")
	echo "$stack hvd-bind=ids=index hvd=deadline=61" >"$CLUSTER/etc/plugstack.conf"
	run srun --gpus=2 --hvd bash -c 'echo "$CUDA_VISIBLE_DEVICES $HVD_DEADLINE"'
	[ "$(sort <<<"$output")" = $'0 61\n1 61' ]
	run srun --gpus=2 --hvd=deadline=5 --hvd-bind=ids=uuid bash -c 'echo "$CUDA_VISIBLE_DEVICES $HVD_DEADLINE"'
	[ "$(grep -c '^GPU-.* 5$' <<<"$output")" -eq 2 ]
	# the user's own variable holds before the site's word, and the command line before both
	run in_cluster env HVD_DEADLINE=2.5 srun -Q --export=NONE --gpus=2 --hvd /bin/bash -c 'echo "$CUDA_VISIBLE_DEVICES $HVD_DEADLINE"'
	[ "$(sort <<<"$output")" = $'0 2.5\n1 2.5' ]
	run in_cluster env HVD_DEADLINE=7 srun -Q --gpus=1 --hvd=deadline=5 bash -c 'echo "$HVD_DEADLINE"'
	[ "$output" = 5 ]
	run in_cluster env HVD_DEADLINE=soon srun -Q --gpus=1 --hvd true
	[ "$status" -eq 64 ]
	[[ $output == 'hvd: HVD_DEADLINE: deadline=soon: '* ]]
	# a directory may have a comma, which no word of the two options has
	echo "$stack hvd=trace=/of/site" >"$CLUSTER/etc/plugstack.conf"
	run in_cluster env HVD_TRACE=/mine,off srun -Q --gpus=1 --hvd bash -c 'echo "$HVD_TRACE ${HVD_KEYS-none}"'
	[ "$output" = "/mine,off none" ]
	run in_cluster env HVD_TRACE=/mine,off srun -Q --gpus=1 --hvd=trace=/typed printenv HVD_TRACE
	[ "$output" = /typed ]
	# where tasks are placed one by one, as those that the user has bound are, lines have the same limit
	echo "$stack verbose-max=1" >"$CLUSTER/etc/plugstack.conf"
	run srun -n2 --gpus=2 --cpu-bind=none --hvd --hvd-bind=verbose true
	echo "$output"
	[ "$(grep -c 'hvd: rank [01] on n[12]: ' <<<"$output")" -eq 1 ]
	grep -q 'no line for further tasks (verbose-max=1 in plugstack.conf)' <<<"$output"
	run srun -N1 -n2 --gpus=2 --hvd --hvd-bind=verbose true
	echo "$output"
	[ "$(grep -c 'hvd: rank 0 on n[12]: ' <<<"$output")" -eq 1 ]
	[ "$(grep -v ' rank 0 ' <<<"$output" | sed 's/n[12]/n/')" = 'hvd: n: 1 more task (verbose-max=1 in plugstack.conf)' ]
	echo "$stack aliases=off" >"$CLUSTER/etc/plugstack.conf"
	run srun --gpus=1 --gpu-bind=socket true
	[ "$status" -ne 0 ]
	grep -q 'Invalid --gpu-bind argument' <<<"$output"
	echo "$stack enable=never" >"$CLUSTER/etc/plugstack.conf"
	run srun --hvd true
	[ "$status" -ne 0 ]
	grep -q "unrecognized option '--hvd'" <<<"$output"
	echo "$stack enable=always" >"$CLUSTER/etc/plugstack.conf"
	run srun -n2 --gpus=2 "$SHOW"
	one_gpu_each 2
	# a task with several GPUs may want them all
	run srun -n1 --gpus=2 "$SHOW"
	[ "$output" = 'task 0 of 1: gpus=0,1 mpi=none policy=none args=' ]
	# and one without a GPU is none of ours
	run srun -n2 bash -c 'echo "${HVD_POLICY-none} ${HVD_CPUS-none} ${OMP_NUM_THREADS-none} ${SLURM_HVD_STEP-none}"'
	[ "$output" = $'none none none none\nnone none none none' ]
	# nor whoever says off
	run srun -n2 --gpus=2 --hvd=off "$SHOW"
	[ "$(grep -c '^task . of 2: gpus=0,1 mpi=none policy=none args=$' <<<"$output")" -eq 2 ]
	# what a daemon of mpirun's has all ranks of its node would have
	run srun --gpus=1 "$SHOW"
	one_gpu_each 1
	for words in orted prted hydra_pmi_proxy hydra_bstrap_proxy pmi_proxy; do
		cp "$SHOW" "$SCRATCH/$words"
		run srun --gpus=1 "$SCRATCH/$words"
		[ "$words: $output" = "$words: task 0 of 1: gpus=0 mpi=none policy=none args=" ]
	done
	echo "$stack" >"$CLUSTER/etc/plugstack.conf"
	# in a job with --hvd, too, where the number of these tasks would be refused
	run in_cluster salloc -Q --hvd --gpus=2 -n2 srun -Q -n1 "$SCRATCH/orted"
	[ "$output" = 'task 0 of 1: gpus=0,1 mpi=none policy=none args=' ]
}

@test "two lines of plugstack.conf for the plugin, as where a file is included twice: the first counts, and one line of srun says so" {
	local stack
	stack=$(cat "$CLUSTER/etc/plugstack.conf")
	printf '%s\n' "$stack hvd-bind=ids=index" "$stack aliases=off" >"$CLUSTER/etc/plugstack.conf"
	run srun -N2 --gpus-per-node=2 --gpu-bind=socket --hvd=deadline=5 bash -c 'echo "task $CUDA_VISIBLE_DEVICES $HVD_DEADLINE"'
	echo "$stack" >"$CLUSTER/etc/plugstack.conf"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep '^task' <<<"$output" | sort)" = $'task 0 5\ntask 0 5\ntask 1 5\ntask 1 5' ]
	[ "$(grep -v '^task' <<<"$output")" = 'srun: error: hvd: plugstack.conf has this plugin in two lines: the second one is ignored' ]
}

@test "two copies of the plugin in plugstack.conf: the first counts, and one line of srun names the other" {
	local stack
	stack=$(cat "$CLUSTER/etc/plugstack.conf")
	mkdir -p "$SCRATCH/old"
	cp "$BUILD/spank_hvd.so" "$SCRATCH/old"
	printf '%s\n' "$stack" "${stack/"$BUILD"\//$SCRATCH/old/}" >"$CLUSTER/etc/plugstack.conf"
	run srun -N2 --gpus-per-node=2 --gpu-bind=socket --hvd "$SHOW"
	echo "$stack" >"$CLUSTER/etc/plugstack.conf"
	one_gpu_each 4
	[ "$(grep -v '^task' <<<"$output")" = "srun: error: hvd: plugstack.conf has two copies of this plugin: $SCRATCH/old/spank_hvd.so is ignored" ]
}

@test "TaskProlog finds what its task does, on the CPUs of it" {
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/bash' 'echo "print task $SLURM_PROCID $CUDA_VISIBLE_DEVICES $HVD_GPU $HVD_CPUS $(taskset -cp $$ | sed "s/.*: //")"' >"$SCRATCH/prolog"
	chmod 755 "$SCRATCH/prolog"
	run srun -N1 -n2 --gpus=2 --hvd --task-prolog="$SCRATCH/prolog" bash -c 'echo "task $SLURM_PROCID $CUDA_VISIBLE_DEVICES $HVD_GPU $HVD_CPUS $(taskset -cp $$ | sed "s/.*: //")"'
	echo "$output"
	[ "$(sort <<<"$output" | uniq -c | awk '{ print $1, $3, $5, $6, $7 }')" = $'2 0 0000:15:00.0 0 0\n2 1 0000:1b:00.0 1 1' ]
}

@test "TaskEpilog finds what holds for all tasks, and nothing of any one" {
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/bash' "file=$CLUSTER/home/epilog.\$SLURM_PROCID" \
		"env | grep -E '^(HVD_[^C]|HVD_CPUS|SLURM_HVD|NCCL_IB|OMP_NUM)' >\$file.new" 'mv $file.new $file' >"$SCRATCH/epilog"
	chmod 755 "$SCRATCH/epilog"
	run srun --gpus=2 --hvd=deadline=5 --hvd-bind=nic=hint --task-epilog="$SCRATCH/epilog" "$SHOW"
	one_gpu_each 2
	for rank in 0 1; do
		wait_for 10 test -e "$CLUSTER/home/epilog.$rank"
		cat "$CLUSTER/home/epilog.$rank"
		[ "$(<"$CLUSTER/home/epilog.$rank")" = HVD_DEADLINE=5 ]
	done
}
