#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Communication that a backward pass of 200 ms does not hide, on a link held to 2 Gbit/s (tbf; this kernel need not have netem):
# the runtime's plan and buckets of 1 and 25 MiB in turns, beside what the planner's model says of each. Medians of N runs.
set -eu
# shellcheck source=tests/bench/cluster.bash
. "$(dirname "${BASH_SOURCE[0]}")/cluster.bash"
enter_cluster
N=${N:-3} STEPS=${STEPS:-20}
"${CC:-gcc}" -std=c11 -D_GNU_SOURCE -O2 -Iruntime -o "$dir/overlap" tests/bench/overlap.c runtime/planner.c -L"$BUILD" -lhvd -Wl,-rpath,"$BUILD"
for node in v1 v2; do
	tc qdisc add dev $node root tbf rate 2gbit burst 256kb latency 100ms || { echo "left out: links cannot be held to a rate here (tc, tbf)"; exit 0; }
done
for ((i = 0; i < N; i++)); do step -N2 -n2 "$dir/overlap" 200 "$STEPS"; done >"$dir/runs"

column() { awk -v c="$1" '{ print $c }' "$dir/runs" | median; }
echo "an all-reduce by 2 ranks: $(column 1) us + bytes at $(column 2) MB/s (as measured, a line through four sizes)"
echo "the runtime's plan, $(column 3) buckets: exposed $(column 5) ms; the model's bound $(column 4) ms, of a step of 200 ms"
echo "1 and 25 MiB, $(column 6) buckets: exposed $(column 8) ms, $(ratio "$(column 8)" "$(column 5)") times as much; by the model $(column 7) ms"
