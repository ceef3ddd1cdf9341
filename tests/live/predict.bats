# SPDX-License-Identifier: Apache-2.0
# What a model says of single images: probabilities, activation maps, and the words that go with what it cannot see.

load trained

@test "maps of images with the same name do not take each other's place, nor count twice in the pointing game" {
	mkdir -p a b
	first=$(find tree/images -name '*.png' | sort | head -n 1)
	cp "$first" a/frontal.png
	cp "$(find tree/images -name '*.png' | sort | sed -n 2p)" b/frontal.png
	cp "$first" b/1.2.840.10008.png
	cp "$first" b/1.2.840.10009.PNG
	refuses 64 "a/frontal.png b/frontal.png both" chexnet predict --weights run1/model.safetensors --threads 1 --maps names a/frontal.png "$first" b/frontal.png
	[ ! -e names ]
	refuses 64 "a/frontal.png b/frontal.png --boxes name twice" chexnet predict --weights run1/model.safetensors --threads 1 --boxes tree/BBox_List_2017.csv a/frontal.png "$first" b/frontal.png
	run chexnet predict --weights run1/model.safetensors --threads 1 --maps names --finding Mass b/1.2.840.10008.png b/1.2.840.10009.PNG a/frontal.png a/frontal.png
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(ls names)" = $'1.2.840.10008.Mass.png\n1.2.840.10009.Mass.png\nfrontal.Mass.png' ]
	refuses 64 "--finding=Mass --maps" chexnet predict --weights run1/model.safetensors --finding Mass a/frontal.png
	# nor those of an earlier call; the same image's may be made anew, by other weights too
	cp names/frontal.Mass.png frontal.map
	mass=(chexnet predict --engine cpu --threads 1 --maps names --finding Mass)
	refuses 64 "names/frontal.Mass.png: map of another image, not of b/frontal.png --maps=DIR" "${mass[@]}" --weights run1/model.safetensors b/frontal.png
	cmp names/frontal.Mass.png frontal.map
	"${mass[@]}" --weights run2/model.safetensors a/frontal.png >/dev/null
	run ! cmp names/frontal.Mass.png frontal.map
	cp b/frontal.png names/frontal.Mass.png
	refuses 64 "names/frontal.Mass.png: no map of this command" "${mass[@]}" --weights run1/model.safetensors a/frontal.png
	cmp names/frontal.Mass.png b/frontal.png
	# what could not be read for want of memory is not called something else
	mv frontal.map names/frontal.Mass.png
	refuses 70 "names/frontal.Mass.png: no memory" "$BUILD/tests/wrap_spng_get_text" "${mass[@]:1}" --weights run1/model.safetensors a/frontal.png
	refuses 70 "no memory for a report" "$BUILD/tests/wrap_spng_get_text" report --predictions 1.csv --pictures names --resamples 100 --out names.html
	[ ! -e names.html ]
}

