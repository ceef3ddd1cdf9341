# SPDX-License-Identifier: Apache-2.0
# Where results go: files, directories, pipes, mounts, full disks, closed standard files and terminals; and what is not written over.

load trained

@test "of an event file that finds no room nothing is left" {
	mkdir -p roomy
	for where in roomy cramped; do
		refuses 70 "$where/events.out.tfevents. written: File too large" bash -c 'ulimit -f 20; exec chexnet report --predictions 1.csv --log log1.jsonl --tensorboard '$where
		[ -z "$output" ]
	done
	[ -z "$(ls -A roomy)" ]
	[ ! -e cramped ]
}

@test "what a file server finds no room for at the end, and not before, is no success" {
	cat >late.c <<-'EOF'
		#include <errno.h>
		#include <stdio.h>
		#include <string.h>
		#include <sys/syscall.h>
		#include <unistd.h>
		static int full(int fd, const char *part)
		{
			char link[64], path[4096] = "";
			snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
			if (readlink(link, path, sizeof path - 1) < 0 || !strstr(path, part))
				return 0;
			errno = EDQUOT;
			return 1;
		}
		int fsync(int fd) { return full(fd, "tfevents") ? -1 : (int)syscall(SYS_fsync, fd); }
		int close(int fd)
		{
			int bad = full(fd, ".jsonl");
			return syscall(SYS_close, fd) || bad ? -1 : 0;
		}
	EOF
	"${CC:-gcc}" -D_GNU_SOURCE -O1 -shared -fPIC -o late.so late.c
	export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0
	refuses 70 "late/events.out.tfevents. disk: quota" env LD_PRELOAD="$PWD/late.so" chexnet report --predictions 1.csv --tensorboard late
	[ -z "$output" ]
	[ ! -e late ]
	LD_PRELOAD=$PWD/late.so run --separate-stderr chexnet train --data set "${SMALL[@]}" --steps 2 --tensorboard --output late-run
	echo "$output$stderr"
	[ "$status" -eq 0 ]
	[ "$stderr" = "chexnet: the JSON log is not complete: Disk quota exceeded" ]
	[[ $output == *"TensorBoard events end here: late-run/tensorboard/events.out.tfevents."*": cannot be brought to disk: Disk quota exceeded"* ]]
	grep -aq loss/val late-run/tensorboard/*
	[ "$(grep -ac loss/val_weighted late-run/tensorboard/*)" -eq 0 ] # positives weigh as much as negatives there
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

@test "predictions reach a file that is mounted by itself, as into a container" {
	unshare --user --map-root-user --mount true 2>/dev/null || skip "no mount namespaces for this user"
	: >outside.csv
	: >mounted.csv
	# shellcheck disable=SC2016
	unshare --user --map-root-user --mount bash -c 'mount --bind outside.csv mounted.csv && "$@" && "$@"' - \
		chexnet ensemble mounted.csv 1.csv 2.csv >/dev/null
	chexnet ensemble plain.csv 1.csv 2.csv >/dev/null
	cmp <(sed 's/command=[^ ]*//' outside.csv) <(sed 's/command=[^ ]*//' plain.csv)
	[ ! -s mounted.csv ]
	[ "$(echo mounted.csv*)" = mounted.csv ]
}

@test "eval says of the probabilities what report says, as text and as JSON" {
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 100 --json >calibrated.json
	chexnet report --predictions 1.csv --resamples 100 --json calibrated-report.json
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 100 >calibrated.txt
	python3 - <<-'END'
		import json
		e, r = (json.load(open(name)) for name in ("calibrated.json", "calibrated-report.json"))
		text = open("calibrated.txt").read().split("probabilities of the findings")[1]
		keys = [k for k in r["findings"]["Mass"] if k.startswith(("ece", "brier", "observed", "calibration"))]
		assert len(keys) == 20, keys
		same = lambda a, b: a == b or abs(a - b) < 1e-5
		judged = 0
		for finding, row in r["findings"].items():
		    for k in keys:
		        assert same(row[k], e["findings"][finding][k]), (finding, k)
		    told = f"\n  {finding:20}   {row['brier']:.3f}  {row['brier_low']:.3f} to {row['brier_high']:.3f}  " if row["brier_skill"] is not None else None
		    judged += told is not None
		    assert told in text if told else finding not in text, finding
		assert judged and judged == e["mean_brier_skill_of"] == r["mean_brier_skill_of"]
		assert all(same(r[k], e[k]) for k in r if k.startswith("mean_brier_skill"))
	END
}

@test "what is printed on a full disk is no success" {
	[ -c /dev/full ] || skip "no /dev/full"
	for command in "eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 --json" "compare 1.csv 2.csv --resamples 100" "predict --help" "audit --json nowhere"; do
		status=0
		# shellcheck disable=SC2086
		chexnet $command >/dev/full 2>told || status=$?
		cat told
		[ "$status" -eq 70 ]
		[ "$(tail -n 1 told)" = "chexnet: what was printed is not complete: No space left on device" ]
		status=0
		# shellcheck disable=SC2086
		chexnet $command >&- 2>told || status=$?
		cat told
		[ "$status" -eq 70 ]
		[[ $(tail -n 1 told) == "chexnet: what was printed is not complete: "* ]]
	done
	# images that nobody would hear of are not scored
	find tree/images -name '*.png' | head -n 8 >eight
	for form in --json --no-json; do
		# shellcheck disable=SC2046
		refuses 70 "chexnet predict: what was printed is not complete: No space left on device" \
			bash -c 'chexnet predict --engine cpu --weights run1/model.safetensors --threads 1 "$@" >/dev/full' - $form $(cat eight) none.png
	done
}

