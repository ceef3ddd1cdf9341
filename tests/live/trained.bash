# SPDX-License-Identifier: Apache-2.0
# For live tests of what two small trainings leave: set (prepared data), run1 and run2, their logs and their predictions of the test split.
# shellcheck shell=bash

load helpers
bats_require_minimum_version 1.5.0

SMALL=(--model densenet --growth 4 --blocks 1,1 --image-size 32 --no-augment --batch 8 --resamples 0 --threads 1)

setup_file() {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH"
	cd "$SCRATCH" || return 1
	export PATH="$BUILD:$PATH" OMP_NUM_THREADS=1
	chexnet synth --out tree --images 400 --size 32 --prevalence-floor 0.2 >/dev/null
	chexnet prepare nih tree set --size 32 >/dev/null
	for seed in 1 2; do
		chexnet train --data set --model densenet --growth 4 --blocks 1,1 --image-size 32 --no-augment --steps 12 --eval-every 6 --batch 8 \
			--learning-rate 1e-3 --resamples 100 --seed $seed --threads 1 --output run$seed --log-json log$seed.jsonl >/dev/null
		chexnet eval --data set --weights run$seed/model.safetensors --threads 1 --resamples 0 --predictions $seed.csv >/dev/null
	done
}

teardown_file() { rm -rf "$SCRATCH"; }

setup() { cd "$SCRATCH" || return 1; }

refuses() { # CODE "WORDS" COMMAND…
	local words=$2
	ends_with "$1" "${@:3}"
	stderr=$(grep -v '^chexnet predict: for research, ' <<<"$stderr")
	[ "$(grep -c . <<<"$stderr")" -eq 1 ]
	for word in $words; do [[ $stderr == *"$word"* ]]; done
}
