#!/usr/bin/env bash
# The CPU engine: DenseNet-121, 224 x 224, 2 threads, against a step of plain oneDNN primitives and against PyTorch, in turns; the same bits
# with other numbers of threads; tensor memory; and what rounding does to gradients. PARTS picks from "baseline memory threads rounding errors torch forward ddp".
#
# PyTorch is the rival where PYTHON (default python3) can import torch and torchvision, and OpenVINO in predicting where it can import that, too;
# where not, that is said.
set -eu
BUILD=${BUILD:-build} PYTHON=${PYTHON:-python3} ROUNDS=${ROUNDS:-5} BATCHES=${BATCHES:-8 32} PRECISIONS=${PRECISIONS:-bf16 fp32} PARTS=${PARTS:-baseline memory threads rounding errors torch forward ddp}
chexnet=$BUILD/chexnet here=$(dirname "${BASH_SOURCE[0]}")
for program in "$chexnet" "$BUILD/bench/cpu_pair"; do
	[ -x "$program" ] || { echo "no $program: make bench builds it"; exit 1; }
done
part() { [[ " $PARTS " == *" $1 "* ]]; }
isa=$(grep -owE 'asimd|avx2|avx512f|avx512_bf16|amx_bf16' /proc/cpuinfo | sort -u | tr '\n' ' ')
echo "instruction sets that matter: ${isa:-none}(with amx_bf16 the fused engine multiplies bf16 on AMX, or its description says why not)"

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
field() { sed -n "s/.*\"median\":\([0-9.e+]*\).*/\1/p"; }

if part baseline; then
	for batch in $BATCHES; do
		for precision in $PRECISIONS; do
			printf '\n-- %s, batch %s: ours (first) and plain oneDNN primitives (second); goals: ratio %s, bn_share %s\n' "$precision" "$batch" \
				"$([ "$precision" = bf16 ] && echo '>= 1.8' || echo '>= 1.2')" "$([ "$precision" = bf16 ] && echo '<= 0.50' || echo '<= 0.60')"
			"$BUILD/bench/cpu_pair" baseline "$precision" "$batch" 2 "$ROUNDS" || echo "left out: the line above says why"
		done
	done
fi

if part memory; then
	mib=$("$chexnet" bench --engine cpu --precision bf16 --batch 32 --threads 2 --warm-up 0 --steps 1 --json | sed -n 's/.*"memory_mib":\([0-9.]*\).*/\1/p')
	awk "BEGIN { printf \"\\n-- bf16, batch 32: %.2f GB of tensors, goal <= 2.1: %s\\n\", $mib * 1.048576e-3, $mib * 1.048576e-3 <= 2.1 ? \"met\" : \"MISSED\" }"
fi

if part threads; then
	for precision in $PRECISIONS; do
		printf '\n-- %s, batch 8: 2 threads (first) and 1 thread (second), bits compared\n' "$precision"
		"$BUILD/bench/cpu_pair" threads "$precision" 8 2 2
		printf '\n-- %s, batch 8, 2 threads: fixed partial sums (first) and as many as there are threads (second)\n' "$precision"
		"$BUILD/bench/cpu_pair" order "$precision" 8 2 "$ROUNDS"
	done
fi

if part rounding; then
	printf '\n-- what rounding does to gradients\n'
	"$BUILD/bench/cpu_rounding" small 4 16 64 || echo "left out: the line above says why"
fi

if ! $PYTHON -c 'import torch, torchvision' 2>/dev/null; then
	if part errors || part torch || part forward || part ddp; then
		printf '\nPyTorch left out: %s cannot import torch and torchvision (PYTHON= names another)\n' "$PYTHON"
	fi
	exit 0
fi

