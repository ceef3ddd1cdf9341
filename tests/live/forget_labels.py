#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""forget_labels.py FILE…: adds to each record of TFRecord files that none of its labels is known."""
import struct
import sys

TABLE = []
for i in range(256):
    for _ in range(8):
        i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
    TABLE.append(i)


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def field(number, data):
    size, length = len(data), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


UNKNOWN = field(1, field(1, b"label/known") + field(2, field(3, field(1, bytes(14)))))

for path in sys.argv[1:]:
    old, new = open(path, "rb").read(), b""
    while old:
        (size,) = struct.unpack("<Q", old[:8])
        record = old[12 : 12 + size]
        begin = next(i for i in range(1, size) if record[i] < 128) + 1  # behind the tag and the length of the features, which are all
        record = field(1, record[begin:] + UNKNOWN)
        length = struct.pack("<Q", len(record))
        new += length + masked_crc(length) + record + masked_crc(record)
        old = old[16 + size :]
    open(path, "wb").write(new)
