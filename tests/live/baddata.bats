# SPDX-License-Identifier: Apache-2.0
# Bad input and a bad machine, through the real program: one clear line, the documented exit code, nothing half-written.

load helpers

setup_file() {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH"
	export PATH="$BUILD:$PATH" OMP_NUM_THREADS=1
	chexnet synth --out "$SCRATCH/tree" --images 60 --size 32 --prevalence-floor 0.2 >/dev/null
	chexnet prepare nih "$SCRATCH/tree" "$SCRATCH/good" --size 32 >/dev/null
}

teardown_file() { rm -rf "$SCRATCH"; }

setup() {
	cd "$SCRATCH" || return 1
	rm -rf bad out set
}

# A copy of the tree that a test may spoil.
spoil() { cp -r tree bad; }

# The exit code, one line on stderr that says all of the words, and no trace of OUT.
refuses() { # CODE "WORDS" COMMAND…
	local words=$2
	ends_with "$1" "${@:3}"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *"$words"* ]]
	leaves_nothing
}

leaves_nothing() {
	local left
	left=$(compgen -G "$SCRATCH/out*" || true)
	echo "left behind: $left"
	[ -z "$left" ]
}

bats_require_minimum_version 1.5.0

@test "missing directory" {
	refuses 65 "nowhere: No such file or directory" chexnet prepare nih nowhere out
	refuses 65 "nowhere: no train-" chexnet prepare tfrecord nowhere out
	chexnet prepare nih tree set --size 32 --format packed >/dev/null
	refuses 65 "set: a packed set, which is prepared already: --data takes it as it is; another size or format is made from the images, or from a set that was prepared with --format=png or jpeg" \
		chexnet prepare tfrecord set out
	rm set/manifest.json # and is none without it
	refuses 65 "set: no train-" chexnet prepare tfrecord set out
	refuses 65 "nowhere: no such directory" chexnet eval --data nowhere --weights w.safetensors
}

@test "a directory that is not NIH's" {
	mkdir bad
	refuses 65 "no Data_Entry_2017*.csv: not NIH's layout, and another data set (CheXpert, MIMIC-CXR) goes through TFRecords: chexnet prepare --help" chexnet prepare nih bad out
	refuses 65 "no manifest.json: not a prepared data set" chexnet synth --check bad
}

@test "a directory's name is no pattern" {
	cp -r tree 'nih[v2]*\'
	chexnet prepare nih 'nih[v2]*\' 'set[1]' --size 32 >/dev/null
	diff -r 'set[1]' good
	chexnet prepare tfrecord 'set[1]' 'set[2]' --size 32 >/dev/null
	rm -rf 'nih[v2]*\' 'set[1]' 'set[2]'
}

@test "of two label tables none is chosen by its name, but NIH's own two" {
	spoil
	sed '2,$s/,[^,]*,/,Hernia,/' bad/Data_Entry_2017_v2020.csv >bad/Data_Entry_2017.csv
	chexnet prepare nih bad out --size 32 | grep -x ' *Mass .*[1-9].*' # the corrected one's
	rm -r out
	mv bad/Data_Entry_2017.csv bad/Data_Entry_2017_v2020_old.csv
	refuses 65 "bad/Data_Entry_2017_v2020.csv and bad/Data_Entry_2017_v2020_old.csv: two label tables" chexnet prepare nih bad out
	rm bad/Data_Entry_2017_v2020.csv
	chexnet prepare nih bad out --size 32 | grep -x ' *Hernia  *100.00  *100.00  *100.00'
	rm -r out
	cp bad/Data_Entry_2017_v2020_old.csv bad/Data_Entry_2017_new.csv
	refuses 65 "bad/Data_Entry_2017_new.csv and bad/Data_Entry_2017_v2020_old.csv: two label tables" chexnet prepare nih bad out
}

@test "a table without a needed column" {
	spoil
	sed -i '1s/Patient ID/Patient/' bad/Data_Entry_2017_v2020.csv
	refuses 65 'Data_Entry_2017_v2020.csv: no column "Patient ID"' chexnet prepare nih bad out
}

