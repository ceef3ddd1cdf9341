#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The synthetic task is honest and the trainer learns it: no cluster, one core, a few seconds.
bats_require_minimum_version 1.5.0
load helpers

NETWORK=(--model densenet --growth 8 --blocks 2,2 --threads 1 --batch 16 --learning-rate 5e-3 --resamples 1000)

setup_file() {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH"
}
teardown_file() { rm -rf "$SCRATCH"; }
teardown() { [ -n "${BATS_TEST_COMPLETED:-}" ] || tail -n 20 "$SCRATCH"/*.out; }

prepared() { # NAME [OPTION of synth…]
	"$BUILD/chexnet" synth --out "$SCRATCH/$1-tree" --size 32 --prevalence-floor 0.1 "${@:2}" >"$SCRATCH/$1-synth.out"
	"$BUILD/chexnet" prepare nih "$SCRATCH/$1-tree" "$SCRATCH/$1" --size 32 >>"$SCRATCH/$1-synth.out"
}

# The last table's mean: value, low, high, oracle.
mean() { sed -n 's/^mean of 14 of 14 *\([0-9.]*\) *\([0-9.]*\) to \([0-9.]*\) *\([0-9.]*\)$/\1 \2 \3 \4/p' "$1" | tail -n 1; }

@test "a small network finds the signs, and never more than the oracle can" {
	prepared signs --images 2500
	"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/signs" --epochs 4 --output "$SCRATCH/run" --log-json "$SCRATCH/run.json" >"$SCRATCH/run.out"
	read -r value low high oracle <<<"$(mean "$SCRATCH/run.out")"
	echo "mean AUROC $value ($low to $high), oracle $oracle"
	awk "BEGIN { exit !($value >= 0.80) }"
	# every finding: AUROC <= oracle + 3 standard errors
	n=$(grep '"split":"test"' "$SCRATCH/run.json" | grep -o '"positives":[^}]*}' |
		sed 's/.*"auroc":\([0-9.]*\),.*"se":\([0-9.]*\),"oracle":\([0-9.]*\).*/\1 \2 \3/' |
		awk '$1 <= $3 + 3 * $2 { n++ } END { print n }')
	[ "$n" = 14 ]
}

@test "an oracle that told few images apart, or all of them, is given no standard error" {
	prepared few --images 600 --seed 3
	cat "$SCRATCH/few-synth.out"
	python3 - "$SCRATCH/few-tree/oracle.json" "$SCRATCH/few-synth.out" <<-'END'
		import json, sys
		printed = dict(line.split(maxsplit=1) for line in open(sys.argv[2]) if "oracle AUROC" not in line and "(" in line)
		kinds = {"perfect": 0, "few": 0, "others": 0}
		for name, f in json.load(open(sys.argv[1]))["findings"].items():
		    kind = "few" if f["test_positives"] < 5 else "perfect" if f["oracle_auroc"] == 1 else "others"
		    said = {"perfect": "all told apart: no", "few": "too few for a", "others": "(standard error"}[kind]
		    assert said in printed[name], (name, printed[name])
		    assert (f["standard_error"] is None) == (kind != "others"), (name, f)
		    kinds[kind] += 1
		assert all(kinds.values()), kinds
	END
}

@test "the first loss is that of the prevalences: labels are read right" {
	[ -d "$SCRATCH/signs" ] || prepared signs --images 2500
	"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/signs" --steps 1 --batch 64 --output "$SCRATCH/first" --log-json "$SCRATCH/first.json" >"$SCRATCH/first.out"
	loss=$(sed -n 's/.*"event":"step".*"loss":\([0-9.]*\).*/\1/p' "$SCRATCH/first.json")
	# the entropy of 14 findings with prevalences of 0.1 to 0.18 is 0.33 to 0.47, an uninformed head's loss is 0.69
	awk "BEGIN { exit !($loss > 0.28 && $loss < 0.5) }"
}

