#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo.sh - the whole line on this machine: `srun --gpu-bind=socket --hvd ./chexnet …`
#
# SYNOPSIS
#     make demo [DATA=DIR]
#
# DESCRIPTION
#     Starts a private Slurm cluster of two nodes with two GPUs each (device nodes without a device: the CPU
#     engine computes), prepares chest X-rays for training, submits contrib/sbatch/chexnet.sbatch, follows
#     the job, times a few steps of the full DenseNet-121, takes the cluster down, and makes a report of it all:
#     one HTML file with curves, tables and activation maps.
#
#     Without DATA the X-rays are synthetic, with a known best AUROC (the oracle). With DATA=DIR they are
#     those of a directory laid out as NIH publishes ChestX-ray14.
#
#     Everything is written below BUILD/demo; what an earlier demo left there is replaced.
#
# EXIT STATUS
#     0, and the last line is `mean AUROC 0.xxx`; else 1
set -u -o pipefail
export LC_ALL=C # whose numbers have a point
# shellcheck disable=SC2086 # what the user's own cluster is told to do, as SBATCH_PARTITION, and libhvd there, as HVD_IFACE, is not for this one, nor is what a job there has of it
unset ${!SLURM_@} ${!SBATCH_@} ${!SRUN_@} ${!PMIX_@} ${!HVD_@}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "$top" && realpath -m "${BUILD:-build}")
work=$build/demo
cluster=("$top/contrib/cluster/hvd-cluster" --dir "$work/cluster")

# A small network of DenseNet's family learns the synthetic findings in well under a minute on two cores.
image_size=64
network=(--model densenet --growth 16 --blocks 2,2,2,2 --image-size "$image_size")
learning=(--batch 16 --learning-rate 4e-3 --epochs 3)
synthetic_images=12000

step() { printf '\n== %s\n' "$*"; }
die() {
	echo "demo: $*" >&2
	exit 1
}

show() { # the command as a reader would type it in BUILD, then its output
	printf '$ %s\n' "${*//"$build/"/}"
	"$@"
}

prepare_data() { # sets source, a directory in NIH's layout, and data, the prepared one
	data=$work/data
	if [ -n "${DATA:-}" ]; then
		source=$DATA
		step "chest X-rays of $source"
	else
		source=$work/nih
		step "$synthetic_images synthetic chest X-rays, laid out as NIH does"
		show ./chexnet synth --out "$source" --images "$synthetic_images" --size "$image_size" || die "chexnet synth failed"
	fi
	show ./chexnet prepare nih "$source" "$data" --size "$image_size" || die "chexnet prepare failed"
	# what brightness and position alone tell, so that the network's score can be believed
	[ -n "${DATA:-}" ] || show ./chexnet synth --check "$data" || die "chexnet synth --check failed"
}

start_cluster() {
	step "a private Slurm cluster: 2 nodes, each with 2 sockets and 2 GPUs"
	trap 'stop_cluster' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	"${cluster[@]}" up --owner $$ --nodes 2 --sockets 2 --gpus 2 --expose "$data" || exit 1
	"${cluster[@]}" exec sinfo -N -o '%N %T, %c CPUs, %G'
}

stop_cluster() {
	[ ! -d "$work/cluster" ] || "${cluster[@]}" down
}

job_state() { "${cluster[@]}" exec scontrol show job "$1" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'; }

# Prints FILE as it grows, until the job has ended; fails unless the job completed.
follow() { # JOB FILE
	local state reader deadline=$((SECONDS + 1800))
	: >>"$2"
	tail -n +1 -f "$2" &
	reader=$!
	while state=$(job_state "$1"); do
		case $state in PENDING | CONFIGURING | RUNNING | COMPLETING | SUSPENDED) ;; *) break ;; esac
		[ "$SECONDS" -lt "$deadline" ] || break
		sleep 0.5
	done
	sleep 1 # tail's turn
	{ kill "$reader" && wait "$reader"; } 2>/dev/null
	[ "$state" = COMPLETED ] || die "job $1 ended as ${state:-unknown}; its output is $2"
}

train() {
	local job
	step "the job: contrib/sbatch/chexnet.sbatch"
	grep -m 1 '^srun' "$top/contrib/sbatch/chexnet.sbatch"
	job=$("${cluster[@]}" sbatch --parsable --output="$work/job.out" --cpus-per-gpu=1 "$top/contrib/sbatch/chexnet.sbatch" \
		train --data "$data" --output "$work/run" --log-json "$work/run.jsonl" "${network[@]}" "${learning[@]}") || die "sbatch failed"
	echo "job $job"
	follow "$job" "$work/job.out"
}

