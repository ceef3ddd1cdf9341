#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Whatever fails inside the plugin on a node can at worst fail that step, with a line; the node stays, the next job runs.

load helpers

setup_file() {
	mkdir -p "$SCRATCH.so"
	"${CC:-gcc}" -D_GNU_SOURCE -O1 -shared -fPIC -o "$SCRATCH.so/fault.so" "$BATS_TEST_DIRNAME/fault.c" -ldl
	export HVD_FAULT=$SCRATCH.so/wish
	echo 0 >"$HVD_FAULT"
	LD_PRELOAD=$SCRATCH.so/fault.so cluster_up --nodes 1 --expose "$SCRATCH.so"
}
teardown_file() {
	cluster_down
	rm -rf "$SCRATCH.so"
}
teardown() { cluster_logs; }

node_is_up() { [ "$(in_cluster sinfo -h -N -o %T)" = idle ]; }

# Fails call after call until there is none left to fail. STACK: required or optional; EVERY: 1 all of them, 4 each fourth.
every_call_fails_once() { # STACK EVERY
	local stack=$1 n
	sed -i "s/^[a-z]*/$stack/" "$CLUSTER/etc/plugstack.conf"
	for ((n = 1; n < 400; n += $2)); do
		rm -f "$HVD_FAULT.log"
		echo "$n" >"$HVD_FAULT"
		LIMIT=20 run in_cluster srun -Q -n1 --gpus=1 --hvd --hvd-bind=verbose true
		[ "$status" -ne 124 ] || { echo "call $n ($(cat "$HVD_FAULT.log")): srun hangs"; return 1; }
		[ -e "$HVD_FAULT.log" ] || break
		if [ "$status" -ne 0 ] && ! grep -q 'hvd: ' <<<"$output"; then
			echo "call $n ($(cat "$HVD_FAULT.log")): status $status without a line: $output"
			return 1
		fi
		[[ $output != *signal* && $output != *Segmentation* && $output != *core\ dumped* ]]
		wait_for 10 node_is_up || { echo "call $n ($(cat "$HVD_FAULT.log")): the node is $(in_cluster sinfo -h -N -o '%T %E')"; return 1; }
	done
	echo 0 >"$HVD_FAULT"
	echo "# $((n - 1)) calls" >&3
	[ "$n" -gt 40 ]
	run in_cluster srun -Q -n2 --gpus=2 --hvd true
	[ "$status" -eq 0 ]
}

@test "every call that fails in slurmstepd, as a required plugin" {
	every_call_fails_once required 1
}

@test "each fourth, as an optional plugin" {
	every_call_fails_once optional 4
}

@test "a word in plugstack.conf that nobody knows stops no job" {
	sed -i 's/$/ toplogy=x enable=perhaps/' "$CLUSTER/etc/plugstack.conf"
	run in_cluster srun -n1 echo ran
	echo "$output"
	[ "$status" -eq 0 ]
	grep -q '^ran$' <<<"$output"
	grep -q "hvd: plugstack.conf: " <<<"$output"
}

@test "a description that others can write is refused, and only by steps that need it" {
	chmod 666 "$CLUSTER/topology.xml"
	run in_cluster srun -Q -n1 --gpus=1 --hvd true
	echo "$output"
	[ "$status" -eq 70 ]
	grep -q 'hvd: n1: .*topology.xml is writable by others than its owner: chmod go-w' <<<"$output"
	run in_cluster srun -Q -n1 --gpus=1 true
	[ "$status" -eq 0 ]
	chmod 644 "$CLUSTER/topology.xml"
	wait_for 10 node_is_up
}