@test "null control: without signs the AUROC is 0.5 but for chance, 5 seeds" {
	for seed in 1 2 3 4 5; do
		prepared "null$seed" --images 1500 --contrast 0 --seed $seed
		"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/null$seed" --seed $seed --steps 80 --output "$SCRATCH/null-run$seed" >"$SCRATCH/null$seed.out"
		read -r value low high oracle <<<"$(mean "$SCRATCH/null$seed.out")"
		echo "seed $seed: mean AUROC $value ($low to $high), oracle $oracle"
		[ "$oracle" = 0.5000 ]
		echo "$value $low $high" >>"$SCRATCH/null"
	done
	# Five intervals of 95 % hold 0.5 all together in three runs out of four. So each is judged at 99 %, which makes 95 % for
	# the five, and their mean, in which a leak of labels would add up, at 95 %.
	awk '{
		wide = 2.576 / 1.960
		if ($1 - wide * ($1 - $2) > 0.5 || $1 + wide * ($3 - $1) < 0.5) { print "seed " NR " is off"; bad = 1 }
		sum += $1 - 0.5; variance += (($3 - $2) / 3.92)^2
	}
	END {
		printf "mean of %d seeds: %.4f, 95 %% within %.4f of 0.5\n", NR, 0.5 + sum / NR, 1.96 * sqrt(variance) / NR
		exit bad || NR != 5 || sum^2 > 1.96^2 * variance
	}' "$SCRATCH/null"
}

@test "patience ends a training that makes no progress, and a resumed one stays ended" {
	[ -d "$SCRATCH/null1" ] || prepared null1 --images 1500 --contrast 0 --seed 1
	for again in "" "--resume=auto"; do
		# shellcheck disable=SC2086 # no word or one
		"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/null1" --epochs 40 --patience 3 --decay plateau --output "$SCRATCH/patience" $again >"$SCRATCH/patience.out"
		grep -q '^3 validations without a lower loss' "$SCRATCH/patience.out"
		step=$(sed -n 's/^takes the weights of step \([0-9]*\),.*/\1/p' "$SCRATCH/patience.out")
		[ "$step" -gt 0 ]
		# what the log says of the test split is said of these
		[ "$(sed -n 's/.*"event":"eval".*"step":\([0-9]*\),"split":"test".*/\1/p' "$SCRATCH/patience/log.jsonl" | tail -n 1)" = "$step" ]
	done
	run ! grep 'learning rate falls' "$SCRATCH/patience.out" # the second time no step was done
}

@test "the learning rate of a plateau, and the end of patience, follow from the validation losses" {
	[ -d "$SCRATCH/null1" ] || prepared null1 --images 1500 --contrast 0 --seed 1
	# at first so fast that losses rise and fall, however a CPU rounds: so they did with 20 seeds, and with every third step judged with half of them
	for steps in 20 400; do # and a training that goes on has the rate that it had come to, mostly a tenth by then
		"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/null1" --steps $steps --eval-every 1 --learning-rate 1 --warmup-epochs 0 --decay plateau --patience 3 --resamples 0 \
			--output "$SCRATCH/plateau" --resume auto >>"$SCRATCH/plateau.out"
	done
	grep -o '"event":"step".*"lr":[^,]*\|"split":"val".*"loss":[^,]*' "$SCRATCH/plateau/log.jsonl" | awk -F: '
		BEGIN { factor = 1 }
		/"lr"/ { if (stale == 3 || $NF / factor > 1.001 || $NF / factor < 0.999) exit wrong = 1; next }
		!n++ || $NF < best { best = $NF; recovered += stale > 0; stale = 0; next }
		{ stale++; factor /= 10 }
		END { print n " validations, " recovered " lower than the best after others that were not"; exit wrong || stale != 3 || !recovered }'
	# while it still rises, in the first half of so few steps, nothing is noted against it
	"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/null1" --steps 20 --eval-every 1 --learning-rate 3 --warmup-epochs 4 --decay plateau --resamples 0 --output "$SCRATCH/rising" >"$SCRATCH/rising.out"
	grep -o '"split":"val".*"loss":[^,]*' "$SCRATCH/rising/log.jsonl" | awk -F: -v falls="$(grep -c 'the learning rate falls to' "$SCRATCH/rising.out")" '
		!n++ || $NF < best { best = $NF; next }
		{ n < 10 ? early++ : late++ }
		END { print n " validations, " early + 0 " and then " late + 0 " not lower than the best, and the rate fell " falls " times"; exit !early || late != falls }'
}

