#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The private cluster itself: starts, runs, recovers, and goes without a trace.
bats_require_minimum_version 1.5.0
load helpers

setup_file() { cluster_up --plugin none --gpus 4; }
teardown_file() { cluster_down; }
teardown() {
	[ -n "${BATS_TEST_COMPLETED:-}" ] || cat "$SCRATCH/left" 2>/dev/null || true
	cluster_logs
	[ ! -d "$OTHER" ] || other down
}

export OTHER=$SCRATCH/other # a second cluster, beside the one of this file
other() { timeout --kill-after=5 60 "$TOP/contrib/cluster/hvd-cluster" --dir "$OTHER" "$@"; }

nothing_left() {
	leftovers "$OTHER" >"$SCRATCH/left"
	[ ! -s "$SCRATCH/left" ]
}

@test "two nodes with host names and addresses of their own" {
	run -0 in_cluster srun -Q -N2 bash -c 'echo $(hostname) $(hostname -I)'
	[ "$(sort <<<"$output" | xargs)" = "n1 198.18.0.11 n2 198.18.0.12" ]
}

@test "every node has its own /tmp and /dev/shm, and all see the source tree" {
	in_cluster srun -Q -w n1 -N1 touch /tmp/mine /dev/shm/mine
	run -0 in_cluster srun -Q -w n1 -N1 ls /tmp/mine /dev/shm/mine
	run -0 in_cluster srun -Q -w n2 -N1 bash -c "test ! -e /tmp/mine && test ! -e /dev/shm/mine && ls '$TOP/Makefile'"
	[ ! -e /tmp/mine ]
	[ ! -e /dev/shm/mine ]
}

@test "GPUs are generic resources with a device node each" {
	run -0 in_cluster srun -Q -N1 --gpus-per-node=4 bash -c 'echo $CUDA_VISIBLE_DEVICES; test -c /dev/nvidia0 && test -c /dev/nvidia3 && test ! -e /dev/nvidia4'
	[ "$output" = 0,1,2,3 ]
}

@test "a task is really bound to a core of its own" {
	run -0 in_cluster srun -Q -N2 -n4 bash -c 'echo $(hostname) $(taskset -cp $$ | sed "s/.*: //")'
	[ "$(sort <<<"$output" | xargs)" = "n1 0 n1 1 n2 0 n2 1" ]
}

@test "PMIx numbers the tasks of both nodes" {
	run -0 in_cluster srun -Q --mpi=pmix -N2 -n4 bash -c 'echo $PMIX_RANK'
	[ "$(sort <<<"$output" | xargs)" = "0 1 2 3" ]
}

@test "where the current directory is /tmp, a line says that /tmp inside is another" {
	cd /tmp
	for words in "other run --plugin none" "hvd_cluster exec" "hvd_cluster node 1"; do
		# shellcheck disable=SC2086 # words
		run -0 $words touch "$BATS_TEST_NUMBER.probe"
		[ "$output" = "hvd-cluster: /tmp inside is not this one: every node has its own, which goes with the cluster" ]
	done
	[ ! -e "$BATS_TEST_NUMBER.probe" ]
}

@test "exit status and standard input pass through" {
	run -7 in_cluster bash -c 'exit 7'
	run -9 in_cluster srun -Q -N1 bash -c 'exit 9'
	run -0 in_cluster srun -Q -N1 cat <<<"through srun"
	[ "$output" = "through srun" ]
}

@test "sbatch: a batch job runs to its end" {
	printf '#!/bin/bash\nsrun -Q -N2 hostname\n' >"$SCRATCH/job"
	cd "$SCRATCH"
	job=$(hvd_cluster sbatch --parsable -N2 -o out job)
	wait_for 30 job_is "$job" COMPLETED
	[ "$(sort out | xargs)" = "n1 n2" ]
}

