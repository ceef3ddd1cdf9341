#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Dell's old approach, its new approach and this program's loader on the same TFRecords, over 1, 2 and 4 ranks of one
# decode thread each: images a second of all ranks together, and images decoded for one that is used. Medians; all take turns within
# each round. Old and new are there twice: as this program's own versions of the article's steps, with our reader and our decoder, so
# that only the order of the steps differs; and, where a Python has TensorFlow, as the article has them, in tf.data (data_article.py).
#
#   ROUNDS=5  SECONDS_EACH=1  SVG=FILE: one round's rates as a picture  PYTHON_TF: an interpreter that has tensorflow
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

python=${PYTHON_TF:-${PYTHON:-python3}} tf=1
"$python" -c 'import tensorflow' 2>/dev/null || { tf=; echo "rival left out: $python cannot import tensorflow"; }
cpus=($(grep -oP '^Cpus_allowed_list:\s*\K.*' /proc/self/status | tr ',' '\n' | awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }'))
article() { # RANKS: "old new" of all ranks together, each on a CPU as chexnet's are
	rm -rf "$scratch/meeting"
	mkdir "$scratch/meeting"
	for ((rank = 0; rank < $1; rank++)); do
		taskset -c "${cpus[rank % ${#cpus[@]}]}" "$python" tests/bench/data_article.py "$scratch/data" "$seconds" $rank "$1" "$scratch/meeting" 2>/dev/null &
	done | awk '{ sum[$1] += $2 } END { print sum["old"], sum["new"] }'
}

cells() { # JSON KIND FIELD: the numbers of a list
	sed "s/.*\"$2\":{[^}]*\"$3\":\[\([^]]*\)\].*/\1/; s/,/ /g" <<<"$1"
}
for ((round = 0; round < rounds; round++)); do
	json=$("$chexnet" bench data "$scratch/data" --old --new --ours --ranks "${ranks// /,}" --seconds "$seconds" --json)
	for kind in old new ours; do
		cells "$json" $kind images_per_s >>"$scratch/$kind.rate"
		cells "$json" $kind decoded_per_image >>"$scratch/$kind.decoded"
	done
	[ -n "$tf" ] || continue
	for n in $ranks; do article "$n"; done >"$scratch/tf"
	awk '{ line = line " " $1 } END { print line }' "$scratch/tf" >>"$scratch/tf_old.rate"
	awk '{ line = line " " $2 } END { print line }' "$scratch/tf" >>"$scratch/tf_new.rate"
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
rivals=(old new)
[ -z "$tf" ] || rivals+=(tf_old tf_new)
printf '%-6s %16s %16s %16s' ranks ours old new
[ -z "$tf" ] || printf ' %12s %12s' "old, tf.data" "new, tf.data"
for kind in "${rivals[@]}"; do printf ' %26s' "ours / $kind"; done
echo
column=1
for n in $ranks; do
	printf '%-6s' "$n"
	for kind in ours old new; do
		printf ' %9.0f (%.1f)' "$(median $kind.rate $column)" "$(median $kind.decoded $column)"
	done
	[ -z "$tf" ] || printf ' %12.0f %12.0f' "$(median tf_old.rate $column)" "$(median tf_new.rate $column)"
	for kind in "${rivals[@]}"; do printf ' %26s' "$(ratios $kind $column)"; done
	echo
	column=$((column + 1))
done