@test "a division from a file, and what can be wrong with it" {
	tail -n +2 tree/Data_Entry_2017_v2020.csv | cut -d, -f1 | awk 'NR > 2 { print $0 "," ($0 < "00000005" ? "val" : "train") }' >mine.csv
	run --separate-stderr chexnet prepare nih tree set --size 32 --split file:mine.csv
	[ "$status" -eq 0 ]
	[[ $output == *"split file"* ]]
	[[ $stderr == *"2 images are in no list"* ]]
	[ "$(awk '/^  (train|val) / { n += $2 } END { print n }' <<<"$output")" = 58 ]
	id=$(head -n 1 mine.csv | cut -d, -f1)
	(echo image,split && cat mine.csv) >headed.csv
	run --separate-stderr chexnet prepare nih tree headed --size 32 --split file:headed.csv
	[ "$status" -eq 0 ]
	cmp set/train-00000-of-00001 headed/train-00000-of-00001 || diff -r set headed
	(cat mine.csv && echo image,split) >footed.csv
	refuses 65 'footed.csv:59: image "image" has no row' chexnet prepare nih tree out --split file:footed.csv
	(cat mine.csv && echo "$id,train") >twice.csv
	refuses 65 "twice.csv:59: image $id comes twice" chexnet prepare nih tree out --split file:twice.csv
	echo "$id,dev" >named.csv
	refuses 65 'named.csv:1: no split is called "dev"' chexnet prepare nih tree out --split file:named.csv
	echo "99999999_000.png,train" >other.csv
	refuses 65 'other.csv:1: image "99999999_000.png" has no row' chexnet prepare nih tree out --split file:other.csv
	echo "$id" >columns.csv
	refuses 65 "columns.csv:1: 1 column, not two" chexnet prepare nih tree out --split file:columns.csv
	refuses 64 "there are official, chexnet and file:PATH" chexnet prepare nih tree out --split mine.csv
	: >none.csv
	refuses 65 "none of the 60 images is in a split" chexnet prepare nih tree out --split file:none.csv
	refuses 64 "--split=chexnet is for nih: TFRecords keep the splits of their files" chexnet prepare tfrecord good out --split chexnet
}

