# SPDX-License-Identifier: Apache-2.0
# What a user does with results: train, score, report, compare, average; and what they are told when a file is not what it should be.

load helpers
bats_require_minimum_version 1.5.0

setup_file() {
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH"
	cd "$SCRATCH" || return 1
	export PATH="$BUILD:$PATH" OMP_NUM_THREADS=1
	chexnet synth --out tree --images 400 --size 32 --prevalence-floor 0.2 >/dev/null
	chexnet prepare nih tree set --size 32 >/dev/null
	for seed in 1 2; do
		chexnet train --data set --model densenet --growth 4 --blocks 1,1 --image-size 32 --no-augment --steps 12 --eval-every 6 --batch 8 \
			--learning-rate 1e-3 --resamples 20 --seed $seed --threads 1 --output run$seed --log-json log$seed.jsonl >/dev/null
		chexnet eval --data set --weights run$seed/model.safetensors --threads 1 --resamples 0 --predictions $seed.csv >/dev/null
	done
}

teardown_file() { rm -rf "$SCRATCH"; }

setup() { cd "$SCRATCH" || return 1; }

refuses() { # CODE "WORDS" COMMAND…
	local code=$1 words=$2
	shift 2
	run --separate-stderr "$@"
	echo "status $status, stderr: $stderr"
	[ "$status" -eq "$code" ]
	stderr=$(grep -v '^chexnet predict: for research, ' <<<"$stderr")
	[ "$(grep -c . <<<"$stderr")" -eq 1 ]
	for word in $words; do [[ $stderr == *"$word"* ]]; done
}

@test "the report holds what eval printed, and nothing from outside" {
	run chexnet report --predictions 1.csv --log log1.jsonl --resamples 100 --out r.html
	echo "$output"
	[ "$status" -eq 0 ]
	mean=$(chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 --json |
		sed -n '/"mean"/,/}/s/.*"auroc":[^0-9]*\([0-9.]*\).*/\1/p')
	mean=$(LC_ALL=C printf %.3f "$mean")
	echo "mean $mean"
	grep -q "<div class=\"big\">$mean</div>" r.html
	grep -q 'Synthetic images' r.html
	chexnet report --predictions 1.csv --resamples 100 --out alone.html
	grep -q 'Synthetic images' alone.html
	grep -q 'chexnet report --predictions 1.csv' r.html
	# of how many patients, wherever these are not as many as images
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 >printed
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 --json | tr -d '\t,' |
		sed -n 's/^"\([A-Z][a-z_A-Z]*\)":{$/\1/p; s/^"positive\(_patients\|s\)":\([0-9]*\)$/\2/p' | paste - - - |
		awk '{ print $1, $2, $2 == $3 ? "" : "of " $3 " patients" }' >told
	cat printed told
	[ "$(grep -c patients told)" -gt 7 ]
	diff told <(sed -n '/^finding/,/^mean/{//!p}' printed | awk '{ print $1, $2, match($0, /of [0-9]+ patients?$/) ? substr($0, RSTART) : "" }')
	[ "$(grep -c '://' r.html)" -eq 0 ]
	[ "$(stat -c %s r.html)" -lt 5000000 ]
}

@test "README's lines for one image and for the report work as they are typed, and the report shows the map" {
	mkdir -p typed/run1
	cp run1/model.safetensors run1/test.csv typed/run1
	cp log1.jsonl typed/run1/log.jsonl
	cp "$(find tree/images -name '*.png' | head -n 1)" typed/image.png
	sed -n 's/^    \(chexnet \(predict\|report\) .*\)/\1/p' "$TOP/README.md" >typed/lines
	cat typed/lines
	[ "$(wc -l <typed/lines)" -eq 2 ]
	(cd typed && bash -e lines) | tee typed/predicted
	grep -q '<img[^>]* src="data:image/png;base64,' typed/report.html
	grep -oE '<img alt="image\.[^"]*"' typed/report.html | tee typed/alt
	grep -qE '^<img alt="image\.([A-Z][a-z_A-Z]*): [A-Z][a-z A-Z]*, p = 0\.[0-9]{3}; map of 4 × 4 cells, (the coloured ones raise the odds (less than )?[0-9.]+-fold|none raises the odds)"$' typed/alt
	# both are rounded from one number
	p=$(sed -n 's/^  [A-Z][a-z_A-Z]* *\(0\.[0-9]*\)$/\1/p' typed/predicted | head -n 1)
	awk -v p="$p" -v shown="$(sed 's/.*, p = \(0\.[0-9]*\);.*/\1/' typed/alt)" 'BEGIN { d = p - shown; exit !(d < 0.00056 && d > -0.00056) }'
}

@test "a model does not differ from itself, two are compared finding by finding" {
	run chexnet compare 1.csv 1.csv --resamples 100
	[ "$status" -eq 0 ]
	[[ $output == *"no difference in mean AUROC can be shown"* ]]
	run chexnet compare 1.csv 2.csv --resamples 100 --json
	[ "$status" -eq 0 ]
	[ "$(grep -c p_holm <<<"$output")" -eq 15 ]
	# what is not known of a model is said
	sed '1s/leak=[0-9]*/leak=unchecked/' 2.csv >unchecked.csv
	chexnet compare 1.csv unchecked.csv --resamples 100 >said
	grep 'leak not checked: .*those that B was trained on' said
	[ "$(grep -c careful said)" -eq 0 ]
	sed '1s/ policy=[a-z]*//; s/,test,/,val,/' 2.csv >unnamed.csv
	chexnet compare unnamed.csv 1.csv --resamples 100 | grep -x 'careful: A and B come from different splits: A from val, policy not named; B from test, policy official'
	sed '1s/ policy=[a-z]*//' 2.csv >unnamed.csv
	chexnet compare unnamed.csv 1.csv --resamples 100 >said
	grep -x 'careful: whether A and B come from the same split is not known: A from test, policy not named; B from test, policy official' said
	run ! grep 'different splits' said
	sed '1s/rows=[0-9]* //; 3,$s/,[0-9]*,test/,1,test/' 1.csv >one.csv
	chexnet compare one.csv one.csv --resamples 100 | grep -E '^[0-9]+ images of 1 patient in both$'
	chexnet report --predictions 1.csv --compare unchecked.csv --resamples 100 --out said.html
	# both commands say the same without being told how often to draw
	chexnet compare 1.csv 2.csv --json | sed -n '/"images"/,$p' >compared.json
	chexnet report --predictions 1.csv --compare 2.csv --json all.json
	sed -n '/"comparison"/,$p' all.json | sed -n '/"images"/,/^\t}/s/^\t//p' >reported.json
	[ "$(grep -c p_holm reported.json)" -eq 15 ]
	diff <(sed 's/},*$/}/' compared.json) <(sed 's/},*$/}/' reported.json)
	grep -q 'Leak not checked.*the other model, B,' said.html
}

@test "a finding that hardly a patient shows has no interval, and the validation line says how many are rare" {
	chexnet synth --out rare-tree --images 160 --size 32 >rare.out
	chexnet prepare nih rare-tree rare --size 32 >>rare.out
	chexnet train --data rare "${SMALL[@]}" --resamples 100 --steps 4 --eval-every 2 --output rare-run >>rare.out
	cat rare.out
	grep -E '^validation after step 2: mean AUROC 0\.[0-9]{4} \(.*[0-9]+ of 14 findings, [0-9]+ of them in fewer than 10 patients\), loss' rare.out
	grep -E '^Mass +[1-4] [01]\.[0-9]{4}  n/a \(too few\) +[01]\.[0-9]{4}  few positives$' rare.out
	for resamples in 0 100; do
		chexnet eval --data rare --weights rare-run/model.safetensors --threads 1 --resamples $resamples >rare.eval
		[ "$(grep -c '^few patients: read the intervals' rare.eval)" -eq $((resamples > 0)) ]
	done
	chexnet report --predictions rare-run/test.csv --out rare.html --json rare.json
	grep -q 'n/a (too few)' rare.html
	[ "$(grep -c 'promise more than they can keep' rare.html)" -eq 0 ]
}

