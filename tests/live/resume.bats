# SPDX-License-Identifier: Apache-2.0
# A training that goes on from its checkpoints: the same course, another one, after damage, on a full disk, and when it was over.

load trained

@test "a training resumed into another directory ends with a model, whichever step was the best" {
	chexnet train --data set "${SMALL[@]}" --steps 600 --eval-every 200 --learning-rate 1e-2 --output early >/dev/null
	# what follows is no better: its rate takes the network apart
	run chexnet train --data set "${SMALL[@]}" --steps 610 --eval-every 5 --learning-rate 3 --decay constant --resume early/checkpoint-00000600.safetensors --output late
	echo "$output"
	[ "$status" -eq 0 ]
	[ -s late/model.safetensors ]
	[[ $output == *"takes the weights of step "[246]"00, the best on the validation split"* ]]
	cmp early/best.safetensors late/best.safetensors
	grep -ao '"step":"[0-9]*"' late/model.safetensors
	[ "$(grep -ao '"step":"[0-9]*"' late/model.safetensors)" = "$(grep -ao '"step":"[0-9]*"' late/best.safetensors)" ]
	mkdir alone
	cp early/checkpoint-00000600.safetensors alone/
	run chexnet train --data set "${SMALL[@]}" --steps 610 --eval-every 5 --learning-rate 3 --decay constant --resume alone/checkpoint-00000600.safetensors --output later
	echo "$output"
	[ "$status" -eq 0 ]
	[ -s later/model.safetensors ]
	[[ $output == *", the best so far, are gone: the best is looked for from here on"* ]]
	# and where nothing is left to train, the results are not called the best's
	mkdir done
	cp early/checkpoint-00000600.safetensors done/
	run chexnet train --data set "${SMALL[@]}" --steps 600 --eval-every 200 --learning-rate 1e-2 --resume auto --output done
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *", the best so far, are gone: "*"no validation says which weights were best: the results are those of step 600, the last"* ]]
}

@test "a directory is no checkpoint, and a network that has diverged is not the next image's fault" {
	mkdir folder
	refuses 64 "--resume=folder: directory --resume=auto --output=folder" chexnet train --data set "${SMALL[@]}" --steps 2 --output other --resume folder
	refuses 70 "not a number: diverged learning rate" chexnet train --data set --model densenet --growth 8 --blocks 12,12,12 --threads 1 --batch 8 --steps 3 --eval-every 1 \
		--learning-rate 100 --warmup-epochs 0 --resamples 0 --output far
}

@test "moments of one optimizer are not taken for another's" {
	chexnet train --data set "${SMALL[@]}" --steps 2 --output adam >/dev/null
	refuses 64 "adam/checkpoint-00000002.safetensors --optimizer=adam sgd --weights=" chexnet train --data set "${SMALL[@]}" --steps 4 --output adam --resume auto \
		--optimizer sgd
	chexnet train --data set "${SMALL[@]}" --steps 4 --output adam --resume auto >/dev/null
}

@test "what a resumed training learns with otherwise than before is said, and what goes on is" {
	run chexnet train --data set "${SMALL[@]}" --steps 4 --output changed --max-seconds 1e-6
	[ "$status" -eq 75 ]
	[[ $output == *"all saved: the same command with --output=changed --resume=auto goes on"* ]]
	run chexnet train --data set "${SMALL[@]}" --steps 6 --output changed --resume auto --learning-rate 2e-3 --pos-weight balanced --augment --weights run1/model.safetensors
	[ "$status" -eq 0 ]
	for line in "--augment was no and is yes now" "--steps was 4 and is 6 now" "--learning-rate was 0.0001 and is 0.002 now" "--pos-weight was none and is balanced now"; do
		grep -qx -- "$line" <<<"$output"
	done
	[ "$(grep -c ' was .* and is .* now' <<<"$output")" -eq 4 ]
	grep -qx "the weights are those of the checkpoint, not --weights=run1/model.safetensors, which counts where there is none" <<<"$output"
}