@test "shared patients are refused; with --allow-leak every result says so" {
	prepared leak --images 300 --leaky
	run --separate-stderr -65 "$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/leak" --steps 2 --output "$SCRATCH/leak-run"
	[[ $stderr == *"patients are both in train and in "*"--allow-leak"* ]]
	[ "$(wc -l <<<"$stderr")" = 1 ]
	[ ! -e "$SCRATCH/leak-run" ]
	"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/leak" --steps 2 --output "$SCRATCH/leak-run" --allow-leak >"$SCRATCH/leak.out"
	grep -q '^LEAK: patients of this split were trained on' "$SCRATCH/leak.out"
	grep -q '^validation .*LEAK' "$SCRATCH/leak.out"
	head -n 1 "$SCRATCH/leak-run/test.csv" | grep -q ' leak=[1-9][0-9]* leaky=yes$'
	"$BUILD/chexnet" eval --data "$SCRATCH/leak" --weights "$SCRATCH/leak-run/model.safetensors" >"$SCRATCH/leak-eval.out"
	grep -q '^LEAK: patients of this split were trained on' "$SCRATCH/leak-eval.out"
	# validation and test share patients, training none: the best weights would be chosen by those that judge them
	cut -d, -f1 "$SCRATCH/leak-tree/Data_Entry_2017_v2020.csv" | tail -n +2 | awk '{ print $0 "," ($0 < "00000050" ? (NR % 2 ? "val" : "test") : "train") }' >"$SCRATCH/judges.csv"
	"$BUILD/chexnet" prepare nih "$SCRATCH/leak-tree" "$SCRATCH/judges" --size 32 --split "file:$SCRATCH/judges.csv" >/dev/null 2>"$SCRATCH/judges.err"
	grep -q 'training will refuse this' "$SCRATCH/judges.err"
	run --separate-stderr -65 "$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/judges" --steps 2 --output "$SCRATCH/judges-run"
	[[ $stderr == *"patients are both in val and in test"*"--allow-leak"* ]]
	# then no result says that patients were trained on or that nobody looked
	"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/judges" --steps 2 --output "$SCRATCH/judges-run" --allow-leak >"$SCRATCH/judges.out"
	"$BUILD/chexnet" eval --data "$SCRATCH/judges" --weights "$SCRATCH/judges-run/model.safetensors" --resamples 0 --predictions "$SCRATCH/judges-eval.csv" >"$SCRATCH/judges-eval.out"
	for out in judges judges-eval; do
		grep -qx 'LEAK: these weights were trained on splits that share patients (--allow-leak), but on no patient of this split' "$SCRATCH/$out.out"
		run ! grep 'leak not checked' "$SCRATCH/$out.out"
	done
	[ "$(grep -o '^  [a-z]*  .*LEAK' "$SCRATCH/judges.out" | cut -d' ' -f3 | xargs)" = "val test" ]
	for csv in judges-run/test judges-eval; do
		head -n 1 "$SCRATCH/$csv.csv" | grep -q ' leak=0 leaky=yes$'
	done
	"$BUILD/chexnet" eval --data "$SCRATCH/judges" --weights "$SCRATCH/judges-run/model.safetensors" --resamples 0 --json >"$SCRATCH/judges.json"
	[ "$(grep -o '"leak[a-z_]*":.*' "$SCRATCH/judges.json" | tr -d '\t' | xargs)" = "leaked_patients:0, leak:true, leak_checked:true," ]
}

