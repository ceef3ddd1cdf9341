#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What of the CUDA engine can be checked without a GPU: the compiler's resource report, and the engine inside the whole program.

bats_require_minimum_version 1.5.0
load cuda

@test "every kernel keeps its limits of registers and spills, for every architecture" {
	local reports
	reports=$(find "$BUILD/obj/nvcc" -name '*.ptxas' 2>/dev/null) || true
	[ -n "$reports" ] || skip "no nvcc: kernels were not compiled for a GPU"
	# shellcheck disable=SC2086
	run awk '
		FNR == NR { if ($0 !~ /^#/ && NF == 3) { name[++n] = $1; registers[n] = $2; spills[n] = $3 } next }
		/Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; arch = part[4] }
		/bytes spill stores/ { spill = $5 }
		/Used [0-9]+ registers/ {
			for (i = 1; i <= n; i++) if (kernel ~ name[i]) break
			match($0, /Used [0-9]+/); used = substr($0, RSTART + 5, RLENGTH - 5)
			kernels++
			if (used + 0 > registers[i] + 0 || spill + 0 > spills[i] + 0) { print arch " " kernel ": " used " registers, " spill " bytes of spills; allowed " registers[i] ", " spills[i]; bad = 1 }
		}
		END { print kernels + 0 " kernels compiled"; exit bad || kernels < 50 }' tests/cuda/limits.txt $reports
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "no assembler's wait comes between products of wgmma" {
	local reports
	reports=$(find "$BUILD/obj/nvcc" -name '*.ptxas' 2>/dev/null) || true
	[ -n "$reports" ] || skip "no nvcc: kernels were not compiled for a GPU"
	# shellcheck disable=SC2086
	run grep -h '(C75' $reports
	echo "$output"
	[ "$status" -eq 1 ]
}

@test "in machine code of sm_90a nothing writes registers that a product of wgmma uses, and nothing but weights is read before the kernel in front has ended" {
	[ -e "$BUILD/gpu/gpu-kernels" ] || skip "no nvcc: kernels were not compiled for a GPU"
	local early
	run tests/cuda/wgmma_sass "$scratch/sass" "$BUILD/gpu/gpu-kernels" "$BUILD/libchexnet_cuda.so"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output != *skipped* ]] || skip "$(sed 's/.*: "//; s/"}//' <<<"$output")"
	# it sees one that does
	run awk -f tests/cuda/wgmma_sass.awk <(sed '/HGMMA.* R[0-9]*, R[0-9]*, .*gsb0/ { p; s/HGMMA[^ ]* R[0-9]*, \(R[0-9]*\),.*/MOV \1, RZ ;/; }' "$scratch/sass/code.sass")
	[ "$status" -eq 1 ]
	[[ $output == *": MOV R"*"(writes what is read by HGMMA"* ]]
	for early in LDG.E STG.E; do
		run awk -f tests/cuda/early_sass.awk <(sed "s/PREEXIT ;/$early R2, desc[UR4][R4.64] ;/" "$scratch/sass/code.sass")
		[ "$status" -eq 1 ]
		[[ $output == *"update_kernel"*": $early R2, "*" before it waits for the kernel in front"* ]]
		[[ $output == *"conv3x3_joined"*": $early "* || $early = LDG.E ]]
	done
	# also where only weights may be read, and behind a wait that is another branch's
	for early in 's/PREEXIT ;/LDG.E R2, desc[UR4][R4.64] ;/' 's/ACQBULK ;/NOP ;/'; do
		run awk -f tests/cuda/early_sass.awk <(sed "/^\.text\..*_merging/,/ACQBULK/ $early" "$scratch/sass/code.sass")
		[ "$status" -eq 1 ]
		[[ $output == *conv3x3_merging*" reads "*" times before it waits for the kernel in front, not "* && $output != *backwardIS0_* ]]
	done
	run awk -f tests/cuda/early_sass.awk <(sed 's/ACQBULK ;/NOP ;/' "$scratch/sass/code.sass")
	[ "$status" -eq 1 ]
	[[ $output == *"does not wait for the kernel in front"* ]]
}

