#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What the commands of chexnet make of odd words, places and numbers.
load trained

@test "a place that nothing may be written to is named before anything is computed, and no other file is written" {
	mkdir -p locked
	chmod 555 locked
	local user=()
	if [ "$(id -u)" = 0 ]; then
		command -v setpriv >/dev/null || skip "setpriv is not installed, and permissions do not stop root"
		user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
		chmod 777 .
		"${user[@]}" "$BUILD/chexnet" --version >/dev/null 2>&1 || skip "user 65534 may not run $BUILD/chexnet"
	fi
	refuses 70 "locked/x.svg: Permission denied" "${user[@]}" "$BUILD/chexnet" bench data set --seconds 3600 --ranks 1 --svg locked/x.svg
	refuses 70 "locked/x.html: Permission denied" "${user[@]}" "$BUILD/chexnet" report --predictions 1.csv --json first --out locked/x.html
	refuses 70 "locked/x.json: Permission denied" "${user[@]}" "$BUILD/chexnet" report --predictions 1.csv --out first --json locked/x.json
	refuses 70 "locked/x.csv: Permission denied" "${user[@]}" "$BUILD/chexnet" ensemble first 1.csv 2.csv --spread locked/x.csv
	refuses 64 "1.csv: Not a directory" chexnet predict --engine cpu --weights run1/model.safetensors --maps 1.csv tree/images/00000001_000.png
	[ -z "$output" ]
	refuses 70 "locked: Permission denied" "${user[@]}" "$BUILD/chexnet" predict --engine cpu --weights run1/model.safetensors --maps locked tree/images/00000001_000.png
	[ -z "$output" ]
	[ ! -e first ]
	cd locked
	refuses 70 "chexnet- cannot be made here: Permission denied: --output=DIR" "${user[@]}" "$BUILD/chexnet" train --data ../set "${SMALL[@]}"
}

@test "one is one: no plural, and a member of an ensemble counts once" {
	chexnet synth --out lone --images 1 --size 32 | tee told
	grep -qx "lone: 1 synthetic X-ray of 32 x 32, contrast 1" told
	grep -qx "  train_val 1 image, 1 patient; test 0 images, 0 patients" told
	chexnet prepare nih lone loneset --size 32 >/dev/null
	chexnet train --data loneset "${SMALL[@]}" --batch 1 --steps 1 --output lonerun | tee told
	grep -qx "  train       1 image, split policy official" told
	grep -qx "order: keyed permutation of all 1 training image" told
	grep -q " 1 step, seed 1; " told
	grep -qx "no test split: nothing judges the model in the end" told
	grep -q "^1 step, 1 image in " told
	chexnet train --data loneset "${SMALL[@]}" --batch 1 --steps 1 --output lonerun --resume auto | tee told
	grep -qx "all its steps are done already: nothing is trained, the model is written once more" told
	chexnet doctor --data loneset | grep -q ": 1 training image of 1 patient, "
	chexnet bench data --ours --ranks 1 --seconds 0.1 --batch 2 loneset | grep "^1 image of 32 x 32 as PNG in 1 TFRecord file, "
	refuses 64 "1.csv: twice" chexnet ensemble twice 1.csv 2.csv 1.csv
	[ ! -e twice ]
}

@test "a global batch that is larger than the training split is said, with the epochs that its steps make" {
	images=$(sed -n 's/^  train *\([0-9]*\) images.*/\1/p' <(chexnet train --data set "${SMALL[@]}" --steps 1 --output large0))
	[ "$images" -gt 256 ] && [ "$images" -lt 400 ]
	train() { chexnet train --data set "${SMALL[@]}" --batch 1 --output large "$@"; }
	for batch in "$images" "$((images + 1))"; do
		rm -rf large && train --batch "$batch" --epochs 2 >told
		grep -q " 2 steps, seed 1; output large$" told
		[ "$(grep -c '^warning: ' told)" -eq $((batch > images)) ]
	done
	grep -qx "warning: a step takes $batch images, and the training split has $images: some are in it more than once, and after 2 steps 2.01 epochs are over: with a smaller --batch they take more steps" told
	# resumed with another batch: by the images, not the steps
	rm -rf large && train --batch 8 --steps 2 >/dev/null
	train --batch 200 --accumulate 2 --steps 3 --resume auto >told
	epochs=$(python3 -c "print('%.3g' % ((16 + 400) / $images))")
	grep -qx "warning: a step takes 400 images, and the training split has $images: some are in it more than once, and after 3 steps $epochs epochs are over: with a smaller --batch or --accumulate they take more steps" told
	train --batch 200 --accumulate 2 --steps 3 --resume auto >told
	[ "$(grep -c '^warning: ' told)" -eq 0 ]
}

@test "help of a command, and a word that is nearly one" {
	diff <(chexnet help eval) <(chexnet eval --help)
	diff <(chexnet help) <(chexnet --help)
	diff <(chexnet help help) <(chexnet help --help)
	diff <(chexnet help help) <(chexnet --help)
	refuses 64 "evaluate; mean eval?" chexnet evaluate
	refuses 64 "trian; mean train?" chexnet help trian
}

@test "completion offers an option's values behind = and a blank, and files where anything may stand" {
	# shellcheck source=/dev/null
	source <("$BUILD/chexnet" --completion)
	offers() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _chexnet 2>/dev/null || true; echo "${COMPREPLY[*]}"; }
	[ "$(offers chexnet ev)" = eval ]
	[ "$(offers chexnet eval --spl)" = "--split=test --split=val --split=train" ]
	[ "$(offers chexnet eval --split =)" = "test val train" ]
	[ "$(offers chexnet eval --split = te)" = test ]
	[ "$(offers chexnet eval --json --split v)" = val ]
	[ -z "$(offers chexnet eval --weights = ru)" ]
	[ -z "$(offers chexnet predict --json im)" ]
	[ "$(offers chexnet prepare "")" = "nih tfrecord" ]
}

@test "a variable that is not set does not take the next option with it" {
	# shellcheck disable=SC2086,SC2154 # that is what happens
	refuses 64 "--output --no-augment option" chexnet train --data set --output $UNSET --no-augment
	# shellcheck disable=SC2086,SC2154
	refuses 64 "--data --output=idle option" chexnet train --data $UNSET --output=idle
	[ ! -e idle ]
	[ ! -e --no-augment ]
}

@test "processes that torchrun or an mpirun without PMIx started are told that each does the whole work" {
	for variables in "RANK=0 WORLD_SIZE=4" "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4" "PMI_RANK=0 PMI_SIZE=4"; do
		# shellcheck disable=SC2086 # words
		env $variables chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 2>words >/dev/null
		[ "$(grep -c "^chexnet eval: warning: [A-Z_]*SIZE=4, but nothing joins these processes: .*srun --mpi=pmix" words)" -eq 1 ]
	done
	for variables in "RANK=1 WORLD_SIZE=4" "RANK=0 WORLD_SIZE=1" "WORLD_SIZE=4"; do # the first says it for all; one alone; of a batch script
		# shellcheck disable=SC2086 # words
		env $variables chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 2>words >/dev/null
		[ "$(grep -c warning words)" -eq 0 ]
	done
}