@test "the ordinary user exists inside, and may run jobs" {
	run -0 in_cluster --user srun -Q -N2 bash -c 'id -un; echo $HOME; touch $HOME/$(hostname)'
	[ "$(sort -u <<<"$output" | xargs)" = "$CLUSTER/home hvd" ]
	[ -e "$CLUSTER/home/n1" ]
	[ -e "$CLUSTER/home/n2" ]
}

@test "a caller with umask 077: the ordinary user runs jobs, and commands inside have that umask" {
	umask 077
	run -0 other --plugin none --user run bash -c 'umask; srun -Q -N2 id -un'
	[ "$(xargs <<<"$output")" = "0077 hvd hvd" ]
	nothing_left
}

@test "a build that is closed to other users, as umask 077 makes it, is seen inside" {
	need_plugin
	mkdir -m 700 "$SCRATCH/closed"
	cp "$BUILD/spank_hvd.so" "$SCRATCH/closed/"
	BUILD="$SCRATCH/closed" run -0 --separate-stderr other --dir "$SCRATCH/closed/cluster" run srun -Q -N2 hostname
	[ "$(sort <<<"$output" | xargs)" = "n1 n2" ]
}

@test "nobody is told to open all of a closed home to others, where it is the current directory" {
	mkdir -m 700 "$SCRATCH/home"
	mkdir "$SCRATCH/home/source"
	cp -r "$TOP/contrib" "$SCRATCH/home/source/"
	cd "$SCRATCH/home"
	TOP=$PWD/source BUILD=$PWD/none run -0 --separate-stderr other --dir "$PWD/cluster" run --plugin none true
	echo "$stderr"
	[[ $stderr != *chmod* ]]
}

@test "a node crashes and comes back" {
	hvd_cluster crash n2
	run -1 hvd_cluster crash n2
	[ "$output" = "hvd-cluster: node 2 is not running" ]
	in_cluster scontrol update nodename=n2 state=down reason=test
	run ! hvd_cluster node 2 true
	[[ $output == *"node 2 is not running"* ]]
	for name in 3 n3 n 02 two; do
		run -64 hvd_cluster crash "$name"
		[[ $output == "hvd-cluster: no node $name: there are n1 to n2"* ]]
	done
	run -64 hvd_cluster crash 1 2
	[[ $output == "hvd-cluster: crash: what is 2?"* ]]
	run -1 hvd_cluster boot 1
	[ "$output" = "hvd-cluster: node 1 is running" ]
	hvd_cluster boot 2
	wait_for 20 nodes_are_idle 2
	run -0 in_cluster srun -Q -w n2 -N1 hostname
	[ "$output" = n2 ]
}

@test "a node's link goes down and up" {
	hvd_cluster link 2 down
	run ! hvd_cluster node 2 timeout 1 bash -c ': </dev/tcp/198.18.0.1/6817'
	hvd_cluster link 2 up
	wait_for 20 hvd_cluster node 2 timeout 1 bash -c ': </dev/tcp/198.18.0.1/6817'
}

