#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The audit on the whole of ChestX-ray14's labels and lists: the published counts come out, and what is planted is found and named.
# (Duplicates under another name need pixels: tests/unit/test_trainer_audit_files.c plants those.)
bats_require_minimum_version 1.5.0
load helpers

setup_file() {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	local nih=${SHARED:-$BATS_TEST_DIRNAME/../../../shared}/nih-sample
	[ -e "$nih/Data_Entry_2017_v2020.full.csv.gz" ] || skip "no shared material with the full label table here"
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH"
	gunzip -c "$nih/Data_Entry_2017_v2020.full.csv.gz" >"$SCRATCH/full.csv"
	gunzip -c "$nih/train_val_list.full.txt.gz" >"$SCRATCH/train_val.txt"
	gunzip -c "$nih/test_list.full.txt.gz" >"$SCRATCH/test.txt"
}
teardown_file() { rm -rf "$SCRATCH"; }
setup() { cd "$SCRATCH" || return 1; }

# Audits TABLE against the published one; LISTS may be others.
audit() { # TABLE [TRAIN_VAL_LIST TEST_LIST]
	run "$BUILD/chexnet" audit "$1" --table full.csv --train-val-list "${2:-train_val.txt}" --test-list "${3:-test.txt}"
	echo "$output"
}
problems() { grep -c PROBLEM <<<"$output" || true; }

@test "the published tables: 112,120 images of 30,805 patients, 86,524 / 25,596 and 28,008 / 2,797, no problem" {
	audit full.csv
	[ "$status" -eq 0 ]
	[[ ${lines[0]} == *": 112120 images, 30805 patients" ]]
	grep -qx '  train   86524 images,  28008 patients' <<<"$output"
	grep -qx '  test    25596 images,   2797 patients' <<<"$output"
	[ "$(problems)" = 0 ]
	# of Edema's patients most lie in bed; whether the table is PATH or --table
	[[ $output == *"note (shortcuts): Edema: 88 % of the images with it are AP views, of the others 39 %: "* ]]
	[ "$(grep -c 'AP views' <<<"$output")" = 1 ]
	[[ $output == *"note (shortcuts): not looked at: tubes, drains "* ]]
	run "$BUILD/chexnet" audit full.csv
	[[ ${lines[0]} == *"without images, split none: 112120 images, 30805 patients" ]]
	[[ ${lines[1]} == "  note (shortcuts): Edema: 88 % "* ]]
}

@test "what age, sex and the number of the image alone tell is measured, and all of it is in the JSON" {
	# by an AUROC in Python from the same table: view and Edema 0.745, age and Hernia 0.772, number and Pneumothorax 0.701, sex and Hernia 0.4288
	audit full.csv
	[[ $output == *"note (shortcuts): Hernia: the median age is 62 years in the images with it and 49 in the others: "* ]]
	[[ $output == *"note (shortcuts): Pneumothorax: the median follow-up number is 9 in the images with it and 3 in the others: "* ]]
	[[ $output == *"of at most 0.75 (the view (AP or PA), Edema), 0.77 (age, Hernia), 0.57 (sex, Hernia), 0.70 (follow-up number, Pneumothorax)"* ]]
	run "$BUILD/chexnet" audit --json full.csv
	[ "$status" -eq 0 ]
	[[ $output == *'"auroc_of_column_alone":{"view":{'*'"Edema":0.745'*'"age":{'*'"Hernia":0.772'* ]]
	[[ $output == *'"sex":{'*'"Hernia":0.428'*'"follow_up":{'*'"Pneumothorax":0.701'* ]]
	# 11,559 of the 112,120 images have it
	[[ $output == *'"positives":{"Atelectasis":11559,'*'"negatives":{"Atelectasis":100561,'*'"negative_patients":{"Atelectasis":'* ]]
}

@test "one image of a training patient on the test list is a leak, with patient and share" {
	# patient 2, a single image in training, has none in the test; patient 1's last image moves
	grep -v '^00000001_002.png' train_val.txt >leaky_train_val.txt
	(cat test.txt && printf '\n00000001_002.png\n') >leaky_test.txt
	audit full.csv leaky_train_val.txt leaky_test.txt
	[ "$status" -eq 65 ]
	[ "$(problems)" = 1 ]
	[[ $output == *"PROBLEM (leak): 1 patient is in both train and test (patient 1 is one): 1 of 25597 test images are theirs"* ]]
}

@test "Dell's trainer's swap of two findings is named" {
	sed 's/Pneumothorax/@/g; s/Pneumonia/Pneumothorax/g; s/@/Pneumonia/g' full.csv >swapped.csv
	audit swapped.csv
	[ "$status" -eq 65 ]
	[ "$(problems)" = 2 ]
	[[ $output == *"what is called Pneumonia here is Pneumothorax in the table"* ]]
	[[ $output == *"what is called Pneumothorax here is Pneumonia in the table"* ]]
}

@test "a dropped tail is counted by list, and its images are named" {
	head -n -252 full.csv >cut.csv
	audit cut.csv
	[ "$status" -eq 65 ]
	missing=$(tail -n 252 full.csv | cut -d, -f1 | grep -cxFf - <(tr -d '\r' <train_val.txt))
	[[ $output == *"PROBLEM (dropped): $missing of the 86524 images on the official train_val list are missing: "* ]]
	[[ $output == *"PROBLEM (dropped): $((252 - missing)) of the 25596 images on the official test list are missing: "* ]]
	[ "$(problems)" = 2 ]
}
