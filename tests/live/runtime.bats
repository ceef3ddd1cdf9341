#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# libhvd in job steps: worlds of every shape, and what happens when a rank is missing, dies or stops.

load helpers

setup_file() {
	[ -e "$BUILD/libhvd.so" ] || skip "libhvd.so is not built (no PMIx headers)"
	cluster_up --plugin none --conf <(printf '%s\n' JobCompType=jobcomp/filetxt "JobCompLoc=$CLUSTER/log/jobs")
	need_pmix
	"${CC:-gcc}" -D_GNU_SOURCE -O1 ${SAN:+-fsanitize=${SAN/#1/address},undefined} -I"$TOP/runtime" -o "$SCRATCH/again" "$BATS_TEST_DIRNAME/again.c" -L"$BUILD" -lhvd -Wl,-rpath,"$BUILD"
	export EXAMPLES=$BUILD/examples NODES=EXCLUSIVE
	jobs_have $NODES
	# Slurm 24.11 lets a job of more tasks than cores wait for ever for a node of its own
	in_cluster timeout -s KILL 10 srun -Q -O -N1 -n4 true || NODES=NO
	jobs_have $NODES
}
teardown_file() { cluster_down; }
teardown() { cluster_logs; }

# EXCLUSIVE: all cores of their nodes; NO: with -O a single one.
jobs_have() { in_cluster scontrol update PartitionName=all OverSubscribe="$1"; }

step() { in_cluster srun -Q --mpi=pmix -O "$@"; }

# Four ranks on two nodes run the gradients example; once they have done a step, rank $1 gets signal $2.
step_with_victim() { # RANK SIGNAL OPTION…
	local victim=$1 signal=$2
	shift 2
	rm -f "$SCRATCH"/steps.*
	# shellcheck disable=SC2016
	step -N2 -n4 --ntasks-per-node=2 "$@" bash -c '
		if [ "$SLURM_PROCID" = "$1" ]; then
			"$0" 100000 >"$3.$SLURM_PROCID" &
			for ((i = 0; i < 300; i++)); do ! grep -qs "^step" "$3".* || break; sleep 0.1; done
			kill -"$2" $!; wait $!; exit 137
		fi
		exec "$0" 100000 >"$3.$SLURM_PROCID"' "$EXAMPLES/gradients" "$victim" "$signal" "$SCRATCH/steps"
}

# Every line of hvd-bench's table ends with 0 wrong elements.
table_is_right() { [ -z "$(grep -v '^#\|bytes' <<<"$output" | grep -v ' 0$')" ]; }

nothing_left() {
	! pgrep -f "$EXAMPLES/" && [ -z "$(hvd_cluster node 1 ls /dev/shm)$(hvd_cluster node 2 ls /dev/shm)" ]
}

@test "four ranks on two nodes are one world" {
	run step -N2 -n4 --ntasks-per-node=2 "$EXAMPLES/mean"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c 'of 4.*mean 1.500' <<<"$output")" -eq 4 ]
	grep -q 'rank 0 of 4, number 0 of 2 on node n1 (0 of 2)' <<<"$output"
	grep -q 'rank 3 of 4, number 1 of 2 on node n2 (1 of 2)' <<<"$output"
}

@test "four ranks on one node, and ranks dealt out cyclically" {
	run step -N1 -n4 "$EXAMPLES/mean"
	[ "$(grep -c 'of 4 on node n1 (0 of 1): mean 1.500' <<<"$output")" -eq 4 ]
	run step -N2 -n4 --distribution=cyclic "$EXAMPLES/mean"
	echo "$output"
	grep -q 'rank 2 of 4, number 1 of 2 on node n1 (0 of 2): mean 1.500' <<<"$output"
	grep -q 'rank 1 of 4, number 0 of 2 on node n2 (1 of 2): mean 1.500' <<<"$output"
}

@test "sums are the serial sums bit for bit, on one node and on two, block and cyclic" {
	local shape
	for shape in "-N1 -n4" "-N2 -n4 --ntasks-per-node=2" "-N2 -n4 --distribution=cyclic" "-N2 -n3"; do
		# shellcheck disable=SC2086
		run step $shape "$BUILD/hvd-bench" -b 4 -e 3M -n 3
		echo "$output"
		[ "$status" -eq 0 ]
		[ "$(grep -vc '^#\|bytes' <<<"$output")" -ge 9 ]
		table_is_right
	done
}

@test "a broadcast brings rank 0's bytes to all" {
	run step -N2 -n4 "$BUILD/hvd-bench" -c broadcast -b 4 -e 3M -n 2
	echo "$output"
	[ "$status" -eq 0 ]
	table_is_right
}

@test "hvd-bench tells the start as the first rank sees it, and as the last" {
	# shellcheck disable=SC2016
	run step -n2 bash -c '[ $SLURM_PROCID = 0 ] || sleep 1; exec "$0" --start-up' "$BUILD/hvd-bench"
	echo "$output"
	[ "$status" -eq 0 ]
	awk '/verified/ && match($0, /verified [0-9.]+ ms after main\(\) of the first rank, [0-9.]+ of the last$/) {
		split(substr($0, RSTART), word, " ")
		late = word[2] > 500 && word[9] > 0 && word[2] - word[9] > 500
	} END { exit !late }' <<<"$output"
}