@test "a training that is over is judged once more with the options of then, and with no others" {
	over=("${SMALL[@]}" --steps 1000 --patience 1 --eval-every 1 --output over) # long before
	chexnet train --data set "${over[@]}" --learning-rate 0 >/dev/null
	cp over/test.csv over.csv
	refuses 64 "over is at step --learning-rate=0.1 (0 then) give the options of then, a larger --patience," chexnet train --data set "${over[@]}" \
		--learning-rate 0.1 --resume auto
	refuses 64 "run1 is at step 12, --steps=4 (12 then) more --steps or --epochs," chexnet train --data set --model densenet --growth 4 --blocks 1,1 \
		--image-size 32 --no-augment --steps 4 --batch 8 --learning-rate 1e-3 --threads 1 --output run1 --resume auto
	refuses 64 "run1 is at step --batch=4 (8 then)" chexnet train --data set --model densenet --growth 4 --blocks 1,1 \
		--image-size 32 --no-augment --steps 12 --batch 4 --learning-rate 1e-3 --threads 1 --output run1 --resume auto
	checkpoint=$(echo run1/checkpoint-*12.safetensors) # what is resumed from is named, where it is not --output's
	refuses 64 "$checkpoint is at step 12, --batch=4" chexnet train --data set --model densenet --growth 4 --blocks 1,1 \
		--image-size 32 --no-augment --steps 12 --batch 4 --learning-rate 1e-3 --threads 1 --output elsewhere --resume "$checkpoint"
	cmp over/test.csv over.csv
	run chexnet train --data set "${over[@]}" --learning-rate 0 --resume auto
	[ "$status" -eq 0 ]
	grep -q '^mean of' <<<"$output"
}

@test "--resume=auto goes back to the checkpoint before a damaged one, and says so; a named one stays an error" {
	train() { chexnet train --data set "${SMALL[@]}" --steps 9 --checkpoint-every 3 --keep 3 "$@"; }
	train --output sound >/dev/null
	for damage in "truncate -s 3000" "truncate -s 0" "truncate -s -1" "sed -i s/adam.exp_avg.features.conv0/adam.exp_avg.features.conv1/" \
		'sed -i s/"position"/"posit1on"/'; do
		rm -rf hurt && cp -r sound hurt
		$damage hurt/checkpoint-00000009.safetensors
		run --separate-stderr train --resume hurt/checkpoint-00000009.safetensors --output hurt
		[ "$status" -eq 65 ]
		run --separate-stderr train --resume auto --output hurt --keep 1
		echo "$damage: $output $stderr"
		[ "$status" -eq 0 ]
		[ "$(grep -c 'resume=auto' <<<"$output")" -eq 1 ]
		[[ $output == *"hurt/checkpoint-00000009.safetensors"*": --resume=auto goes back to hurt/checkpoint-00000006.safetensors"* ]]
		[[ $output == *"resumes at step 6, "* ]]
		cmp hurt/checkpoint-00000009.safetensors sound/checkpoint-00000009.safetensors
	done
	# what is saved on the way back is kept, and the damaged one does not come after it; what a killed training half wrote goes
	rm -rf hurt && cp -r sound hurt
	truncate -s 3000 hurt/checkpoint-00000009.safetensors
	touch hurt/checkpoint-00000009.safetensors.partial-0123abcd
	run train --resume auto --output hurt --keep 1 --checkpoint-every 1 --max-seconds 1e-6
	[ "$status" -eq 75 ]
	ls hurt
	[[ $(cd hurt && echo checkpoint-*) == checkpoint-0000000[78].safetensors\ checkpoint-00000009.safetensors.abandoned ]]
	[[ $output == *"1 checkpoint after step 6, where this training went on, and best.safetensors are called .safetensors.abandoned"* ]] # of the same course
	truncate -s 3000 hurt/checkpoint-*
	refuses 65 "hurt/checkpoint-0000000 whole --output=DIR" chexnet train --data set "${SMALL[@]}" --steps 9 --resume auto --output hurt
}

