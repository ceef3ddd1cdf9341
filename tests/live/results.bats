# SPDX-License-Identifier: Apache-2.0
# What a user does with results: report, compare, average; and what they are told when a file is not what it should be.

load trained

@test "the report holds what eval printed, and nothing from outside" {
	run chexnet report --predictions 1.csv --log log1.jsonl --resamples 100 --out r.html
	echo "$output"
	[ "$status" -eq 0 ]
	mean=$(chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 --json |
		sed -n '/"mean"/,/}/s/.*"auroc":[^0-9]*\([0-9.]*\).*/\1/p')
	mean=$(LC_ALL=C printf %.3f "$mean")
	echo "mean $mean"
	grep -q "<div class=\"big\">$mean</div>" r.html
	grep -q 'Synthetic images' r.html
	grep '"event":"start"' log1.jsonl | grep -q '"threads":1}' # those of --threads, not this machine's share
	grep -q "<dt>Trained on</dt><dd>$(python3 -c 'import json; print("%(images)d images of %(patients)d patients" % json.load(open("set/manifest.json"))["splits"]["train"])')</dd>" r.html
	chexnet report --predictions 1.csv --resamples 100 --out alone.html
	grep -q 'Synthetic images' alone.html
	grep -q 'chexnet report --predictions 1.csv' r.html
	# which version drew the resamples, and how: that of the predictions may be another
	sed '1s/ version=[^ ]* / version=0.0.7 /' 1.csv >older.csv
	chexnet report --predictions older.csv --resamples 100 --seed 7 --json older.json --out older.html
	grep -q '<dt>chexnet version</dt><dd><code>0.0.7</code>' older.html
	version=$(chexnet --version | sed 's/^chexnet //')
	grep -qF "<dt>by chexnet version</dt><dd><code>$version</code>" older.html
	tr -d '\t,' <older.json >older.lines
	for line in "\"version\":\"$version\"" '"seed":7' '"resamples":100'; do grep -qxF "$line" older.lines; done
	# of how many patients, wherever these are not as many as images
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 >printed
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 --json | tr -d '\t,' |
		sed -n 's/^"\([A-Z][a-z_A-Z]*\)":{$/\1/p; s/^"positive\(_patients\|s\)":\([0-9]*\)$/\2/p' | paste - - - |
		awk '{ print $1, $2, $2 == $3 ? "" : "of " $3 " patients" }' >told
	cat printed told
	[ "$(grep -c patients told)" -gt 7 ]
	diff told <(sed -n '/^finding/,/^mean/{//!p}' printed | awk '{ print $1, $2, match($0, /of [0-9]+ patients?$/) ? substr($0, RSTART) : "" }')
	[ "$(grep -c '://' r.html)" -eq 0 ]
	[ "$(stat -c %s r.html)" -lt 5000000 ]
}

@test "the command that predictions note gives them again, with the arithmetic that was asked for" {
	local choice command
	for choice in "--engine reference --precision fp64" "--precision bf16" "--data set --split val --crops ten"; do
		chexnet eval $([[ $choice == *--data* ]] || echo --data set) --weights run1/model.safetensors --threads 1 --resamples 0 $choice --predictions noted.csv >/dev/null
		command=$(sed -n '1s/.* command=\([^ ]*\).*/\1/p' noted.csv)
		command=$(printf '%b' "${command//%/\\x}")
		echo "$command"
		rm -f noted-again.csv
		$command --threads 1 --resamples 0 --predictions noted-again.csv >/dev/null
		cmp noted.csv noted-again.csv
	done
}

