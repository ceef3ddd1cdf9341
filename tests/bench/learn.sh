#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The synthetic task: a small DenseNet from scratch, three seeds, and the null control (images without signs) that shows the score is
# no artefact; where its maps point; how long the intervals of a whole test take, beside scikit-learn where python3 has it.
set -eu
chexnet=$(realpath "${BUILD:-build}/chexnet")
scratch=$(realpath "${BUILD:-build}")/tests/tmp/bench-learn
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"
trap 'rm -rf "$scratch"' EXIT
network=(--model densenet --growth 16 --blocks 2,2,2,2 --image-size 64 --batch 16 --learning-rate 4e-3)

mean() { sed -n 's/^mean of [0-9]* of 14 *//p' "$1" | tail -n 1; } # value, interval, oracle

train() { # NAME SEED EPOCHS CONTRAST
	local begin=$SECONDS
	[ -d "data$4" ] || { "$chexnet" synth --out tree --images 12000 --size 64 --contrast "$4" >/dev/null; "$chexnet" prepare nih tree "data$4" --size 64 >/dev/null; mv tree "tree$4"; }
	begin=$SECONDS
	"$chexnet" train --data "data$4" --output "$1" --seed "$2" "${network[@]}" "${@:5}" --epochs "$3" >"$1.out"
	printf '%-24s %3d s   mean AUROC %s\n' "$1" $((SECONDS - begin)) "$(mean "$1.out")"
}
echo "mean AUROC on the test split, 95 % interval, the best possible; goal: 0.5 to 0.85 in 120 s"
for seed in 1 2 3; do
	train "seed-$seed-first-step" $seed 0.002 1 --warmup-epochs 0 --learning-rate 0
	train "seed-$seed" $seed 3 1
done
for seed in 1 2 3; do train "null-control-$seed" $seed 1 0; done
grep -Ff tree1/test_list.txt <(cut -d, -f1 tree1/BBox_List_2017.csv | sort -u) | head -n 400 | sed 's|^|tree1/images/|' |
	xargs "$chexnet" predict --weights seed-1/model.safetensors --boxes tree1/BBox_List_2017.csv | tail -n 1
"$chexnet" bench --intervals
python=${PYTHON:-python3}
if ! "$python" -c 'import sklearn' 2>/dev/null; then
	echo "rival left out: $python has no scikit-learn"
	exit 0
fi
"$python" - <<'PY'
import time
import numpy as np
from sklearn.metrics import roc_auc_score

images, patients, resamples = 25596, 2797, 20
rng = np.random.default_rng(1)
labels = rng.random((images, 14)) < 0.125
logits = rng.normal(size=(images, 14)) + labels
patient = np.arange(images) % patients
begin = time.time()
for _ in range(resamples):
    weight = np.bincount(rng.integers(0, patients, patients), minlength=patients)[patient]
    for f in range(14):
        roc_auc_score(labels[:, f], logits[:, f], sample_weight=weight)
print(f"rival: scikit-learn, {resamples} of the 1000 resamples in {time.time() - begin:.1f} s: {(time.time() - begin) * 1000 / resamples:.0f} s for all of them")
PY
