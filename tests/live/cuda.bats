#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What of the CUDA engine can be checked without a GPU: the compiler's resource report, and the device script from end to end.

bats_require_minimum_version 1.5.0

setup() {
	BUILD=${BUILD:-build}
	scratch=$BUILD/tests/tmp/cuda.$$
	mkdir -p "$scratch"
	TMPDIR=$(realpath "$scratch") # of programs that are killed here, before they tidy up
	export TMPDIR
}

teardown() {
	rm -rf "$scratch"
}

needs_python() {
	python3 -c 'import json, subprocess' 2>/dev/null || skip "no python3, in which the device script is written (it comes with PyTorch, its rival)"
}

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

@test "in machine code of sm_90a nothing writes registers that a product of wgmma uses" {
	[ -e "$BUILD/gpu/gpu-kernels" ] || skip "no nvcc: kernels were not compiled for a GPU"
	run tests/cuda/wgmma_sass "$scratch/sass" "$BUILD/gpu/gpu-kernels" "$BUILD/libchexnet_cuda.so"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output != *skipped* ]] || skip "$(sed 's/.*: "//; s/"}//' <<<"$output")"
	# it sees one that does
	run awk -f tests/cuda/wgmma_sass.awk <(sed '/HGMMA.* R[0-9]*, R[0-9]*, .*gsb0/ { p; s/HGMMA[^ ]* R[0-9]*, \(R[0-9]*\),.*/MOV \1, RZ ;/; }' "$scratch/sass/code.sass")
	[ "$status" -eq 1 ]
	[[ $output == *": MOV R"*"(writes what is read by HGMMA"* ]]
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