@test "no step, and a step of one task without PMIx, are worlds of one" {
	run env -u SLURM_STEP_NUM_TASKS -u PMIX_NAMESPACE "$EXAMPLES/mean"
	[ "$status" -eq 0 ]
	[[ $output == *"rank 0 of 1"* ]]
	run in_cluster srun -Q --mpi=none -n1 "$EXAMPLES/mean"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == "rank 0 of 1, number 0 of 1 on node n1 "* ]]
}

@test "a batch shell with four tasks is a world of one" {
	# shellcheck disable=SC2016
	run in_cluster bash -c 'sbatch -Q -W -n2 -o "$2" --wrap "$1" >/dev/null; cat "$2"' - "$EXAMPLES/mean" "$SCRATCH/batch.out"
	echo "$output"
	[[ $output == *"rank 0 of 1"* ]]
}

@test "more tasks without PMIx: an error with the cure" {
	run in_cluster srun -Q --mpi=none -O -n4 "$EXAMPLES/mean"
	echo "$output"
	[ "$status" -eq 70 ]
	[ "$(grep -c '4 tasks but no PMIx.*: start it with `srun --hvd` and no other --mpi or SLURM_MPI_TYPE, or with `srun --mpi=pmix`' <<<"$output")" -eq 4 ]
	# as in a container that was given the variables of Slurm alone
	run step -N1 -n2 env -u PMIX_NAMESPACE "$EXAMPLES/mean"
	echo "$output"
	[ "$status" -eq 70 ]
	[ "$(grep -c '2 tasks but no PMIx.* and let a container have the variables PMIX_\*$' <<<"$output")" -eq 2 ]
}

@test "a rank that may open or write too little says which limit it is" {
	run step -N1 -n3 --kill-on-bad-exit=0 bash -c 'ulimit -S -n 12; exec "$0"' "$EXAMPLES/mean" # which it may raise
	echo "$output"
	[ "$(grep -c 'of 3.*mean 1.000' <<<"$output")" -eq 3 ]
	run step -N1 -n3 --kill-on-bad-exit=0 bash -c 'ulimit -n 12; exec "$0"' "$EXAMPLES/mean"
	echo "$output"
	[ "$status" -eq 70 ]
	[ "$(grep -c '^mean: 12 open files are too few: raise the limit (ulimit -n)$' <<<"$output")" -eq 3 ]
	[ "$(grep -vc '^mean: \|^srun: ' <<<"$output")" -eq 0 ] # and nothing of PMIx's own
	HVD_DEADLINE=5 run step -N1 -n3 --kill-on-bad-exit=0 bash -c 'ulimit -f 100; exec "$0"' "$EXAMPLES/mean"
	echo "$output"
	[ "$(grep -c ': File too large (ulimit -f: shared memory counts as a file)$' <<<"$output")" -eq 3 ]
}

@test "a library without PMIx in it is named" {
	mkdir -p "$SCRATCH/lib"
	cp "$(gcc -print-file-name=libm.so.6)" "$SCRATCH/lib/libpmix.so.2"
	run in_cluster srun -Q --mpi=pmix -O -n2 env "LD_LIBRARY_PATH=$SCRATCH/lib" "$EXAMPLES/mean"
	echo "$output"
	[ "$status" -eq 70 ]
	[[ $output == *"libpmix.so.2 has no PMIx_Init; libhvd was built with OpenPMIx"* ]]
}

@test "where PMIx alone says who there is, as under another launcher, the world is the same" {
	# shellcheck disable=SC2016
	run step -N2 -n4 --ntasks-per-node=2 bash -c 'unset "${!SLURM@}"; exec "$0"' "$EXAMPLES/mean"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c 'of 4, .*mean 1.500' <<<"$output")" -eq 4 ]
	grep -q 'rank 0 of 4, number 0 of 2 on node n1 (0 of 2)' <<<"$output"
	grep -q 'rank 3 of 4, number 1 of 2 on node n2 (1 of 2)' <<<"$output"
}

@test "nodes with different versions of libhvd: an error that says so, from each node that rank 0 is not on" {
	mkdir -p "$SCRATCH/short"
	"${CC:-gcc}" -O1 -shared -fPIC -o "$SCRATCH/short/libpmix.so.2" "$BATS_TEST_DIRNAME/pmix_short.c"
	TEST_PMIX=$(PATH=$PATH:/sbin ldconfig -p | sed -n 's/.*libpmix\.so\.2 .*=> //p' | head -n 1)
	[ -n "$TEST_PMIX" ] || skip "libpmix.so.2 is in a directory of its own"
	export TEST_PMIX
	# shellcheck disable=SC2016
	HVD_DEADLINE=3 run step -N2 -n3 --kill-on-bad-exit=0 bash -c '[ "$SLURM_PROCID" != 0 ] || export LD_LIBRARY_PATH=$1; exec "$0"' "$EXAMPLES/mean" "$SCRATCH/short"
	echo "$output"
	[ "$status" -eq 70 ]
	grep -q "rank 0 runs another version of libhvd than rank 2 on n2 ([0-9.]*): install one version on all nodes" <<<"$output"
}

@test "one rank a node talks PMIx; the others do without its library" {
	mkdir -p "$SCRATCH/lib"
	cp "$(gcc -print-file-name=libm.so.6)" "$SCRATCH/lib/libpmix.so.2" # no rank can use this one
	# shellcheck disable=SC2016
	run step -N2 -n4 --ntasks-per-node=2 bash -c '[ "$SLURM_LOCALID" = 0 ] || export LD_LIBRARY_PATH=$1; exec "$0"' "$EXAMPLES/mean" "$SCRATCH/lib"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c 'of 4.*mean 1.500' <<<"$output")" -eq 4 ]
}

