#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The knobs of training: each does what its line of help says. One core, a small network, a few seconds.
bats_require_minimum_version 1.5.0
load helpers

NETWORK=(--model densenet --growth 4 --blocks 1,1 --threads 1 --resamples 0)

setup_file() {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH"
	"$BUILD/chexnet" synth --out "$SCRATCH/tree" --size 32 --images 400 --prevalence-floor 0.1 >/dev/null
	"$BUILD/chexnet" prepare nih "$SCRATCH/tree" "$SCRATCH/data" --size 32 >/dev/null
}
teardown_file() { rm -rf "$SCRATCH"; }
teardown() { [ -n "${BATS_TEST_COMPLETED:-}" ] || tail -n 20 "$SCRATCH"/*.out; }

train() { # NAME [OPTION…]
	rm -rf "${SCRATCH:?}/$1"
	"$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/data" --output "$SCRATCH/$1" "${@:2}" >"$SCRATCH/$1.out"
}
need_address_limit() { [ -z "${SAN:-}" ] || skip "AddressSanitizer reserves terabytes of addresses, so ulimit -v cannot play a small machine"; }
losses() { sed -n 's/.*"event":"step".*"step":\([0-9]*\),.*"loss":\([0-9.]*\).*/\1 \2/p' "$SCRATCH/$1/log.jsonl"; }

@test "a batch that does not fit is refused before the first step, with both numbers and a cure" {
	need_address_limit
	(
		ulimit -v 1500000
		run --separate-stderr -64 "$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/data" --output "$SCRATCH/huge" --batch 4095 --image-size 32 --growth 64
		echo "$stderr"
		[[ $stderr =~ --batch=4095\ needs\ ([0-9]+)\ MiB\ and\ there\ are\ ([0-9]+)\ MiB.*\ ([0-9]+)\ fit\;\ --accumulate=([0-9]+)\  ]]
		[ $((BASH_REMATCH[3] * BASH_REMATCH[4])) -ge 4095 ] # the next smaller number would not do
		[ $((BASH_REMATCH[3] * (BASH_REMATCH[4] - 1))) -lt 4095 ]
		[ "${BASH_REMATCH[1]}" -gt "${BASH_REMATCH[2]}" ]
		[ "${BASH_REMATCH[2]}" -lt 1500 ]
		run --separate-stderr -64 "$BUILD/chexnet" bench --model densenet --growth 64 --blocks 2,2 --batch 4096 --image-size 32 --threads 1
		[[ $stderr =~ --batch=4096\ needs\ [0-9]+\ MiB\ and\ there\ are\ [0-9]+\ MiB\ for\ this\ rank ]]
	)
	run ! grep -q '"event":"step"' "$SCRATCH/huge/log.jsonl"
}

@test "--batch=auto takes the largest that fits, and says what it reckoned with" {
	train auto --batch auto --steps 1
	grep -q '^--batch=auto: 256 images' "$SCRATCH/auto.out"
	grep -q '^global batch 256 ' "$SCRATCH/auto.out"
	awk -F, 'NR > 1 && NR <= 101 { print $1 ",train" }' "$SCRATCH/tree/Data_Entry_2017_v2020.csv" >"$SCRATCH/few.csv" # no more than there are
	"$BUILD/chexnet" prepare nih "$SCRATCH/tree" "$SCRATCH/few" --size 32 --split "file:$SCRATCH/few.csv" >/dev/null
	train auto --data "$SCRATCH/few" --batch auto --steps 1
	grep -q '^--batch=auto: 64 images' "$SCRATCH/auto.out"
	need_address_limit
	(
		ulimit -v 600000
		train little --batch auto --steps 1 --growth 192 --image-size 32
		batch=$(sed -n 's/^--batch=auto: \([0-9]*\) images.*/\1/p' "$SCRATCH/little.out")
		[ "$batch" -ge 1 ]
		[ "$batch" -lt 256 ]
	)
}

# As in a job of srun --mem=300M where Slurm hands out memory (CR_Core_Memory): to a step that takes more Slurm itself puts an end (OverMemoryKill).
@test "the memory that Slurm gives the step on its node holds where the kernel holds nobody to it" {
	(
		ulimit -m 307200
		train mem --batch auto --steps 1 --growth 192 --image-size 32
		batch=$(sed -n 's/^--batch=auto: \([0-9]*\) images.*/\1/p' "$SCRATCH/mem.out")
		[ "$batch" -ge 1 ]
		[ "$batch" -lt 256 ]
		kept=$(sed -n 's/^decoded images: at most \([0-9]*\) MiB a rank.*/\1/p' "$SCRATCH/mem.out")
		[ "$kept" -le 75 ]
	)
}

# Prints the MiB that are left for the batch on a machine of 64.
left_of_64() { # NAME OPTION…
	TEST_MEMORY=$((64 << 20)) "$BUILD/tests/wrap_memory_available" train "${NETWORK[@]}" --output "$SCRATCH/$1" --batch auto --steps 1 "${@:2}" >"$SCRATCH/$1.out"
	sed -n 's/^--batch=auto: .* \([0-9]*\) MiB for this rank.*/\1/p' "$SCRATCH/$1.out"
}

@test "what decoded images will take is not given to the batch, too" {
	[ "$(left_of_64 none --data "$SCRATCH/data" --data-memory 0)" = 58 ] # less a tenth
	[ "$(left_of_64 kept --data "$SCRATCH/data" --data-memory 64)" = 57 ] # 400 images of 32 x 32
	grep -q 'train decoded once' "$SCRATCH/kept.out"
	[ "$(left_of_64 drawn)" -lt 30 ]
}

@test "--data-memory is for all splits together: what the first ones take is not there for the next" {
	"$BUILD/chexnet" synth --out "$SCRATCH/larger-tree" --images 300 --size 64 >/dev/null
	"$BUILD/chexnet" prepare nih "$SCRATCH/larger-tree" "$SCRATCH/larger" --size 64 >/dev/null
	train shared --data "$SCRATCH/larger" --data-memory 1 --steps 1 --batch 8 # MiB: 256 images of 64 x 64
	grep 'train decoded once, .* decoded in every pass' "$SCRATCH/shared.out"
}

@test "where nobody knows how much memory there is, a line says that the batch is not checked" {
	TEST_MEMORY=0 run -0 "$BUILD/tests/wrap_memory_available" train "${NETWORK[@]}" --data "$SCRATCH/data" --output "$SCRATCH/unknown" --batch 8 --steps 1
	[[ $output == *"nobody says how much memory this rank has, so that a batch of 8 is not checked against it"* ]]
}

@test "--fetch-every reads the loss less often, and trains the same" {
	train every --steps 12 --batch 8 --fetch-every 1
	train seldom --steps 12 --batch 8 --fetch-every 5
	[ "$(losses every | wc -l)" = 12 ]
	# the first, every fifth, the last
	[ "$(losses seldom | cut -d' ' -f1 | tr '\n' ' ')" = "0 4 9 11 " ]
	[ "$(losses every | grep -E '^(0|4|9|11) ')" = "$(losses seldom)" ]
}

@test "--tensorboard says of a step what the log says" {
	train events --steps 12 --batch 8 --fetch-every 5 --tensorboard
	python3 -c '
import glob, json, struct, sys

def fields(message):  # of a protocol buffer
    at = 0
    def number():
        nonlocal at
        value = shift = 0
        while True:
            value |= (message[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if message[at - 1] < 128:
                return value
    while at < len(message):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
            continue
        size = {1: 8, 2: None, 5: 4}[key & 7]
        size = number() if size is None else size
        yield key >> 3, message[at:at + size]
        at += size

told, data, at = {}, open(glob.glob(sys.argv[1] + "/tensorboard/*")[0], "rb").read(), 0
while at < len(data):
    size = struct.unpack_from("<Q", data, at)[0]
    event = dict(fields(data[at + 12:at + 12 + size]))
    at += size + 16
    for _, value in fields(event.get(5, b"")):
        value = dict(fields(value))
        told.setdefault(event.get(2, 0), {})[value[1].decode()] = struct.unpack("<f", value.get(2, bytes(4)))[0]
steps = [x for x in map(json.loads, open(sys.argv[1] + "/log.jsonl")) if x["event"] == "step" and "loss" in x]
assert [x["step"] for x in steps] == [0, 4, 9, 11]
for x in steps:
    for tag, name in ("loss/train", "loss"), ("learning_rate", "lr"), ("images_per_s", "images_per_s"):
        assert abs(told[x["step"]][tag] - x[name]) <= 1e-5 * abs(x[name]), (x, told[x["step"]])
' "$SCRATCH/events"
}

@test "--pos-weight=balanced: positives weigh as much as negatives" {
	train plain --steps 1 --batch 64
	train balanced --steps 1 --batch 64 --pos-weight balanced
	# an undecided network under balanced weights: 2 ln 2 (1 - prevalence), the mean over findings of 0.1 to 0.18
	awk "BEGIN { exit !($(losses plain | cut -d' ' -f2) < 0.6) }"
	awk "BEGIN { l = $(losses balanced | cut -d' ' -f2); exit !(l > 0.9 && l < 1.6) }"
	# a rate that takes the network apart
	for rule in none balanced; do
		train patience --steps 200 --batch 8 --eval-every 1 --learning-rate 10 --warmup-epochs 0 --decay plateau --patience 1 --pos-weight $rule
		[ $rule = none ] && weighted="" || weighted="weighted "
		grep -q "^no lower ${weighted}validation loss: " "$SCRATCH/patience.out"
		grep -q "^1 validation without a lower ${weighted}loss: " "$SCRATCH/patience.out"
	done
	# while the rate still rises, here in 15 steps, a plateau says nothing of it
	train rising --steps 30 --batch 8 --eval-every 1 --learning-rate 10 --decay plateau --warmup-epochs 100
	grep -q "the learning rate falls" "$SCRATCH/rising.out"
	sed '/^validation after step 14:/q' "$SCRATCH/rising.out" >"$SCRATCH/half.out"
	run ! grep "the learning rate falls" "$SCRATCH/half.out"
	# the next step learns at what is said
	awk '
		FILENAME ~ /out$/ && /^validation after step/ { step = $4 + 0 }
		FILENAME ~ /out$/ && /the learning rate falls to/ && step < 30 { said[step] = $NF }
		/"event":"step"/ { match($0, /"step":[0-9]*/); step = substr($0, RSTART + 7, RLENGTH - 7); match($0, /"lr":[^,]*/); lr[step] = substr($0, RSTART + 5, RLENGTH - 5) }
		END { for (s in said) { n++; print s, said[s], lr[s]; if (lr[s] / said[s] > 1.0001 || lr[s] / said[s] < 0.9999) exit 1 } exit !n }
	' "$SCRATCH/rising.out" "$SCRATCH/rising/log.jsonl"
}

@test "--pos-weight=balanced: the network starts at one half, and at the weighted share of a finding whose weight is capped" {
	"$BUILD/chexnet" synth --out "$SCRATCH/rare-tree" --images 600 --size 32 >/dev/null
	# one image in 150 shows Hernia, where positives would weigh 149 and do 100
	awk -F, -v OFS=, 'NR > 1 { gsub(/\|Hernia|Hernia\|/, "", $2); sub(/^Hernia$/, "No Finding", $2) } NR % 150 == 2 { $2 = "Hernia" } 1' \
		"$SCRATCH/rare-tree/Data_Entry_2017_v2020.csv" >"$SCRATCH/rare.csv"
	mv "$SCRATCH/rare.csv" "$SCRATCH/rare-tree/Data_Entry_2017_v2020.csv"
	"$BUILD/chexnet" prepare nih "$SCRATCH/rare-tree" "$SCRATCH/rare-data" --size 32 >/dev/null 2>&1
	train rare --data "$SCRATCH/rare-data" --steps 1 --batch 8 --learning-rate 1e-9 --pos-weight balanced
	python3 - "$SCRATCH/rare/model.safetensors" <<-'END'
		import json, struct, sys
		data = open(sys.argv[1], "rb").read()
		size = struct.unpack("<Q", data[:8])[0]
		begin, end = json.loads(data[8 : 8 + size])["classifier.bias"]["data_offsets"]
		bias = struct.unpack("<14f", data[8 + size + begin : 8 + size + end])
		print(*bias)
		assert all(abs(b) < 1e-4 for b in bias[:13]) and -1.5 < bias[13] < -0.02
	END
}

@test "ten crops: eval and predict say the same, and not what one window says" {
	[ -e "$SCRATCH/plain/model.safetensors" ] || train plain --steps 1 --batch 64
	for crops in none ten; do
		"$BUILD/chexnet" eval --weights "$SCRATCH/plain/model.safetensors" --data "$SCRATCH/data" --threads 1 --resamples 0 --crops $crops --predictions "$SCRATCH/$crops.csv" >"$SCRATCH/$crops.out"
	done
	grep -q ', ten crops$' "$SCRATCH/ten.out"
	image=$(sed -n '3s/,.*//p' "$SCRATCH/ten.csv")
	"$BUILD/chexnet" predict --weights "$SCRATCH/plain/model.safetensors" --threads 1 --crops ten --json "$SCRATCH/tree/images/$image" >"$SCRATCH/ten.json"
	predicted=$(awk '/logits/ { on = 1 } on && /Hernia/ { gsub(/[^-0-9.e]/, "", $2); print $2 }' "$SCRATCH/ten.json")
	ten=$(sed -n '3s/.*,//p' "$SCRATCH/ten.csv") none=$(sed -n '3s/.*,//p' "$SCRATCH/none.csv")
	echo "predict $predicted, eval $ten, one window $none"
	for finding in Hernja zzzzzzzzzzzzzzzz; do
		run --separate-stderr -64 "$BUILD/chexnet" predict --weights "$SCRATCH/plain/model.safetensors" --threads 1 --maps "$SCRATCH/maps" --finding $finding "$SCRATCH/tree/images/$image"
		echo "$stderr"
		hint='known: Atelectasis, *, Hernia' && [ $finding != Hernja ] || hint='did you mean Hernia?'
		# shellcheck disable=SC2053
		[[ $stderr == *"--finding=$finding: no finding is called that ("$hint')' ]]
	done
	awk "BEGIN { d = $predicted - $ten; exit !(d < 1e-4 && d > -1e-4 && $ten != $none) }"
}

# Threads of a predict that waits for the reader of what it prints, with the environment's words $@.
predict_threads() {
	local pid images
	images=$(yes "$(find "$SCRATCH/tree/images" -name '*.png' | head -n 1)" | head -n 1000) # a pipe holds 64 KiB
	# shellcheck disable=SC2086
	env -u HVD_GPU "$@" CUDA_VISIBLE_DEVICES= "$BUILD/chexnet" predict --weights "$SCRATCH/plain/model.safetensors" $images <>"$SCRATCH/pipe" >&0 2>"$SCRATCH/waiting.out" &
	pid=$!
	timeout 20 head -c 1 "$SCRATCH/pipe" >/dev/null || cat "$SCRATCH/waiting.out" >&2 # the engine is open, and has computed
	sed -n 's/^Threads:[^0-9]*//p' "/proc/$pid/status"
	kill $pid
	wait $pid || true
}

@test "predict computes where eval does and says so, with the threads that its help speaks of" {
	[ -e "$SCRATCH/plain/model.safetensors" ] || train plain --steps 1 --batch 64
	rm -f "$SCRATCH/pipe"
	mkfifo "$SCRATCH/pipe"
	one=$(predict_threads HVD_THREADS=1)
	three=$(predict_threads HVD_THREADS=3)
	all=$(predict_threads -u HVD_THREADS)
	echo "threads: $one, $three, $all"
	# as many compute, and as many read, of a batch of 8 no more than 8
	cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
	[ $((three - one)) -eq 4 ]
	[ $((all - one)) -eq $((cores - 1 + (cores < 8 ? cores : 8) - 1)) ]
	grep -qx 'chexnet predict: no GPU here: the CPU computes' "$SCRATCH/waiting.out"
	run --separate-stderr -70 env CUDA_VISIBLE_DEVICES= "$BUILD/chexnet" predict --weights "$SCRATCH/plain/model.safetensors" --engine cuda "$SCRATCH/pipe"
	[[ $stderr == *"--engine=cuda: rank 0 on "*" sees no GPU"* ]]
}

@test "another trainer's word for a knob is answered with ours" {
	run --separate-stderr -64 "$BUILD/chexnet" train --use_fp16
	[[ $stderr == *"here --precision=bf16"* ]]
	run --separate-stderr -64 "$BUILD/chexnet" train --lr 1e-3
	[[ $stderr == *"that is PyTorch's; here --learning-rate=RATE"* ]]
	run --separate-stderr -64 "$BUILD/chexnet" train --nproc-per-node=2
	[[ $stderr == *"that is torchrun's; here srun --hvd"* ]]
	# and PyTorch's, timm's and Lightning's, also where one of our options looks like it
	while read -r theirs ours; do
		run --separate-stderr -64 "$BUILD/chexnet" train --data /nowhere "--$theirs=1"
		echo "$stderr"
		[[ $stderr == "chexnet train: unknown option --$theirs: that is PyTorch's; here $ours"* ]]
	done <<-'EOF'
		AdamW --optimizer=adam: weight decay
		adamw --optimizer=adam: weight decay
		clip-grad no switch: gradients are not clipped
		clip_grad_norm no switch: gradients are not clipped
		label-smoothing no switch: labels are 0 or 1
		dropout no switch: none
		model-ema no switch: the weights of the step
		lr-scheduler --decay=COURSE
		workers --decode-threads=N
		pin-memory no switch: slots that a GPU
		fp16 --precision=bf16
		arch --model=NAME
		eps --momentum=BETA
		tta eval --crops=ten
		sync_bn no switch: a micro-batch
		world-size srun --hvd: one process
	EOF
	# by commands that judge and measure, too: what they lack is called training's
	while read -r command theirs ours; do
		run --separate-stderr -64 "$BUILD/chexnet" "$command" "--$theirs=1"
		echo "$stderr"
		[[ $stderr == "chexnet $command: unknown option --$theirs: that is PyTorch's; $ours"* ]]
	done <<-'EOF'
		eval num-workers here --decode-threads=N
		eval early_stopping chexnet train has --patience=N
		predict device here --engine=NAME
		predict workers chexnet train has --decode-threads=N
		bench workers chexnet train has --decode-threads=N
	EOF
	run --separate-stderr -64 "$BUILD/chexnet" train --optimizer adamw
	[[ $stderr == *"--optimizer=adamw: did you mean adam?"* ]]
	run --separate-stderr -64 "$BUILD/chexnet" train --ParallelGraph
	[[ $stderr == *"refused"* ]]
	run --separate-stderr -64 "$BUILD/chexnet" bench --variable_update=parameter_server
	[[ $stderr == *"refused"* ]]
	run --separate-stderr -64 "$BUILD/chexnet" train --engine gpu
	[[ $stderr == *"--engine=gpu: did you mean cuda?"* ]]
}

@test "bench --ablate: a row for every knob, a gain where there is a switch" {
	"$BUILD/chexnet" bench --ablate --model densenet --growth 4 --blocks 1,1 --image-size 32 --batch 4 --steps 1 --rounds 1 --data "$SCRATCH/data" >"$SCRATCH/ablate.out"
	cat "$SCRATCH/ablate.out"
	rows=$(grep -cE '^(PaddlePaddle|tf_cnn_benchmarks|Dell|PyTorch|torchrun) ' "$SCRATCH/ablate.out")
	[ "$rows" = "$(grep -c '^	KNOB(' trainer/commands/knobs.c)" ]
	[ "$(grep -cE ' [0-9.]+x \([0-9.]+ to [0-9.]+\) ' "$SCRATCH/ablate.out")" = "$(grep -cE '^	KNOB\(.*, (THREADS|PREFETCH|DATA|MERGE|BF16|FETCH|BUCKETS|BATCH),' trainer/commands/knobs.c)" ]
}

@test "KNOBS.md says of every knob what bench --ablate says" {
	sed -n 's/^	     "\(.*\)"),$/\1/p' trainer/commands/knobs.c >"$SCRATCH/why"
	[ -s "$SCRATCH/why" ]
	[ "$(wc -l <"$SCRATCH/why")" = "$(grep -c '^	KNOB(' trainer/commands/knobs.c)" ]
	while read -r why; do grep -qF "| $why |" trainer/KNOBS.md; done <"$SCRATCH/why"
}

@test "the labels that --mask leaves out are named in full" {
	local but_mass=Atelectasis,Cardiomegaly,Effusion,Infiltration,Nodule,Pneumonia,Pneumothorax,Consolidation,Edema,Emphysema,Fibrosis,Pleural_Thickening,Hernia
	train mass --steps 1 --batch 64 --mask $but_mass
	cat "$SCRATCH/mass.out"
	grep -q "^labels that are left out (--mask=$but_mass): train [1-9][0-9]*, val [0-9]*, test [1-9][0-9]*$" "$SCRATCH/mass.out"
}

@test "--mask leaves findings out of loss, table and mean, in training and in eval" {
	train masked --steps 2 --batch 64 --mask Hernia,Mass
	cat "$SCRATCH/masked.out"
	grep -q '^labels that are left out (--mask=Hernia,Mass): train [1-9]' "$SCRATCH/masked.out"
	for finding in Hernia Mass; do grep -qE "^$finding +- +n/a  not learnt$" "$SCRATCH/masked.out"; done
	grep -q '^mean of 12 of 14 ' "$SCRATCH/masked.out"
	# going on with other labels would be another training
	for other in "" --mask=Hernia; do
		# shellcheck disable=SC2086 # a word or none
		run --separate-stderr -64 "$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/data" --output "$SCRATCH/masked" --resume auto --steps 3 --batch 64 $other
		[[ $stderr == *"checkpoint-00000002.safetensors was trained with a"*" --mask: give the --mask of then, or --weights="*".safetensors in place of --resume, with another --output, starts anew"* ]]
	done
	train masked --steps 3 --batch 64 --mask Mass,Hernia --resume auto
	# a masked label adds nothing, and the loss is the mean over the others: those of two findings and of twelve make that of all
	train whole --steps 2 --batch 64
	train rest --steps 1 --batch 64 --mask "$(sed -n 's/.*"findings":.\[\(.*\)\],/\1/p' "$SCRATCH/data/manifest.json" | tr -d '" ' | sed 's/Mass,//; s/,Hernia//')"
	first() { losses "$1" | head -n 1 | cut -d' ' -f2; }
	awk "BEGIN { d = (12 * $(first masked) + 2 * $(first rest)) / 14 - $(first whole); print d; exit !(d < 1e-5 && d > -1e-5) }"
	# a finding that no image shows is not in the mean, either
	cp -r "$SCRATCH/tree" "$SCRATCH/bare-tree"
	sed -i 's/|Hernia//; s/Hernia|//; s/,Hernia,/,No Finding,/' "$SCRATCH/bare-tree/Data_Entry_2017_v2020.csv"
	"$BUILD/chexnet" prepare nih "$SCRATCH/bare-tree" "$SCRATCH/bare" --size 32 >/dev/null
	for rule in none balanced; do
		train without --steps 1 --batch 64 --data "$SCRATCH/bare" --pos-weight $rule
		train hidden --steps 1 --batch 64 --data "$SCRATCH/bare" --pos-weight $rule --mask Hernia
		awk "BEGIN { d = $(first without) - $(first hidden); print d; exit !(d < 1e-4 && d > -1e-4) }"
	done
	# what is written is empty, as unknown labels are
	head -n 3 "$SCRATCH/masked/test.csv"
	[ "$(awk -F, '/^#/ { next } !n { n = split($0, name); next } { for (i = 1; i <= n; i++) if (name[i] ~ /Hernia/ && $i == "") empty++; rows++ } END { print (rows > 0 && empty == rows) }' "$SCRATCH/masked/test.csv")" = 1 ]
	"$BUILD/chexnet" eval --weights "$SCRATCH/whole/model.safetensors" --data "$SCRATCH/data" --threads 1 --resamples 0 --mask Hernia --predictions "$SCRATCH/eval.csv" >"$SCRATCH/eval.out"
	grep -q '^mean of 13 of 14 ' "$SCRATCH/eval.out"
	head -n 1 "$SCRATCH/eval.csv" | grep -q '%20--mask=Hernia '
	# what the weights were not trained on is not judged, whoever asks, and an ensemble is judged on what all members know
	run --separate-stderr "$BUILD/chexnet" eval --weights "$SCRATCH/masked/model.safetensors" --data "$SCRATCH/data" --threads 1 --resamples 0
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[[ $output == *"mean of 12 of 14 "* ]]
	[[ $stderr == *"chexnet eval: not judged: Mass, Hernia: the last training of these weights had no labels of them"* ]]
	image=$(find "$SCRATCH/tree/images" -name '*.png' | head -n 1)
	run --separate-stderr "$BUILD/chexnet" predict --weights "$SCRATCH/masked/model.safetensors" --threads 1 --maps "$SCRATCH/maps" "$image"
	echo "$output $stderr"
	[[ $stderr == *"n/a: Mass, Hernia: the last training of these weights had no labels of them"* ]]
	[ "$(grep -cE '^  (Mass|Hernia) +n/a$' <<<"$output")" -eq 2 ]
	[ "$(grep -cE '^  [A-Z][a-z_T]+ +[0-9]\.[0-9]{3,}(e-[0-9]+)?$' <<<"$output")" -eq 12 ]
	"$BUILD/chexnet" predict --weights "$SCRATCH/masked/model.safetensors" --threads 1 --json "$image" 2>/dev/null | python3 -c '
import json, sys
row = json.load(sys.stdin)[0]
assert row["untrained"] == ["Mass", "Hernia"] and [k for k, v in row["probabilities"].items() if v is None] == ["Mass", "Hernia"], row'
	run --separate-stderr -64 "$BUILD/chexnet" predict --weights "$SCRATCH/masked/model.safetensors" --threads 1 --maps "$SCRATCH/maps" --finding Mass "$image"
	[[ $stderr == *"--finding=Mass: the last training of "*" had no labels of it, or none that differ (Mass, Hernia)"* ]]
	mean=$(sed -n 's/^mean of 12 of 14 *\(0[.0-9]*\).*/\1/p' "$SCRATCH/masked.out" | tail -n 1)
	for order in "masked whole 1" "whole masked 2"; do
		read -r first second masked <<<"$order"
		"$BUILD/chexnet" ensemble "$SCRATCH/both.csv" "$SCRATCH/$first/test.csv" "$SCRATCH/$second/test.csv" --spread "$SCRATCH/spread.csv" >"$SCRATCH/both.out"
		cat "$SCRATCH/both.out"
		grep -q '^mean AUROC of the ensemble: 0.* (12 of 14 findings)$' "$SCRATCH/both.out"
		grep -qx "mean AUROC of member $masked: $mean" "$SCRATCH/both.out"
		grep -qx 'not judged, because not all members have labels: Mass, Hernia; OUT averages what all of them say of these, learnt or not' "$SCRATCH/both.out"
		[ "$(grep -cE '^(Mass|Hernia)( +n/a){6}$' "$SCRATCH/both.out")" -eq 2 ] # nor are the models apart where one has no answer
		[ "$(awk -F, 'NR == 1 { n = split($0, name); next } { for (i = 2; i <= n; i++) if (($i == "") != (name[i] ~ /^(Mass|Hernia)_/)) wrong++ } END { print (NR > 1), wrong + 0 }' "$SCRATCH/spread.csv")" = "1 0" ]
	done
	# the weights know their data again: a mask does not make them other data
	run ! grep -q 'come from other data' "$SCRATCH/eval.out"
}

@test "--mask=file: labels of single images; what is wrong in it is named" {
	test=$(sed -n '/^#/d; 3s/,.*//p' "$SCRATCH/tree/Data_Entry_2017_v2020.csv")
	(cut -d, -f1 "$SCRATCH/tree/test_list.txt" | sed 's/$/,Edema/' && echo "99999999_000.png,All") >"$SCRATCH/mask.csv"
	train single --steps 1 --batch 64 --mask "file:$SCRATCH/mask.csv"
	grep -q '^labels that are left out .*: train 0, val 0, test [1-9][0-9]*; 1 row names an image of no split$' "$SCRATCH/single.out"
	grep -qE '^Edema +n/a +n/a  no label is known' "$SCRATCH/single.out"
	grep -q '^mean of 13 of 14 ' "$SCRATCH/single.out"
	run --separate-stderr -64 "$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/data" --output "$SCRATCH/no" --mask Hernja
	[[ $stderr == *'--mask=Hernja: unknown finding "Hernja" (did you mean Hernia?)'* ]]
	# without a label to learn from, a finding is not judged by training either, as it is not by eval
	sed 's/$/,Edema/' "$SCRATCH/tree/train_val_list.txt" >"$SCRATCH/mask.csv"
	train untaught --steps 1 --batch 64 --mask "file:$SCRATCH/mask.csv"
	run ! grep 'of no split' "$SCRATCH/untaught.out"
	grep -qE '^Edema +- +n/a  not learnt$' "$SCRATCH/untaught.out"
	run ! grep 'training image shows' "$SCRATCH/untaught.out" # which nobody knows
	"$BUILD/chexnet" eval --weights "$SCRATCH/untaught/model.safetensors" --data "$SCRATCH/data" --threads 1 --resamples 0 2>/dev/null >"$SCRATCH/eval.out"
	grep '^mean of 13 of 14 ' "$SCRATCH/eval.out"
	[ "$(grep '^mean of 13 of 14 ' "$SCRATCH/eval.out")" = "$(grep '^mean of 13 of 14 ' "$SCRATCH/untaught.out")" ]
	echo "$test,Efusion" >"$SCRATCH/mask.csv"
	run --separate-stderr -65 "$BUILD/chexnet" train "${NETWORK[@]}" --data "$SCRATCH/data" --output "$SCRATCH/no" --mask "file:$SCRATCH/mask.csv"
	[[ $stderr == *'mask.csv:1: unknown finding "Efusion"'* ]]
	echo "99999999_000.png,All" >"$SCRATCH/mask.csv"
	run --separate-stderr -65 "$BUILD/chexnet" eval --weights "$SCRATCH/single/model.safetensors" --data "$SCRATCH/data" --threads 1 --mask "file:$SCRATCH/mask.csv"
	[[ $stderr == *'none of its labels is in the test split'* ]]
}

@test "a finding that no training image shows, or every one, is not learnt: that is said, and it is no result of anybody's" {
	# rows of image,Hernia: of the training images with it, or of those without it
	labels=$(awk -F, 'NR == FNR { trained[$1]; next } FNR > 1 && $1 in trained { print ("|" $2 "|" ~ /\|Hernia\|/ ? "with" : "without") "," $1 }' \
		"$SCRATCH/tree/train_val_list.txt" "$SCRATCH/tree/Data_Entry_2017_v2020.csv")
	image=$(find "$SCRATCH/tree/images" -name '*.png' | head -n 1)
	for hidden in with without; do
		sed -n "s/^$hidden,\(.*\)/\1,Hernia/p" <<<"$labels" >"$SCRATCH/mask.csv"
		[ -s "$SCRATCH/mask.csv" ]
		train "$hidden" --steps 2 --eval-every 1 --batch 64 --mask "file:$SCRATCH/mask.csv"
		cat "$SCRATCH/$hidden.out"
		word=no && [ "$hidden" = with ] || word=every
		[ "$(grep '^warning: ' "$SCRATCH/$hidden.out")" = "warning: $word training image shows Hernia: not learnt, so n/a in every table, and no part of a mean" ]
		grep -qE '^Hernia +- +n/a  not learnt$' "$SCRATCH/$hidden.out"
		grep -q '^mean of 13 of 14 ' "$SCRATCH/$hidden.out"
		run ! grep 'validation after .* (.*14 of 14' "$SCRATCH/$hidden.out"
		run --separate-stderr -0 "$BUILD/chexnet" eval --weights "$SCRATCH/$hidden/model.safetensors" --data "$SCRATCH/data" --threads 1 --resamples 0
		grep -qE '^Hernia +- +n/a  not learnt$' <<<"$output"
		[ "$(grep '^mean of 13 of 14 ' <<<"$output")" = "$(grep '^mean of 13 of 14 ' "$SCRATCH/$hidden.out")" ]
		[[ $stderr == *"chexnet eval: not judged: Hernia: the last training of these weights had no labels of it, or none that differ"* ]]
		run --separate-stderr -0 "$BUILD/chexnet" predict --weights "$SCRATCH/$hidden/model.safetensors" --threads 1 --maps "$SCRATCH/maps" "$image"
		grep -qE '^  Hernia +n/a$' <<<"$output"
		grep '^  map ' <<<"$output" # of what is learnt, also where every image showed the other one
		[[ $output != *".Hernia.png"* ]]
		[[ $stderr == *"n/a: Hernia: the last training of these weights had no labels of it, or none that differ"* ]]
	done
	run -64 "$BUILD/chexnet" predict --weights "$SCRATCH/with/model.safetensors" --threads 1 --maps "$SCRATCH/maps" --finding Hernia "$image"
	"$BUILD/chexnet" eval --weights "$SCRATCH/with/model.safetensors" --data "$SCRATCH/data" --threads 1 --resamples 0 --json 2>/dev/null | python3 -c '
import json, sys
findings = json.load(sys.stdin)["findings"]
assert set(findings["Hernia"].values()) == {None} and findings["Mass"]["positives"] > 0, findings'
}