@test "so few resamples that nothing can be shown say so, and what they cannot go below is marked" {
	python3 - <<-'END'
		import random
		random.seed(5)
		rows = open("1.csv").read().splitlines()
		head = next(i for i, row in enumerate(rows) if row.startswith("id,"))
		for name, noise in (("good.csv", 0.3), ("poor.csv", 3)):
		    with open(name, "w") as f:
		        for i in range(600):
		            labels = [int(random.random() < 0.3) for _ in range(14)]
		            logits = [2 * l + noise * random.gauss(0, 1) for l in labels]
		            if i == 0:
		                print(rows[head], file=f)
		                random.seed(6)
		            print(f"{i:08d}_000.png", i, "test", *labels, *logits, sep=",", file=f)
	END
	python3 - <<-'END'
		a, b = (open(n).read().splitlines() for n in ("good.csv", "poor.csv"))
		with open("poor.csv", "w") as f: # of the same labels
		    for x, y in zip(a, b):
		        print(",".join(x.split(",")[:17] + y.split(",")[17:]), file=f)
	END
	chexnet compare poor.csv good.csv --resamples 100 >few.out
	cat few.out
	grep -E '^Edema .* <=0\.020  <=0\.277' few.out
	grep -F -- '--resamples=559 or more' few.out
	tail -n 1 few.out | grep -F 'so few resamples cannot show'
	chexnet compare poor.csv good.csv --resamples 559 >enough.out
	tail -n 1 enough.out
	tail -n 1 enough.out | grep -F '; 14 of 14 findings differ'
	chexnet compare poor.csv good.csv --resamples 100 --json >few.json
	[ "$(grep -c '"p_is_bound":.true' few.json)" -eq 15 ]
	# the split that chose the weights is not new to them
	chexnet eval --data set --split val --weights run1/model.safetensors --threads 1 --resamples 0 | grep '^validation split: weights are chosen on these images'
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 >tested
	[ "$(grep -c 'weights are chosen' tested)" -eq 0 ]
}

@test "weighted positives: progress is that of the weighted loss, and what is no probability is not called one" {
	chexnet train --data set "${SMALL[@]}" --pos-weight balanced --steps 30 --eval-every 10 --output weighted >weighted.out
	least=$(grep '"split":"val"' weighted/log.jsonl | grep -o '"weighted_loss":[0-9.]*' | cut -d: -f2 | sort -g | head -n 1)
	noted=$(grep -ao '"best_loss":"[0-9.]*"' weighted/model.safetensors | cut -d'"' -f4)
	echo "least weighted loss $least, noted $noted"
	awk "BEGIN { exit !($least > 0.5 && $noted - $least < 1e-9 && $least - $noted < 1e-9) }"
	grep -q '^validation .*loss 0[.0-9]*, weighted [0-9.]*$' weighted.out
	image=$(find tree/images -name '*.png' | head -n 1)
	chexnet predict --weights weighted/model.safetensors "$image" 2>&1 >/dev/null | grep 'pos-weight=balanced'
	[ -z "$(chexnet predict --weights run1/model.safetensors "$image" 2>&1 >/dev/null | grep pos-weight)" ]
	chexnet eval --data set --weights weighted/model.safetensors --threads 1 --resamples 0 --predictions weighted.csv >/dev/null
	for predictions in weighted/test.csv weighted.csv; do
		chexnet report --predictions $predictions --resamples 100 --out weighted.html
		grep -q 'Not probabilities' weighted.html
	done
	chexnet report --predictions 1.csv --resamples 100 --out weighted.html
	[ "$(grep -c 'Not probabilities' weighted.html)" -eq 0 ]
}

@test "a training goes on with the same pixels only: packed ones are PNG's, JPEG's are not" {
	chexnet prepare nih tree packed --size 32 --format packed >/dev/null
	chexnet prepare nih tree jpeg --size 32 --format jpeg >/dev/null
	chexnet train --data set "${SMALL[@]}" --steps 4 --output pixels >/dev/null
	refuses 65 "as jpeg exactly --format --weights=" chexnet train --data jpeg "${SMALL[@]}" --steps 8 --output pixels --resume auto
	chexnet train --data packed "${SMALL[@]}" --steps 6 --output pixels --resume auto >/dev/null
}

@test "one of NIH's two lists alone divides nothing: other policies pass it over, the official one asks for both" {
	cp -r tree half
	rm half/test_list.txt
	chexnet prepare nih half half-set --size 32 --split chexnet >/dev/null
	refuses 65 "half: train_val_list.txt test_list.txt not both there --split chexnet" chexnet prepare nih half half-no --size 32
}

@test "an ensemble is a file of predictions like its members" {
	run chexnet ensemble both.csv 1.csv 2.csv --spread spread.csv
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(wc -l <both.csv)" -eq "$(wc -l <1.csv)" ]
	[ "$(sed -n 2p both.csv)" = "$(sed -n 2p 1.csv)" ]
	[ "$(wc -l <spread.csv)" -eq $(($(wc -l <1.csv) - 1)) ]
	chexnet compare 1.csv both.csv --resamples 100 >/dev/null
	# any name comes through
	for n in 1 2; do sed '3s/^[^,]*/"a ""6"", b.png"/' $n.csv >odd$n.csv; done
	chexnet ensemble odd.csv odd1.csv odd2.csv --spread odd-spread.csv >/dev/null
	[[ $(sed -n 3p odd.csv) == '"a ""6"", b.png",'* ]]
	[[ $(sed -n 2p odd-spread.csv) == '"a ""6"", b.png",'* ]]
}

@test "TensorBoard gets an event file with its name" {
	chexnet predict --weights run1/model.safetensors --threads 1 --maps maps "$(find tree/images -name '*.png' | head -n 1)" >/dev/null
	run chexnet report --predictions 1.csv --log log1.jsonl --pictures maps --tensorboard events
	[ "$status" -eq 0 ]
	[[ $output == events/events.out.tfevents.* ]]
	[ -s "$output" ]
	grep -aq 'brain.Event:2' "$output"
	grep -aq 'pr_curves' "$output"
	grep -aq 'map/0' "$output"
	grep -aq 'IHDR' "$output"
}

@test "files that are not what they should be are named, with the line" {
	sed '5s/,[^,]*$/,inf/' 1.csv >bad.csv
	refuses 65 "bad.csv line 5 Hernia inf" chexnet report --predictions bad.csv --out bad.html
	[ ! -e bad.html ]
	grep -v '^0000' 1.csv >empty.csv
	refuses 65 "empty.csv no predictions" chexnet compare empty.csv 1.csv
	sed 1d 1.csv | head -n 20 >part.csv
	refuses 65 "part.csv missing" chexnet ensemble out.csv 1.csv part.csv
	head -n 20 1.csv >cut.csv
	for command in "compare 1.csv cut.csv" "ensemble out.csv 1.csv cut.csv" "report --predictions cut.csv --out bad.html"; do
		# shellcheck disable=SC2086 # words
		refuses 65 "cut.csv rows=$(grep -vc '^[#i]' 1.csv) 18 copied" chexnet $command
	done
	head -c -3 1.csv >cut.csv
	refuses 65 "cut.csv line $(wc -l <1.csv) no end copied" chexnet compare 1.csv cut.csv
	awk -F, -v OFS=, 'NR == 5 { $2 += 1000 } 1' 1.csv >patient.csv
	for command in "compare 1.csv patient.csv" "ensemble out.csv 1.csv patient.csv" "report --predictions 1.csv --compare patient.csv --out bad.html"; do
		# shellcheck disable=SC2086 # words
		refuses 65 "image $(sed -n '5s/,.*//p' 1.csv) patient $(sed -n 5p 1.csv | cut -d, -f2) 1.csv $(sed -n 5p patient.csv | cut -d, -f2) patient.csv" chexnet $command
	done
	refuses 65 "1.csv no event OUTPUT/log.jsonl" chexnet report --predictions 1.csv --log 1.csv --out bad.html
	refuses 65 "nowhere.csv" chexnet compare 1.csv nowhere.csv
	refuses 64 "--predictions" chexnet report --out bad.html
	refuses 64 "nowhere/r.html" chexnet report --predictions 1.csv --resamples 100 --out nowhere/r.html
	[ ! -e bad.html ] && [ ! -e out.csv ]
}