@test "a look through machine code says where there is none of sm_90a" {
	mkdir -p "$scratch/tools"
	printf '#!/bin/sh\n' | tee "$scratch/tools/cuobjdump" >"$scratch/tools/nvdisasm"
	chmod +x "$scratch"/tools/*
	PATH=$(realpath "$scratch/tools"):$PATH run tests/cuda/wgmma_sass "$scratch/sass" tests/run
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == '{"skipped": "no machine code of sm_90a'* ]]
}

@test "maps are rotated over four times the second-level cache, however large a GPU has it" {
	[ -x "$BUILD/tests/test_cuda_ptx_kernels" ] || skip "no nvcc, cuDNN's headers or zstd.h: nothing that nvcc compiled"
	local cache
	for cache in 4194304 6291456 41943040; do # T4, V100, A100
		PTX_CACHE=$cache run "$BUILD/tests/test_cuda_ptx_kernels" check timing
		echo "$output"
		[ "$status" -eq 0 ]
	done
}

@test "the copy that kernels are compared with is a kernel's own, and the driver's is told beside it" {
	[ -x "$BUILD/tests/test_cuda_ptx_kernels" ] || skip "no nvcc, cuDNN's headers or zstd.h: nothing that nvcc compiled"
	PTX_PROFILE=$scratch/counts run "$BUILD/tests/test_cuda_ptx_kernels" copy 1
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *'"worst_error": 0, "gb_per_s": '*', "driver_gb_per_s": '* ]]
	cat "$scratch/counts"
	grep -q '"kernel":"plain_copy_kernel.*"launches":[1-9]' "$scratch/counts"
}

@test "plans of cuDNN that cannot be run are replaced and told; a kernel's fault is not put down to them" {
	[ -x "$BUILD/tests/test_cuda_ptx_network" ] || skip "no nvcc, cuDNN's headers or zstd.h: nothing that nvcc compiled"
	PTX_CUDNN_FAILS=2 run "$BUILD/tests/test_cuda_ptx_network" check gradients
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"cuDNN: pass 2 cannot be run: the engine's own slow kernel computes it"* ]]
	[[ $output == *", 9 convolutions by slow kernels; densenet"* ]]
	PTX_FAULT=1 PTX_CUDNN_FAILS=2 run "$BUILD/tests/test_cuda_ptx_network" check gradients
	echo "$output"
	[ "$status" -eq 1 ]
	[[ $output != *"slow kernel"* ]]
}

@test "where the engine does not open, each of its device tests ends with the reason" {
	[ -x "$BUILD/gpu/gpu-engine" ] || skip "no nvcc: nothing was built for a GPU"
	local tests one
	tests=$("$BUILD/gpu/gpu-engine" list engine)
	[[ $tests == *maps* && $tests == *bits* ]]
	for one in $tests; do
		CUDA_VISIBLE_DEVICES='' run "$BUILD/gpu/gpu-engine" check "$one" # the driver's library, too, may be missing here
		echo "$output"
		[ "$status" -eq 1 ]
		[[ $output == *'"note": "'*'no GPU: looking at the device: '* ]]
	done
}

@test "a driver that is older than the toolkit is told as that, and what to do about it" {
	[ -e "$BUILD/libchexnet_cuda.so" ] && [ -e "$BUILD/cuda/libcuda.so.1" ] || skip "no nvcc: the engine was not built"
	LD_LIBRARY_PATH=$BUILD/cuda run "$BUILD/chexnet" bench --engine cuda --model densenet121 --batch 2 --steps 1
	echo "$output"
	[ "$status" -eq 70 ]
	[[ $output == *"looking at the device: there is no NVIDIA driver, or it is too old for CUDA 1"*", with which this was built: update it, or build with an older toolkit"* ]]
}

@test "a GPU that the build has no code for is told as that before anything else is asked of it, and what to do about it" {
	[ -e "$BUILD/cuda/ptx/libchexnet_cuda.so" ] || skip "no nvcc, cuDNN's headers or zstd.h: nothing that nvcc compiled"
	PTX_CAPABILITY=70 LD_LIBRARY_PATH=$BUILD/cuda/ptx:$BUILD/cuda run "$BUILD/chexnet" bench --batch=1 --steps=1 --precision=fp32
	echo "$output"
	[ "$status" -eq 70 ]
	[[ $output == *"sm_70: looking at the device: this build has no code for it: "*CUDA_ARCHS*"--engine cpu" ]]
}

# The CUDA engine on the shim inside the whole program: slow, so everything is small.
shim_train() { # NAME OPTION…
	run env LD_LIBRARY_PATH="$BUILD/cuda" CUDA_VISIBLE_DEVICES=0 timeout 200 "$BUILD/cuda/chexnet" train --engine cuda --data "$scratch/data" --model densenet --growth 8 --blocks 2,1 --image-size 32 \
		--batch 2 --epochs 1 --seed 3 --output "$scratch/$1" "${@:2}"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"cuda: CPU shim"* ]]
}

@test "training on the CUDA engine: images that stay on the device give the model that fed ones give" {
	[ -x "$BUILD/cuda/chexnet" ] || skip "chexnet is not built"
	"$BUILD/chexnet" synth --images 60 --size 40 --out "$scratch/nih" >/dev/null
	"$BUILD/chexnet" prepare --size 40 --format packed nih "$scratch/nih" "$scratch/data" >/dev/null
	shim_train fed
	[[ $output == *"fp32, the default, leaves the GPU's tensor cores unused"* ]]
	shim_train kept --resident --precision=fp32
	[[ $output == *"resident: "*" images"* && $output != *"tensor cores"* ]]
	cmp "$scratch/fed/model.safetensors" "$scratch/kept/model.safetensors"
	run "$BUILD/chexnet" train --resident --engine cpu --data "$scratch/data" --steps 1 --output "$scratch/cpu"
	[ "$status" -eq 64 ]
	[[ $output == *"there is no device to keep them on"* ]]
}

@test "a training that goes on in fp16 begins with the loss scale that it asks for, not with the 1 of the precision before" {
	[ -x "$BUILD/cuda/chexnet" ] || skip "chexnet is not built"
	"$BUILD/chexnet" synth --images 60 --size 40 --out "$scratch/nih" >/dev/null
	"$BUILD/chexnet" prepare --size 40 --format packed nih "$scratch/nih" "$scratch/data" >/dev/null
	shim_train run --precision bf16 --steps 1
	shim_train run --precision fp16 --dynamic-loss-scale --loss-scale 512 --steps 2 --fetch-every 1 --resume auto
	[[ $output == *", loss scale 512 (0 steps skipped)"* ]]
	shim_train run --precision fp16 --dynamic-loss-scale --steps 3 --fetch-every 1 --resume auto # and goes on with it
	[[ $output == *", loss scale 512 (0 steps skipped)"* ]]
}

@test "no size is given: a GPU's default is one whose maps halve" {
	[ -x "$BUILD/cuda/chexnet" ] || skip "chexnet is not built"
	"$BUILD/chexnet" synth --images 40 --size 64 --out "$scratch/nih" >/dev/null # as large as the built-in ones
	"$BUILD/chexnet" prepare --size 64 --format packed nih "$scratch/nih" "$scratch/data" >/dev/null
	run env LD_LIBRARY_PATH="$BUILD/cuda" CUDA_VISIBLE_DEVICES=0 timeout 200 "$BUILD/cuda/chexnet" train --engine cuda --data "$scratch/data" --model densenet --growth 8 --blocks 2,2,2,2 --batch 2 --steps 1 --output "$scratch/model"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"cuda: CPU shim"* ]]
}

@test "where there is a GPU and the CPU is to compute, gradients are not in its memory" {
	[ -x "$BUILD/cuda/chexnet" ] || skip "chexnet is not built"
	mkdir -p "$scratch/nccl/lib"
	printf '#include <stdio.h>\n__attribute__((constructor)) static void told(void) { fputs("NCCL is opened\\n", stderr); }\n' | ${CC:-cc} -shared -fPIC -x c -o "$scratch/nccl/lib/libnccl.so.2" -
	step() { # OPTION…
		run env NCCL_HOME="$scratch/nccl" LD_LIBRARY_PATH="$BUILD/cuda" CUDA_VISIBLE_DEVICES=0 timeout 100 "$BUILD/cuda/chexnet" bench --model densenet --growth 16 --blocks 1,1 --image-size 32 --batch 2 --steps 1 "$@"
		echo "$status $output"
	}
	step --engine cpu
	[ "$status" -eq 0 ]
	[[ $output != *"NCCL is opened"* ]]
	step --engine cuda # which may have them there
	[[ $output == *"NCCL is opened"* ]]
	HVD_BACKEND=nccl step --engine reference
	[ "$status" -eq 64 ]
	[[ $output == *"HVD_BACKEND=nccl adds up what is in a GPU's memory, and --engine says that the CPU computes: leave out one of them"* ]]
}

# Largest difference between the bytes of two pictures that were written as PNG (RGB, 8 bits).
picture_difference() { # FILE FILE
	python3 - "$1" "$2" <<-'END'
		import struct, sys, zlib
		def pixels(path):
		    data, at, packed = open(path, "rb").read(), 8, b""
		    while at < len(data):
		        size, kind = struct.unpack(">I4s", data[at:at + 8])
		        body = data[at + 8:at + 8 + size]
		        if kind == b"IHDR":
		            width, height, depth, colours = struct.unpack(">IIBB", body[:10])
		            assert (depth, colours) == (8, 2)
		        packed += body if kind == b"IDAT" else b""
		        at += 12 + size
		    raw, row, rows = zlib.decompress(packed), bytes(3 * width), []
		    for y in range(height):
		        line, kind = bytearray(raw[y * (3 * width + 1) + 1:(y + 1) * (3 * width + 1)]), raw[y * (3 * width + 1)]
		        for i in range(3 * width):
		            a, b, c = line[i - 3] if i > 2 else 0, row[i], row[i - 3] if i > 2 else 0
		            nearest = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
		            line[i] = line[i] + (0, a, b, (a + b) // 2, nearest)[kind] & 255
		        row = bytes(line)
		        rows.append(row)
		    return b"".join(rows)
		a, b = pixels(sys.argv[1]), pixels(sys.argv[2])
		assert len(a) == len(b)
		print(max(abs(x - y) for x, y in zip(a, b)), len(set(a)))
	END
}

@test "losses of an engine beside the CPU engine's: those that differ, before or after updates, are told apart from those that do not" {
	[ -x "$BUILD/cuda/chexnet" ] || skip "chexnet is not built"
	local tiny=(--model densenet --growth 8 --blocks 2,1 --image-size 32 --batch 4 --precision fp32) cuda case off
	LD_LIBRARY_PATH=$BUILD/cuda CHEXNET=$BUILD/cuda/chexnet run tests/gpu/losses cuda 0.003 0.1 "${tiny[@]}"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == '{"before": 0.'*'"note": "cuda: loss 0.'*', after three updates 0.'*'; cpu: 0.'* && $output != *apart* ]]
	# the CPU engine's go from 0.7 to 0.5 here
	printf '#!/bin/sh\necho "{\\"loss\\":$(case "$3 $5" in "cpu 0") echo 0.7 ;; "cpu 3") echo 0.5 ;; "cuda 0") echo $BEFORE ;; "cuda 3") echo $AFTER ;; esac)}"\n' >"$scratch/chexnet"
	chmod +x "$scratch/chexnet"
	for case in "0.003 0.701 0.51 0" "0.003 0.703 0.5 1" "0.007 0.703 0.5 0" "0.007 0.706 0.5 1" "0.003 0.7 0.53 1" "0.003 0.7 0.7 1" "0.003 0.7 nan 1" "0.003 nan 0.5 1"; do
		read -r off before after cuda <<<"$case"
		BEFORE=$before AFTER=$after CHEXNET=$scratch/chexnet run tests/gpu/losses cuda "$off" 0.1
		echo "$case: $status $output"
		[ "$status" -eq "$cuda" ]
		[ "$cuda" -eq 0 ] || [[ $output == *': too far apart"}' ]]
	done
	printf '#!/bin/sh\necho "chexnet bench: no GPU" >&2\nexit 70\n' >"$scratch/chexnet"
	CHEXNET=$scratch/chexnet run tests/gpu/losses cuda 0.003 0.1
	[ "$status" -eq 70 ]
	[ "$output" = "chexnet bench: no GPU" ]
}

@test "HVD_SYNC=1, which waits for every collective: steps of several ranks are not captured, and the sums are right" {
	[ -x "$BUILD/gpu/gpu-world-cpu" ] || skip "gpu-world-cpu was not built"
	HVD_SYNC=1 run "$BUILD/gpu/gpu-world-cpu" train 2
	echo "$output"
	[ "$(grep -c '^rank [01]: 8 of 8 steps asked the host for their all-reduces' <<<"$output")" -eq 2 ] # which the program, told nothing of it, takes for wrong
	[[ $output == *'"same_bits": true'* && $output != *"cannot wait"* ]]
}

@test "wgmma that is asked for where the code is not compiled for sm_90a: refused" {
	[ -e "$BUILD/cuda/ptx/libchexnet_cuda.so" ] || skip "no nvcc, cuDNN's headers or zstd.h: nothing that nvcc compiled"
	CHEXNET_WGMMA=1 LD_LIBRARY_PATH=$BUILD/cuda/ptx:$BUILD/cuda run "$BUILD/chexnet" bench --engine=cuda --precision=bf16 --batch=1 --steps=1
	echo "$output"
	[ "$status" -eq 64 ]
	[[ $output == *"CHEXNET_WGMMA=1"*"not compiled for sm_90a"* ]]
}

@test "a layer that reads more channels than the fused kernels of few pixels have room for has other kernels" {
	[ -e "$BUILD/cuda/ptx90a/libchexnet_cuda.so" ] || skip "no nvcc, cuDNN's headers or zstd.h: nothing that nvcc compiled"
	local fused='conv1x1_forward_kernel<bf16, conv1x1_forward_shape<64, 4, false, 1, true'
	PTX_PROFILE=$scratch/counts LD_LIBRARY_PATH=$BUILD/cuda/ptx90a:$BUILD/cuda run "$BUILD/chexnet" bench --engine=cuda --precision=bf16 --batch=1 --steps=1 --warm-up=0 --image-size=32 \
		--model=densenet --growth=32 --init-channels=1024 --blocks=30 --json # the last layer: 1,952 channels
	echo "$output"
	[ "$status" -eq 0 ]
	grep -o "\"kernel\":\"void $fused[^}]*\"launches\":[0-9]*" "$scratch/counts"
	grep -q "\"kernel\":\"void $fused.*\"launches\":29," "$scratch/counts"
}

@test "a step without any before it is timed from where it is begun: on a GPU, too" {
	[ -e "$BUILD/cuda/ptx/libchexnet_cuda.so" ] || skip "no nvcc, cuDNN's headers or zstd.h: nothing that nvcc compiled"
	LD_LIBRARY_PATH=$BUILD/cuda/ptx:$BUILD/cuda run "$BUILD/chexnet" bench --engine=cuda --model=densenet --growth=8 --blocks=1 --image-size=32 --batch=2 --steps=1 --warm-up=0 --json --precision=fp32
	echo "$output"
	[ "$status" -eq 0 ]
	# all of it is computed while it is begun here, and takes more than a hundredth of what opening and the step take together
	awk '{ match($0, /"first_step_s":[0-9.e-]+/); all = substr($0, RSTART + 15, RLENGTH - 15); match($0, /"median":[0-9.e-]+/); step = substr($0, RSTART + 9, RLENGTH - 9); exit !(step > 0 && step + 0 > 10 * all) }' <<<"$output"
}

@test "early launches are left out where the code does not wait for what was launched before, whatever the GPU is" {
	[ -x "$BUILD/tests/test_cuda_ptx_network" ] || skip "no nvcc, cuDNN's headers or zstd.h: nothing that nvcc compiled"
	CHEXNET_EARLY=1 PTX_CAPABILITY=90 run "$BUILD/tests/test_cuda_ptx_network" check nan
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "class activation maps by the CUDA engine are those of the CPU engine" {
	needs_python
	[ -x "$BUILD/cuda/chexnet" ] || skip "chexnet is not built"
	"$BUILD/chexnet" synth --images 80 --size 72 --prevalence-floor 0.2 --out "$scratch/nih" >/dev/null
	"$BUILD/chexnet" prepare --size 72 nih "$scratch/nih" "$scratch/data" >/dev/null
	"$BUILD/chexnet" train --engine cpu --data "$scratch/data" --model densenet --growth 8 --blocks 2,1 --image-size 64 --batch 8 --steps 30 --learning-rate 1e-2 --resamples 0 \
		--output "$scratch/model" >/dev/null
	local images=("$scratch"/nih/images/0000000[1-3]_000.png) image difference levels engine
	for engine in cpu cuda auto; do # auto: the GPU
		env LD_LIBRARY_PATH="$BUILD/cuda" timeout 100 "$BUILD/cuda/chexnet" predict --engine $engine --weights "$scratch/model/model.safetensors" --maps "$scratch/$engine" --finding Effusion --json \
			"${images[@]}" 2>&1 >"$scratch/$engine.json" | grep -v ': for research, not a medical device: ' | tee "$scratch/told"
	done
	[ ! -s "$scratch/told" ]
	sed "s|$scratch/auto/|$scratch/cuda/|" "$scratch/auto.json" | cmp - "$scratch/cuda.json"
	run ! cmp "$scratch/cpu.json" <(sed "s|$scratch/cuda/|$scratch/cpu/|" "$scratch/cuda.json")
	for image in 1 2 3; do
		read -r difference levels < <(picture_difference "$scratch/cpu/0000000${image}_000.Effusion.png" "$scratch/cuda/0000000${image}_000.Effusion.png")
		echo "image $image: pictures differ by at most $difference of 255, $levels levels"
		[ "$difference" -le 1 ]
		[ "$levels" -gt 50 ]
	done
	python3 -c 'import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
worst = max(abs(x["logits"][k] - y["logits"][k]) for x, y in zip(a, b) for k in x["logits"])
print("logits differ by at most %.2g" % worst)
assert len(a) == 3 and worst < 1e-4' "$scratch/cpu.json" "$scratch/cuda.json"
}

# On a GPU of BYTES.
with_memory() { # BYTES OPTION…
	run env LD_LIBRARY_PATH="$BUILD/cuda" SHIM_MEMORY="$1" timeout 100 "$BUILD/cuda/chexnet" train --engine cuda --data "$scratch/data" --model densenet \
		--growth 8 --blocks 2,1 --image-size 32 --steps 1 --resamples 0 --output "$scratch/out.$RANDOM" "${@:2}"
	echo "$output"
}

@test "resident images count: what does not fit beside them is refused with both numbers" {
	[ -x "$BUILD/cuda/chexnet" ] || skip "chexnet is not built"
	[ -e "$BUILD/libchexnet_cuda.so" ] || skip "no CUDA engine"
	"$BUILD/chexnet" synth --images 400 --size 128 --out "$scratch/nih" >/dev/null
	"$BUILD/chexnet" prepare --size 128 --format packed nih "$scratch/nih" "$scratch/data" >/dev/null
	local images alone both resident
	images=$("$BUILD/chexnet" bench --plan --gpu 80 --data "$scratch/data" --image-size 128 --resident | sed -n 's/.*resident images.*, \([0-9]*\) of them/\1/p')
	[ "$images" -gt 200 ]

	with_memory 1000000 --batch 2
	[ "$status" -eq 64 ]
	[[ $output =~ --batch=2\ needs\ ([0-9]+)\ MiB\ and\ there\ are\ 1\ MiB.*not\ even\ one\ image\ fits ]]
	alone=${BASH_REMATCH[1]}
	with_memory 1000000 --batch 2 --resident
	[ "$status" -eq 64 ]
	[[ $output =~ --batch=2\ needs\ ([0-9]+)\ MiB,\ ([0-9]+)\ MiB\ of\ them\ for\ the\ $images\ images.*1\ MiB.*without\ --resident ]]
	both=${BASH_REMATCH[1]} resident=${BASH_REMATCH[2]}
	[ "$resident" -ge $((images * 128 * 128 / 1048576)) ]
	[ "$resident" -le $((images * 128 * 128 / 1048576 + 1)) ]
	[ $((both - alone - resident)) -le 1 ]
	[ $((alone + resident - both)) -le 1 ]

	# a GPU with room for the engine and half of the images
	local between=$(((alone + resident / 2) * 1048576 / 9 * 10))
	with_memory $between --batch 2
	[ "$status" -eq 0 ]
	with_memory $between --batch 2 --resident
	[ "$status" -eq 64 ]
	[[ $output == *"--batch=2 needs $both MiB, $resident MiB of them"* ]]
	with_memory $((4 * between)) --batch 2 --resident
	[ "$status" -eq 0 ]
}

@test "bench --plan --resident: the images of --data take their place from the largest batch" {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	[ -e "$BUILD/libchexnet_cuda.so" ] || skip "no CUDA engine"
	"$BUILD/chexnet" synth --images 400 --size 128 --out "$scratch/nih" >/dev/null
	"$BUILD/chexnet" prepare --size 128 --format packed nih "$scratch/nih" "$scratch/data" >/dev/null
	local fed kept one=(--gpu 0.03 --model densenet --growth 16 --blocks 2,1 --precision bf16 --image-size 64 --data "$scratch/data" --batch 1)
	fed=$(planned largest_batch "${one[@]}") kept=$(planned largest_batch "${one[@]}" --resident)
	echo "$fed images, $kept beside the resident ones of $(planned resident_mib "${one[@]}" --resident) MiB"
	[ "$(planned resident_mib "${one[@]}")" = 0 ]
	[ "$kept" -ge 1 ]
	[ "$kept" -lt "$fed" ]
	# as many as take the room of the images, but for cuDNN's workspace, which grows in steps
	awk "BEGIN { d = ($fed - $kept) * $(planned image_mib "${one[@]}") / $(planned resident_mib "${one[@]}" --resident); exit !(d > 0.5 && d < 1.6) }"
	[ "$(planned fits "${one[@]}" --resident --batch "$kept")" = true ]
	[ "$(planned fits "${one[@]}" --resident --batch $((kept + 1)))" = false ]
}

@test "bench --scaling on the CUDA engine: a step that is given before the last one ended, on pixels that stay and on images" {
	[ -x "$BUILD/cuda/chexnet" ] || skip "chexnet is not built"
	"$BUILD/chexnet" synth --images 60 --size 32 --out "$scratch/nih" >/dev/null
	"$BUILD/chexnet" prepare --size 32 --format packed nih "$scratch/nih" "$scratch/data" >/dev/null
	run --separate-stderr env LD_LIBRARY_PATH="$BUILD/cuda" CUDA_VISIBLE_DEVICES=0 timeout 100 "$BUILD/cuda/chexnet" bench --scaling --engine cuda --data "$scratch/data" --resident \
		--model densenet --growth 8 --blocks 2,1 --image-size 32 --batch 2 --warm-up 1 --steps 3 --rounds 1 --json
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[[ $output == *'"resident":true'*'"efficiency":1,'*'"real":{"images_per_s":'*'"efficiency":1,'* ]]
}

# The planner is the engine's own; without cuDNN the plan says what it leaves out.
planned() { # JSON-KEY OPTION…
	"$BUILD/chexnet" bench --plan --json "${@:2}" | sed -n "s/.*\"$1\":\([0-9.truefals]*\).*/\1/p"
}

