#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the trace costs a step of 4 ranks with 28 MB of gradients, and whether it names the straggler: one rank is 20 ms late.
set -eu
# shellcheck source=tests/bench/cluster.bash
. "$(dirname "${BASH_SOURCE[0]}")/cluster.bash"
enter_cluster
N=${N:-4} STEPS=${STEPS:-200} gradients=$dir/gradients
${CC:-gcc} -std=c11 -D_GNU_SOURCE -O2 -Iruntime -o "$dir/trace_cost" tests/bench/trace_cost.c -L"$BUILD" -lhvd -Wl,-rpath,"$BUILD"
${CC:-gcc} -std=c11 -D_GNU_SOURCE -O2 -Iruntime -o "$gradients" contrib/examples/gradients.c -L"$BUILD" -lhvd -Wl,-rpath,"$BUILD"

# the traced world is opened first in every other run
for ((i = 0; i < N; i++)); do
	step -N1 -n4 "$dir/trace_cost" "$dir/trace" "$STEPS" "$([ $((i % 2)) = 0 ] && echo first || echo second)"
done >"$dir/costs"
awk '{ with += $1; without += $2; records = $3; each += $4; share += $5 }
	END { printf "step of 4 ranks, medians of %d steps, mean of %d runs: traced %.2f ms, not traced %.2f ms: %+.2f %%\n", steps, NR, with / NR, without / NR, (with / without - 1) * 100
		printf "%d records a step of %.0f ns each: %.3f %% of it; goal 1\n", records, each / NR, share / NR }' steps="$STEPS" "$dir/costs"

# shellcheck disable=SC2016
HVD_TRACE=$dir/straggler step -N2 -n4 bash -c 'exec "$0" 100 $((20 + 20 * (SLURM_PROCID == 2))) >/dev/null' "$gradients"
"$BUILD/hvd-trace" --each --output "$dir/timeline.json" "$dir/straggler" >"$dir/told"
echo "rank 2 is 20 ms late: named in $(grep -c '^step.*last to be ready rank 2 ' "$dir/told") of $(grep -c '^step' "$dir/told") steps; $(grep '^bottleneck' "$dir/told")"
