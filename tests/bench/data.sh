#!/usr/bin/env bash
# How fast images arrive, per source: images a second of wall time and of CPU time, with 1 and 2 decode threads; median of 3.
# Real images where ../shared has them, else synthetic. The rival for files is Pillow, where python3 has it: decode and area resize.
set -eu
chexnet=${BUILD:-build}/chexnet
[ -x "$chexnet" ] || { echo "no $chexnet"; exit 1; }
shared=${SHARED:-../shared}
scratch=${BUILD:-build}/tests/tmp/bench-data
rm -rf "$scratch"
mkdir -p "$scratch"
trap 'rm -rf "$scratch"' EXIT
source=$shared/nih-sample
if [ ! -d "$source/images" ]; then
	echo "no real images: 64 synthetic ones of 1024 x 1024"
	source=$scratch/tree
	"$chexnet" synth --out "$source" --images 64 --size 1024 >/dev/null
fi
"$chexnet" prepare nih "$source" "$scratch/png" --format png >/dev/null
"$chexnet" prepare nih "$source" "$scratch/jpeg" --format jpeg >/dev/null
"$chexnet" prepare nih "$source" "$scratch/packed" --format packed >/dev/null

median() { sort -g | sed -n 2p; }
field() { sed "s/.*\"$1\":\([0-9.e+]*\).*/\1/"; }

row() { # NAME DIR GOAL
	local name=$1 dir=$2 goal=$3 threads runs
	for threads in 1 2; do
		runs=$(for _ in 1 2 3; do OMP_NUM_THREADS=$threads "$chexnet" data bench "$dir" --threads $threads --seconds 1 --json; done)
		printf '%-34s %d thread%s %10.0f images/s %10.0f images a CPU second   goal %s\n' "$name" $threads "$([ $threads = 1 ] && echo ' ' || echo s)" \
			"$(field images_per_s <<<"$runs" | median)" "$(field images_per_cpu_s <<<"$runs" | median)" "$goal"
	done
}
row "packed 256 x 256" "$scratch/packed" "100000 a core"
row "TFRecord, JPEG 256 x 256" "$scratch/jpeg" "5000 a core"
row "TFRecord, PNG 256 x 256" "$scratch/png" "-"
row "PNG 1024 x 1024, reduced to 256" "$source" "250 a core"

python=${PYTHON:-python3}
if ! "$python" -c 'import PIL' 2>/dev/null; then
	echo "rival left out: $python has no Pillow"
	exit 0
fi
"$python" - "$source/images" <<'PY'
import pathlib, statistics, sys, time
from PIL import Image

files = sorted(pathlib.Path(sys.argv[1]).glob("*.png"))[:32]
rates = []
for _ in range(3):
    begin = time.process_time()
    for f in files:
        with Image.open(f) as image:
            image.convert("L").resize((256, 256), Image.Resampling.BOX).tobytes()
    rates.append(len(files) / (time.process_time() - begin))
print(f"rival: Pillow, the same PNG 1024 x 1024 to 256 by box filter: {statistics.median(rates):.0f} images a CPU second")
PY