@test "what the README types works as it stands" {
	[ -e "$BUILD/chexnet" ] && [ -e "$BUILD/spank_hvd.so" ] || skip "chexnet or the plugin is not built"
	local line words
	mkdir "$SCRATCH/build"
	ln -s "$BUILD/chexnet" "$SCRATCH/build/chexnet"
	cd "$TOP"
	sed -n '/^or, to keep it/,/^A node has/s/^    //p' contrib/cluster/README.md | sed 's/  *#.*//' >"$SCRATCH/lines"
	[ "$(wc -l <"$SCRATCH/lines")" -eq 5 ]
	while read -r line; do
		words=${line/(cd build/(cd $SCRATCH/build}
		words=${words//..\/contrib/\"$TOP\"/contrib}
		words=${words/hvd-cluster /hvd-cluster --dir $OTHER }
		run -0 timeout --kill-after=5 60 bash -c "$words" </dev/null 3>&-
		case $line in
		*verbose*) [ "$(grep -c '^hvd: rank ' <<<"$output")" -eq 16 ] ;;
		*sbatch*) wait_for 120 grep -qs '^0 problems' "$SCRATCH/build/chexnet-2.out" ;;
		esac
	done <"$SCRATCH/lines"
	nothing_left
}

@test "a command outside is told when there is no cluster, or one already" {
	run -1 other exec true
	[ "$output" = "hvd-cluster: no cluster is up in $OTHER (hvd-cluster up)" ]
	run -1 hvd_cluster up --plugin none
	[ "$output" = "hvd-cluster: already up in $CLUSTER (hvd-cluster down)" ]
	: >"$SCRATCH/a plugin.so"
	run -1 other up --plugin "$SCRATCH/a plugin.so"
	[ "$output" = "hvd-cluster: $SCRATCH/a plugin.so: plugstack.conf cannot hold this path, copy the plugin and name the copy with --plugin" ]
	: >"/tmp/$BATS_TEST_NUMBER.so"
	run -1 other up --plugin "/tmp/$BATS_TEST_NUMBER.so"
	rm "/tmp/$BATS_TEST_NUMBER.so"
	[ "$output" = "hvd-cluster: /tmp/$BATS_TEST_NUMBER.so: /tmp inside is not this one: copy the plugin into a directory and name the copy with --plugin" ]
	for minors in 1 1,1 0,1,2; do
		run -1 other --inventory minors=$minors up --plugin none
		[ "${lines[0]}" = "make_inventory: minors=$minors: a number of its own for each of the 2 GPUs" ]
	done
	mkdir "$SCRATCH/full" && touch "$SCRATCH/full/precious"
	run -1 other --dir "$SCRATCH/full" up --plugin none
	[[ $output == *"$SCRATCH/full is in use for something else"* ]]
	[ -e "$SCRATCH/full/precious" ]
}

@test "wrong usage is one line and exit status 64" {
	for words in "" "--nodes" "--nodes two up" "--nodes 0 up" "--nodes 08 up" "--gpu-order random up" "--frobnicate up" "frobnicate" "run" "exec --nodes 3 true"; do
		run -64 other $words
		[ "${#lines[@]}" -eq 1 ]
	done
}

@test "more CPUs than the machine has: refused with the cure, possible with --shim" {
	run -1 other up --plugin none --cores 128
	[[ ${lines[-1]} == *"nodes of 256 CPUs need CPUs 0-255"*"--shim" ]]
	run -0 --separate-stderr other run --plugin none --shim --cgroup auto --cores 8 --threads 2 srun -Q -N1 -n4 -c4 bash -c 'taskset -cp $$ | sed "s/.*: //"'
	[ "$(sort <<<"$output" | xargs)" = "0,1,16,17 2,3,18,19 4,5,20,21 6,7,22,23" ]
	[[ $stderr == "hvd-cluster: --cgroup auto: --shim pretends CPUs, which cannot be put into a cpuset; going on with --cgroup none, "* ]]
	CC="${CC:-gcc} -O1" run -0 other run --plugin none --shim --gpus 0 true
	CC="nothing -O1" run -1 other run --plugin none --shim --gpus 0 true
	[[ $output == *"--shim needs a C compiler, and there is no nothing (make deps INSTALL=1)" ]]
	run -1 other up --plugin none --shim --cgroup v2
	[[ ${lines[-1]} == *"--cgroup v2 with --shim: a pretended CPU cannot be put into a cpuset; leave out one of them" ]]
}

@test "with control groups a step may open only its own GPUs" {
	run --separate-stderr other run --plugin none --gpus 4 --cgroup auto bash -c '
		grep -q ConstrainDevices=yes $HVD_CLUSTER_DIR/etc/cgroup.conf || exit 99
		srun -Q -N1 -n2 --gpus-per-task=1 bash -c "for g in 0 1 2 3; do (: </dev/nvidia\$g) 2>&1; done"'
	[ "$status" -ne 99 ] || skip "no control groups to be had here"
	[ "$status" -ne 0 ] # of the last open
	[ "$(grep -c 'No such device' <<<"$output")" -eq 2 ] # allowed, but no driver behind it
	[ "$(grep -c 'Operation not permitted' <<<"$output")" -eq 6 ]
	nothing_left
}

@test "run: ends as its command does, and nothing is left" {
	run -3 other run --plugin none bash -c 'srun -Q -N2 true && exit 3'
	nothing_left
}

@test "run: partitions of one's own, as a site's lines have them" {
	printf 'PartitionName=%s Nodes=n[1-2]\n' low high >"$SCRATCH/site.conf"
	run -0 other --nodes 2 --conf "$SCRATCH/site.conf" run srun -Q -p high -N2 hostname
	[ "$(sort <<<"$output" | tail -n 2 | xargs)" = "n1 n2" ]
}

@test "run: SIGTERM ends it all, and so do two, as timeout sends them" {
	for later in 0 0.005 0.015; do
		rm -f "$SCRATCH/started"
		"$TOP/contrib/cluster/hvd-cluster" --dir "$OTHER" run --plugin none bash -c "touch '$SCRATCH/started'; exec srun -Q -N2 sleep 100" 3>&- &
		wait_for 20 test -e "$SCRATCH/started"
		kill $!
		[ $later = 0 ] || { sleep $later && { kill $! || true; }; }
		status=0
		wait $! || status=$?
		[ "$status" -eq 143 ]
		if [ $later = 0 ]; then nothing_left; fi
		wait_for 10 nothing_left # by the janitor, where the first was not through
	done
}

@test "a measurement in a cluster of its own that is called off leaves none" {
	local called=$SCRATCH/called
	mkdir -p "$called"
	ln -sf "$(type -P true)" "$called/hvd-bench"
	printf '%s\n' ". '$TOP/tests/bench/cluster.bash'" "enter_cluster --gpus 0" "trap 'sleep 2; exit' TERM" "touch '$called/inside'" "sleep 100 &" wait >"$called/off.sh"
	BUILD=$called setsid bash "$called/off.sh" &
	wait_for 30 test -e "$called/inside"
	kill -- -$! # as timeout and make do it
	wait $! || true
	mkdir "$called/tests/tmp/bench_off" # which went, and is looked through
	OTHER=$called/tests/tmp/bench_off/cluster wait_for 20 nothing_left
	# one that ends by itself has ended its cluster by then
	printf '%s\n' "set -eu" ". '$TOP/tests/bench/cluster.bash'" "enter_cluster --gpus 0" >"$called/on.sh"
	BUILD=$called run -0 bash "$called/on.sh"
	[ ! -e "$called/tests/tmp/bench_on" ]
}

@test "run: kill -9 of hvd-cluster ends it all" {
	"$TOP/contrib/cluster/hvd-cluster" --dir "$OTHER" run --plugin none bash -c "touch '$SCRATCH/started9'; exec srun -Q -N2 sleep 100" 3>&- &
	wait_for 20 test -e "$SCRATCH/started9"
	kill -9 $!
	wait_for 10 nothing_left
}

@test "up: killed at any moment, the next one recovers" {
	for delay in 0.03 0.1 0.3 0.6; do
		"$TOP/contrib/cluster/hvd-cluster" --dir "$OTHER" up --plugin none 3>&- &
		sleep $delay
		kill -9 $! 2>/dev/null || true
		wait $! || true
		# a fast machine had it up before that moment: nothing to recover from
		if [ -e "$OTHER/state" ] && [ ! -e "$OTHER/pids/starter" ]; then other down; fi
		run -0 --separate-stderr other run --plugin none srun -Q -N2 hostname
		[ "$(sort <<<"$output" | xargs)" = "n1 n2" ]
		nothing_left
	done
}

@test "a cluster whose processes were killed is cleared away by the next up" {
	other up --plugin none
	kill -9 "$(cut -d' ' -f1 "$OTHER/pids/lab")"
	run -0 other up --plugin none
	[[ $output == *"removing what an earlier run left in $OTHER"* ]]
	other down
	nothing_left
}

# In namespaces of their own, with an empty /tmp and the source tree in /mnt, everything that is there afterwards was left behind.
@test "no trace: processes, mounts, interfaces, files in /tmp, /dev/shm and /run" {
	[ "$(id -u)" = 0 ] || skip "needs root to look"
	local -x OTHER=/tmp/cluster.$$
	run -0 --separate-stderr unshare --mount --pid --net --ipc --fork --kill-child --mount-proc bash -euc '
		mount --rbind "$TOP" /mnt
		export BUILD=/mnt/none
		cd /mnt
		for d in /tmp /var/tmp /dev/shm /run; do mount -t tmpfs tmpfs $d; done
		look() {
			awk "{ print \"mount\", \$5 }" /proc/self/mountinfo
			ls /sys/class/net
			find /tmp /dev/shm /run /var/tmp -xdev
			for p in /proc/[0-9]*; do case $(<$p/comm) in bash) ;; *) echo "$p $(<$p/comm)" ;; esac; done
		}
		before=$(look)
		contrib/cluster/hvd-cluster --dir "$OTHER" up --plugin none --owner $$ --cgroup auto
		contrib/cluster/hvd-cluster --dir "$OTHER" exec srun -Q -N2 touch /tmp/file /dev/shm/file
		[ "$(look)" != "$before" ]
		contrib/cluster/hvd-cluster --dir "$OTHER" down
		after=$(look)
		diff <(echo "$before") <(echo "$after")'
	nothing_left
}