@test "what eval says of a split is what the tree's own tables and the logits give when counted" {
	local split masked
	for split in test train "test --mask=Hernia,Mass"; do
		masked=${split#*=} # no split is called like a finding
		chexnet eval --data set --split $split --weights run1/model.safetensors --threads 1 --resamples 0 --json --predictions counted.csv >counted.json
		LC_ALL=C awk -v masked="$masked" '
			function won(score, f,    i, j, sum) { # of pairs of an image with the finding and one without
				sum = 0
				for (i in shown) for (j in shown)
					if (index(finding[i], "|" f "|") && !index(finding[j], "|" f "|")) sum += score[i, f] > score[j, f] ? 1 : score[i, f] == score[j, f] ? 0.5 : 0
				return sum
			}
			FNR == 1 { file++ }
			file == 1 && FNR > 1 { split($0, a, ","); finding[a[1]] = "|" a[2] "|"; patient[a[1]] = a[4] }
			file == 2 { n = split($0, a, ","); for (k = 1; k <= n; k++) if (FNR == 1) { column[k] = a[k] } else oracle[a[1], column[k]] = a[k] }
			file == 3 && FNR > 1 {
				n = split($0, a, ",")
				for (k = 1; k <= n; k++)
					if (FNR == 2) { name[k] = a[k] } else if (sub(/_logit$/, "", name[k]) || k in place) { place[k]; logit[a[1], name[k]] = a[k]; order[name[k]] }
				if (FNR > 2) shown[a[1]]
			}
			END {
				for (i in shown) { images++; if (!seen[patient[i]]++) patients++ }
				for (f in order) judged += !index(masked, f)
				for (f in order) {
					p = pp = 0
					for (i in shown) {
						z = logit[i, f]
						if (index(finding[i], "|" f "|")) { p++; if (!has[f, patient[i]]++) pp++; z = -z }
						if (!index(masked, f)) loss += (z > 0 ? z + log(1 + exp(-z)) : log(1 + exp(z))) / images / judged
					}
					auroc = won(logit, f) / p / (images - p); ceiling = won(oracle, f) / p / (images - p)
					if (index(masked, f)) {
						printf "%s positives 0\n%s positive_patients 0\n%s negatives 0\n%s auroc null\n%s oracle %.6f\n", f, f, f, f, f, ceiling
						continue
					}
					mean += auroc / judged; best += ceiling / judged
					printf "%s positives %d\n%s positive_patients %d\n%s negatives %d\n%s auroc %.6f\n%s oracle %.6f\n", f, p, f, pp, f, images - p, f, auroc, f, ceiling
				}
				printf "images %d\npatients %d\nloss %.6f\nmean auroc %.6f\nmean oracle %.6f\nmean of %d\n", images, patients, loss, mean, best, judged
			}' tree/Data_Entry_2017_v2020.csv tree/oracle.csv counted.csv | sort >counted
		LC_ALL=C awk -F'"' '
			/\{$/ { of = $2 == "" || $2 == "findings" ? "" : $2 " "; next }
			/}/ { of = "" }
			$2 ~ /^(images|patients|loss|auroc|oracle|positives|positive_patients|negatives|of)$/ {
				gsub(/[^-0-9.a-z]/, "", $3); print of $2, $2 ~ /^(loss|auroc|oracle)$/ && $3 != "null" ? sprintf("%.6f", $3) : $3 }' counted.json | sort >said
		diff counted said
		[ "$(wc -l <said)" -eq $((5 * 14 + 6)) ]
		sed '1,2d; s/,.*//' counted.csv | sort >listed
		grep -q '^	"step":	12,$' counted.json
		grep -q '^	"engine":	"cpu' counted.json
		grep -q " command=chexnet%20eval%20--weights=run1/model.safetensors%20--data=set%20--split=${split// /%20.*}" <(sed '1s/%20--crops=none//' counted.csv)
		if [ "$split" = train ]; then run -1 grep -Fxf tree/test_list.txt listed; else diff <(sort tree/test_list.txt) listed; fi
	done
}

@test "eval gives the engine a batch before it waits for the one before, and waits for all; one CPU of eight decodes for it and for a training" {
	HVD_THREADS=24 "$BUILD/tests/wrap_engine_forward" eval --data set --weights run1/model.safetensors --threads 1 --batch 16 --resamples 0 --predictions again.csv >/dev/null 2>again.err
	cat again.err
	[ "$(tail -n 1 again.err)" = "at most 2 batches at once, 0 left, decoded by 4 threads" ]
	HVD_THREADS=24 "$BUILD/tests/wrap_engine_forward" train --data set --model densenet --growth 4 --blocks 1,1 --image-size 32 --steps 1 --batch 8 --resamples 0 --threads 1 --output again >/dev/null 2>again.err
	cat again.err
	[[ $(tail -n 1 again.err) == *", decoded by 4 threads" ]] # and waits for steps, too
	diff <(grep -v '^# ' 1.csv) <(grep -v '^# ' again.csv)
}

@test "README's lines for one image and for the report work as they are typed, and the report shows the map" {
	mkdir -p typed/run1
	cp run1/model.safetensors run1/test.csv typed/run1
	cp log1.jsonl typed/run1/log.jsonl
	cp "$(find tree/images -name '*.png' | head -n 1)" typed/image.png
	sed -n 's/^    \(chexnet \(predict\|report\) .*\)/\1/p' "$TOP/README.md" >typed/lines
	cat typed/lines
	[ "$(wc -l <typed/lines)" -eq 2 ]
	(cd typed && bash -e lines) >typed/predicted
	cat typed/predicted
	grep -qE '^report\.html: [1-9][0-9]* kB$' typed/predicted
	grep -q '<img[^>]* src="data:image/png;base64,' typed/report.html
	grep -oE '<img alt="image\.[^"]*"' typed/report.html | tee typed/alt
	grep -qE '^<img alt="image\.([A-Z][a-z_A-Z]*): [A-Z][a-z A-Z]*, probability 0\.[0-9]{3}; map of 4 × 4 cells, (the coloured ones raise the odds (less than )?[0-9.]+-fold|none raises the odds)"$' typed/alt
	# both are rounded from one number
	p=$(sed -n 's/^  [A-Z][a-z_A-Z]* *\(0\.[0-9]*\)$/\1/p' typed/predicted | head -n 1)
	awk -v p="$p" -v shown="$(sed 's/.*, probability \(0\.[0-9]*\);.*/\1/' typed/alt)" 'BEGIN { d = p - shown; exit !(d < 0.00056 && d > -0.00056) }'
}

@test "a model does not differ from itself, two are compared finding by finding" {
	run chexnet compare 1.csv 1.csv --resamples 100
	[ "$status" -eq 0 ]
	[[ $output == *"no difference in mean AUROC can be shown"* ]]
	run chexnet compare 1.csv 2.csv --resamples 100 --json
	[ "$status" -eq 0 ]
	[ "$(grep -c p_holm <<<"$output")" -eq 15 ]
	# what is not known of a model is said
	sed '1s/leak=[0-9]*/leak=unchecked/' 2.csv >unchecked.csv
	chexnet compare 1.csv unchecked.csv --resamples 100 >said
	grep 'leak not checked: .*those that B was trained on' said
	[ "$(grep -c careful said)" -eq 0 ]
	sed '1s/ policy=[a-z]*//; s/,test,/,val,/' 2.csv >unnamed.csv
	chexnet compare unnamed.csv 1.csv --resamples 100 | grep -x 'careful: A and B come from different splits: A from val, policy not named; B from test, policy official'
	sed '1s/ policy=[a-z]*//' 2.csv >unnamed.csv
	chexnet compare unnamed.csv 1.csv --resamples 100 >said
	grep -x 'careful: whether A and B come from the same split is not known: A from test, policy not named; B from test, policy official' said
	run ! grep 'different splits' said
	sed '1s/rows=[0-9]* //; 3,$s/,[0-9]*,test/,1,test/' 1.csv >one.csv
	chexnet compare one.csv one.csv --resamples 100 | grep -E '^[0-9]+ images of 1 patient in both$'
	# patients that nobody names are not counted
	sed '1s/rows=[0-9]* //; 3,$s/,[0-9]*,test/,,test/' 1.csv >nobody.csv
	chexnet compare nobody.csv nobody.csv --resamples 100 | grep -xE '[0-9]+ images in both'
	chexnet report --predictions nobody.csv --compare nobody.csv --table tree/Data_Entry_2017_v2020.csv --resamples 100 --json nobody.json --out nobody.html
	[ "$(grep -c '"\(positive_\)\?patients":' nobody.json)" -gt 30 ]
	[ "$(grep '"\(positive_\)\?patients":' nobody.json | grep -vc null)" -eq 0 ]
	grep -q 'Both were judged on the same [0-9,]* images\.' nobody.html
	chexnet report --predictions 1.csv --compare unchecked.csv --resamples 100 --out said.html
	# two that are right about every image: patients are not what is lacking
	for scale in 1 2; do
		awk -F, -v OFS=, -v scale=$scale 'FNR > 2 { for (f = 4; f < 18; f++) $(f + 14) = scale * (2 * $f - 1) } 1' 1.csv >right$scale.csv
	done
	chexnet compare right1.csv right2.csv --resamples 100 | tail -n 1 | grep -x 'too little to tell which mean AUROC is higher; no finding could be tested'
	# both commands say the same without being told how often to draw
	chexnet compare 1.csv 2.csv --json | sed -n '/"images"/,$p' >compared.json
	chexnet report --predictions 1.csv --compare 2.csv --json all.json
	sed -n '/"comparison"/,$p' all.json | sed -n '/"images"/,/^\t}/s/^\t//p' >reported.json
	[ "$(grep -c p_holm reported.json)" -eq 15 ]
	sed -n '/"mean"/,/}/p' reported.json | grep -q '"positives":[^0-9]*null' # positives are a finding's
	diff <(sed 's/},*$/}/' compared.json) <(sed 's/},*$/}/' reported.json)
	grep -q 'Leak not checked.*the other model, B,' said.html
}

@test "a finding that hardly a patient shows has no interval, and the validation line says how many are rare" {
	chexnet synth --out rare-tree --images 160 --size 32 >rare.out
	chexnet prepare nih rare-tree rare --size 32 >>rare.out
	chexnet train --data rare "${SMALL[@]}" --resamples 100 --steps 4 --eval-every 2 --output rare-run >>rare.out
	cat rare.out
	grep -E '^validation after step 2: mean AUROC 0\.[0-9]{4} \(.*[0-9]+ of 14 findings, [0-9]+ of them in fewer than 10 patients\), loss' rare.out
	grep -E '^Mass +[1-4] [01]\.[0-9]{4}  n/a \(too few\) +[01]\.[0-9]{4}  few positives$' rare.out
	for resamples in 0 100; do
		chexnet eval --data rare --weights rare-run/model.safetensors --threads 1 --resamples $resamples >rare.eval
		[ "$(grep -c '^few patients: read the intervals' rare.eval)" -eq $((resamples > 0)) ]
	done
	chexnet report --predictions rare-run/test.csv --out rare.html --json rare.json
	grep -q '(too few)' rare.html
	[ "$(grep -c 'promise more than they can keep' rare.html)" -eq 0 ]
	grep -q '! no interval: too few patients' rare.html
	# without a finding as few say as little as with it
	awk -F, '/^#/ || $3 != "test" { next } !$13 && n++ > 1 { print $1 ",Edema" }' 1.csv >mask.csv
	for n in 1 2; do chexnet eval --data set --weights run$n/model.safetensors --threads 1 --resamples 100 --mask file:mask.csv --predictions few$n.csv >few.eval 2>/dev/null; done
	grep -E '^Edema +[0-9]+ .*  few negatives$' few.eval
	run ! grep -E '^Mass .* few ' few.eval
	chexnet compare few1.csv few2.csv --resamples 100 >few.compared
	chexnet ensemble both.csv few1.csv few2.csv >few.both
	for said in few.compared few.both; do
		grep -E '^Edema +[0-9]+ .*  few$' $said
		run ! grep -E '^Mass .*  few$' $said
		grep -q '^few: fewer than 10 patients with the finding, or without it' $said
	done
}

@test "an interval takes 100 resamples or more: fewer are refused, 0 are none" {
	for command in "eval --data set --weights run1/model.safetensors" "train --data set --output unwritten" "lr-test --data set --output unwritten"; do
		for n in 1 2 40 99; do
			refuses 64 "--resamples=$n: must be 0, or between 100 and 100000" chexnet $command --resamples $n
		done
		chexnet ${command%% *} --help | tr -s ' \n' ' ' | grep -F 'behind each interval, 100 or more; 0: '
	done
	[ ! -e unwritten ]
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 >none.out
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 100 >hundred.out
	run ! grep interval none.out
	grep -E '^mean of [0-9]+ of 14 +0\.[0-9]{4} +0\.[0-9]{3} to ' hundred.out
}

@test "JSON of eval, predict and compare says with which version, weights and resamples its numbers come again" {
	local version hash line image
	version=$(chexnet --version | sed 's/^chexnet //')
	image=$(find tree/images -name "*.png" | head -n 1)
	hash=$(sed -n '1s/.* weights_hash=\([0-9a-f]*\) .*/\1/p' 1.csv)
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 100 --seed 7 --json | tr -d '\t,' >eval.lines
	chexnet predict --weights run1/model.safetensors --threads 1 --json "$image" 2>/dev/null | tr -d '\t,' >predict.lines
	chexnet compare 1.csv 2.csv --resamples 100 --seed 7 --json | tr -d '\t,' >compare.lines
	for line in "eval|\"version\":\"$version\"" "eval|\"weights_hash\":\"$hash\"" 'eval|"resamples":100' 'eval|"seed":7' \
		"predict|\"version\":\"$version\"" "predict|\"weights_hash\":\"$hash\"" \
		"compare|\"version\":\"$version\"" 'compare|"resamples":100' 'compare|"seed":7'; do
		echo "$line"
		grep -qxF "${line#*|}" "${line%%|*}.lines"
	done
}

@test "each interval in JSON says how it was made, and its standard error is what the manual says of that" {
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --json >method.json
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --json --seed 2 >other-seed.json
	[ "$(grep -c '"low":.*[0-9]' method.json)" -gt 0 ]
	run -1 diff <(grep '"low":' method.json) <(grep '"low":' other-seed.json)
	chexnet report --predictions 1.csv --json method-report.json
	python3 - <<-'END'
		import json
		seen = set()
		def check(x):
		    if isinstance(x, dict):
		        if "se" in x:
		            assert (x["method"] is None) == (x["low"] is None), x
		            if x["method"] in ("newcombe", "wilson", "square-and-add"):
		                assert abs(x["se"] - (x["high"] - x["low"]) / 3.919928) < 1e-7, x
		            seen.add(x["method"])
		        for y in x.values():
		            check(y)
		check(json.load(open("method.json")))
		assert seen - {None} and not seen - {None, "percentile", "newcombe", "square-and-add"}, seen
		check(json.load(open("method-report.json")))
		assert {"percentile", "newcombe", "delong"} <= seen, seen
	END
	grep -q '"mean":{"auroc":[0-9.]*,"low":[0-9.]*,"high":[0-9.]*,"method":"[a-z-]*","se":' log1.jsonl
}

@test "so few resamples that nothing can be shown say so, and what they cannot go below is marked" {
	python3 - <<-'END'
		import random
		random.seed(5)
		rows = open("1.csv").read().splitlines()
		head = next(i for i, row in enumerate(rows) if row.startswith("id,"))
		for name, noise in (("good.csv", 0.3), ("poor.csv", 3)):
		    with open(name, "w") as f:
		        for i in range(600):
		            labels = [int(random.random() < 0.3) for _ in range(14)]
		            logits = [2 * l + noise * random.gauss(0, 1) for l in labels]
		            if i == 0:
		                print(rows[head], file=f)
		                random.seed(6)
		            print(f"{i:08d}_000.png", i, "test", *labels, *logits, sep=",", file=f)
	END
	python3 - <<-'END'
		a, b = (open(n).read().splitlines() for n in ("good.csv", "poor.csv"))
		with open("poor.csv", "w") as f: # of the same labels
		    for x, y in zip(a, b):
		        print(",".join(x.split(",")[:17] + y.split(",")[17:]), file=f)
	END
	chexnet compare poor.csv good.csv --resamples 100 >few.out
	cat few.out
	grep -E '^Edema .* <=0\.020  <=0\.277' few.out
	grep -F -- '--resamples=559 or more' few.out
	tail -n 1 few.out | grep -F 'so few resamples cannot show'
	chexnet compare poor.csv good.csv --resamples 559 >enough.out
	tail -n 1 enough.out
	tail -n 1 enough.out | grep -F '; 14 of 14 findings differ'
	chexnet compare poor.csv good.csv --resamples 100 --json >few.json
	[ "$(grep -c '"p_is_bound":.true' few.json)" -eq 15 ]
	# the split that chose the weights is not new to them
	for run in 1 2; do
		chexnet eval --data set --split val --weights run$run/model.safetensors --threads 1 --resamples 0 --predictions val$run.csv | grep '^validation split: weights are chosen on these images'
	done
	chexnet compare val1.csv val2.csv --resamples 100 | grep '^validation split: weights are chosen on these images'
	chexnet ensemble val.csv val1.csv val2.csv | grep '^validation split: weights are chosen on these images'
	for run in 1 2; do # one of that name of other images is
		sed '1s/ source=[^ ]*/ source=ChestX-ray14/' val$run.csv >other$run.csv
	done
	chexnet compare other1.csv other2.csv --resamples 100 >other.out
	chexnet ensemble other.csv other1.csv other2.csv >>other.out
	chexnet compare 1.csv 2.csv --resamples 100 >test.out
	run ! grep '^validation split' test.out other.out
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 >tested
	[ "$(grep -c 'weights are chosen' tested)" -eq 0 ]
}

@test "weighted positives: progress is that of the weighted loss, and what is no probability is not called one" {
	chexnet train --data set "${SMALL[@]}" --pos-weight balanced --steps 30 --eval-every 10 --tensorboard --output weighted >weighted.out
	least=$(grep '"split":"val"' weighted/log.jsonl | grep -o '"weighted_loss":[0-9.]*' | cut -d: -f2 | sort -g | head -n 1)
	noted=$(grep -ao '"best_loss":"[0-9.]*"' weighted/model.safetensors | cut -d'"' -f4)
	echo "least weighted loss $least, noted $noted"
	awk "BEGIN { exit !($least > 0.5 && $noted - $least < 1e-9 && $least - $noted < 1e-9) }"
	# as the logits of the weights that were kept have it: a positive of a finding weighs what its negatives in training do
	chexnet eval --data set --split val --weights weighted/model.safetensors --threads 1 --resamples 0 --predictions weighted-val.csv --json >weighted-val.json
	chexnet audit --json --no-pixels set >audited.json
	python3 - <<-'END'
		import csv, json, math
		train, step = json.load(open("audited.json"))["splits"]["train"], json.load(open("weighted-val.json"))["step"]
		said, = (e for e in map(json.loads, open("weighted/log.jsonl")) if e["event"] == "eval" and e["split"] == "val" and e["step"] == step)
		losses = []
		for row in csv.DictReader(line for line in open("weighted-val.csv") if line[0] != "#"):
		    for f, positives in train["positives"].items():
		        if row[f + "_label"]:
		            sign = 2 * int(row[f + "_label"]) - 1
		            weight = min(train["negatives"][f] / positives, 100) if sign > 0 else 1
		            losses.append(weight * math.log1p(math.exp(-sign * float(row[f + "_logit"]))))
		print(sum(losses) / len(losses), said["weighted_loss"])
		assert abs(sum(losses) / len(losses) - said["weighted_loss"]) < 1e-4 < said["weighted_loss"] - said["loss"]
	END
	grep -q '^validation .*loss 0[.0-9]*, weighted [0-9.]*$' weighted.out
	image=$(find tree/images -name '*.png' | head -n 1)
	chexnet predict --weights weighted/model.safetensors "$image" 2>&1 >/dev/null | grep 'pos-weight=balanced'
	[ -z "$(chexnet predict --weights run1/model.safetensors "$image" 2>&1 >/dev/null | grep pos-weight)" ]
	# what is kept of it says so, too
	chexnet predict --weights weighted/model.safetensors --json "$image" 2>/dev/null | tr -d '\t' | grep -qx '"pos_weight":"balanced",'
	[ "$(chexnet predict --weights run1/model.safetensors --json "$image" 2>/dev/null | grep -c pos_weight)" -eq 0 ]
	chexnet report --predictions weighted/test.csv --resamples 100 --json weighted.json
	tr -d '\t' <weighted.json | grep -qx '"pos_weight":"balanced",'
	# nor does an average of such trainings speak otherwise than they do
	chexnet ensemble some.csv 1.csv weighted/test.csv | grep -qx 'some members were trained with --pos-weight=balanced: the probabilities rank images, and are above the share that shows a finding'
	chexnet report --predictions some.csv --resamples 100 --out some.html >/dev/null
	grep -q 'weighed more when some members of the model were trained (--pos-weight=balanced)' some.html
	[ "$(chexnet ensemble unweighted.csv 1.csv 2.csv | grep -c pos-weight)" -eq 0 ]
	chexnet eval --data set --weights weighted/model.safetensors --threads 1 --resamples 0 --predictions weighted.csv >/dev/null
	for predictions in weighted/test.csv weighted.csv; do
		chexnet report --predictions $predictions --resamples 100 --out weighted.html
		grep -q 'Not probabilities' weighted.html
	done
	# validation is drawn on the scale of training, which the loss without weights is not
	chexnet report --predictions weighted/test.csv --log weighted/log.jsonl --resamples 100 --out weighted.html
	grep -q '<b>Loss, weighted as --pos-weight says</b>' weighted.html
	sed 's/,"weighted_loss":/,"loss":/; s/,"loss":[0-9.]*,"loss":/,"loss":/' weighted/log.jsonl >unnamed.jsonl
	chexnet report --predictions weighted/test.csv --log unnamed.jsonl --resamples 100 --out unnamed.html
	drawn() { grep -o 'aria-label="Training and validation loss by step".*' "$1"; }
	[ -n "$(drawn weighted.html)" ]
	[ "$(drawn weighted.html)" = "$(drawn unnamed.html)" ]
	chexnet report --predictions weighted/test.csv --log weighted/log.jsonl --tensorboard weighted-events
	grep -aq loss/val_weighted weighted-events/*
	grep -aq loss/val_weighted weighted/tensorboard/*
	chexnet report --predictions 1.csv --resamples 100 --out weighted.html
	[ "$(grep -c 'Not probabilities' weighted.html)" -eq 0 ]
}

@test "a training goes on with the same pixels only: packed ones are PNG's, JPEG's are not" {
	chexnet prepare nih tree packed --size 32 --format packed >/dev/null
	chexnet prepare nih tree jpeg --size 32 --format jpeg >/dev/null
	chexnet train --data set "${SMALL[@]}" --steps 4 --output pixels >/dev/null
	refuses 65 "as jpeg exactly --format --weights=" chexnet train --data jpeg "${SMALL[@]}" --steps 8 --output pixels --resume auto
	chexnet train --data packed "${SMALL[@]}" --steps 6 --output pixels --resume auto >/dev/null
}

@test "one of NIH's two lists alone divides nothing: other policies pass it over, the official one asks for both" {
	cp -r tree half
	rm half/test_list.txt
	chexnet prepare nih half half-set --size 32 --split chexnet >/dev/null
	refuses 65 "half: train_val_list.txt test_list.txt not both there --split chexnet" chexnet prepare nih half half-no --size 32
}

@test "an ensemble is a file of predictions like its members" {
	run chexnet ensemble both.csv 1.csv 2.csv --spread spread.csv
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(wc -l <both.csv)" -eq "$(wc -l <1.csv)" ]
	[ "$(sed -n 2p both.csv)" = "$(sed -n 2p 1.csv)" ]
	[ "$(wc -l <spread.csv)" -eq $(($(wc -l <1.csv) - 1)) ]
	chexnet compare 1.csv both.csv --resamples 100 >/dev/null
	# any name comes through
	for n in 1 2; do sed '3s/^[^,]*/"a ""6"", b.png"/' $n.csv >odd$n.csv; done
	chexnet ensemble odd.csv odd1.csv odd2.csv --spread odd-spread.csv >/dev/null
	[[ $(sed -n 3p odd.csv) == '"a ""6"", b.png",'* ]]
	[[ $(sed -n 2p odd-spread.csv) == '"a ""6"", b.png",'* ]]
}

@test "a model counts once in an ensemble, under whatever name; weights that count more than once, or are compared with themselves, are named" {
	cp 1.csv copy.csv
	(head -n 2 1.csv && tail -n +3 1.csv | sort) | sed '1s/weights_hash=[^ ]* //' >sorted.csv
	for again in copy.csv sorted.csv; do
		refuses 65 "$again: every logit is that of 1.csv, --seed" chexnet ensemble thrice.csv 1.csv 2.csv $again
		[ ! -e thrice.csv ]
	done
	chexnet eval --data set --weights run1/model.safetensors --threads 1 --resamples 0 --crops ten --predictions ten.csv >/dev/null
	head -n 1 ten.csv | grep -q ' crops=ten '
	run ! grep -q ' crops=ten ' 1.csv
	hash=$(sed -n '1s/.* weights_hash=\([^ ]*\) .*/\1/p' 1.csv)
	chexnet ensemble mixed.csv 1.csv 2.csv ten.csv >mixed.out
	grep -qx "1.csv and ten.csv are of the same weights ($hash), which count more than once: the spread is not that of trainings" mixed.out
	[ "$(grep -c 'of the same weights' mixed.out)" -eq 1 ]
	chexnet ensemble two.csv 1.csv 2.csv >two.out
	[ "$(grep -c 'of the same weights' two.out)" -eq 0 ]
	chexnet ensemble more.csv two.csv 1.csv | grep -q "^two.csv and 1.csv are of the same weights ($hash),"
	for other in copy.csv ten.csv; do
		chexnet compare 1.csv $other --resamples 100 | grep -qx "careful: A and B are of the same weights ($hash)"
	done
	for other in 2.csv two.csv sorted.csv; do
		chexnet compare 1.csv $other --resamples 100 >told
		[ "$(grep -c 'of the same weights' told)" -eq 0 ]
	done
}

@test "TensorBoard gets an event file with its name" {
	chexnet predict --weights run1/model.safetensors --threads 1 --maps maps "$(find tree/images -name '*.png' | head -n 1)" >/dev/null
	run chexnet report --predictions 1.csv --log log1.jsonl --pictures maps --tensorboard events
	[ "$status" -eq 0 ]
	[[ $output == events/events.out.tfevents.* ]]
	[ -s "$output" ]
	grep -aq 'brain.Event:2' "$output"
	grep -aq 'pr_curves' "$output"
	grep -aq 'map/0' "$output"
	grep -aq 'IHDR' "$output"
	# of a finding without a known label there is no curve, as in training's own events
	awk -F, -v OFS=, 'FNR > 2 { $4 = "" } 1' 1.csv >unlabelled.csv
	chexnet report --predictions unlabelled.csv --tensorboard unlabelled-events
	[ "$(grep -ac test/Atelectasis unlabelled-events/*)" -eq 0 ]
	awk -F, -v OFS=, 'FNR > 2 { for (f = 4; f < 18; f++) $f = "" } 1' 1.csv >bare.csv
	chexnet report --predictions bare.csv --resamples 100 --out unlabelled.html
	[ "$(grep -cE '<h2>(ROC curves|Precision and recall|Operating points|Calibration)' unlabelled.html)" -eq 0 ]
	chexnet report --predictions unlabelled.csv --resamples 100 --out unlabelled.html
	grep -q '<b>Not judged:</b> Atelectasis' unlabelled.html
	chexnet compare unlabelled.csv 2.csv --resamples 100 | grep -qx 'Atelectasis  *n/a  n/a  no label that both know' # not: no image that shows it
	chexnet ensemble unlabelled-two.csv unlabelled.csv 2.csv --spread unlabelled-spread.csv | grep -q '^not judged, because not all members have labels: Atelectasis; OUT averages what all of them say of these, learnt or not$'
	[ "$(cut -d, -f2-5 unlabelled-spread.csv | sort -u)" = ",,,"$'\n'Atelectasis_mean,Atelectasis_sd,Atelectasis_min,Atelectasis_max ] # nor is there a spread of it
	[ "$(grep -cE '^[^,]*,,,,(,[0-9.e-]+){52}$' unlabelled-spread.csv)" -eq $(($(wc -l <unlabelled-spread.csv) - 1)) ]
	grep -q '<tr><th scope="row">Atelectasis</th><td class="n soft">n/a</td>' unlabelled.html
	grep -q 'Not for findings that too few patients show' unlabelled.html
	[ "$(grep 'Not for findings that too few patients show' unlabelled.html | grep -c Atelectasis)" -eq 0 ] # nobody knows how many do
	grep -aq test/Cardiomegaly unlabelled-events/*
}

@test "a report that does not show all pictures says so" {
	chexnet predict --weights run1/model.safetensors --threads 1 --maps one "$(find tree/images -name '*.png' | head -n 1)" >/dev/null
	mkdir many
	for i in {10..42}; do cp one/*.png many/0000${i}_000.png; done
	run --separate-stderr chexnet report --predictions 1.csv --pictures many --resamples 100 --out many.html
	[ "$status" -eq 0 ]
	[[ $stderr == *"many holds 33 pictures: only the first 32 are shown"* ]]
	[ "$(grep -o 'src="data:image/png' many.html | wc -l)" -eq 32 ]
	grep -q 'These are the first 32 of 33 pictures, by name' many.html
	rm many/000010_000.png
	chexnet report --predictions 1.csv --pictures many --resamples 100 --out many.html
	run ! grep -q 'These are the first' many.html
	mv many/000011_000.png many/000011_000.PNG # as other programs write
	chexnet report --predictions 1.csv --pictures many --resamples 100 --out many.html
	[ "$(grep -o 'src="data:image/png' many.html | wc -l)" -eq 32 ]
}

@test "files that are not what they should be are named, with the line" {
	sed '5s/,[^,]*$/,inf/' 1.csv >bad.csv
	refuses 65 "bad.csv line 5 Hernia inf" chexnet report --predictions bad.csv --out bad.html
	[ ! -e bad.html ]
	grep -v '^0000' 1.csv >empty.csv
	refuses 65 "empty.csv no predictions" chexnet compare empty.csv 1.csv
	sed 1d 1.csv | head -n 20 >part.csv
	refuses 65 "part.csv missing" chexnet ensemble out.csv 1.csv part.csv
	head -n 20 1.csv >cut.csv
	for command in "compare 1.csv cut.csv" "ensemble out.csv 1.csv cut.csv" "report --predictions cut.csv --out bad.html"; do
		# shellcheck disable=SC2086 # words
		refuses 65 "cut.csv rows=$(grep -vc '^[#i]' 1.csv) 18 copied" chexnet $command
	done
	head -c -3 1.csv >cut.csv
	refuses 65 "cut.csv line $(wc -l <1.csv) no end copied" chexnet compare 1.csv cut.csv
	awk -F, -v OFS=, 'NR == 5 { $2 += 1000 } 1' 1.csv >patient.csv
	for command in "compare 1.csv patient.csv" "ensemble out.csv 1.csv patient.csv" "report --predictions 1.csv --compare patient.csv --out bad.html"; do
		# shellcheck disable=SC2086 # words
		refuses 65 "image $(sed -n '5s/,.*//p' 1.csv) patient $(sed -n 5p 1.csv | cut -d, -f2) 1.csv $(sed -n 5p patient.csv | cut -d, -f2) patient.csv" chexnet $command
	done
	refuses 65 "tree/test_list.txt no column Image" chexnet report --predictions 1.csv --table tree/test_list.txt --out bad.html
	sed '/,/s/^0/9/' tree/Data_Entry_2017_v2020.csv | awk -F, -v OFS=, 'NR > 1 { $4 = substr($1, 1, 8) + 0 } 1' >others.csv
	refuses 65 "others.csv no row any image 1.csv" chexnet report --predictions 1.csv --table others.csv --out bad.html
	refuses 64 "--table=others.csv --out --json" chexnet report --predictions 1.csv --table others.csv --tensorboard events
	refuses 64 "others.csv" chexnet report --predictions 1.csv --table others.csv --json others.csv
	awk -F, -v OFS=, 'NR > 2 { $1 = "other" $1 } 1' 1.csv >hospital.csv # another's numbers may be the same
	refuses 65 "patient 1.csv hospital.csv empty column \"patient\"" chexnet report --predictions 1.csv --thresholds hospital.csv --out bad.html
	awk -F, -v OFS=, 'NR > 2 { $2 = "" } 1' hospital.csv >numberless.csv
	chexnet report --predictions 1.csv --thresholds numberless.csv --resamples 100 --out numberless.html
	refuses 65 "patient 1.csv" chexnet report --predictions 1.csv --thresholds 1.csv --out bad.html
	refuses 64 "--thresholds=1.csv --out --json" chexnet report --predictions 1.csv --thresholds 1.csv --tensorboard events
	refuses 64 "2.csv" chexnet report --predictions 1.csv --thresholds 2.csv --out 2.csv
	awk -F, -v OFS=, 'NR > 2 { for (i = 18; i <= 31; i++) $i = 1 / (1 + exp(-$i)) } 1' numberless.csv >probabilities.csv
	refuses 65 "probabilities.csv between 0 and 1" chexnet ensemble out.csv 1.csv probabilities.csv
	refuses 65 "probabilities.csv logit of it between 0 and 1" chexnet report --predictions 1.csv --thresholds probabilities.csv --out bad.html
	refuses 65 "1.csv logit of probabilities.csv between 0 and 1" chexnet report --predictions probabilities.csv --thresholds 1.csv --out bad.html
	run -0 --separate-stderr chexnet report --predictions probabilities.csv --resamples 100 --json probabilities.json
	[[ ${#stderr_lines[@]} -eq 1 && $stderr == *"warning: every logit of probabilities.csv is between 0 and 1"* ]]
	chexnet compare numberless.csv probabilities.csv --resamples 100 # AUROC goes by the order
	refuses 65 "1.csv no event OUTPUT/log.jsonl" chexnet report --predictions 1.csv --log 1.csv --out bad.html
	refuses 65 "nowhere.csv" chexnet compare 1.csv nowhere.csv
	refuses 64 "--predictions" chexnet report --out bad.html
	refuses 64 "nowhere/r.html" chexnet report --predictions 1.csv --resamples 100 --out nowhere/r.html
	[ ! -e bad.html ]
	[ ! -e out.csv ]
}

@test "the report counts patients and images of each sex, age and view as the label table has them" {
	chexnet report --predictions 1.csv --table tree/Data_Entry_2017_v2020.csv --resamples 100 --out groups.html --json groups.json
	awk -F, '
		FNR == NR { if (/^0/) judged[$1]; next }
		$1 in judged {
			split("sex " ($6 == "F" ? "female" : "male") "|age " ($5 < 18 ? "0-17" : $5 < 40 ? "18-39" : $5 < 65 ? "40-64" : "65-") "|view " $7, groups, "|")
			for (g in groups) { images[groups[g]]++; patients[groups[g]] += !seen[groups[g], $4]++ }
		}
		END { for (g in images) print g, images[g], patients[g] }' 1.csv tree/Data_Entry_2017_v2020.csv | sort >counted
	cat counted
	[ "$(wc -l <counted)" -gt 5 ]
	python3 -c '
import json
for column, groups in json.load(open("groups.json"))["groups"].items():
    for name, group in groups.items():
        if group["images"]:
            print(column, name, group["images"], group["patients"])' | sort | diff counted -
	grep -q '<h2>Patients and groups</h2>' groups.html
	# where no label is known, nobody knows how many show it; in a group without images none does
	awk -F, -v OFS=, 'FNR > 2 { $4 = "" } 1' 1.csv >no-atelectasis.csv
	chexnet report --predictions no-atelectasis.csv --table tree/Data_Entry_2017_v2020.csv --resamples 100 --out no-atelectasis.html
	grep -A 99 '<caption>Findings by sex</caption>' no-atelectasis.html | grep -m 1 '<tr><th scope="row">Atelectasis</th>' | tee row
	[ "$(grep -o '<td class="n soft">n/a</td>' row | wc -l)" -eq 4 ]
	grep -A 99 '<caption>Findings by age</caption>' no-atelectasis.html | grep -m 1 '<tr><th scope="row">Atelectasis</th>' |
		grep -q '<tr><th scope="row">Atelectasis</th><td class="n">0</td><td class="n soft">n/a</td><td class="n soft">n/a</td>' # nobody is younger than 18
}

@test "the trace of a training says that it waits for images, and shows validations and checkpoints" {
	HVD_TRACE=$PWD/trace "$BUILD/tests/wrap_synth_draw" train --model densenet --growth 4 --blocks 1,1 --image-size 32 --steps 12 --eval-every 6 --batch 8 --resamples 0 \
		--threads 1 --output traced >traced.out
	run hvd-trace --output timeline.json trace
	echo "$output"
	[[ $output == "1 rank, 11 steps, "* ]]
	awk '/ ms +[0-9.]+ %$/ { sum += $(NF - 1) } END { exit !(sum > 99.7 && sum < 100.3) }' <<<"$output" # where the time went: all of it
	awk '$1 == "input" && $(NF - 1) > 10 { found = 1 } END { exit !found }' <<<"$output"
	grep -q '^validations and checkpoints, not counted above: ' <<<"$output"
	for name in input micro-batch validation checkpoint WAIT_FOR_DATA; do
		echo "$name: $(grep -c "\"name\":\"$name\"" timeline.json)"
	done | tee spans
	grep -qx 'input: 12' spans
	grep -qx 'micro-batch: 12' spans
	grep -qx 'validation: 2' spans
	grep -qx 'checkpoint: [12]' spans
	# so do a line of progress, of which a slow machine prints several, and the log, which leave validations out, too
	awk '/^epoch / { sub(/.* input /, ""); found += $1 > 10 } END { exit !found }' traced.out
	python3 - <<-'END'
		import json
		events = [json.loads(line) for line in open("traced/log.jsonl")]
		of = lambda kind: [x for x in events if x["event"] == kind]
		(summary,), judged = of("summary"), [x for x in of("eval") if x["split"] == "val"]
		print(summary, judged and sum(x["images"] / x["images_per_s"] for x in judged), summary["time"] - of("start")[0]["time"])
		assert summary["images"] == 96 and abs(summary["images_per_s"] * summary["seconds"] - 96) < 1e-6 and summary["input_share"] > 0.1
		assert summary["seconds"] + 0.9 * sum(x["images"] / x["images_per_s"] for x in judged) < summary["time"] - of("start")[0]["time"]
	END
}

@test "weights of another network than --model's are refused, and the same one may be named" {
	refuses 64 "run1/model.safetensors --model=densenet --growth=4 --init-channels=8 --blocks=1,1, --model=resnet50: leave" chexnet train --data set \
		--model resnet50 --weights run1/model.safetensors --output other
	[ ! -e other/model.safetensors ]
	refuses 64 "holds --model=densenet121:" chexnet train --data set --model densenet121 --weights run1/model.safetensors --output other
	refuses 64 "holds --growth=8 --init-channels=16 --blocks=1,1:" chexnet train --data set --model densenet --growth 8 --blocks 1,1 --weights run1/model.safetensors --output other
	refuses 64 "holds --growth=4 --init-channels=16 --blocks=1,1:" chexnet train --data set --model densenet --growth 4 --init-channels 16 --blocks 1,1 --weights run1/model.safetensors --output other
	refuses 64 "holds --growth=4 --init-channels=8 --blocks=1:" chexnet train --data set --model densenet --growth 4 --blocks 1 --weights run1/model.safetensors --output other
	refuses 64 "run1/checkpoint-00000012.safetensors holds --blocks=1,2:" chexnet train --data set --model densenet --growth 4 --blocks 1,2 --resume auto --steps 14 --output run1
	for model in "" "--model=densenet --growth=4 --init-channels=8 --blocks=1,1"; do
		# shellcheck disable=SC2086 # words
		chexnet train --data set $model --weights run1/model.safetensors --steps 1 --batch 8 --resamples 0 --threads 1 --output "other$model" >/dev/null
	done
	cp -r run1 again1
	run chexnet train --data set "${SMALL[@]}" --image-size 24 --resume auto --steps 13 --output again1
	[ "$status" -eq 0 ]
	[[ $output == *"the network's images stay those of the checkpoint, 32 pixels a side, not --image-size=24"* ]]
}

@test "no nan is shown, and a split without images is no result" {
	chexnet synth --out none-tree --images 60 --size 32 --prevalence-scale 0 --label-noise 0 >none.out
	chexnet prepare nih none-tree none --size 32 >>none.out
	chexnet train --data none "${SMALL[@]}" --steps 2 --output none-run >>none.out
	chexnet eval --data none --weights none-run/model.safetensors --threads 1 --predictions none.csv >>none.out
	chexnet synth --check none >>none.out
	chexnet report --predictions none.csv --log none-run/log.jsonl --out none.html --json none.json >>none.out
	cat none.out
	run grep -wi nan none.out none.html none.json none-run/log.jsonl
	[ "$status" -eq 1 ]
	grep -q '^warning: no training image shows Atelectasis, .*, Hernia: not learnt' none.out
	grep -qx "no label of what is learnt is known in the validation split: the last step's weights are taken" none.out
	refuses 64 "of none no val label of what is learnt is known" chexnet train --data none "${SMALL[@]}" --steps 2 --patience 1 --output none-patient
	# a validation without positives
	grep -aoE '[0-9]{8}_[0-9]{3}\.png' set/val-* | awk -F, 'NR == FNR { val[$1]; next } $1 in val && $2 != "No Finding" { print $1 "," $2 }' - tree/Data_Entry_2017_v2020.csv >none.csv
	chexnet train --data set "${SMALL[@]}" --steps 2 --mask file:none.csv --output none-val >none.out
	grep -q 'mean AUROC n/a (0 of 14 findings)' none.out
	run ! grep -wi nan none.out
	chexnet lr-test --data none "${SMALL[@]}" --steps 2 --base-batch 4 --output none-lr >none.out
	[ "$(tail -n 1 none.out)" = "no winner: no finding has both positives and negatives among the $(sed -n 's/.*: \([0-9]*\) images of .*/\1/p' none.out | tail -n 1) test images" ]
	: >none-tree/test_list.txt
	chexnet prepare nih none-tree untested --size 32 >/dev/null 2>&1
	refuses 65 "untested: no image is in its test split" chexnet eval --data untested --weights run1/model.safetensors
	refuses 65 "untested: no image is in its test split" chexnet lr-test --data untested "${SMALL[@]}" --base-batch 4 --output untested-lr
	[ ! -e untested-lr ]
}

@test "of several weight files none is taken for all of them" {
	image=$(find tree/images -name '*.png' | head -n 1)
	for twice in "--weights run1/model.safetensors --weights run2/model.safetensors" "--weights=run1/model.safetensors --checkpoint=run2/model.safetensors"; do
		for command in "eval --data set" "predict $image" "predict --json $image"; do
			# shellcheck disable=SC2086 # words
			refuses 64 "--weights 2 times, run2/model.safetensors: chexnet ensemble" chexnet $command $twice
			[ -z "$output" ]
		done
	done
	refuses 64 "--weights=FILE is needed" chexnet eval --data set
	refuses 64 "--weights=FILE is needed" chexnet predict "$image"
}

@test "an option that would do nothing is refused" {
	refuses 64 "--growth --model=densenet121 --model=densenet" chexnet train --growth 8 --output idle
	refuses 64 "--blocks --model=resnet50 densenet or resnet" chexnet bench --model resnet50 --blocks 1,1
	refuses 64 "--growth --model=resnet" chexnet bench --model resnet --growth 8
	refuses 64 "--batch=auto number" chexnet lr-test --data set --batch auto --output idle
	refuses 64 "--log-json OUTPUT/none/log.jsonl" chexnet lr-test --data set --log-json x --output idle
	refuses 64 "--loss-scale --precision=fp16" chexnet train --loss-scale 5 --output idle
	refuses 64 "--dynamic-loss-scale --precision=fp16" chexnet train --precision bf16 --dynamic-loss-scale --output idle
	refuses 64 "--ablate --json" chexnet bench --ablate --json
	for mode in "--scaling --ablate" "--ablate --plan" "--intervals --ablate" "--plan --intervals"; do
		# shellcheck disable=SC2086 # words
		refuses 64 "--scaling, --ablate, --plan --intervals: one" chexnet bench $mode
	done
	refuses 64 "--ablate 14 findings --softmax" chexnet bench --ablate --softmax
	refuses 64 "--ablate 14 findings --classes" chexnet bench --ablate --classes 5
	refuses 64 "--forward --ablate training" chexnet bench --ablate --forward
	refuses 64 "--forward --plan training" chexnet bench --plan --gpu a100 --forward
	refuses 64 "--forward --intervals network" chexnet bench --intervals --forward
	refuses 64 "--resident --ablate host" chexnet bench --ablate --resident
	refuses 64 "--resident --intervals network" chexnet bench --intervals --resident
	refuses 64 "--source-size=300 --ablate prepared" chexnet bench --ablate --source-size 300
	refuses 64 "--source-size=300 --data prepared" chexnet bench --scaling --data set --source-size 300
	refuses 64 "--source-size=100 --image-size=224" chexnet bench --source-size 100
	refuses 64 "--gpu=t4 --plan" chexnet bench --gpu t4
	for mode in plan intervals; do
		refuses 64 "--steps=20 --$mode none" chexnet bench --$mode --steps 20
		refuses 64 "--warm-up=3 --$mode no" chexnet bench --$mode --warm-up 3
	done
	refuses 64 "--warm-up=0 --ablate round" chexnet bench --ablate --warm-up 0
	refuses 64 "--data=set random" chexnet bench --intervals --data set
	refuses 64 "--compare=2.csv --out --json" chexnet report --log log1.jsonl --compare 2.csv --tensorboard idle
	refuses 64 "--image-size=0 1 1024" chexnet bench --image-size 0
	refuses 64 "--resume=run1/checkpoint-00000012.safetensors --weights=run2/model.safetensors one of them" chexnet train --data set "${SMALL[@]}" \
		--resume run1/checkpoint-00000012.safetensors --weights run2/model.safetensors --output idle
	mkdir -p nothing
	(cd nothing && refuses 64 "--resume=auto --output=DIR" chexnet train --resume auto "${SMALL[@]}")
	rmdir nothing # no directory was made for it
	refuses 64 "--data=set --scaling --ablate --plan random" chexnet bench --data set
	for mode in "" --plan --intervals; do
		# shellcheck disable=SC2086 # a word or none
		refuses 64 "--rounds=5 --ablate --scaling" chexnet bench --rounds 5 $mode
	done
	refuses 64 "33 classes 32 softmax" chexnet bench --classes 33
	refuses 64 "--table tfrecord" chexnet prepare nih tree idle --table x
	refuses 64 "--label-order tfrecord" chexnet prepare nih tree idle --label-order dell
	refuses 64 "--batch=AUTO number, or auto" chexnet train --batch AUTO --output idle
	refuses 64 "--pointing=maps.json --out --json" chexnet report --predictions 1.csv --pointing maps.json --tensorboard idle
	refuses 65 "log1.jsonl no JSON array predict --boxes --json" chexnet report --predictions 1.csv --pointing log1.jsonl --out idle
	refuses 64 "--pictures=maps --out --tensorboard" chexnet report --predictions 1.csv --pictures maps --json idle
	refuses 65 "--pictures=set .png predict --maps" chexnet report --predictions 1.csv --pictures set --out idle
	refuses 64 "empty word" chexnet prepare nih tree ""
	refuses 64 "train: an empty word [--OPTION…]" chexnet ""
	refuses 64 "audit: an empty word" chexnet audit tree ""
	[ ! -e idle ]
	chexnet bench --intervals --json | grep -q '^{"findings":14,.*"mean":{"auroc":0\.[0-9]*,"low":0\.[0-9]*,"high":0\.[0-9]*}}$'
}

@test "a command that is too long to be noted is noted with a mark where it was cut" {
	dots=$(printf './%.0s' {1..1100})
	chexnet train --data "${dots}set" "${SMALL[@]}" --steps 1 --output long >/dev/null
	grep -q '^{"event":"start".*"command":"chexnet train --data \./\./[^"]*…"' long/log.jsonl
	chexnet eval --data "${dots}set" --weights long/model.safetensors --threads 1 --resamples 0 --predictions long.csv >/dev/null
	for file in long/test.csv long.csv; do head -n 1 "$file" | grep -q ' command=[^ ]*[./]… .*leak='; done
	chexnet ensemble average.csv "$dots"1.csv 2.csv >/dev/null
	head -n 1 average.csv | grep -q ' command=chexnet%20ensemble%20--average=probabilities%20average.csv[^ ]*…'
	chexnet report --predictions long.csv --log "${dots}long/log.jsonl" --log "${dots}long/log.jsonl" --resamples 100 --out long.html >/dev/null
	grep -q 'chexnet report --predictions long\.csv [^<]*…<' long.html
}

@test "report and compare give programs the numbers that their definitions give" {
	recount="$BATS_TEST_DIRNAME/recount.py"
	python3 "$recount" draw drawn1.csv drawn2.csv
	chexnet report --predictions drawn1.csv --resamples 200 --json drawn.json --out drawn.html >/dev/null
	chexnet compare drawn1.csv drawn2.csv --resamples 200 --json >compared.json
	python3 "$recount" check drawn1.csv drawn2.csv drawn.json compared.json | tee recounted
	grep -x '13 findings, 23 operating points, 13 tests' recounted
	[ "$(wc -l <recounted)" -eq 1 ]
}
