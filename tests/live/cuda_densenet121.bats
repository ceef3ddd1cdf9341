#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The whole network at its real size, as nvcc compiled the engine: minutes on two cores.

bats_require_minimum_version 1.5.0
load cuda

# The losses of the CUDA engine, as nvcc compiled it for $1, and of the CPU engine; $2: steps. Counts of the kernels go to $scratch/$1/counts.
software_losses() {
	local scratch=$scratch/$1
	mkdir "$scratch"
	local steps=(bench --precision=bf16 --batch=1 --steps=1 --warm-up=$(($2 - 1)) --json)
	LD_LIBRARY_PATH=$BUILD/cuda/$1:$BUILD/cuda PTX_PROFILE=$scratch/counts run --separate-stderr "$BUILD/chexnet" "${steps[@]}" --engine=cuda
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	echo "$output" >"$scratch/cuda"
	"$BUILD/chexnet" "${steps[@]}" --engine=cpu >"$scratch/cpu"
	local ours theirs
	ours=$(sed 's/.*"loss":\([0-9.e-]*\).*/\1/' "$scratch/cuda") theirs=$(sed 's/.*"loss":\([0-9.e-]*\).*/\1/' "$scratch/cpu")
	echo "losses: $ours, $theirs"
	awk -v a="$ours" -v b="$theirs" 'BEGIN { exit !(a > 0.5 && a < 0.8 && (a - b) ^ 2 < 0.003 ^ 2) }'
}

@test "DenseNet-121 at 224², as nvcc compiled it, without and with wgmma: two steps without a race or a stray byte, and the CPU engine's losses" {
	[ -e "$BUILD/cuda/ptx/libchexnet_cuda.so" ] || skip "no nvcc, cuDNN's headers or zstd.h: nothing that nvcc compiled"
	local kernel failed= pids=()
	software_losses ptx 2 >"$scratch/said" 2>&1 3>&- & # a minute or two of one core each
	pids+=($!)
	software_losses ptx90a 2 >"$scratch/said90a" 2>&1 3>&- &
	pids+=($!)
	for pid in "${pids[@]}"; do
		wait "$pid" || failed=1
	done
	cat "$scratch/said" "$scratch/said90a"
	[ -z "$failed" ]
	# the kernels of our own took part, and the profile counts them
	grep -q '"kernel":"void conv3x3_data_kernel.*"launches":[1-9]' "$scratch/ptx/counts"
	grep -q '"kernel":"void conv1x1_backward_kernel.*"sectors_read":[1-9]' "$scratch/ptx/counts"
	grep -q '"kernel":"void conv_weight_kernel.*"launches":6,' "$scratch/ptx/counts" # three transitions, two steps
	for kernel in conv1x1_backward_wgmma conv3x3_forward_wgmma conv3x3_joined_wgmma 'conv1x1_forward_kernel<bf16, conv1x1_forward_shape<128, 5, false' \
		'conv1x1_forward_kernel<bf16, conv1x1_forward_shape<64, 4, true, 1, true' 'conv1x1_forward_kernel<bf16, conv1x1_forward_shape<64, 4, false, 1, true'; do
		grep -q "\"kernel\":\"void $kernel.*\"launches\":[1-9]" "$scratch/ptx90a/counts"
	done
}