@test "a first rank that is late, by more than a node's PMIx server waits, is waited for; one that never comes is named at the deadline" {
	# shellcheck disable=SC2016
	HVD_DEADLINE=20 run step -N1 -n3 bash -c '[ "$SLURM_PROCID" != 0 ] || sleep 5; exec "$0"' "$EXAMPLES/mean"
	echo "$output"
	[ "$(grep -c 'of 3.*mean 1.000' <<<"$output")" -eq 3 ]
	# shellcheck disable=SC2016
	HVD_DEADLINE=5 run step -N1 -n3 bash -c '[ "$SLURM_PROCID" != 0 ] || exec sleep 12; exec "$0"' "$EXAMPLES/mean"
	echo "$output"
	[ "$(grep -c 'rank 0 on n1 did not join within 5 s (not started, ' <<<"$output")" -eq 2 ]
}

@test "where another user holds the name of a node's meeting place, and where the first rank is late, every rank asks PMIx" {
	# shellcheck disable=SC2016
	run step -N2 -n4 --ntasks-per-node=2 bash -c '[ "$SLURM_PROCID" != 2 ] || sleep 1.5; exec "$0"' "$EXAMPLES/mean"
	echo "$output"
	[ "$(grep -c 'of 4.*mean 1.500' <<<"$output")" -eq 4 ]
	[ "$(id -u)" -eq 0 ] && command -v python3 >/dev/null || skip "the other half needs root and python3"
	local job held=$SCRATCH/held
	# shellcheck disable=SC2016
	job=$(in_cluster srun -Q -n1 bash -c 'echo $SLURM_JOB_ID')
	hvd_cluster node 1 python3 -c '
import os, socket, sys, time
kept = []
said = open(sys.argv[2], "w")
os.setuid(65534)
for job in range(int(sys.argv[1]), int(sys.argv[1]) + 50):
    kept.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    kept[-1].bind("\0hvd-slurm.pmix.%d.0-0" % job)
    kept[-1].listen()
said.write("held")
said.close()
time.sleep(30)' "$job" "$held" 3>&- &
	local holder=$!
	wait_for 10 test -s "$held"
	# the second program is told the first one's card, and has to ask again
	# shellcheck disable=SC2016
	HVD_DEADLINE=10 run step -N2 -n4 --ntasks-per-node=2 bash -c '"$0" 1 && "$0" 1' "$SCRATCH/again"
	kill $holder
	wait $holder || true
	echo "$output"
	[ "$(grep -c 'of 4.*mean 1.500' <<<"$output")" -eq 8 ]
}

@test "an interface that is not there: an error that lists those that are" {
	run env HVD_IFACE=eth77 HVD_DEADLINE=3 "$TOP/contrib/cluster/hvd-cluster" --dir "$CLUSTER" exec srun -Q --mpi=pmix -N2 -n2 "$EXAMPLES/mean"
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output == *"interface eth77 (HVD_IFACE) has no address; interfaces with one: "* ]]
	[ "$(sed -n 's/.*interfaces with one: //p' <<<"$output" | head -n 1 | tr ' ' '\n' | grep -cx lo)" -eq 1 ]
	HVD_DEADLINE=3 run step -N2 -n2 unshare --map-current-user --net "$EXAMPLES/mean"
	echo "$output"
	[ "$status" -ne 0 ]
	grep -q "n1: no network interface is up: is this a container without the host's network?" <<<"$output"
	# on one node only: the other's ranks hear of it long before the deadline
	SECONDS=0
	# shellcheck disable=SC2016
	HVD_DEADLINE=60 run step -N2 -n4 --ntasks-per-node=2 bash -c '[ "$SLURM_NODEID" = 0 ] || export HVD_IFACE=eth77; exec "$0"' "$EXAMPLES/mean"
	echo "$output"
	[ "$SECONDS" -lt 30 ]
	[ "$(grep -c 'rank [23] cannot join: n2: interface eth77 (HVD_IFACE) has no address' <<<"$output")" -eq 2 ]
	# one that is there, but leads nowhere
	run in_cluster env HVD_IFACE=lo HVD_DEADLINE=2 srun -Q --mpi=pmix -N2 -n2 "$EXAMPLES/mean"
	echo "$output"
	[ "$status" -eq 70 ]
	[[ $output == *"nobody listens at its address (it has ended, or given up; or HVD_IFACE: "* ]]
}

@test "one world after the other, in one process and in several programs of a step" {
	local nodes
	for nodes in 1 2; do
		# with the slow unwinder LeakSanitizer sees that what PMIx keeps is PMIx's
		# shellcheck disable=SC2016
		HVD_DEADLINE=20 ASAN_OPTIONS=${ASAN_OPTIONS:-}:fast_unwind_on_malloc=0 run step -N$nodes -n4 bash -c '"$0" 3 && "$0" 1 && "$0" 2' "$SCRATCH/again"
		echo "$output"
		[ "$status" -eq 0 ]
		[ "$(grep -c "world [012]: rank [0-3] of 4 on n[12], of $nodes: mean 1.500" <<<"$output")" -eq 24 ]
	done
}

