#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Communication that a backward pass of 800 ms does not hide, on a link held to 500 Mbit/s: the runtime's plan and buckets of 1 and 25 MiB
# in turns, beside what the planner's model says of each. Medians of N runs.
#
# The link is tbf's (this kernel need not have netem), and takes some care to be one: a burst passes at once, so it is a single packet here;
# a burst below 64 KiB makes tbf cut what TCP hands it into packets, each of which waits for a timer, and at 1,500 bytes two directions
# of 500 Mbit/s have more timers than a virtual machine serves: each then gets half (4 MB both ways 137 ms where one takes 70; with packets of 9,000
# bytes 78 and 71). Hence the large packets.
set -eu
# shellcheck source=tests/bench/cluster.bash
. "$(dirname "${BASH_SOURCE[0]}")/cluster.bash"
enter_cluster
N=${N:-3} STEPS=${STEPS:-10} RATE=${RATE:-500mbit} BURST=${BURST:-10kb} BACKWARD=${BACKWARD:-800}
${CC:-gcc} -std=c11 -D_GNU_SOURCE -O2 -I. -Iruntime -o "$dir/overlap" tests/bench/overlap.c runtime/planner.c -L"$BUILD" -lhvd -Wl,-rpath,"$BUILD"
for node in v1 v2; do
	ip link set $node mtu 9000
	tc qdisc add dev $node root tbf rate "$RATE" burst "$BURST" latency 100ms || { echo "left out: links cannot be held to a rate here (tc, tbf)"; exit 0; }
done
srun -Q -N2 -n2 ip link set eth0 mtu 9000
for ((i = 0; i < N; i++)); do step -N2 -n2 "$dir/overlap" "$BACKWARD" "$STEPS"; done >"$dir/runs"

column() { awk -v c="$1" '{ print $c }' "$dir/runs" | median; }
echo "an all-reduce by 2 ranks: $(column 1) us + bytes at $(column 2) MB/s (as measured, by the planner's model through six sizes)"
echo "the runtime's plan, $(column 3) buckets: exposed $(column 5) ms; the model's bound $(column 4) ms, of a step of $BACKWARD ms"
echo "1 and 25 MiB, $(column 6) buckets: exposed $(column 8) ms, $(ratio "$(column 8)" "$(column 5)") times as much; by the model $(column 7) ms"