@test "predictions go to standard output, a pipe or a device, and leave them what they are" {
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 --predictions /dev/stdout | sed -n '/^# /,$p' >piped.csv
	cmp 1.csv piped.csv
	mkfifo pipe
	cat pipe >piped.csv &
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 --predictions pipe >/dev/null
	wait
	[ -p pipe ]
	cmp 1.csv piped.csv
}

@test "a pipe in the place of a file that is read keeps nobody waiting" {
	rm -f pipe && mkfifo pipe
	local model=run1/model.safetensors
	for command in "predict --weights pipe tree/images/$(sed -n '3s/,.*//p' 1.csv)" "predict --engine cpu --weights $model pipe" "report --predictions pipe --out x.html" \
		"report --predictions 1.csv --log pipe --out x.html" "compare 1.csv pipe" "ensemble out.csv 1.csv pipe" "audit --table pipe tree" \
		"prepare nih tree out --size 32 --split file:pipe" "eval --data set --weights pipe" "train --data set ${SMALL[*]} --steps 1 --output waits --resume pipe" \
		"train --data set ${SMALL[*]} --steps 1 --output waits --mask file:pipe"; do
		# shellcheck disable=SC2086 # words
		refuses 65 "pipe regular file" timeout 60 chexnet $command
	done
	refuses 65 "HVD_PLAN pipe regular file" env HVD_PLAN=pipe timeout 60 chexnet train --data set "${SMALL[@]}" --steps 1 --output waits
	refuses 65 "HVD_PLAN 1.csv name another file" env HVD_PLAN=1.csv timeout 60 chexnet train --data set "${SMALL[@]}" --steps 1 --output waits
}

@test "the JSON log goes to a pipe that somebody reads, and without a reader nobody waits for one" {
	rm -f pipe && mkfifo pipe
	refuses 70 "pipe nobody reads" timeout 60 chexnet train --data set "${SMALL[@]}" --steps 1 --output waits --log-json pipe
	(sleep 1 && cat pipe >heard.jsonl) & # a reader may be the later one
	chexnet train --data set "${SMALL[@]}" --steps 1 --output waits --log-json pipe >/dev/null
	wait
	grep -q '"event":"start"' heard.jsonl
	grep -q '"event":"end"' heard.jsonl
}

@test "a JSON log that is removed during a training is missed, in one line" {
	chexnet train --data set "${SMALL[@]}" --steps 1000000 --checkpoint-every 1 --output unlogged >/dev/null 2>unlogged.err 3>&- &
	local pid=$!
	wait_for 60 test -s unlogged/log.jsonl
	rm unlogged/log.jsonl
	wait_for 60 grep -q 'somebody removed the JSON log' unlogged.err
	local then status=0
	then=$(cd unlogged && echo checkpoint-*)
	later() { [ "$(cd unlogged && echo checkpoint-*)" != "$then" ]; }
	wait_for 60 later
	kill -TERM $pid
	wait $pid || status=$?
	cat unlogged.err
	[ "$status" -eq 75 ]
	[ "$(grep -c 'JSON log' unlogged.err)" -eq 1 ]
}

@test "a place that cannot be written to is named before the scoring" {
	mkdir -p taken
	run --separate-stderr chexnet eval --data set --weights nowhere.safetensors --predictions taken
	[ "$status" -eq 64 ]
	[ "$stderr" = "chexnet eval: taken: is a directory, not a place for a file" ]
	run --separate-stderr chexnet eval --data set --weights nowhere.safetensors --predictions nowhere/p.csv
	[ "$status" -eq 64 ]
	[ "$stderr" = "chexnet eval: nowhere/p.csv: cannot be made: there is no directory nowhere" ]
}

@test "where the predictions find no space, the table is printed all the same" {
	[ -c /dev/full ] || skip "no /dev/full"
	run --separate-stderr chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 --predictions /dev/full
	[ "$status" -eq 70 ]
	[[ $stderr == *"/dev/full: writing failed after 0 bytes: No space left on device"* ]]
	[[ $output == *"mean of 14 of 14"* ]]
	[ -c /dev/full ]
}

@test "what is printed on a full disk is no success" {
	[ -c /dev/full ] || skip "no /dev/full"
	for command in "eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 --json" "compare 1.csv 2.csv --resamples 100" "predict --help"; do
		status=0
		# shellcheck disable=SC2086
		chexnet $command >/dev/full 2>told || status=$?
		cat told
		[ "$status" -eq 70 ]
		[ "$(tail -n 1 told)" = "chexnet: what was printed is not complete: No space left on device" ]
	done
}

@test "closed standard files: what is printed does not land in the run's own" {
	chexnet train --data set --model densenet --growth 4 --blocks 1,1 --image-size 32 --steps 2 --batch 8 --resamples 0 --threads 1 --output shut \
		<&- >&- 2>&-
	[ -s shut/model.safetensors ]
	[ "$(grep -vc '^{"event":' shut/log.jsonl)" -eq 0 ]
}

@test "a reader of standard output that leaves does not end a training" {
	train() { chexnet train --data set --model densenet --growth 4 --blocks 1,1 --image-size 32 --batch 8 --resamples 0 --threads 1 "$@"; }
	run --separate-stderr bash -c "$(declare -f train); train --steps 800 --output unread | head -n 1; echo \${PIPESTATUS[0]}"
	echo "$output $stderr"
	[ "${lines[1]}" = 0 ]
	[ "$stderr" = "chexnet: nobody reads standard output any more: the run goes on, and its JSON log tells how" ]
	[ -s unread/model.safetensors ] && [ -s unread/test.csv ]
	grep -q '"event":"end".*"code":0' unread/log.jsonl
}

@test "a terminal that closes ends a training with all saved, and under nohup not at all" {
	python3 -c 'import pty' 2>/dev/null || skip "no python3 to open a terminal"
	in_terminal() { python3 - "$@" <<-'END'; }
		import os, pty, signal, sys, time
		log, command = sys.argv[1], sys.argv[2:]
		pid, terminal = pty.fork()
		if pid == 0:
		    signal.signal(signal.SIGHUP, signal.SIG_DFL) # this test may be under nohup itself
		    os.execvp(command[0], command)
		while not os.path.exists(log) or b'"event":"step"' not in open(log, "rb").read():
		    time.sleep(0.02)
		os.close(terminal)
		print(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))
	END
	command=(chexnet train --data set --model densenet --growth 4 --blocks 1,1 --image-size 32 --batch 8 --resamples 0 --threads 1)
	[ "$(in_terminal closed/log.jsonl "${command[@]}" --steps 100000 --output closed)" = 75 ]
	compgen -G "closed/checkpoint-*.safetensors"
	[ ! -e closed/model.safetensors ]
	[ "$(in_terminal kept/log.jsonl nohup "${command[@]}" --steps 800 --output kept)" = 0 ]
	[ -s kept/model.safetensors ]
}

