#!/usr/bin/env bash
# A small net (growth 16, blocks 2,2,2,2) learns synthetic X-rays of 64 x 64 on 2 CPU threads: test AUROC after at most 30 s of training,
# running statistics in evaluation, three seeds of data and training; and the null control: labels that no image shows.
set -eu
shopt -s inherit_errexit
BUILD=${BUILD:-build}
chexnet=$BUILD/chexnet
scratch=$BUILD/tests/tmp/bench-cpu-learn
rm -rf "$scratch"
mkdir -p "$scratch"
trap 'rm -rf "$scratch"' EXIT
status=0

learn() { # SEED CONTRAST: "SECONDS AUROC LOW HIGH"
	local seed=$1 contrast=$2 at=$scratch/$1-$2
	mkdir -p "$at"
	"$chexnet" synth --out "$at/tree" --images 9000 --size 64 --seed "$seed" --contrast "$contrast" >/dev/null
	"$chexnet" prepare nih "$at/tree" "$at/data" --size 64 --format packed >/dev/null
	"$chexnet" train --data "$at/data" --model densenet --growth 16 --blocks 2,2,2,2 --image-size 64 --batch 32 --threads 2 --engine cpu \
		--precision "${PRECISION:-bf16}" --learning-rate 4e-3 --steps 250 --eval-every 1000000 --seed "$seed" --output "$at/out" >/dev/null
	sed -n 's/.*"event":"summary".*"seconds":\([0-9.]*\).*/\1/p' "$at/out/log.jsonl" | tr '\n' ' '
	sed -n 's/.*"split":"test".*"mean":{"auroc":\([0-9.]*\),"low":\([0-9.]*\),"high":\([0-9.]*\).*/\1 \2 \3/p' "$at/out/log.jsonl"
}

for seed in 1 2 3; do
	read -r seconds auroc low high <<<"$(learn $seed 1)"
	verdict=$(awk "BEGIN { print ($auroc >= 0.85 && $seconds <= 30 ? \"met\" : \"MISSED\") }")
	printf 'seed %d: trained %5.1f s, test AUROC %.3f (95 %% interval %.3f to %.3f), goal >= 0.85 in 30 s: %s\n' $seed "$seconds" "$auroc" "$low" "$high" "$verdict"
	[ "$verdict" = met ] || status=1
	read -r seconds auroc low high <<<"$(learn $seed 0)"
	verdict=$(awk "BEGIN { print ($low <= 0.5 && $high >= 0.5 ? \"met\" : \"MISSED\") }")
	printf '        null control: test AUROC %.3f, interval %.3f to %.3f, goal: holds 0.5: %s\n' "$auroc" "$low" "$high" "$verdict"
	[ "$verdict" = met ] || status=1
done
exit $status
