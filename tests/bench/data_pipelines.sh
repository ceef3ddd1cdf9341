#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The reference article's old approach, its new approach and this program's loader on the same TFRecords, over 1, 2 and 4 ranks of one
# decode thread each: images a second of all ranks together, and images decoded for one that is used. Medians; the three take turns
# within each round. None of TensorFlow takes part: old and new are this program's own versions of the article's steps.
#
#   ROUNDS=5  SECONDS_EACH=1  SVG=FILE: one round's rates as a picture
set -eu
chexnet=${BUILD:-build}/chexnet
[ -x "$chexnet" ] || { echo "no $chexnet"; exit 1; }
rounds=${ROUNDS:-5} seconds=${SECONDS_EACH:-1} ranks="1 2 4"
scratch=$(realpath "${BUILD:-build}")/tests/tmp/bench-pipelines
rm -rf "$scratch"
mkdir -p "$scratch"
trap 'rm -rf "$scratch"' EXIT

"$chexnet" synth --out "$scratch/tree" --images 800 --size 256 >/dev/null
"$chexnet" prepare nih "$scratch/tree" "$scratch/data" --format jpeg --shards 16 >/dev/null

cells() { # JSON KIND FIELD: the numbers of a list
	sed "s/.*\"$2\":{[^}]*\"$3\":\[\([^]]*\)\].*/\1/; s/,/ /g" <<<"$1"
}
for ((round = 0; round < rounds; round++)); do
	json=$("$chexnet" bench data "$scratch/data" --old --new --ours --ranks "${ranks// /,}" --seconds "$seconds" --json)
	for kind in old new ours; do
		cells "$json" $kind images_per_s >>"$scratch/$kind.rate"
		cells "$json" $kind decoded_per_image >>"$scratch/$kind.decoded"
	done
done
[ -z "${SVG:-}" ] || "$chexnet" bench data "$scratch/data" --seconds "$seconds" --svg "$SVG" >/dev/null

median() { # FILE COLUMN
	awk -v c="$2" '{ print $c }' "$scratch/$1" | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
ratios() { # KIND COLUMN: median and spread of ours / KIND, round by round
	paste "$scratch/ours.rate" "$scratch/$1.rate" | awk -v c="$2" '{ print $c / $(c + NF / 2) }' | sort -g |
		awk '{ v[NR] = $1 } END { printf "%.2fx (%.2f to %.2f)", v[int((NR + 1) / 2)], v[1], v[NR] }'
}
echo "800 synthetic images of 256 x 256 as JPEG in 16 files, read from memory; batch 64; medians of $rounds rounds of $seconds s"
printf '%-6s %16s %16s %16s %26s %26s\n' ranks old new ours ours/old ours/new
column=1
for n in $ranks; do
	printf '%-6s' "$n"
	for kind in old new ours; do
		printf ' %9.0f (%.1f)' "$(median $kind.rate $column)" "$(median $kind.decoded $column)"
	done
	printf ' %26s %26s\n' "$(ratios old $column)" "$(ratios new $column)"
	column=$((column + 1))
done
