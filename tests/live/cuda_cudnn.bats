#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# cuDNN: what it offers for the engine's convolutions, and where it is found.

bats_require_minimum_version 1.5.0
load cuda

# cuDNN answers for a device that is described to it; the toolkit's stub of the driver's library is enough to load.
plans() { # DEVICE [WORD]: `cudnn-plans WORD DEVICE`
	[ -x "$BUILD/gpu/cudnn-plans" ] || skip "no cuDNN headers: cudnn-plans was not built"
	local stubs
	stubs=$(find "${CUDA_HOME:-/usr/local/cuda}/" -follow -path '*stubs/libcuda.so' 2>/dev/null | head -n 1)
	[ -n "$stubs" ] || skip "no stub of libcuda.so in the CUDA toolkit"
	ln -sf "$stubs" "$scratch/libcuda.so.1"
	run env LD_LIBRARY_PATH="$scratch:$(dirname "$stubs"):${LD_LIBRARY_PATH:-}" "$BUILD/gpu/cudnn-plans" ${2:+"$2"} "$1"
	[[ $output != *"libcudnn.so.9 is not"* ]] || skip "no libcudnn.so.9"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *'"missing": 0'* || -n ${2:-} ]]
}

@test "cuDNN offers a deterministic plan for every convolution of the engine on an H200" {
	plans h200
}

