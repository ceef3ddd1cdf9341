#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The words of srun, sbatch and salloc: what is ours, what is Slurm's, what is the application's.

load helpers
load step_words

@test "one task per GPU, however the GPUs are asked for" {
	run srun --gpus=2 --hvd "$SHOW"
	one_gpu_each 2
	run srun -N2 --gpus=4 --hvd "$SHOW"
	one_gpu_each 4
	run srun -N2 --gpus-per-node=2 --hvd "$SHOW"
	one_gpu_each 4
	run srun -n4 --ntasks-per-node=2 --gpus-per-node=2 --hvd "$SHOW" # two nodes, as the two numbers say
	one_gpu_each 4
	run srun --gpus=4 --gpus-per-node=2 --ntasks-per-node=2 --hvd "$SHOW"
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
	refused '2 tasks but 4 GPUs: type -n 4 --ntasks-per-node=2, --gpus-per-node=1, or --hvd-bind=gpus-per-task=2'
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
	# none and some, of which Slurm would make all
	run in_cluster salloc -Q -N1 --gpus-per-node=2 --cpus-per-gpu=1 srun -Q --gres=none --gpus-per-task=1 --hvd "$SHOW"
	refused '--gres=none and --gpus-per-task=1 contradict each other: type one of them'
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
	[ "$(grep -c ': type -n 4 --ntasks-per-node=2, or --hvd-bind=gpus-per-task=2, if all nodes have 2 GPUs$' <<<"$output")" -eq 2 ]
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
