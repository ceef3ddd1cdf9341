#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The input pipelines explained and run against each other, as a user sees it. No rate is judged here: other things run too.
bats_require_minimum_version 1.5.0
load helpers

setup_file() {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH/tmp"
	"$BUILD/chexnet" synth --out "$SCRATCH/tree" --size 32 --images 300 --prevalence-floor 0.1 >/dev/null
	"$BUILD/chexnet" prepare nih "$SCRATCH/tree" "$SCRATCH/data" --size 32 --shards 4 >/dev/null
}
teardown_file() { rm -rf "$SCRATCH"; }
setup() { cd "$SCRATCH" || return 1; }

race() { "$BUILD/chexnet" bench data --seconds 0.1 --batch 8 "$@"; }

@test "explain: eight steps, ten steps, and ours" {
	run "$BUILD/chexnet" data explain
	[ "$status" -eq 0 ]
	steps=$(awk '/^[a-z]/ { if (n) print n; n = 0 } /^ +[0-9]+ / { n++ }' <<<"$output" | tr '\n' ' ')
	echo "$output"
	[ "$steps" = "8 10 10 " ]
	grep -q '^   4 shard .*decoded' <<<"$output"
	run "$BUILD/chexnet" data explain data
	[ "$status" -eq 0 ]
	for order in "by chance" here old: new:; do grep -Eq "^  $order.* [0-9]+\.[0-9]+$" <<<"$output"; done
	for flag in --json --svg=rates.svg --old --new --ours; do
		run --separate-stderr "$BUILD/chexnet" data explain data "$flag"
		[ "$status" -eq 64 ]
		[ "$stderr" = "chexnet data: --json, --svg, --old, --new and --ours are for bench: explain prints text, of all three" ]
		[ -z "$output" ]
	done
}

@test "bench data: three pipelines over 1 and 2 ranks, with a picture that needs nothing else" {
	run race data --ranks 1,2 --svg rates.svg
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"no TensorFlow took part"* ]]
	[ "$(awk '$1 == "ranks" { print $2, $3, $4 }' <<<"$output")" = "old new ours" ]
	# rates are above 0; the old approach decodes about as many images for one as there are ranks, the others one
	awk '$1 == 2 && $2 > 0 && $4 > 0 && $6 > 0 { gsub(/[()]/, ""); if ($3 > 1.4 && $5 < 1.6 && $7 < 1.2) ok = 1 } END { exit !ok }' <<<"$output"
	[ "$(grep -o '<rect class="\(old\|new\|ours\)"' rates.svg | wc -l)" = 9 ] # 6 bars, 3 keys
	[ "$(grep -c 'http' rates.svg)" = 1 ] # the name space
	[ "$(grep -oE '(href|src|url)' rates.svg | wc -l)" = 0 ]
	python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' rates.svg
}

@test "bench data: one pipeline alone, as JSON" {
	run --separate-stderr race data --new --ranks 1,4 --json
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 1 ]
	python3 -c 'import json, sys; o = json.loads(sys.argv[1]); assert o["ranks"] == [1, 4] and len(o["new"]["images_per_s"]) == 2 and min(o["new"]["images_per_s"]) > 0 and "old" not in o' "$output"
}

@test "bench data without a directory makes images of its own and leaves nothing behind" {
	TMPDIR=$SCRATCH/tmp run race --ours --ranks 1
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"synthetic images of 256 x 256 as JPEG"* ]]
	[ -z "$(ls -A "$SCRATCH/tmp")" ]
}

@test "bench data: an empty TMPDIR is none" {
	[ "$(id -u)" = 0 ] || skip "only root can tell, who may write to /"
	mkdir -p private
	nobody() { # whose /tmp is here; the build may be below the other one
		TMPDIR='' unshare --mount bash -c 'mount --bind "$0" /mnt && mount --bind private /tmp && chmod 777 /tmp &&
			exec setpriv --reuid=65534 --regid=65534 --clear-groups /mnt/chexnet "$@"' "$BUILD" "$@"
	}
	nobody --version >/dev/null 2>&1 || skip "user 65534 may not run $BUILD/chexnet"
	nobody bench data --ours --ranks 1 --seconds 0.1
	[ -z "$(ls -A private)" ]
}

has_children() { [ "$(pgrep -c -P "$1")" -ge "$2" ]; }
is_gone() { ! grep -qs '^State:.[^ZX]' "/proc/$1/status"; }
is_empty() { [ -z "$(ls -A "$1")" ]; }

@test "bench data: where its parent is killed, ranks end, and the images made for them go" {
	for children in 1 2; do # the one that makes the images; the ranks
		TMPDIR=$SCRATCH/tmp "$BUILD/chexnet" bench data --ours --ranks 2 --seconds 300 >/dev/null 2>&1 3>&- &
		pid=$!
		wait_for 60 has_children $pid $children
		ranks=$(pgrep -P $pid)
		kill -KILL $pid
		for rank in $ranks; do wait_for 60 is_gone "$rank"; done
		wait_for 60 is_empty "$SCRATCH/tmp"
	done
}