@test "a rank that never joins is named within the deadline" {
	local victim
	for victim in 0 2; do
		SECONDS=0
		# shellcheck disable=SC2016
		run step -N2 -n4 --ntasks-per-node=2 --export=ALL,HVD_DEADLINE=2 bash -c '[ "$SLURM_PROCID" = "$1" ] || exec "$0"' "$EXAMPLES/mean" "$victim"
		echo "$output"
		[ "$status" -eq 70 ]
		[ "$SECONDS" -lt 30 ]
		[ "$(grep -c "rank $victim on n$((victim / 2 + 1)) did not join within 2[.0-9]* s" <<<"$output")" -ge 3 ]
	done
	nothing_left
}

@test "a rank killed while the world is being formed ends the step" {
	SECONDS=0
	# shellcheck disable=SC2016
	run step -N2 -n4 --ntasks-per-node=2 --export=ALL,HVD_DEADLINE=5 bash -c '
		case $SLURM_PROCID in
		1) sleep 100 ;;
		2) "$0" & sleep 1; kill -9 $!; exit 137 ;;
		*) exec "$0" ;;
		esac' "$EXAMPLES/mean"
	echo "$output"
	[ "$status" -ne 0 ]
	[ "$SECONDS" -lt 40 ] # far less than the sleeper's
	nothing_left
}

@test "an intruder is ignored, reported once, and the job goes on" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	[ "$(id -u)" = 0 ] || skip "only root may listen on a node's cable, as the intruder does"
	local go=$SCRATCH/go listening=$SCRATCH/listening out=$SCRATCH/intruder.out step
	in_cluster python3 "$BATS_TEST_DIRNAME/intruder.py" v1 "$listening" >"$out" 2>&1 3>&- &
	local intruder=$!
	wait_for 20 test -e "$listening"
	# rank 2 joins from n2, for the intruder to hear; the world is open until rank 3 does
	# shellcheck disable=SC2016
	step -N2 -n4 --ntasks-per-node=2 bash -c '
		for ((i = 0; i < 600 && SLURM_PROCID == 3; i++)); do [ ! -e "$1" ] || break; sleep 0.1; done
		exec "$0"' "$EXAMPLES/mean" "$go" >"$SCRATCH/step.out" 2>&1 3>&- &
	step=$!
	wait_for 30 grep -q "a port scan" "$out" || { cat "$out"; touch "$go"; wait $step; return 1; }
	touch "$go"
	wait $intruder || { cat "$out"; wait $step; return 1; }
	wait $step || { cat "$SCRATCH/step.out"; return 1; }
	cat "$out" "$SCRATCH/step.out"
	[ "$(grep -c ': refused$' "$out")" -eq 5 ]
	[ "$(grep -c 'of 4.*mean 1.500' "$SCRATCH/step.out")" -eq 4 ]
	[ "$(grep -c 'ignored a connection from 198\.18\.0\.1 that is no rank of this job' "$SCRATCH/step.out")" -eq 1 ]
}

@test "kill -9 of any rank: every survivor names it and its node, and exits 70" {
	local victim kill survivor node
	for kill in 0 1; do
		for victim in 0 1 2 3; do
			node=n$((victim / 2 + 1))
			SECONDS=0
			run step_with_victim "$victim" KILL --kill-on-bad-exit=$kill
			echo "kill-on-bad-exit=$kill, rank $victim:"
			echo "$output"
			[ "$SECONDS" -lt 40 ]
			[ "$status" -ne 0 ]
			for survivor in 0 1 2 3; do
				[ "$survivor" -eq "$victim" ] || grep -q "hvd: rank $survivor on n$((survivor / 2 + 1)) lost rank $victim on $node.*: it died" <<<"$output"
			done
			[ "$(grep -c 'exit code 70' <<<"$output")" -eq 2 ] # one line a node that has survivors
			[[ $output != *"exit code 75"* ]]
		done
	done
	nothing_left
}

@test "Slurm's record of a job has its survivors' status, also where its script goes on and ends well" {
	rm -f "$SCRATCH"/steps.*
	cat >"$SCRATCH/job" <<-EOF
		#!/bin/bash
		srun -O --mpi=pmix -N2 -n4 bash -c '
			[ \$SLURM_PROCID != 1 ] || { until grep -qs ^step "$SCRATCH"/steps.*; do sleep 0.1; done; kill -9 \$\$; } &
			exec "$EXAMPLES/gradients" 100000 >"$SCRATCH/steps.\$SLURM_PROCID"'
		sleep 2 # slurmctld hears of a step's end from its nodes: of a script that ends at once it may hear before
		exit 0
	EOF
	ends_with 0 in_cluster sbatch -W -J recorded -N2 -n4 -O --output=/dev/null "$SCRATCH/job"
	wait_for 30 grep ' Name=recorded .*ExitCode=' "$CLUSTER/log/jobs" # Slurm writes it a moment later
	[[ $(grep ' Name=recorded ' "$CLUSTER/log/jobs") == *" JobState=COMPLETED "*" DerivedExitCode=70:0 ExitCode=0:0"* ]]
}

@test "a stopped rank is named within the deadline" {
	SECONDS=0
	HVD_DEADLINE=2 run step_with_victim 1 STOP --kill-on-bad-exit=0 # a SIGTERM might come before a line
	echo "$output"
	[ "$SECONDS" -lt 40 ]
	[ "$(grep -c '^hvd: rank [023] on n[12] lost rank 1 on n1.*no sign of life' <<<"$output")" -eq 3 ]
	nothing_left
}

jobs_run() { # NAME NUMBER
	[ "$(in_cluster squeue -h -t RUNNING -o %i --name "$1" | wc -w)" -eq "$2" ]
}

