#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The device script, tests/gpu/run, from end to end, and what it takes along to a machine with a GPU.

bats_require_minimum_version 1.5.0
load cuda

@test "the device script: what the call's end cuts is not taken for a hang, and nothing is repeated that failed just before" {
	needs_python
	run beside_device_script <<-'END'
		import json, pathlib, sys, tempfile, types
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
		    # a ratio's other half that failed is made anew, on the same card without its first, which takes minutes
		    compiled.beside = item("own:broken", crash, 9)
		    assert call(out, compiled)[9:] == [("own:broken", "failed")]
		    assert call(out, compiled)[10:] == [("own:broken", "failed")]
		    compiled.beside.command = python(ok)
		    assert call(out, compiled)[11:] == [("own:broken", "ok")] and len(call(out, compiled)) == 12
		    # and the first does not begin where there is no time for both
		    late = item("compile:late", ok, 9)
		    late.beside = item("own:beside-late", ok, 9)
		    late.beside.need = 30
		    assert len(call(out, late, limit=20)) == 12
		    # a rate may stand behind words that have no end of line, and is a number
		    rows = call(out, item("own:words", "print('warming up', end=' '); print('{\"images_per_s\": 5}')", 9), item("own:silent", "pass", 9), item("own:nan", "print('{\"images_per_s\": NaN}')", 9))[12:]
		    assert rows == [("own:words", "ok"), ("own:silent", "failed"), ("own:nan", "failed")], rows
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
		    assert run.summary({"status": "ok", "result": {"median_us": 12.345}}) == "12.35 µs"  # of two layers' kernels there is no rate
		    call(out, item("own:b", "print('{\"images_per_s\": null, \"note\": \"none\"}')", 9), item("own:c", "print('[]')", 9), limit=9)
		    before, run.run_item = run.run_item, lambda *_: 1 / 0
		    assert call(out, item("own:d", ok, 9))[-3:] == [("own:b", "ok"), ("own:c", "failed"), ("own:d", "failed")]
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
	run beside_device_script "$scratch" <<-'END'
		import os, pathlib, sys, types
		bin = pathlib.Path(sys.argv[1]) / "build/gpu"
		args = types.SimpleNamespace(bin=bin, cpu=False, python="python3", out=pathlib.Path("out"), libraries={"CHEXNET_LIBRARIES": "/nowhere/here"}, parts=[], install=False, inject=[])
		keys = [item.key for item in run.items(args)]
		assert "engine:one" in keys and "engine:nothing" not in keys, keys
		for args.install in (False, True): # what writes into /usr is asked for
		    assert all(("--install" in item.command) == args.install for item in run.items(args) if item.key == "line:srun")
		assert os.geteuid() or "line:srun" in keys, keys
		os.environ["PATH"] = sys.argv[1] + "/empty"
		assert run.unpacked_libraries(args) == {}
	END
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"chexnet's libraries are not unpacked: "*ldd* ]]
}

