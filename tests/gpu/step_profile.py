#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where a step's time goes, kernel by kernel: one JSON object.

    tests/gpu/step_profile.py time build/gpu/libtimeline.so COMMAND…     begin and end of every kernel of the steps as they really run, in their graph
    tests/gpu/step_profile.py bytes NCU COMMAND…                         what each kernel reads from the device's memory and writes there (hardware counters: not every machine has them)

COMMAND is `chexnet bench … --json`. A step is from one loss to the next. gap_share: of it, while no kernel ran; reductions_share: of it, in kernels that merge in a fixed order what others
left in parts. A kernel that is launched early counts from the end of the one before it: until then it waits. With STEP_OUT=FILE in the environment, `time` writes a step there, launch by launch. kernels: those that take longest, named as in the source, with launches and ms a step. images_per_s is the rate under the profiler. `bytes` launches kernels one by one: its
times and rates are of kernels that run alone.
"""
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict, namedtuple

Event = namedtuple("Event", "name begin end bytes")  # ns
ONCE = "head_loss_kernel"  # in a step
MERGES = ("bn_statistics_kernel", "bn_backward_sums_kernel", "merge_weights_kernel", "layer_sums_kernel")
SHOWN = 40
METRICS = {"gpu__time_duration.sum": ("ns", "nsecond"), "dram__bytes_read.sum": ("byte",), "dram__bytes_write.sum": ("byte",)}  # and what ncu calls their units


def give_up(text):
    print(json.dumps({"note": text}))
    sys.exit(1)


def short(name):
    """A kernel's name without its arguments and where it is from; what it is made for stays."""
    name = re.sub(r"\(anonymous namespace\)::|^void ", "", name)
    depth = 0
    for i, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            name = name[:i]
            break
    return name if len(name) <= 100 else name[:97] + "..."


def carry_out(command, env):
    """Its output, which also goes into the log, its exit status, and its last JSON line."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env={**os.environ, **env})
    print(done.stdout, flush=True)
    told = {}
    for line in done.stdout.split("\n"):
        if line.startswith("{"):
            try:
                told = json.loads(line)
            except ValueError:
                continue
    return done.stdout, done.returncode, told


def last_line(output):
    return (output.strip() or "without a word").split("\n")[-1][:200]


def base(name):
    return name.split("<")[0]


def summarise(events, bench):
    """What happened in a step, on average over those after the first quarter."""
    events.sort(key=lambda e: e.begin)
    losses = [i for i, e in enumerate(events) if base(e.name) == ONCE]
    losses = losses[len(losses) // 4:]
    if len(losses) < 2:
        give_up(f"{len(events)} kernels, {ONCE} {len(losses)} times among them: no whole step")
    steps, window = len(losses) - 1, events[losses[-1]].begin - events[losses[0]].begin
    until = max((e.end for e in events[:losses[0]]), default=0)
    events = events[losses[0]:losses[-1]]
    count, ns, moved, busy = defaultdict(int), defaultdict(int), defaultdict(int), 0
    for e in events:
        count[e.name] += 1
        alone = max(0, e.end - max(e.begin, until))  # one that is launched early waits beside the kernel before it
        ns[e.name] += alone
        moved[e.name] += e.bytes
        busy += alone
        until = max(until, e.end)
    kernels = [{"name": name, "launches": round(count[name] / steps, 2), "ms": round(ns[name] / steps / 1e6, 5), "share": round(ns[name] / window, 5)} for name in sorted(ns, key=ns.get, reverse=True)]
    for k in kernels if any(moved.values()) else ():
        k.update(mb=round(moved[k["name"]] / steps / 1e6, 3), gb_per_s=round(moved[k["name"]] / max(1, ns[k["name"]]), 1))
    return {"steps": steps, "ms_per_step": round(window / steps / 1e6, 5), "gap_share": round(1 - busy / window, 5), "reductions_share": round(sum(ns[name] for name in ns if base(name) in MERGES) / window, 5),
            "launches": round(len(events) / steps, 1), "bytes_per_step": sum(moved.values()) / steps, "images_per_s": bench.get("images_per_s"), "batch": bench.get("batch"), "kernels": kernels}


def write_last_step(path, events):
    """Of events in their order: a line a launch, with the microseconds it took and those since the one before ended."""
    losses = [i for i, e in enumerate(events) if base(e.name) == ONCE]
    until = max(e.end for e in events[:losses[-2]])
    with open(path, "w") as file:
        for e in events[losses[-2]:losses[-1]]:
            file.write(f"{(e.end - e.begin) / 1000:.2f} {(e.begin - until) / 1000:.2f} {e.name}\n")
            until = max(until, e.end)


def time_of(library, command):
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/timeline"
        output, status, bench = carry_out(command, {"CUDA_INJECTION64_PATH": os.path.abspath(library), "TIMELINE_OUT": path})
        if status:
            give_up(f"{os.path.basename(command[0])} ended with {status}: {last_line(output)}")
        if not os.path.exists(path):
            why = next((line.removeprefix("timeline: ") for line in output.split("\n") if line.startswith("timeline: ")), None)
            if not why:
                give_up(f"nothing loaded {library}: there is no CUDA driver")
            return {"skipped": why}  # no failure of ours: the machine does not let it record
        with open(path) as file:
            lines = file.read().split("\n")
    end = next((line.split()[1] for line in lines if line.startswith("end ")), None)
    if end != "0":
        give_up(f"{end} records were dropped" if end else "the timeline has no end")
    words = [line.split(" ", 4) for line in lines]
    events = [Event(short(w[4]), int(w[0]), int(w[1]), 0) for w in words if len(w) == 5]
    s = summarise(events, bench)
    if os.environ.get("STEP_OUT"):
        write_last_step(os.environ["STEP_OUT"], events)
    s["note"] = f"{s['ms_per_step']:.3f} ms a step, {100 * s['gap_share']:.1f} % of it no kernel; merges in a fixed order {100 * s['reductions_share']:.2f} % (below 3 wanted); " + \
        ", ".join(f"{base(k['name'])} {100 * k['share']:.1f} %" for k in s["kernels"][:4])
    return s


def rows_of(text):
    """ncu's raw page, from the line that names the columns; the one after it has their units."""
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = list(csv.DictReader(lines[first:]))
    for metric, units in METRICS.items() if rows else ():
        if rows[0].get(metric) not in units:
            give_up(f"ncu counts {metric} in {rows[0].get(metric)}")
    return rows[1:]


