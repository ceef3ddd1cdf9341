#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do chexnet's figures and files agree with scikit-learn and TensorBoard?

    python3 -m venv build/compat/venv && build/compat/venv/bin/pip install scikit-learn tensorboard pillow
    build/compat/venv/bin/python tests/compat/results.py build/chexnet [--write]

Not part of make check, which needs neither. Prints one line a claim; ends with status 1 if one does not hold.
"""
import csv
import glob
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image
from scipy.stats import norm, poisson
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.pr_curve import metadata as pr_metadata
from tensorboard.util import tensor_util

FINDINGS = ("Atelectasis Cardiomegaly Effusion Infiltration Mass Nodule Pneumonia Pneumothorax Consolidation Edema "
            "Emphysema Fibrosis Pleural_Thickening Hernia").split()
IMAGES, STEPS, RESAMPLES, SEED = 3000, 40, 400, 20240611
BOOTSTRAP = 1000  # resamples by NumPy's own generator
failed = 0


def claim(text, error, limit):
    global failed
    failed += not error <= limit
    print(f"{'ok' if error <= limit else 'NOT OK'} - {text}: largest difference {error:.2e}, limit {limit:g}")


def write_predictions(path, rng, first_patient=0):
    """Two images a patient, with the same findings and errors that are alike. Every third finding in steps of 1/4, so that there are ties; every tenth
    label unknown."""
    labels = np.repeat(rng.random((IMAGES // 2, 14)) < np.linspace(0.05, 0.4, 14), 2, axis=0).astype(int)
    errors = np.sqrt(0.7) * np.repeat(rng.normal(size=(IMAGES // 2, 14)), 2, axis=0) + np.sqrt(0.3) * rng.normal(size=(IMAGES, 14))
    logits = (errors + labels - 1.5).astype(np.float32)
    logits[:, ::3] = np.round(logits[:, ::3] * 4) / 4
    known = rng.random((IMAGES, 14)) > 0.1
    with open(path, "w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["id", "patient", "split"] + [n + "_label" for n in FINDINGS] + [n + "_logit" for n in FINDINGS])
        for i in range(IMAGES):
            out.writerow([f"{first_patient + i // 2:08d}_{i % 2:03d}.png", first_patient + i // 2, "test"] + [l if k else "" for l, k in zip(labels[i], known[i])]
                         + [repr(float(x)) for x in logits[i]])
    return labels, logits, known


def write_pointing(path, rng):
    """Maps of 300 patients with one to four images each, as chexnet predict --boxes --json prints them; of the last finding nearly all hit."""
    maps = []
    with open(path, "w") as f:
        rows = []
        for patient in range(1, 301):
            own = rng.beta(1, 1)
            for follow_up in range(rng.integers(1, 5)):
                found = rng.choice(14, rng.integers(1, 3), replace=False)
                findings = {}
                for k in found:
                    chance = int(rng.integers(k == 13, 10)) / 49
                    findings[FINDINGS[k]] = {"hit": bool(chance > 0 and rng.random() < (0.98 if k == 13 else own)), "chance": chance}
                    maps.append((patient, k, findings[FINDINGS[k]]["hit"], chance))
                rows.append({"image": f"{patient:08d}_{follow_up:03d}.png", "weights_hash": "0" * 16, "pointing": {"patient": patient, "findings": findings}})
        json.dump(rows, f)
    return maps


def write_log(path, rng):
    loss = rng.random(STEPS)
    with open(path, "w") as f:
        print(json.dumps({"event": "start", "ranks": 1}), file=f)
        for step in range(STEPS):
            print(json.dumps({"event": "step", "step": step, "loss": loss[step], "lr": 1e-3 / (step + 1)}), file=f)
        print(json.dumps({"event": "end", "code": 0}), file=f)
    return loss


def expected_calibration_error(p, y):
    bins = np.minimum((p * 15).astype(int), 14)
    return sum(abs((y - p)[bins == b].sum()) for b in range(15)) / len(p)


def level(z, y):
    """The intercept of a logistic regression whose slope is 1."""
    low, high = -50.0, 50.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 / (1 + np.exp(-z - middle))).sum() < y.sum() else (low, middle)
    return low


def check_measures(report, labels, logits, known):
    worst = dict.fromkeys(["auroc", "average_precision", "brier", "brier_skill", "observed_to_expected", "ece", "calibration_in_the_large", "calibration_slope",
                           "calibration_intercept"], 0.0)
    skills = []
    for f, name in enumerate(FINDINGS):
        y, z = labels[known[:, f], f], logits[known[:, f], f].astype(np.float64)
        p = 1 / (1 + np.exp(-z))
        fit = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10000, solver="newton-cholesky").fit(z[:, None], y)
        theirs = {"auroc": roc_auc_score(y, z), "average_precision": average_precision_score(y, z), "brier": brier_score_loss(y, p),
                  "brier_skill": 1 - ((y - p) ** 2).sum() / ((y - y.mean()) ** 2).sum(), "observed_to_expected": y.sum() / p.sum(),
                  "ece": expected_calibration_error(p, y), "calibration_in_the_large": level(z, y), "calibration_slope": fit.coef_[0, 0], "calibration_intercept": fit.intercept_[0]}
        for key, value in theirs.items():
            ours = report["findings"][name][key]
            ours = ours["value"] if isinstance(ours, dict) else ours
            worst[key] = max(worst[key], abs(ours - value))
        skills.append(theirs["brier_skill"])
    worst["mean_brier_skill"] = abs(report["mean_brier_skill"] - np.mean(skills))
    scikit = "auroc", "average_precision", "brier", "calibration_slope", "calibration_intercept"
    for key, error in worst.items():
        claim(f"{key} equals {'scikit-learn' if key in scikit else 'its definition in NumPy'} over {len(FINDINGS)} findings", error, 1e-6 if "calibration" in key else 1e-12)


def delong_error(y, z):
    """DeLong, DeLong and Clarke-Pearson 1988 by their definition: every pair of a positive and a negative."""
    pairs = np.sign(z[y == 1][:, None] - z[y == 0][None, :]) / 2 + 0.5
    return math.sqrt(pairs.mean(1).var(ddof=1) / pairs.shape[0] + pairs.mean(0).var(ddof=1) / pairs.shape[1])


def splitmix(state):
    """Steele, Lea and Flood 2014; returns the next state and what it gives."""
    state = (state + 0x9E3779B97F4A7C15) % 2**64
    z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return state, z ^ z >> 31


def resamples_of(seed, patients=IMAGES // 2):
    """How often each patient is drawn in each resample, as trainer/learn/resample.h defines it."""
    for resample in range(RESAMPLES):
        weight = np.zeros(patients)
        state = (splitmix(seed)[1] + resample * 0xD1342543DE82EF95) % 2**64
        for _ in range(patients):
            state, z = splitmix(state)
            weight[z * patients >> 64] += 1
        yield weight


def check_intervals(report, labels, logits, known):
    values = np.array([[roc_auc_score(labels[k, f], logits[k, f], sample_weight=weight[np.flatnonzero(k) // 2])
                        for f, k in enumerate(known.T)] for weight in resamples_of(1)])
    delong = bootstrap = 0.0
    for f, (name, k) in enumerate(zip(FINDINGS, known.T)):
        ours = report["findings"][name]
        delong = max(delong, abs(ours["auroc_delong"]["se"] - delong_error(labels[k, f], logits[k, f].astype(np.float64))))
        theirs = list(np.quantile(values[:, f], [0.025, 0.975])) + [values[:, f].std(ddof=1)]
        bootstrap = max(bootstrap, np.abs(np.subtract([ours["auroc"][key] for key in ("low", "high", "se")], theirs)).max())
    mean = report["mean_auroc"]
    theirs = list(np.quantile(values.mean(1), [0.025, 0.975])) + [values.mean(1).std(ddof=1)]
    claim("DeLong's standard error equals its definition over all pairs, in NumPy", delong, 1e-12)
    claim(f"intervals from {RESAMPLES} resamples of patients equal weighted scikit-learn and NumPy", bootstrap, 1e-12)
    claim("the mean's too", np.abs(np.subtract([mean[key] for key in ("low", "high", "se")], theirs)).max(), 1e-12)


def fit_weighted(z, y, weight, slope):
    """Logistic regressions by Newton's method, one for each row of weight; slope: fitted too, or 1. Returns intercepts and slopes."""
    a, b = np.zeros(len(weight)), np.ones(len(weight))
    for _ in range(12):
        q = 1 / (1 + np.exp(-(a[:, None] + b[:, None] * z)))
        w, rest = weight * q * (1 - q), weight * (y - q)
        h00, g0 = w.sum(1), rest.sum(1)
        if not slope:
            a += g0 / h00
            continue
        h01, h11, g1 = w @ z, w @ z**2, rest @ z
        determinant = h00 * h11 - h01**2
        a, b = a + (h11 * g0 - h01 * g1) / determinant, b + (h00 * g1 - h01 * g0) / determinant
    return a, b