@test "the device script: what the call's end cuts is not taken for a hang, and nothing is repeated that failed just before" {
	needs_python
	run python3 - <<-'END'
		import importlib.machinery, importlib.util, json, pathlib, sys, tempfile, types
		loader = importlib.machinery.SourceFileLoader("run", "tests/gpu/run")
		run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
		loader.exec_module(run)
		python = lambda code: [sys.executable, "-c", code]
		item = lambda key, code, limit, **more: run.Item(key, python(code), limit, need=0, **more)
		ok, crash, wait = "print('{}')", "import os; os.abort()", "import time; time.sleep(60)"
		def call(out, *made, limit=3):
		    run.items = lambda args: list(made)
		    args = types.SimpleNamespace(bin=pathlib.Path("/nonexistent/gpu"), cpu=True, list=False, stages=[], out=out, done=None, limit=limit)
		    run.work(args, run.time.monotonic())
		    return [(r["key"], r["status"]) for r in map(json.loads, (out / "rows.jsonl").read_text().split("\n")[:-1])]
		with tempfile.TemporaryDirectory() as folder:
		    out = pathlib.Path(folder)
		    rows = call(out, item("own:a", crash, 9), item("own:a:again", ok, 9, after="own:a"), item("own:c", ok, 9), item("own:c:again", ok, 9, after="own:c"), item("own:long", wait, 9))
		    assert rows == [("own:a", "failed"), ("own:c", "ok"), ("own:c:again", "ok"), ("own:long", "cut")], rows
		    compiled = item("compile:b", ok, 9)
		    compiled.beside = item("own:beside", ok, 9)
		    rows = call(out, item("own:a", crash, 9), item("own:long", ok, 9), item("own:hang", wait, 1), compiled)[4:]
		    assert rows == [("own:long", "ok"), ("own:hang", "timeout"), ("compile:b", "ok"), ("own:beside", "ok"), ("own:a", "failed")], rows
		    # a ratio's other half that failed is made anew, with its first
		    compiled.beside = item("own:broken", crash, 9)
		    assert call(out, compiled)[9:] == [("compile:b", "ok"), ("own:broken", "failed")]
		    assert call(out, compiled)[11:] == [("compile:b", "ok"), ("own:broken", "failed")]
		    compiled.beside.command = python(ok)
		    assert call(out, compiled)[13:] == [("compile:b", "ok"), ("own:broken", "ok")] and len(call(out, compiled)) == 15
		with tempfile.TemporaryDirectory() as folder:
		    out = pathlib.Path(folder)
		    # what had told a part of its result when it was cut keeps that, and runs again; whole, it does not
		    part = "import time; print('{\"images_per_s\": 5, \"partial\": true}', flush=True)"
		    assert call(out, item("eager:a", part + "; time.sleep(60)", 9), limit=2) == [("eager:a", "cut")]
		    assert call(out, item("eager:a", part, 9)) == [("eager:a", "cut"), ("eager:a", "failed")]
		    assert call(out, item("eager:a", part + "; print('{\"images_per_s\": 7}')", 9))[2:] == [("eager:a", "ok")]
		    assert len(call(out, item("eager:a", part + "; print('{\"images_per_s\": 7}')", 9))) == 3
		    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().split("\n")[:-1]]
		    assert [r["result"]["images_per_s"] for r in rows] == [5, 5, 7], rows
		    # one that fails without a result says its last line
		    call(out, item("own:a", "import sys; print('chexnet: no such engine', file=sys.stderr); print(); sys.exit(70)", 9))
		    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().split("\n")[:-1]]
		    assert rows[-1]["why"] == "exit status 70: chexnet: no such engine", rows[-1]
		    # of what PyTorch says, the error, not the advice after it; also after a part of a result
		    advice = "print('torch.OutOfMemoryError: CUDA out of memory.\\n  Tried\\n\\nSet TORCHDYNAMO_VERBOSE=1 for more', file=sys.stderr); sys.exit(1)"
		    call(out, item("eager:b", "import sys; " + advice, 9), item("eager:c", "import sys; print('{\"images_per_s\": 5, \"partial\": true}'); " + advice, 9))
		    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().split("\n")[:-1]]
		    assert [r["why"] for r in rows[-2:]] == 2 * ["exit status 1: torch.OutOfMemoryError: CUDA out of memory."], rows[-2:]
		    # nothing that one item does or prints ends the call for the others; where one fails, what it noted is said, and not how far it came
		    assert run.summary({"status": "failed", "result": {"worst_error": 0, "note": "misaligned address"}}) == "misaligned address"
		    call(out, item("own:b", "print('{\"images_per_s\": null, \"note\": \"none\"}')", 9), item("own:c", "print('[]')", 9), limit=9)
		    before, run.run_item = run.run_item, lambda *_: 1 / 0
		    assert call(out, item("own:d", ok, 9))[-3:] == [("own:b", "ok"), ("own:c", "ok"), ("own:d", "failed")]
		    run.run_item = before
	END
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"own:b "*none* && $output == *"own:d "*"ZeroDivisionError"* ]]
}

@test "the device script finds the cases of programs whose libraries came along, and goes on where those cannot be unpacked" {
	needs_python
	mkdir -p "$scratch/build/gpu/debs" "$scratch/empty"
	printf '#!/bin/sh\n[ -n "$LD_LIBRARY_PATH" ] && [ -z "${LD_LIBRARY_PATH##*/here}" ] && echo one\n' >"$scratch/build/gpu/gpu-engine"
	chmod +x "$scratch/build/gpu/gpu-engine"
	touch "$scratch/build/chexnet"
	run python3 - "$scratch" <<-'END'
		import importlib.machinery, importlib.util, os, pathlib, sys, types
		loader = importlib.machinery.SourceFileLoader("run", "tests/gpu/run")
		run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
		loader.exec_module(run)
		bin = pathlib.Path(sys.argv[1]) / "build/gpu"
		args = types.SimpleNamespace(bin=bin, cpu=False, python="python3", libraries={"CHEXNET_LIBRARIES": "/nowhere/here"}, parts=[], inject=[])
		keys = [item.key for item in run.items(args)]
		assert "engine:one" in keys and "engine:nothing" not in keys, keys
		os.environ["PATH"] = sys.argv[1] + "/empty"
		assert run.unpacked_libraries(args) == {}
	END
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"chexnet's libraries are not unpacked: "*ldd* ]]
}