def bytes_of(ncu, command):
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/ncu.csv"
        asked = [ncu, "--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS), "--log-file", path]
        output, status, bench = carry_out([*asked, *command], {"CHEXNET_GRAPHS": "0"})
        text = ""
        if os.path.exists(path):
            with open(path, errors="replace") as file:
                text = file.read()
    error = next((line.removeprefix("==ERROR== ")[:200] for line in f"{text}\n{output}".split("\n") if line.startswith("==ERROR==")), "")
    rows = rows_of(text)
    if error and not rows:
        return {"skipped": "ncu: " + error}  # no failure of ours: the machine keeps its counters to itself
    if status or error:
        give_up(f"ncu ended with {status}: {error or last_line(output)}")
    events, at = [], 0.0
    for row in rows:
        ns, read, written = (float(row[metric].replace(",", "")) for metric in METRICS)
        events.append(Event(short(row["Kernel Name"]), at, at + ns, read + written))
        at += ns
    s = summarise(events, bench)
    s["mb_per_image"] = round(s["bytes_per_step"] / s["batch"] / 1e6, 2)
    s["note"] = f"{s['mb_per_image']:.1f} MB an image, {s['bytes_per_step'] / s['ms_per_step'] / 1e6:.0f} GB/s in kernels that run alone; " + \
        ", ".join(f"{base(k['name'])} {k['mb'] / s['batch']:.1f} MB at {k['gb_per_s']:.0f}" for k in s["kernels"][:4])
    return s


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ("time", "bytes"):
        print(__doc__, file=sys.stderr)
        sys.exit(64)
    s = (time_of if sys.argv[1] == "time" else bytes_of)(sys.argv[2], sys.argv[3:])
    s["kernels"] = s.get("kernels", [])[:SHOWN]
    print(json.dumps(s))


if __name__ == "__main__":
    main()
