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
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.pr_curve import metadata as pr_metadata
from tensorboard.util import tensor_util

FINDINGS = ("Atelectasis Cardiomegaly Effusion Infiltration Mass Nodule Pneumonia Pneumothorax Consolidation Edema "
            "Emphysema Fibrosis Pleural_Thickening Hernia").split()
IMAGES, STEPS, RESAMPLES, SEED = 3000, 40, 100, 20240611
failed = 0


def claim(text, error, limit):
    global failed
    failed += not error <= limit
    print(f"{'ok' if error <= limit else 'NOT OK'} - {text}: largest difference {error:.2e}, limit {limit:.0e}")


def write_predictions(path, rng):
    """Every third finding in steps of 1/4, so that there are ties; every tenth label unknown."""
    labels = (rng.random((IMAGES, 14)) < np.linspace(0.02, 0.4, 14)).astype(int)
    logits = (rng.normal(size=(IMAGES, 14)) + labels - 1.5).astype(np.float32)
    logits[:, ::3] = np.round(logits[:, ::3] * 4) / 4
    known = rng.random((IMAGES, 14)) > 0.1
    with open(path, "w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["id", "patient", "split"] + [n + "_label" for n in FINDINGS] + [n + "_logit" for n in FINDINGS])
        for i in range(IMAGES):
            out.writerow([f"{i:08d}.png", i // 2, "test"] + [l if k else "" for l, k in zip(labels[i], known[i])]
                         + [repr(float(x)) for x in logits[i]])
    return labels, logits, known


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


def check_measures(report, labels, logits, known):
    worst = dict.fromkeys(["auroc", "average_precision", "brier", "ece", "calibration_slope", "calibration_intercept"], 0.0)
    for f, name in enumerate(FINDINGS):
        y, z = labels[known[:, f], f], logits[known[:, f], f].astype(np.float64)
        p = 1 / (1 + np.exp(-z))
        fit = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10000, solver="newton-cholesky").fit(z[:, None], y)
        theirs = {"auroc": roc_auc_score(y, z), "average_precision": average_precision_score(y, z), "brier": brier_score_loss(y, p),
                  "ece": expected_calibration_error(p, y), "calibration_slope": fit.coef_[0, 0], "calibration_intercept": fit.intercept_[0]}
        for key, value in theirs.items():
            ours = report["findings"][name][key]
            ours = ours["value"] if isinstance(ours, dict) else ours
            worst[key] = max(worst[key], abs(ours - value))
    for key, error in worst.items():
        claim(f"{key} equals {'its definition in NumPy' if key == 'ece' else 'scikit-learn'} over {len(FINDINGS)} findings", error, 1e-6 if "calibration" in key else 1e-12)


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


def resamples_of(seed):
    """How often each patient is drawn in each resample, as trainer/learn/resample.h defines it."""
    patients = IMAGES // 2
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
        loss = write_log("log.jsonl", rng)
        subprocess.run([chexnet, "report", "--predictions=p.csv", "--log=log.jsonl", "--json=r.json", "--tensorboard=events",
                        f"--resamples={RESAMPLES}"], check=True, stdout=subprocess.DEVNULL)
        with open("r.json") as f:
            report = json.load(f)
        check_measures(report, labels, logits, known)
        check_intervals(report, labels, logits, known)
        check_events("events", labels, logits, known, loss)
        check_golden_events(os.path.join(os.path.dirname(chexnet), "tests", "test_trainer_interchange"))
        os.chdir("/")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