@test "bench data: a signal to it alone ends it at once, by that signal, with all that it started, and nothing stays" {
	local signal pid
	for signal in INT:130 TERM:143 HUP:129; do
		for children in 1 2; do # the one that makes the images; the ranks
			# a shell without job control would have SIGINT ignored
			TMPDIR=$SCRATCH/tmp env --default-signal=INT "$BUILD/chexnet" bench data --ours --ranks 2 --seconds 300 2>told 3>&- &
			pid=$!
			wait_for 60 has_children $pid $children
			kill -"${signal%:*}" $pid
			status=0
			wait $pid || status=$?
			[ "$status" = "${signal#*:}" ]
			grep -E "^chexnet data: interrupted" told
			is_empty "$SCRATCH/tmp"
		done
	done
}

@test "bench data refuses what it cannot compare, with one line" {
	run --separate-stderr -65 race nowhere
	[[ $stderr == "chexnet data: nowhere: no such directory" ]]
	run --separate-stderr -65 race data --new --ranks 1,5
	[[ $stderr == "chexnet data: data: 4 files are dealt out to 5 ranks in the new approach: chexnet prepare --shards=5" ]]
	"$BUILD/chexnet" prepare nih tree lone --size 32 --shards 1 >/dev/null
	run --separate-stderr -65 race lone --new --ranks 2
	[[ $stderr == "chexnet data: lone: 1 file is dealt out to 2 ranks in the new approach: chexnet prepare --shards=2" ]]
	"$BUILD/chexnet" prepare nih tree packed --size 32 --format packed >/dev/null
	run --separate-stderr -64 race packed
	[[ $stderr == *"packed is packed"* ]]
	run --separate-stderr -64 race data --ranks 0
	[[ $stderr == *"--ranks=0: must be between 1 and 64"* ]]
	run --separate-stderr -64 "$BUILD/chexnet" data bench data --svg rates.svg
	[[ $stderr == *"--svg draws what --old, --new and --ours measure"* ]]
}

@test "explain and bench are told a table's name where they take a directory" {
	for word in explain bench; do
		run --separate-stderr -65 "$BUILD/chexnet" data $word tree/Data_Entry_2017_v2020.csv
		[ "$stderr" = "chexnet data: tree/Data_Entry_2017_v2020.csv: a file, not a directory" ]
	done
}

@test "bench data: a rank's bad record ends all ranks, and is named" {
	cp -r data bad
	printf '\377\377' | dd of=bad/train-00002-of-00004 bs=1 seek=3000 conv=notrunc status=none
	run --separate-stderr -65 timeout 60 "$BUILD/chexnet" bench data bad --seconds 5 --batch 8 --new --ranks 4
	echo "$stderr"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr =~ bad/train-00002-of-00004:\ record\ [0-9]+\ at\ byte\ [0-9]+:\ CRC\ mismatch ]]
}

NETWORK=(--model densenet --growth 4 --blocks 1,1 --threads 1 --batch 8 --resamples 0)

train() { # NAME [OPTION…]
	"$BUILD/chexnet" train "${NETWORK[@]}" --data data --output "$1" "${@:2}" >"$1.out"
}
hashes() { sed -n 's/.*"event":"step".*"step":\([0-9]*\),.*"hash":"\([0-9a-f]*\)".*/\1 \2/p' "$1/log.jsonl"; }

@test "--shuffle-window: said at the start, and exactly resumed in the middle of a window" {
	train whole --steps 1
	grep -q '^order: keyed permutation of all [0-9]* training images$' whole.out
	train windows --steps 9 --shuffle-window 2 --accumulate 2 --log-hash
	grep -q '^order: shuffle windows of 2 of 4 files, about [0-9]* images and [0-9.]* MB each; files are read front to back, one window ahead$' windows.out
	train first --steps 4 --shuffle-window 2 --accumulate 2 --log-hash
	# the checkpoint's order wins, and says so
	train first --steps 9 --resume auto --accumulate 2 --log-hash
	grep -q '^the order of images stays that of the checkpoint, not --shuffle-window=0$' first.out
	hashes windows
	[ "$(hashes windows | wc -l)" = 9 ]
	[ "$(hashes windows)" = "$(hashes first)" ]
	train plain --steps 9 --accumulate 2 --log-hash
	[ "$(hashes windows | head -n 1)" != "$(hashes plain | head -n 1)" ]
}

@test "--shuffle-window: other files with the same images are refused on resuming; images in memory have none" {
	[ -d first ] || train first --steps 4 --shuffle-window 2 --accumulate 2
	"$BUILD/chexnet" prepare nih tree regrouped --size 32 --shards 3 >/dev/null
	last=$(compgen -G 'first/checkpoint-*.safetensors' | tail -n 1)
	run --separate-stderr -65 "$BUILD/chexnet" train "${NETWORK[@]}" --data regrouped --output again --resume "$last"
	echo "$stderr"
	[[ $stderr == *"shuffle windows of 2 files, and the same images lie in other files now"* ]]
	run --separate-stderr -64 "$BUILD/chexnet" train "${NETWORK[@]}" --output memory --shuffle-window 2 --steps 1
	[[ $stderr == *"--shuffle-window: these images are in memory"* ]]
}