@test "without validation images the last weights are taken, which is said, and what goes by validations is refused" {
	tail -n +2 tree/Data_Entry_2017_v2020.csv | cut -d, -f1 | awk '{ print $0 "," ($0 < "00000005" ? "test" : "train") }' >two.csv
	chexnet prepare nih tree set --size 32 --split file:two.csv >/dev/null
	small=(chexnet train --data set --model densenet --growth 4 --blocks 1,1 --batch 8 --steps 2 --resamples 0 --threads 1)
	refuses 64 "--patience=3 counts validations, and set has no val images" "${small[@]}" --output out --patience 3
	refuses 64 "--decay=plateau goes by the validation loss, and set has no val images" "${small[@]}" --output out --preset chexnet2017
	run --separate-stderr "${small[@]}" --output run
	[ "$status" -eq 0 ]
	[ "$(grep -c "^no validation split: the last step's weights are taken$" <<<"$output")" = 1 ]
	run chexnet audit set
	[ "$status" -eq 0 ]
	[[ $output == *"note (counts): no val images: "* ]]
	run -0 chexnet audit good
	[[ $output != *"no val images"* ]]
}

@test "that no image is for training is said by prepare, and no error: a test set of others is judged" {
	tail -n +2 tree/Data_Entry_2017_v2020.csv | sed 's/,.*/,test/' >external.csv
	run --separate-stderr chexnet prepare nih tree set --size 32 --split file:external.csv
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	[[ ${lines[1]} == "  train       0 images, "* ]]
	[ "${lines[4]}" = "  no image is for training: chexnet eval takes this set, chexnet train refuses it" ]
	refuses 65 "set: its train split is empty" chexnet train --data set --output out
	chexnet train --data good --model densenet --growth 4 --blocks 1,1 --batch 8 --steps 1 --resamples 0 --threads 1 --output judge >/dev/null
	chexnet eval --data set --weights judge/model.safetensors --resamples 0 --threads 1 | grep '^mean '
	run ! grep 'for training' <(chexnet prepare nih tree again --size 32)
	rm -r judge again
}

@test "a train split without images is a problem of the data that doctor names, and what reads it refuses" {
	tail -n +2 tree/Data_Entry_2017_v2020.csv | cut -d, -f1 | sed 's/$/,test/' >tested.csv
	chexnet prepare nih tree set --size 32 --split file:tested.csv >/dev/null
	ends_with 65 chexnet doctor --data set --output writable
	echo "$output"
	grep -qx 'PROBLEM  data       set: its train split is empty' <<<"$output"
	grep -q '^ok       engine     ' <<<"$output"
	grep -q '^ok       output     writable can be written to' <<<"$output"
	grep -q '^1 problem, ' <<<"$output"
	[ -z "$stderr" ]
	small=(--data set --model densenet --growth 4 --blocks 1,1 --image-size 32 --batch 8 --threads 1)
	refuses 65 "set: its train split is empty" chexnet train "${small[@]}" --output out
	refuses 65 "set: its train split is empty: nothing to fit" chexnet synth --check set
	refuses 65 "the train split holds no images" chexnet bench --scaling "${small[@]}" --steps 1 --rounds 1
}

@test "validation images of which no label is known choose nothing, which is said, and what goes by validations is refused" {
	chexnet prepare nih tree unlabelled --size 32 --split chexnet >/dev/null
	grep -aoE '[0-9]{8}_[0-9]{3}\.png' unlabelled/val-* | sort -u | sed 's/$/,All/; 1i image,labels' >all.csv
	[ "$(wc -l <all.csv)" -gt 1 ]
	small=(chexnet train --data unlabelled --mask file:all.csv --model densenet --growth 4 --blocks 1,1 --batch 8 --steps 3 --eval-every 1 --resamples 0 --threads 1)
	refuses 64 "--patience=1 counts validations, and of unlabelled no val label is known" "${small[@]}" --output out --patience 1
	refuses 64 "--decay=plateau goes by the validation loss, and of unlabelled no val label is known" "${small[@]}" --output out --decay plateau
	run --separate-stderr "${small[@]}" --output blind
	[ "$status" -eq 0 ]
	[ "$(grep -c "^no label of the validation split is known: the last step's weights are taken$" <<<"$output")" = 1 ]
	[[ $output != *"nan"* && $output != *"validation after"* ]]
	python3 "$BATS_TEST_DIRNAME/forget_labels.py" unlabelled/val-* || skip "no Python here"
	refuses 64 "of unlabelled no val label is known: prepare it with some, or --patience=0" chexnet train --data unlabelled --output out --patience 1
}

@test "a train split of which no label is known teaches nothing, which ends train before its first step, and doctor says it" {
	chexnet prepare nih tree unlabelled --size 32 --overwrite >/dev/null
	sed 's/$/,All/' tree/train_val_list.txt >all.csv
	small=(chexnet train --data unlabelled --model densenet --growth 4 --blocks 1,1 --batch 8 --steps 2 --resamples 0 --threads 1 --output out)
	refuses 65 "unlabelled: no label of its train split is known but what --mask leaves out: there is nothing to learn: leave --mask out" "${small[@]}" --mask file:all.csv
	all=Atelectasis,Cardiomegaly,Effusion,Infiltration,Mass,Nodule,Pneumonia,Pneumothorax,Consolidation,Edema,Emphysema,Fibrosis,Pleural_Thickening,Hernia
	refuses 64 "no finding is left" "${small[@]}" --mask "$all"
	python3 "$BATS_TEST_DIRNAME/forget_labels.py" unlabelled/train-* || skip "no Python here"
	refuses 65 "unlabelled: no label of its train split is known: there is nothing to learn: prepare it with some" "${small[@]}"
	ends_with 65 chexnet doctor --data unlabelled
	grep -qx 'PROBLEM  data       unlabelled: no label of its train split is known: prepare it with some' <<<"$output"
}

@test "doctor finds what training refuses of the other splits, too" {
	chexnet prepare nih tree cut --size 32 --overwrite >/dev/null
	truncate -s -100 cut/test-*
	refuses 65 "chexnet doctor: cut/test-00000-of-00001: record " chexnet doctor --data cut
	awk -F, 'NR == 1 { print "image,split" } NR > 1 { print $1 (NR % 2 ? ",train" : ",val") }' tree/Data_Entry_2017_v2020.csv >halves.csv
	chexnet prepare nih tree leaky --size 32 --overwrite --split file:halves.csv >/dev/null 2>&1
	ends_with 65 chexnet doctor --data leaky
	grep -qE '^PROBLEM  data       leaky: [0-9]+ patients are both in train and in val \(the first: [0-9]+\): divide it by patient, or --allow-leak' <<<"$output"
	awk -F, 'NR == 1 { print "image,split" } NR > 1 { print $1 (substr($1, 1, 8) % 2 ? ",train" : $1 ~ /_000/ ? ",val" : ",test") }' tree/Data_Entry_2017_v2020.csv >halves.csv
	chexnet prepare nih tree leaky --size 32 --overwrite --split file:halves.csv >/dev/null 2>&1
	ends_with 65 chexnet doctor --data leaky
	grep -qE '^PROBLEM  data       leaky: [0-9]+ patients are both in val and in test ' <<<"$output"
}

@test "an unknown finding" {
	spoil
	sed -i '4s/^\([^,]*\),[^,]*/\1,Efusion/' bad/Data_Entry_2017_v2020.csv
	refuses 65 'Data_Entry_2017_v2020.csv:4: unknown finding "Efusion" (did you mean Effusion?)' chexnet prepare nih bad out
}

@test "an image that is listed but absent" {
	spoil
	first=$(sed -n 2p bad/Data_Entry_2017_v2020.csv | cut -d, -f1)
	rm "bad/images/$first"
	refuses 65 "1 of 60 images have a row but no file in images/ or images_*/: $first: they go there, or out of the table and the lists" chexnet prepare nih bad out
	truncate -s 300 "bad/images/$(sed -n 3p bad/Data_Entry_2017_v2020.csv | cut -d, -f1)" # which audit tells besides
	run --separate-stderr chexnet audit bad
	echo "$output $stderr"
	[ "$status" -eq 65 ]
	[ -z "$stderr" ]
	[[ ${lines[0]} == "bad: "*": 59 images, "* ]]
	[[ $output == *"PROBLEM (dropped): 1 of 60 images has a row but no file in images/ or images_*/: $first"$'\n'* ]]
	[[ $output == *"PROBLEM (images): bad/images/"*": PNG: truncated at byte"* ]]
	[[ ${lines[-1]} == "  2 problems" ]]
	rm bad/images/0000000*.png
	refuses 65 ", …" chexnet prepare nih bad out
}

@test "the images are still in NIH's archives" {
	spoil
	mv bad/images elsewhere
	local left="unpack the 2 archives there first (tar -xzf images_001.tar.gz -C bad …)"
	touch bad/images_001.tar.gz bad/images_012.tar.gz
	refuses 65 "bad: no images/ or images_001/ …: not NIH's layout; $left" chexnet prepare nih bad out
	mv elsewhere bad/images
	chexnet prepare nih bad out --size 32 >/dev/null
	rm -r out
	rm "bad/images/$(ls bad/images | head -n 1)"
	refuses 65 ": they go there, or out of the table and the lists; $left" chexnet prepare nih bad out
	mv bad/images_0* bad/images
	refuses 65 "; $left" chexnet prepare nih bad out
}

@test "a label table as spreadsheets write it" {
	spoil
	local table
	table=$(compgen -G "bad/Data_Entry_2017*.csv")
	{ printf '\xef\xbb\xbf' && sed 's/$/\r/' tree/Data_Entry_2017*.csv; } >"$table"
	chexnet prepare nih bad out --size 32 >/dev/null
	for file in good/*-of-*; do cmp "$file" "out/${file#*/}"; done
	rm -r out
	sed 's/,/;/g' tree/Data_Entry_2017*.csv >"$table"
	refuses 65 "): what sets columns apart is to be a comma" chexnet prepare nih bad out
	iconv -t UTF-16 tree/Data_Entry_2017*.csv >"$table"
	refuses 65 "$table: text in UTF-16, as a spreadsheet's \"Unicode text\" is: save it as CSV in UTF-8" chexnet prepare nih bad out
}

@test "a truncated PNG" {
	spoil
	first=$(sed -n 2p bad/Data_Entry_2017_v2020.csv | cut -d, -f1)
	truncate -s 300 "bad/images/$first"
	refuses 65 "bad/images/$first: PNG: truncated at byte" chexnet prepare nih bad out
	[[ $stderr == *" (chexnet audit names all such images)" ]]
	: >"bad/images/$first"
	refuses 65 "bad/images/$first: an empty file" chexnet prepare nih bad out
	echo '<html>404</html>' >"bad/images/$first"
	refuses 65 "bad/images/$first: a web page, not an image" chexnet prepare nih bad out
}

@test "one patient, or one image, is not told as several" {
	# the second image of a patient is the test split, the others are for training
	tail -n +2 tree/Data_Entry_2017_v2020.csv | awk -F, '{ twice = !found && $4 == before; found += twice; before = $4; print $1 "," (twice ? "test" : "train") }' >one.csv
	[ "$(grep -c ',test$' one.csv)" = 1 ]
	run --separate-stderr chexnet prepare nih tree set --size 32 --split file:one.csv
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[[ $stderr == *"warning: 1 patient is in more than one split ("* ]]
	grep -qx '  test        1 image,       1 patient,  1 file' <<<"$output"
	run chexnet audit set
	grep -qx '  test        1 image,       1 patient' <<<"$output"
	refuses 65 "1 patient is both in train and in test (the first: " chexnet train --data set --model densenet --growth 4 --blocks 1,1 --steps 2 --threads 1 --output out
	ends_with 65 chexnet doctor --data set
	grep -q '^PROBLEM  data       set: 1 patient is both in train and in test (the first: ' <<<"$output"
}

@test "audit names every path that it cannot read, and goes on with the rest" {
	spoil
	sed -i '1s/Patient ID/Patient/' bad/Data_Entry_2017_v2020.csv
	run --separate-stderr chexnet audit nowhere good bad tree good/train-00000-of-00001
	echo "$stderr"
	[ "$status" -eq 65 ]
	[ "${#stderr_lines[@]}" -eq 3 ]
	[ "${stderr_lines[0]}" = "chexnet audit: nowhere: no such directory" ]
	[[ ${stderr_lines[1]} == *"bad/Data_Entry_2017_v2020.csv: no column"* ]]
	[[ ${stderr_lines[2]} == *"good/train-00000-of-00001"* ]]
	[ "$(grep -c '^[a-z]*: .* 60 images' <<<"$output")" = 2 ]
	run --separate-stderr chexnet audit --json --no-pixels nowhere tree
	[ "$status" -eq 65 ]
	[ "${lines[0]}" = '{"path":"nowhere","error":"nowhere: no such directory"}' ]
	[[ ${lines[1]} == '{"path":"tree","source":'* ]]
	refuses 65 "nowhere.csv: cannot be read: No such file" chexnet audit good tree --table nowhere.csv
	mkfifo pipe
	refuses 65 "pipe: neither a directory nor a regular file" chexnet audit pipe
	refuses 65 "/dev/null: neither a directory nor a regular file" chexnet audit /dev/null
	rm pipe
}

@test "a truncated TFRecord file: file, record and byte are named" {
	cp -r good set
	truncate -s -5 set/test-00000-of-00001
	refuses 65 "set/test-00000-of-00001: record" chexnet synth --check set
	[[ $stderr =~ record\ [0-9]+\ at\ byte\ [0-9]+:\ truncated\ \(want\ [0-9]+,\ have\ [0-9]+\ bytes\) ]]
}

@test "a flipped bit in a TFRecord file: file, record and byte are named" {
	cp -r good set
	size=$(stat -c %s set/train-00000-of-00001)
	printf '\377' | dd of=set/train-00000-of-00001 bs=1 seek=$((size / 2)) conv=notrunc status=none
	if cmp -s good/train-00000-of-00001 set/train-00000-of-00001; then
		printf '\0' | dd of=set/train-00000-of-00001 bs=1 seek=$((size / 2)) conv=notrunc status=none
	fi
	refuses 65 "set/train-00000-of-00001: record" chexnet synth --check set
	[[ $stderr =~ record\ [0-9]+\ at\ byte\ [0-9]+:\ CRC\ mismatch ]]
	refuses 65 "CRC mismatch" chexnet train --data set --model densenet --growth 4 --blocks 1,1 --image-size 32 --steps 1 --engine reference --output out
}

@test "a training whose data file is cut while it reads ends with 65, and its log with that and the reason" {
	cp -r good set
	chexnet train --data set --data-memory 0 --model densenet --growth 4 --blocks 1,1 --batch 8 --steps 1000000 --eval-every 1000000 --checkpoint-every 1000000 --resamples 0 \
		--threads 1 --output cut >cut.out 2>cut.err &
	pid=$!
	wait_for 20 grep -qs '"event":"step"' cut/log.jsonl
	truncate -s 0 set/train-00000-of-00001
	status=0
	wait $pid || status=$?
	cat cut.err
	[ "$status" -eq 65 ]
	line=$(sed -n 's/^chexnet: //p' cut.err)
	[[ $line == "set/train-00000-of-00001: byte "*" cannot be read any more: the file was cut, or its storage failed" ]]
	tail -n 1 cut/log.jsonl
	[ "$(tail -n 1 cut/log.jsonl | sed -n 's/^{"event":"end","time":[0-9.]*,"code":65,"step":[1-9][0-9]*,"reason":"\(.*\)","output":"cut"}$/\1/p')" = "$line" ]
}

@test "a training whose engine fails in the middle of a step has an end with the reason in its log" {
	ends_with 70 "$BUILD/tests/wrap_engine_loss" train --data good --model densenet --growth 4 --blocks 1,1 --batch 8 --steps 9 --resamples 0 --threads 1 --output failed
	[[ $stderr == "chexnet train: rank 0 on "*": the engine failed without a reason" ]]
	tail -n 1 failed/log.jsonl | grep -E '^\{"event":"end","time":[0-9.]+,"code":70,"step":2,"reason":"the engine failed without a reason","output":"failed"\}$'
}

# Sets user: words before a command that make it one of somebody whom permissions stop.
be_nobody() {
	user=()
	[ "$(id -u)" -eq 0 ] || return 0
	command -v setpriv >/dev/null || skip "setpriv is not installed, and permissions do not stop root"
	user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	"${user[@]}" test -r "$SCRATCH/tree/test_list.txt" || skip "user 65534 cannot reach $SCRATCH"
}

@test "a directory that may not be read is not called absent, or no data set" {
	be_nobody
	cp -r good set
	spoil
	chmod 600 set # what is in it cannot be reached,
	chmod 300 bad # and what is in this not listed
	for command in "audit" "eval --weights none --data" "data bench"; do
		# shellcheck disable=SC2086 # words
		refuses 70 "set/manifest.json: cannot be read: Permission denied" "${user[@]}" "$BUILD/chexnet" $command set
	done
	mkdir -m 777 anyones
	refuses 70 "bad: cannot be listed: Permission denied" "${user[@]}" "$BUILD/chexnet" prepare nih bad anyones/out
	refuses 70 "bad: cannot be listed: Permission denied" "${user[@]}" "$BUILD/chexnet" prepare tfrecord bad anyones/out
	rmdir anyones # and nothing is left in it
	chmod 700 set bad
}

@test "no write permission" {
	be_nobody
	mkdir -p shut
	chmod 555 shut
	refuses 70 "shut/out: cannot be made: Permission denied" "${user[@]}" "$BUILD/chexnet" prepare nih tree shut/out
	refuses 70 "shut/out: cannot be made: Permission denied" "${user[@]}" "$BUILD/chexnet" synth --images 5 --out shut/out
	[ -z "$(ls -A shut)" ]
}

@test "where no thread can be started, a line says so and the exit code is a documented one, whatever computes" {
	[ -z "${SAN:-}" ] || skip "a sanitizer has threads of its own, or leaves OpenMP none"
	be_nobody
	export OMP_NUM_THREADS=2
	mkdir -m 777 anyones
	net=(--model densenet --growth 4 --blocks 1,1 --image-size 32 --batch 8 --threads 1)
	limited=("${user[@]}" bash -c 'ulimit -u 1; exec "$0" "$@"' "$BUILD/chexnet")
	for command in "train --data good --steps 1 --output anyones/out ${net[*]}" "train --steps 1 --output anyones/out ${net[*]}" "eval --data good --weights none" \
		"predict --weights none tree/none.png" "bench --steps 1 ${net[*]}" "bench --intervals" doctor "prepare nih tree anyones/out" "synth --out anyones/out" "audit tree" \
		"compare none none" "report --predictions none --out anyones/out" "data bench good"; do
		# shellcheck disable=SC2086 # words
		refuses 70 "chexnet ${command%% *}: cannot start thread 2 of 2: see the limits on processes and memory (ulimit -u, -v)" "${limited[@]}" $command
	done
	for command in "audit --threads 1 good" "synth --check good --threads 1"; do # some of these read with OpenMP's own number
		# shellcheck disable=SC2086 # words
		run "${limited[@]}" $command
		[ "$status" -eq 70 ]
		[[ ${lines[-1]} == "chexnet: a library has ended this: "*"(ulimit -u, -v)" ]]
	done
	rmdir anyones # and nothing is left in it
	"${limited[@]}" train --help >/dev/null
}

@test "no space left" {
	# in a mount namespace of its own: a file system of 100 KB
	unshare --mount true 2>/dev/null || skip "no right to mount a small file system"
	mkdir -p tiny
	# shellcheck disable=SC2016
	in_tiny='mount -t tmpfs -o size=100k none tiny && "$@"; status=$?; [ -z "$(ls -A tiny)" ] || echo "left: $(ls -A tiny)" >&2; exit $status'
	# said when the first images are written, and not hours later
	for format in "png --size 256" "packed --size 96"; do
		# shellcheck disable=SC2086
		run unshare --mount bash -c "$in_tiny" - chexnet prepare nih tree tiny/out --threads 1 --format $format
		echo "$output"
		[ "$status" -eq 70 ]
		[ "${#lines[@]}" -eq 2 ]
		[[ ${lines[0]} =~ ^"chexnet prepare: warning: there is room for 0."[01]" MB, and what is still to be written takes about 0."[1-5]" MB"$ ]]
		[[ ${lines[1]} == "chexnet prepare: tiny/out.partial-"*": No space left on device; nothing is left behind, and all takes about 0."[1-9]" MB" ]]
	done
	[ -z "$(ls -A tiny)" ]
	refuses 70 "No space left on device" unshare --mount bash -c "$in_tiny" - chexnet synth --images 200 --size 64 --out tiny/out
}

@test "a training says at its start that its checkpoints will find no room" {
	unshare --mount true 2>/dev/null || skip "no right to mount a small file system"
	[ -e set/manifest.json ] || chexnet prepare nih tree set --size 32 >/dev/null
	mkdir -p tiny
	local small=(chexnet train --data set --model densenet --growth 16 --blocks 1,1 --batch 8 --steps 1 --resamples 0 --threads 1)
	# shellcheck disable=SC2016
	run unshare --mount bash -c 'mount -t tmpfs -o size=$0 none tiny && "$@"' 400k "${small[@]}" --output tiny/out
	echo "$output"
	[ "$status" -eq 70 ]
	[ "$(grep -c "^warning: tiny/out has room for 0\.[0-9] MB, and checkpoints and models take 1.3 MB: " <<<"$output")" -eq 1 ]
	[[ ${lines[-1]} == "chexnet train: "*": No space left on device" ]]
	rm -rf roomy
	run "${small[@]}" --output roomy
	[ "$status" -eq 0 ]
	[[ $output != *"has room for"* ]]
}

@test "a quota that is reached leaves what was there, names the file, and tells how much all takes" {
	# as a file server does: the last write is a short one, and then there is no more
	cat >quota.c <<-'EOF'
		#include <errno.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <sys/syscall.h>
		#include <unistd.h>
		ssize_t write(int fd, const void *data, size_t size)
		{
			static size_t left = (size_t)-1;
			char link[64], path[4096] = "";
			snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
			if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/out.")) {
				left = left == (size_t)-1 ? (size_t)atol(getenv("QUOTA")) : left;
				if (size && !left) {
					errno = EDQUOT;
					return -1;
				}
				size = size < left ? size : left;
				left -= size;
			}
			return syscall(SYS_write, fd, data, size);
		}
	EOF
	"${CC:-gcc}" -D_GNU_SOURCE -O1 -shared -fPIC -o quota.so quota.c
	export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0
	local format file said command=(env LD_PRELOAD="$PWD/quota.so" QUOTA=30000 chexnet prepare nih tree)
	for format in png packed; do
		chexnet prepare nih tree out --size 32 --format "$format" >/dev/null
		[ "$format" = packed ] && file=train.cxp || file='[a-z]*-of-00001'
		said=$(LD_PRELOAD=$PWD/quota.so QUOTA=30000 chexnet prepare nih tree out --size 32 --format "$format" --overwrite 2>&1 >/dev/null) && return 1
		echo "$said"
		[[ $said == "chexnet prepare: out.partial-"*/$file": writing failed after "*" bytes: Disk quota exceeded; nothing is left behind, and all takes about 0.1 MB" ]]
		chexnet prepare nih tree again --size 32 --format "$format" >/dev/null
		diff -r out again # what was there is whole
		rm -r out again
		refuses 70 "Disk quota exceeded; nothing is left behind" "${command[@]}" out --size 32 --format "$format"
		chexnet prepare nih tree out --size 32 --format "$format" >/dev/null # and with more room it goes
		rm -r out
	done
	rm quota.*
}

