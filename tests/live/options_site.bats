#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The words of the site, in plugstack.conf and slurm.conf, and what is next to the plugin there.

load helpers
load step_words

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
	# nor is slurmctld asked what the job has
	printf '%s\n' '#include <stdlib.h>' 'int slurm_load_job() { abort(); }' | "${CC:-gcc}" -x c -shared -fPIC -o "$CLUSTER/etc/asked.so" -
	run in_cluster salloc -Q -N1 -n2 --gres=gpu:2 env LD_PRELOAD="$CLUSTER/etc/asked.so" srun -Q -n2 "$SHOW"
	one_gpu_each 2
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
