#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Training on the private cluster: the same images and losses however a step is cut over ranks, exact resume, and an end
# with a name when a rank dies.
bats_require_minimum_version 1.5.0
load helpers

# A network and a data set that train in a second on one core.
SMALL=(--model densenet --growth 4 --blocks 2,2 --learning-rate 1e-3 --resamples 0 --log-hash)

setup_file() {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	cluster_up --plugin none
	"$BUILD/chexnet" synth --out "$SCRATCH/tree" --images 400 --size 32 >"$SCRATCH/synth.out"
	"$BUILD/chexnet" prepare nih "$SCRATCH/tree" "$SCRATCH/data" --size 32 >>"$SCRATCH/synth.out"
}
teardown_file() { cluster_down; }
setup() {
	WORK=$SCRATCH/$BATS_TEST_NUMBER
	mkdir -p "$WORK"
}
teardown() {
	[ -n "${BATS_TEST_COMPLETED:-}" ] || tail -n 5 "$WORK"/*.err "$WORK"/*.out 2>/dev/null || true
	cluster_logs
}

# train PROGRAM NAME "SRUN OPTIONS" [OPTION…]: output, log and exit code go to files called NAME
train() {
	local program=$1 name=$2 status=0
	# shellcheck disable=SC2086 # the options are words
	in_cluster srun -Q -O --mpi=pmix $3 "$BUILD/$program" train "${SMALL[@]}" --data "$SCRATCH/data" --output "$WORK/$name" \
		--log-json "$WORK/$name.json" "${@:4}" >"$WORK/$name.out" 2>"$WORK/$name.err" || status=$?
	echo $status >"$WORK/$name.status"
	return $status
}

# The values of a key in the step events of a log, one a line; with step numbers in front.
steps() { # NAME KEY
	sed -n "s/.*\"event\":\"step\".*\"step\":\([0-9]*\).*\"$2\":\"\{0,1\}\([^,\"}]*\).*/\1 \2/p" "$WORK/$1.json"
}

# Largest difference between the losses of two logs.
loss_difference() { # NAME NAME
	join <(steps "$1" loss | sort) <(steps "$2" loss | sort) |
		awk '{ d = $2 - $3; if (d < 0) d = -d; if (d > m) m = d; n++ } END { printf "%d %.9f\n", n, m }'
}

pid_of_rank() { # RANK NAME: the process on this machine
	local p
	for p in $(pgrep -f -- "--output $WORK/$2 "); do
		if [ "$(cat /proc/"$p"/comm 2>/dev/null)" = chexnet ] && tr '\0' '\n' <"/proc/$p/environ" | grep -qx "SLURM_PROCID=$1"; then
			echo "$p"
			return
		fi
	done
	return 1
}
reached() { grep -qs "\"event\":\"step\".*\"step\":$2," "$WORK/$1.json"; } # NAME STEP
nobody_left() { ! pgrep -f -- "--output $WORK/$1 " >/dev/null; }

@test "1 rank, 4 ranks and 2 nodes see the same images in the same steps, with the same losses" {
	train chexnet one "-N1 -n1" --steps 20 --batch 8 --accumulate 4
	train chexnet four "-N1 -n4" --steps 20 --batch 8
	train chexnet nodes "-N2 -n2" --steps 20 --batch 8 --accumulate 2 --data-memory 0
	grep -q "train decoded once" "$WORK/one.out"
	grep -q "at most 0 MiB a rank (--data-memory); train decoded in every pass" "$WORK/nodes.out"
	[ "$(steps one hash | wc -l)" = 20 ]
	[ "$(steps one hash | cut -d' ' -f2 | sort -u | wc -l)" = 20 ]
	for other in four nodes; do
		diff <(steps one hash) <(steps $other hash)
		diff <(steps one position) <(steps $other position)
		read -r n difference <<<"$(loss_difference one $other)"
		echo "$other: $n steps, losses differ by at most $difference"
		[ "$n" = 20 ]
		awk "BEGIN { exit !($difference < 1e-4) }"
	done
}

@test "ranks end with the same weights, bit for bit" {
	weights() { grep -oh '^weights of rank .*' "$WORK/$1.err" | sort -u; }
	for n in 2 3 4; do
		train tests/wrap_train_finish "bits$n" "-N$((1 + n % 2)) -n$n" --steps 20 --batch 8
		weights "bits$n"
		[ "$(weights "bits$n" | wc -l)" = "$n" ]
		[ "$(weights "bits$n" | cut -d: -f2 | sort -u | wc -l)" = 1 ]
	done
	TEST_SPOIL=1 train tests/wrap_train_finish spoilt "-N1 -n2" --steps 20 --batch 8
	[ "$(weights spoilt | cut -d: -f2 | sort -u | wc -l)" = 2 ]
}

@test "ranks with GPUs that add up in host memory learn what those of the CPU engine do" {
	[ -x "$BUILD/cuda/chexnet" ] || skip "chexnet with the GPU's kernels on the CPU is not built (make tests)"
	export LD_LIBRARY_PATH=$BUILD/cuda HVD_BACKEND=cpu # of the kernels on the CPU, for which this driver has a GPU
	for engine in cpu cuda; do
		train cuda/chexnet $engine "-N2 -n2" --engine $engine --growth 8 --blocks 2,1 --image-size 32 --batch 2 --steps 5 --precision fp32
	done
	grep -q "cuda: CPU shim" "$WORK/cuda.out"
	read -r n difference <<<"$(loss_difference cpu cuda)" # a GPU is not asked for every step's
	echo "$n steps, losses differ by at most $difference"
	[ "$n" -ge 2 ]
	awk "BEGIN { exit !($difference < 1e-3) }"
}

@test "a stream that loses one sample does not pass for the same" {
	train chexnet whole "-N1 -n1" --steps 6 --batch 8 --accumulate 4
	train tests/wrap_order_sample lossy "-N1 -n1" --steps 6 --batch 8 --accumulate 4
	# position 100 is in step 3
	diff <(steps whole hash | head -n 3) <(steps lossy hash | head -n 3)
	run diff <(steps whole hash | tail -n 3) <(steps lossy hash | tail -n 3)
	[ "$(grep -c '^<' <<<"$output")" = 3 ]
}