@test "bench --plan: the largest batch fits and one more does not, and auto follows it" {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	[ -e "$BUILD/libchexnet_cuda.so" ] || skip "no CUDA engine"
	local gpu precision largest auto
	for gpu in 24 t4 1; do
		precision=bf16
		[ $gpu != t4 ] || precision=fp16
		largest=$(planned largest_batch --gpu $gpu --precision $precision)
		auto=$(planned auto_batch --gpu $gpu --precision $precision)
		echo "$gpu: $largest, auto $auto"
		[ "$largest" -ge 1 ]
		[ "$auto" -le "$largest" ]
		[ "$auto" = 256 ] || [ $((2 * auto)) -gt "$largest" ]
		[ "$largest" -gt 4096 ] || [ "$(planned fits --gpu $gpu --precision $precision --batch "$largest")" = true ]
		[ "$largest" -ge 4096 ] || [ "$(planned fits --gpu $gpu --precision $precision --batch $((largest + 1)))" = false ]
	done
}

@test "bench --plan: the text says what the JSON says, and leaves a tenth to others" {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	[ -e "$BUILD/libchexnet_cuda.so" ] || skip "no CUDA engine"
	local batch plan=(bench --plan --gpu 1 --model densenet --growth 16 --blocks 2,1 --image-size 64)
	for batch in 2 4096; do
		run "$BUILD/chexnet" "${plan[@]}" --batch $batch
		echo "$output"
		python3 - "$output" "$("$BUILD/chexnet" "${plan[@]}" --batch $batch --json)" <<-'END'
			import json, re, sys
			text, o = sys.argv[1], json.loads(sys.argv[2])
			assert o["memory_mib"] == 1024 and abs(o["budget_mib"] - 0.9 * 1024) < 1e-6 and o["fits"] == (o["total_mib"] <= o["budget_mib"]) == (o["batch"] == 2), o
			assert abs(sum(o[part + "_mib"] for part in ("parameters", "optimiser", "maps", "workspace", "resident")) - o["total_mib"]) < 1, o
			for part, name in ("parameters", "parameters, gradients, copies"), ("optimiser", "optimiser"), ("maps", "images, maps, their gradients"), ("total", "total"):
			    assert abs(float(re.search(rf"^  {name} +([\d.]+) MiB", text, re.M).group(1)) - o[part + "_mib"]) < 0.06, part
			assert f", {o['image_mib']:.2f} MiB an image\n" in text
			fits = "this fits" if o["fits"] else "this does not fit"
			assert f"\n1.0 GiB of memory, 10 % left to others: {fits}; the largest batch that fits is {o['largest_batch']}, --batch=auto takes {o['auto_batch']}" in text
		END
	done
}

@test "bench --plan: its rows add up, for any batch, and refuse what cannot be" {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	[ -e "$BUILD/libchexnet_cuda.so" ] || skip "no CUDA engine"
	for batch in 1 16 100 512; do
		run "$BUILD/chexnet" bench --plan --gpu h200 --precision bf16 --batch $batch
		echo "$output"
		[ "$status" -eq 0 ]
		awk '/MiB/ && !/total/ && !/GiB/ { for (i = 2; i <= NF; i++) if ($i ~ /^MiB/) { sum += $(i - 1); break } } / total / { total = $2; exit } END { exit !(total > 0 && sum - total < 0.3 && total - sum < 0.3) }' <<<"$output"
	done
	run "$BUILD/chexnet" bench --plan --gpu t4 --precision bf16
	[ "$status" -eq 64 ]
	[[ $output == *"Tesla T4"*"no bf16"* ]]
	run "$BUILD/chexnet" bench --plan --gpu nonsense
	[ "$status" -eq 64 ]
	[[ $output == *"h200"*"GiB"* ]]
	run "$BUILD/chexnet" bench --gpu h200
	[ "$status" -eq 64 ]
}