@test "doctor says that there is no room for checkpoints, on a full disk and on a small one" {
	unshare --mount true 2>/dev/null || skip "no right to mount a small file system"
	mkdir -p tiny
	local in_tiny='mount -t tmpfs -o size=100k none tiny && head -c $0 /dev/zero >tiny/full && chexnet doctor --output $1; status=$?; rm tiny/full; ls -A tiny; exit $status'
	chexnet doctor --output made-later | grep -q 'output     made-later can be written to from every rank'
	for place in tiny tiny/new; do
		refuses 70 "tiny/chexnet-doctor: writing failed after 0 bytes: No space left on device" unshare --mount bash -c "$in_tiny" 100k $place
		[[ $output != *full* ]]
		run unshare --mount bash -c "$in_tiny" 1k $place
		echo "$output"
		[ "$status" -eq 0 ]
		[[ $output == *"warning  output     $place can be written to from every rank, and has room for 0 MB: DenseNet-121's checkpoints take 307 MB"* ]]
		[[ ${lines[-1]} == "0 problems, "* ]] # nothing is left in it
	done
}

@test "a file that grows beyond its limit" {
	# RLIMIT_FSIZE of 20 KB, as a quota would have it
	refuses 70 "File too large" bash -c 'ulimit -f 20; exec chexnet prepare nih tree out --size 64'
	mkdir bad
	refuses 70 "File too large" env TMPDIR=bad bash -c 'ulimit -f 1; exec chexnet bench data --ours --ranks 1'
	[ -z "$(ls -A bad)" ]
	refuses 70 "File too large" bash -c 'ulimit -f 1; exec chexnet predict --help >bad/printed'
	[ "$(ls bad)" = printed ]
}