@test "a training that went back to an earlier checkpoint goes on from there, not from what it left" {
	train() { chexnet train --data set "${SMALL[@]}" --steps 12 --checkpoint-every 4 --keep 9 --output branch "$@"; }
	train >/dev/null
	run train --resume branch/checkpoint-00000004.safetensors --learning-rate 1e-2 --max-seconds 1e-6
	echo "$output"
	[ "$status" -eq 75 ]
	[ "$(grep -c '^2 checkpoints after step 4, where this training went on, and best.safetensors are called .safetensors.abandoned (.abandoned-2, …) from now on$' <<<"$output")" -eq 1 ]
	run train --resume auto
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"resumes at step "[56]", "* ]]
	[[ $output != *"where this training went on"* ]]
	[ -e branch/checkpoint-00000012.safetensors.abandoned ]
	# what it left, but has no checkpoint of its own for yet, is left all the same, and where it left stays
	rm -r branch && train >/dev/null
	cp -r branch full
	run train --resume branch/checkpoint-00000004.safetensors --learning-rate 1e-2 --checkpoint-every 10 --keep 2 --steps 10
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(cd branch && echo checkpoint-*)" = "checkpoint-00000004.safetensors checkpoint-00000008.safetensors.abandoned checkpoint-00000010.safetensors checkpoint-00000012.safetensors.abandoned" ]
	cmp full/checkpoint-00000008.safetensors branch/checkpoint-00000008.safetensors.abandoned
	truncate -s 3000 branch/checkpoint-00000010.safetensors
	run train --resume auto --steps 11
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"resumes at step 4, "* ]]
	# back once more: what was set aside before stays too
	cp full/checkpoint-00000012.safetensors branch/
	run train --resume branch/checkpoint-00000004.safetensors --steps 5
	[ "$status" -eq 0 ]
	cmp full/checkpoint-00000012.safetensors branch/checkpoint-00000012.safetensors.abandoned-2
	[ -e branch/checkpoint-00000012.safetensors.abandoned ]
	# a step that both courses save at: what it left is not replaced, and what it saves itself is there
	rm -r branch && cp -r full branch
	run train --resume branch/checkpoint-00000004.safetensors --learning-rate 1e-2 --steps 8
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c '^2 checkpoints after step 4, where this training went on, and best.safetensors are called .safetensors.abandoned (.abandoned-2, …) from now on$' <<<"$output")" -eq 1 ]
	[ "$(cd branch && echo checkpoint-*)" = "checkpoint-00000004.safetensors checkpoint-00000008.safetensors checkpoint-00000008.safetensors.abandoned checkpoint-00000012.safetensors.abandoned" ]
	cmp full/checkpoint-00000008.safetensors branch/checkpoint-00000008.safetensors.abandoned
	run cmp full/checkpoint-00000008.safetensors branch/checkpoint-00000008.safetensors
	[ "$status" -eq 1 ]
	run train --resume auto --steps 9
	[[ $output == *"resumes at step 8, "* ]]
	[[ $output != *"where this training went on"* ]]
	# its own one is replaced: here after a validation that falls due at once
	rm -r branch && mkdir branch && cp full/checkpoint-00000004.safetensors branch
	train --resume auto --eval-every 4 --steps 5 >/dev/null
	[ "$(cd branch && echo checkpoint-*)" = "checkpoint-00000004.safetensors checkpoint-00000005.safetensors" ]
	run cmp full/checkpoint-00000004.safetensors branch/checkpoint-00000004.safetensors
	[ "$status" -eq 1 ]
}

