#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradient errors of the CPU engine beside PyTorch's own, both against PyTorch in fp64 on the same weights and pixels.

    cpu_errors.py CPU_GRADIENTS DIR

DenseNet-121 at 64 x 64, three batches of 32. Goals: fp32, whole net: at most 1.5 times PyTorch fp32's error; bf16, per tensor:
geometric mean of the ratios at most 1.2, their 95th percentile at most 1.5. Exits 1 where one is missed."""
import subprocess
import sys

import numpy
import torch
import torchvision

BATCH, SIZE, CLASSES = 32, 64, 14


def read(program, precision, seed, directory):
    subprocess.run([program, precision, str(BATCH), str(seed), directory], check=True)
    with open(f"{directory}/names") as f:
        shapes = [(line.split()[0], [int(d) for d in line.split()[1:]]) for line in f]

    def tensors(name):
        flat, at, out = torch.from_numpy(numpy.fromfile(f"{directory}/{name}", numpy.float32)), 0, {}
        for key, shape in shapes:
            count = int(numpy.prod(shape))
            out[key] = flat[at : at + count].reshape(shape)
            at += count
        return out

    pixels = numpy.fromfile(f"{directory}/pixels", numpy.uint8).reshape(BATCH, 1, SIZE, SIZE)
    bits = numpy.fromfile(f"{directory}/labels", numpy.uint32)
    labels = torch.tensor((bits[:, None] >> numpy.arange(CLASSES)) & 1, dtype=torch.float64)
    return tensors("params"), tensors("grads"), torch.tensor(pixels), labels


def gradients(params, pixels, labels, dtype, autocast):
    model = torchvision.models.densenet121(num_classes=CLASSES)
    model.load_state_dict(params, strict=False)
    model = model.to(dtype)
    mean = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float64).view(1, 3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225], dtype=torch.float64).view(1, 3, 1, 1)
    x = ((pixels.double().expand(-1, 3, -1, -1) / 255 - mean) / std).to(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = model(x)
    torch.nn.functional.binary_cross_entropy_with_logits(logits.to(dtype), labels.to(dtype)).backward()
    return {name: p.grad.double() for name, p in model.named_parameters()}


def error(tested, exact, names):
    return (sum((tested[n].double() - exact[n]).square().sum() for n in names) / sum(exact[n].square().sum() for n in names)).sqrt().item()


program, directory = sys.argv[1:3]
status, ratios = 0, []
for seed in (1, 2, 3):
    params, own_fp32, pixels, labels = read(program, "fp32", seed, directory)
    own_bf16 = read(program, "bf16", seed, directory)[1]
    exact = gradients(params, pixels, labels, torch.float64, False)
    torch_fp32 = gradients(params, pixels, labels, torch.float32, False)
    torch_bf16 = gradients(params, pixels, labels, torch.float32, True)
    names = list(exact)
    a, b = error(own_fp32, exact, names), error(torch_fp32, exact, names)
    status |= a > 1.5 * b
    ratios += [error(own_bf16, exact, [n]) / error(torch_bf16, exact, [n]) for n in names]
    print(f"batch {seed}: fp32 whole net, error against fp64: ours {a:.1e}, PyTorch {b:.1e}, ratio {a / b:.2f} (goal <= 1.5)", end="; ")
    print(f"bf16 whole net: ours {error(own_bf16, exact, names):.2f}, PyTorch {error(torch_bf16, exact, names):.2f}")
ratios = numpy.array(ratios)
mean, high = float(numpy.exp(numpy.log(ratios).mean())), float(numpy.quantile(ratios, 0.95))
print(f"bf16, {len(ratios)} tensors: geometric mean of the error ratios {mean:.2f} (goal <= 1.2), 95th percentile {high:.2f} (goal <= 1.5)")
sys.exit(status or mean > 1.2 or high > 1.5)
