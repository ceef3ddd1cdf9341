# SPDX-License-Identifier: Apache-2.0
# What tests/bench/data.sh measures beside ours: tf.data or PyTorch's DataLoader with Pillow, on the same files, to the same
# gray uint8 squares of 256 pixels in batches of 32, shuffled, on the CPUs of the affinity mask, each with the best of its settings.
#
#   python data_rivals.py tensorflow|torch SECONDS packed=FILE jpeg=DIR png=DIR
#
# prints "KIND IMAGES_PER_S" lines.
import os
import pathlib
import struct
import sys
import time

BATCH, SIDE = 32, 256
CPUS = len(os.sched_getaffinity(0))


def rate(batches, seconds):
    """Images a second of an endless iterator of batches, after a warm-up in which AUTOTUNE settles."""
    begin, images, counted = time.perf_counter(), 0, None
    for batch in batches:
        now = time.perf_counter()
        if counted is None and now - begin > seconds:
            counted, images = now, 0
        elif counted is not None:
            images += len(batch)
            if now - counted > seconds:
                return images / (now - counted)


def packed_layout(path):
    """Number of images and offset of the first one (trainer/data/packed.c)."""
    header = open(path, "rb").read(32)
    return struct.unpack("<Q", header[16:24])[0], struct.unpack("<Q", header[24:32])[0]


def tensorflow(seconds, where):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    autotune = tf.data.AUTOTUNE

    # On one core a plain map() without threads is faster than AUTOTUNE by up to a tenth; decoding takes the same time with INTEGER_FAST.
    def best(make):
        return max(rate(make(parallel), seconds) for parallel in (autotune, CPUS, None))

    def finish(d, one, parallel):
        options = tf.data.Options()
        options.deterministic = False
        options.threading.private_threadpool_size = CPUS
        d = d.map(one, parallel) if parallel else d.map(one)
        d = d.batch(BATCH, drop_remainder=True, num_parallel_calls=autotune if parallel == autotune else None)
        return iter(d.prefetch(autotune if parallel == autotune else 1).with_options(options))

    def packed(parallel):
        _, offset = packed_layout(where["packed"])
        d = tf.data.FixedLengthRecordDataset(str(where["packed"]), SIDE * SIDE, header_bytes=offset).shuffle(500).repeat()
        return finish(d, lambda r: tf.reshape(tf.io.decode_raw(r, tf.uint8), [SIDE, SIDE, 1]), parallel)

    def jpeg(parallel):
        wanted = {"image/encoded": tf.io.FixedLenFeature([], tf.string), "image/label": tf.io.FixedLenFeature([14], tf.int64)}

        def one(record):
            x = tf.io.parse_single_example(record, wanted)
            return tf.io.decode_jpeg(x["image/encoded"], channels=1, dct_method="INTEGER_ACCURATE"), x["image/label"]

        files = tf.data.Dataset.list_files(str(where["jpeg"] / "train-*"))
        d = tf.data.TFRecordDataset(files, num_parallel_reads=autotune if parallel == autotune else None)
        d = d if parallel == autotune else d.cache()  # the records, as they are: in memory, checked once
        return (images for images, _ in finish(d.shuffle(500).repeat(), one, parallel))

    def png(parallel):
        def one(path):
            image = tf.io.decode_png(tf.io.read_file(path), channels=1)
            return tf.cast(tf.image.resize(image, [SIDE, SIDE], method="area") + 0.5, tf.uint8)

        return finish(tf.data.Dataset.list_files(str(where["png"] / "images" / "*.png")).repeat(), one, parallel)

    yield "packed", best(packed)
    yield "jpeg", best(jpeg)
    yield "png", best(png)


def torch(seconds, where):
    import io

    import numpy
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset, RandomSampler
    import torch as pytorch

    pytorch.set_num_threads(CPUS)

    class Packed(Dataset):
        def __init__(self, path):
            self.n, offset = packed_layout(path)
            self.images = numpy.memmap(path, numpy.uint8, "r", offset, (self.n, SIDE, SIDE))

        def __len__(self):
            return self.n

        def __getitems__(self, indices):  # one gather for a whole batch
            return pytorch.from_numpy(self.images[numpy.asarray(indices)])

    class Files(Dataset):
        def __init__(self, files, resize):
            self.files, self.resize = files, resize

        def __len__(self):
            return len(self.files)

        def __getitem__(self, i):
            image = Image.open(io.BytesIO(self.files[i]) if isinstance(self.files[i], bytes) else self.files[i]).convert("L")
            return pytorch.from_numpy(numpy.array(image.resize((SIDE, SIDE), Image.Resampling.BOX) if self.resize else image))

    def pictures(directory):  # the JPEG files inside the records
        found = []
        for path in sorted(directory.glob("train-*")):
            data, at = path.read_bytes(), 0
            while at < len(data):
                size = struct.unpack("<Q", data[at : at + 8])[0]
                record = data[at + 12 : at + 12 + size]
                found.append(record[record.index(b"\xff\xd8\xff") : record.rindex(b"\xff\xd9") + 2])
                at += size + 16
        return found

    def endless(loader):
        while True:
            yield from loader

    def best(dataset, **options):
        found = 0
        for workers in (0, CPUS):  # whichever is faster
            loader = DataLoader(dataset, BATCH, sampler=RandomSampler(dataset), num_workers=workers, drop_last=True, persistent_workers=workers > 0, **options)
            found = max(found, rate(endless(loader), seconds))
        return found

    yield "packed", best(Packed(where["packed"]), collate_fn=lambda batch: batch)
    yield "jpeg", best(Files(pictures(where["jpeg"]), False))
    yield "png", best(Files(sorted((where["png"] / "images").glob("*.png")), True))


kind, seconds = sys.argv[1], float(sys.argv[2])
places = {name: pathlib.Path(path) for name, path in (argument.split("=", 1) for argument in sys.argv[3:])}
for name, images_per_s in {"tensorflow": tensorflow, "torch": torch}[kind](seconds, places):
    print(name, f"{images_per_s:.1f}", flush=True)
