#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a training step asks of a GPU, counted without one: the engine as nvcc compiled it, on the machine in software (tests/cuda/ptx), at
# two batches, whose difference is what an image costs. Counts are exact; the times beside them are only what an H200 would need at least,
# resource by resource. A convolution by cuDNN counts as reading and writing its tensors once; the copy that it may make of a slice of a wider
# buffer would be left out. MODEL, PRECISION, SMALL and LARGE (batches) choose; a machine of four multiprocessors, so that even small batches
# keep each busy with more than one tile. PTX=ptx90a: with wgmma.
set -eu
BUILD=${BUILD:-build} MODEL=${MODEL:-densenet121} PRECISION=${PRECISION:-bf16} SMALL=${SMALL:-2} LARGE=${LARGE:-4}
if [ ! -e "$BUILD/cuda/ptx/libchexnet_cuda.so" ]; then
	echo "left out: no nvcc, cuDNN's headers or zstd.h when this was built"
	exit 0
fi
scratch=$(mktemp -d "$BUILD/gpu_counts.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
for batch in "$SMALL" "$LARGE"; do
	LD_LIBRARY_PATH=$BUILD/cuda/${PTX:-ptx}:$BUILD/cuda PTX_PROFILE=$scratch/$batch "$BUILD/chexnet" bench --engine=cuda --model="$MODEL" --precision="$PRECISION" \
		--batch="$batch" --steps=1 --warm-up=0 --json >/dev/null
done
echo "$MODEL, $PRECISION, 224×224, one step at batches $SMALL and $LARGE"
python3 - "$scratch/$SMALL" "$SMALL" "$scratch/$LARGE" "$LARGE" <<'EOF'
import json
import sys

CLOCK = 132 * 1.75e9  # multiprocessors × Hz: what all of them do in a second
RATE = {"memory": 4.3e12, "shared": CLOCK, "issue": 4 * CLOCK, "tensor": CLOCK}  # of a copy; wavefronts; instructions; products of wgmma, of which mma.sync's take 1.6 times as long
counts = ["instructions", "products", "group_products", "wavefronts", "wavefronts_least", "sectors_read", "sectors_written"]


def load(path):
    return {row["kernel"]: row for row in map(json.loads, open(path))}


def short(name):
    return name.split("(")[0].replace("void ", "").replace("channel_pass_kernel", "pass").replace("_kernel", "")[:52]


small, large = load(sys.argv[1]), load(sys.argv[3])
images = int(sys.argv[4]) - int(sys.argv[2])
rows = []
for name, row in large.items():
    image = {k: (row[k] - small.get(name, {k: 0})[k]) / images for k in counts}
    fixed = {k: row[k] - image[k] * int(sys.argv[4]) for k in counts}
    megabytes = [(x["sectors_read"] + x["sectors_written"]) * 32e-6 for x in (image, fixed)]
    us = {"memory": megabytes[0] * 1e12 / RATE["memory"], "shared": image["wavefronts"] * 1e6 / RATE["shared"],
          "issue": image["instructions"] * 1e6 / RATE["issue"], "tensor": (1.6 * image["products"] + image["group_products"]) * 1e6 / RATE["tensor"]}
    rows.append((name, row["launches"], megabytes, us, row["wavefronts"] / max(1, row["wavefronts_least"])))
rows.sort(key=lambda r: -max(r[3].values()))
print("%-52s %8s %9s | µs an image: %6s %6s %6s %6s | %8s %10s" % ("kernel", "launches", "MB/image", "memory", "shared", "issue", "tensor", "MB fixed", "conflicts"))
for name, launches, megabytes, us, conflicts in rows:
    if max(us.values()) >= 0.05 or megabytes[1] >= 1:
        print("%-52s %8d %9.2f | %12s %6.2f %6.2f %6.2f %6.2f | %8.1f %10.2f" % (
            short(name), launches, megabytes[0], "", us["memory"], us["shared"], us["issue"], us["tensor"], megabytes[1], conflicts))
total = {k: sum(r[3][k] for r in rows) for k in RATE}
least = sum(max(r[3].values()) for r in rows)
print("all: %.1f MB an image, %.0f MB fixed, %d launches; µs an image: %s; each kernel's longest together %.1f: at most %.0f images/s" % (
    sum(r[2][0] for r in rows), sum(r[2][1] for r in rows), sum(r[1] for r in rows), ", ".join("%s %.1f" % (k, v) for k, v in total.items()), least, 1e6 / least))
EOF