@test "maps of images with the same name do not take each other's place" {
	mkdir -p a b
	first=$(find tree/images -name '*.png' | sort | head -n 1)
	cp "$first" a/frontal.png
	cp "$(find tree/images -name '*.png' | sort | sed -n 2p)" b/frontal.png
	cp "$first" b/1.2.840.10008.png
	cp "$first" b/1.2.840.10009.PNG
	refuses 64 "a/frontal.png b/frontal.png both" chexnet predict --weights run1/model.safetensors --threads 1 --maps names a/frontal.png "$first" b/frontal.png
	[ ! -e names ]
	run chexnet predict --weights run1/model.safetensors --threads 1 --maps names --finding Mass b/1.2.840.10008.png b/1.2.840.10009.PNG a/frontal.png a/frontal.png
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(ls names)" = $'1.2.840.10008.Mass.png\n1.2.840.10009.Mass.png\nfrontal.Mass.png' ]
	refuses 64 "--finding=Mass --maps" chexnet predict --weights run1/model.safetensors --finding Mass a/frontal.png
	# nor those of an earlier call; the same image's may be made anew, by other weights too
	cp names/frontal.Mass.png frontal.map
	mass=(chexnet predict --engine cpu --threads 1 --maps names --finding Mass)
	refuses 64 "names/frontal.Mass.png: map of another image, not of b/frontal.png --maps=DIR" "${mass[@]}" --weights run1/model.safetensors b/frontal.png
	cmp names/frontal.Mass.png frontal.map
	"${mass[@]}" --weights run2/model.safetensors a/frontal.png >/dev/null
	run ! cmp names/frontal.Mass.png frontal.map
	cp b/frontal.png names/frontal.Mass.png
	refuses 64 "names/frontal.Mass.png: no map of this command" "${mass[@]}" --weights run1/model.safetensors a/frontal.png
	cmp names/frontal.Mass.png b/frontal.png
}

@test "a map's place is none where nothing speaks for the finding, and its figures are told" {
	python3 -c 'import json' 2>/dev/null || skip "no python3 to read the JSON"
	find "$PWD/tree/images" -name '*.png' | sort | head -n 40 >some
	for finding in Effusion Nodule Hernia; do
		xargs chexnet predict --weights run1/model.safetensors --threads 1 --maps evidence --finding $finding --json <some 2>/dev/null
	done | python3 -c '
import json, sys
text, rows, decoder = sys.stdin.read().strip(), [], json.JSONDecoder()
while text:
    found, end = decoder.raw_decode(text)
    rows, text = rows + [row["map"] for row in found], text[end:].strip()
silent = [m for m in rows if m["peak"] <= 0]
print(len(rows), "maps,", len(silent), "without evidence, peaks from", min(m["peak"] for m in rows), "to", max(m["peak"] for m in rows))
assert len(rows) == 120 and 0 < len(silent) < 120
for m in rows:
    assert m["cells"] == 4 and (m["x"] is None) == (m["y"] is None) == (m["peak"] <= 0), m
    assert max(m["peak"], 0) <= m["raised"] <= 16 * max(m["peak"], 0) and (m["x"] is None or 0 < m["x"] < 1), m
'
}

# A network that sees 24 of 32 pixels.
windowed() {
	[ -e narrow/model.safetensors ] ||
		chexnet train --data set --model densenet --growth 4 --blocks 1,1 --image-size 24 --steps 2 --batch 8 --resamples 0 --threads 1 --output narrow >/dev/null
}

draw() { # WIDTH HEIGHT: a PNG of gray that rises to the right
	python3 -c 'import struct, sys, zlib
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
w, h = int(sys.argv[1]), int(sys.argv[2])
sys.stdout.buffer.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 0, 0, 0, 0)) +
    chunk(b"IDAT", zlib.compress((b"\0" + bytes(3 * x for x in range(w))) * h)) + chunk(b"IEND", b""))' "$1" "$2"
}

@test "what the network sees of an image is told: in a line, in JSON, in the map and in the report" {
	windowed
	draw 60 40 >sixty.png || skip "no python3 to draw it"
	run --separate-stderr chexnet predict --weights narrow/model.safetensors --threads 1 --maps framed --json sixty.png
	echo "$stderr"
	[ "$status" -eq 0 ]
	[[ $stderr == *"); the network sees the middle 75 % of each side of an image"* ]]
	python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["map"]["window"])' <<<"$output" | tee seen
	[ "$(cat seen)" = "{'x': 7.5, 'y': 5, 'width': 45, 'height': 30}" ]
	grep -aq ' image=60x40 window=7.5,5,45,30' framed/sixty.*.png
	run --separate-stderr chexnet predict --weights narrow/model.safetensors --threads 1 --crops ten sixty.png
	[[ $stderr != *"the network sees"* ]]
	chexnet report --predictions narrow/test.csv --pictures framed --resamples 100 --out framed.html
	grep -q 'A map shows only what is within the white frame, the middle 75&nbsp;% of each side: of the rest, 44&nbsp;% of the image, it says nothing' framed.html
	run ! grep -q 'do not say which part' framed.html
	# a picture of a version that did not tell, and one of a network that sees everything
	python3 -c 'import re, struct, sys, zlib
data = open(sys.argv[1], "rb").read()
at = data.index(b"tEXt") - 4
size = struct.unpack(">I", data[at:at + 4])[0]
text = re.sub(rb" image=.*", b"", data[at + 4:at + 8 + size])
sys.stdout.buffer.write(data[:at] + struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text)) + data[at + 12 + size:])' framed/sixty.*.png >old.png
	mkdir both && mv old.png both/
	chexnet predict --weights run1/model.safetensors --threads 1 --maps both sixty.png >/dev/null
	chexnet report --predictions narrow/test.csv --pictures both --resamples 100 --out both.html
	grep -q 'A map shows the whole of each image' both.html
	grep -q '>1 of these pictures do not say which part of the image the network saw' both.html
}