@test "killed and resumed on other ranks, the order goes on: nothing lost, nothing repeated" {
	train chexnet whole "-N1 -n1" --steps 200 --batch 8 --accumulate 4
	train tests/wrap_model_train cut "-N1 -n4" --steps 200 --batch 8 --checkpoint-every 10 || true
	[ "$(cat "$WORK/cut.status")" != 0 ]
	reached cut 19 # it lags behind the steps
	wait_for 10 nobody_left cut
	run ! reached cut 25
	first=$(basename "$(printf '%s\n' "$WORK"/cut/checkpoint-*.safetensors | sort | tail -n 1)" .safetensors)
	first=$((10#${first#checkpoint-}))
	mv "$WORK/cut.json" "$WORK/before.json"
	train chexnet cut "-N2 -n2" --steps 200 --batch 8 --accumulate 2 --resume auto
	[ "$(steps cut hash | head -n 1 | cut -d' ' -f1)" = "$first" ]
	diff <(steps whole hash | tail -n +$((first + 1))) <(steps cut hash)
	diff <(steps whole hash | head -n "$(steps before hash | wc -l)") <(steps before hash)
	# each step begins where the one before ended: all images once, 32 a step
	(steps before position | head -n "$first" && steps cut position) | awk '$2 != 32 * (NR - 1) || $1 != NR - 1 { exit 1 } END { exit NR != 200 }'
	read -r n difference <<<"$(loss_difference whole cut)"
	awk "BEGIN { exit !($n == 200 - $first && $difference < 1e-3) }"
}

# kill_rank RANK KILL_ON_BAD_EXIT
kill_rank() {
	local name=kill$1$2 begin line node
	train chexnet "$name" "-N2 -n4 --kill-on-bad-exit=$2" --steps 1000000 --batch 4 3>&- &
	srun=$!
	wait_for 20 reached "$name" 3
	node=n$(($1 / 2 + 1))
	kill -9 "$(pid_of_rank "$1" "$name")"
	begin=$(date +%s%N)
	wait $srun || true
	echo "rank $1, kill-on-bad-exit $2: over after $((($(date +%s%N) - begin) / 1000000)) ms"
	[ $(($(date +%s%N) - begin)) -lt 10000000000 ]
	[ "$(cat "$WORK/$name.status")" != 0 ]
	for line in n1 n2; do
		grep -E "on $line lost rank $1 on $node" "$WORK/$name.err"
	done
	# an end like any other in the log, which is rank 0's
	[ "$1" = 0 ] || grep -E '^\{"event":"end","time":[0-9]+\.[0-9]+,"code":70,"step":[0-9]+,"reason":"[^"]*lost rank '"$1"' on [^"]*","output":"[^"]*/'"$name"'"\}$' "$WORK/$name.json"
	wait_for 5 nobody_left "$name"
}

@test "any one rank killed in training ends the job with its name and host, from every node" {
	local rank
	for rank in 0 1 2 3; do
		kill_rank "$rank" 0
		kill_rank "$rank" 1
	done
}

@test "a rank whose standard error is a pipe that nobody reads ends, too, when another is lost" {
	mkfifo "$WORK/full"
	# shellcheck disable=SC2016
	in_cluster srun -Q -O --mpi=pmix -N1 -n2 --kill-on-bad-exit=0 bash -c '
		exec 7<>"$1"
		[ "$SLURM_PROCID" != 1 ] || { dd if=/dev/zero bs=4096 count=16 >&7 2>/dev/null; exec 2>&7; }
		shift && exec "$@"' - "$WORK/full" "$BUILD/chexnet" train "${SMALL[@]}" --data "$SCRATCH/data" --output "$WORK/unread" \
		--log-json "$WORK/unread.json" --steps 1000000 --batch 4 >"$WORK/unread.out" 2>"$WORK/unread.err" 3>&- &
	srun=$!
	wait_for 20 reached unread 3
	kill -9 "$(pid_of_rank 0 unread)"
	wait_for 20 nobody_left unread
	wait $srun || true
	grep -q 'task 1: Exited with exit code 70' "$WORK/unread.err"
}

# survive RANK: kills it; the other three finish the job
survive() {
	local name=live$1
	HVD_ON_DEATH=continue train chexnet "$name" "-N2 -n4 --kill-on-bad-exit=0 --no-kill" --steps 400 --batch 8 --eval-every 1000 --checkpoint-every 1000 3>&- &
	srun=$!
	wait_for 20 reached "$name" 20
	kill -9 "$(pid_of_rank "$1" "$name")"
	wait $srun || true
	[ "$(cat "$WORK/$name.status")" = 137 ] # that of the killed task, no other
	grep -E "^3 ranks go on at step [0-9]+, position [0-9]+, global batch 24, learning rate up to 0.001$" "$WORK/$name.out"
	grep -E "lost rank $1 on n$(($1 / 2 + 1))" "$WORK/$name.out"
	grep -q '^mean of [0-9]* of 14 ' "$WORK/$name.out"
	[ -e "$WORK/$name/model.safetensors" ]
	[ ! -e "$WORK/$name/lock" ] # nobody else could write there meanwhile: the next rank 0 had it
	grep -E '"event":"recovered",.*"ranks":3,.*"global_batch":24,"reason":"[^"]*lost rank '"$1"' on n' "$WORK/$name.json"
	# Before, 32 images a step; after, 24 a step from the step and position that the survivors agreed on, to the end. They may
	# have been one step further than the log of a rank 0 that died, or one behind it.
	sed -n 's/.*"event":"\(step\|recovered\)".*"step":\([0-9]*\),"position":\([0-9]*\).*/\1 \2 \3/p' "$WORK/$name.json" | awk '
		$1 == "recovered" { recovered++; if ($2 - next_step > 1 || next_step - $2 > 1 || $3 != 32 * $2) exit 1; next_step = $2; next_position = $3; next }
		$2 != next_step || $3 != next_position { exit 1 }
		{ next_step++; next_position += recovered ? 24 : 32 }
		END { exit !(recovered == 1 && next_step == 400) }'
	wait_for 5 nobody_left "$name"
}

@test "with on_death=continue the survivors go on, whoever died" {
	survive 3
	survive 0
}

@test "a JSON log that the next rank 0 cannot write is given up, and not the training" {
	HVD_ON_DEATH=continue train chexnet nolog "-N2 -n2 --kill-on-bad-exit=0 --no-kill" --steps 4000 --batch 8 --eval-every 1000 --checkpoint-every 1000 3>&- &
	srun=$!
	wait_for 20 reached nolog 20
	rm "$WORK/nolog.json" && mkdir "$WORK/nolog.json"
	kill -9 "$(pid_of_rank 0 nolog)"
	wait $srun || true
	[ "$(cat "$WORK/nolog.status")" = 137 ]
	grep "nolog.json.*: the training goes on without it" "$WORK/nolog.out"
	grep -q '^mean of [0-9]* of 14 ' "$WORK/nolog.out"
}

@test "a checkpoint whose writer died before others heard of it is still the training's own" {
	HVD_ON_DEATH=continue train tests/wrap_checkpoint_prune own "-N2 -n2 --kill-on-bad-exit=0 --no-kill" --steps 20 --batch 8 --checkpoint-every 5 --keep 9 || true
	grep -E "^1 rank goes on at step 10, " "$WORK/own.out"
	[ "$(cd "$WORK/own" && echo checkpoint-*)" = "$(printf 'checkpoint-000000%s.safetensors ' 05 10 15 20 | xargs)" ]
	run ! grep abandoned "$WORK/own.out"
	# also where it is the first
	HVD_ON_DEATH=continue train tests/wrap_checkpoint_prune first "-N2 -n2 --kill-on-bad-exit=0 --no-kill" --steps 20 --batch 8 --checkpoint-every 10 --keep 9 || true
	grep -E "^1 rank goes on at step 10, " "$WORK/first.out"
	[ "$(cd "$WORK/first" && echo checkpoint-*)" = "$(printf 'checkpoint-000000%s.safetensors ' 10 20 | xargs)" ]
	run ! grep abandoned "$WORK/first.out"
	# and where it went back, so that its first one takes the place of what it left, whoever dies behind that one or a later one
	train chexnet left "-N2 -n2" --steps 20 --batch 8 --checkpoint-every 5 --keep 9
	cp -r "$WORK/left" "$WORK/again"
	back() { # NAME PROGRAM RANKS
		HVD_ON_DEATH=continue train "tests/$2" "$1" "-N1 -n$3 --kill-on-bad-exit=0 --no-kill" --steps 20 --batch 8 --checkpoint-every 2 --keep 9 \
			--resume "$WORK/$1/checkpoint-00000005.safetensors" || true
		[ "$(cd "$WORK/$1" && echo checkpoint-*.abandoned*)" = "$(printf 'checkpoint-000000%s.safetensors.abandoned ' 10 15 20 | xargs)" ]
		[ "$(cd "$WORK/$1" && echo checkpoint-*.safetensors)" = "$(printf 'checkpoint-000000%s.safetensors ' 05 06 08 10 12 14 16 18 20 | xargs)" ]
	}
	back left wrap_checkpoint_prune 2
	grep -E "^1 rank goes on at step 10, " "$WORK/left.out"
	TEST_MARK=micro-batch TEST_UNHEARD=1 back again wrap_world_agree 3
	grep -E "^2 ranks go on at step 6, " "$WORK/again.out"
}

@test "a training that stopped early stays unfinished where a rank dies before its end" {
	HVD_ON_DEATH=continue train tests/wrap_tell_summary early "-N2 -n2 --kill-on-bad-exit=0 --no-kill" --steps 1000000 --max-seconds 1 --batch 8 || true
	grep "^stopped at step .* all saved" "$WORK/early.out"
	grep -E '"event":"end".*"code":75,' "$WORK/early.json"
	[ ! -e "$WORK/early/model.safetensors" ]
	# one whose steps are all made is judged by the others
	HVD_ON_DEATH=continue train tests/wrap_tell_summary whole "-N2 -n2 --kill-on-bad-exit=0 --no-kill" --steps 10 --batch 8 || true
	grep -E '"event":"end".*"code":0,' "$WORK/whole.json"
	[ -e "$WORK/whole/model.safetensors" ]
}

# part_ways NAME MARK [OPTION…]: a rank dies while the last save is agreed on, of which one survivor has heard and the other has not
part_ways() {
	TEST_MARK=$2 HVD_ON_DEATH=continue HVD_DEADLINE=10 train tests/wrap_world_agree "$1" "-N1 -n3 --kill-on-bad-exit=0 --no-kill" --batch 8 --checkpoint-every 100000 \
		--eval-every 100000 "${@:3}" || true
	cat "$WORK/$1.err"
	[ "$(cat "$WORK/$1.status")" = 137 ]
	[ "$(grep -c "^2 ranks go on at step" "$WORK/$1.out")" = 1 ]
	run ! grep -E "different|differs|rank 0 on|rank 1 on" "$WORK/$1.err"
}

@test "survivors of a death in the last save end together, also where only some had heard that all is saved" {
	part_ways whole validation --steps 10
	grep -E '"event":"end".*"code":0,' "$WORK/whole.json"
	[ -e "$WORK/whole/model.safetensors" ]
	part_ways early micro-batch --steps 1000000 --max-seconds 0.001
	grep -E '"event":"end".*"code":75,' "$WORK/early.json"
	[ "$(sed -n 's/^stopped at step \([0-9]*\) .*/\1/p' "$WORK/early.out" | sort -u)" = "$(sed -n 's/^2 ranks go on at step \([0-9]*\),.*/\1/p' "$WORK/early.out")" ]
	[ ! -e "$WORK/early/model.safetensors" ]
	TEST_UNHEARD=1 part_ways unheard micro-batch --steps 1000000 --max-seconds 0.001
	[ "$(sed -n 's/^stopped at step \([0-9]*\) .*/\1/p' "$WORK/unheard.out" | sort -u)" = "$(sed -n 's/^2 ranks go on at step \([0-9]*\),.*/\1/p' "$WORK/unheard.out")" ]
}

@test "best weights whose writer dies are written by the next one" {
	TEST_DIE=1 HVD_ON_DEATH=continue train tests/wrap_checkpoint_write best "-N1 -n2 --kill-on-bad-exit=0 --no-kill" --steps 5 --batch 8 --eval-every 5 || true
	grep -E "^1 rank goes on at step 5, " "$WORK/best.out"
	grep -E '"event":"end".*"code":0,' "$WORK/best.json"
	[ -e "$WORK/best/best.safetensors" ]
}

@test "weights that one rank cannot write end all ranks with its line" {
	local every
	for every in "--eval-every 4" "--checkpoint-every 4"; do # the best weights, a checkpoint
		# shellcheck disable=SC2086 # an option and its value
		TEST_FULL=1 train tests/wrap_checkpoint_write full "-N2 -n2" --steps 5 --batch 8 --eval-every 100 --checkpoint-every 100 $every || true
		rm -rf "$WORK/full"
		[ "$(cat "$WORK/full.status")" = 70 ]
		[ "$(grep -c "rank 0 on n1: .*safetensors.*: no space" "$WORK/full.err")" = 1 ]
		run ! grep lost "$WORK/full.err"
	done
}

@test "a rank whose engine fails in the middle of a step says so, and the others whom they lost" {
	train tests/wrap_engine_loss engine "-N2 -n2 --kill-on-bad-exit=0" --steps 10 --batch 8 || true
	cat "$WORK/engine.err"
	[ "$(cat "$WORK/engine.status")" = 70 ]
	grep "^chexnet train: rank 1 on n2: the engine failed without a reason$" "$WORK/engine.err"
	grep "^chexnet train: hvd: rank 0 on n1 lost rank 1 on n2: " "$WORK/engine.err"
}

@test "a loss that is not a number on several ranks is said once" {
	train chexnet nan "-N2 -n2" --batch 8 --optimizer sgd --learning-rate 100 --weight-decay 1 --warmup-epochs 0 --epochs 5 || true
	[ "$(cat "$WORK/nan.status")" = 70 ]
	[ "$(grep -c "the loss is not a number (images at positions " "$WORK/nan.err")" = 1 ]
}

@test "survivors of a death behind a step go on with the next, not with that step once more" {
	HVD_ON_DEATH=continue train tests/wrap_hvd_allgather behind "-N1 -n4 --kill-on-bad-exit=0 --no-kill" --batch 4 --accumulate 3 --steps 12 || true
	cat "$WORK/behind.err"
	grep -E "^3 ranks go on at step 10, position 480, global batch 36," "$WORK/behind.out"
	grep -E '"event":"end".*"code":0,' "$WORK/behind.json"
}

@test "a rank that never starts is named within the deadline" {
	begin=$SECONDS
	run --separate-stderr in_cluster env HVD_DEADLINE=4 srun -Q --mpi=pmix --kill-on-bad-exit=1 -N2 -n2 bash -c \
		"if [ \$SLURM_PROCID = 1 ]; then exec sleep 300; fi; exec $BUILD/chexnet train ${SMALL[*]} --data $SCRATCH/data --output $WORK/boot --steps 3"
	[ $((SECONDS - begin)) -lt 40 ]
	grep -E "chexnet train: .*rank 1" <<<"$stderr"
	grep "task 0: Exited with exit code 70" <<<"$stderr" # srun's own code is that of the sleeper it ended
}

@test "a rank that dies while the world forms ends the job" {
	begin=$SECONDS
	run in_cluster env HVD_DEADLINE=6 srun -Q --mpi=pmix --kill-on-bad-exit=1 -N2 -n2 bash -c \
		"if [ \$SLURM_PROCID = 1 ]; then kill -9 \$\$; fi; exec $BUILD/chexnet train ${SMALL[*]} --data $SCRATCH/data --output $WORK/boot --steps 3"
	[ "$status" != 0 ]
	[ $((SECONDS - begin)) -lt 40 ]
	wait_for 5 nobody_left boot
}

@test "an image that one rank cannot read ends all ranks with its line and exit code 65" {
	train tests/wrap_dataset_read bad "-N2 -n2" --steps 1000 --batch 8 --seed 4 || true # with this seed it is rank 1's
	[ "$(cat "$WORK/bad.status")" = 65 ]
	[ "$(grep -c 'rank [01] on n[12]: .*record 17 at byte 90112: CRC mismatch' "$WORK/bad.err")" = 1 ]
	run ! grep lost "$WORK/bad.err"
	grep -E '"event":"end","time":[0-9.]*,"code":65,"step":[0-9]+,"reason":"rank 1 on n2 failed, and its line on standard error says why"' "$WORK/bad.json"
}

@test "a checkpoint is no part of a step, neither on the rank that writes nor on those that wait for it" {
	HVD_TRACE=$WORK/trace train tests/wrap_checkpoint_write slow "-N2 -n2" --steps 10 --batch 8 --checkpoint-every 5
	run "$BUILD/hvd-trace" "$WORK/trace"
	echo "$output"
	[[ $output == "2 ranks, 9 steps, "* ]]
	# the one between these steps took 2 s on either
	awk -F: '/^validations and checkpoints, not counted above/ { s = $2 * 9 / 1000 } END { exit !(s > 1.5) }' <<<"$output"
	# nor of the rates: two checkpoints and the best weights took 2 s each, ten steps do not
	[ "$(grep -cE '"event":"checkpoint".*"seconds":[2-9]' "$WORK/slow.json")" = 2 ]
	grep '"event":"summary"' "$WORK/slow.json"
	sed -n 's/.*"event":"summary".*"seconds":\([0-9.e+-]*\).*/\1/p' "$WORK/slow.json" | awk '{ exit !($1 < 2) }'
}

@test "SIGTERM and SIGHUP save, end with 75, and the resumed run makes the same model" {
	train chexnet whole "-N1 -n2" --steps 300 --batch 8 --eval-every 1000
	for signal in TERM HUP; do
		cut=cut-$signal
		train chexnet $cut "-N1 -n2" --steps 300 --batch 8 --eval-every 1000 3>&- & # a step that is told, not a validation
		srun=$!
		wait_for 20 reached $cut 10
		kill -$signal "$(pid_of_rank 1 $cut)" # one rank alone is told
		wait $srun || true
		[ "$(cat "$WORK/$cut.status")" = 75 ]
		grep -q "resume=auto" "$WORK/$cut.out"
		run ! reached $cut 299
		train chexnet $cut "-N1 -n2" --steps 300 --batch 8 --eval-every 1000 --resume auto
		diff <(steps whole hash) <(steps $cut hash)
		cmp "$WORK/whole/checkpoint-00000300.safetensors" "$WORK/$cut/checkpoint-00000300.safetensors"
	done
	train chexnet last "-N1 -n2" --steps 1 --batch 8 --max-seconds 1e-9 # told in its last step it is through, and judged
	[ -e "$WORK/last/test.csv" ]
	# told while it is judged
	TEST_STOP=1 train tests/wrap_train_finish judged "-N1 -n2" --steps 2 --batch 8 || true
	[ "$(cat "$WORK/judged.status")" = 75 ]
	grep "^stopped before the test split was scored: --resume=auto does it" "$WORK/judged.out"
	[ ! -e "$WORK/judged/test.csv" ]
	train chexnet judged "-N1 -n2" --steps 2 --batch 8 --resume auto
	[ -e "$WORK/judged/test.csv" ]
}

validated() { sed -n 's/.*"event":"eval".*"step":\([0-9]*\),"split":"val".*/\1/p' "$WORK/$1.json" | sort -nu; } # NAME

@test "a validation that a signal or a death kept from its end is made up for" {
	train chexnet whole "-N1 -n2" --steps 200 --batch 8 --eval-every 1 --patience 1000
	diff <(seq 200) <(validated whole)
	train chexnet cut "-N1 -n2" --steps 200 --batch 8 --eval-every 1 --patience 1000 3>&- &
	srun=$!
	wait_for 20 reached cut 10
	kill -TERM "$(pid_of_rank 1 cut)"
	wait $srun || true
	[ "$(cat "$WORK/cut.status")" = 75 ]
	train chexnet cut "-N1 -n2" --steps 200 --batch 8 --eval-every 1 --patience 1000 --resume auto
	diff <(seq 200) <(validated cut)
	cmp "$WORK/whole/checkpoint-00000200.safetensors" "$WORK/cut/checkpoint-00000200.safetensors"

	HVD_ON_DEATH=continue train chexnet live "-N2 -n4 --kill-on-bad-exit=0 --no-kill" --steps 200 --batch 8 --eval-every 1 --checkpoint-every 1 --keep 200 3>&- &
	srun=$!
	wait_for 20 reached live 20
	kill -9 "$(pid_of_rank 3 live)"
	wait $srun || true
	diff <(seq 200) <(validated live)
	[ "$(find "$WORK/live" -name "checkpoint-*.safetensors" | wc -l)" = 200 ]
	# and one that came to its end is not made twice, which early stopping would count
	train chexnet whole "-N1 -n2" --steps 201 --batch 8 --eval-every 1 --patience 1000 --resume auto
	[ "$(grep -c '"event":"eval".*"split":"val"' "$WORK/whole.json")" = 201 ]
}

# Images that the steps of a run took in all, divided by those of the training split.
passes() { # NAME
	local images
	images=$(sed -n 's/^  train *\([0-9]*\) images.*/\1/p' "$WORK/$1.out")
	sed -n 's/.*"event":"step".*"position":\([0-9]*\).*/\1/p' "$WORK/$1.json" | tail -n 1 | awk "{ printf \"%.1f\\n\", (\$1 + $2) / $images }"
}

@test "--epochs are passes over the images, also where the number of ranks changes on the way" {
	train chexnet epochs "-N1 -n4" --epochs 3 --batch 4
	[ "$(passes epochs 16)" = 3.0 ]
	train chexnet epochs "-N1 -n1" --epochs 6 --batch 4 --resume auto
	[ "$(passes epochs 4)" = 6.0 ]
	train chexnet epochs "-N2 -n3" --epochs 8 --batch 4 --resume auto
	[ "$(passes epochs 12)" = 8.0 ]
	train chexnet epochs "-N1 -n1" --epochs 8 --batch 4 --resume auto # as a requeued job
	grep -q "^all its steps are done already: nothing is trained, the model is judged once more$" "$WORK/epochs.out"
	[ "$(passes epochs 12)" = 8.0 ]

	HVD_ON_DEATH=continue train chexnet fewer "-N2 -n4 --kill-on-bad-exit=0 --no-kill" --epochs 40 --batch 4 3>&- &
	srun=$!
	wait_for 20 reached fewer 20
	kill -9 "$(pid_of_rank 1 fewer)"
	wait $srun || true
	grep -E "^3 ranks go on" "$WORK/fewer.out"
	[ "$(passes fewer 12)" = 40.0 ]
}

@test "one training at a time writes to a directory; a requeued job takes it over from its own earlier run" {
	train chexnet shared "-N1 -n1" --steps 1000000 --batch 4 3>&- &
	srun=$!
	wait_for 20 reached shared 3
	cp "$WORK/shared/lock" "$WORK/lock"
	run --separate-stderr in_cluster "$BUILD/chexnet" train "${SMALL[@]}" --data "$SCRATCH/data" --output "$WORK/shared" --steps 3
	[ "$status" = 64 ]
	[[ $stderr =~ "$WORK/shared: another training writes to it (n1, process "[0-9]+", Slurm job "[0-9]+", run 0): --output=DIR chooses another" ]]
	[[ $stderr == *"remove $WORK/shared/lock" ]]
	job=$(sed 's/.*Slurm job \([0-9]*\).*/\1/' "$WORK/lock")
	run --separate-stderr in_cluster env SLURM_JOB_ID="$job" "$BUILD/chexnet" train "${SMALL[@]}" --data "$SCRATCH/data" --output "$WORK/shared" --steps 3
	[ "$status" = 64 ] # another step of the same run
	[[ $stderr == *": another training writes to it ("* ]]
	[ -e "$WORK/shared/lock" ]
	kill -TERM "$(pid_of_rank 0 shared)"
	wait $srun || true
	[ "$(cat "$WORK/shared.status")" = 75 ]
	[ ! -e "$WORK/shared/lock" ]
	# tasks of a container that has none of the step's variables
	run in_cluster srun -Q -N1 -n2 -k --kill-on-bad-exit=0 env -i PATH="$PATH" "$BUILD/chexnet" train "${SMALL[@]}" --data "$SCRATCH/data" --output "$WORK/lonely" --steps 1000000 --max-seconds 9 --batch 4 --threads 1
	[ "$status" = 75 ]
	[[ $output == *"remove $WORK/lonely/lock; if one srun started both, they are no world, as nothing gave them its SLURM_* and PMIX_* variables ("* ]]

	# a holder whose lock outlives it, as a file server may keep that of a node that went down
	flock "$WORK/shared/lock" bash -c "cp $WORK/lock $WORK/shared/lock; exec sleep 60" 3>&- &
	keeper=$!
	wait_for 5 test -s "$WORK/shared/lock"
	run in_cluster env SLURM_JOB_ID="$job" SLURM_RESTART_COUNT=1 "$BUILD/chexnet" train "${SMALL[@]}" --data "$SCRATCH/data" --output "$WORK/shared" --steps 1000000 --batch 4 --max-seconds 1e-6 --resume auto
	pkill -P $keeper
	echo "$output"
	[ "$status" = 75 ]
	[ ! -e "$WORK/shared/lock" ]

	# killed without a chance to tidy up: nothing in the way of the next
	train chexnet dead "-N1 -n1" --steps 1000000 --batch 4 --checkpoint-every 2 3>&- &
	srun=$!
	wait_for 20 reached dead 3
	kill -9 "$(pid_of_rank 0 dead)"
	wait $srun || true
	[ -e "$WORK/dead/lock" ]
	train chexnet dead "-N1 -n1" --steps 1000000 --batch 4 --max-seconds 1e-6 --resume auto || true
	[ "$(cat "$WORK/dead.status")" = 75 ]
}

@test "a training whose job Slurm started again elsewhere, as where its node was cut off, writes no more to the directory" {
	train chexnet lost "-N1 -n2" --steps 1000000 --batch 4 --checkpoint-every 5 --eval-every 1000000 3>&- &
	srun=$!
	wait_for 20 reached lost 12
	job=$(sed 's/.*Slurm job \([0-9]*\).*/\1/' "$WORK/lost/lock")
	# a later run that waits for the lock less long than its ranks wait for each other
	HVD_DEADLINE=4 run -75 in_cluster srun -Q -O --mpi=pmix -N1 -n2 env SLURM_JOB_ID="$job" SLURM_RESTART_COUNT=1 "$BUILD/chexnet" train "${SMALL[@]}" --data "$SCRATCH/data" --output "$WORK/lost" \
		--steps 1000000 --batch 4 --max-seconds 5 --resume auto
	kill -TERM "$(pid_of_rank 0 lost)" || true
	wait $srun || true
	cat "$WORK/lost.err"
	[ "$(cat "$WORK/lost.status")" = 70 ]
	[ "$(grep -c "$WORK/lost: another training has taken it over (n[12], process [0-9]*, Slurm job $job, run 1), as where" "$WORK/lost.err")" = 1 ]
	[ ! -e "$WORK/lost/lock" ]
}

@test "where the file server lends no locks, a line says what to see to, and nothing of another training is removed" {
	local line="$WORK/free/lock: cannot be locked (No locks available): see to it that no other training writes to $WORK/free"
	run -0 "$BUILD/tests/wrap_file_lock" train "${SMALL[@]}" --data "$SCRATCH/data" --output "$WORK/free" --steps 2 --batch 4
	[ "$(grep -c "cannot be locked" <<<"$output")" = 1 ]
	grep -Fqx "$line" <<<"$output"
	# what may be another one's that is at work
	touch "$WORK/free/best.safetensors.partial-01234567"
	run -0 "$BUILD/tests/wrap_file_lock" train "${SMALL[@]}" --data "$SCRATCH/data" --output "$WORK/free" --steps 4 --batch 4 --resume auto
	grep -Fqx "$line, and remove what killed ones left there half-written: best.safetensors.partial-01234567" <<<"$output"
	touch "$WORK/free/test.csv.partial-01234567"
	run -0 "$BUILD/tests/wrap_file_lock" train "${SMALL[@]}" --data "$SCRATCH/data" --output "$WORK/free" --steps 6 --batch 4 --resume auto
	grep -E "left there half-written: (best.safetensors|test.csv).partial-01234567 and others like it$" <<<"$output"
	[ "$(find "$WORK/free" -name "*.partial-*" | wc -l)" = 2 ]
	# one that has the lock tidies up
	"$BUILD/chexnet" train "${SMALL[@]}" --data "$SCRATCH/data" --output "$WORK/free" --steps 8 --batch 4 --resume auto
	[ "$(find "$WORK/free" -name "*.partial-*" | wc -l)" = 0 ]
}

@test "a log whose last line was cut short loses nothing but that line" {
	train chexnet torn "-N1 -n1" --steps 4 --batch 4 --seed 7
	printf '{"event":"step","ti' >>"$WORK/torn.json"
	train chexnet torn "-N1 -n1" --steps 8 --batch 4 --resume auto --seed 1
	grep -q "^the seed stays that of the checkpoint, not --seed=1$" "$WORK/torn.out"
	[ "$(grep -c '^{"event":"start",.*}$' "$WORK/torn.json")" = 2 ]
	run ! grep "nothing is trained" "$WORK/torn.out"
	run ! grep -v '^{.*}$' "$WORK/torn.json"
}

@test "trainings of the same second have directories of their own" {
	mkdir "$WORK/dated"
	cd "$WORK/dated"
	for i in 1 2 3 4; do
		"$BUILD/chexnet" train "${SMALL[@]}" --data "$SCRATCH/data" --steps 2 >"$WORK/dated$i.out" 2>"$WORK/dated$i.err" 3>&- &
	done
	wait
	[ "$(find "$WORK/dated" -name model.safetensors | wc -l)" = 4 ]
}

@test "all ranks go back to the same checkpoint when the latest is damaged" {
	train chexnet sound "-N1 -n2" --steps 30 --batch 8 --checkpoint-every 10
	cp -r "$WORK/sound" "$WORK/hurt"
	truncate -s 2000 "$WORK/hurt/checkpoint-00000030.safetensors"
	train chexnet hurt "-N2 -n2" --steps 30 --batch 8 --checkpoint-every 10 --resume auto
	[ "$(grep -c "hurt/checkpoint-00000030.safetensors: .*: --resume=auto goes back to .*/checkpoint-00000020.safetensors" "$WORK/hurt.out")" = 1 ]
	diff <(steps sound hash | tail -n 10) <(steps hurt hash)
	cmp "$WORK/sound/checkpoint-00000030.safetensors" "$WORK/hurt/checkpoint-00000030.safetensors"
}

@test "evaluation scores every image once, whatever the number of ranks" {
	train chexnet model "-N1 -n2" --steps 30 --batch 8
	for n in 1 3; do
		in_cluster srun -Q -O --mpi=pmix -N1 -n$n "$BUILD/chexnet" eval --weights "$WORK/model/model.safetensors" --data "$SCRATCH/data" --split train \
			--batch 7 --resamples 0 --json --predictions "$WORK/$n.csv" >"$WORK/$n.out"
	done
	[ "$(grep -c '^[0-9]' "$WORK/1.csv")" -gt 200 ]
	diff <(grep -v '^#' "$WORK/1.csv") <(grep -v '^#' "$WORK/3.csv")
	[ "$(cut -d, -f1 "$WORK/3.csv" | sort | uniq -d | wc -l)" = 0 ]
	auroc() { grep -m 1 '"auroc"' "$1" | sed 's/.*: *\t*\([0-9.]*\).*/\1/'; }
	awk "BEGIN { d = $(auroc "$WORK/1.out") - $(auroc "$WORK/3.out"); exit !(d < 1e-6 && d > -1e-6) }"
	# ranks that would leave other labels out do not judge together
	# shellcheck disable=SC2016 # for the tasks' shells
	run --separate-stderr -65 in_cluster srun -Q -O --mpi=pmix -N1 -n2 bash -c "exec $BUILD/chexnet eval --weights $WORK/model/model.safetensors --data $SCRATCH/data \
		--resamples 0 \$([ \$SLURM_PROCID = 0 ] || echo --mask=Mass)"
	[[ $stderr == *"the data set differs between ranks: "*"the same --mask"* ]]
}

@test "every rank scores the test split with the best weights, not with its last" {
	train chexnet best "-N2 -n3" --steps 20 --batch 8 --eval-every 1 --warmup-epochs 0 # so slowly that step 5 is best however a CPU rounds
	step=$(sed -n 's/^takes the weights of step \([0-9]*\),.*/\1/p' "$WORK/best.out")
	[ "$(grep -ao '"step":"[0-9]*"' "$WORK/best/model.safetensors")" = "\"step\":\"$step\"" ]
	"$BUILD/chexnet" eval --weights "$WORK/best/model.safetensors" --data "$SCRATCH/data" --resamples 0 --predictions "$WORK/one.csv" >"$WORK/one.out"
	diff <(sed '1s/ command=[^ ]*//' "$WORK/one.csv") <(sed '1s/ command=[^ ]*//' "$WORK/best/test.csv") # with the same of weights, data and training
}

@test "the batch that --batch=auto finds is the one that fits on the rank with the least memory" {
	# shellcheck disable=SC2016 # for the tasks' shells
	in_cluster srun -Q -O --mpi=pmix -N2 -n2 bash -c 'export TEST_MEMORY=$((1 << (SLURM_PROCID ? 22 : 34))); exec "$@"' - "$BUILD/tests/wrap_memory_available" \
		train "${SMALL[@]}" --data "$SCRATCH/data" --output "$WORK/auto" --batch auto --steps 1 >"$WORK/auto.out"
	batch=$(sed -n 's/^--batch=auto: \([0-9]*\) images.*/\1/p' "$WORK/auto.out")
	[ "$batch" -ge 1 ]
	[ "$batch" -lt 256 ]
	grep -q "^global batch $((2 * batch)) = 2 ranks x 1 micro-batch of $batch;" "$WORK/auto.out"
}

@test "a rank with another seed, rate or network than rank 0 ends the training before its first step, with the option's name, once" {
	local options row
	# shellcheck disable=SC2016 # for the tasks' shells
	for row in 'seed --seed $RANDOM$SLURM_PROCID' 'learning-rate --learning-rate 1e-$((SLURM_PROCID+3))' 'blocks --blocks 2,$((SLURM_PROCID+1))' 'augment $([ $SLURM_PROCID = 1 ] && echo --no-augment)' \
		'resume $([ $SLURM_PROCID = 0 ] && echo --resume=auto)'; do
		options="${SMALL[*]} --data $SCRATCH/data --output $WORK/differs --steps 3 ${row#* }"
		run --separate-stderr -64 in_cluster srun -Q -O --mpi=pmix -N1 -n2 bash -c "exec $BUILD/chexnet train $options"
		[ "$(grep chexnet <<<"$stderr")" = "chexnet train: --${row%% *} is not on rank 1 what it is on rank 0: every rank needs the same (is it drawn or reckoned in each task?)" ]
	done
	[ ! -e "$WORK/differs" ]
	# what may be a rank's own
	run -0 in_cluster srun -Q -O --mpi=pmix -N1 -n2 bash -c "exec $BUILD/chexnet train ${SMALL[*]} --data $SCRATCH/data --output $WORK/own --steps 3 --threads \$((SLURM_PROCID+1)) --data-memory \$((9-SLURM_PROCID)) \
		\$([ \$SLURM_PROCID != 0 ] || echo --log-json $WORK/own.json)"
	grep -q '"event":"end"' "$WORK/own.json"
}

@test "a batch script or a shell of salloc that starts no step, and a rank that sees several GPUs, are told of srun --hvd" {
	local one="$BUILD/chexnet train ${SMALL[*]} --data $SCRATCH/data --output $WORK/lonely --resume auto --steps 1"
	in_cluster sbatch -Q -W -N2 -o "$WORK/nodes" --wrap "$one"
	in_cluster sbatch -Q -W -N1 --gpus=2 -o "$WORK/gpus" --wrap "$one"
	in_cluster sbatch -Q -W -N2 --gpus-per-node=2 -o "$WORK/wanted" --wrap "srun -Q -N1 -n1 --gpus-per-node=1 $one"
	# shellcheck disable=SC2086
	in_cluster salloc -Q -N1 $one >"$WORK/shell"
	cat "$WORK/nodes" "$WORK/gpus" "$WORK/wanted" "$WORK/shell"
	grep -qx 'warning: one rank in a job of 2 nodes: srun --gpu-bind=socket --hvd starts one for each GPU' "$WORK/nodes"
	grep -qx 'warning: one rank, which computes on one of GPUs 0,1 at most: srun --gpu-bind=socket --hvd starts one for each' "$WORK/gpus"
	grep -qx 'warning: one rank, and not on a node of this job: srun --gpu-bind=socket --hvd starts one there for each GPU' "$WORK/shell"
	grep -qx '1 rank on 1 node, collectives: single' "$WORK/wanted"
	[[ $(<"$WORK/wanted") != *"warning: one rank"* ]]
}

@test "what is wrong with the command line or the data is said once" {
	run --separate-stderr -64 in_cluster srun -Q -O --mpi=pmix -N1 -n4 "$BUILD/chexnet" train --bacth 3
	[ "$(grep chexnet <<<"$stderr")" = "chexnet train: unknown option --bacth; did you mean --batch?" ]
	# an option that is one rank's alone
	run --separate-stderr -64 in_cluster srun -Q -O --mpi=pmix -N1 -n4 bash -c "exec $BUILD/chexnet train \$([ \$SLURM_PROCID != 2 ] || echo --bacth=3) --engine cpu"
	[ "$(grep chexnet <<<"$stderr")" = "chexnet train: rank 2 on n1: unknown option --bacth; did you mean --batch?" ]
	run --separate-stderr -64 in_cluster srun -Q -O --mpi=pmix -N1 -n4 bash -c "exec $BUILD/chexnet train \$([ \$SLURM_PROCID != 2 ] || echo --preset=dell) --engine cpu"
	[ "$(grep chexnet <<<"$stderr")" = "chexnet train: rank 2 on n1: --preset=dell: did you mean dell2019?" ]
	# and where what it says is right, and the others do not say it
	run --separate-stderr -64 in_cluster srun -Q -O --mpi=pmix -N1 -n4 bash -c "exec $BUILD/chexnet train \$([ \$SLURM_PROCID != 2 ] || echo --engine cpu)"
	[ "$(grep chexnet <<<"$stderr")" = "chexnet train: rank 2 on n1 wants back end cpu, rank 0 wants auto: give all ranks the same --engine, where cpu and reference want cpu, and the same HVD_BACKEND" ]
	run --separate-stderr -70 in_cluster srun -Q -O --mpi=pmix -N1 -n4 bash -c "[ \$SLURM_PROCID != 2 ] || export HVD_WIRE=bf16; exec $BUILD/chexnet train"
	[ "$(grep chexnet <<<"$stderr")" = "chexnet train: rank 2 on n1 has another HVD_WIRE than rank 0" ]
	# where the others have no world, nobody waits for them
	SECONDS=0
	run --separate-stderr -64 in_cluster srun -Q -O --mpi=pmix -N1 -n2 bash -c "exec $BUILD/chexnet bench --plan --gpu a100 --image-size 64 \$([ \$SLURM_PROCID != 1 ] || echo --steps=3)"
	[ "$(grep chexnet <<<"$stderr")" = "chexnet bench: --steps=3: --plan makes none" ]
	[ "$SECONDS" -lt 30 ]
	run --separate-stderr -65 in_cluster srun -Q -O --mpi=pmix -N1 -n4 "$BUILD/chexnet" train --data "$WORK/nowhere" --output "$WORK/x"
	[ "$(grep -c chexnet <<<"$stderr")" = 1 ]
	[ ! -e "$WORK/x" ]
}

@test "the batch script starts a training again that saved early, also where slurm.conf does not, and only with --resume" {
	need_plugin
	local job words
	echo "required $BUILD/spank_hvd.so topology=$CLUSTER/topology.xml proc=$CLUSTER/proc" >"$CLUSTER/etc/plugstack.conf"
	ln -s "$BUILD/chexnet" "$WORK/chexnet"
	told() { grep -qs "$1" "$WORK/run1/log.jsonl"; }
	for words in "" "--resume auto"; do
		rm -rf "$WORK/run1"
		# shellcheck disable=SC2086
		job=$(in_cluster sbatch --parsable -D "$WORK" --nodes=1 --gpus-per-node=2 --cpus-per-gpu=1 --output=job.out "$TOP/contrib/sbatch/chexnet.sbatch" \
			train "${SMALL[@]}" --data "$SCRATCH/data" --output run1 --steps 2000 --batch 8 $words)
		wait_for 30 told '"event":"step".*"step":10,'
		in_cluster scancel --signal=USR1 "$job"
		wait_for 60 job_is "$job" FAILED COMPLETED
		cat "$WORK/job.out"
		in_cluster scontrol show job "$job" | xargs | grep -E "$([ -z "$words" ] && echo "JobState=FAILED .* Restarts=0 .* ExitCode=75:0" || echo "JobState=COMPLETED .* Restarts=1 .* ExitCode=0:0")"
	done
	# a job that its user has cancelled saves as well, and is not to be started again
	rm -rf "$WORK/run1"
	job=$(in_cluster sbatch --parsable -D "$WORK" --nodes=1 --gpus-per-node=2 --cpus-per-gpu=1 --output=job.out "$TOP/contrib/sbatch/chexnet.sbatch" \
		train "${SMALL[@]}" --data "$SCRATCH/data" --output run1 --steps 2000 --batch 8 --resume auto)
	wait_for 30 told '"event":"step".*"step":10,'
	in_cluster scancel "$job"
	wait_for 60 told '"event":"end"'
	sleep 3
	cat "$WORK/job.out"
	in_cluster scontrol show job "$job" | xargs | grep -E 'JobState=CANCELLED .* Restarts=0 '
}

@test "the batch script starts again the task of an array that saved early, and no other" {
	need_plugin
	local job single
	echo "required $BUILD/spank_hvd.so topology=$CLUSTER/topology.xml proc=$CLUSTER/proc" >"$CLUSTER/etc/plugstack.conf"
	# the last task has the array's own number as its job's
	printf '#!/bin/bash\necho "$SLURM_ARRAY_TASK_ID" >>starts\n[ "$SLURM_ARRAY_TASK_ID${SLURM_RESTART_COUNT:-0}" != 20 ] || { sleep 3; exit 75; }\n' >"$WORK/chexnet"
	chmod +x "$WORK/chexnet"
	job=$(in_cluster sbatch --parsable -D "$WORK" --array=1-2%1 --nodes=1 --ntasks=1 --gpus-per-node=1 --cpus-per-gpu=1 --output=job.out "$TOP/contrib/sbatch/chexnet.sbatch" --resume auto)
	restarted() { in_cluster scontrol show job "${job}_2" | xargs | grep -E 'JobState=COMPLETED .* Restarts=1 '; }
	wait_for 60 restarted
	cat "$WORK/job.out"
	[ "$(sort "$WORK/starts" | xargs)" = "1 2 2" ]
	# a job of its own that a task of that array submits
	rm "$WORK/starts"
	single=$(SLURM_ARRAY_JOB_ID=$job SLURM_ARRAY_TASK_ID=2 in_cluster sbatch --parsable -D "$WORK" --nodes=1 --ntasks=1 --gpus-per-node=1 --cpus-per-gpu=1 --output=job.out \
		"$TOP/contrib/sbatch/chexnet.sbatch" --resume=auto)
	restarted() { in_cluster scontrol show job "$single" | xargs | grep -E 'JobState=COMPLETED .* Restarts=1 '; }
	wait_for 60 restarted
	[ "$(xargs <"$WORK/starts")" = "2 2" ]
	# from a file it would begin anew
	single=$(SLURM_ARRAY_TASK_ID=2 in_cluster sbatch --parsable -D "$WORK" --nodes=1 --ntasks=1 --gpus-per-node=1 --cpus-per-gpu=1 --output=job.out \
		"$TOP/contrib/sbatch/chexnet.sbatch" --resume auto.safetensors)
	wait_for 60 job_is "$single" FAILED COMPLETED
	in_cluster scontrol show job "$single" | xargs | grep -E 'JobState=FAILED .* Restarts=0 .* ExitCode=75:0'
}

@test "README's whole job: told to stop it saves, RequeueExit=75 starts it again, and it goes on to its end" {
	need_plugin
	local job
	echo "required $BUILD/spank_hvd.so topology=$CLUSTER/topology.xml proc=$CLUSTER/proc" >"$CLUSTER/etc/plugstack.conf"
	grep '^RequeueExit=75' "$TOP/etc/slurm.conf.fragment" >>"$CLUSTER/etc/slurm.conf"
	in_cluster scontrol reconfigure
	ln -s "$BUILD/chexnet" "$WORK/chexnet"
	sed -n '/^    #!/,/^    srun/s/^    //p' "$TOP/README.md" | sed "s|/data/nih256|$SCRATCH/data|; /^srun/s|\$| ${SMALL[*]} --steps 300 --batch 8|" >"$WORK/job"
	job=$(in_cluster sbatch --parsable -D "$WORK" --nodes=2 --gpus-per-node=2 --cpus-per-gpu=1 --output=job.out "$WORK/job")
	told() { grep -qs "$1" "$WORK/run1/log.jsonl"; }
	wait_for 30 told '"event":"step".*"step":10,'
	in_cluster scancel --signal=USR1 "$job"
	wait_for 60 told '"event":"end".*"code":0,'
	cat "$WORK/job.out"
	[ "$(grep -c '^stopped at step .*, all saved: ' "$WORK/job.out")" -eq 1 ]
	[ "$(grep -c '^resumes at step ' "$WORK/job.out")" -eq 1 ]
	[ "$(grep -c '^4 ranks on 2 nodes, ' "$WORK/job.out")" -eq 2 ]
	grep -qx 'model run1/model.safetensors' "$WORK/job.out"
	# and the batch script, which asks for that itself, is started once more and not twice
	rm -rf "$WORK/run1"
	job=$(in_cluster sbatch --parsable -D "$WORK" --nodes=1 --gpus-per-node=2 --cpus-per-gpu=1 --output=job.out "$TOP/contrib/sbatch/chexnet.sbatch" \
		train "${SMALL[@]}" --data "$SCRATCH/data" --output run1 --steps 2000 --batch 8 --resume auto)
	wait_for 30 told '"event":"step".*"step":10,'
	in_cluster scancel --signal=USR1 "$job"
	wait_for 60 job_is "$job" FAILED COMPLETED
	in_cluster scontrol show job "$job" | xargs | grep -E 'JobState=COMPLETED .* Restarts=1 .* ExitCode=0:0'
}