from() { # NAME WEIGHTS DATA [OPTION…]: two more steps from another model's weights; its notes, and what its predictions say
	"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/$3" --steps 2 --output "$SCRATCH/$1" --weights "$SCRATCH/$2/model.safetensors" "${@:4}" >"$SCRATCH/$1.out"
	head -c 4000 "$SCRATCH/$1/model.safetensors" | grep -ao '"leak":"[a-z, ]*"'
	head -n 1 "$SCRATCH/$1/test.csv" | grep -o 'leak=.*'
}

@test "fine-tuning keeps what is known of the patients that the weights have seen" {
	prepared one --images 300
	prepared other --images 300 --seed 5
	[ -e "$SCRATCH/leak-run" ]
	"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/one" --steps 2 --output "$SCRATCH/one-run" >"$SCRATCH/one.out"
	# eval, too, knows of patients only where the weights were trained on this data set
	for data in one other; do
		"$BUILD/chexnet" eval --data "$SCRATCH/$data" --weights "$SCRATCH/one-run/model.safetensors" --resamples 0 --json | grep -o '"leak[a-z_]*":.*' | tr -d '\t' | xargs
	done >"$SCRATCH/known"
	[ "$(<"$SCRATCH/known")" = $'leaked_patients:0, leak:false, leak_checked:true,\nleaked_patients:null, leak:null, leak_checked:false,' ]
	[ "$(from again one-run one)" = $'"leak":"no"\nleak=0' ]
	[ "$(from moved one-run other)" = $'"leak":"unchecked"\nleak=unchecked' ]
	[ "$(from twice moved other)" = $'"leak":"unchecked"\nleak=unchecked' ]
	[ "$(from laundered leak-run one)" = $'"leak":"yes, unchecked"\nleak=unchecked leaky=yes' ]
	[ "$(from relaundered laundered one)" = $'"leak":"yes, unchecked"\nleak=unchecked leaky=yes' ]
	[ "$(grep -c '^LEAK: these weights were trained on splits that share patients' "$SCRATCH/laundered.out")" = 2 ] # before and after
	"$BUILD/chexnet" compare "$SCRATCH/again/test.csv" "$SCRATCH/laundered/test.csv" --resamples 100 >"$SCRATCH/compare.out"
	grep -qx 'LEAK: B was trained on splits that share patients (--allow-leak)' "$SCRATCH/compare.out"
	grep -q '^leak not checked: .* that B was trained on' "$SCRATCH/compare.out"
	"$BUILD/chexnet" compare "$SCRATCH/again/test.csv" "$SCRATCH/laundered/test.csv" --resamples 100 --json | grep leak_ | tr -d '\n\t' | grep -q '"leak_a":false,"leak_b":true,'
	"$BUILD/chexnet" report --predictions "$SCRATCH/laundered/test.csv" --resamples 100 --json "$SCRATCH/report.json"
	grep -q '"leak":.*true' "$SCRATCH/report.json"
	# null where nobody looked: that is not that there is none
	"$BUILD/chexnet" report --predictions "$SCRATCH/moved/test.csv" --resamples 100 --json "$SCRATCH/moved.json"
	[ "$(grep -o '"leak[a-z_]*":.*' "$SCRATCH/moved.json" | tr -d '\t' | xargs)" = "leak:null, leak_checked:false, leaked_patients:null," ]
	"$BUILD/chexnet" compare "$SCRATCH/again/test.csv" "$SCRATCH/laundered/test.csv" --resamples 100 --json | grep leak_ | tr -d '\n\t' | grep -q '"leak_checked_a":true,"leak_checked_b":false,'
	"$BUILD/chexnet" ensemble "$SCRATCH/both.csv" "$SCRATCH/again/test.csv" "$SCRATCH/laundered/test.csv" >"$SCRATCH/ensemble.out"
	grep -qx 'LEAK: a member was trained on splits that share patients (--allow-leak)' "$SCRATCH/ensemble.out"
	grep -q '^leak not checked: .* all those that the members were trained on' "$SCRATCH/ensemble.out"
	head -n 1 "$SCRATCH/both.csv" | grep -q ' leak=unchecked leaky=yes$'
	grep -q '^leak not checked: ' "$SCRATCH/moved.out"
	# a resumed training and eval know it too
	"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/other" --steps 3 --output "$SCRATCH/moved" --resume auto >"$SCRATCH/moved-on.out"
	head -n 1 "$SCRATCH/moved/test.csv" | grep -q 'leak=unchecked'
	"$BUILD/chexnet" eval --data "$SCRATCH/other" --weights "$SCRATCH/moved/model.safetensors" --predictions "$SCRATCH/moved.csv" >"$SCRATCH/moved-eval.out"
	grep -q '^leak not checked: ' "$SCRATCH/moved-eval.out"
	head -n 1 "$SCRATCH/moved.csv" | grep -q 'leak=unchecked'
	# a file of which nothing is known: findings by another program may be of any patients, ImageNet's classes are of none
	for classes in 14 1000; do
		python3 "$BATS_TEST_DIRNAME/forget_notes.py" "$SCRATCH/one-run/model.safetensors" "$SCRATCH/foreign-$classes" $classes
	done
	[ "$(from found foreign-14 one --image-size 32)" = $'"leak":"unchecked"\nleak=unchecked' ]
	[ "$(from imagenet foreign-1000 one --image-size 32)" = $'"leak":"no"\nleak=0' ]
}