@test "closed standard files: what is printed does not land in the run's own" {
	chexnet train --data set --model densenet --growth 4 --blocks 1,1 --image-size 32 --steps 2 --batch 8 --resamples 0 --threads 1 --output shut \
		<&- >&- 2>&-
	[ -s shut/model.safetensors ]
	[ "$(grep -vc '^{"event":' shut/log.jsonl)" -eq 0 ]
	chexnet train --data set --model densenet --growth 4 --blocks 1,1 --image-size 32 --steps 2 --batch 8 --resamples 0 --threads 1 --output shut1 >&- 2>told
	cat told
	[ "$(grep -c '^chexnet: nobody reads standard output any more' told)" -eq 1 ]
	# the verdict of lr-test is nowhere else
	status=0
	chexnet lr-test --data set --model densenet --growth 4 --blocks 1,1 --image-size 32 --steps 2 --batch 8 --base-batch 4 --resamples 0 --threads 1 --output shut2 >&- 2>told ||
		status=$?
	cat told
	[ "$status" -eq 70 ]
	[[ $(tail -n 1 told) == "chexnet: what was printed is not complete: "* ]]
	[ -s shut2/sqrt/test.csv ]
}

@test "a reader of standard output that leaves does not end a training" {
	train() { chexnet train --data set --model densenet --growth 4 --blocks 1,1 --image-size 32 --batch 8 --resamples 0 --threads 1 "$@"; }
	run --separate-stderr bash -c "$(declare -f train); train --steps 800 --output unread | head -n 1; echo \${PIPESTATUS[0]}"
	echo "$output $stderr"
	[ "${lines[1]}" = 0 ]
	[ "$stderr" = "chexnet: nobody reads standard output any more: the run goes on, and its JSON log tells how" ]
	[ -s unread/model.safetensors ]
	[ -s unread/test.csv ]
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
	ln -s no/where dangling
	refuses 64 "dangling: cannot be written to: a link to what is not there" chexnet train --data set "${SMALL[@]}" --steps 1 --output dangling
	long=$(printf '%0100d/' $(seq 41)) # of a path that is cut, another directory would be made
	refuses 64 "4095" chexnet train --data set "${SMALL[@]}" --steps 1 --output "$long"
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
	mkdir theirs
	for file in labels.csv 1.csv; do
		cp $file theirs/test.csv
		refuses 64 "theirs/test.csv is there already --output=DIR" chexnet train --data set "${SMALL[@]}" --steps 1 --output theirs
		cmp $file theirs/test.csv
		[ "$(ls theirs)" = test.csv ]
	done
	rm theirs/test.csv
	cp labels.csv theirs/lock
	refuses 64 "theirs/lock no training's --output=DIR" chexnet train --data set "${SMALL[@]}" --steps 1 --output theirs
	cmp labels.csv theirs/lock
	rm theirs/lock
	cp labels.csv theirs/log.jsonl
	refuses 64 "theirs/log.jsonl no log of JSON objects --output=DIR --log-json=FILE" chexnet train --data set "${SMALL[@]}" --steps 1 --output theirs
	cmp labels.csv theirs/log.jsonl
	head -c 100 /dev/zero >theirs/log.jsonl # of a node that went down before the first checkpoint
	chexnet train --data set "${SMALL[@]}" --steps 1 --output theirs >/dev/null
	chexnet train --data set "${SMALL[@]}" --steps 2 --output theirs --resume auto >/dev/null # its own
	cp labels.csv theirs/test.csv
	refuses 64 "theirs/test.csv no file of predictions --output=DIR" chexnet train --data set "${SMALL[@]}" --steps 3 --output theirs --resume auto
	cmp labels.csv theirs/test.csv
	if [ -e /sys/class/net/lo/speed ]; then # which can be opened and, of this device, not be read
		ln -sf /sys/class/net/lo/speed theirs/test.csv
		refuses 70 "theirs/test.csv cannot be read Invalid argument" chexnet train --data set "${SMALL[@]}" --steps 3 --output theirs --resume auto
	fi
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
	# a finished training whose checkpoints were removed
	cp -r run1 finished
	rm finished/checkpoint-*
	for resume in "" "--resume=auto"; do
		refuses 64 "finished/model.safetensors is there already without a checkpoint --output=DIR" chexnet train --data set "${SMALL[@]}" --steps 1 --output finished $resume
	done
	cmp run1/model.safetensors finished/model.safetensors
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
	# in another spelling too, before it is there
	ln -sf spare.html to-come.html
	for other in ./spare.html "$PWD/spare.html" run1/../spare.html to-come.html; do
		refuses 64 "spare.html $other" chexnet report --predictions 1.csv --out spare.html --json "$other"
	done
	refuses 64 "./spare.csv spare.csv" chexnet ensemble spare.csv 1.csv 2.csv --spread ./spare.csv
	refuses 64 "model.safetensors itself" chexnet eval --data set --weights run1/model.safetensors --predictions run1/model.safetensors
	[ ! -e spare.csv ]
	[ ! -e spare.html ]
	cmp kept.csv 1.csv
	cmp kept.csv third.csv
	# an earlier ensemble's file is its own to replace
	chexnet ensemble again.csv 1.csv 2.csv >/dev/null
	chexnet ensemble again.csv 2.csv 1.csv >/dev/null
}
