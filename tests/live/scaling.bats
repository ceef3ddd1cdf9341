#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chexnet bench --scaling: sub-worlds of one job step, each in its turn, and what is said about them; and chexnet bench alone.
bats_require_minimum_version 1.5.0
load helpers

NETWORK=(--model densenet --growth 4 --blocks 1,1 --image-size 32 --threads 1)

setup_file() {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	cluster_up --plugin none
	"$BUILD/chexnet" synth --out "$SCRATCH/tree" --images 200 --size 32 >"$SCRATCH/synth.out"
	"$BUILD/chexnet" prepare nih "$SCRATCH/tree" "$SCRATCH/data" --size 32 >>"$SCRATCH/synth.out"
}
teardown_file() { cluster_down; }
setup() { need_pmix; }
teardown() { cluster_logs; }

scaling() { # "SRUN OPTIONS" [OPTION…]: stdout, stderr and exit code as `run` has them
	# shellcheck disable=SC2086 # the options are words
	run --separate-stderr in_cluster srun -Q -O --mpi=pmix $1 "$BUILD/${PROGRAM:-chexnet}" bench --scaling "${NETWORK[@]}" "${@:2}"
	echo "$output"
	echo "$stderr"
}

# checked RANKS NODES: $output is the JSON of that many ranks, and its figures follow from each other
checked() {
	python3 - "$output" "$1" "$2" <<-'END'
		import json, sys
		o = json.loads(sys.argv[1])
		assert [r["ranks"] for r in o["scaling"]] == json.loads(sys.argv[2]) and o["ranks"] == o["scaling"][-1]["ranks"], o
		assert [r["nodes"] for r in o["scaling"]] == json.loads(sys.argv[3]), o
		assert o["memory_mib"] * 2**20 > 4 * o["parameters"] > 0, o
		for input in ["synthetic"] + (["real"] if o["data"] else []):
		    first = o["scaling"][0][input]["images_per_s"]
		    for r in o["scaling"]:
		        v = r[input]
		        assert v["images_per_s"] > 0 and abs(v["efficiency"] * r["ranks"] * first / v["images_per_s"] - 1) < 1e-9, (r, first)
		        ms = v["step_ms"]
		        assert 0 < ms["min"] <= ms["p10"] <= ms["median"] <= ms["p90"] <= ms["max"], ms
		        # the rate is that of whole steps: between those of the slowest and of the fastest one, or a little above, as each step is its slowest rank's,
		        # and the whole is one rank's
		        images = 1e3 * r["ranks"] * o["batch"]
		        assert images / ms["max"] / 1.001 <= v["images_per_s"] <= images / ms["min"] * (1.001 if r["ranks"] == 1 else 1.05), v
		        assert 0 <= v["exposed_ms"] <= ms["max"], v
		    assert o["scaling"][0][input]["efficiency"] == 1
		for r in o["scaling"]:
		    assert o["data"] or r["real"] is None
	END
}

# Steps of two ranks, of which the second stands still most of the time.
halting() { # [OPTION…]
	# shellcheck disable=SC2016
	run --separate-stderr in_cluster srun -Q -O -N1 -n2 --mpi=pmix bash -c '
		[ "$SLURM_PROCID" = 1 ] || exec "$@"
		"$@" &
		while kill -STOP $! 2>/dev/null; do sleep 0.2; kill -CONT $!; sleep 0.05; done
		wait $!' bash "$BUILD/chexnet" bench "${NETWORK[@]}" --batch 4 "$@"
	echo "$output"
	echo "$stderr"
	[ "$status" -eq 0 ]
}

@test "without --scaling: figures follow from each other, and a step takes as long as on its slowest rank" {
	halting --steps 40 --json
	python3 - "$output" <<-'END'
		import json, sys
		o = json.loads(sys.argv[1])
		ms = o["step_ms"]
		assert (o["ranks"], o["batch"], o["steps"], o["mode"], o["threads"]) == (2, 4, 40, "train", 1) and 0 < o["loss"] < 2, o
		assert abs(o["images_per_s"] * ms["median"] / (1e3 * 2 * 4) - 1) < 1e-9, o
		assert 0 < ms["min"] <= ms["p10"] <= ms["median"] <= ms["p90"] <= ms["max"], ms
		# of a step on an average, and rank 0 waits in most of them for the other
		assert 0 < o["exposed_ms"] < ms["max"] and 0.001 * ms["min"] < o["first_step_s"] < 60, o
		assert o["memory_mib"] * 2**20 > 4 * o["parameters"] > 0, o
	END
	# ranks that do not wait for each other
	halting --steps 4000 --forward --json
	python3 -c 'import json, sys; o = json.loads(sys.argv[1]); assert o["step_ms"]["max"] > 150 and o["mode"] == "forward" and "loss" not in o, o' "$output"
	run --separate-stderr "$BUILD/chexnet" bench "${NETWORK[@]}" --batch 4 --steps 9
	echo "$output"
	[ "$status" -eq 0 ]
	python3 - "$output" <<-'END'
		import re, sys
		head, figures = sys.argv[1].split("\n")
		assert "32 pixels, 1 rank x batch 4" in head, head
		rate, median, p10, p90, exposed = map(float, re.fullmatch(
		    r"([\d.]+) images/s; training step median ([\d.]+) ms \(10 % ([\d.]+), 90 % ([\d.]+)\); exposed communication ([\d.]+) ms", figures).groups())
		assert abs(4e3 / rate - median) < 0.006 and 0 < p10 <= median <= p90 and exposed < p90, figures
	END
}