@test "jobs that are suspended for longer than the deadline go on when they are resumed" {
	jobs_have NO # so that both have room
	HVD_DEADLINE=2 step -N2 -n4 --job-name suspended "$EXAMPLES/gradients" 10000000 0 >"$SCRATCH/suspended.out" 2>&1 3>&- &
	local srun=$! jobs i
	HVD_DEADLINE=2 step -N2 -n2 --job-name suspended "$BUILD/hvd-bench" -b 64M -e 64M -n 10000 >"$SCRATCH/heavy.out" 2>&1 3>&- & # links full of data
	local heavy=$!
	wait_for 20 test -s "$SCRATCH/suspended.out"
	wait_for 20 jobs_run suspended 2
	jobs=$(in_cluster squeue -h -o %i --name suspended)
	for i in 1 2 3; do
		for job in $jobs; do in_cluster scontrol suspend "$job"; done
		sleep 5
		for job in $jobs; do in_cluster scontrol resume "$job"; done
		sleep 1
	done
	tail -n 5 "$SCRATCH/suspended.out" "$SCRATCH/heavy.out"
	for job in $jobs; do [ "$(job_state "$job")" = RUNNING ]; done
	! grep lost "$SCRATCH/suspended.out" "$SCRATCH/heavy.out" || false
	for job in $jobs; do in_cluster scancel "$job"; done
	wait $srun || true
	wait $heavy || true
	jobs_have "$NODES"
	nothing_left
}

@test "a stopped rank does not keep the step: a rank of its node ends it, or scancel does" {
	local shape
	for shape in "-N2 -n4 --ntasks-per-node=2" "-N2 -n2"; do # with a neighbour on its node, and alone there
		SECONDS=0
		rm -f "$SCRATCH/first-step"
		# shellcheck disable=SC2016,SC2086
		HVD_DEADLINE=2 run step $shape --kill-on-bad-exit=0 bash -c '
			if [ "$SLURM_PROCID" = 1 ]; then (until [ -s "$1" ]; do sleep 0.1; done; kill -STOP $$) & fi
			if [ "$SLURM_PROCID" = 0 ]; then exec "$0" 100000 >"$1"; fi
			exec "$0" 100000' "$EXAMPLES/gradients" "$SCRATCH/first-step"
		echo "$output"
		[ "$SECONDS" -lt 30 ]
		[ "$status" -ne 0 ]
		[ "$(grep -c '^hvd: rank [023] on n[12] lost rank 1 on n[12].*no sign of life' <<<"$output")" -ge 1 ]
	done
	nothing_left
}

@test "sub-worlds by node and across nodes, with a request under way" {
	run step -N2 -n4 --ntasks-per-node=2 "$EXAMPLES/nodes"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c 'on n1: 1 on this node, 6 in all' <<<"$output")" -eq 2 ]
	[ "$(grep -c 'on n2: 5 on this node, 6 in all' <<<"$output")" -eq 2 ]
}

@test "hvd-bench tells that there is nothing in NCCL's log without GPUs" {
	run step -N2 -n2 "$BUILD/hvd-bench" --to 1K --transports
	echo "$output"
	[ "$status" -eq 0 ]
	grep -q "^# no pairs in NCCL's log: back end cpu" <<<"$output"
}

@test "with on_death=continue the others go on, and finish" {
	# shellcheck disable=SC2016
	HVD_ON_DEATH=continue run step -N2 -n4 --ntasks-per-node=2 --kill-on-bad-exit=0 --no-kill bash -c '
		if [ "$SLURM_PROCID" = 0 ]; then
			"$0" 100000 >"$1" &
			until grep -qs "^step 5:" "$1"; do sleep 0.1; done
			kill -9 $!; wait $!; exit 137
		fi
		exec "$0" 100 20' "$EXAMPLES/gradients" "$SCRATCH/victim"
	echo "$output"
	[ "$(grep -c 'going on as rank [012] of 3' <<<"$output")" -eq 3 ]
	grep -q '^step 99: .* averaged over 3 ranks' <<<"$output"
	[ "$(grep -c 'exit code' <<<"$output")" -eq 1 ] # the victim's
	nothing_left
}