@test "maps of another model are marked, whichever command scored and from whichever file" {
	windowed
	image=$(find tree/images -name '*.png' | head -n 1)
	chexnet predict --weights run1/model.safetensors --threads 1 --maps ours "$image" >/dev/null
	hash=$(grep -aoE 'weights_hash=[0-9a-f]{16}' ours/*.png)
	[[ $hash =~ ^weights_hash=[0-9a-f]{16}$ ]]
	for scored in 1.csv run1/test.csv; do
		grep -q "^# .* $hash " $scored
		run --separate-stderr chexnet report --predictions $scored --pictures ours --resamples 100 --out ours.html --json ours.json
		[ "$status" -eq 0 ] && [ -z "$stderr" ]
		grep -q "<dd><code>${hash#*=}</code>" ours.html
		grep -q "\"weights_hash\":.*\"${hash#*=}\"" ours.json
		run ! grep -qE 'another model|it is not known' ours.html
	done
	cp -r ours mixed
	chexnet predict --weights narrow/model.safetensors --threads 1 --maps mixed --finding Mass "$image" >/dev/null
	for where in --out=mixed.html --tensorboard=mixed-events; do
		run --separate-stderr chexnet report --predictions 1.csv --pictures mixed --resamples 100 "$where"
		[ "$status" -eq 0 ]
		[ "$stderr" = "chexnet report: warning: 1 of the 2 pictures in mixed were made with other weights than 1.csv" ]
	done
	grep -q "<b>Maps of another model.</b> 1 of the 2 pictures" mixed.html
	[ "$(grep -c "a map of another model than these predictions'" mixed.html)" -eq 1 ]
	sed '1s/ weights_hash=[0-9a-f]*//' 1.csv >silent.csv
	run --separate-stderr chexnet report --predictions silent.csv --pictures ours --resamples 100 --out silent.html
	[ -z "$stderr" ]
	grep -q 'Of 1 of these pictures it is not known whether this model made them' silent.html
}

@test "a window that the maps' cells do not cover is told before the training, and where maps are asked for" {
	narrow() { chexnet train --data set --model densenet --growth 4 --blocks 1,1 --batch 8 --resamples 0 --threads 1 --no-augment "$@"; }
	told="activation maps will not reach the last 5 of 28 columns and rows: 28 is no multiple of their cells' 8 pixels, --image-size=24 and 32 are"
	image=$(find tree/images -name '*.png' | head -n 1)
	narrow --image-size 28 --steps 1 --output odd >odd.out
	[ "$(grep -cx -- "$told" odd.out)" -eq 1 ]
	narrow --steps 1 --output even >even.out
	grep -q ', 24 pixels of 32; ' even.out
	run ! grep 'activation maps' even.out
	# what is resumed keeps its window, which cannot be helped any more
	narrow --steps 2 --resume auto --output odd >odd.out
	grep -q ', 28 pixels of 32; ' odd.out
	run ! grep 'activation maps' odd.out
	for what in "odd 1" "even 0"; do
		read -r weights times <<<"$what"
		run --separate-stderr chexnet predict --weights "$weights/model.safetensors" --threads 1 --maps "$weights-maps" "$image"
		echo "$stderr"
		[ "$(grep -c "the maps' cells do not reach the last 5 of the 28 columns and rows that the network sees, as 28 is no multiple of their 8 pixels: these are darkened, and evidence" <<<"$stderr")" -eq "$times" ]
		printf 'Image Index,Finding Label,Bbox [x,y,w,h],,,\n%s,Mass,8,8,8,8,,,\n' "${image##*/}" >one-box.csv
		run --separate-stderr chexnet predict --weights "$weights/model.safetensors" --threads 1 --boxes one-box.csv "$image"
		echo "$stderr"
		[ "$(grep -c "as 28 is no multiple of their 8 pixels: evidence in them moves to the cells before" <<<"$stderr")" -eq "$times" ]
		run --separate-stderr chexnet predict --weights "$weights/model.safetensors" --threads 1 "$image"
		[[ $stderr != *"cells"* ]]
	done
}

@test "of weights that do not say how large their images were, a size is assumed with a word, or given" {
	python3 "$BATS_TEST_DIRNAME/forget_notes.py" run1/model.safetensors unsaid 14 || skip "no Python here"
	image=$(find tree/images -name '*.png' | head -n 1)
	size=(--resize 32 --image-size 32)
	for weights in unsaid/model.safetensors run1/model.safetensors; do # the same, and what the others say themselves may be typed
		chexnet predict --weights $weights --engine cpu --threads 1 "${size[@]}" --json "$image" 2>words | grep -A 14 '"logits"' >"$(dirname $weights).logits"
		run ! grep 'does not say how large' words
		chexnet eval --data set --weights $weights --image-size 32 --threads 1 --resamples 0 --json 2>words | grep -A 2 '"mean"' >"$(dirname $weights).mean"
		run ! grep 'does not say how large' words
	done
	[ "$(wc -l <unsaid.logits)" -eq 15 ] && [ "$(wc -l <unsaid.mean)" -eq 3 ]
	diff unsaid.logits run1.logits
	diff unsaid.mean run1.mean
	chexnet predict --weights unsaid/model.safetensors --threads 1 "$image" 2>words >/dev/null
	grep -q 'unsaid/model.safetensors does not say how large its images were: they are made 256 pixels a side here, of which the network sees the middle 224 (' words
	chexnet predict --weights unsaid/model.safetensors --threads 1 --image-size 28 "$image" 2>words >/dev/null
	grep -q 'they are made 32 pixels a side here, of which the network sees the middle 28 (' words
	refuses 64 "--resize=64: the network sees 224 pixels" chexnet predict --weights unsaid/model.safetensors --resize 64 "$image"
	refuses 64 "--image-size=28: run1/model.safetensors says 32 itself" chexnet predict --weights run1/model.safetensors --image-size 28 "$image"
	refuses 64 "--resize=64: run1/model.safetensors says 32 itself" chexnet predict --weights run1/model.safetensors --resize 64 "$image"
	refuses 64 "--image-size=28: run1/model.safetensors says 32 itself" chexnet eval --data set --weights run1/model.safetensors --image-size 28
	refuses 64 "unsaid/model.safetensors does not say how many 224 a side 32 --image-size=PIXELS" chexnet eval --data set --weights unsaid/model.safetensors
	chexnet prepare nih tree wide --size 240 >/dev/null
	chexnet eval --data wide --split val --weights unsaid/model.safetensors --threads 1 --resamples 0 2>words >/dev/null
	grep -q 'unsaid/model.safetensors does not say how large its images were: the network sees the middle 224 of 240 pixels a side (' words
	refuses 64 "--image-size=64: the prepared images have 32 pixels" chexnet eval --data set --weights unsaid/model.safetensors --image-size 64
}

@test "weights know what they learned from, and are not judged on other images without a word" {
	sed 's/"source":[^,]*,/"source": "ChestX-ray14, labels of 2020",/' set/manifest.json >manifest
	cp -r set nih && mv manifest nih/manifest.json
	chexnet train --data nih "${SMALL[@]}" --steps 2 --output nih-run >/dev/null
	chexnet train --data nih "${SMALL[@]}" --steps 2 --weights run1/model.safetensors --output nih-tuned >/dev/null
	chexnet train --data nih "${SMALL[@]}" --steps 3 --resume auto --output nih-tuned >/dev/null
	forgot=$(python3 "$BATS_TEST_DIRNAME/forget_notes.py" run1/model.safetensors forgot 14 && echo yes)
	image=$(find tree/images -name '*.png' | head -n 1)
	local run trained
	while IFS='|' read -r run trained; do
		run --separate-stderr chexnet predict --weights $run/model.safetensors --engine cpu --threads 1 "$image"
		echo "$stderr"
		[ "$stderr" = "chexnet predict: for research, not a medical device: these are probabilities under the training set's prevalence and labels ($trained)" ]
	done <<-'END'
		run1|synthetic: drawn by a program, so they say nothing about radiographs
		nih-run|ChestX-ray14, labels of 2020
		nih-tuned|synthetic, then ChestX-ray14, labels of 2020
	END
	[ "$forgot" != yes ] || chexnet predict --weights forgot/model.safetensors --threads 1 "$image" 2>&1 >/dev/null | grep -F '(the weights do not say of which images)'
	chexnet predict --weights run1/model.safetensors --threads 1 --json "$image" 2>/dev/null | tr -d '\t' >told.json
	grep -qx '"trained_on":"synthetic",' told.json
	grep -qx '"notice":"for research, not a medical device"' told.json
	# judged on images of the other kind, and of its own
	local data told
	while read -r run data told; do
		rm -f judged.csv
		chexnet eval --data $data --weights $run/model.safetensors --threads 1 --resamples 0 --predictions judged.csv >judged
		chexnet report --predictions judged.csv --resamples 100 --out judged.html
		echo "$run on $data: $(grep -c '^other images than in training: ' judged) $(grep -c 'Other images than in training' judged.html)"
		[ "$(grep -c '^other images than in training: ' judged) $(grep -c 'Other images than in training' judged.html)" = "$told $told" ]
	done <<-END
		run1 nih 1
		run1 set 0
		nih-run set 1
		nih-run nih 0
		nih-tuned nih 0
		nih-tuned set 1
	END
	chexnet eval --data nih --weights run1/model.safetensors --threads 1 --resamples 0 --json | tr -d '\t' >judged.json
	grep -qx '"trained_on":"synthetic",' judged.json
	grep -qx '"source":"ChestX-ray14, labels of 2020",' judged.json
}

@test "a file name that is not UTF-8 leaves JSON and HTML valid" {
	python3 -c 'import json' 2>/dev/null || skip "no python3 to read the JSON"
	name=$(printf 'b\303\344d')
	mkdir -p "$name" && cp "$(find tree/images -name '*.png' | head -n 1)" "$name/$name.png"
	cp run1/model.safetensors "$name/$name.safetensors" && cp 1.csv "$name/$name.csv"
	cp -r set "$name/set" && cp -r tree "$name/tree"
	valid() { "$@" 2>/dev/null | python3 -c 'import json, sys
for line in sys.stdin.buffer if sys.argv[1] == "lines" else [sys.stdin.buffer.read()]: json.loads(line.decode())' "${lines:-one}"; }
	chexnet predict --weights "$name/$name.safetensors" --threads 1 --maps "$name/maps" "$name/$name.png" >/dev/null
	valid chexnet predict --weights "$name/$name.safetensors" --threads 1 --maps "$name/maps" --json "$name/$name.png" "$name/none.png"
	valid chexnet eval --data "$name/set" --weights "$name/$name.safetensors" --threads 1 --resamples 0 --json
	valid chexnet compare "$name/$name.csv" 1.csv --resamples 100 --json
	lines=lines valid chexnet audit --json "$name/set" "$name/tree"
	chexnet prepare nih "$name/tree" "$name/again" --size 32 >/dev/null
	valid cat "$name/again/manifest.json"
	chexnet train --data "$name/again" --model densenet --growth 4 --blocks 1,1 --steps 2 --batch 8 --resamples 0 --threads 1 --output "$name/run" >/dev/null
	lines=lines valid cat "$name/run/log.jsonl"
	chexnet report --predictions "$name/$name.csv" --log "$name/run/log.jsonl" --pictures "$name/maps" --resamples 100 --out "$name/r.html" --json "$name/r.json" >/dev/null
	valid cat "$name/r.json"
	python3 -c 'import sys; open(sys.argv[1], encoding="utf-8").read()' "$name/r.html"
}

@test "an image of one colour is scored, and a line says that nothing is to be seen in it" {
	image=$(find tree/images -name '*.png' | head -n 1)
	for gray in 0 77 255; do
		python3 -c 'import struct, sys, zlib
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
rows = (b"\0" + bytes([int(sys.argv[1])]) * 40) * 40
sys.stdout.buffer.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 40, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))' \
			$gray >gray$gray.png || skip "no python3 to draw it"
		run --separate-stderr chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 "$image" gray$gray.png
		[ "$status" -eq 0 ]
		[ "$(grep -c '^  Hernia' <<<"$output")" -eq 2 ]
		[ "$(sed 1d <<<"$stderr")" = "chexnet predict: warning: gray$gray.png: every pixel is of the same gray, $gray of 255: nothing is to be seen, and its probabilities mean nothing" ]
	done
}

@test "images too small for the network or far from square are scored, and a line says what is wrong with them" {
	gray_png() { # WIDTH HEIGHT
		python3 -c 'import struct, sys, zlib
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
width, height = map(int, sys.argv[1:])
rows = b"".join(b"\0" + bytes((7 * x + 5 * y) % 256 for x in range(width)) for y in range(height))
sys.stdout.buffer.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))' \
			"$@" >"shape$1x$2.png" || skip "no python3 to draw it"
	}
	local shape
	while read -r shape words; do
		gray_png ${shape/x/ }
		run --separate-stderr chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 "shape$shape.png"
		echo "$status $stderr"
		[ "$status" -eq 0 ]
		[ "$(grep -c '^  Hernia' <<<"$output")" -eq 1 ]
		stderr=$(grep -v '^chexnet predict: for research, ' <<<"$stderr" || true)
		[[ -n $words || -z $stderr ]]
		[[ -z $words || $stderr == "chexnet predict: warning: shape$shape.png: ${shape/x/ x } $words"* ]]
		[ "$(grep -c . <<<"$stderr")" -le 1 ]
	done <<-'END'
		32x32
		64x32
		40x33
		2x2 pixels, and the network sees 32 a side
		31x60 pixels, and the network sees 32 a side
		5000x20 pixels are stretched into a square
		33x67 pixels are stretched into a square
	END
	head -c 128 /dev/zero >scan.dcm && printf DICM >>scan.dcm
	refuses 65 "scan.dcm DICOM PNG window MONOCHROME1" chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 scan.dcm
}