@test "an ordinary user has a cluster too, with PMIx and GPUs" {
	[ "$(id -u)" = 0 ] || skip "the other tests are run by an ordinary user already"
	mkdir "$SCRATCH/user" && chown 4243:4243 "$SCRATCH/user"
	# bound to places that any user may enter, whatever the directories above the source tree and the build allow
	run -0 --separate-stderr unshare --mount bash -euc '
		mount -t tmpfs tmpfs /mnt
		mkdir /mnt/tree /mnt/user
		mount --rbind "$TOP" /mnt/tree
		mount --bind "$SCRATCH/user" /mnt/user
		cd /
		exec setpriv --reuid 4243 --regid 4243 --clear-groups env HOME=/ BUILD=/mnt/none /mnt/tree/contrib/cluster/hvd-cluster \
			--dir /mnt/user/cluster run --plugin none --gpus 4 --cgroup auto \
			srun -Q -N2 -n4 --mpi=pmix --gpus-per-task=1 bash -c "echo \$(hostname) \$(id -un) \$PMIX_RANK \$CUDA_VISIBLE_DEVICES"'
	[ "$(sort <<<"$output" | xargs)" = "n1 hvd 0 0 n1 hvd 1 2 n2 hvd 2 0 n2 hvd 3 2" ]
	[[ $stderr == "hvd-cluster: --cgroup auto: control groups need root; going on with --cgroup none, "* ]]
	[ -z "$(ls -A "$SCRATCH/user")" ]
}