@test "a loss that is not a number stops training and names the step" {
	[ -d "$SCRATCH/signs" ] || prepared signs --images 2500
	run --separate-stderr -70 "$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/signs" --optimizer sgd --learning-rate 100 --weight-decay 1 --warmup-epochs 0 --epochs 3 \
		--output "$SCRATCH/nan"
	[[ $stderr == "chexnet train: step "*"the loss is not a number (images at positions "*".png)"* ]]
	[ "$(wc -l <<<"$stderr")" = 1 ]
	[ ! -e "$SCRATCH/nan/model.safetensors" ]
	grep -q '"event":"end".*"code":70' "$SCRATCH/nan/log.jsonl"
}

@test "weights that went wrong are never saved, also where the loss is read now and then, and auto goes on from the last sound ones" {
	local go=("$BUILD/chexnet" train "${NETWORK[@]}" --resamples 0 --optimizer sgd --warmup-epochs 0 --fetch-every 30 --checkpoint-every 10 --keep 1 --output "$SCRATCH/wrong")
	[ -d "$SCRATCH/signs" ] || prepared signs --images 2500
	"${go[@]}" --data "$SCRATCH/signs" --learning-rate 1e-3 --steps 10 >"$SCRATCH/wrong.out"
	run --separate-stderr -70 "${go[@]}" --data "$SCRATCH/signs" --learning-rate 100 --weight-decay 1 --steps 300 --resume auto
	echo "$stderr"
	[[ $stderr == "chexnet train: step "*"the loss is not a number, which it was "*" steps before (images at positions "* ]]
	[[ $stderr != *.png* ]]
	[ "$(wc -l <<<"$stderr")" = 1 ]
	"${go[@]}" --data "$SCRATCH/signs" --learning-rate 1e-3 --decay constant --steps 60 --resume auto >"$SCRATCH/wrong.out"
	grep -q "resumes at step [1-9]*0, " "$SCRATCH/wrong.out"
	# one that an earlier version saved
	local latest=$SCRATCH/wrong/checkpoint-00000070.safetensors header bias
	cp "$SCRATCH/wrong/checkpoint-00000060.safetensors" "$latest"
	header=$(od -An -t u8 -N 8 "$latest")
	bias=$(head -c $((header + 8)) "$latest" | grep -ao '"classifier.bias":{[^}]*' | sed 's/.*"data_offsets":\[\([0-9]*\).*/\1/')
	printf '\0\0\300\177' | dd of="$latest" bs=1 seek=$((header + 8 + bias)) conv=notrunc status=none
	LC_ALL=C sed -i 's/"crc32c":/"crc32x":/' "$latest"
	"${go[@]}" --data "$SCRATCH/signs" --learning-rate 1e-3 --decay constant --steps 80 --resume auto >"$SCRATCH/wrong.out"
	grep -q 'checkpoint-00000070.safetensors: tensor classifier.bias holds what is no finite number: --resume=auto goes back to .*/checkpoint-00000060' "$SCRATCH/wrong.out"
}

