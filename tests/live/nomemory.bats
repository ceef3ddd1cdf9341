#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Wherever memory ends, a command ends with one line and exit code 70 and leaves nothing behind, or has done all of its work.

load trained

setup_file() {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH"
	cd "$SCRATCH" || return 1
	export PATH="$BUILD:$PATH" OMP_NUM_THREADS=1
	export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0:detect_leaks=0 # a command that gives up frees nothing
	"${CC:-gcc}" -D_GNU_SOURCE -O1 -shared -fPIC -o nomemory.so "$BATS_TEST_DIRNAME/nomemory.c"
	chexnet synth --out tree --images 60 --size 32 --prevalence-floor 0.2 >/dev/null
	chexnet prepare nih tree set --size 32 >/dev/null
	chexnet train --data set "${SMALL[@]}" --steps 2 --output run >/dev/null
	chexnet train --data set "${SMALL[@]}" --steps 2 --seed 2 --output run2 >/dev/null
	cp run2/test.csv other.csv
}

# Lets about $TEST_PLACES calls for memory fail, one in a run, evenly over all that a good run makes, and each of the last $LAST.
everywhere() { # COMMAND…: writes to the directory it is in
	local calls n every status told
	rm -rf good out
	mkdir good out
	(cd good && NO_MEMORY=$SCRATCH/calls NO_MEMORY_AT=0 LD_PRELOAD=$SCRATCH/nomemory.so "$@" >stdout 2>stderr)
	calls=$(cat calls)
	every=$((calls / ${TEST_PLACES:-60} + 1))
	echo "$calls calls, each ${every}th"
	[ "$calls" -gt 10 ]
	for n in $(seq $((calls % every + 1)) "$every" "$calls"; seq $((calls - ${LAST:-0} + 1)) "$calls"); do
		(cd out && NO_MEMORY=$SCRATCH/calls NO_MEMORY_AT=$n LD_PRELOAD=$SCRATCH/nomemory.so timeout 60 "$@" >stdout 2>stderr) && status=0 || status=$?
		told=$(diff good/stderr out/stderr | grep -c '^>' || true)
		if [ "$status" -eq 0 ]; then
			[ "$told" -gt 0 ] || diff -r -I images_per_s -I 'chexnet report, 20' good out
		else
			rm out/stdout out/stderr
			if [ "$status" -ne 70 ] || [ "$told" -ne 1 ] || [ -n "$(ls out)" ]; then
				echo "call $n: status $status, $told lines, left: $(ls out)"
				return 1
			fi
		fi
		rm -rf out
		mkdir out
	done
}

@test "synth" { everywhere chexnet synth --out tree --images 20 --size 32 --threads 1; }
@test "prepare" { everywhere chexnet prepare nih ../tree set --size 32 --threads 1; }
@test "prepare, as JPEG" {
	chexnet synth --out large --images 6 --size 256 >/dev/null
	everywhere chexnet prepare nih ../large set --format jpeg --threads 1
}
@test "audit" { everywhere chexnet audit --json ../tree --threads 1; }
@test "eval" { everywhere chexnet eval --json --data ../set --weights ../run/model.safetensors --resamples 100 --threads 1; }
@test "predict" { everywhere chexnet predict --json --weights ../run/model.safetensors --threads 1 "$SCRATCH"/tree/images/*[05]_000.png; }
@test "compare" { everywhere chexnet compare --json ../run/test.csv ../other.csv --resamples 100; }
@test "report" { everywhere chexnet report --predictions ../run/test.csv --log ../run/log.jsonl --compare ../other.csv --table ../tree/Data_Entry_2017_v2020.csv --json r.json --resamples 100; }
@test "the report's page" { LAST=60 everywhere chexnet report --predictions ../run/test.csv --log ../run/log.jsonl --table ../tree/Data_Entry_2017_v2020.csv --out r.html --resamples 100; }
@test "bench" {
	[ -e "$BUILD/libchexnet_cuda.so" ] || skip "libchexnet_cuda.so is not built (no nvcc)"
	everywhere chexnet bench --plan --gpu h200 --json --model densenet --growth 8 --init-channels 16 --blocks 2,2 --image-size 32
}

@test "ensemble, whose files are whole before it prints, prints no AUROC that it had no memory for" {
	local n
	for ((n = 1; ; n++)); do
		NO_MEMORY=$SCRATCH/calls NO_MEMORY_AT=$n LD_PRELOAD=$SCRATCH/nomemory.so run --separate-stderr chexnet ensemble mean.csv run/test.csv other.csv
		[ "$status" -ne 0 ] || break
		[ "$status" -eq 70 ]
		[ "${#stderr_lines[@]}" -eq 1 ]
		[[ $output != *-1.0* ]]
	done
	[ "$n" -gt 14 ]
}
