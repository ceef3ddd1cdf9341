#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the layer-wise ideal makes on this card: the fewest bytes that each layer has to move and its products, at the card's own rates.

    tests/gpu/ideal.py                              measures the matrix rate with PyTorch; GPU_COPY_RATE (GB/s) is the copy's, from `gpu-kernels copy`
    tests/gpu/ideal.py --copy 4300 --tflops 790     no GPU: these rates (an H200's: DenseNet-121 27,300 images/s)

16-bit maps, 224×224, per image: every map of a layer is read once and written once, forward and backward (there x, dy and the sum of gradients serve the data's and the
weight's gradient at once). by_bytes: those bytes at the copy's rate; images_per_s: layer by layer the longer of its bytes and its products. Prints a JSON object.
"""
import argparse
import json
import os
import statistics
import sys


def densenet121(growth=32, bottleneck=128, blocks=((6, 64, 56), (12, 128, 28), (24, 256, 14), (16, 512, 7))):
    """[(bytes, multiplications)] of each layer's forward and backward."""
    kernels = stem(2)
    for n, (layers, first, side) in enumerate(blocks):
        pixels, channels = side * side, first + growth * layers
        for c in range(first, channels, growth):
            one, three = pixels * c * bottleneck, pixels * 9 * bottleneck * growth
            kernels += [(2 * pixels * (c + bottleneck), one), (2 * pixels * (bottleneck + growth), three),
                        (2 * pixels * 2 * (bottleneck + growth), 2 * three), (2 * pixels * (2 * bottleneck + 3 * c), 2 * one)]
        if n + 1 < len(blocks):  # its mean over 2 × 2 pixels comes before the product, which is then a quarter
            product = pixels * channels * channels // 8
            kernels += [(2 * pixels * (channels + channels // 8), product), (2 * pixels * (2 * channels + channels // 4), 2 * product)]
        else:
            kernels += [(2 * pixels * channels, channels * 14), (4 * pixels * channels, 2 * channels * 14)]
    return kernels


def resnet50():
    kernels, channels, side = stem(1), 64, 56
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for n in range(blocks):
            stride, wide = 2 if n == 0 and stage else 1, 4 * width
            before, after = side * side, (side // stride) ** 2
            product = before * channels * width + 9 * after * width * width + after * width * wide + (after * channels * wide if n == 0 else 0)
            forward = before * (3 * channels + 2 * width) + after * (2 * width + wide) + (after * (channels + wide) if n == 0 else 0)
            backward = after * (2 * wide + 4 * width) + before * (4 * width + 4 * channels) + (2 * after * (channels + wide) if n == 0 else 0)
            kernels += [(2 * forward, product), (2 * backward, 2 * product)]
            channels, side = wide, side // stride
    return kernels + [(4 * 49 * channels, channels * 1000), (6 * 49 * channels, 2 * channels * 1000)]


def stem(corrections):
    """7×7 and max-pool; in a dense network the gradient that comes back is corrected with the maps, which are read for it."""
    pixels, product = 112 * 112 * 64, 112 * 112 * 64 * 147
    return [(2 * (2 * pixels + pixels // 4) + 3 * 224 * 224, product), (2 * (2 * pixels + corrections * pixels // 2) + 3 * 224 * 224, product)]


def ideal(kernels, copy, tflops):
    rate, products = copy * 1e9, tflops * 1e12
    return {"mb": sum(b for b, _ in kernels) / 1e6, "by_bytes": rate / sum(b for b, _ in kernels), "images_per_s": 1 / sum(max(b / rate, 2 * m / products) for b, m in kernels)}


def matrix_rate(device, side):
    """TFLOP/s of a bf16 product of random matrices."""
    import torch
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    for _ in range(3):
        torch.matmul(a, b, out=c)
    ms = []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.matmul(a, b, out=c)
        end.record()
        torch.cuda.synchronize()
        ms.append(begin.elapsed_time(end))
    return 2 * side ** 3 / statistics.median(ms) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--copy", type=float, default=float(os.environ.get("GPU_COPY_RATE") or 0), help="GB/s, read and written")
    parser.add_argument("--tflops", type=float, help="default: measured")
    args = parser.parse_args()
    if not args.copy > 0:
        print("ideal.py: no copy rate: --copy GB/S, or GPU_COPY_RATE from gpu-kernels copy", file=sys.stderr)
        return 64
    tflops = args.tflops or matrix_rate("cuda", 8192)
    row = {"copy_gb_per_s": args.copy, "tflops": tflops, "densenet121": ideal(densenet121(), args.copy, tflops), "resnet50": ideal(resnet50(), args.copy, tflops)}
    row["note"] = "at %.0f GB/s and %.0f TFLOP/s the layer-wise ideal is densenet121 %.0f images/s (%.0f by bytes alone), resnet50 %.0f" % (
        args.copy, tflops, row["densenet121"]["images_per_s"], row["densenet121"]["by_bytes"], row["resnet50"]["images_per_s"])
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