loss_read() { # STEPS…: the steps in $SCRATCH/read whose loss was
	[ "$(grep '"event":"step".*"loss":' "$SCRATCH/read/log.jsonl" | sed 's/.*"step":\([0-9]*\).*/\1/' | xargs)" = "$*" ]
}
steps_made() { [ "$(grep -cs '"event":"step"' "$SCRATCH/read/log.jsonl")" -ge "$1" ]; }

@test "the loss is read before weights are saved: a checkpoint, after a validation, at the end and when told to stop" {
	local go=("$BUILD/chexnet" train "${NETWORK[@]}" --resamples 0 --fetch-every 100000 --output "$SCRATCH/read") pid status=0 last
	[ -d "$SCRATCH/signs" ] || prepared signs --images 2500
	"${go[@]}" --data "$SCRATCH/signs" --steps 11 --checkpoint-every 6 --eval-every 4 >"$SCRATCH/read.out"
	loss_read 0 3 5 7 10 # numbered from 0
	[ "$(sed -n 's/.*"event":"eval".*"step":\([0-9]*\),"split":"val".*/\1/p' "$SCRATCH/read/log.jsonl" | xargs)" = "4 8 11" ]
	rm -r "$SCRATCH/read"
	"${go[@]}" --data "$SCRATCH/signs" --steps 1000000 --checkpoint-every 1000000 --eval-every 1000000 --max-seconds 60 >"$SCRATCH/read.out" 3>&- &
	pid=$!
	wait_for 20 steps_made 3
	kill "$pid"
	wait "$pid" || status=$?
	[ "$status" = 75 ]
	last=$(grep -c '"event":"step"' "$SCRATCH/read/log.jsonl")
	loss_read 0 $((last - 1))
}

@test "without room for a checkpoint training ends with its name and leaves no half file" {
	[ -d "$SCRATCH/signs" ] || prepared signs --images 2500
	run --separate-stderr -70 bash -c "ulimit -f 16; exec $BUILD/chexnet train ${NETWORK[*]} --data $SCRATCH/signs --steps 2 --output $SCRATCH/full"
	[[ $stderr == "chexnet train: $SCRATCH/full/"*".safetensors"* ]]
	[ "$(find "$SCRATCH/full" -name '*.safetensors*' | wc -l)" = 0 ]
}

@test "a log that finds no more room is given up with the reason, and the training goes on" {
	[ -d "$SCRATCH/signs" ] || prepared signs --images 2500
	echo '{"a":1}' >"$SCRATCH/short.json"
	run --separate-stderr -0 bash -c "ulimit -f 512; head -c 520992 /dev/zero >>$SCRATCH/short.json; exec $BUILD/chexnet train ${NETWORK[*]} --data $SCRATCH/signs \
		--resamples 0 --steps 40 --output $SCRATCH/short --log-json $SCRATCH/short.json"
	[ "$stderr" = "chexnet: the JSON log cannot be written any more: File too large" ]
	[ -e "$SCRATCH/short/model.safetensors" ]
}

