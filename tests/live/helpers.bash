# SPDX-License-Identifier: Apache-2.0
# For the live tests: one private cluster a file, taken down whatever happens.
#
#     load helpers
#     setup_file()    { cluster_up --gpus 4; }        # options of `hvd-cluster up`
#     teardown_file() { cluster_down; }
#     @test "…" { run in_cluster srun -N2 hostname; … }
#
# Several files may run at the same time: each has its own directory, $SCRATCH, and cluster in it.
# shellcheck shell=bash

TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
BUILD=$(cd "$TOP" && realpath -m "${BUILD:-build}")
SHARED=${SHARED:-$TOP/../shared}
SCRATCH=$BUILD/tests/tmp/live_$(basename "$BATS_TEST_FILENAME" .bats)
CLUSTER=$SCRATCH/cluster
export BUILD TOP SHARED SCRATCH CLUSTER
export PYTHONDONTWRITEBYTECODE=1 # nothing beside the sources

# Up to release 1.8 bats takes a skip in setup_file for a failure of the file; tests/run counts all its tests as skipped where it finds this line.
eval "bats_$(declare -f skip)"
skip() {
	[ -n "${BATS_TEST_NUMBER:-}" ] || echo "# SKIP all: ${1:-}" >&3
	bats_skip "$@"
}

hvd_cluster() { "$TOP/contrib/cluster/hvd-cluster" --dir "$CLUSTER" "$@"; }

# As COMMAND opens FILE, which it writes over, another file is put there, an empty one at last: COMMAND says LINE and leaves that one alone. Sets status.
exchanges() { # FILE LINE COMMAND…
	"${CC:-gcc}" -D_GNU_SOURCE -O1 -shared -fPIC -o "$SCRATCH/exchange.so" "$TOP/tests/live/exchange.c"
	local text
	for text in precious ''; do
		cp "$1" "$SCRATCH/kept"
		printf %s "$text" >"$SCRATCH/exchange"
		run env ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0" EXCHANGE="$SCRATCH/exchange" LD_PRELOAD="$SCRATCH/exchange.so" "${@:3}"
		echo "$output"
		grep -qxF "$2" <<<"$output"
		[ "$(cat "$1")" = "$text" ]
		mv "$SCRATCH/kept" "$1"
	done
}

# The plugin as it was built, or the reason why this file's tests cannot run.
need_plugin() {
	[ -e "$BUILD/spank_hvd.so" ] || skip "spank_hvd.so is not built (no Slurm or hwloc headers)"
}

need_slurm() {
	command -v slurmctld >/dev/null || [ -x /usr/sbin/slurmctld ] || skip "Slurm is not installed"
}

# Options of `hvd-cluster up`. With $$ as owner the cluster ends with this file even when bats is killed.
cluster_up() {
	need_slurm
	case " $* " in *" --plugin "*) ;; *) need_plugin ;; esac
	[ ! -d "$CLUSTER" ] || hvd_cluster down # of an earlier run that was killed
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH"
	hvd_cluster up --owner $$ "$@"
	# Debian's Slurm 26.05 comes without PMIx: then the user's choice, which --hvd keeps, is another
	in_cluster srun --mpi=list 2>&1 | grep -q pmix || export SLURM_MPI_TYPE=pmi2 WITHOUT_PMIX=1
}

# For heterogeneous steps: under load, mpi/pmix of Slurm 22.05 can start its abort agent once for each component, and
# srun then waits for ever for one of them.
without_mpi() { export SLURM_MPI_TYPE=none; }

need_pmix() { [ -z "${WITHOUT_PMIX-}" ] || skip "this Slurm has no PMIx"; }

cluster_down() {
	local left
	[ ! -d "$CLUSTER" ] || hvd_cluster down
	left=$(leftovers "$CLUSTER")
	rm -rf --one-file-system "$SCRATCH"
	[ -z "$left" ] || {
		echo "the cluster left behind: $left" >&2
		return 1
	}
}

# A command on the login side; --user first: as the ordinary user. Never longer than $LIMIT seconds: the clock is
# inside, because only there can it kill a command that does not heed SIGTERM.
in_cluster() {
	local who=()
	[ "$1" != --user ] || { who=(--user) && shift; }
	hvd_cluster exec "${who[@]}" timeout --kill-after=5 "${LIMIT:-180}" "$@"
}

# wait_for SECONDS COMMAND…: until COMMAND succeeds
wait_for() {
	local deadline=$((SECONDS + 3 * $1)) # for machines three times slower than where the number was chosen; nobody waits longer than it takes
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$deadline" ] || {
			echo "gave up waiting for: $*" >&2
			return 1
		}
		sleep 0.1
	done
}

nodes_are_idle() { # COUNT
	[ "$(in_cluster sinfo -h -N -o %T | grep -c '^idle$')" = "$1" ]
}

job_state() { # JOB: PENDING, RUNNING, COMPLETED…
	in_cluster scontrol show job "$1" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'
}

job_is() { # JOB STATE…
	local state word
	state=$(job_state "$1")
	for word in "${@:2}"; do [ "$state" != "$word" ] || return 0; done
	return 1
}

queue_is_empty() { [ -z "$(in_cluster squeue -h)" ]; }

# What a cluster in DIR left on this machine, one thing a line; nothing if all is well.
leftovers() { # DIR
	local file group
	for file in $(grep -lzxsF --regexp="HVD_CLUSTER_DIR=$1" /proc/[0-9]*/environ) $(grep -lzxsF --regexp="$1" /proc/[0-9]*/cmdline); do
		group=${file%/*}
		echo "process ${group#/proc/}: $(tr '\0' ' ' 2>/dev/null <"$group/cmdline")"
	done
	for file in $(grep -lsF -e "$1" /proc/[0-9]*/mountinfo); do
		group=${file%/*}
		echo "mount in process ${group#/proc/}: $(grep -F -m 1 -e "$1" "$file" 2>/dev/null)"
	done
	find /sys/fs/cgroup -maxdepth 6 -type d -name "hvd-$(printf %s "$1" | cksum | cut -d' ' -f1)-*" -printf 'cgroup %p\n' 2>/dev/null
	find "$(dirname "$1")" -maxdepth 1 -name "$(basename "$1")*" -printf 'directory %p\n' 2>/dev/null
}

# For `teardown()`: what the daemons wrote, after a test that failed.
cluster_logs() {
	[ -n "${BATS_TEST_COMPLETED:-}" ] || [ -n "${BATS_TEST_SKIPPED:-}" ] || tail -n 8 "$CLUSTER"/log/*.log 2>/dev/null
}

# ends_with CODE COMMAND…: runs it, with $stderr apart, and wants that exit code.
ends_with() {
	local code=$1
	shift
	run --separate-stderr "$@"
	echo "status $status, stderr: $stderr"
	[ "$status" -eq "$code" ]
}