@test "the trace of a training says that it waits for images, and shows validations and checkpoints" {
	HVD_TRACE=$PWD/trace chexnet train --model densenet --growth 4 --blocks 1,1 --image-size 32 --steps 12 --eval-every 6 --batch 8 --resamples 0 \
		--threads 1 --output traced >/dev/null
	run hvd-trace --output timeline.json trace
	echo "$output"
	[[ $output == "1 ranks, 11 steps, "* ]]
	awk '/ ms +[0-9.]+ %$/ { sum += $(NF - 1) } END { exit !(sum > 99.7 && sum < 100.3) }' <<<"$output" # where the time went: all of it
	awk '$1 == "input" && $(NF - 1) > 10 { found = 1 } END { exit !found }' <<<"$output" # drawing an X-ray takes about as long as this network
	grep -q '^validations and checkpoints, not counted above: ' <<<"$output"
	for name in input micro-batch validation checkpoint WAIT_FOR_DATA; do
		echo "$name: $(grep -c "\"name\":\"$name\"" timeline.json)"
	done | tee spans
	grep -qx 'input: 12' spans
	grep -qx 'micro-batch: 12' spans
	grep -qx 'validation: 2' spans
	grep -qx 'checkpoint: [12]' spans
}

@test "weights that make no number make no probability" {
	cp run1/model.safetensors nan.safetensors
	header=$(od -An -t u8 -N 8 nan.safetensors)
	bias=$(head -c $((header + 8)) nan.safetensors | grep -ao '"classifier.bias":{[^}]*' | sed 's/.*"data_offsets":\[\([0-9]*\).*/\1/')
	printf '\0\0\300\177' | dd of=nan.safetensors bs=1 seek=$((header + 8 + bias)) conv=notrunc status=none
	refuses 65 "nan.safetensors: damaged, or saved again by another program: the CRC-32C of its notes and tensors" chexnet eval --data set --weights nan.safetensors
	LC_ALL=C sed -i 's/"crc32c":/"crc32x":/' nan.safetensors
	refuses 70 ".png: the network's output is not a number" chexnet predict --weights nan.safetensors --engine cpu --threads 1 --json "$(find tree/images -name '*.png' | head -n 1)"
	[[ $output == *'"error"'* ]]
	[[ $output != *'"logits"'* ]]
}

@test "a small probability is printed with as many digits as a large one, so that a threshold of a few thousandths decides" {
	cp run1/model.safetensors small.safetensors
	header=$(od -An -t u8 -N 8 small.safetensors)
	bias=$(head -c $((header + 8)) small.safetensors | grep -ao '"classifier.bias":{[^}]*' | sed 's/.*"data_offsets":\[\([0-9]*\).*/\1/')
	printf '\0\0\300\300\0\0\100\301' | dd of=small.safetensors bs=1 seek=$((header + 8 + bias)) conv=notrunc status=none # -6 and -12
	LC_ALL=C sed -i 's/"crc32c":/"crc32x":/' small.safetensors
	predict=(chexnet predict --weights small.safetensors --engine cpu --threads 1)
	image=$(find tree/images -name '*.png' | head -n 1)
	"${predict[@]}" "$image" >small.out
	cat small.out
	grep -qE '^  Atelectasis +0\.00[0-9]{4}$' small.out
	grep -qE '^  Cardiomegaly +[0-9]\.[0-9]{3}e-0[56]$' small.out
	grep -qE '^  Hernia +0\.[1-9][0-9]{3}$' small.out
	"${predict[@]}" --json "$image" | sed -n '/"probabilities"/,/}/s/.*"\([A-Z][a-z_A-Z]*\)":[^0-9]*\([-+0-9.e]*\).*/\1 \2/p' >small.all
	[ "$(wc -l <small.all)" -eq 14 ]
	awk 'NR == FNR { p[$1] = $2; next } $1 in p { d = $2 / p[$1] - 1; n++; if (d > 0.0005 || d < -0.0005) bad++ } END { exit !(n == 14 && !bad) }' small.all small.out
}

@test "an image that may not be read is named, and the others are scored" {
	local user=()
	if [ "$(id -u)" = 0 ]; then
		command -v setpriv >/dev/null || skip "setpriv is not installed, and root may read everything"
		user=(setpriv --bounding-set=-all --inh-caps=-all)
	fi
	mapfile -t images < <(find "$PWD/tree/images" -name '*.png' | head -n 2)
	cp "${images[0]}" secret.png
	chmod 000 secret.png
	refuses 65 "secret.png cannot be read: Permission denied" "${user[@]}" chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 secret.png "${images[1]}"
	[[ $output == "${images[1]}"* ]]
}

@test "images of another size than the training's are not scored through the wrong window" {
	chexnet prepare nih tree larger --size 48 >/dev/null
	refuses 65 "run1/model.safetensors 32 48 --size=32" chexnet eval --data larger --weights run1/model.safetensors
	run chexnet train --data larger --weights run1/model.safetensors --steps 1 --batch 8 --resamples 0 --threads 1 --output tuned
	[ "$status" -eq 0 ]
	[[ $output == *"--image-size=48 would show about as much of them as its 32 did"* ]]
	chexnet eval --data larger --weights tuned/model.safetensors --threads 1 --resamples 0 >/dev/null
}