@test "an image whose map would have too long a name is named before any is scored" {
	local image rest finding
	image=$(find tree/images -name '*.png' | sort | head -n 1)
	mkdir -p long
	cp "$image" long/a.png
	predict() { chexnet predict --engine cpu --threads 1 --weights run1/model.safetensors --maps long-maps "$@"; }
	for finding in Mass ""; do # of the longest finding's name where it may be that
		rest=$((255 - 17 - 18 - 5 + (${#finding} ? 18 - ${#finding} : 0)))
		name=$(printf "%0${rest}d" 0)
		cp "$image" "long/$name.png"
		cp "$image" "long/0$name.png"
		for json in "" --json; do
			refuses 64 "long/0$name.png: may have $rest bytes this has $((rest + 1)) shorter" predict ${finding:+--finding=$finding} $json long/a.png "long/0$name.png" "$image"
			[ -z "$output" ]
		done
		[ ! -e long-maps ]
		predict ${finding:+--finding=$finding} --json long/a.png "long/$name.png" "$image" >long.json
		[ "$(tail -c 2 long.json)" = "]" ]
		[ "$(grep -c '"image"' long.json)" -eq 3 ]
		[ "$(find long-maps -name '*.png' | wc -l)" -eq 3 ]
		rm -r long-maps
	done
	# a directory of which no file could be named
	refuses 64 "--maps=./" predict --finding Mass --maps "$(printf './%.0s' {1..2020})long-maps" long/a.png
}

@test "a map's place is none where nothing speaks for the finding, and its figures are told" {
	python3 -c 'import json' 2>/dev/null || skip "no python3 to read the JSON"
	find "$PWD/tree/images" -name '*.png' | sort | head -n 40 >some
	for finding in Effusion Nodule Hernia; do
		xargs chexnet predict --weights run1/model.safetensors --threads 1 --maps evidence --finding $finding --json <some 2>/dev/null
	done | python3 -c '
import json, sys
text, rows, decoder = sys.stdin.read().strip(), [], json.JSONDecoder()
while text:
    found, end = decoder.raw_decode(text)
    rows, text = rows + [row["map"] for row in found], text[end:].strip()
silent = [m for m in rows if m["peak"] <= 0]
print(len(rows), "maps,", len(silent), "without evidence, peaks from", min(m["peak"] for m in rows), "to", max(m["peak"] for m in rows))
assert len(rows) == 120 and 0 < len(silent) < 120
for m in rows:
    assert m["cells"] == 4 and (m["x"] is None) == (m["y"] is None) == (m["peak"] <= 0), m
    assert max(m["peak"], 0) <= m["raised"] <= 16 * max(m["peak"], 0) and (m["x"] is None or 0 < m["x"] < 1), m
'
}

# A network that sees 24 of 32 pixels.
windowed() {
	[ -e narrow/model.safetensors ] ||
		chexnet train --data set --model densenet --growth 4 --blocks 1,1 --image-size 24 --steps 2 --batch 8 --resamples 0 --threads 1 --output narrow >/dev/null
}

draw() { # WIDTH HEIGHT GRAY: a PNG; GRAY is a Python expression of x and y
	python3 -c 'import struct, sys, zlib
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
width, height, gray = int(sys.argv[1]), int(sys.argv[2]), eval("lambda x, y: " + sys.argv[3])
rows = b"".join(b"\0" + bytes(gray(x, y) for x in range(width)) for y in range(height))
sys.stdout.buffer.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))' "$@"
}

@test "an image that is cut while it is read is named, and the others are scored; one larger than any image is not read at all" {
	local json
	cat >cutting.c <<-'EOF'
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <sys/stat.h>
		#include <sys/syscall.h>
		#include <unistd.h>
		int fstat(int fd, struct stat *st)
		{
			char link[64], path[4096] = "";
			long rc = syscall(SYS_newfstatat, fd, "", st, 0x1000 /* AT_EMPTY_PATH */);
			snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
			if (rc == 0 && readlink(link, path, sizeof path - 1) > 0 && strstr(path, getenv("SHRINKING")))
				rc = truncate(path, 0); /* somebody copies another one over it */
			return (int)rc;
		}
	EOF
	"${CC:-gcc}" -D_GNU_SOURCE -O1 -shared -fPIC -o cutting.so cutting.c
	export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0
	mapfile -t images < <(find "$PWD/tree/images" -name '*.png' | sort | head -n 9)
	for json in "" --json; do
		cp "${images[0]}" shrinking.png
		run --separate-stderr env SHRINKING=/shrinking.png LD_PRELOAD="$PWD/cutting.so" chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 $json shrinking.png "${images[@]}"
		echo "$stderr"
		[ "$status" -eq 65 ]
		[[ $stderr == *"chexnet predict: shrinking.png: reading stopped at byte 0 of "*": the file is shorter than it was"* ]]
		[ "$(grep -c "$PWD/tree/images/.*png" <<<"$output")" -eq 9 ]
	done
	[[ $output == *"]" ]]
	# audit tells of it among all the others, and prepare names it
	cp -r tree cut
	image=cut/images/${images[0]##*/}
	cp "$image" whole.png
	run -65 env SHRINKING="/$image" LD_PRELOAD="$PWD/cutting.so" chexnet audit cut
	echo "$output"
	[[ $output == *"PROBLEM (images): $image: reading stopped at byte 0 of "* ]]
	[[ $output == *"note (counts): Hernia"* ]]
	cp whole.png "$image"
	run --separate-stderr -65 env SHRINKING="/$image" LD_PRELOAD="$PWD/cutting.so" chexnet prepare nih cut cutset --size 32
	echo "$stderr"
	[[ $stderr == "chexnet prepare: $image: reading stopped at byte 0 of "* ]]
	[ ! -e cutset ]
	# no memory is asked for what cannot be an image
	truncate -s 300G "$image"
	run -65 chexnet audit cut
	echo "$output"
	[[ $output == *"PROBLEM (images): $image: 322122547200 bytes, which is more than any image has "* ]]
	rm -r cut
	truncate -s 2G shrinking.png
	refuses 65 "shrinking.png: 2147483648 bytes, more than any image" chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 shrinking.png "${images[0]}"
	rm shrinking.png
}

@test "a name's line ends and control characters are not printed as such: what follows one would pass for a row" {
	draw 8 2 '3 * x' >$'forged\n  Mass 0.99\e[31m.png' || skip "no python3 to draw it"
	run --separate-stderr chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 --maps forged $'forged\n  Mass 0.99\e[31m.png'
	printf '%s\n' "$output$stderr"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 16 ]
	[ "${lines[0]}" = "forged?  Mass 0.99?[31m.png" ]
	[[ $stderr == *"warning: forged?  Mass 0.99?[31m.png: 8 x 2 pixels are stretched"* ]]
	[[ $output$stderr != *$'\e'* ]]
	rm -r forged*
}

@test "rows of JSON are printed as images are scored, and what ends before its time is no JSON" {
	python3 -c 'import json' 2>/dev/null || skip "no python3 to read the JSON"
	find tree/images -name '*.png' | sort | head -n 9 >nine
	last=$(basename "$(tail -n 1 nine)" .png)
	predict() { xargs chexnet predict --weights run1/model.safetensors --threads 1 --json --finding Mass --maps "$@" <nine; }
	predict whole >whole.json 2>/dev/null
	rows=$(python3 -c 'import json; print(len(json.load(open("whole.json"))))')
	mkdir -p "stopped/$last.Mass.png"
	! predict stopped >stopped.json 2>words || return 1
	cat words
	grep -q "^chexnet predict: stopped/$last.Mass.png: " words
	python3 - "$rows" <<-'EOF'
		import json, sys
		whole, text = open("whole.json").read(), open("stopped.json").read()
		assert sys.argv[1] == "9" and text.count('"image"') == 8 and whole.startswith(text.replace("stopped/", "whole/")), text
		try:
		    json.loads(text)
		except ValueError:
		    assert len(json.loads(text + "]")) == 8
		else:
		    sys.exit("what was cut off is taken for all")
	EOF
}

@test "what the network sees of an image is told: in a line, in JSON, in the map and in the report" {
	windowed
	draw 60 40 '3 * x' >sixty.png || skip "no python3 to draw it"
	run --separate-stderr chexnet predict --weights narrow/model.safetensors --threads 1 --maps framed --json sixty.png
	echo "$stderr"
	[ "$status" -eq 0 ]
	[[ $stderr == *"); the network sees the middle 75 % of each side of an image"* ]]
	python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["map"]["window"])' <<<"$output" | tee seen
	[ "$(cat seen)" = "{'x': 7.5, 'y': 5, 'width': 45, 'height': 30}" ]
	grep -aq ' image=60x40 window=7.5,5,45,30' framed/sixty.*.png
	run ! grep -aq ' crops=' framed/sixty.*.png
	run -0 --separate-stderr chexnet predict --weights narrow/model.safetensors --threads 1 --maps cropped --crops ten sixty.png
	[[ $stderr != *"the network sees"* ]]
	grep -aq ' crops=ten image=60x40 ' cropped/sixty.*.png
	chexnet report --predictions narrow/test.csv --pictures framed --resamples 100 --out framed.html
	grep -q 'A map shows only what is within the white frame, the middle 75&nbsp;% of each side: of the rest, 44&nbsp;% of the image, it says nothing' framed.html
	run ! grep -q 'do not say which part' framed.html
	# a picture of a version that did not tell, and one of a network that sees everything
	python3 -c 'import re, struct, sys, zlib
data = open(sys.argv[1], "rb").read()
at = data.index(b"tEXt") - 4
size = struct.unpack(">I", data[at:at + 4])[0]
text = re.sub(rb" image=.*", b"", data[at + 4:at + 8 + size])
sys.stdout.buffer.write(data[:at] + struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text)) + data[at + 12 + size:])' framed/sixty.*.png >old.png
	mkdir both && mv old.png both/
	chexnet predict --weights run1/model.safetensors --threads 1 --maps both sixty.png >/dev/null
	chexnet report --predictions narrow/test.csv --pictures both --resamples 100 --out both.html
	grep -q 'A map shows the whole of each image' both.html
	grep -q '>1 of these pictures do not say which part of the image the network saw' both.html
}

