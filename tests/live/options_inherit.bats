#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Words that come from the batch script, from salloc or from the environment, and what a task does not hand on.

load helpers
load step_words

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
	# and --gpu-bind=socket before both, as --hvd-bind=socket does
	in_cluster sbatch -Q -W -N1 --gpus-per-node=1 --hvd-bind=numa -o "$SCRATCH/out" --wrap "srun -Q --gpu-bind=socket printenv HVD_POLICY; SLURM_GPU_BIND=socket srun -Q printenv HVD_POLICY"
	[ "$(xargs <"$SCRATCH/out")" = 'socket numa' ]
	run in_cluster env SLURM_HVD_BIND=numa,ids=index srun -Q --gpus=1 --gpu-bind=socket printenv HVD_POLICY CUDA_VISIBLE_DEVICES
	[ "$output" = $'socket\n0' ]
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

@test "a job that another one submits has the words of its own script, and none of the other's GPUs" {
	local words
	printf '%s\n' '#!/bin/bash' '#SBATCH -Q -N1 -n2 --gres=gpu:2 --gpu-bind=none:socket' 'printenv SLURM_GPUS SLURM_CPUS_PER_GPU' "srun -Q $SHOW" >"$SCRATCH/job"
	for words in "numa:" "numa:--hvd-bind=gpu"; do
		in_cluster sbatch -Q -W -n1 --gpus=1 --cpus-per-gpu=1 --hvd-bind="${words%%:*}" -o /dev/null --wrap "sbatch -W -o $SCRATCH/out ${words#*:} $SCRATCH/job"
		cat "$SCRATCH/out"
		[ "$(grep -c "^task . of 2: gpus=GPU-[^,]* .*policy=$([[ $words == *=gpu ]] && echo gpu || echo socket) " "$SCRATCH/out")" -eq 2 ]
		[ "$(wc -l <"$SCRATCH/out")" -eq 2 ]
	done
	# what else that one says of the binding stays
	in_cluster sbatch -Q -W -n1 --gpus=1 --hvd-bind=numa,verbose -o /dev/null --wrap "sbatch -W -o $SCRATCH/out $SCRATCH/job"
	[ "$(grep -c 'policy=socket\|: rank . on n.: GPU' "$SCRATCH/out")" -eq 4 ]
	# a script without such a word has the policy of the job that it is submitted from
	sed -i 's/ --gpu-bind=none:socket//' "$SCRATCH/job"
	in_cluster sbatch -Q -W -n1 --gpus=1 --hvd-bind=numa -o /dev/null --wrap "sbatch -W -o $SCRATCH/out $SCRATCH/job"
	[ "$(grep -c 'policy=numa' "$SCRATCH/out")" -eq 2 ]
}

@test "the user's MPI type and an inherited choice win" {
	need_pmix
	run srun -n2 --gpus=2 --mpi=none --hvd "$SHOW"
	[ "$(grep -c 'mpi=none policy=socket' <<<"$output")" -eq 2 ]
	run in_cluster env SLURM_MPI_TYPE=pmi2 srun -Q --gpus=1 --hvd "$SHOW"
	grep -q 'mpi=pmi2 policy=socket' <<<"$output"
	run in_cluster env SLURM_MPI_TYPE=none srun -Q --gpus=1 --hvd "$SHOW"
	grep -q 'mpi=none policy=socket' <<<"$output"
	# which Slurm has chosen in salloc's own shell, whose number it writes one way or the other
	for step in 4294967290 -6; do
		run in_cluster env SLURM_STEP_ID=$step SLURM_MPI_TYPE=none srun -Q --gpus=1 --hvd "$SHOW"
		grep -q 'mpi=pmix policy=socket' <<<"$output"
		in_cluster env SLURM_STEP_ID=$step SLURM_MPI_TYPE=none sbatch -Q -W -o "$SCRATCH/out" --gpus=1 --wrap "SLURM_STEP_ID=-5 srun -Q --hvd $SHOW"
		grep -q 'mpi=pmix policy=socket' "$SCRATCH/out"
	done
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
