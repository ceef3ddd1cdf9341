#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chexnet bench --scaling on one node of the private cluster: a rank for each core, pixels in memory and
# prepared X-rays. RANKS=n NETWORK="--model …" choose others.
set -eu
# shellcheck source=tests/bench/cluster.bash
. "$(dirname "${BASH_SOURCE[0]}")/cluster.bash"
[ -x "$BUILD/chexnet" ] || { echo "left out: $BUILD/chexnet is not built"; exit 0; }
enter_cluster
RANKS=${RANKS:-$(nproc)}
"$BUILD/chexnet" synth --images 800 --size 64 --out "$dir/tree" >/dev/null
"$BUILD/chexnet" prepare nih "$dir/tree" "$dir/data" --size 64 >/dev/null
# shellcheck disable=SC2086 # the options are words
srun -Q --mpi=pmix -N1 -n"$RANKS" -c1 --cpu-bind=cores "$BUILD/chexnet" bench --scaling ${NETWORK:---model densenet121 --image-size 64 --batch 8 --precision bf16} --threads 1 \
	--data "$dir/data" --steps "${STEPS:-10}" --rounds "${ROUNDS:-3}"