@test "the log of another training is told, and that of either of two compared ones is not, but whose of them it is" {
	hash=$(sed -n 's/.*"event":"end".*"weights_hash":"\([0-9a-f]*\)".*/\1/p' log1.jsonl)
	grep -q "^# .* weights_hash=$hash " 1.csv
	for words in "--predictions 1.csv --log log1.jsonl" "--predictions run1/test.csv --log log1.jsonl" "--predictions 2.csv --compare 1.csv --log log1.jsonl"; do
		# shellcheck disable=SC2086
		run --separate-stderr chexnet report $words --resamples 100 --out own.html
		[ "$status" -eq 0 ]
		[ -z "$stderr" ]
		grep -q "<dd><code>$hash</code>" own.html
		run ! grep -q 'The log of another training' own.html
		[ "$(grep -c '<b>The training log is that of the other model, B:</b>' own.html)" = "$([[ $words != *--compare* ]]; echo $?)" ]
	done
	run --separate-stderr chexnet report --predictions 2.csv --log log1.jsonl --resamples 100 --out other.html
	[ "$status" -eq 0 ]
	[ "$stderr" = "chexnet report: warning: the training of log1.jsonl ends with other weights than those of 2.csv" ]
	grep -q '<b>The log of another training, or of other weights of the same one.</b>' other.html
	# one that does not say what it ended with, of an older release or of a training that was stopped
	sed 's/,"weights_hash":"[0-9a-f]*"//' log1.jsonl >silent.jsonl
	run --separate-stderr chexnet report --predictions 2.csv --log silent.jsonl --resamples 100 --out silent.html
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
}