@test "unknown option, command and source" {
	refuses 64 "--sise" chexnet prepare --sise 3 nih tree out
	refuses 64 "unknown command prepair; did you mean prepare?" chexnet prepair nih tree out
	refuses 64 "kaggle: no such source" chexnet prepare kaggle tree out
	refuses 64 "" chexnet prepare nih tree
}

@test "an existing directory is not touched" {
	mkdir set
	echo mine >set/file
	refuses 64 "set: exists already" chexnet prepare nih tree set
	refuses 64 "was not made by this command" chexnet prepare nih tree set --overwrite
	refuses 64 "exists already" chexnet synth --images 5 --out set
	[ "$(cat set/file)" = mine ]
}

@test "--overwrite removes nothing that the command did not make" {
	for kind in png packed; do
		chexnet prepare nih tree set --size 32 --format $kind --overwrite >/dev/null
	done
	# nothing can take the name of what is mounted: that is told at once, and not when all is done
	if unshare --user --map-root-user --mount true 2>/dev/null; then
		mkdir volume
		# shellcheck disable=SC2016
		refuses 64 "choose a directory in it, as volume/set" \
			unshare --user --map-root-user --mount bash -c 'mount --bind set volume && exec "$@"' - chexnet prepare nih tree volume --overwrite
		rmdir volume
	fi
	run chexnet prepare nih tree set --size 32 --shards 3 --overwrite
	[ "$status" -eq 0 ]
	[ "$(ls set)" = "$(chexnet prepare nih tree again --size 32 --shards 3 >/dev/null && ls again)" ]
	mkdir -p set/run7
	echo thesis >set/run7/log.jsonl
	refuses 64 "set: holds run7 too, which this command does not make, and is not replaced" chexnet prepare nih tree set --overwrite --size 32
	[ "$(cat set/run7/log.jsonl)" = thesis ]
	rm -r set/run7
	refuses 64 "set: what is read lies in it (set)" chexnet prepare tfrecord set set --overwrite --size 16
	mkdir -p bad/run7
	echo '{"name":"x"}' >bad/manifest.json
	refuses 64 "bad: its manifest.json is of something else" chexnet prepare nih tree bad --overwrite --size 32
	[ -d bad/run7 ]
	chexnet synth --images 5 --size 16 --out drawn >/dev/null
	chexnet synth --images 4 --size 16 --out drawn --overwrite >/dev/null
	[ "$(find drawn/images -type f | wc -l)" = 4 ]
	echo mine >drawn/images/mine.png
	refuses 64 "drawn: holds images/mine.png too" chexnet synth --images 5 --size 16 --out drawn --overwrite
	[ "$(cat drawn/images/mine.png)" = mine ]
	rm -rf again drawn
}