def check_calibration_intervals(report, labels, logits, known, rng):
    """By a bootstrap of its own; ours are of another method (linear terms, Student's quantile), so ends are compared to a part of the interval's width."""
    weights = rng.multinomial(IMAGES // 2, np.full(IMAGES // 2, 2 / IMAGES), size=BOOTSTRAP).astype(float)
    worst = {}
    skills = np.zeros(BOOTSTRAP)
    for f, (name, k) in enumerate(zip(FINDINGS, known.T)):
        y, z, weight = labels[k, f], logits[k, f].astype(np.float64), weights[:, np.flatnonzero(k) // 2]
        p, n = 1 / (1 + np.exp(-z)), weight.sum(1)
        share, brier = weight @ y / n, weight @ (y - p) ** 2 / n
        skill, (intercept, slope) = 1 - brier / (share * (1 - share)), fit_weighted(z, y, weight, True)
        drawn = {"brier": brier, "brier_skill": skill, "observed_to_expected": weight @ y / (weight @ p), "calibration_in_the_large": fit_weighted(z, y, weight, False)[0],
                 "calibration_slope": slope, "calibration_intercept": intercept}
        skills += skill / 14
        for key, values in drawn.items():
            low, high = (report["findings"][name][f"{key}_{end}"] for end in ("low", "high"))
            worst[key] = max(worst.get(key, 0), np.abs(np.subtract([low, high], np.quantile(values, [0.025, 0.975]))).max() / (high - low))
    low, high = report["mean_brier_skill_low"], report["mean_brier_skill_high"]
    worst["mean_brier_skill"] = np.abs(np.subtract([low, high], np.quantile(skills, [0.025, 0.975]))).max() / (high - low)
    for key, error in worst.items():
        claim(f"{key}'s interval is about that of {BOOTSTRAP} resamples of patients by NumPy: ends, in widths", error, 0.15)


def wilson(share, n):
    z = norm.ppf(0.975)
    middle, half = (share + z**2 / (2 * n)) / (1 + z**2 / n), z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return [max(middle - half, 0) if share > 0 else 0, min(middle + half, 1) if share < 1 else 1]


def share_and_interval(part, whole, weights):
    """Of so many of each patient's images: the share, percentiles over resamples or Wilson's interval of the effective patients, and its name."""
    share, effective = part.sum() / whole.sum(), whole.sum() ** 2 / (whole**2).sum()
    if min(share, 1 - share) * effective < 5:
        return [share] + wilson(share, effective), "wilson"
    of = weights @ whole
    return [share] + list(np.quantile((weights @ part)[of > 0] / of[of > 0], [0.025, 0.975])), "percentile"


def check_operating(report, labels, logits, known, chosen, rng):
    names = "sensitivity", "specificity", "ppv", "npv"
    weights, own = np.array(list(resamples_of(1))), rng.multinomial(IMAGES // 2, np.full(IMAGES // 2, 2 / IMAGES), size=BOOTSTRAP)
    aimed = counts = values = about = 0.0
    for f, name in enumerate(FINDINGS):
        y, p = (np.where(known[:, f], x, np.nan) for x in (labels[:, f], 1 / (1 + np.exp(-logits[:, f].astype(np.float64)))))
        cl, ck = chosen[0][chosen[2][:, f], f], 1 / (1 + np.exp(-chosen[1][chosen[2][:, f], f].astype(np.float64)))
        for aim, at in report["findings"][name]["operating_points"].items():
            t = at["threshold"]
            below, above = ck[ck < t].max(), ck[ck >= t].min()
            sides = {"specificity_90": ((ck < t)[cl == 0].mean() >= 0.9, (ck < below)[cl == 0].mean() < 0.9),
                     "sensitivity_90": ((ck >= t)[cl == 1].mean() >= 0.9, (ck > above)[cl == 1].mean() < 0.9)}
            aimed += 2 - sum(sides[aim])
            hit, flag = y == 1, p >= t
            per = lambda x: (x & known[:, f]).reshape(-1, 2).sum(1).astype(float)
            pairs = [(per(flag & hit), per(hit)), (per(~flag & ~hit), per(~hit)), (per(flag & hit), per(flag)), (per(~flag & ~hit), per(~flag))]
            ours = {n: at[n] if isinstance(at[n], dict) else {"value": at[n], "low": at[n + "_low"], "high": at[n + "_high"]} for n in names}
            theirs = [pairs[0][0].sum(), (pairs[0][1] - pairs[0][0]).sum(), pairs[1][0].sum(), (pairs[1][1] - pairs[1][0]).sum()]
            counts += np.abs(np.subtract([at[n] for n in ("true_positives", "false_negatives", "true_negatives", "false_positives")], theirs)).max()
            for n, (part, whole) in zip(names, pairs):
                said = [ours[n][key] for key in ("value", "low", "high")]
                expected, method = share_and_interval(part, whole, weights)
                values = max(values, np.abs(np.subtract(said, expected)).max())
                if method == "percentile":
                    ends = np.quantile(own @ part / (own @ whole), [0.025, 0.975])
                    about = max(about, np.abs(np.subtract(said[1:], ends)).max() / (said[2] - said[1]))
    claim("thresholds are the outermost that reach 90 % on the images that chose them", aimed, 0)
    claim("true and false positives and negatives equal NumPy's counts", counts, 0)
    claim("sensitivity, specificity, PPV and NPV and their intervals equal their definition in NumPy", values, 1e-12)
    claim(f"these intervals are about those of {BOOTSTRAP} resamples of patients by NumPy: ends, in widths", about, 0.15)


def check_pointing(report, maps, rng):
    patient, finding, hit, chance = (np.array(x) for x in zip(*maps))
    ids, number = np.unique(patient, return_inverse=True)
    weights, own = np.array(list(resamples_of(1, len(ids)))), rng.multinomial(len(ids), np.full(len(ids), 1 / len(ids)), size=BOOTSTRAP)
    counts = values = about = 0.0
    methods = set()
    for k, ours in [(-1, report["pointing"])] + [(FINDINGS.index(name), x) for name, x in report["pointing"]["findings"].items()]:
        of = (finding == k) | (k < 0)
        whole, part = (np.bincount(number[of], weights=x[of], minlength=len(ids)) for x in (np.ones(len(hit)), hit))
        counts = max(counts, np.abs(np.subtract([ours[key] for key in ("maps", "patients", "hits", "hits_by_chance", "cannot_hit")],
                                                [of.sum(), (whole > 0).sum(), hit[of].sum(), chance[of].sum(), (chance[of] == 0).sum()])).max())
        said = [ours["share"][key] for key in ("value", "low", "high")]
        expected, method = share_and_interval(part, whole, weights)
        methods.add(method)
        values = max(values, np.abs(np.subtract(said, expected)).max() + (method != ours["share"]["method"]))
        if method == "percentile":
            about = max(about, np.abs(np.subtract(said[1:], np.quantile(own @ part / (own @ whole), [0.025, 0.975]))).max() / (said[2] - said[1]))
    effective = len(maps) / (np.bincount(number) ** 2).sum()
    more, mean = hit.sum() * effective, chance.sum() * effective
    claim("pointing game: maps, patients, hits and chance equal NumPy's counts", counts, 1e-9)
    claim(f"its shares and their intervals ({' and '.join(sorted(methods))}) equal their definition in NumPy", values, 1e-12)
    claim(f"its intervals are about those of {BOOTSTRAP} resamples of patients by NumPy: ends, in widths", about, 0.15)
    claim("its p is Poisson's of SciPy", abs(report["pointing"]["p_at_most"] - min(1, 2 * poisson.sf(math.floor(more + 1e-9) - 1, mean))), 1e-12)


def check_events(directory, labels, logits, known, loss):
    files = glob.glob(os.path.join(directory, "events.out.tfevents.*"))
    claim("one event file", abs(len(files) - 1), 0)
    events = EventAccumulator(directory, size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    read = np.array([(e.step, e.value) for e in events.Scalars("loss/train")])
    claim("TensorBoard reads every step's loss", np.abs(read[:, 1] - loss).max() if len(read) == STEPS else np.inf, 1e-7)
    worst = 0.0
    for f, name in enumerate(FINDINGS):
        tag = "test/" + name
        plugin = events.SummaryMetadata(tag).plugin_data
        assert plugin.plugin_name == pr_metadata.PLUGIN_NAME
        thresholds = pr_metadata.parse_plugin_metadata(plugin.content).num_thresholds
        table = tensor_util.make_ndarray(events.Tensors(tag)[0].tensor_proto)
        assert table.shape == (6, thresholds)
        y, p = labels[known[:, f], f], 1 / (1 + np.exp(-logits[known[:, f], f].astype(np.float64)))
        at = np.floor(p * (thresholds - 1))
        for t in range(thresholds):
            tp, fp = y[at >= t].sum(), (1 - y)[at >= t].sum()
            theirs = [tp, fp, (1 - y).sum() - fp, y.sum() - tp, tp / max(tp + fp, 1), tp / y.sum()]
            worst = max(worst, np.abs(table[:, t] - theirs).max())
    claim("TensorBoard's plugin reads every precision-recall curve", worst, 1e-6)


def check_golden_events(test):
    """What tests/unit/test_trainer_interchange.c writes; --write keeps it for make check."""
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "golden.tfevents")
    os.mkdir("golden")
    written = os.path.abspath("golden/events.out.tfevents.1")
    subprocess.run([test], check=True, env={**os.environ, "TEST_GOLDEN_EVENTS": written})
    if "--write" in sys.argv:
        shutil.copy(written, golden)
    shutil.copy(golden, written)
    events = EventAccumulator("golden", size_guidance={"scalars": 0, "tensors": 0, "images": 0})
    events.Reload()
    scalars = [(e.wall_time, e.step, e.value) for e in events.Scalars("loss/train")]
    claim("golden events: scalars, steps and times", np.abs(np.subtract(scalars, [(1700000000.5, 100 * i, 0.75 / (i + 1)) for i in range(3)])).max(), 1e-7)
    image = events.Images("map/Effusion")[0]
    claim("golden events: the image", abs(np.asarray(Image.open(io.BytesIO(image.encoded_image_string)))[0, 0] - 128.0) + image.step - 200, 0)
    table = tensor_util.make_ndarray(events.Tensors("precision_recall/Effusion")[0].tensor_proto)
    at_zero = table[:, round(0.5 * (table.shape[1] - 1))]  # logit 0: 0 and four above it, of which three are positive
    claim("golden events: the precision-recall curve", np.abs(at_zero - [3, 2, 2, 1, 3 / 5, 3 / 4]).max(), 1e-6)


def main():
    chexnet = os.path.abspath(sys.argv[1])
    rng = np.random.default_rng(SEED)
    print(f"# seed {SEED}")
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        labels, logits, known = write_predictions("p.csv", rng)
        chosen = write_predictions("chosen.csv", rng, IMAGES)
        maps = write_pointing("maps.json", rng)
        loss = write_log("log.jsonl", rng)
        subprocess.run([chexnet, "report", "--predictions=p.csv", "--thresholds=chosen.csv", "--pointing=maps.json", "--log=log.jsonl", "--json=r.json", "--tensorboard=events",
                        f"--resamples={RESAMPLES}"], check=True, stdout=subprocess.DEVNULL)
        with open("r.json") as f:
            report = json.load(f)
        check_measures(report, labels, logits, known)
        check_intervals(report, labels, logits, known)
        check_calibration_intervals(report, labels, logits, known, rng)
        check_operating(report, labels, logits, known, chosen, rng)
        check_pointing(report, maps, rng)
        check_events("events", labels, logits, known, loss)
        check_golden_events(os.path.join(os.path.dirname(chexnet), "tests", "test_trainer_interchange"))
        os.chdir("/")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