@test "make clean ends the private cluster in the directory that it removes" {
	for cluster in cluster san/cluster; do # of `make demo`, and of a sanitizer's build within
		run -0 other --dir "$SCRATCH/cleaned/$cluster" up --plugin none
		run -0 env -u MAKEFLAGS -u MAKELEVEL make -s -C "$TOP" clean BUILD="$SCRATCH/cleaned"
		[ ! -e "$SCRATCH/cleaned" ]
		mkdir -p "$(dirname "$SCRATCH/cleaned/$cluster")"
		OTHER=$SCRATCH/cleaned/$cluster nothing_left
	done
}

@test "another user's cluster is not ended, and a line says whose it is" {
	[ "$(id -u)" = 0 ] || skip "this needs two users"
	# shellcheck disable=SC2016
	as_another() {
		unshare --mount bash -euc '
			mount -t tmpfs tmpfs /mnt
			mkdir /mnt/tree /mnt/cluster
			mount --rbind "$TOP" /mnt/tree
			mount --bind "$CLUSTER" /mnt/cluster
			cd /
			exec timeout 20 setpriv --reuid 4243 --regid 4243 --clear-groups env BUILD=/mnt/none /mnt/tree/contrib/cluster/hvd-cluster --dir /mnt/cluster "$@"' - "$@"
	}
	for owner in 0 4243; do # of the directory, which somebody else may have made
		chown $owner "$CLUSTER"
		for words in down "crash 1" "exec true" "up --plugin none"; do
			# shellcheck disable=SC2086
			run -1 as_another $words
			[ "$output" = "hvd-cluster: the cluster in /mnt/cluster is root's: choose another with --dir" ]
		done
	done
	chown 0 "$CLUSTER"
	run -0 in_cluster srun -Q -N2 hostname
}

