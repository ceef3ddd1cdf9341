#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Commands that say nothing until their end tell on a terminal how far they are, and take the line away.
bats_require_minimum_version 1.5.0
load helpers

setup_file() {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH"
	"$BUILD/chexnet" synth --out "$SCRATCH/tree" --size 32 --images 300 --prevalence-floor 0.1 >/dev/null
}
teardown_file() { rm -rf "$SCRATCH"; }
setup() {
	cd "$SCRATCH" || return 1
	export OMP_NUM_THREADS=1 # on a busy machine the one that tells, of several, may get no image
}

# told LINE COMMAND…: LINE, a pattern, is on standard error where that is a terminal, and cleared; elsewhere it is not
told() {
	local line=$1
	shift
	script -qec "$(printf '%q ' "$BUILD/chexnet" "$@") 2>&1 >out" /dev/null </dev/null >terminal
	tr '\r' '\n' <terminal | grep -Eq "^.\[K$line images, [0-9:]+ left" || { echo "on the terminal:"; cat -v terminal; return 1; }
	tr '\r' '\n' <terminal | grep -a "images, [0-9:]* left" -A1 | tail -1 | grep -q "^.\[K" || { echo "not cleared:"; cat -v terminal; return 1; }
}

@test "synth, prepare, audit, train, eval and predict tell a terminal how far they are, and a file nothing before a minute is over" {
	small="--engine cpu --threads 1"
	told "chexnet synth: [0-9]+ of 300" synth --out drawn --size 32 --images 300
	told "chexnet prepare: [0-9]+ of 300" prepare nih tree data --size 32
	told "chexnet audit: [0-9]+ of 300" audit data
	told "chexnet train: validation: [0-9]+ of [0-9]+" train --data data --model densenet --growth 4 --init-channels 4 --blocks 1 --steps 2 --output run $small
	tr '\r' '\n' <terminal | grep -aq "chexnet train: test split: [0-9]* of [0-9]* images"
	told "chexnet eval: [0-9]+ of [0-9]+" eval --data data --weights run/model.safetensors $small
	told "chexnet predict: [0-9]+ of 300" predict --json --weights run/model.safetensors $small tree/images/*.png
	"$BUILD/chexnet" eval --data data --weights run/model.safetensors $small >/dev/null 2>errors
	! grep -q left errors
	grep -q "images of .* patients" <("$BUILD/chexnet" eval --data data --weights run/model.safetensors $small 2>&1)
}

@test "what is left of a training names the validations to come until one has told what they take, and counts them then" {
	small="--engine cpu --threads 1 --model densenet --growth 4 --init-channels 4 --blocks 1 --image-size 32 --eval-every 2 --resamples 100"
	"$BUILD/chexnet" train $small --data data --steps 2 --output once | tee once.txt
	grep -q '  step 2/2 .*  left 0:00 and 1 validation  compute' once.txt
	"$BUILD/chexnet" train $small --steps 4 --output twice | tee twice.txt # the built-in images: seconds
	grep -Eq '  step 4/4 .*  left 0:(0[1-9]|[1-5].)  compute' twice.txt
}
