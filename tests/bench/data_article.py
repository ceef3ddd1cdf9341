# SPDX-License-Identifier: Apache-2.0
# Dell's old and new approach in tf.data itself, step by step as `chexnet data explain` prints them: one rank of
# tests/bench/data_pipelines.sh, with one decoding thread as ours have.
#
#   python data_article.py DIR SECONDS RANK RANKS MEETING
#
# prints "old IMAGES_PER_S" and "new IMAGES_PER_S"; ranks begin to count together, when all have a batch, by files in MEETING.
import os
import pathlib
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import tensorflow as tf

BATCH, BUFFER, INTERLEAVE, AHEAD = 64, 500, 10, 4
KEYS = {"image/encoded": tf.io.FixedLenFeature([], tf.string), "image/label": tf.io.FixedLenFeature([14], tf.int64)}


def decode(record):
    x = tf.io.parse_single_example(record, KEYS)
    return tf.io.decode_jpeg(x["image/encoded"], channels=1, dct_method="INTEGER_ACCURATE"), x["image/label"]


def old(files, rank, ranks):
    d = tf.data.TFRecordDataset(files).map(decode, num_parallel_calls=1).shard(ranks, rank)
    return d.shuffle(BUFFER).repeat().batch(BATCH, drop_remainder=True).prefetch(AHEAD)


def new(files, rank, ranks):
    names = tf.data.Dataset.from_tensor_slices(files).shard(ranks, rank).shuffle(len(files))
    d = names.interleave(tf.data.TFRecordDataset, cycle_length=INTERLEAVE).prefetch(BATCH)
    return d.shuffle(BUFFER).repeat().map(decode, num_parallel_calls=1).batch(BATCH, drop_remainder=True).prefetch(AHEAD)


def rate(dataset, seconds, meet):
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    batches = iter(dataset.with_options(options))
    next(batches)
    meet()
    begin, images = time.perf_counter(), 0
    while (now := time.perf_counter()) - begin < seconds:
        images += len(next(batches)[0])
    return images / (now - begin)


directory, seconds, rank, ranks, meeting = pathlib.Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), pathlib.Path(sys.argv[5])
files = sorted(str(path) for path in directory.glob("train-*"))
for approach in (old, new):
    def meet():
        (meeting / f"{approach.__name__}-{rank}").touch()
        while len(list(meeting.glob(f"{approach.__name__}-*"))) < ranks:
            time.sleep(0.001)

    print(approach.__name__, f"{rate(approach(files, rank, ranks), seconds, meet):.1f}", flush=True)