@test "predict gives what eval gives for the same image" {
	[ -d "$SCRATCH/signs" ] || prepared signs --images 2500
	"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/signs" --steps 20 --resamples 0 --output "$SCRATCH/same" >"$SCRATCH/same.out"
	"$BUILD/chexnet" eval --weights "$SCRATCH/same/model.safetensors" --data "$SCRATCH/signs" --threads 1 --resamples 0 --predictions "$SCRATCH/same.csv" >>"$SCRATCH/same.out"
	mapfile -t images < <(sed -n '3,5s/,.*//p' "$SCRATCH/same.csv")
	"$BUILD/chexnet" predict --weights "$SCRATCH/same/model.safetensors" --threads 1 --json "${images[@]/#/$SCRATCH/signs-tree/images/}" >"$SCRATCH/same.json"
	awk -F'"' '/logits/ { on = 1; next } /}/ { on = 0 } on { gsub(/[^-0-9.e]/, "", $3); print $2, $3 }' "$SCRATCH/same.json" >"$SCRATCH/ours"
	awk -F, 'NR == 2 { split($0, name) } NR > 2 && NR < 6 { for (i = 18; i <= NF; i++) print substr(name[i], 1, length(name[i]) - 6), $i }' "$SCRATCH/same.csv" >"$SCRATCH/theirs"
	paste -d' ' "$SCRATCH/ours" "$SCRATCH/theirs" | tee "$SCRATCH/both"
	awk '{ d = $2 - $4 } $1 != $3 || !(d < 1e-4 && d > -1e-4) { exit bad = 1 } END { exit bad || NR != 3 * 14 }' "$SCRATCH/both"
}

@test "activation maps point at the signs" {
	[ -d "$SCRATCH/run" ] || skip "the network of the first test is not there"
	# what NIH's box list says: image, left, top, width, height
	awk -F, '$2 == "Effusion" { print $1, $3, $4, $5, $6 }' "$SCRATCH/signs-tree/BBox_List_2017.csv" | head -n 60 >"$SCRATCH/boxes"
	sed "s|^\([^ ]*\).*|$SCRATCH/signs-tree/images/\1|" "$SCRATCH/boxes" | xargs "$BUILD/chexnet" predict --weights "$SCRATCH/run/model.safetensors" --threads 1 \
		--maps "$SCRATCH/maps" --finding Effusion --json >"$SCRATCH/maps.json"
	[ "$(find "$SCRATCH/maps" -name '*.Effusion.png' | wc -l)" = 60 ]
	awk '/"map"/ { on = 1 } on && /"x"/ { gsub(/[^0-9.]/, "", $2); x = $2 } on && /"y"/ { gsub(/[^0-9.]/, "", $2); print 32 * x, 32 * $2; on = 0 }' \
		"$SCRATCH/maps.json" >"$SCRATCH/peaks"
	paste -d' ' "$SCRATCH/boxes" "$SCRATCH/peaks" | awk '
		$6 >= $2 && $6 <= $2 + $4 && $7 >= $3 && $7 <= $3 + $5 { hits++ }
		{ chance += $4 * $5 / (32 * 32) }
		END { printf "%d of %d peaks lie in their box, %.0f by chance\n", hits, NR, chance; exit !(NR == 60 && hits >= 4 * chance) }'
	# the program's own count of the same
	hits=$(paste -d' ' "$SCRATCH/boxes" "$SCRATCH/peaks" | awk '$6 >= $2 && $6 <= $2 + $4 && $7 >= $3 && $7 <= $3 + $5 { n++ } END { print n }')
	sed "s|^\([^ ]*\).*|$SCRATCH/signs-tree/images/\1|" "$SCRATCH/boxes" | xargs "$BUILD/chexnet" predict --weights "$SCRATCH/run/model.safetensors" --threads 1 \
		--boxes "$SCRATCH/signs-tree/BBox_List_2017.csv" --json 2>"$SCRATCH/pointing.out" >"$SCRATCH/pointing.json"
	grep -E "^Effusion +60 +$hits +[0-9.]+ +[0-9.]+ %, 95 % interval [0-9.]+ to [0-9.]+ %, [0-9]+ patients$" "$SCRATCH/pointing.out"
	# and the report's, with the same interval
	"$BUILD/chexnet" report --predictions "$SCRATCH/run/test.csv" --pointing "$SCRATCH/pointing.json" --out "$SCRATCH/pointing.html" --json "$SCRATCH/report.json" >/dev/null
	grep -q "<h2>Pointing game</h2>.* of 60 images of " "$SCRATCH/pointing.html"
	python3 - "$SCRATCH/report.json" "$SCRATCH/pointing.out" <<-'END'
		import json, sys
		f = json.load(open(sys.argv[1]))["pointing"]["findings"]["Effusion"]
		s = f["share"]
		said = "%.1f %%, 95 %% interval %.1f to %.1f %%, %d patients\n" % (100 * s["value"], 100 * s["low"], 100 * s["high"], f["patients"])
		line = next(l for l in open(sys.argv[2]) if l.startswith("Effusion "))
		assert f["maps"] == 60 and line.endswith(said), (line, said)
	END
}

