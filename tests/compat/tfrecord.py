#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does TensorFlow read chexnet's TFRecords, and chexnet TensorFlow's?

    python3 -m venv build/compat/venv && build/compat/venv/bin/pip install tensorflow-cpu
    build/compat/venv/bin/python tests/compat/tfrecord.py build/chexnet [--write]

Not part of make check, which needs no TensorFlow: with --write what TensorFlow made goes to tests/golden/tensorflow.tfrecord, and
tests/unit/test_trainer_tfrecord.c reads it. Prints one line a claim; ends with status 1 if one does not hold.
"""
import csv
import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import tensorflow as tf

FINDINGS = ("Atelectasis Cardiomegaly Effusion Infiltration Mass Nodule Pneumonia Pneumothorax Consolidation Edema "
            "Emphysema Fibrosis Pleural_Thickening Hernia").split()
DELL = ("Cardiomegaly Emphysema Effusion Hernia Nodule Pneumothorax Atelectasis Pleural_Thickening Mass Edema Consolidation "
        "Infiltration Fibrosis Pneumonia").split()
SIDE, IMAGES = 32, 200
KEYS = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string), "image/filename": tf.io.FixedLenFeature([], tf.string),
    "image/format": tf.io.FixedLenFeature([], tf.string), "image/label": tf.io.FixedLenFeature([14], tf.int64),
    "image/height": tf.io.FixedLenFeature([], tf.int64), "image/width": tf.io.FixedLenFeature([], tf.int64),
    "patient/id": tf.io.FixedLenFeature([], tf.int64), "label/names": tf.io.FixedLenFeature([14], tf.string),
}
failed = 0


def claim(text, holds):
    global failed
    failed += not holds
    print(f"{'ok' if holds else 'NOT OK'} - {text}")


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def read_with_tensorflow(directory):
    """{image id: features}, every record checked by TensorFlow's own reader."""
    files = sorted(glob.glob(f"{directory}/*-of-*"))
    return {x["image/filename"].numpy().decode(): x for x in tf.data.TFRecordDataset(files).map(lambda r: tf.io.parse_single_example(r, KEYS))}


def bytes_feature(*values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def write_with_tensorflow(path, rows, encoded):
    """Dell's trainer's three keys, labels in its order."""
    with tf.io.TFRecordWriter(str(path)) as out:
        for name, found in rows:
            label = [int(f in found) for f in DELL]
            out.write(tf.train.Example(features=tf.train.Features(feature={
                "image/encoded": bytes_feature(encoded[name]), "image/filename": bytes_feature(name.encode()),
                "image/label": tf.train.Feature(int64_list=tf.train.Int64List(value=label))})).SerializeToString(deterministic=True))


def main():
    chexnet, work = sys.argv[1], pathlib.Path(tempfile.mkdtemp())
    run(chexnet, "synth", "--out", f"{work}/tree", "--images", str(IMAGES), "--size", str(SIDE), "--prevalence-floor", "0.2")
    rows = {r["Image Index"]: set(r["Finding Labels"].split("|")) for r in csv.DictReader(open(work / "tree/Data_Entry_2017_v2020.csv"))}
    encoded = {name: (work / "tree/images" / name).read_bytes() for name in rows}
    pixels = {name: tf.io.decode_png(png, channels=1).numpy() for name, png in encoded.items()}

    for kind in "png", "jpeg":
        run(chexnet, "prepare", "nih", f"{work}/tree", f"{work}/{kind}", "--format", kind, "--size", str(SIDE))
        read = read_with_tensorflow(work / kind)
        manifest = json.load(open(work / kind / "manifest.json"))
        claim(f"{kind}: TensorFlow reads all {IMAGES} records, each image once", sorted(read) == sorted(rows) and "splits" in manifest)
        claim(f"{kind}: their labels, in the named order, are the table's", all(
            {n.decode() for n, label in zip(x["label/names"].numpy(), x["image/label"].numpy()) if label} == rows[name] - {"No Finding"}
            for name, x in read.items()))
        claim(f"{kind}: patient, size and format are there", all(
            x["patient/id"] == int(name[:8]) and x["image/height"] == SIDE == x["image/width"] and x["image/format"] == kind.encode()
            for name, x in read.items()))
        worst = max(np.abs(tf.io.decode_image(x["image/encoded"], channels=1).numpy().astype(int) - pixels[name]).max() for name, x in read.items())
        claim(f"{kind}: TensorFlow decodes the pixels (largest difference {worst})", worst == 0 if kind == "png" else worst <= 32)

    (work / "foreign").mkdir()
    names = sorted(rows)
    write_with_tensorflow(work / "foreign/train-00000-of-00001", [(n, rows[n]) for n in names[:150]], encoded)
    write_with_tensorflow(work / "foreign/val-00000-of-00001", [(n, rows[n]) for n in names[150:]], encoded)
    for order in (["--label-order", "dell"], ["--label-order", "infer", "--table", f"{work}/tree/Data_Entry_2017_v2020.csv"]):
        out = work / f"back-{order[1]}"
        run(chexnet, "prepare", "tfrecord", f"{work}/foreign", str(out), "--size", str(SIDE), *order)
        back = read_with_tensorflow(out)
        claim(f"chexnet reads what TensorFlow wrote, label order {order[1]}", sorted(back) == names and all(
            {n.decode() for n, label in zip(x["label/names"].numpy(), x["image/label"].numpy()) if label} == rows[name] - {"No Finding"}
            and (tf.io.decode_png(x["image/encoded"], channels=1).numpy() == pixels[name]).all() for name, x in back.items()))

    # the file that tests/unit/test_trainer_tfrecord.c holds our writer to, byte for byte
    golden = pathlib.Path(__file__).parent.parent / "golden/chexnet.tfrecord"
    x, = [tf.io.parse_single_example(r, KEYS) for r in tf.data.TFRecordDataset(str(golden))]
    claim("TensorFlow reads the golden record of our writer", x["image/encoded"] == bytes([1, 2, 3, 250, 0, 128]) and x["patient/id"] == 300
          and x["image/filename"] == b"00000300_001.png" and list(x["image/label"].numpy()) == [int(f % 3 == 0) for f in range(14)]
          and [n.decode() for n in x["label/names"].numpy()] == FINDINGS and x["image/height"] == 64 and x["image/width"] == 64)

    if "--write" in sys.argv:
        gray = tf.reshape(tf.range(64, dtype=tf.int32) * 4, [8, 8, 1])
        png = tf.io.encode_png(tf.cast(gray, tf.uint8)).numpy()
        golden = pathlib.Path(__file__).parent.parent / "golden/tensorflow.tfrecord"
        golden.parent.mkdir(exist_ok=True)
        write_with_tensorflow(golden, [("00000001_000.png", {"Pneumonia", "Hernia"}), ("00000002_013.png", set())],
                              {"00000001_000.png": png, "00000002_013.png": png})
        print(f"{golden}: TensorFlow {tf.__version__}")
    sys.exit(failed > 0)


main()
