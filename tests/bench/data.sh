#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How many images a second one core reads, and two, each beside tf.data and PyTorch's DataLoader with Pillow on the same files, with
# the same output (256 x 256 gray uint8 in shuffled batches of 32) on the same CPUs, in turns. Real X-rays where ../shared has them,
# each COPIES times under another name so that they exceed the second-level cache; synthetic ones otherwise.
#
#   ROUNDS=3      medians of so many; SECONDS_EACH=1: how long each measurement takes, after as long a warm-up of the rivals
#   PYTHON_TF, PYTHON_TORCH: interpreters that have tensorflow, and torch with Pillow; PYTHON unless told, and that is python3
set -eu
chexnet=${BUILD:-build}/chexnet
[ -x "$chexnet" ] || { echo "no $chexnet"; exit 1; }
shared=${SHARED:-../shared} rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-1}
scratch=$(realpath "${BUILD:-build}")/tests/tmp/bench-data
rm -rf "$scratch"
mkdir -p "$scratch/gray/images" "$scratch/results"
trap 'rm -rf "$scratch"' EXIT

table=Data_Entry_2017_v2020.csv
gray=$scratch/gray
if [ -d "$shared/nih-sample/images" ]; then
	copies=${COPIES:-16}
	source=$(realpath "$shared/nih-sample")
	head -n 1 "$source/$table" >"$gray/$table"
	: >"$gray/train_val_list.txt"
	patient=0
	for image in "$source"/images/*.png; do
		# byte 25 is the colour type; the six of 64 that are RGBA go another way through every decoder
		[ "$(od -An -tu1 -j25 -N1 "$image" | tr -d ' ')" = 0 ] || continue
		row=$(grep -F "$(basename "$image")" "$source/$table")
		for ((copy = 0; copy < copies; copy++)); do
			patient=$((patient + 1))
			id=$(printf '%08d_000.png' $patient)
			ln -s "$image" "$gray/images/$id"
			awk -F, -v OFS=, -v id="$id" -v patient=$patient '{ $1 = id; $4 = patient; print }' <<<"$row" >>"$gray/$table"
			echo "$id" >>"$gray/train_val_list.txt"
		done
	done
	tail -n 3 "$gray/train_val_list.txt" >"$gray/test_list.txt"
	head -n -3 "$gray/train_val_list.txt" >"$scratch/list"
	mv "$scratch/list" "$gray/train_val_list.txt"
else
	echo "no real images: 64 synthetic ones of 1024 x 1024"
	rmdir "$gray/images" "$gray"
	"$chexnet" synth --out "$gray" --images 64 --size 1024 >/dev/null
fi
"$chexnet" prepare nih "$gray" "$scratch/jpeg" --format jpeg >/dev/null
"$chexnet" prepare nih "$gray" "$scratch/packed" --format packed >/dev/null

declare -A python=([tensorflow]=${PYTHON_TF:-${PYTHON:-python3}} [torch]=${PYTHON_TORCH:-${PYTHON:-python3}}) label=([tensorflow]=tf.data [torch]=PyTorch)
rivals=()
for rival in tensorflow torch; do
	if "${python[$rival]}" -c "import $rival, $([ $rival = torch ] && echo PIL, )os" 2>/dev/null; then
		rivals+=("$rival")
	else
		echo "rival left out: ${python[$rival]} cannot import $rival$([ $rival = torch ] && echo ' and PIL')"
	fi
done

note() { echo "$3" >>"$scratch/results/$1.$2.$cores"; } # KIND WHO RATE
median() { sort -g "$scratch/results/$1.$2.$3" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; } # KIND WHO CORES

declare -A dir=([packed]=$scratch/packed [jpeg]=$scratch/jpeg [png]=$gray)
cpus=("0" "0,1")
[ "$(nproc)" -gt 1 ] || cpus=(0)
measure_ours() { # NAME
	for kind in packed jpeg png; do
		note $kind "$1" "$(taskset -c "$mask" "$chexnet" data bench "${dir[$kind]}" --threads "$cores" --seconds "$seconds" --json |
			sed 's/.*"images_per_s":\([0-9.e+]*\).*/\1/')"
	done
}
for ((round = 0; round < rounds; round++)); do
	for mask in "${cpus[@]}"; do
		cores=$([ "$mask" = 0 ] && echo 1 || echo 2)
		measure_ours ours
		for rival in "${rivals[@]}"; do
			while read -r kind rate; do
				note "$kind" "$rival" "$rate"
			done < <(taskset -c "$mask" "${python[$rival]}" tests/bench/data_rivals.py "$rival" "$seconds" "packed=$scratch/packed/train.cxp" \
				"jpeg=$scratch/jpeg" "png=$gray" 2>/dev/null)
			measure_ours ours
		done
	done
done

# Virtual machines change their speed from minute to minute: a round's ratio is that of the rival to the mean of ours before and after.
ratios() { # KIND RIVAL CORES PLACE: median and spread; PLACE: of the rival in a round
	local k=$((${#rivals[@]} + 1))
	paste <(awk -v k=$k -v p="$4" '{ v[(NR - 1) % k] = $1 } NR % k == 0 { print (v[p] + v[p + 1]) / 2 }' "$scratch/results/$1.ours.$3") \
		"$scratch/results/$1.$2.$3" | awk '{ print $1 / $2 }' | sort -g |
		awk '{ v[NR] = $1 } END { printf "%.1fx (%.1f to %.1f)", v[int((NR + 1) / 2)], v[1], v[NR] }'
}
second_core() { # KIND: two cores against one, by rounds
	local k=$((${#rivals[@]} + 1))
	paste <(awk -v k=$k '{ s += $1 } NR % k == 0 { print s; s = 0 }' "$scratch/results/$1.ours.1") \
		<(awk -v k=$k '{ s += $1 } NR % k == 0 { print s; s = 0 }' "$scratch/results/$1.ours.2") | awk '{ print $2 / $1 }' | sort -g |
		awk '{ v[NR] = $1 } END { printf "%.2fx (%.2f to %.2f)", v[int((NR + 1) / 2)], v[1], v[NR] }'
}

declare -A title=([packed]="packed, 256 x 256" [jpeg]="TFRecord, JPEG 256 x 256" [png]="PNG 1024 x 1024 to 256")
declare -A goal=([packed]=100000 [jpeg]=5000 [png]=250)
printf '%-26s %5s %10s %8s' "images/s, medians of $rounds" cores ours goal
for rival in "${rivals[@]}"; do printf ' %10s %20s' "${label[$rival]}" "ours / ${label[$rival]}"; done
printf ' %s\n' "second core"
for kind in packed jpeg png; do
	for ((cores = 1; cores <= ${#cpus[@]}; cores++)); do
		printf '%-26s %5d %10.0f %8s' "${title[$kind]}" $cores "$(median $kind ours $cores)" "$([ $cores = 1 ] && echo "${goal[$kind]}" || echo -)"
		place=0
		for rival in "${rivals[@]}"; do
			printf ' %10.0f %20s' "$(median "$kind" "$rival" $cores)" "$(ratios "$kind" "$rival" $cores $place)"
			place=$((place + 1))
		done
		[ $cores = 1 ] && echo || printf ' %s\n' "$(second_core "$kind")"
	done
done
echo "not measured here: FFCV's documentation gives 172,801 images/s for its raw 256-pixel format on a whole p3dn.24xlarge"