@test "the device script says whether PyTorch was read beside the probes, could not be, or took too long" {
	needs_python
	run beside_device_script "$scratch" <<-'END'
		import pathlib, sys, types
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
	printf '#!/bin/sh\n[ "$1" = list ] && echo one && echo two:1 && echo two:2\n' >"$scratch/bin/gpu/gpu-engine"
	chmod +x "$scratch/bin/gpu/gpu-engine"
	cp "$scratch/bin/gpu/gpu-engine" "$scratch/bin/gpu/gpu-kernels"
	# a GPU's own cases, as the machine in software has them; nothing of what is timed has another name
	[ ! -x "$BUILD/tests/test_cuda_ptx_wgmma" ] || "$BUILD/tests/test_cuda_ptx_wgmma" list time >"$scratch/cases"
	[ -s "$scratch/cases" ] || printf 'layer_backward:2:bf16:%s:b4l8\n' launched beside >"$scratch/cases"
	printf '[ "$2" = check ] || cat "%s"\n' "$(realpath "$scratch/cases")" >>"$scratch/bin/gpu/gpu-kernels"
	touch "$scratch/bin/chexnet"
	install -m 755 /dev/null "$scratch/bin/compute-sanitizer"
	cp "$scratch/bin/compute-sanitizer" "$scratch/bin/ncu"
	CUDA_HOME=$scratch run beside_device_script "$scratch/bin/gpu" <<-'END'
		import collections, pathlib, sys, types
		args = types.SimpleNamespace(bin=pathlib.Path(sys.argv[1]), cpu=False, python="python3", out=pathlib.Path("out"), libraries={}, parts=[], install=False, inject=[])
		made, most = run.items(args), collections.Counter()
		for item in made:
		    assert item.stage in run.BUDGET and item.need <= item.limit <= run.BUDGET[item.stage], (item.key, item.need, item.limit)
		    if item.wanted <= 1 and item.stage in ("probe", "own", "eager"):
		        most[item.stage] += item.limit
		# what decides about hundreds of them is read once, or the first would wait for it
		assert all(map(run.digest, made)) and 5 * run.contents.cache_info().misses < run.contents.cache_info().hits, run.contents.cache_info()
		most = {stage: min(seconds, run.BUDGET[stage]) for stage, seconds in most.items()}
		print(most, sum(most.values()))
		assert most["eager"] < run.BUDGET["eager"] + 1 and sum(most.values()) <= 560
		place = {item.key: i for i, item in enumerate(made)}
		# compute-sanitizer is the toolkit's, and a kernel that hangs costs its own time only
		tail = {item.key: item.command[-2:] for item in made if item.command[0] == str(args.bin.parent / "compute-sanitizer")}
		assert tail["sanitize:racecheck:one"] == ["check", "one"] and tail["sanitize:memcheck:two:1"] == ["check", "two:1"] and len(tail) == 12, tail
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
		assert plans["compile:graph-default:256"] == plans["compile:max-autotune:16:resnet50"] == "10"
		assert max(place["compile:reduce-overhead:256"], place["compile:graph-default:256"]) < min(place["time:one"], place["time:cudnn-plans"])
		assert place["compile:graph-default:256"] < place["time:one"] < place["compile:max-autotune:256"] and place["probe:sass"] > place["compile:max-autotune:512"]
		# what three calls are to bring; nothing of it behind what only explains a number
		wanted = [place[key] for key in ("own:densenet121:256:mma", "profile:time:densenet121:256", "own:densenet121:512", "compile:graph-default:16", "compile:graph-default:256", "sanitize:memcheck:one", "feed:train", "own:resnet50:256", "time:one")]
		assert wanted == sorted(wanted) and place["ideal:card"] < place["own:densenet121:256:again"]
	END
	echo "$output"
	[ "$status" -eq 0 ]
	# the calls that its own words name: all of it is there, ncu's minutes are not, and the second has room for both rivals
	local calls=() limit
	mapfile -t calls < <(tests/gpu/run --help | sed -n 's|^ *tests/gpu/run \(.* =.*\)|\1|p')
	[ ${#calls[@]} -eq 2 ]
	CUDA_HOME=$scratch run tests/gpu/run --list --bin "$scratch/bin/gpu" ${calls[0]}
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output != *profile:bytes* && $output != *compile* && $output == *own:densenet121:256:beside-even*own:densenet121:256:again*own:densenet121:16:beside*own:densenet121:16:again*profile:time:densenet121:16*time:layer_backward*check:one*engine:one*eager:densenet121:256* ]]
	[ "$(grep -c profile: <<<"$output")" -le 5 ] # and three files more: no more than eight come back
	CUDA_HOME=$scratch run --separate-stderr tests/gpu/run --list --bin "$scratch/bin/gpu" ${calls[1]}
	echo "$output"
	[ ${#lines[@]} -eq 2 ]
	[[ ${lines[0]} == *" compile:graph-default:16 with own:densenet121:16:"* && ${lines[1]} == *" compile:graph-default:256:resnet50 with own:resnet50:256:"* ]]
	limit=$(sed -n 's/.*--limit \([0-9]*\).*/\1/p' <<<"${calls[0]}")
	[ "$limit" -ge $((325 + 2 * 60)) ] && [ $((60 + limit + 20 + 240)) -le 900 ] # two that hang; and what the second's first needs
	limit=$(sed -n 's/.*--limit \([0-9]*\).*/\1/p' <<<"${calls[1]}")
	[ "$limit" -ge $((215 + 40 + 240)) ] # also where ours hangs beside the first
	[ "$limit" -ge $((230 + 240)) ] && [ $((325 + limit)) -le 840 ] # the second begins with 240 s left; a start takes up to a minute
}

@test "the device script ends with a table: shares of the card's own ideal, and ratios of what was timed side by side" {
	needs_python
	run tests/gpu/ideal.py --copy 4300 --tflops 790 # an H200's: what the goals were written for
	echo "$output"
	[[ $output == *"densenet121 27259 images/s (28758 by bytes alone), resnet50 21679\"}" ]]
	GPU_COPY_RATE='' run tests/gpu/ideal.py
	[ "$status" -eq 64 ]
	[[ $output == "ideal.py: no copy rate: "* ]]
	run beside_device_script <<-'END'
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

@test "no script of the device stage hides a module of Python's: PyTorch imports profile, for one" {
	needs_python
	run python3 -c 'import pathlib, sys; print(*sorted({p.stem for p in pathlib.Path("tests/gpu").iterdir() if p.suffix == ".py"} & sys.stdlib_module_names))'
	[ "$status" -eq 0 ]
	[ -z "$output" ]
}

@test "a step's profile: kernels as CUPTI records them, and a timeline that is not whole is told" {
	needs_python
	[ -e "$BUILD/cuda/cupti/libcupti.so.13" ] || skip "no nvcc, or no cupti.h: libtimeline.so was not built"
	cat >"$scratch/chexnet" <<-'END'
		#!/usr/bin/env python3
		import ctypes, json, os
		if "NOT_LOADED" not in os.environ: # what CUDA's driver does
		    ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
		print(json.dumps({"images_per_s": 100.0, "batch": 2}))
	END
	chmod +x "$scratch/chexnet"
	profile() { # NAME=VALUE… of the stand-in
		run env LD_LIBRARY_PATH="$(realpath "$BUILD/cuda/cupti")" "$@" python3 tests/gpu/step_profile.py time "$BUILD/gpu/libtimeline.so" "$scratch/chexnet" bench
		echo "$status $output"
	}
	profile CUPTI_STEPS=40 STEP_OUT="$scratch/step" # of 10 µs, in which a loss takes 2, two merges 1 each, of which half a µs at once, and a fill 1
	[ "$status" -eq 0 ]
	[ "$(cat "$scratch/step")" = $'2.00 4.00 head_loss_kernel\n1.00 0.50 bn_statistics_kernel\n1.00 -0.50 layer_sums_kernel\n1.00 1.00 fill' ]
	python3 -c '
import json, sys
told = json.loads(sys.argv[1])
assert (told["steps"], told["ms_per_step"], told["gap_share"], told["reductions_share"], told["launches"]) == (29, 0.01, 0.55, 0.15, 4), told
assert [(k["name"], k["launches"], k["ms"]) for k in told["kernels"]] == [("head_loss_kernel", 1, 0.002), ("bn_statistics_kernel", 1, 0.001), ("fill", 1, 0.001), ("layer_sums_kernel", 1, 0.0005)], told
assert told["images_per_s"] == 100 and "merges in a fixed order 15.00 %" in told["note"]' "${lines[-1]}"
	profile CUPTI_STEPS=1
	[ "$status" -eq 1 ]
	[[ ${lines[-1]} == *"head_loss_kernel 1 times among them: no whole step"* ]]
	profile CUPTI_STEPS=40 CUPTI_DROPPED=1
	[ "$status" -eq 1 ]
	[[ ${lines[-1]} == *"records were dropped"* ]]
	profile CUPTI_STEPS=40 NOT_LOADED=1
	[ "$status" -eq 1 ]
	[[ ${lines[-1]} == *"there is no CUDA driver"* ]]
	profile CUPTI_REFUSES=1 # no failure: another machine may allow it
	[ "$status" -eq 0 ]
	[[ ${lines[-1]} == '{"skipped": "CUPTI records nothing: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"'* ]]
}

@test "a step's bytes: as hardware counters tell them, and a machine that keeps them to itself is told from a failure" {
	needs_python
	cat >"$scratch/ncu" <<-'END'
		#!/usr/bin/env python3
		import os, sys
		[out] = [sys.argv[i + 1] for i, word in enumerate(sys.argv) if word == "--log-file"]
		kind, unit = os.environ["KIND"], "Kbyte" if os.environ["KIND"] == "units" else "byte"
		assert os.environ["CHEXNET_GRAPHS"] == "0" and sys.argv[-2:] == ["chexnet", "bench"]
		with open(out, "w") as file:
		    file.write("==PROF== Connected to process 7 (chexnet)\n")
		    if kind == "refuses":
		        file.write("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters\n")
		        sys.exit(1)
		    file.write('"ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum"\n"","","%s","%s","ns"\n' % (unit, unit))
		    for step in range(1 if kind == "short" else 3):
		        file.write('"%d","head_loss_kernel(head_loss)","1,000,000","0","1,000.0"\n' % (2 * step))
		        file.write('"%d","void conv1x1_forward_kernel<__nv_bfloat16, tiles<(int)1, (bool)0>>(conv1x1_forward<T1>)","4,000,000","1,000,000","3,000.0"\n' % (2 * step + 1))
		    if kind == "breaks":
		        file.write("==ERROR== The application returned an error code (9).\n")
		print('{"images_per_s": 3.0, "batch": 2}')
		sys.exit(9 if kind == "breaks" else 0)
	END
	chmod +x "$scratch/ncu"
	profile() { # KIND
		KIND=$1 run python3 tests/gpu/step_profile.py bytes "$scratch/ncu" chexnet bench
		echo "$status $output"
	}
	profile whole
	[ "$status" -eq 0 ]
	python3 -c '
import json, sys
told = json.loads(sys.argv[1])
assert (told["steps"], told["mb_per_image"], told["ms_per_step"]) == (2, 3, 0.004), told
assert [(k["name"], k["share"], k["mb"], k["gb_per_s"]) for k in told["kernels"]] == [("conv1x1_forward_kernel<__nv_bfloat16, tiles<(int)1, (bool)0>>", 0.75, 5, 1666.7), ("head_loss_kernel", 0.25, 1, 1000)], told' "${lines[-1]}"
	profile short
	[ "$status" -eq 1 ]
	[[ ${lines[-1]} == *"no whole step"* ]]
	profile units
	[ "$status" -eq 1 ]
	[[ ${lines[-1]} == *"ncu counts dram__bytes_read.sum in Kbyte"* ]]
	profile breaks
	[ "$status" -eq 1 ]
	[[ ${lines[-1]} == *"ncu ended with 9: The application returned an error code (9)."* ]]
	profile refuses
	[ "$status" -eq 0 ]
	[[ ${lines[-1]} == '{"skipped": "ncu: ERR_NVGPUCTRPERM'* ]]
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

@test "the device script does not begin on a GPU without the packages that chexnet may lack there" {
	needs_python
	mkdir -p "$scratch/bin/gpu"
	for name in gpu/gpu-kernels gpu/gpu-engine gpu/gpu-parity gpu/gpu-probe gpu/gpu-world gpu/cudnn-plans gpu/libtimeline.so chexnet libhvd.so.0 libchexnet_cuda.so spank_hvd.so; do touch "$scratch/bin/$name"; done
	run tests/gpu/run --bin "$scratch/bin/gpu" --out "$scratch/out"
	echo "$output"
	[ "$status" -eq 64 ]
	[[ $output == "tests/gpu/run: not here: packages: tests/gpu/line --fetch: "* ]]
}

@test "the device script: stages run as they are named, and ratios are of one card only" {
	needs_python
	run beside_device_script "$scratch" <<-'END'
		import json, pathlib, sys, time, types
		scratch = pathlib.Path(sys.argv[1])
		run.device_name = lambda args: "a card's name"
		run.carried = lambda args: (1, [], True)
		rate = lambda n: [sys.executable, "-c", "import json; print(json.dumps({'images_per_s': %d, 'memory_mib': 1, 'peak_memory_mb': 1}))" % n]
		made = [run.Item("own:densenet121:256", rate(3000), 20), run.Item("eager:densenet121:256", rate(1000), 20, 1), run.Item("time:one", rate(1), 20, 2)]
		run.items = lambda args: made
		def call(card, stages=(), done=scratch / "done", code=0):
		    run.ask_smi = lambda field: card
		    out = scratch / ("out." + str(time.monotonic_ns()))
		    out.mkdir(parents=True)
		    args = types.SimpleNamespace(bin=scratch, out=out, done=done, stages=stages, list=False, cpu=False, limit=60.0, python="python3", inject=[])
		    assert run.work(args, time.monotonic()) == code
		    if code:
		        return []
		    with open(scratch / "done", "a") as rows:
		        rows.write((out / "rows.jsonl").read_text())
		    return [json.loads(line)["key"].split(":")[0] for line in (out / "rows.jsonl").read_text().splitlines()]
		assert call("one", ("time", "own")) == ["time", "own"]
		assert call("one", ("eager",)) == ["eager"]  # whose table has the other call's row of this card
		assert call("two") == []                     # nothing is left
		made[0].command = rate(6000)                 # another program, on another card
		assert call("two") == ["own", "eager"]
		made.append(run.Item("time:one:more", rate(1), 20, 3))
		assert call("three", ("=time",), code=64) == [] # no item is called that
		assert call("three", ("=time:one:more",)) == ["time"]
	END
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c "^densenet121:256: own 3000 images/s, 1 MiB; eager 1000, 1 MiB: 3.00 times" <<<"$output")" -eq 1 ]
	[ "$(grep -c "^densenet121:256: own 6000 images/s, 1 MiB; eager 1000, 1 MiB: 6.00 times" <<<"$output")" -eq 1 ]
	[ "$(grep -c "^densenet121:256: .* times" <<<"$output")" -eq 2 ]
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

@test "the engine beside PyTorch: what they compute of a network, in fp32 and in bf16, and a gradient that is wrong is told" {
	local python=${PYTHON:-python3} small=(--model small --size 32 --images 8 --steps 3 --device cpu)
	[ -x "$BUILD/gpu/gpu-parity-cpu" ] || skip "gpu-parity-cpu was not built"
	run "$BUILD/gpu/gpu-parity-cpu" small 32 8 2 "$scratch"
	[ "$status" -eq 64 ]
	"$python" -c 'import torch' 2>/dev/null || skip "no PyTorch in $python (PYTHON= names another)"
	run --separate-stderr "$python" tests/gpu/parity.py "$BUILD/gpu/gpu-parity-cpu" "${small[@]}"
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[[ $output == *'"note": "logits within '* ]]
	# one of 160,014 values, once in each file
	for file in fp32.logits fp32.gradients fp32.losses bf16.gradients; do
		printf '#!/bin/sh\n"%s" "$@" && printf "\\0\\0\\200\\101" | dd of="$5/%s.f32" bs=4 conv=notrunc status=none\n' "$BUILD/gpu/gpu-parity-cpu" "$file" >"$scratch/damaged"
		chmod +x "$scratch/damaged"
		run --separate-stderr "$python" tests/gpu/parity.py "$scratch/damaged" "${small[@]}"
		echo "$file: $status $output"
		[ "$status" -eq 1 ]
		[[ $output == *", at most "* ]]
	done
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

@test "the device script that is told to end takes its items along, and what they have on disk" {
	needs_python
	run beside_device_script "$scratch" <<-'END'
		import os, pathlib, signal, sys, threading
		scratch = pathlib.Path(sys.argv[1]).resolve()
		run.items = lambda args: [run.Item("feed:train", ["sh", "-c", "mktemp -d; touch $1/begun; sleep 60; touch $1/alive", "sh", scratch], 90)]
		def end():
		    while not (scratch / "begun").exists():
		        run.time.sleep(0.1)
		    os.kill(os.getpid(), signal.SIGTERM)
		threading.Thread(target=end).start()
		sys.argv = ["run", "--cpu", "--out", str(scratch / "out"), "--done", "/nonexistent"]
		assert run.main() == 143
	END
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(ls "$scratch")" = $'begun\nout' ]
}

@test "the line where Slurm was never installed and there is only a loopback interface: all that it needs came along" {
	[ "$(id -u)" -eq 0 ] || skip "needs root"
	[ -e "$BUILD/spank_hvd.so" ] || skip "no spank_hvd.so"
	[[ $TMPDIR != /usr/* ]] || skip "the build lies in /usr: nothing in there can be laid over it"
	run tests/gpu/line --fetch
	[ "$status" -eq 0 ] || skip "no packages: $output"
	run timeout 3 tests/gpu/line --cpu --hide
	[ "$status" -eq 124 ]
	[ -z "$(ls "$TMPDIR")" ]
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
	for what in "train 1" "sums 3" "train 2" "train-bf16 2" "death 3" "death 2"; do
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