SMALL=(--model densenet --growth 4 --blocks 1,1 --image-size 32 --no-augment --batch 8 --resamples 0 --threads 1)

@test "a training resumed into another directory ends with a model, whichever step was the best" {
	chexnet train --data set "${SMALL[@]}" --steps 600 --eval-every 200 --learning-rate 1e-2 --output early >/dev/null
	# what follows is no better: its rate takes the network apart
	run chexnet train --data set "${SMALL[@]}" --steps 610 --eval-every 5 --learning-rate 3 --decay constant --resume early/checkpoint-00000600.safetensors --output late
	echo "$output"
	[ "$status" -eq 0 ]
	[ -s late/model.safetensors ]
	[[ $output == *"takes the weights of step "[246]"00, the best on the validation split"* ]]
	cmp early/best.safetensors late/best.safetensors
	[ "$(grep -ao '"step":"[0-9]*"' late/model.safetensors)" = "$(grep -ao '"step":"[0-9]*"' late/best.safetensors)" ]
	mkdir alone
	cp early/checkpoint-00000600.safetensors alone/
	run chexnet train --data set "${SMALL[@]}" --steps 610 --eval-every 5 --learning-rate 3 --decay constant --resume alone/checkpoint-00000600.safetensors --output later
	echo "$output"
	[ "$status" -eq 0 ]
	[ -s later/model.safetensors ]
	[[ $output == *", the best so far, are gone: the best is looked for from here on"* ]]
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
	run chexnet train --data set "${SMALL[@]}" --steps 6 --output changed --resume auto --learning-rate 2e-3 --pos-weight balanced --augment
	[ "$status" -eq 0 ]
	for line in "--augment was no and is yes now" "--steps was 4 and is 6 now" "--learning-rate was 0.0001 and is 0.002 now" "--pos-weight was none and is balanced now"; do
		grep -qx -- "$line" <<<"$output"
	done
	[ "$(grep -c ' was .* and is .* now' <<<"$output")" -eq 4 ]
}

@test "a training that is over is judged once more with the options of then, and with no others" {
	over=("${SMALL[@]}" --steps 1000 --patience 1 --eval-every 1 --output over) # long before
	chexnet train --data set "${over[@]}" --learning-rate 0 >/dev/null
	cp over/test.csv over.csv
	refuses 64 "over: after step --learning-rate=0.1 (0 then) give the options of then, a larger --patience," chexnet train --data set "${over[@]}" \
		--learning-rate 0.1 --resume auto
	refuses 64 "run1: after 12, --steps=4 (12 then) more --steps or --epochs," chexnet train --data set --model densenet --growth 4 --blocks 1,1 \
		--image-size 32 --no-augment --steps 4 --batch 8 --learning-rate 1e-3 --threads 1 --output run1 --resume auto
	refuses 64 "run1: --batch=4 (8 then)" chexnet train --data set --model densenet --growth 4 --blocks 1,1 \
		--image-size 32 --no-augment --steps 12 --batch 4 --learning-rate 1e-3 --threads 1 --output run1 --resume auto
	checkpoint=$(echo run1/checkpoint-*12.safetensors) # what is resumed from is named, where it is not --output's
	refuses 64 "$checkpoint: 12, --batch=4" chexnet train --data set --model densenet --growth 4 --blocks 1,1 \
		--image-size 32 --no-augment --steps 12 --batch 4 --learning-rate 1e-3 --threads 1 --output elsewhere --resume "$checkpoint"
	cmp over/test.csv over.csv
	run chexnet train --data set "${over[@]}" --learning-rate 0 --resume auto
	[ "$status" -eq 0 ]
	grep -q '^mean of' <<<"$output"
}

@test "weights of another network than --model's are refused, and the same one may be named" {
	refuses 64 "run1/model.safetensors --model=densenet --growth=4 --init-channels=8 --blocks=1,1, --model=resnet50: leave" chexnet train --data set \
		--model resnet50 --weights run1/model.safetensors --output other
	[ ! -e other/model.safetensors ]
	refuses 64 "holds --model=densenet121:" chexnet train --data set --model densenet121 --weights run1/model.safetensors --output other
	refuses 64 "holds --growth=8 --init-channels=16 --blocks=1,1:" chexnet train --data set --model densenet --growth 8 --blocks 1,1 --weights run1/model.safetensors --output other
	refuses 64 "run1/checkpoint-00000012.safetensors holds --blocks=1,2:" chexnet train --data set --model densenet --growth 4 --blocks 1,2 --resume auto --steps 14 --output run1
	for model in "" "--model=densenet --growth=4 --init-channels=8 --blocks=1,1"; do
		# shellcheck disable=SC2086 # words
		chexnet train --data set $model --weights run1/model.safetensors --steps 1 --batch 8 --resamples 0 --threads 1 --output "other$model" >/dev/null
	done
	cp -r run1 again1
	run chexnet train --data set "${SMALL[@]}" --image-size 24 --resume auto --steps 13 --output again1
	[ "$status" -eq 0 ]
	[[ $output == *"the network's images stay those of the checkpoint, 32 pixels a side, not --image-size=24"* ]]
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
	[ "$(grep -c '^2 checkpoints after step 4, where this training went on, are called .safetensors.abandoned (.abandoned-2, …) from now on$' <<<"$output")" -eq 1 ]
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
	# another validation of step 8, and no room for the checkpoint after it
	room=$((($(stat -c %s straight/best.safetensors) + 4096) / 1024))
	# shellcheck disable=SC2016 # that shell's words
	run --separate-stderr bash -c "ulimit -f $room"'; exec "$@"' - chexnet train --data set "${SMALL[@]}" --steps 12 --eval-every 8 --checkpoint-every 4 --keep 9 --output forked \
		--resume forked/checkpoint-00000004.safetensors --learning-rate 1e-2
	echo "$output $stderr"
	[ "$status" -eq 70 ]
	[[ $stderr == *"forked/checkpoint-00000008.safetensors"*"File too large"* ]]
	[ "$(grep -ao '"best_step":"8"' forked/best.safetensors)" ]
	[ "$(grep -c "^forked/best.safetensors, .* is called .safetensors.abandoned (.abandoned-2, …) from now on$" <<<"$output")" -eq 1 ]
	cmp straight/best.safetensors forked/best.safetensors.abandoned
	run train --resume auto --steps 9
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"resumes at step 8, "* ]]
	[[ $output == *"the weights of step 8, the best so far, are gone: "* ]]
	# a checkpoint that comes before a validation leaves them too, and so do the best weights that are brought with one
	rm -r forked && cp -r straight forked
	run train --resume forked/checkpoint-00000004.safetensors --learning-rate 1e-2 --checkpoint-every 5 --steps 6
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c '^1 checkpoint after step 4, where this training went on, and best.safetensors are called .safetensors.abandoned' <<<"$output")" -eq 1 ]
	cmp straight/best.safetensors forked/best.safetensors.abandoned
	rm -r forked && train --steps 10 --learning-rate 1e-2 >/dev/null
	cp forked/best.safetensors best.kept
	train --resume straight/checkpoint-00000008.safetensors --steps 9 >/dev/null
	cmp best.kept forked/best.safetensors.abandoned
	# its own ones are replaced
	rm -r forked && cp -r straight forked
	train --resume auto --learning-rate 1e-2 --eval-every 1 --steps 30 >/dev/null
	run cmp straight/best.safetensors forked/best.safetensors
	[ "$status" -eq 1 ]
	[ ! -e forked/best.safetensors.abandoned ]
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
	chexnet train --data set "${SMALL[@]}" --steps 8 --eval-every 2 --output asleep --resume auto >/dev/null
}

