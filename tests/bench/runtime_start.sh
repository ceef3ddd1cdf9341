#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From main() to the first verified all-reduce, slowest rank, and the rival's same way; runs take turns, medians of N sruns.
set -eu
# shellcheck source=tests/bench/cluster.bash
. "$(dirname "${BASH_SOURCE[0]}")/cluster.bash"
enter_cluster
N=${N:-50}
build_mpi_rival

start() { step "$@" "$BUILD/hvd-bench" --start-up | sed -n 's/.*verified \([0-9.]*\) ms.*/\1/p'; }

for ((i = 0; i < N; i++)); do
	start -N2 -n8 >>"$dir/ours"
	[ -z "$MPI" ] || step -N2 -n8 "$MPI" start >>"$dir/mpi"
done
for ((i = 0; i < 5; i++)); do start -N2 -n64 >>"$dir/ours64"; done

ours=$(median <"$dir/ours")
echo "ms from main() to the first verified all-reduce, slowest rank; median (least … most)"
echo "8 ranks on 2 nodes, $N sruns: libhvd $ours ($(spread <"$dir/ours")); goal 40"
[ -z "$MPI" ] || echo "                             Open MPI $(median <"$dir/mpi") ($(spread <"$dir/mpi")): $(ratio "$(median <"$dir/mpi")" "$ours") times libhvd's"
echo "64 ranks on 2 nodes, 5 sruns: libhvd $(median <"$dir/ours64") ($(spread <"$dir/ours64")); goal 500"