@test "the trace of a killed step names the straggler in every step" {
	# shellcheck disable=SC2016
	HVD_TRACE=$SCRATCH/trace run step -N2 -n4 --ntasks-per-node=2 bash -c '
		[ "$SLURM_PROCID" != 0 ] || (until grep -q "^step 30:" "$1.0" 2>/dev/null; do sleep 0.1; done; kill -9 $$) &
		exec "$0" 100000 $((20 + 130 * (SLURM_PROCID == 2))) >"$1.$SLURM_PROCID"' "$EXAMPLES/gradients" "$SCRATCH/steps"
	ls "$SCRATCH/trace"
	run "$BUILD/hvd-trace" --each --output "$SCRATCH/timeline.json" "$SCRATCH/trace"
	echo "$output" | tail -n 12
	[ "$status" -eq 0 ]
	[ "$(grep -c '^step' <<<"$output")" -ge 20 ]
	# where another program of this machine holds a rank up for longer than that, it is that rank that is named
	[ "$(grep -c '^step.*last to be ready rank 2 on n2' <<<"$output")" -ge "$(($(grep -c '^step' <<<"$output") * 9 / 10))" ]
	grep -q '^bottleneck: rank 2 on n2 is late' <<<"$output"
	# a step is 20 ms of sleep on three ranks and 150 on the fourth: 52 ms a rank, and what the three wait for it
	awk '/^  computing / { compute = $2 } /^  waiting for late ranks / { late = $5 } END { exit !(compute > 52 && late > 30) }' <<<"$output"
	grep -q '"name":"ALLREDUCE"' "$SCRATCH/timeline.json"
	[ "$(grep -c process_name "$SCRATCH/timeline.json")" -eq 4 ]
	! command -v python3 >/dev/null || python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$SCRATCH/timeline.json"
	# a rank twice, or ranks of worlds of other sizes, are not one step; a rank that is not there is told
	local first
	first=$(echo "$SCRATCH"/trace/*-rank00000.hvdtrace)
	# the timeline replaces an older one, and nothing else
	"$BUILD/hvd-trace" --output "$SCRATCH/timeline.json" "$SCRATCH/trace" >/dev/null
	for precious in "$first" "$SCRATCH/steps.0"; do
		run "$BUILD/hvd-trace" --output "$precious" "$SCRATCH/trace"
		[ "$status" -eq 64 ]
		[[ $output == *"hvd-trace: $precious is there and no timeline: name another file, or remove it first" ]]
	done
	if [ -e /sys/class/net/lo/speed ]; then # which can be opened and, of this device, not be read
		run "$BUILD/hvd-trace" --output /sys/class/net/lo/speed "$SCRATCH/trace"
		[ "$status" -eq 70 ]
		[[ $output == *"hvd-trace: /sys/class/net/lo/speed is there and cannot be read: Invalid argument: name another file, or remove it first" ]]
	fi
	chmod 600 "$SCRATCH/timeline.json"
	ln -s timeline.json "$SCRATCH/link.json"
	"$BUILD/hvd-trace" --output "$SCRATCH/link.json" "$SCRATCH/trace" >/dev/null
	[ -L "$SCRATCH/link.json" ]
	[ "$(stat -c %a "$SCRATCH/timeline.json")" = 600 ]
	if [ "$(id -u)" -eq 0 ]; then # a user's is written over where it is, as no new file is given away
		chown 4242:4343 "$SCRATCH/timeline.json"
		owner=$(stat -c %i:%a:%u:%g "$SCRATCH/timeline.json")
		"$BUILD/hvd-trace" --output "$SCRATCH/link.json" "$SCRATCH/trace" >/dev/null
		[ "$(stat -c %i:%a:%u:%g "$SCRATCH/timeline.json")" = "$owner" ]
		chown 0:0 "$SCRATCH/timeline.json"
	fi
	"$BUILD/hvd-trace" --output /dev/stderr "$SCRATCH/trace" 2>&1 >/dev/null | cmp - "$SCRATCH/timeline.json"
	run bash -c '"$0" --start-up >/dev/full' "$BUILD/hvd-bench"
	[ "$status" -eq 70 ]
	run "$BUILD/hvd-trace" --output /dev/full "$SCRATCH/trace"
	[ "$status" -eq 70 ]
	grep -qx "hvd-trace: /dev/full is not complete: No space left on device" <<<"$output"
	# an old timeline stays where the new one has no room
	cp "$SCRATCH/timeline.json" "$SCRATCH/old.json"
	run bash -c 'ulimit -f 4; exec "$0" --output "$1" "$2"' "$BUILD/hvd-trace" "$SCRATCH/link.json" "$SCRATCH/trace"
	[ "$status" -eq 70 ]
	grep -qx "hvd-trace: $SCRATCH/link.json is not complete, the old one stays: File too large" <<<"$output"
	cmp "$SCRATCH/timeline.json" "$SCRATCH/old.json"
	[ -z "$(compgen -G "$SCRATCH/timeline.json.*")" ]
	# where nothing can be made beside it, it is written over
	local long
	long=$SCRATCH/$(printf '%0250d' 0)
	echo >>"$SCRATCH/old.json"
	cp "$SCRATCH/old.json" "$long"
	"$BUILD/hvd-trace" --output "$long" "$SCRATCH/trace" >/dev/null
	cmp "$long" "$SCRATCH/timeline.json"
	exchanges "$long" "hvd-trace: $long: another file has taken its place meanwhile" "$BUILD/hvd-trace" --output "$long" "$SCRATCH/trace"
	[ "$status" -eq 70 ]
	run bash -c '"$0" "$1" >/dev/full' "$BUILD/hvd-trace" "$SCRATCH/trace"
	[ "$status" -eq 70 ]
	# one that is cut while it is read
	cp -r "$SCRATCH/trace" "$SCRATCH/cut"
	"${CC:-gcc}" -D_GNU_SOURCE -O1 -shared -fPIC -o "$SCRATCH/cut.so" -x c - <<-'END'
		#include <sys/syscall.h>
		#include <unistd.h>
		int truncate(const char *path, long size);
		int close(int fd)
		{
			char link[32] = "/proc/self/fd/0", path[4096] = "";
			link[14] = (char)('0' + fd % 10);
			ssize_t n = readlink(link, path, sizeof path - 1);
			if (n > 9 && !__builtin_memcmp(path + n - 9, ".hvdtrace", 9))
				truncate(path, 0);
			return (int)syscall(SYS_close, fd);
		}
	END
	run env ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0" LD_PRELOAD="$SCRATCH/cut.so" "$BUILD/hvd-trace" "$SCRATCH/cut"
	echo "$output"
	[ "$status" -eq 65 ]
	[ "$output" = "hvd-trace: a trace was cut meanwhile, or its file server does not give it any more" ]
	# … and while the timeline is written, of which nothing stays beside the old one
	cp -r "$SCRATCH/trace" "$SCRATCH/cut-later"
	"${CC:-gcc}" -D_GNU_SOURCE -O1 -shared -fPIC -o "$SCRATCH/cut-later.so" -x c - <<-'END'
		#include <fcntl.h>
		#include <stdlib.h>
		#include <unistd.h>
		int mkostemp(char *name, int flags);
		int mkstemp(char *name)
		{
			if (getenv("FORGE"))
				pwrite(open(getenv("FORGE"), O_WRONLY | O_CLOEXEC), "\"forged", 8, 8);
			else
				truncate(getenv("CUT"), 0);
			return mkostemp(name, 0);
		}
	END
	run env CUT="$(echo "$SCRATCH"/cut-later/*-rank00001.hvdtrace)" ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0" LD_PRELOAD="$SCRATCH/cut-later.so" \
		"$BUILD/hvd-trace" --output "$SCRATCH/timeline.json" "$SCRATCH/cut-later"
	echo "$output"
	[ "$status" -eq 65 ]
	[[ "$output" = *$'\nhvd-trace: a trace was cut meanwhile, or its file server does not give it any more' ]]
	cmp "$SCRATCH/timeline.json" <(head -c -1 "$SCRATCH/old.json")
	[ -z "$(compgen -G "$SCRATCH/timeline.json.*")" ]
	# a host that was looked at is the one that is shown, whatever its rank writes there meanwhile
	cp -r "$SCRATCH/trace" "$SCRATCH/forged"
	FORGE="$(echo "$SCRATCH"/forged/*-rank00001.hvdtrace)" ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0" LD_PRELOAD="$SCRATCH/cut-later.so" \
		"$BUILD/hvd-trace" --output "$SCRATCH/timeline.json" "$SCRATCH/forged" >/dev/null
	cmp "$SCRATCH/timeline.json" <(head -c -1 "$SCRATCH/old.json")
	run "$BUILD/hvd-trace" "$SCRATCH/trace" "$first"
	[ "$status" -eq 65 ]
	[ "$output" = "hvd-trace: the trace of rank 0 of 4 is named twice: name each file once" ]
	rm "$first"
	run "$BUILD/hvd-trace" "$SCRATCH/trace"
	[ "$status" -eq 0 ]
	grep -qx "hvd-trace: 3 of the step's 4 ranks: the others' traces are not here" <<<"$output"
	HVD_TRACE=$SCRATCH/trace "$BUILD/hvd-bench" --start-up # outside of the job
	run "$BUILD/hvd-trace" "$SCRATCH/trace"
	grep -q '^3 ranks, ' <<<"$output"
	mkdir "$SCRATCH/one"
	HVD_TRACE=$SCRATCH/one "$BUILD/hvd-bench" --start-up
	HVD_TRACE=$SCRATCH/one "$BUILD/hvd-bench" --start-up
	run "$BUILD/hvd-trace" "$SCRATCH/one"
	[ "$status" -eq 0 ]
	grep -qx 'hvd-trace: taking step local.0.2; 1 file of other steps or worlds left out' <<<"$output"
	run "$BUILD/hvd-trace" "$SCRATCH/trace" "$SCRATCH/one"
	[ "$status" -eq 65 ]
	[[ $output == *"rank 0 of 1 is followed by another's rank 1 of 4. Name those of one"* ]]
}

@test "a trace that has no room ends with a line, and not with a signal" {
	[ "$(id -u)" = 0 ] || skip "needs to mount a small file system"
	# shellcheck disable=SC2016
	run in_cluster unshare -m bash -c 'mount -t tmpfs -o size=1m none /mnt && HVD_TRACE=/mnt exec "$0" --rounds 9' "$BUILD/hvd-bench"
	echo "$output"
	[ "$status" -eq 70 ]
	[[ $output == *"HVD_TRACE: cannot write /mnt/"*": No space left on device" ]]
}

@test "hvd-bench: a wrong option is named once a step, and lines come as they are measured" {
	run step -n4 "$BUILD/hvd-bench" --rounds 0
	echo "$output"
	[ "$status" -eq 64 ]
	[ "$(grep -c 'hvd-bench: --rounds 0: must be 1 to 10,000' <<<"$output")" -eq 1 ]
	run step -n4 "$BUILD/hvd-bench" --nonsense
	[ "$(grep -c "unrecognized option '--nonsense'" <<<"$output")" -eq 1 ]
	run timeout 20 bash -c '"$0" --rounds 10000 | { read -r line; echo "$line"; }' "$BUILD/hvd-bench"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == "# 1 rank on 1 node, back end single: "* ]]
}

@test "hvd-bench: numbers that are none, or beyond reason, are refused with a line" {
	local option range
	while IFS=: read -r option range; do
		# shellcheck disable=SC2086
		run "$BUILD/hvd-bench" $option
		echo "$option: $output"
		[ "$status" -eq 64 ]
		[ "$output" = "hvd-bench: ${option#--predict x }:$range" ]
	done <<-'END'
		--from -4: must be 4 to 1e18 bytes (K, M, G)
		-e nan: must be 4 to 1e18 bytes (K, M, G)
		--to=1e30: must be 4 to 1e18 bytes (K, M, G)
		--rounds 5x: must be 1 to 10,000
		-n 99999999999: must be 1 to 10,000
		-n10001: must be 1 to 10,000
		--collective reduce: must be allreduce or broadcast
		--predict x --step 5x: must be milliseconds, above 0 and below 1e9
		foo: not expected here: hvd-bench --help lists the options
	END
	run "$BUILD/hvd-bench" -S 3
	[ "$status" -eq 64 ]
	[ "$output" = "hvd-bench: --step is for --predict FILE, which is not given" ]
	mkfifo "$SCRATCH/fifo"
	run timeout 20 "$BUILD/hvd-trace" "$SCRATCH/fifo"
	[ "$status" -eq 65 ]
	run timeout 20 "$BUILD/hvd-bench" --predict "$SCRATCH/fifo"
	[ "$output" = "hvd-bench: $SCRATCH/fifo: not a regular file" ]
	run "$BUILD/hvd-trace"
	[ "$status" -eq 64 ]
	[ "$output" = "hvd-trace: no DIRECTORY or FILE of traces is named: hvd-trace --help" ]
	for option in HVD_DEADLINE=soon HVD_BACKEND=gloo HVD_WIRE=f8 HVD_ON_DEATH=pray; do
		run env "$option" "$BUILD/hvd-bench" --start-up
		echo "$output"
		[ "$status" -eq 64 ]
		[[ $output == "hvd-bench: hvd_init: $option: must be "* ]]
	done
	run "$BUILD/hvd-bench" --from 33M
	[ "$status" -eq 64 ]
	[ "$output" = "hvd-bench: --from 34603008 is more than --to 33554432" ]
}

# With PMIx 5.0.9 slurmstepd hangs for ever once it has refused a rank and that one comes again, and no later step of its node begins.
@test "ranks that are not the job's user, as in another user namespace, say so at once, and ask no PMIx" {
	SECONDS=0
	HVD_DEADLINE=60 run step -N2 -n2 unshare --user "$EXAMPLES/mean"
	echo "$output"
	[ "$SECONDS" -lt 30 ]
	[ "$status" -eq 70 ]
	[ "$(grep -c "PMIx: PMIx_Init failed: .*; you are not the step's user, or not of its group: in a container, be yourself, not root (the library " <<<"$output")" -eq 2 ]
	# … also with the words that enroot's hook gives a container, where that has no munge
	local psec
	for psec in native munge,native; do
		SECONDS=0
		# shellcheck disable=SC2016
		HVD_DEADLINE=60 PMIX_MCA_psec=$psec run step -N2 -n2 unshare --user --map-root-user --mount \
			bash -c 'mount -n -t tmpfs none /run/munge && exec unshare --user "$0"' "$EXAMPLES/mean"
		echo "$output"
		[ "$SECONDS" -lt 30 ]
		[ "$(grep -c "PMIx: PMIx_Init failed: .*; you are not the step's user, or not of its group: " <<<"$output")" -eq 2 ]
	done
	# … and with the way that it needs, where munge is forgotten: PMIx 4.2 dies of a second PMIx_Init
	# shellcheck disable=SC2016
	HVD_DEADLINE=20 PMIX_MCA_psec=munge run step -N2 -n2 --kill-on-bad-exit=0 unshare --user --map-root-user --mount \
		bash -c 'mount -n -t tmpfs none /run/munge && exec unshare --user "$0" 2' "$SCRATCH/again"
	echo "$output"
	[ "$(grep -c "PMIx: PMIx_Init failed: " <<<"$output")" -eq 4 ] # in the program's second world, too
	[[ $output != *"Segmentation fault"* ]]
	HVD_DEADLINE=20 run step -N2 -n2 "$EXAMPLES/mean"
	[ "$status" -eq 0 ]
}

@test "a node whose slurmstepd is stopped says so within the deadline" {
	local deadline
	for deadline in HVD_DEADLINE=3 program; do # the program's own is told by it
		SECONDS=0
		# shellcheck disable=SC2016
		run step -N2 -n2 --kill-on-bad-exit=0 --export=ALL,$deadline bash -c '[ "$SLURM_NODEID" = 0 ] || exec "$@"
			kill -STOP $PPID; "$@"; status=$?; kill -CONT $PPID; exit $status' - "$SCRATCH/again" 1 $([ $deadline = HVD_DEADLINE=3 ] || echo 3)
		echo "$output"
		[ "$SECONDS" -lt 20 ]
		[ "$status" -eq 70 ]
		[[ $output == *"PMIx: PMIx_Init failed: "*"; in a container: has it the host's network, and are you yourself in it, not root? (the library "* ]]
		[[ $output == *"rank 0 on n1 did not join within 3 s"* ]]
	done
	# what comes back late serves the next world, after which nothing is open: the step goes on when that rank has ended
	SECONDS=0
	# shellcheck disable=SC2016
	HVD_DEADLINE=3 run step -N2 -n2 bash -c '[ "$SLURM_NODEID" = 1 ] || { "$@"; status=$?; sleep 3; exit $status; }
		(sleep 5; kill -CONT $PPID) & kill -STOP $PPID; "$@"; status=$?; kill -CONT $PPID; exit $status' - "$SCRATCH/again" 2
	echo "$output"
	[ "$SECONDS" -lt 20 ]
	[ "$status" -eq 0 ]
	[ "$(grep -c 'PMIx: PMIx_Init failed: ' <<<"$output")" -eq 1 ]
	[ "$(grep -c '^world 1: rank [01] of 2 on n[12], of 2: mean 0.500' <<<"$output")" -eq 2 ]
}