@test "1, 2 and all 3 ranks on two nodes, from memory and from images: the JSON's figures follow from each other" {
	scaling "-N2 -n3" --batch 4 --steps 5 --rounds 3 --data "$SCRATCH/data" --json
	[ "$status" -eq 0 ]
	checked "[1, 2, 3]" "[1, 1, 2]"
	python3 -c 'import json, sys; o = json.loads(sys.argv[1]); assert (o["steps"], o["rounds"], o["batch"], o["mode"]) == (5, 3, 4, "train") and "TFRecord" in o["data"]' "$output"
}

@test "one rank is its own measure, in a step and without Slurm" {
	scaling "-N1 -n1" --batch 2 --steps 2 --rounds 1 --json
	[ "$status" -eq 0 ]
	checked "[1]" "[1]"
	run --separate-stderr "$BUILD/chexnet" bench --scaling "${NETWORK[@]}" --batch 2 --steps 2 --rounds 1 --forward --json
	[ "$status" -eq 0 ]
	checked "[1]" "[1]"
}

@test "the table has a row for each size, and says what the others did" {
	scaling "-N1 -n4" --batch 2 --steps 2 --rounds 1
	[ "$status" -eq 0 ]
	[ "$(grep -oE '^ +[0-9]+ +1 ' <<<"$output" | awk '{ print $1 }' | tr '\n' ' ')" = "1 2 4 " ]
	[[ $output == *"leaves out sleep"* && $output == *"no real images"* ]]
	[ "$(grep -c ' 100.0 %' <<<"$output")" -ge 1 ]
	# in one unit: a rate is that of the steps, whose median is told
	awk '/^ +[0-9]+ +1 / { r = $3 * $6 / (1e3 * 2 * $1); rows += r > 0.1 && r < 10 && $7 <= 10 * $6 } END { exit rows != 3 }' <<<"$output"
}

@test "ranks that wait longer than the deadline are told that the others still compute" {
	local network=(--growth 16 --blocks 4,4 --batch 16 --image-size 64 --rounds 1 --json) steps
	scaling "-N1 -n2" "${network[@]}" --steps 5
	[ "$status" -eq 0 ]
	for _ in 1 2 3; do
		# so many that rank 1 waits longer for the first row
		steps=$(python3 -c 'import json, sys; print(int(6000 / json.loads(sys.argv[1])["scaling"][0]["synthetic"]["step_ms"]["median"]) + 1)' "$output")
		HVD_DEADLINE=4 LIMIT=170 scaling "-N1 -n2" "${network[@]}" --steps "$steps"
		[ "$status" -eq 0 ]
		checked "[1, 2]" "[1, 1]"
		python3 -c 'import json, sys; o = json.loads(sys.argv[1]); sys.exit(o["scaling"][0]["synthetic"]["step_ms"]["median"] * o["steps"] < 4500)' "$output" && return
	done
	false
}

@test "an image that a rank cannot read ends all of them, also those that wait, with its line" {
	PROGRAM=tests/wrap_dataset_read scaling "-N2 -n3" --batch 8 --steps 10 --rounds 3 --data "$SCRATCH/data"
	[ "$status" -ne 0 ]
	[ "$(grep -c 'CRC mismatch' <<<"$stderr")" -ge 1 ]
	[[ $output != *"images/s"* ]]
}

@test "what it cannot measure it refuses, once" {
	scaling "-N1 -n2" --batch 2 --data "$SCRATCH/data" --softmax
	[ "$status" -eq 64 ]
	[ "$(grep -c 14 <<<"$stderr")" = 1 ]
	scaling "-N1 -n2" --batch 2 --data "$SCRATCH/data" --image-size 64
	[ "$status" -eq 64 ]
	[[ $stderr == *"32 pixels a side"* ]]
	scaling "-N1 -n2" --batch 2 --data "$SCRATCH/nowhere"
	[ "$status" -eq 65 ]
	scaling "-N1 -n2" --batch 2 --ablate
	[ "$status" -eq 64 ]
}