@test "the device script says whether PyTorch was read beside the probes, could not be, or took too long" {
	needs_python
	run python3 - "$scratch" <<-'END'
		import importlib.machinery, importlib.util, pathlib, sys, types
		loader = importlib.machinery.SourceFileLoader("run", "tests/gpu/run")
		run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
		loader.exec_module(run)
		python = pathlib.Path(sys.argv[1]) / "python"
		for code, seconds in ("exit 0", 60), ("exit 1", 60), ("exec sleep 60", 0.1):
		    python.write_text("#!/bin/sh\n" + code + "\n")
		    python.chmod(0o755)
		    run.Reader(types.SimpleNamespace(python=str(python.resolve())), [run.Item("eager:a", [run.HERE / "rival.py"], 9)]).wait(run.time.monotonic() + seconds)
	END
	echo "$output"
	[ "$status" -eq 0 ]
	[ ${#lines[@]} -eq 3 ]
	[[ ${lines[0]} == "PyTorch was read in "* && ${lines[1]} == "PyTorch cannot be imported (exit status 1): "* && ${lines[2]} == "PyTorch was not read in "* ]]
}

@test "the device script: one call has room for all that is wanted most, whatever it takes, and nothing needs more than its stage has" {
	needs_python
	mkdir -p "$scratch/bin/gpu"
	printf '#!/bin/sh\n[ "$1" = list ] && echo one && echo two:1 && echo two:2\n' >"$scratch/bin/gpu/gpu-kernels"
	chmod +x "$scratch/bin/gpu/gpu-kernels"
	cp "$scratch/bin/gpu/gpu-kernels" "$scratch/bin/gpu/gpu-engine"
	touch "$scratch/bin/chexnet"
	install -m 755 /dev/null "$scratch/bin/compute-sanitizer"
	CUDA_HOME=$scratch run python3 - "$scratch/bin/gpu" <<-'END'
		import collections, importlib.machinery, importlib.util, pathlib, sys, types
		loader = importlib.machinery.SourceFileLoader("run", "tests/gpu/run")
		run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
		loader.exec_module(run)
		args = types.SimpleNamespace(bin=pathlib.Path(sys.argv[1]), cpu=False, python="python3", libraries={}, parts=[], inject=[])
		made, most = run.items(args), collections.Counter()
		for item in made:
		    assert item.stage in run.BUDGET and item.need <= item.limit <= run.BUDGET[item.stage], (item.key, item.need, item.limit)
		    if item.wanted <= 1 and item.stage in ("probe", "own", "eager"):
		        most[item.stage] += item.limit
		most = {stage: min(seconds, run.BUDGET[stage]) for stage, seconds in most.items()}
		print(most, sum(most.values()))
		assert most["eager"] < run.BUDGET["eager"] + 1 and sum(most.values()) <= 560
		place = {item.key: i for i, item in enumerate(made)}
		# compute-sanitizer is the toolkit's, and a kernel that hangs costs its own time only
		tail = {item.key: item.command[-2:] for item in made if item.command[0] == str(args.bin.parent / "compute-sanitizer")}
		assert tail["sanitize:racecheck:one"] == ["all", "one"] and tail["sanitize:memcheck:two"] == ["all", "two"] and len(tail) == 9, tail
		# each batch once before one is repeated; what the engine computes before other rivals
		assert max(place["own:densenet121:16"], place["eager:densenet121:16"]) < place["own:densenet121:256:again"] < place["eager:densenet121:256:again"] < place["check:one"] < place["engine:one"]
		for later in ("graph:densenet121:16", "graph:densenet121:256"):
		    assert max(place["own:densenet121:16"], place["eager:densenet121:16"], place["engine:one"]) < place[later] < place["time:one"]
		# nothing that may be left spinning on the device comes before what is timed for the ratios
		assert max(place[key] for key in place if key.startswith(("own:densenet121:16", "eager:", "graph:")) and made[place[key]].wanted <= 2) < place["probe:nccl-graph"] < place["probe:nccl-abort"]
		# as one graph with a choice among eager's plans first; looking through all of cuDNN's plans takes minutes
		plans = {item.key: item.command[item.command.index("--plans") + 1] if "--plans" in item.command else "" for item in made}
		for graph in ("graph:densenet121:16", "graph:densenet121:256", "graph:resnet50:256"):
		    assert (plans[graph], plans[graph + ":all-plans"]) == ("10", "") and place[graph + ":all-plans"] > place["time:one"]
		assert max(place["compile:reduce-overhead:256"], place["compile:graph-default:256"]) < min(place["time:one"], place["time:cudnn-plans"])
		assert place["compile:graph-default:16"] < place["time:one"] < place["compile:max-autotune:256"] and place["probe:sass"] > place["compile:max-autotune:512"]
		# what three calls are to bring; nothing of it behind what only explains a number
		wanted = [place[key] for key in ("own:densenet121:256:wgmma", "own:densenet121:512", "compile:graph-default:256", "sanitize:memcheck:one", "feed:train", "compile:graph-default:16", "own:resnet50:256", "time:one")]
		assert wanted == sorted(wanted) and place["ideal:card"] < place["own:densenet121:256:again"]
	END
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "the device script ends with a table: shares of the card's own ideal, and ratios of what was timed side by side" {
	needs_python
	run tests/gpu/ideal.py --copy 4300 --tflops 790 # an H200's: what the goals were written for
	echo "$output"
	[[ $output == *"densenet121 27259 images/s (28758 by bytes alone), resnet50 21679\"}" ]]
	GPU_COPY_RATE='' run tests/gpu/ideal.py
	[ "$status" -eq 64 ]
	[[ $output == "ideal.py: no copy rate: "* ]]
	run python3 - <<-'END'
		import importlib.machinery, importlib.util
		loader = importlib.machinery.SourceFileLoader("run", "tests/gpu/run")
		run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
		loader.exec_module(run)
		row = lambda key, images_per_s, status="ok", **more: {"key": key, "status": status, "result": {"images_per_s": images_per_s, **more}}
		rows = [{"key": "ideal:card", "status": "ok", "result": {"note": "at 3000 GB/s", "densenet121": {"images_per_s": 20000}}}, {"key": "probe:system", "status": "failed", "why": "SIGSEGV"},
		        row("own:densenet121:256", 11000, memory_mib=4600), row("eager:densenet121:256", 3999, peak_memory_mb=1048.576), row("own:densenet121:256:again", 13000), row("eager:densenet121:256:again", 4001),
		        row("graph:densenet121:256", 5000), row("compile:graph-default:256", 6000), row("own:densenet121:256:beside-graph-default", 15000), row("eager:densenet121:16", 9, "cut", partial=True),
		        row("compile:graph-default:256:resnet50", 7000)]
		print("\n".join(run.table(rows, "a card")))
		print(run.table([row("own:densenet121:256:again", 8, memory_mib=3)], "a card")[1]) # its first run failed
	END
	echo "$output"
	[ "${lines[0]}" = "a card: at 3000 GB/s" ]
	[ "${lines[1]}" = "densenet121:256: own 12000 images/s, 4600 MiB; 60 % of the ideal; eager 4000, 1000 MiB: 3.00 times; graph 5000: 2.40 times; compile:graph-default 6000: 2.50 times" ]
	[ "${lines[2]}" = "resnet50:256: compile:graph-default 7000" ]
	[ "${lines[3]}" = "densenet121:256: own 8 images/s, 3 MiB" ]
	[ ${#lines[@]} -eq 4 ]
}

@test "the device script does not begin on a GPU without the programs that it is to measure" {
	needs_python
	mkdir -p "$scratch/bin/gpu"
	touch "$scratch/bin/gpu/gpu-kernels"
	run tests/gpu/run --bin "$scratch/bin/gpu" --out "$scratch/out"
	echo "$output"
	[ "$status" -eq 64 ]
	[[ $output == *"not here: "*"/bin/chexnet, "*"/bin/gpu/gpu-engine, "*": make all gpu"* && $output != *gpu-kernels* ]]
}

@test "PyTorch's step, eager and as one graph: tells what it knows before it is through, and the same losses" {
	local python=${PYTHON:-python3} mode losses=()
	"$python" -c 'import torch' 2>/dev/null || skip "no PyTorch in $python (PYTHON= names another)"
	for mode in eager graph; do
		run --separate-stderr "$python" tests/gpu/rival.py --device cpu --image-size 32 --blocks 1,1 --batch 2 --steps 60 --warmup 1 --mode $mode
		echo "$output $stderr"
		[ "$status" -eq 0 ]
		[ ${#lines[@]} -eq 4 ]
		[[ ${lines[0]} == *'"first_step_s": '*'"partial": true, "of": "first step"}' && ${lines[0]} != *images_per_s* ]]
		[[ ${lines[1]} == *'"steps": 1, '*'"partial": true, "of": "warm-up"}' && ${lines[2]} == *'"steps": 50, '*'"partial": true}' ]]
		[[ ${lines[3]} == *'"steps": 60, '* && ${lines[3]} != *partial* ]]
		losses+=("$(sed 's/.*"first_loss": \([0-9.]*\),.*"last_loss": \([0-9.]*\).*/\1 \2/' <<<"${lines[3]}")")
	done
	[ "${losses[0]}" = "${losses[1]}" ]
}

@test "the device script names a crash and a hang, keeps what came before, and does not run it twice" {
	needs_python
	[ -x "$BUILD/gpu/gpu-kernels-cpu" ] || skip "no gpu-kernels-cpu in $BUILD/gpu"
	run tests/gpu/run --cpu --bin "$BUILD/gpu" --out "$scratch" --done /nonexistent --inject crash --inject hang --inject orphan \
		probe check:statistics check:images check:injected-crash check:injected-hang check:injected-orphan
	echo "$output"
	[ "$status" -eq 1 ]
	# a program whose child lives on, and holds its output, is through when it ends
	grep -q '"key": "check:injected-orphan".*"status": "ok", "seconds": [0-4]\.' "$scratch/rows.jsonl"
	grep -q '"key": "check:injected-crash".*"status": "failed".*"why": "SIGABRT: before the crash"' "$scratch/rows.jsonl"
	grep -q '"key": "check:injected-hang".*"status": "timeout"' "$scratch/rows.jsonl"
	[ "$(grep -c '"key": "check:.*"status": "ok"' "$scratch/rows.jsonl")" -eq 7 ]

	run tests/gpu/run --cpu --bin "$BUILD/gpu" --out "$scratch" --done /nonexistent probe check:statistics check:images
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"8 finished before, 0 done now"* ]]
}

@test "the device script that is killed leaves whole rows, and the next call goes on after them" {
	needs_python
	[ -x "$BUILD/gpu/gpu-kernels-cpu" ] || skip "no gpu-kernels-cpu in $BUILD/gpu"
	tests/gpu/run --cpu --bin "$BUILD/gpu" --out "$scratch" --done /nonexistent check:conv1x1_forward >"$scratch/first" &
	local pid=$! tries=0
	until [ -s "$scratch/rows.jsonl" ] || [ $((++tries)) -gt 300 ]; do sleep 0.1; done
	kill -KILL "$pid"
	wait "$pid" || true
	local rows all
	rows=$(wc -l <"$scratch/rows.jsonl") all=$("$BUILD/gpu/gpu-kernels-cpu" list check | grep -c '^conv1x1_forward')
	[ "$rows" -ge 1 ]
	[ "$all" -ge 4 ]
	printf '{"key": "cut in the mid' >>"$scratch/rows.jsonl"
	run tests/gpu/run --cpu --bin "$BUILD/gpu" --out "$scratch" --done /nonexistent check:conv1x1_forward
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"$rows finished before, $((all - rows)) done now, 0 failed"* ]]
	run tests/gpu/run --cpu --bin "$BUILD/gpu" --out "$scratch" --done /nonexistent check:conv1x1_forward
	echo "$output"
	[[ $output == *"$all finished before, 0 done now"* ]]
}

@test "the line where Slurm was never installed and there is only a loopback interface: all that it needs came along" {
	[ "$(id -u)" -eq 0 ] || skip "needs root"
	[ -e "$BUILD/spank_hvd.so" ] || skip "no spank_hvd.so"
	[[ $TMPDIR != /usr/* ]] || skip "the build lies in /usr: nothing in there can be laid over it"
	run tests/gpu/line --fetch
	[ "$status" -eq 0 ] || skip "no packages: $output"
	# shellcheck disable=SC2016
	run timeout 200 unshare --net sh -c 'ip link set lo up && exec tests/gpu/line --cpu --hide --limit 60 --args "$1"' sh \
		"--engine cpu --model densenet --blocks 1,1 --epochs 1 --steps 3 --batch 4 --image-size 64"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"the machine's own Slurm is hidden"*"hvd: rank 0 on "*"3 steps, 12 images"* ]]
	[[ ${lines[-1]} == '{"status": 0, "engine": "cpu: '* ]]
}

@test "a world of processes on one GPU, rehearsed: collectives, graphs with their all-reduces, and a death in the middle of one" {
	[ -x "$BUILD/gpu/gpu-world-cpu" ] || skip "no nccl.h, or no PMIx: gpu-world-cpu was not built"
	local what
	for what in "train 1" "sums 3" "train 2" "death 3" "death 2"; do
		# shellcheck disable=SC2086
		run timeout 150 "$BUILD/gpu/gpu-world-cpu" $what
		echo "$what: $output"
		[ "$status" -eq 0 ]
		case $what in
		train*) [[ $output == *'"same_bits": true, "host_asked": 3,'* ]] ;;
		sums*) [[ $output == *"3 ranks: 39 collectives equal"* ]] ;;
		death*) [[ $output == *"weights untouched, $((${what#death } - 1)) went on"* ]] ;;
		esac
	done
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
	shim_train kept --resident
	[[ $output == *"resident: "*" images"* ]]
	cmp "$scratch/fed/model.safetensors" "$scratch/kept/model.safetensors"
	run "$BUILD/chexnet" train --resident --engine cpu --data "$scratch/data" --steps 1 --output "$scratch/cpu"
	[ "$status" -eq 64 ]
	[[ $output == *"there is no device to keep them on"* ]]
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

@test "losses of an engine beside the CPU engine's: those that differ, before or after updates, are told apart from those that do not" {
	[ -x "$BUILD/cuda/chexnet" ] || skip "chexnet is not built"
	local tiny=(--model densenet --growth 8 --blocks 2,1 --image-size 32 --batch 4 --precision fp32) cuda case
	LD_LIBRARY_PATH=$BUILD/cuda CHEXNET=$BUILD/cuda/chexnet run tests/gpu/losses cuda 0.1 "${tiny[@]}"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == '{"before": 0.'*'"note": "cuda: loss 0.'*', after three updates 0.'*'; cpu: 0.'* && $output != *apart* ]]
	# the CPU engine's go from 0.7 to 0.5 here
	printf '#!/bin/sh\necho "{\\"loss\\":$(case "$3 $5" in "cpu 0") echo 0.7 ;; "cpu 3") echo 0.5 ;; "cuda 0") echo $BEFORE ;; "cuda 3") echo $AFTER ;; esac)}"\n' >"$scratch/chexnet"
	chmod +x "$scratch/chexnet"
	for case in "0.701 0.51 0" "0.703 0.5 1" "0.7 0.53 1" "0.7 0.7 1" "0.7 nan 1" "nan 0.5 1"; do
		read -r before after cuda <<<"$case"
		BEFORE=$before AFTER=$after CHEXNET=$scratch/chexnet run tests/gpu/losses cuda 0.1
		echo "$case: $status $output"
		[ "$status" -eq "$cuda" ]
		[ "$cuda" -eq 0 ] || [[ $output == *': too far apart"}' ]]
	done
	printf '#!/bin/sh\necho "chexnet bench: no GPU" >&2\nexit 70\n' >"$scratch/chexnet"
	CHEXNET=$scratch/chexnet run tests/gpu/losses cuda 0.1
	[ "$status" -eq 70 ]
	[ "$output" = "chexnet bench: no GPU" ]
}

@test "DenseNet-121 at 224², as nvcc compiled it, without and with wgmma: two steps without a race or a stray byte, and the CPU engine's losses" {
	[ -e "$BUILD/cuda/ptx/libchexnet_cuda.so" ] || skip "no nvcc, cuDNN's headers or zstd.h: nothing that nvcc compiled"
	local kernel failed= pids=()
	software_losses ptx 2 >"$scratch/said" 2>&1 3>&- & # a minute or two of one core each
	pids+=($!)
	CHEXNET_WGMMA=1 software_losses ptx90a 2 >"$scratch/said90a" 2>&1 3>&- &
	pids+=($!)
	for pid in "${pids[@]}"; do
		wait "$pid" || failed=1
	done
	cat "$scratch/said" "$scratch/said90a"
	[ -z "$failed" ]
	# the fused kernels took part, and the profile counts them
	grep -q '"kernel":"void conv3x3_data_kernel.*"launches":[1-9]' "$scratch/ptx/counts"
	grep -q '"kernel":"void conv1x1_backward_kernel.*"sectors_read":[1-9]' "$scratch/ptx/counts"
	for kernel in conv1x1_backward_wgmma conv3x3_forward_wgmma conv3x3_joined_wgmma 'conv1x1_forward_kernel<bf16, conv1x1_forward_shape<128, 4'; do
		grep -q "\"kernel\":\"void $kernel.*\"launches\":[1-9]" "$scratch/ptx90a/counts"
	done
}

@test "wgmma that is asked for where the code is not compiled for sm_90a: refused" {
	[ -e "$BUILD/cuda/ptx/libchexnet_cuda.so" ] || skip "no nvcc, cuDNN's headers or zstd.h: nothing that nvcc compiled"
	CHEXNET_WGMMA=1 LD_LIBRARY_PATH=$BUILD/cuda/ptx:$BUILD/cuda run "$BUILD/chexnet" bench --engine=cuda --precision=bf16 --batch=1 --steps=1
	echo "$output"
	[ "$status" -eq 64 ]
	[[ $output == *"CHEXNET_WGMMA=1"*"not compiled for sm_90a"* ]]
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
	"$BUILD/chexnet" synth --images 80 --size 72 --out "$scratch/nih" >/dev/null
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

# On a GPU of BYTES, as a stand-in for the driver's library says.
with_memory() { # BYTES OPTION…
	run env LD_LIBRARY_PATH="$scratch/nvml:$BUILD/cuda" CUDA_VISIBLE_DEVICES=0 NVML_MEMORY="$1" timeout 100 "$BUILD/cuda/chexnet" train --engine cuda --data "$scratch/data" --model densenet \
		--growth 8 --blocks 2,1 --image-size 32 --steps 1 --resamples 0 --output "$scratch/out.$RANDOM" "${@:2}"
	echo "$output"
}

@test "resident images count: what does not fit beside them is refused with both numbers" {
	[ -x "$BUILD/cuda/chexnet" ] || skip "chexnet is not built"
	[ -e "$BUILD/libchexnet_cuda.so" ] || skip "no CUDA engine"
	mkdir -p "$scratch/nvml"
	"${CC:-gcc}" -shared -fPIC -o "$scratch/nvml/libnvidia-ml.so.1" tests/live/nvml.c || skip "no compiler for a stand-in of libnvidia-ml"
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

@test "the device machine gets every library that chexnet needs and that not every machine has" {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	command -v dpkg >/dev/null || skip "no dpkg: which package a library is of cannot be asked"
	[ -z "${SAN:-}" ] || skip "a build with AddressSanitizer is carried nowhere"
	local library package missing=0 asked=0
	while read -r library; do
		package=$(dpkg -S "*/$(basename "$(realpath "$library")")" 2>/dev/null | grep -F "$(dirname "$library")" | cut -d: -f1 | head -n 1)
		case $package in libc6 | libgcc-s1 | libstdc++6 | zlib1g | '') continue ;; esac
		asked=$((asked + 1))
		sed '/^# Slurm/,$d; /^#/d' tests/gpu/packages | tr ' ' '\n' | grep -qxF "$package" || { echo "$library is of $package, which tests/gpu/packages lacks"; missing=1; }
	done < <(ldd "$BUILD/chexnet" | sed -n 's/.* => \(\/[^ ]*\).*/\1/p')
	[ "$asked" -ge 6 ]
	[ $missing -eq 0 ]
}

@test "what is carried to a machine with a GPU stays below 64 MiB: programs, packages and the tree" {
	[ -e "$BUILD/gpu/gpu-kernels" ] && [ -e "$BUILD/libchexnet_cuda.so" ] || skip "no nvcc: nothing was built for a GPU"
	local programs tree packages=18000000 file
	programs=$(for file in "$BUILD"/gpu/* "$BUILD"/{chexnet,libhvd.so.0,libchexnet_cuda.so,spank_hvd.so}; do [ ! -f "$file" ] || stat -c %s "$file"; done | awk '{ s += $1 } END { print s }')
	tree=$(git ls-files -z 2>/dev/null | xargs -0 du -cb | awk 'END { print $1 }') || tree=4000000
	echo "programs $programs, packages $packages, tree $tree bytes"
	[ $((programs + packages + tree)) -lt $((62 << 20)) ]
}

@test "a changed program is measured again" {
	needs_python
	mkdir -p "$scratch/bin"
	printf '#!/bin/sh\n[ "$1" = list ] && { [ "$2" = check ] && echo one; exit 0; }\necho "{\\"worst_error\\": 0.5}"\n' >"$scratch/bin/gpu-kernels-cpu"
	chmod +x "$scratch/bin/gpu-kernels-cpu"
	tests/gpu/run --cpu --bin "$scratch/bin" --out "$scratch" --done /nonexistent check
	run tests/gpu/run --cpu --bin "$scratch/bin" --out "$scratch" --done /nonexistent check
	[[ $output == *"1 finished before, 0 done now"* ]]
	echo '# another' >>"$scratch/bin/gpu-kernels-cpu"
	run tests/gpu/run --cpu --bin "$scratch/bin" --out "$scratch" --done /nonexistent check
	[[ $output == *"0 finished before, 1 done now"* ]]
}

@test "a program that does not start on the device machine is a failure, not a stage without cases" {
	needs_python
	mkdir -p "$scratch/bin"
	printf '#!/bin/sh\necho "error while loading shared libraries" >&2\nexit 127\n' >"$scratch/bin/gpu-kernels-cpu"
	chmod +x "$scratch/bin/gpu-kernels-cpu"
	run tests/gpu/run --cpu --bin "$scratch/bin" --out "$scratch" --done /nonexistent check
	echo "$output"
	[ "$status" -eq 1 ]
	[[ $output == *"exit status 127"*"failed: check:nothing"* ]]
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

@test "cuDNN among Python's wheels is found, in an environment of its own and where Debian's and Ubuntu's Python has them" {
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
	[ "$status" -eq 1 ] && [[ $output == *"Python environment's wheels"* ]]
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