# Where the network looks, against the boxes of the box list, and everything in one page.
make_report() {
	local boxes=$source/BBox_List_2017.csv names=$work/boxed.txt images=() pointing=() table
	table=$(cd "$source" && compgen -G 'Data_Entry*.csv' | head -n 1) # a path may hold brackets
	step "the report"
	report=$work/report.html
	if [ -e "$boxes" ]; then
		cut -d, -f1 "$boxes" | sort -u | grep -Fxf <(cut -d, -f1 "$work/run/test.csv") | head -n 200 >"$names"
		mapfile -t images < <(find -L "$source" -name '*.png' -path '*images*' | grep -Ff "$names" | sort)
	fi
	if [ "${#images[@]}" -gt 0 ]; then
		echo "\$ ./chexnet predict --weights demo/run/model.safetensors --boxes $boxes --json IMAGE... >demo/pointing.json"
		./chexnet predict --weights "$work/run/model.safetensors" --boxes "$boxes" --json "${images[@]}" 2>&1 >"$work/pointing.json" | grep '^pointing game:' || die "chexnet predict failed"
		! grep -q '"pointing"' "$work/pointing.json" || pointing=(--pointing "$work/pointing.json") # a small set may teach none of the findings that have boxes
		echo "\$ ./chexnet predict --weights demo/run/model.safetensors --maps demo/maps IMAGE..."
		./chexnet predict --weights "$work/run/model.safetensors" --maps "$work/maps" "${images[@]:0:12}" >"$work/maps.out" || die "chexnet predict failed"
	fi
	show ./chexnet report --predictions "$work/run/test.csv" --log "$work/run.jsonl" ${table:+--table "$source/$table"} ${images[0]:+--pictures "$work/maps"} "${pointing[@]}" --out "$report" || die "chexnet report failed"
}

time_densenet121() {
	step "the full DenseNet-121 on 224 x 224 pixels, four ranks on this machine's $(nproc) cores"
	"${cluster[@]}" exec srun --quiet --nodes=2 --gpus-per-node=2 --cpus-per-gpu=1 --gpu-bind=socket --hvd \
		./chexnet bench --model densenet121 --image-size 224 --batch 2 --warm-up 1 --steps 3 || die "chexnet bench failed"
}

mean_auroc() { # of the last table of the job's output
	sed -n 's/^mean of [0-9]* of [0-9]* *\([0-9.]*\|n\/a\).*/\1/p' "$work/job.out" | tail -n 1
}

# A number that looks like a result needs the sentence that says what it is worth.
tell_worth() {
	local images
	images=$(sed -n 's/^AUROC on the test split.*: \([0-9]*\) image.*/\1/p' "$work/job.out" | tail -n 1)
	if [ "${images:-0}" -lt 1000 ]; then
		echo "on $images test images an AUROC means nothing: this shows that the way from files to numbers works"
	else
		echo "a small network after a few epochs at $image_size x $image_size pixels: far below what chexnet train reaches"
	fi
}

main() {
	local program mean
	for program in chexnet spank_hvd.so libhvd.so; do
		[ -e "$build/$program" ] || die "$build/$program is not built: make says why"
	done
	[[ $work =~ ^[A-Za-z0-9/._+@:=-]+$ ]] || die "$work: slurm.conf cannot hold this path, choose another: make demo BUILD=DIR"
	if [ -n "${DATA:-}" ]; then
		[ -d "$DATA" ] || die "DATA=$DATA: no such directory"
		DATA=$(realpath "$DATA")
	fi
	[ ! -d "$work/cluster" ] || "${cluster[@]}" down 2>/dev/null # of a demo that was killed
	rm -rf --one-file-system "$work" || die "$work: an earlier demo's, perhaps another user's, and cannot be removed"
	mkdir -p "$work" && cd "$build" || exit 1

	prepare_data
	start_cluster
	train
	time_densenet121
	stop_cluster
	make_report

	step "done in $SECONDS s"
	echo "model and checkpoints: $work/run"
	echo "report: $report"
	if [ -n "${DATA:-}" ]; then
		tell_worth
	fi
	mean=$(mean_auroc)
	case $mean in 0.* | 1.*) printf 'mean AUROC %.3f\n' "$mean" ;; *) die "the job's output has no mean AUROC: $work/job.out" ;; esac
}
main "$@"