@test "cuDNN's parts are taken from the folder of the one that was found, whatever LD_LIBRARY_PATH has" {
	local parts=$scratch/another part libraries
	mkdir -p "$parts"
	for part in graph ops cnn heuristic engines_precompiled engines_runtime_compiled; do # of no use to anybody
		"${CC:-gcc}" -shared -Wl,-soname,libcudnn_$part.so.9 -o "$parts/libcudnn_$part.so.9" -x c /dev/null || skip "no compiler for stand-ins of cuDNN's parts"
	done
	libraries=$(dirname "$(find "${CUDA_HOME:-/usr/local/cuda}/" -follow -name libcudnn.so.9 2>/dev/null | head -n 1)")
	[ "$libraries" != . ] || skip "no libcudnn.so.9 in the CUDA toolkit"
	mkdir -p "$scratch/home"
	ln -s "$libraries" "$scratch/home/lib"
	CUDNN_HOME=$(realpath "$scratch/home") LD_LIBRARY_PATH=$(realpath "$parts") plans h200
	# those of later versions
	rm "$scratch/home/lib"
	mkdir "$scratch/home/lib"
	ln -s "$libraries"/libcudnn*.so.9 "$scratch/home/lib/"
	for part in ext engines_tensor_ir; do
		rm -f "$scratch/home/lib/libcudnn_$part.so.9"
		echo "#include <stdio.h>
			__attribute__((constructor)) static void tell(void) { fputs(\"loaded: $part\\n\", stderr); }" |
			"${CC:-gcc}" -shared -fPIC -o "$scratch/home/lib/libcudnn_$part.so.9" -x c -
	done
	CUDNN_HOME=$(realpath "$scratch/home") run "$BUILD/gpu/cudnn-plans" h200
	grep -x 'loaded: ext' <<<"$output"
	grep -x 'loaded: engines_tensor_ir' <<<"$output"
}

@test "cuDNN among Python's wheels is found, in an environment of its own and where Debian's and Ubuntu's Python has them; one that cannot be loaded is told, and not replaced by another" {
	local folder
	cat >"$scratch/find.c" <<-'E'
		#include <stdio.h>
		#include "engine/cuda/library.h"
		int main(void)
		{
			struct error e = { 0 };
			void *library = library_open("libof_a_wheel.so.9", &e);
			puts(library ? "found" : e.text);
			return !library;
		}
	E
	"${CC:-gcc}" -D_GNU_SOURCE -Itrainer -o "$scratch/find" "$scratch/find.c" trainer/engine/cuda/library.c trainer/error.c -ldl || skip "no compiler"
	mkdir -p "$scratch/env/bin"
	printf '#!/bin/sh\n' >"$scratch/env/bin/python3"
	chmod +x "$scratch/env/bin/python3"
	for folder in lib/python3.12/site-packages local/lib/python3.12/dist-packages; do
		mkdir -p "$scratch/env/$folder/nvidia/cudnn/lib"
		"${CC:-gcc}" -shared -o "$scratch/env/$folder/nvidia/cudnn/lib/libof_a_wheel.so.9" -x c /dev/null
		PATH=$(realpath "$scratch/env/bin"):$PATH run --separate-stderr "$scratch/find"
		[ "$output" = found ]
		rm -r "${scratch:?}/env/${folder%%/*}"
	done
	PATH=$(realpath "$scratch/env/bin"):$PATH run "$scratch/find"
	[ "$status" -eq 1 ]
	[[ $output == *"Python environment's wheels"* ]]
	# one that is named and cannot be loaded is told, and not replaced by another
	mkdir -p "$scratch/home/lib" "$scratch/system"
	"${CC:-gcc}" -shared -o "$scratch/system/libof_a_wheel.so.9" -x c /dev/null
	CUDNN_HOME=$scratch/home LD_LIBRARY_PATH=$(realpath "$scratch/system") run "$scratch/find"
	[ "$output" = found ]
	echo garbage >"$scratch/home/lib/libof_a_wheel.so.9"
	CUDNN_HOME=$scratch/home LD_LIBRARY_PATH=$(realpath "$scratch/system") run "$scratch/find"
	echo "$output"
	[ "$status" -eq 1 ]
	[[ $output == "libof_a_wheel.so.9 is there and cannot be loaded: $scratch/home/lib/libof_a_wheel.so.9: "* ]]
	# nor is the system's, which lacks a part
	echo 'int part(void); int part(void) { return 0; }' | "${CC:-gcc}" -shared -Wl,-soname,libpart_of_it.so.1 -o "$scratch/system/libpart_of_it.so" -x c -
	echo 'int part(void); int whole(void); int whole(void) { return part(); }' | "${CC:-gcc}" -shared -fPIC -o "$scratch/system/libof_a_wheel.so.9" -x c - -L"$scratch/system" -lpart_of_it
	LD_LIBRARY_PATH=$(realpath "$scratch/system") run "$scratch/find"
	echo "$output"
	[[ $output == "libof_a_wheel.so.9 is there and cannot be loaded: libpart_of_it.so.1: "*": mend that, or set CUDNN_HOME or NCCL_HOME to where another one is" ]]
	"${CC:-gcc}" -shared -o "$scratch/home/lib/libof_a_wheel.so.9" -x c /dev/null
	CUDNN_HOME=$scratch/home LD_LIBRARY_PATH=$(realpath "$scratch/system") run "$scratch/find"
	[ "$output" = found ]
}

@test "several plans of each convolution can be timed, the engine's first, for the whole of ResNet-50" {
	plans h200 time
	# a plan that is the n-th takes n µs there
	local counted parts
	counted=$(sed -n '/"partial"/d; s/.*"timed": \([0-9]*\), "without": 0, "left": 0,.*"resnet50_first_ms": \(0\.[0-9]*\), "resnet50_best_ms": \2,.*/\1 \2/p' <<<"$output")
	[ "$counted" = "79 0.158" ] # 53 convolutions, three passes each but for the first
	[ "$(grep -c '(plan 1 of [2-8])$' <<<"$output")" -ge 70 ]
	# what is known is told on the way, DenseNet's few first
	parts=$(sed -n 's/.*"timed": \([0-9]*\),.*"densenet121_first_ms": \(0\.[0-9]*\),.*"partial": true}$/\1 \2/p' <<<"$output")
	[ "$(wc -l <<<"$parts")" -ge 10 ]
	[[ $parts == $'5 0.005\n10 0.010\n15 0.011\n'* ]]
	# those without a plan, as most have none in bf16 there, are not among the timed ones
	run env LD_LIBRARY_PATH="$scratch:$(dirname "$(realpath "$scratch/libcuda.so.1")")" "$BUILD/gpu/cudnn-plans" time t4
	echo "$output" | cut -c 1-300
	[[ ${lines[-1]} =~ '"timed": '([0-9]+)', "without": '([0-9]+)', "left": 0,' ]]
	[ $((BASH_REMATCH[1] + BASH_REMATCH[2])) -eq 79 ]
	[ "${BASH_REMATCH[2]}" -ge 50 ]
}

@test "cuDNN offers a deterministic plan for every convolution of the engine on an A100" {
	plans a100
}

@test "cuDNN offers a deterministic plan for every convolution of the engine on a T4" {
	plans t4
}