@test "without the right to make namespaces: one line that says what to do" {
	run -1 unshare --user --map-root-user bash -c '
		echo 0 >/proc/sys/user/max_user_namespaces
		exec setpriv --bounding-set=-all --inh-caps=-all "$TOP/contrib/cluster/hvd-cluster" --dir "$OTHER" up --plugin none'
	[ "${#lines[@]}" -eq 1 ]
	[[ $output == "hvd-cluster: namespaces are denied to "*"run it as root, or allow user namespaces"* ]]
	nothing_left
}

@test "without Slurm: one line that names what is missing" {
	[ "$(id -u)" = 0 ] || skip "needs root to hide a program"
	run -1 unshare --mount bash -c '
		mount --bind /dev/null "$(command -v slurmctld || echo /usr/sbin/slurmctld)"
		exec "$TOP/contrib/cluster/hvd-cluster" --dir "$OTHER" up --plugin none'
	[ "$output" = "hvd-cluster: not installed: slurmctld (make deps INSTALL=1)" ]
}

# chexnet is a stand-in, all else is real: what the demo itself does, in a language whose numbers have a comma.
@test "the demo from its first line to its last, where numbers have a comma" {
	need_plugin
	local demo=$SCRATCH/demo
	mkdir "$demo"
	printf '%s\n' LC_NUMERIC 'decimal_point ","' 'thousands_sep ""' 'grouping -1' 'END LC_NUMERIC' >"$demo/numbers"
	localedef --no-archive --quiet --force -i "$demo/numbers" "$demo/comma" 2>/dev/null || true # of all its other parts it says that they are missing
	cp "$BUILD/spank_hvd.so" "$demo"
	: >"$demo/libhvd.so"
	cat >"$demo/chexnet" <<-'END'
		#!/bin/bash
		case $1 in
		prepare) mkdir "$4" ;;
		train) [ -z "${HVD_IFACE-}" ] || exit 1; [ "$SLURM_PROCID" != 0 ] || echo "mean of 14 of 14             0.8762  0.850 to 0.900  0.9000" ;;
		esac
	END
	chmod +x "$demo/chexnet"
	export LOCPATH=$demo LC_NUMERIC=comma
	run env -u LC_ALL bash -c 'printf %.1f 1,5'
	[ "$output" = 1,5 ] || skip "localedef makes no language here: $output"
	run -0 --separate-stderr env -u LC_ALL DATA= BUILD="$demo" "$TOP/contrib/demo.sh"
	echo "$output"
	[ "${lines[-1]}" = "mean AUROC 0.876" ]
	[[ $stderr =~ nodes\ up\ in\ [0-9]+\ ms ]]
	# X-rays of one's own, in a directory whose name is a pattern, too, and a user who has words for a cluster of his own
	mkdir "$demo/mine [1]"
	: >"$demo/mine [1]/Data_Entry_2017.csv"
	run -0 env -u LC_ALL SBATCH_PARTITION=none SLURM_PARTITION=none SRUN_CPUS_PER_TASK=4 HVD_IFACE=ib7 DATA="$demo/mine [1]" BUILD="$demo" "$TOP/contrib/demo.sh"
	echo "$output"
	[[ $output == *"chexnet report "*" --table mine [1]/Data_Entry_2017.csv --out "* ]]
}