@test "a training that went back and is killed while it takes the place of what it left is resumed as the one or the other" {
	train() { "${PROGRAM:-chexnet}" train --data set "${SMALL[@]}" --eval-every 4 --keep 9 --output cut "$@"; }
	rm -rf cut && train --checkpoint-every 4 --steps 12 >/dev/null
	mv cut whole
	for every in 8 5; do # 8: the left course has what is to be saved
		for die in {1..20}; do
			rm -rf cut && cp -r whole cut
			PROGRAM=$BUILD/tests/wrap_rename TEST_DIE=$die run train --resume cut/checkpoint-00000004.safetensors --learning-rate 1e-2 --checkpoint-every $every --steps 8
			[ "$status" -ne 0 ] || break
			[ "$status" -eq 137 ]
			ls cut
			run train --resume auto --steps 13 --checkpoint-every 20
			echo "every $every, rename $die: $output"
			[ "$status" -eq 0 ]
			[[ $output != *" are gone: "* ]]
			if [[ $output == *"resumes at step 12, "* ]]; then
				[[ ! $(echo cut/*) == *.abandoned* ]]
				cmp whole/checkpoint-00000008.safetensors cut/checkpoint-00000008.safetensors
			else
				[[ $output == *"resumes at step "[58]", "* ]]
				for step in 08 12; do cmp whole/checkpoint-000000$step.safetensors cut/checkpoint-000000$step.safetensors.abandoned; done
				cmp whole/best.safetensors cut/best.safetensors.abandoned
			fi
			[[ ! $(echo cut/*) == *.new* ]]
		done
		[ "$die" -gt 4 ] && [ "$die" -lt 20 ]
	done
}

@test "a checkpoint of elsewhere is not gone on from where there are others: nothing of theirs is lost, and no course is mixed with another" {
	train() { chexnet train --data set "${SMALL[@]}" --checkpoint-every 4 --eval-every 4 "$@"; }
	rm -rf mine theirs third
	train --steps 8 --output mine >/dev/null
	train --steps 8 --seed 7 --output theirs >/dev/null
	cp mine/checkpoint-00000008.safetensors mine/checkpoint-00000012.safetensors.abandoned
	cp -r mine before
	for file in theirs/checkpoint-00000008.safetensors theirs/checkpoint-00000004.safetensors mine/checkpoint-00000012.safetensors.abandoned; do
		refuses 64 "mine has up to checkpoint-00000008.safetensors $file is none of them --resume=auto --output=DIR" train --steps 16 --output mine --resume $file
		diff -r before mine
	done
	# a file that is not there is the error that it is
	refuses 65 "theirs/checkpoint-00000009.safetensors: No such file" train --steps 16 --output mine --resume theirs/checkpoint-00000009.safetensors
	# its own are its own by any path
	ln -s ../mine theirs/there
	ln -s "$PWD/mine/checkpoint-00000004.safetensors" fourth
	for file in theirs/there/checkpoint-00000004.safetensors fourth; do
		train --steps 6 --output mine --resume "$file" >/dev/null
		cmp before/checkpoint-00000008.safetensors mine/checkpoint-00000008.safetensors.abandoned
		rm -r mine && cp -r before mine
	done
	# where there are none, it is gone on from
	train --steps 12 --output third --resume theirs/checkpoint-00000008.safetensors >/dev/null
	[ "$(cd third && echo checkpoint-*)" = checkpoint-00000012.safetensors ]
	rm -r before mine
}

@test "lr-test goes on from a checkpoint with both, and after a stop where each was" {
	train() { chexnet lr-test --data set "${SMALL[@]}" --resamples 0 --base-batch 4 --steps 16 --output pair --resume theirs/checkpoint-00000008.safetensors "$@"; }
	[ -e theirs ] || chexnet train --data set "${SMALL[@]}" --checkpoint-every 4 --steps 8 --seed 7 --output theirs >/dev/null
	run train --max-seconds 1e-6
	[ "$status" -eq 75 ]
	[[ $output == *", all saved: the same command goes on"$'\n'* ]]
	run train
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c '^pair/none has checkpoints: it goes on from the last, not once more from theirs/checkpoint-00000008.safetensors$' <<<"$output")" -eq 1 ]
	[[ $(grep '^resumes at step ' <<<"$output") == "resumes at step "@(9|1?)", "*$'\n'"resumes at step 8, position 64, seed 7" ]]
	[[ ! $(echo pair/*/*) == *.abandoned* ]]
}