versus() { # GOAL LABEL NAME RIVAL COMMAND WITH ARGUMENTS -- OUR COMMAND: both print milliseconds
	local goal=$1 label=$2 name=$3 rival=() a b
	shift 3
	while [ "$1" != -- ]; do rival+=("$1") && shift; done
	shift
	local theirs=() mine=() ratios=()
	for _ in $(seq "$ROUNDS"); do
		a=$("${rival[@]}")
		b=$("$@" | field)
		theirs+=("$a") mine+=("$b") ratios+=("$(awk "BEGIN { print $a / $b }")")
		printf '  %s: %s %.1f ms, ours %.1f ms\n' "$label" "$name" "$a" "$b"
	done
	printf '%-34s %s %8.1f ms  ours %8.1f ms  ratio %.2f (%s to %s, %d rounds)  goal >= %s\n' "$label" "$name" \
		"$(printf '%s\n' "${theirs[@]}" | median)" "$(printf '%s\n' "${mine[@]}" | median)" "$(printf '%s\n' "${ratios[@]}" | median)" \
		"$(printf '%s\n' "${ratios[@]}" | sort -g | head -n 1)" "$(printf '%s\n' "${ratios[@]}" | sort -g | tail -n 1)" "$ROUNDS" "$goal"
}

if part torch; then
	printf '\n-- PyTorch %s, eager, channels last, bf16 by autocast; its best number of threads: all %s cores (one rank)\n' \
		"$($PYTHON -c 'import torch; print(torch.__version__)')" "$(nproc)"
	for batch in $BATCHES; do
		for precision in $PRECISIONS; do
			versus "$([ "$precision" = bf16 ] && echo 2 || echo 1.3)" "$precision, batch $batch, 2 threads" PyTorch "$PYTHON" "$here/cpu_torch.py" "$precision" "$batch" 2 2 -- \
				"$chexnet" bench --engine cpu --precision "$precision" --batch "$batch" --threads 2 --warm-up 1 --steps 2 --json
		done
	done
fi

if part forward; then
	printf '\n-- predictions: PyTorch (eager, channels last, bf16 by autocast) and OpenVINO (one stream)\n'
	rivals="torch openvino"
	$PYTHON -c 'import openvino' 2>/dev/null || { echo "OpenVINO left out: $PYTHON cannot import openvino" && rivals=torch; }
	for rival in $rivals; do
		for batch in 1 16; do
			for precision in $PRECISIONS; do
				versus 1 "$precision, batch $batch, 2 threads" "$rival" "$PYTHON" "$here/cpu_forward.py" "$rival" "$precision" "$batch" 2 10 -- \
					"$chexnet" bench --engine cpu --forward --precision "$precision" --batch "$batch" --threads 2 --warm-up 2 --steps 10 --json
			done
		done
	done
fi

if part errors; then
	printf '\n-- gradients against fp64, beside PyTorch\n'
	scratch=$BUILD/tests/tmp/bench-cpu-errors
	rm -rf "$scratch"
	mkdir -p "$scratch"
	$PYTHON "$here/cpu_errors.py" "$BUILD/bench/cpu_gradients" "$scratch" || echo "cpu_errors: a goal is MISSED"
	rm -rf "$scratch"
fi

if part ddp; then
	printf '\n-- 2 ranks x 1 thread: libhvd on a private one-node Slurm against DDP over Gloo\n'
	if ! command -v srun >/dev/null; then
		echo "left out: no srun for our ranks"
		exit 0
	fi
	for precision in $PRECISIONS; do
		versus 2 "$precision, 2 ranks x batch 8" PyTorch "$PYTHON" "$here/cpu_torch.py" "$precision" 8 1 2 2 -- \
			contrib/cluster/hvd-cluster --dir "$(realpath -m "$BUILD/tests/tmp/bench-cpu")" --plugin none run --nodes 1 --sockets 1 --cores 2 --gpus 0 \
			srun -Q -n2 --mpi=pmix "$(realpath "$chexnet")" bench --engine cpu --precision "$precision" --batch 8 --threads 1 --warm-up 1 --steps 2 --json
	done
fi