@test "an interrupted preparation leaves nothing" {
	# it ends by the signal, as the shell tells with 128 and its number
	for signal in TERM HUP USR1; do # the last is what #SBATCH --signal=USR1@120 sends to whatever command the job runs
		env --default-signal=HUP chexnet synth --images 3000 --size 96 --out out &
		pid=$!
		for _ in $(seq 100); do
			compgen -G "out.partial-*/images" >/dev/null && break
			sleep 0.05
		done
		kill -$signal $pid
		status=0
		wait $pid || status=$?
		[ "$status" -eq $((128 + $(kill -l $signal))) ]
		leaves_nothing
	done
}

@test "a place in a directory that is not there is named" {
	refuses 64 "nodir/x/y: cannot be made: there is no directory nodir/x" chexnet prepare nih tree nodir/x/y
	refuses 64 "tree/test_list.txt/y: cannot be made: there is no directory tree/test_list.txt" chexnet prepare nih tree tree/test_list.txt/y
	refuses 64 "nodir/y: cannot be made: there is no directory nodir" chexnet synth --images 5 --out nodir/y
	refuses 64 "--split=file: names no file" chexnet prepare nih tree out --split=file:
	refuses 64 "--mask=file: names no file" chexnet eval --data good --weights w.safetensors --mask=file:
}

