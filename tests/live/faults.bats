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

# Inside the cluster: fails call after call until there is none left to fail. Each fault may cost the step its life, with
# a line and in its own time; the node must stay up, and the next step runs on it.
fail_each_call() { # EVERY COMMAND…: EVERY is 1 for all calls, 4 for each fourth
	local n output status state every=$1
	shift
	for ((n = 1; n < 400; n += every)); do
		rm -f "$HVD_FAULT.log"
		echo "$n" >"$HVD_FAULT"
		output=$(timeout 20 "$@" 2>&1) && status=0 || status=$?
		[ -e "$HVD_FAULT.log" ] || break
		state=$(sinfo -h -N -o %T)
		case $state:$status:$output in
		*signal* | *Segmentation* | *core\ dumped* | *:124:*) break ;;
		idle:0:* | allocated:0:* | completing:0:* | idle:*hvd:\ * | allocated:*hvd:\ * | completing:*hvd:\ *) ;;
		*) break ;;
		esac
	done
	echo 0 >"$HVD_FAULT"
	[ ! -e "$HVD_FAULT.log" ] || { echo "call $(cat "$HVD_FAULT.log"): status $status, node $(sinfo -h -N -o '%T %E'): $output"; return 1; }
	echo "$((n - 1)) calls"
}

# STACK EVERY LEAST [JOB…] -- COMMAND…: STACK is required or optional; there are at least LEAST calls to fail
every_call_fails_once() {
	local stack=$1 every=$2 least=$3 job=()
	shift 3
	while [ "$1" != -- ]; do
		job+=("$1")
		shift
	done
	shift
	sed -i "s/^[a-z]*/$stack/" "$CLUSTER/etc/plugstack.conf"
	LIMIT=400 run in_cluster "${job[@]}" bash -c "$(declare -f fail_each_call); fail_each_call \"\$@\"" - "$every" "$@"
	echo "$output"
	[ "$status" -eq 0 ]
	echo "# $output" >&3
	[ "${output% calls}" -ge "$least" ]
	run in_cluster srun -Q -n2 --gpus=2 --hvd true
	[ "$status" -eq 0 ]
	wait_for 10 node_is_up
}

# Steps of one job: each would wait most of a second for a job of its own.
step="srun -Q -n1 --gpus=1 --hvd --hvd-bind=verbose /bin/true"

@test "every call that fails in slurmstepd, as a required plugin" {
	every_call_fails_once required 1 60 salloc -Q -n2 --gpus=2 -- $step
}

@test "each fourth of them as an optional plugin; all of them with TEST_EVERY=1" {
	every_call_fails_once optional "${TEST_EVERY:-4}" 60 salloc -Q -n2 --gpus=2 -- $step
}

@test "every call that fails in the step of a batch script" {
	every_call_fails_once required 1 3 -- sbatch -Q -W -o /dev/null --gpus=1 --hvd --wrap true
}

@test "every call that fails in srun" {
	every_call_fails_once required 1 6 env HVD_FAULT="$SCRATCH.so/client" salloc -Q -n2 --gpus=2 -- env LD_PRELOAD="$SCRATCH.so/fault.so" $step
}

@test "a word in plugstack.conf that nobody knows stops no job" {
	sed -i 's/$/ toplogy=x enable=perhaps/' "$CLUSTER/etc/plugstack.conf"
	run in_cluster srun -n1 echo ran
	echo "$output"
	[ "$status" -eq 0 ]
	grep -q '^ran$' <<<"$output"
	grep -q "hvd: plugstack.conf: " <<<"$output"
}

@test "a description that others can write, or that its users cannot read, is refused, and only by steps that need it" {
	chmod 666 "$CLUSTER/topology.xml"
	run in_cluster srun -Q -n1 --gpus=1 --hvd true
	echo "$output"
	[ "$status" -eq 70 ]
	grep -q 'hvd: n1: .*topology.xml is writable by others than its owner: chmod go-w: see topology= and proc= in plugstack.conf$' <<<"$output"
	run in_cluster srun -Q -n1 --gpus=1 true
	[ "$status" -eq 0 ]
	# nor one that its users may not read
	chmod 600 "$CLUSTER/topology.xml"
	run in_cluster srun -Q -n1 --gpus=1 --hvd true
	[ "$status" -eq 0 ]
	run in_cluster --user srun -Q -n1 --gpus=1 --hvd true
	echo "$output"
	[ "$(id -u)" != 0 ] || [ "$status" -eq 70 ]
	[ "$(id -u)" != 0 ] || grep -q 'hvd: n1: .*topology.xml: Permission denied: see topology= and proc= in plugstack.conf$' <<<"$output"
	chmod 644 "$CLUSTER/topology.xml"
	wait_for 10 node_is_up
}