@test "maps of another model are marked, whichever command scored and from whichever file" {
	windowed
	image=$(find tree/images -name '*.png' | head -n 1)
	chexnet predict --weights run1/model.safetensors --threads 1 --maps ours "$image" >/dev/null
	hash=$(grep -aoE 'weights_hash=[0-9a-f]{16}' ours/*.png)
	[[ $hash =~ ^weights_hash=[0-9a-f]{16}$ ]]
	for scored in 1.csv run1/test.csv; do
		grep -q "^# .* $hash " $scored
		run --separate-stderr chexnet report --predictions $scored --pictures ours --resamples 100 --out ours.html --json ours.json
		[ "$status" -eq 0 ]
		[ -z "$stderr" ]
		grep -q "<dd><code>${hash#*=}</code>" ours.html
		grep -q "\"weights_hash\":.*\"${hash#*=}\"" ours.json
		run ! grep -qE 'another model|it is not known' ours.html
	done
	cp -r ours mixed
	chexnet predict --weights narrow/model.safetensors --threads 1 --maps mixed --finding Mass "$image" >/dev/null
	for where in --out=mixed.html --tensorboard=mixed-events; do
		run --separate-stderr chexnet report --predictions 1.csv --pictures mixed --resamples 100 "$where"
		[ "$status" -eq 0 ]
		[ "$stderr" = "chexnet report: warning: 1 of the 2 pictures in mixed were made with other weights than 1.csv" ]
	done
	grep -q "<b>Maps of another model.</b> 1 of the 2 pictures" mixed.html
	[ "$(grep -c "a map of another model than these predictions'" mixed.html)" -eq 1 ]
	sed '1s/ weights_hash=[0-9a-f]*//' 1.csv >silent.csv
	run -0 --separate-stderr chexnet report --predictions silent.csv --pictures ours --resamples 100 --out silent.html
	[ -z "$stderr" ]
	grep -q 'Of 1 of these pictures it is not known whether this model made them' silent.html
}

@test "a window that the maps' cells do not cover is told before the training, and where maps are asked for" {
	narrow() { chexnet train --data set --model densenet --growth 4 --blocks 1,1 --batch 8 --resamples 0 --threads 1 --no-augment "$@"; }
	told="activation maps will not reach the last 5 of 28 columns and rows: 28 is no multiple of their cells' 8 pixels, --image-size=24 and 32 are"
	image=$(find tree/images -name '*.png' | head -n 1)
	narrow --image-size 28 --steps 1 --output odd >odd.out
	[ "$(grep -cx -- "$told" odd.out)" -eq 1 ]
	narrow --steps 1 --output even >even.out
	grep -q ', 24 pixels of 32; ' even.out
	run ! grep 'activation maps' even.out
	# what is resumed keeps its window, which cannot be helped any more
	narrow --steps 2 --resume auto --output odd >odd.out
	grep -q ', 28 pixels of 32; ' odd.out
	run ! grep 'activation maps' odd.out
	for what in "odd 1" "even 0"; do
		read -r weights times <<<"$what"
		run --separate-stderr chexnet predict --weights "$weights/model.safetensors" --threads 1 --maps "$weights-maps" "$image"
		echo "$stderr"
		[ "$(grep -c "the maps' cells do not reach the last 5 of the 28 columns and rows that the network sees, as 28 is no multiple of their 8 pixels: these are darkened, and evidence" <<<"$stderr")" -eq "$times" ]
		printf 'Image Index,Finding Label,Bbox [x,y,w,h],,,\n%s,Mass,8,8,8,8,,,\n' "${image##*/}" >one-box.csv
		run --separate-stderr chexnet predict --weights "$weights/model.safetensors" --threads 1 --boxes one-box.csv "$image"
		echo "$stderr"
		[ "$(grep -c "as 28 is no multiple of their 8 pixels: evidence in them moves to the cells before" <<<"$stderr")" -eq "$times" ]
		run -0 --separate-stderr chexnet predict --weights "$weights/model.safetensors" --threads 1 "$image"
		[[ $stderr != *"cells"* ]]
	done
}

@test "of weights that do not say how large their images were or what their outputs are, a size and the order are assumed with a word, or a size given" {
	python3 "$BATS_TEST_DIRNAME/forget_notes.py" run1/model.safetensors unsaid 14 || skip "no Python here"
	image=$(find tree/images -name '*.png' | head -n 1)
	size=(--resize 32 --image-size 32) ordered=
	for weights in unsaid/model.safetensors run1/model.safetensors; do # the same, and what the others say themselves may be typed
		chexnet predict --weights $weights --engine cpu --threads 1 "${size[@]}" --json "$image" 2>words | grep -A 14 '"logits"' >"$(dirname $weights).logits"
		run ! grep 'does not say how large' words
		! grep -q 'does not say which findings its outputs stand for: taken as Atelectasis, .*, Hernia, in this order' words || ordered+=" $weights"
		chexnet eval --data set --weights $weights --image-size 32 --threads 1 --resamples 0 --json 2>words | grep -A 2 '"mean"' >"$(dirname $weights).mean"
		run ! grep 'does not say how large' words
		! grep -q 'chexnet eval: .* does not say which findings' words || ordered+=" $weights"
	done
	[ "$ordered" = " unsaid/model.safetensors unsaid/model.safetensors" ]
	[ "$(wc -l <unsaid.logits)" -eq 15 ]
	[ "$(wc -l <unsaid.mean)" -eq 3 ]
	diff unsaid.logits run1.logits
	diff unsaid.mean run1.mean
	# the page says so too, of predictions by the one and not by the other
	for weights in unsaid run1; do
		chexnet eval --data set --weights $weights/model.safetensors --image-size 32 --threads 1 --resamples 0 --predictions $weights.order.csv >/dev/null 2>&1
		chexnet report --predictions $weights.order.csv --resamples 100 --out $weights.order.html --json $weights.report.json >/dev/null
		chexnet eval --data set --weights $weights/model.safetensors --image-size 32 --threads 1 --resamples 0 --json 2>/dev/null >$weights.eval.json
		chexnet predict --weights $weights/model.safetensors --threads 1 "${size[@]}" --json "$image" 2>/dev/null >$weights.predict.json
	done
	[ "$(cat run1.{report,eval,predict}.json | grep -c '"order"')" -eq 0 ]
	for weights in unsaid.{report,eval,predict}.json; do tr -d '\t' <$weights | grep -qx '"order":"assumed",'; done
	head -n 1 unsaid.order.csv | grep -q ' order=assumed '
	[ "$(grep -c 'The order of the findings was assumed.</b> The weights of the model do not say .* taken as Atelectasis, .*, Hernia\. In' unsaid.order.html run1.order.html)" = "unsaid.order.html:1"$'\n'"run1.order.html:0" ]
	chexnet predict --weights unsaid/model.safetensors --threads 1 "$image" 2>words >/dev/null
	grep -q 'unsaid/model.safetensors does not say how large its images were: they are made 256 pixels a side here, of which the network sees the middle 224 (' words
	chexnet predict --weights unsaid/model.safetensors --threads 1 --image-size 28 "$image" 2>words >/dev/null
	grep -q 'they are made 32 pixels a side here, of which the network sees the middle 28 (' words
	refuses 64 "--resize=64: the network sees 224 pixels" chexnet predict --weights unsaid/model.safetensors --resize 64 "$image"
	refuses 64 "--image-size=28: run1/model.safetensors says 32 itself" chexnet predict --weights run1/model.safetensors --image-size 28 "$image"
	refuses 64 "--resize=64: run1/model.safetensors says 32 itself" chexnet predict --weights run1/model.safetensors --resize 64 "$image"
	refuses 64 "--image-size=28: run1/model.safetensors says 32 itself" chexnet eval --data set --weights run1/model.safetensors --image-size 28
	refuses 64 "unsaid/model.safetensors does not say how many 224 a side 32 --image-size=PIXELS" chexnet eval --data set --weights unsaid/model.safetensors
	chexnet prepare nih tree wide --size 240 >/dev/null
	chexnet eval --data wide --split val --weights unsaid/model.safetensors --threads 1 --resamples 0 2>words >/dev/null
	grep -q 'unsaid/model.safetensors does not say how large its images were: the network sees the middle 224 of 240 pixels a side (' words
	refuses 64 "--image-size=64: the prepared images have 32 pixels" chexnet eval --data set --weights unsaid/model.safetensors --image-size 64
}

@test "weights know what they learned from, and are not judged on other images without a word" {
	sed 's/"source":[^,]*,/"source": "ChestX-ray14, labels of 2020",/' set/manifest.json >manifest
	cp -r set nih && mv manifest nih/manifest.json
	chexnet train --data nih "${SMALL[@]}" --steps 2 --output nih-run >/dev/null
	chexnet train --data nih "${SMALL[@]}" --steps 2 --weights run1/model.safetensors --output nih-tuned >/dev/null
	chexnet train --data nih "${SMALL[@]}" --steps 3 --resume auto --output nih-tuned >/dev/null
	forgot=$(python3 "$BATS_TEST_DIRNAME/forget_notes.py" run1/model.safetensors forgot 14 && echo yes)
	image=$(find tree/images -name '*.png' | head -n 1)
	local run trained
	while IFS='|' read -r run trained; do
		run --separate-stderr chexnet predict --weights $run/model.safetensors --engine cpu --threads 1 "$image"
		echo "$stderr"
		[ "$stderr" = "chexnet predict: for research, not a medical device: these are probabilities under the training set's prevalence and labels ($trained)" ]
	done <<-'END'
		run1|synthetic: drawn by a program, so they say nothing about radiographs
		nih-run|ChestX-ray14, labels of 2020
		nih-tuned|synthetic, then ChestX-ray14, labels of 2020
	END
	[ "$forgot" != yes ] || chexnet predict --weights forgot/model.safetensors --threads 1 "$image" 2>&1 >/dev/null | grep -F '(the weights do not say of which images)'
	chexnet predict --weights run1/model.safetensors --threads 1 --json "$image" 2>/dev/null | tr -d '\t' >told.json
	grep -qx '"trained_on":"synthetic",' told.json
	grep -qx '"notice":"for research, not a medical device"' told.json
	# judged on images of the other kind, and of its own
	local data told
	while read -r run data told; do
		rm -f judged.csv
		chexnet eval --data $data --weights $run/model.safetensors --threads 1 --resamples 0 --predictions judged.csv >judged
		chexnet report --predictions judged.csv --resamples 100 --out judged.html
		echo "$run on $data: $(grep -c '^other images than in training: ' judged) $(grep -c 'Other images than in training' judged.html)"
		[ "$(grep -c '^other images than in training: ' judged) $(grep -c 'Other images than in training' judged.html)" = "$told $told" ]
	done <<-END
		run1 nih 1
		run1 set 0
		nih-run set 1
		nih-run nih 0
		nih-tuned nih 0
		nih-tuned set 1
	END
	chexnet eval --data nih --weights run1/model.safetensors --threads 1 --resamples 0 --json | tr -d '\t' >judged.json
	grep -qx '"trained_on":"synthetic",' judged.json
	grep -qx '"source":"ChestX-ray14, labels of 2020",' judged.json
}

@test "what weights and data note of themselves tells a terminal nothing" {
	mkdir -p escaped
	python3 - run1/model.safetensors escaped/model.safetensors <<-'END' || skip "no python3 to write it"
		import json, struct, sys
		data = open(sys.argv[1], "rb").read()
		size = struct.unpack("<Q", data[:8])[0]
		header = json.loads(data[8:8 + size])
		notes = {k: v for k, v in header["__metadata__"].items() if k != "crc32c"}
		header["__metadata__"] = {**notes, "trained_on": "ChestX-ray14\x1b]0;mine\x07\x1b[2J\n\x9b31mchexnet: fine", "split_policy": "\x1b[31mofficial\r"}
		text = json.dumps(header).encode()
		text += b" " * (-len(text) % 8)
		open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
	END
	cp -r set escaped/set
	sed -i 's/"split_policy":[^,]*,/"split_policy": "\\u001b[31mofficial\\u0007",/' escaped/set/manifest.json
	{
		chexnet predict --engine cpu --threads 1 --weights escaped/model.safetensors "$(find tree/images -name '*.png' | head -n 1)"
		chexnet eval --data escaped/set --weights escaped/model.safetensors --threads 1 --resamples 0 --predictions escaped/1.csv
		chexnet train --data escaped/set "${SMALL[@]}" --steps 2 --weights escaped/model.safetensors --output escaped/run
		chexnet compare escaped/1.csv 1.csv
	} >escaped/out 2>&1
	cat -v escaped/out
	[ "$(grep -c 'ChestX-ray14?\]0;mine??\[2J???31mchexnet: fine' escaped/out)" -ge 2 ]
	run ! env LC_ALL=C grep -aqP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' escaped/out
	run ! grep -q '^.31mchexnet: fine' escaped/out
}

@test "a file name that is not UTF-8 leaves JSON, HTML and files of predictions valid" {
	python3 -c 'import json' 2>/dev/null || skip "no python3 to read the JSON"
	name=$(printf 'b\303\344d')
	mkdir -p "$name" && cp "$(find tree/images -name '*.png' | head -n 1)" "$name/$name.png"
	cp run1/model.safetensors "$name/$name.safetensors" && cp 1.csv "$name/$name.csv"
	cp -r set "$name/set" && cp -r tree "$name/tree"
	valid() { "$@" 2>/dev/null | python3 -c 'import json, sys
for line in sys.stdin.buffer if sys.argv[1] == "lines" else [sys.stdin.buffer.read()]: json.loads(line.decode())' "${lines:-one}"; }
	chexnet predict --weights "$name/$name.safetensors" --threads 1 --maps "$name/maps" "$name/$name.png" >/dev/null
	valid chexnet predict --weights "$name/$name.safetensors" --threads 1 --maps "$name/maps" --json "$name/$name.png" "$name/none.png"
	valid chexnet eval --data "$name/set" --weights "$name/$name.safetensors" --threads 1 --resamples 0 --json
	valid chexnet compare "$name/$name.csv" 1.csv --resamples 100 --json
	lines=lines valid chexnet audit --json "$name/set" "$name/tree"
	chexnet prepare nih "$name/tree" "$name/again" --size 32 >/dev/null
	valid cat "$name/again/manifest.json"
	chexnet train --data "$name/again" --model densenet --growth 4 --blocks 1,1 --steps 2 --batch 8 --resamples 0 --threads 1 --output "$name/run" >/dev/null
	lines=lines valid cat "$name/run/log.jsonl"
	chexnet eval --data "$name/again" --weights "$name/run/model.safetensors" --threads 1 --resamples 0 --predictions "$name/eval.csv" >/dev/null
	python3 -c 'import sys
for path in sys.argv[1:]:
    assert " checkpoint=b%C3%E4d/run/model.safetensors " in open(path, encoding="utf-8").read(), path' "$name/run/test.csv" "$name/eval.csv"
	# what is read is the name as it was: the same weights' predictions may be replaced, and no other's
	chexnet eval --data "$name/again" --weights "$name/run/model.safetensors" --threads 1 --resamples 0 --predictions "$name/eval.csv" >/dev/null
	ends_with 64 chexnet eval --data "$name/again" --weights run1/model.safetensors --threads 1 --resamples 0 --predictions "$name/eval.csv"
	chexnet report --predictions "$name/$name.csv" --log "$name/run/log.jsonl" --pictures "$name/maps" --resamples 100 --out "$name/r.html" --json "$name/r.json" >/dev/null
	valid cat "$name/r.json"
	python3 -c 'import sys; open(sys.argv[1], encoding="utf-8").read()' "$name/r.html"
}

@test "an image of one colour is scored, and a line says that nothing is to be seen in it" {
	image=$(find tree/images -name '*.png' | head -n 1)
	for gray in 0 77 255; do
		draw 40 40 $gray >gray$gray.png || skip "no python3 to draw it"
		run --separate-stderr chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 "$image" gray$gray.png
		[ "$status" -eq 0 ]
		[ "$(grep -c '^  Hernia' <<<"$output")" -eq 2 ]
		[ "$(sed 1d <<<"$stderr")" = "chexnet predict: warning: gray$gray.png: every pixel is of the same gray, $gray of 255: nothing is to be seen, and its probabilities mean nothing" ]
	done
}

@test "a negative, and an image that is nearly black or white, are scored, and a line says what is wrong with them" {
	local frame body words
	while read -r frame body words; do
		draw 64 64 "$frame if x < 8 or x >= 56 or y < 8 else $body + (x + y) % 3" >"framed$frame-$body.png" || skip "no python3 to draw it"
		run --separate-stderr chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 "framed$frame-$body.png"
		echo "$status $stderr"
		[ "$status" -eq 0 ]
		[ "$(grep -c '^  Hernia' <<<"$output")" -eq 1 ]
		stderr=$(grep -v '^chexnet predict: for research, ' <<<"$stderr" || true)
		[[ -n $words || -z $stderr ]]
		[[ -z $words || $stderr == "chexnet predict: warning: framed$frame-$body.png: $words"* ]]
		[ "$(grep -c . <<<"$stderr")" -le 1 ]
	done <<-'END'
		20 130
		112 50 looks inverted (a border brighter than its body): bones are to be light,
		240 90 looks inverted (a border brighter than its body): bones are to be light,
		2 3 nearly black (3 of 255 on average): hardly anything is to be seen,
		252 248 nearly white (250 of 255 on average): hardly anything is to be seen,
	END
}

@test "12 bits that lie unscaled in 16 are refused, with a white marker on them too, and the audit of a tree names them" {
	deep() { # NAME GRAY: a PNG of 64 x 64 pixels with 16 bits; GRAY is a Python expression of x and y
		python3 -c 'import struct, sys, zlib
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
gray = eval("lambda x, y: " + sys.argv[1])
rows = b"".join(b"\0" + b"".join(struct.pack(">H", gray(x, y)) for x in range(64)) for y in range(64))
sys.stdout.buffer.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 16, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))' "$2" >"$1"
	}
	local film='(x * 5 + y * 7) % 256' image
	mkdir -p deep/images
	deep deep/images/00000001_000.png "65535 if x < 6 and y < 6 else ($film) * 16" || skip "no python3 to draw it"
	deep deep/images/00000002_000.png "65535 if x < 6 and y < 6 else ($film) * 256"
	deep deep/images/00000003_000.png "($film) * 16"
	for image in deep/images/0000000[13]_000.png; do
		refuses 65 "$image 16 bits fewer than 1 in 100 quarter of white scale" chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 "$image"
	done
	chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 deep/images/00000002_000.png
	{
		head -n 1 tree/Data_Entry_2017_v2020.csv
		for image in 1 2 3; do sed -n 2p tree/Data_Entry_2017_v2020.csv | sed "s/^[^,]*,\([^,]*\),\([^,]*\),[^,]*/0000000${image}_000.png,\1,\2,$image/"; done
	} >deep/Data_Entry_2017_v2020.csv
	run chexnet audit deep
	echo "$output"
	[ "$status" -eq 65 ]
	[ "$(grep -c 'PROBLEM (images): .*0000000[13]_000.png: .*16 bits' <<<"$output")" -eq 2 ]
	[ "$(grep -c 'PROBLEM' <<<"$output")" -eq 2 ]
	[[ $output != *"nearly black"* ]]
}

@test "images too small for the network or far from square are scored, and a line says what is wrong with them" {
	local shape
	while read -r shape words; do
		# shellcheck disable=SC2086
		draw ${shape/x/ } '(64 + 7 * x + 5 * y) % 256' >"shape$shape.png" || skip "no python3 to draw it"
		run --separate-stderr chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 "shape$shape.png"
		echo "$status $stderr"
		[ "$status" -eq 0 ]
		[ "$(grep -c '^  Hernia' <<<"$output")" -eq 1 ]
		stderr=$(grep -v '^chexnet predict: for research, ' <<<"$stderr" || true)
		[[ -n $words || -z $stderr ]]
		[[ -z $words || $stderr == "chexnet predict: warning: shape$shape.png: ${shape/x/ x } $words"* ]]
		[ "$(grep -c . <<<"$stderr")" -le 1 ]
	done <<-'END'
		32x32
		64x32
		40x33
		2x2 pixels, and the network sees 32 a side
		31x60 pixels, and the network sees 32 a side
		5000x20 pixels are stretched into a square
		33x67 pixels are stretched into a square
	END
	head -c 128 /dev/zero >scan.dcm && printf DICM >>scan.dcm
	refuses 65 "scan.dcm DICOM PNG window MONOCHROME1" chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 scan.dcm
}

put() { # FILE TENSOR BYTES: over the first number of a tensor, in a file whose notes say nothing of a checksum any more
	local header at
	header=$(od -An -t u8 -N 8 "$1")
	at=$(head -c $((header + 8)) "$1" | grep -ao "\"$2\":{[^}]*" | sed 's/.*"data_offsets":\[\([0-9]*\).*/\1/')
	printf '%b' "$3" | dd of="$1" bs=1 seek=$((header + 8 + at)) conv=notrunc status=none
	[ -z "${4-}" ] || LC_ALL=C sed -i 's/"crc32c":/"crc32x":/' "$1"
}

@test "weights that make no number make no probability" {
	image=$(find tree/images -name '*.png' | head -n 1)
	cp run1/model.safetensors nan.safetensors
	put nan.safetensors classifier.bias '\0\0\300\177'
	refuses 65 "nan.safetensors: damaged, or saved again by another program: the CRC-32C of its notes and tensors" chexnet eval --data set --weights nan.safetensors
	# another program's have no checksum: the weights are named, not the images
	put nan.safetensors classifier.bias '\0\0\300\177' unchecked
	words="nan.safetensors: tensor classifier.bias holds what is no finite number"
	refuses 65 "$words" chexnet predict --weights nan.safetensors --engine cpu --threads 1 "$image"
	refuses 65 "$words" chexnet eval --data set --weights nan.safetensors
	refuses 65 "$words" chexnet train --data set --weights nan.safetensors --image-size 32 --batch 8 --steps 1 --threads 1 --output nan
	cp run1/model.safetensors odd.safetensors
	put odd.safetensors features.norm5.running_var '\0\0\200\277' unchecked # a variance of -1
	words="odd.safetensors: tensor features.norm5.running_var holds a variance below 0"
	refuses 65 "$words" chexnet predict --weights odd.safetensors --engine cpu --threads 1 "$image"
	refuses 65 "$words" chexnet eval --data set --weights odd.safetensors
	cp run1/checkpoint-00000012.safetensors odd.safetensors
	put odd.safetensors adam.exp_avg_sq.classifier.bias '\0\0\200\277' unchecked
	refuses 65 "odd.safetensors: tensor adam.exp_avg_sq.classifier.bias holds a second moment below 0" \
		chexnet train --data set --resume odd.safetensors --image-size 32 --batch 8 --steps 14 --threads 1 --output second-moment
	# what is finite in the weights and not in the sums is told by the images
	cp run1/model.safetensors odd.safetensors
	put odd.safetensors features.norm5.bias '\377\377\177\177' unchecked
	refuses 70 ".png: the network's output is not a number" chexnet predict --weights odd.safetensors --engine cpu --threads 1 --json "$image"
	[[ $output == *'"error"'* ]]
	[[ $output != *'"logits"'* ]]
	# the worst of all images is the exit code: of one batch, and of the batches, eight at a time
	run -70 chexnet predict --weights odd.safetensors --engine cpu --threads 1 "$image" gone.png
	run -70 chexnet predict --weights odd.safetensors --engine cpu --threads 1 "$image" gone-{1..9}.png
}

@test "a small probability is printed with as many digits as a large one, so that a threshold of a few thousandths decides; none is certain" {
	cp run1/model.safetensors small.safetensors
	header=$(od -An -t u8 -N 8 small.safetensors)
	bias=$(head -c $((header + 8)) small.safetensors | grep -ao '"classifier.bias":{[^}]*' | sed 's/.*"data_offsets":\[\([0-9]*\).*/\1/')
	printf '\0\0\300\300\0\0\100\301\0\0\100\101' | dd of=small.safetensors bs=1 seek=$((header + 8 + bias)) conv=notrunc status=none # -6, -12 and 12
	LC_ALL=C sed -i 's/"crc32c":/"crc32x":/' small.safetensors
	predict=(chexnet predict --weights small.safetensors --engine cpu --threads 1)
	image=$(find tree/images -name '*.png' | head -n 1)
	"${predict[@]}" "$image" >small.out
	cat small.out
	grep -qE '^  Atelectasis +0\.00[0-9]{4}$' small.out
	grep -qE '^  Cardiomegaly +0\.0000[0-9]{4,5}$' small.out
	grep -qE '^  Effusion +0\.9999[0-9]{1,4}$' small.out
	grep -qE '^  Hernia +0\.[1-9][0-9]{3}$' small.out
	"${predict[@]}" --json "$image" | sed -n '/"probabilities"/,/}/s/.*"\([A-Z][a-z_A-Z]*\)":[^0-9]*\([-+0-9.e]*\).*/\1 \2/p' >small.all
	[ "$(wc -l <small.all)" -eq 14 ]
	awk 'NR == FNR { p[$1] = $2; next } $1 in p { d = $2 / p[$1] - 1; n++; if (d > 0.0005 || d < -0.0005) bad++ } END { exit !(n == 14 && !bad) }' small.all small.out
}

@test "images are read by all threads, and rows and broken images stay in their order" {
	local threads
	mapfile -t images < <(find "$PWD/tree/images" -name '*.png' | sort | head -n 20)
	head -c 200 "${images[0]}" >cut.png
	images=(none.png "${images[@]:0:3}" cut.png "${images[@]:3}" cut.png)
	for threads in 1 5; do
		run chexnet predict --weights run1/model.safetensors --engine cpu --threads $threads --json "${images[@]}"
		[ "$status" -eq 65 ]
		echo "$output" | tr -d '\t' >threads$threads.json
	done
	[ "$(grep -c '^"image":' threads5.json)" -eq 23 ]
	[ "$(grep -c '^"error":' threads5.json)" -eq 3 ]
	cmp threads1.json threads5.json
	# each row is its own image's
	chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 --json "${images[5]}" 2>/dev/null | tr -d '\t' | grep -A 14 '"logits"' >one
	grep -A 40 -F "\"image\":\"${images[5]}\"" threads5.json | grep -m 1 -A 14 '"logits"' | cmp - one
}

@test "an image that may not be read is named, and the others are scored" {
	local user=()
	if [ "$(id -u)" = 0 ]; then
		command -v setpriv >/dev/null || skip "setpriv is not installed, and root may read everything"
		user=(setpriv --bounding-set=-all --inh-caps=-all)
	fi
	mapfile -t images < <(find "$PWD/tree/images" -name '*.png' | head -n 2)
	cp "${images[0]}" secret.png
	chmod 000 secret.png
	refuses 65 "secret.png cannot be read: Permission denied" "${user[@]}" chexnet predict --weights run1/model.safetensors --engine cpu --threads 1 secret.png "${images[1]}"
	[[ $output == "${images[1]}"* ]]
}

@test "images of another size than the training's are not scored through the wrong window" {
	chexnet prepare nih tree larger --size 48 >/dev/null
	refuses 65 "run1/model.safetensors 32 48 --size=32" chexnet eval --data larger --weights run1/model.safetensors
	refuses 64 "run1/model.safetensors 32 built-in --data=DIR 64" chexnet eval --weights run1/model.safetensors
	run chexnet train --data larger --weights run1/model.safetensors --steps 1 --batch 8 --resamples 0 --threads 1 --output tuned
	[ "$status" -eq 0 ]
	[[ $output == *"--image-size=48 would show about as much of them as its 32 did"* ]]
	chexnet eval --data larger --weights tuned/model.safetensors --threads 1 --resamples 0 >/dev/null
}

@test "many processors and little address space are no hindrance to one thread" {
	[ -z "${SAN:-}" ] || skip "a sanitizer takes more address space"
	image=$(find tree/images -name '*.png' | head -n 1)
	OMP_NUM_THREADS=250 run -0 bash -c 'ulimit -v 1000000; exec "$0" "$@"' "$BUILD/chexnet" predict --weights run1/model.safetensors --engine cpu --threads 1 "$image"
}