@test "what is wrong with OUT is told before the source is read, which may take an hour" {
	cp -r good set
	printf cut >set/train-00000-of-00001
	refuses 64 "good: exists already" chexnet prepare tfrecord set good
	refuses 64 "there is no directory nodir" chexnet prepare tfrecord set nodir/out
	refuses 65 "set/train-00000-of-00001: record 0 at byte 0: truncated" chexnet prepare tfrecord set out
}

@test "one at a time makes a directory" {
	chexnet synth --images 100000 --size 96 --out out 3>&- &
	pid=$!
	for _ in $(seq 200); do
		compgen -G "out.partial-*/images" >/dev/null && break
		sleep 0.05
	done
	run --separate-stderr chexnet prepare nih tree out --size 32
	SLURM_STEP_NUM_TASKS=8 chexnet prepare nih tree out --size 32 2>step || true
	kill -TERM $pid
	wait $pid || true
	[ "$status" -eq 64 ]
	[[ $stderr == "chexnet prepare: out: another chexnet is making it ($(hostname), process $pid); if that one's node went down, remove out.partial-lock" ]]
	grep -qF "process $pid); this step has 8 tasks where one is enough (srun -n1 --hvd=off); if that" step
	rm step
	leaves_nothing
}

@test "the good set is good" {
	run chexnet synth --check good
	[ "$status" -eq 0 ]
	[[ $output == *"mean thumbnail AUROC"* ]]
	# without a test split validation is judged, and named
	chexnet synth --out single --images 1 --size 32 >/dev/null
	chexnet prepare nih single single-set --size 32 >/dev/null
	chexnet synth --check single-set | tail -n 1 | grep -x 'mean thumbnail AUROC n/a: the val split has no finding with and without'
}
