#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts by definition, pair by pair, what chexnet report --json and chexnet compare --json say.

    recount.py draw A.csv B.csv                   two models' predictions of random images, with ties, unknown labels and rare findings
    recount.py check A.csv B.csv R.json C.json    prints what differs, and ends with 1 then
"""
import csv
import json
import math
import random
import sys

N, FEW, LEAST = 240, 10, 5
FINDINGS = ("Atelectasis Cardiomegaly Effusion Infiltration Mass Nodule Pneumonia Pneumothorax Consolidation Edema Emphysema Fibrosis "
            "Pleural_Thickening Hernia").split()


def draw(paths):
    random.seed(7)
    label = [["" if random.random() < 0.1 else int(random.random() < f / 16) for f in range(14)] for _ in range(N)]
    for path in paths:
        with open(path, "w") as out:
            print("id,patient,split", *(f + "_label" for f in FINDINGS), *(f + "_logit" for f in FINDINGS), sep=",", file=out)
            for i in range(N):
                logits = [random.gauss(2 * (label[i][f] or 0) - 1, 2) for f in range(14)]
                logits = [round(x) if f % 3 == 0 else 0.25 if f == 7 else x for f, x in enumerate(logits)]
                print(f"{i}.png", i // 2, "test", *label[i], *logits, sep=",", file=out)


def read(path):
    with open(path) as lines:
        rows = list(csv.DictReader(line for line in lines if line[0] != "#"))
    return {f: [(int(r[f + "_label"]), float(r[f + "_logit"]), r["patient"]) for r in rows if r[f + "_label"]] for f in FINDINGS}


def split(rows):
    return [x for y, x, _ in rows if y], [x for y, x, _ in rows if not y]


def placements(rows):
    """Of each positive the share of negatives below it, of each negative the share of positives above it."""
    pos, neg = split(rows)
    above = lambda x, y: (x > y) + 0.5 * (x == y)
    return [sum(above(x, y) for y in neg) / len(neg) for x in pos], [sum(above(x, y) for x in pos) / len(pos) for y in neg]


def variance(values):
    mean = sum(values) / len(values)
    return sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values)


def average_precision(rows):
    pos, neg = split(rows)
    ap = before = 0
    for cut in sorted({x for _, x, _ in rows}, reverse=True):
        tp, fp = sum(x >= cut for x in pos), sum(x >= cut for x in neg)
        ap += (tp - before) / len(pos) * tp / (tp + fp)
        before = tp
    return ap


def patients(rows, side):
    return len({p for y, _, p in rows if y == side})


def of_model(rows):
    pos, neg = split(rows)
    p = [(1 / (1 + math.exp(-x)), y) for y, x, _ in rows]
    v10, v01 = placements(rows)
    share = len(pos) / len(rows)
    said = {"positives": len(pos), "negatives": len(neg), "positive_patients": patients(rows, 1), "auroc.value": sum(v10) / len(v10),
            "auroc_delong.value": sum(v10) / len(v10), "average_precision.value": average_precision(rows),
            "brier": sum((q - y) ** 2 for q, y in p) / len(p)}
    least = min(patients(rows, 0), patients(rows, 1))
    se = math.sqrt(variance(v10) + variance(v01)) if min(len(pos), len(neg)) > 1 else 0
    if least >= LEAST and se > 0:
        said["auroc_delong.se"] = se
        said["auroc_delong.low"] = max(said["auroc.value"] - 1.959963984540054 * se, 0)
        said["auroc_delong.high"] = min(said["auroc.value"] + 1.959963984540054 * se, 1)
    if least >= FEW:
        said["brier_skill"] = 1 - said["brier"] / share / (1 - share)
        said["observed_to_expected"] = len(pos) / sum(q for q, _ in p)
        said["ece"] = sum(abs(sum(y - q for q, y in p if min(int(q * 15), 14) == k)) for k in range(15)) / len(p)
    return said


def of_threshold(rows, at):
    hit = {(y, 1 / (1 + math.exp(-x)) >= at["threshold"]): 0 for y, x, _ in rows}
    for y, x, _ in rows:
        hit[y, 1 / (1 + math.exp(-x)) >= at["threshold"]] += 1
    tp, fn, fp, tn = (hit.get(k, 0) for k in ((1, True), (1, False), (0, True), (0, False)))
    return {"sensitivity.value": tp / (tp + fn), "specificity.value": tn / (tn + fp), "ppv": tp / (tp + fp) if tp + fp else None,
            "npv": tn / (tn + fn) if tn + fn else None}


def of_pair(a, b):
    (a10, a01), (b10, b01) = placements(a), placements(b)
    x, y = [v - u for u, v in zip(a10, b10)], [v - u for u, v in zip(a01, b01)]
    said = {"positives": len(a10), "negatives": len(a01), "positive_patients": patients(a, 1), "a": sum(a10) / len(a10), "b": sum(b10) / len(b10),
            "difference": sum(x) / len(x)}
    if min(patients(a, 0), patients(a, 1)) >= LEAST:
        se = math.sqrt(variance(x) + variance(y))
        said["p_delong"] = math.erfc(abs(said["difference"]) / se / math.sqrt(2)) if se > 0 else 1
    return said


def compare(where, expected, said):
    wrong = 0
    for key, value in expected.items():
        got = said
        for name in key.split("."):
            got = (got or {}).get(name)
        if value is None and got is None:
            continue
        if value is None or got is None or not abs(got - value) < 1e-6:
            print(f"{where}: {key} is {got}, by definition {value}")
            wrong = 1
    return wrong


def check(a_path, b_path, report_path, compared_path):
    a, b = read(a_path), read(b_path)
    with open(report_path) as r, open(compared_path) as c:
        report, compared = json.load(r), json.load(c)
    wrong, of, points = 0, [], 0
    for f in FINDINGS:
        if not all(split(a[f])):
            continue
        said = report["findings"][f]
        of.append((said["auroc"]["value"], compared["findings"][f]["b"]))
        wrong |= compare(f, of_model(a[f]), said) | compare(f + " compared", of_pair(a[f], b[f]), compared["findings"][f])
        for name, at in said["operating_points"].items():
            if at["threshold"] is None:
                continue
            points += 1
            wrong |= compare(f"{f} {name}", of_threshold(a[f], at), at)
            aim = at["specificity" if name == "specificity_90" else "sensitivity"]["value"]
            wrong |= compare(f"{f} {name}", {"reached": 1}, {"reached": aim >= 0.9})
    mean = [sum(m) / len(m) for m in zip(*of)]
    wrong |= compare("report", {"images": N, "patients": N // 2, "counted": len(of), "mean_auroc.value": mean[0]}, report)
    wrong |= compare("compare", {"images": N, "patients": N // 2, "counted": len(of), "only_a": 0, "only_b": 0, "mean.a": mean[0], "mean.b": mean[1],
                                 "mean.difference": mean[1] - mean[0]}, compared)
    tested = [v for v in compared["findings"].values() if v["p"] is not None]
    wrong |= compare("compare", {"tested": len(tested), "p_floor": 2 / (report["resamples"] + 1)}, compared)
    floor = 0
    for k, v in enumerate(sorted(tested, key=lambda v: v["p"])):
        floor = max(floor, min(1, (len(tested) - k) * v["p"]))
        wrong |= compare("Holm", {"p_holm": floor}, v)
    print(f"{len(of)} findings, {points} operating points, {len(tested)} tests")
    return wrong


if sys.argv[1] == "draw":
    draw(sys.argv[2:])
else:
    sys.exit(check(*sys.argv[2:]))
