#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From main() of the first rank to the first verified all-reduce, and the rival's same way; runs take turns, medians of N sruns.
# From main() of the last rank: the same without the time that Slurm takes to start them all.
set -eu
# shellcheck source=tests/bench/cluster.bash
. "$(dirname "${BASH_SOURCE[0]}")/cluster.bash"
enter_cluster
N=${N:-50}
build_mpi_rival

start() { # NAME OPTION of srun…
	step "${@:2}" "$BUILD/hvd-bench" --start-up >"$dir/out"
	sed -n 's/.*verified \([0-9.]*\) ms.*/\1/p' "$dir/out" >>"$dir/$1"
	sed -n 's/.*first rank, \([0-9.]*\) of the last/\1/p' "$dir/out" >>"$dir/$1.last"
}
summary() { echo "$(median <"$dir/$1") ($(spread <"$dir/$1")); from that of the last rank $(median <"$dir/$1.last") ($(spread <"$dir/$1.last"))"; }

for ((i = 0; i < N; i++)); do
	start ours -N2 -n8
	[ -z "$MPI" ] || step -N2 -n8 "$MPI" start >>"$dir/mpi"
done
for ((i = 0; i < 5; i++)); do start ours64 -N2 -n64; done

ours=$(median <"$dir/ours")
echo "ms from main() of the first rank to the first verified all-reduce; median (least … most)"
echo "8 ranks on 2 nodes, $N sruns: libhvd $(summary ours); goal 40"
[ -z "$MPI" ] || echo "                             Open MPI $(median <"$dir/mpi") ($(spread <"$dir/mpi")): $(ratio "$(median <"$dir/mpi")" "$ours") times libhvd's"
echo "64 ranks on 2 nodes, 5 sruns: libhvd $(summary ours64); goal 500"