@test "the best weights of a training that is killed between a validation and a checkpoint are those that its checkpoint names" {
	train() { "${PROGRAM:-chexnet}" train --data set "${SMALL[@]}" --eval-every 2 --checkpoint-every 5 --learning-rate 1e-3 --steps 21 --output between "$@"; }
	rm -rf between && train >/dev/null
	mv between through
	for die in {1..60}; do
		rm -rf between
		PROGRAM=$BUILD/tests/wrap_rename TEST_DIE=$die run train
		[ "$status" -ne 0 ] || break
		[ "$status" -eq 137 ]
		run train --resume auto
		echo "rename $die: $output"
		[ "$status" -eq 0 ]
		[[ $output != *" are gone: "* ]]
		cmp through/best.safetensors between/best.safetensors
		cmp through/model.safetensors between/model.safetensors
		[[ ! $(echo between/*) == *.new* ]]
	done
	[ "$die" -gt 10 ] && [ "$die" -lt 60 ]
}

@test "a training whose directory another one takes over while it writes there says so, and not that its file is gone" {
	for lost in {1..60}; do
		rm -rf lost
		TEST_LOST=$lost run --separate-stderr "$BUILD/tests/wrap_rename" train --data set "${SMALL[@]}" --eval-every 2 --checkpoint-every 5 --steps 21 --output lost
		[ "$status" -ne 0 ] || break
		echo "rename $lost: $stderr"
		[ "$status" -eq 70 ]
		[[ $stderr == *"lost: another training has taken it over (n9, process 9, Slurm job 9, run 1), as where "* ]]
	done
	[ "$lost" -gt 5 ] && [ "$lost" -lt 60 ]
}

@test "where a disk is full, a training that went back leaves all that was saved in its place" {
	[ -e full/checkpoint-00000004.safetensors ] || chexnet train --data set "${SMALL[@]}" --steps 12 --checkpoint-every 4 --keep 9 --output full >/dev/null
	for every in 10 4; do # 4: the left course has what is to be saved
		rm -rf fuller && cp -r full fuller
		rm fuller/log.jsonl
		# shellcheck disable=SC2016 # that shell's words
		run --separate-stderr bash -c 'ulimit -f 16; exec "$@"' - chexnet train --data set "${SMALL[@]}" --steps 12 --checkpoint-every $every --eval-every 99 --keep 2 \
			--output fuller --resume fuller/checkpoint-00000004.safetensors
		echo "$output $stderr"
		[ "$status" -eq 70 ]
		[[ $stderr == *"fuller/checkpoint-0000"*"File too large"* ]]
		[ "$(cd fuller && echo checkpoint-*)" = "$(cd full && echo checkpoint-*)" ]
		cmp full/checkpoint-00000008.safetensors fuller/checkpoint-00000008.safetensors
	done
	[ "$(cd full && echo checkpoint-*)" = "checkpoint-00000004.safetensors checkpoint-00000008.safetensors checkpoint-00000012.safetensors" ]
}

@test "the best weights of a course that was left are not taken for another's, and stay with it" {
	train() { chexnet train --data set "${SMALL[@]}" --eval-every 8 --checkpoint-every 4 --keep 9 --output forked "$@"; }
	train --steps 8 >/dev/null
	cp -r forked straight
	rm forked/log.jsonl
	# another validation of step 8, and no room for the checkpoint after it: what was there before stays in force
	room=$((($(stat -c %s straight/best.safetensors) + 4096) / 1024))
	# shellcheck disable=SC2016 # that shell's words
	run --separate-stderr bash -c "ulimit -f $room"'; exec "$@"' - chexnet train --data set "${SMALL[@]}" --steps 12 --eval-every 8 --checkpoint-every 4 --keep 9 --output forked \
		--resume forked/checkpoint-00000004.safetensors --learning-rate 1e-2
	echo "$output $stderr"
	[ "$status" -eq 70 ]
	[[ $stderr == *"forked/checkpoint-00000008.safetensors"*"File too large"* ]]
	cmp straight/best.safetensors forked/best.safetensors
	[ -e forked/best.safetensors.new ]
	run train --resume auto --steps 9
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"resumes at step 8, "* ]]
	[[ $output != *" are gone: "* ]]
	[ ! -e forked/best.safetensors.new ]
	# a checkpoint that comes before a validation leaves them too
	rm -r forked && cp -r straight forked
	run train --resume forked/checkpoint-00000004.safetensors --learning-rate 1e-2 --checkpoint-every 5 --steps 6
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c '^1 checkpoint after step 4, where this training went on, and best.safetensors are called .safetensors.abandoned' <<<"$output")" -eq 1 ]
	cmp straight/best.safetensors forked/best.safetensors.abandoned
	# its own ones are replaced
	rm -r forked && cp -r straight forked
	train --resume auto --learning-rate 1e-2 --eval-every 1 --steps 30 >/dev/null
	run cmp straight/best.safetensors forked/best.safetensors
	[ "$status" -eq 1 ]
	[ ! -e forked/best.safetensors.abandoned ]
}

@test "a checkpoint that was set aside is gone on from with its best weights, which were too, and those of another course stay" {
	train() { chexnet train --data "$SCRATCH/set" "${SMALL[@]}" --eval-every 4 --checkpoint-every 4 --keep 9 "$@"; }
	stops() { # WORDS…: of train, which finds the best weights
		run train --steps 20 --max-seconds 1e-6 "$@"
		echo "$output"
		[ "$status" -eq 75 ]
		[[ $output != *" are gone: "* ]]
	}
	rm -rf aside && train --steps 12 --output aside >/dev/null
	cp aside/best.safetensors left.best
	[[ $(grep -ao '"step":"[0-9]*"' left.best) != *'"4"'* ]] # else it is the best of the next course, too
	train --steps 8 --output aside --resume aside/checkpoint-00000004.safetensors --learning-rate 1e-2 >/dev/null
	cmp left.best aside/best.safetensors.abandoned
	cp aside/best.safetensors others.best
	stops --output elsewhere --resume aside/checkpoint-00000012.safetensors.abandoned
	cmp left.best elsewhere/best.safetensors
	cd aside
	stops --output ../nowhere --resume checkpoint-00000012.safetensors.abandoned
	cd ..
	cmp left.best nowhere/best.safetensors
	# where it got its name back, and the other course went
	rm aside/checkpoint-0000000[48].safetensors
	mv aside/checkpoint-00000012.safetensors.abandoned aside/checkpoint-00000012.safetensors
	stops --output aside --resume auto
	[ "$(grep -c "^aside/best.safetensors, not this training's best so far, is called .safetensors.abandoned (.abandoned-2, …) from now on$" <<<"$output")" -eq 1 ]
	cmp left.best aside/best.safetensors
	cmp others.best aside/best.safetensors.abandoned-2
	# nor does a training write over any where there is no checkpoint to go on from
	rm aside/checkpoint-* aside/model.safetensors aside/test.csv
	train --steps 4 --output aside >/dev/null
	cmp left.best aside/best.safetensors.abandoned-3
}

@test "what another validation split said was best is not held against what this one says" {
	# patients by their last digit: 0 is tested, 1 and 2 validate, or 2 alone
	awk -F, 'NR > 1 { p = substr($1, 8, 1); print $1 "," (p == 0 ? "test" : p < 3 ? "val" : "train") }' tree/Data_Entry_2017*.csv >both.split
	grep -v '^.\{7\}1' both.split >one.split
	for name in both one; do chexnet prepare nih tree "set-$name" --size 32 --split "file:$name.split" >/dev/null; done
	course=("${SMALL[@]}" --eval-every 4 --output validated)
	chexnet train --data set-both "${course[@]}" --steps 8 >/dev/null
	cp validated/best.safetensors both.best
	run chexnet train --data set-both "${course[@]}" --steps 12 --resume auto
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output != *"validation split was another"* ]]
	rm -rf validated
	chexnet train --data set-both "${course[@]}" --steps 8 >/dev/null
	run chexnet train --data set-one "${course[@]}" --steps 12 --resume auto
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -cx 'the validation split was another one: the best weights are looked for from here on' <<<"$output")" -eq 1 ]
	[[ $output == *"validation after step 8: "*"validation after step 12: "* ]] # step 8 is a candidate again
	cmp both.best validated/best.safetensors.abandoned
	grep -ao '"best_step":"[0-9]*"' validated/best.safetensors | grep -Eq '"(8|12)"'
}

@test "what validations of an older version said, which judged what is not learnt too, is not held against what is judged now" {
	# the training images that show Hernia do not count
	awk -F, 'NR == FNR { train[$1]; next } $1 in train && "|" $2 "|" ~ /\|Hernia\|/ { print $1 ",Hernia" }' tree/train_val_list.txt tree/Data_Entry_2017*.csv >hernia.csv
	course=("${SMALL[@]}" --mask file:hernia.csv --eval-every 4 --output older)
	chexnet train --data set "${course[@]}" --steps 8 >/dev/null
	run -0 chexnet train --data set "${course[@]}" --steps 12 --resume auto
	[[ $output != *"validation split was another"* ]]
	LC_ALL=C sed -i 's/"untrained":"Hernia"/"untraineD":"Hernia"/; s/"crc32c":/"crc32C":/' older/checkpoint-00000012.safetensors # notes that nobody reads
	run -0 chexnet train --data set "${course[@]}" --steps 16 --resume auto
	echo "$output"
	[ "$(grep -cx 'the validation split was another one, or other findings were judged: the best weights are looked for from here on' <<<"$output")" -eq 1 ]
	[[ $output == *"validation after step 12: "*"validation after step 16: "* ]]
}

@test "best weights that cannot be read just now are not called gone, and nothing is written over them" {
	chexnet train --data set "${SMALL[@]}" --steps 4 --eval-every 2 --output asleep >/dev/null
	mv asleep/best.safetensors best.kept
	# a socket answers open() as a file server that is away does: with an error that says nothing of what is there
	(cd asleep && python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("best.safetensors")')
	refuses 70 "asleep/best.safetensors: cannot be read: remove or move it" chexnet train --data set "${SMALL[@]}" --steps 8 --eval-every 2 --output asleep --resume auto
	[ -S asleep/best.safetensors ]
	# those of another directory are in nobody's way
	run chexnet train --data set "${SMALL[@]}" --steps 8 --eval-every 2 --output awake --resume asleep/checkpoint-00000004.safetensors
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"asleep/best.safetensors: cannot be read: "*": the best weights are looked for from here on"* ]]
	[ -s awake/best.safetensors ]
	mv best.kept asleep/best.safetensors
	# nor is a checkpoint passed over for an earlier one
	(cd asleep && python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("checkpoint-00000006.safetensors")')
	refuses 70 "asleep/checkpoint-00000006.safetensors: cannot be read" chexnet train --data set "${SMALL[@]}" --steps 8 --eval-every 2 --output asleep --resume auto
	rm asleep/checkpoint-00000006.safetensors
	chexnet train --data set "${SMALL[@]}" --steps 8 --eval-every 2 --output asleep --resume auto >/dev/null
	# nor are those that a checkpoint to come was to name, or those of a training that judged nothing so far, another's
	for name in best.safetensors.new best.safetensors; do
		rm -rf unjudged
		run -75 chexnet train --data set "${SMALL[@]}" --steps 5000 --max-seconds 0.001 --output unjudged
		(cd unjudged && python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' $name)
		refuses 70 "unjudged/$name: cannot be read" chexnet train --data set "${SMALL[@]}" --steps 5000 --output unjudged --resume auto
		[ -S unjudged/$name ]
	done
	# nor is the model one of older weights, where a training is at its end and has better ones that no checkpoint could name
	cat >away.c <<-'EOF'
		#include <dlfcn.h>
		#include <errno.h>
		#include <fcntl.h>
		#include <stdarg.h>
		#include <string.h>
		#include <unistd.h>
		int open(const char *path, int flags, ...)
		{
			int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
			va_list more;
			va_start(more, flags);
			int mode = va_arg(more, int);
			va_end(more);
			if (strstr(path, "/best.safetensors.new") && (flags & O_ACCMODE) == O_RDONLY && access(path, F_OK) == 0)
				return errno = EIO, -1;
			return real(path, flags, mode);
		}
	EOF
	"${CC:-gcc}" -D_GNU_SOURCE -O1 -shared -fPIC -o away.so away.c -ldl
	export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0
	for steps in {4..20}; do # until the last are not the best
		rm -rf late
		late=(chexnet train --data set "${SMALL[@]}" --steps "$steps" --eval-every 1 --checkpoint-every 100 --output late)
		"${late[@]}" | grep -q '^takes the weights of step' || continue
		cp late/model.safetensors best.kept
		rm -r late
		refuses 70 "late/best.safetensors.new: cannot be read: Input/output error" env LD_PRELOAD="$PWD/away.so" "${late[@]}"
		[ ! -e late/model.safetensors ]
		"${late[@]}" --resume auto >/dev/null
		cmp late/model.safetensors best.kept
		break
	done
	[ -s best.kept ]
}

@test "steps that were skipped, as those of fp16 that overflow, stay counted when a training goes on, and are none of the optimizer's" {
	local n
	chexnet train --data set "${SMALL[@]}" --steps 2 --output skips0 >/dev/null
	cp -r skips0 skips1
	LC_ALL=C sed -i 's/"skipped":"0"/"skipped":"1"/; s/"crc32c":/"crc32C":/' skips1/checkpoint-00000002.safetensors
	for n in 0 1; do
		chexnet train --data set "${SMALL[@]}" --steps 4 --output skips$n --resume auto >/dev/null
		[ "$(grep -ao '"skipped":"[0-9]*"' skips$n/checkpoint-00000004.safetensors)" = "\"skipped\":\"$n\"" ]
	done
	# the correction of Adam's moments goes by the steps that it made
	run ! cmp <(tail -c 4096 skips0/model.safetensors) <(tail -c 4096 skips1/model.safetensors)
}

@test "a start that is refused leaves nothing behind, and what a run left as it was" {
	for refused in "--weights none" "--resume none" "--resident" "--resident --log-hash" "--engine cuda" "--log-json none/log" "--resume kept/checkpoint-00000004.safetensors --resident"; do
		[ -e kept ] || chexnet train --data set "${SMALL[@]}" --steps 4 --eval-every 2 --output kept >/dev/null
		# shellcheck disable=SC2086 # words
		run chexnet train --data set "${SMALL[@]}" --steps 2 --tensorboard --output refused $refused
		echo "$refused: $output"
		[ "$status" -ne 0 ]
		[ ! -e refused ]
	done
	mkdir dated && cd dated
	run chexnet train --data ../set "${SMALL[@]}" --weights none
	[ "$status" -eq 65 ]
	[ -z "$(ls)" ]
	cd ..
	# nor does the log of a training that is over say that it ended with the refusal, and its best weights are its own
	mkdir refused
	cp -r kept before
	refuses 64 "with --learning-rate=0.1 nothing is left to train" chexnet train --data set "${SMALL[@]}" --steps 4 --eval-every 2 --output kept --resume auto --learning-rate 0.1
	diff -r before kept
	# one that was stopped is not over
	run -75 chexnet train --data set "${SMALL[@]}" --steps 5000 --max-seconds 0.001 --output halted
	refuses 64 "halted is at step with --steps=1 (5000 then) nothing is left to train" chexnet train --data set "${SMALL[@]}" --steps 1 --output halted --resume auto
	[[ $stderr != *" is over "* ]]
	refuses 65 none chexnet lr-test --data set "${SMALL[@]}" --base-batch 4 --output both --weights none
	[ ! -e both ]
	refuses 65 none chexnet train --data set "${SMALL[@]}" --steps 2 --output refused --weights none
	[ -d refused ] && [ -z "$(ls refused)" ]
}