@test "an output directory that is not there yet is no problem, and a file is none" {
	run chexnet doctor --threads 1 --output notyet
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"notyet can be written to from every rank"* ]]
	[ ! -e notyet ]
	run --separate-stderr chexnet doctor --threads 1 --output 1.csv
	[ "$status" -eq 64 ]
	[[ $stderr == *" 1.csv: cannot be written to: Not a directory" ]]
	refuses 64 "1.csv: cannot be written to: Not a directory" chexnet train --data set "${SMALL[@]}" --steps 1 --output 1.csv
	refuses 64 "no/way: cannot be made: there is no directory no" chexnet train --data set "${SMALL[@]}" --steps 1 --output no/way
}

@test "a file of another kind, or another model's predictions, is not written over" {
	cp tree/Data_Entry_2017*.csv labels.csv
	cp labels.csv labels.kept
	eval=(chexnet eval --data set --threads 1 --resamples 0)
	refuses 64 "labels.csv no file of predictions" "${eval[@]}" --weights run1/model.safetensors --predictions labels.csv
	refuses 64 "labels.csv no file of predictions" chexnet ensemble labels.csv 1.csv 2.csv
	refuses 64 "labels.csv no table of a spread" chexnet ensemble fine.csv 1.csv 2.csv --spread labels.csv
	refuses 64 "labels.csv no HTML page" chexnet report --predictions 1.csv --resamples 100 --out labels.csv
	refuses 64 "labels.csv no JSON object" chexnet report --predictions 1.csv --resamples 100 --json labels.csv
	refuses 64 "labels.csv no SVG picture" chexnet bench data set --seconds 0.1 --svg labels.csv
	refuses 64 "labels.csv no log of JSON objects" chexnet train --data set "${SMALL[@]}" --steps 1 --output logged --log-json labels.csv
	cmp labels.csv labels.kept
	cp run1/test.csv first.csv
	refuses 64 "first.csv run1/model.safetensors not --weights" "${eval[@]}" --weights run2/model.safetensors --predictions first.csv
	cmp first.csv run1/test.csv
	for file in "# notes" '{"a":1}'; do
		echo "$file" >mine.txt
		refuses 64 "mine.txt no file of predictions" chexnet ensemble mine.txt 1.csv 2.csv
		refuses 64 "mine.txt no report's JSON object" chexnet report --predictions 1.csv --resamples 100 --json mine.txt
	done
	# a log that a file system cut off is one's own
	chexnet train --data set "${SMALL[@]}" --steps 1 --output zeroed >/dev/null
	head -c 100 /dev/zero >zeroed/log.jsonl
	chexnet train --data set "${SMALL[@]}" --steps 2 --output zeroed --resume auto >/dev/null
	# one's own are
	ln -s "$PWD/run1" same
	"${eval[@]}" --weights same/model.safetensors --predictions first.csv >/dev/null
	for time in 1 2; do chexnet report --predictions 1.csv --resamples 100 --out twice.html --json twice.json >/dev/null; done
}

@test "nothing that is read is written over, and no model's predictions by an ensemble" {
	cp 1.csv kept.csv
	cp 1.csv third.csv
	ln -sf 1.csv link.csv
	refuses 64 "1.csv itself" chexnet ensemble 1.csv 1.csv 2.csv
	refuses 64 "link.csv 1.csv" chexnet ensemble link.csv 1.csv 2.csv
	refuses 64 "1.csv itself" chexnet ensemble spare.csv 1.csv 2.csv --spread 1.csv
	refuses 64 "spare.csv itself" chexnet ensemble spare.csv 1.csv 2.csv --spread spare.csv
	# OUT forgotten
	refuses 64 "third.csv OUT comes first" chexnet ensemble third.csv 1.csv 2.csv
	refuses 64 "1.csv itself" chexnet report --predictions 1.csv --out 1.csv
	refuses 64 "1.csv itself" chexnet report --predictions 2.csv --compare 1.csv --json 1.csv
	refuses 64 "spare.html itself" chexnet report --predictions 1.csv --out spare.html --json spare.html
	refuses 64 "model.safetensors itself" chexnet eval --data set --weights run1/model.safetensors --predictions run1/model.safetensors
	[ ! -e spare.csv ] && [ ! -e spare.html ]
	cmp kept.csv 1.csv
	cmp kept.csv third.csv
	# an earlier ensemble's file is its own to replace
	chexnet ensemble again.csv 1.csv 2.csv >/dev/null
	chexnet ensemble again.csv 2.csv 1.csv >/dev/null
}

@test "no nan is shown, and a split without images is no result" {
	chexnet synth --out none-tree --images 60 --size 32 --prevalence-scale 0 --label-noise 0 >none.out
	chexnet prepare nih none-tree none --size 32 >>none.out
	chexnet train --data none "${SMALL[@]}" --steps 2 --output none-run >>none.out
	chexnet eval --data none --weights none-run/model.safetensors --threads 1 --predictions none.csv >>none.out
	chexnet synth --check none >>none.out
	chexnet report --predictions none.csv --log none-run/log.jsonl --out none.html --json none.json >>none.out
	cat none.out
	run grep -wi nan none.out none.html none.json none-run/log.jsonl
	[ "$status" -eq 1 ]
	grep -q 'mean AUROC n/a (0 of 14 findings)' none.out
	chexnet lr-test --data none "${SMALL[@]}" --steps 2 --base-batch 4 --output none-lr >none.out
	[ "$(tail -n 1 none.out)" = "no winner: no finding has both positives and negatives among the $(sed -n 's/.*: \([0-9]*\) images of .*/\1/p' none.out | tail -n 1) test images" ]
	: >none-tree/test_list.txt
	chexnet prepare nih none-tree untested --size 32 >/dev/null 2>&1
	refuses 65 "untested: no image is in its test split" chexnet eval --data untested --weights run1/model.safetensors
	refuses 65 "untested: no image is in its test split" chexnet lr-test --data untested "${SMALL[@]}" --base-batch 4 --output untested-lr
	[ ! -e untested-lr ]
}

@test "an option that would do nothing is refused" {
	refuses 64 "--growth --model=densenet121 --model=densenet" chexnet train --growth 8 --output idle
	refuses 64 "--blocks --model=resnet50 densenet or resnet" chexnet bench --model resnet50 --blocks 1,1
	refuses 64 "--growth --model=resnet" chexnet bench --model resnet --growth 8
	refuses 64 "--batch=auto number" chexnet lr-test --data set --batch auto --output idle
	refuses 64 "--log-json OUTPUT/none/log.jsonl" chexnet lr-test --data set --log-json x --output idle
	refuses 64 "--loss-scale --precision=fp16" chexnet train --loss-scale 5 --output idle
	refuses 64 "--dynamic-loss-scale --precision=fp16" chexnet train --precision bf16 --dynamic-loss-scale --output idle
	refuses 64 "--ablate --json" chexnet bench --ablate --json
	refuses 64 "--image-size=0 1 1024" chexnet bench --image-size 0
	refuses 64 "--data=set --scaling --ablate --plan random" chexnet bench --data set
	for mode in "" --plan --intervals; do
		# shellcheck disable=SC2086 # a word or none
		refuses 64 "--rounds=5 --ablate --scaling" chexnet bench --rounds 5 $mode
	done
	refuses 64 "33 classes 32 softmax" chexnet bench --classes 33
	refuses 64 "--table tfrecord" chexnet prepare nih tree idle --table x
	refuses 64 "--label-order tfrecord" chexnet prepare nih tree idle --label-order dell
	refuses 64 "--batch=AUTO number, or auto" chexnet train --batch AUTO --output idle
	refuses 65 "--pictures=set .png predict --maps" chexnet report --predictions 1.csv --pictures set --out idle
	refuses 64 "empty word" chexnet prepare nih tree ""
	refuses 64 "train: an empty word [--OPTION…]" chexnet ""
	refuses 64 "audit: an empty word" chexnet audit tree ""
	[ ! -e idle ]
	chexnet bench --intervals --json | grep -q '^{"findings":14,.*"mean":{"auroc":0\.[0-9]*,"low":0\.[0-9]*,"high":0\.[0-9]*}}$'
}