@test "the time in which a training was suspended is nobody's waiting, and no part of its images/s" {
	[ -d "$SCRATCH/signs" ] || prepared signs --images 2500
	"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/signs" --steps 400 --eval-every 400 --output "$SCRATCH/slept" --log-json "$SCRATCH/slept.json" >"$SCRATCH/slept.out" 3>&- &
	until grep -q '"step":50,' "$SCRATCH/slept.json"; do sleep 0.02; done
	kill -STOP $!
	sleep 4
	kill -CONT $!
	wait $!
	grep -E '^400 steps, .* images/s' "$SCRATCH/slept.out"
	python3 -c '
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
steps = [e["time"] for e in events if e["event"] == "step"]
summary = next(e for e in events if e["event"] == "summary")
apart = steps[-1] - steps[0] - summary["seconds"]
print(apart, "s left out; shares", summary["input_share"], summary["communication_share"])
assert apart > 3 and summary["input_share"] < 0.5' "$SCRATCH/slept.json"
}

@test "lr-test trains twice and says which won, with the interval" {
	[ -d "$SCRATCH/signs" ] || prepared signs --images 2500
	run --separate-stderr -64 "$BUILD/chexnet" lr-test "${NETWORK[@]}" --data "$SCRATCH/signs" --output "$SCRATCH/lr"
	[[ $stderr == *"the global batch of 16 is not above --base-batch=256"* ]]
	"$BUILD/chexnet" lr-test "${NETWORK[@]}" --data "$SCRATCH/signs" --steps 60 --batch 32 --base-batch 2 --scaling linear --learning-rate 3e-4 \
		--output "$SCRATCH/lr" >"$SCRATCH/lr.out"
	tail -n 3 "$SCRATCH/lr.out"
	grep -q '^learning-rate test on .*difference [+-]0\.[0-9]*, 95 % interval' "$SCRATCH/lr.out"
	grep -qE '^(linear scaling won|training without scaling won|no winner)' "$SCRATCH/lr.out"
	# which of them may be another processor's rounding; a winner is the test split's
	[ "$(grep -c ' scaling won' "$SCRATCH/lr.out")" = "$(grep -c '^the test split has chosen the winner' "$SCRATCH/lr.out")" ]
	# the verdict is that of compare on the same files
	"$BUILD/chexnet" compare "$SCRATCH/lr/none/test.csv" "$SCRATCH/lr/linear/test.csv" --resamples 1000 >"$SCRATCH/compare.out"
	a=$(sed -n 's/^learning-rate test.* difference \([^,]*\),.*/\1/p' "$SCRATCH/lr.out")
	grep -F -- "${a#[+-]}" "$SCRATCH/compare.out"
}
