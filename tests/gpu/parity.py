#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the CUDA engine compute what PyTorch computes, as well as PyTorch does? The judge is PyTorch in float64, on the same weights and batches.

    tests/gpu/parity.py build/gpu/gpu-parity --model densenet121

Compared are, each with its limit:

    fp32    logits: at most 1e-4 from float64's, of the largest logit where that is more than 1
            gradients of the whole network, three batches: their error against float64 is at most 1.5 times that of PyTorch in fp32 without TF32
            losses of trainings with Adam: no further from float64's than 1.5 times PyTorch's in fp32, of three of its ways to add (cuDNN's, deterministic, without cuDNN); geometric
            means over four trainings, since within a few steps any two ways to add part by chance, and one training says little
    bf16    gradients by tensor, three batches: the ratios of their errors to those of PyTorch's autocast have a geometric mean of at most 1.2, 95 % of them are below 1.5, and none is above 5
            losses: nothing is asked, both distances are told

Tensors whose gradient is 0 but for rounding count for nothing: those less than a millionth of the largest one's norm. Prints a JSON object; ends 1 where a limit is passed.
"""
import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import rival

GRADIENTS, TRAININGS = 3, 4
NETWORKS = {"densenet121": lambda: rival.own_densenet121(14), "resnet50": lambda: rival.own_resnet50(14), 
            "small": lambda: rival.own_densenet121(14, blocks=(2, 1)), "small-resnet": lambda: rival.own_resnet50(14, 16, (1, 1))}


def read(path, dtype, *shape):
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=dtype).view(*shape)


class Subject:
    """The network, with the weights and batches that the program wrote."""

    def __init__(self, args, folder):
        self.args = args
        self.shapes = [tuple(map(int, line.split()[1:])) for line in (folder / "parameters").read_text().splitlines()]
        self.weights = read(folder / "weights.f32", torch.float32, -1).split([math.prod(shape) for shape in self.shapes])
        pixels = read(folder / "pixels.u8", torch.uint8, args.steps, args.images, 1, args.size, args.size)
        self.labels = (read(folder / "labels.i32", torch.int32, args.steps, args.images, 1) >> torch.arange(14) & 1).to(args.device)
        self.pixels = pixels.to(args.device)

    def network(self, dtype):
        net = NETWORKS[self.args.model]()
        ours = list(net.parameters())
        if [tuple(p.shape) for p in ours] != self.shapes:
            raise SystemExit("the program's parameters are not those of rival.py's %s" % self.args.model)
        with torch.no_grad():
            for parameter, values in zip(ours, self.weights):
                parameter.copy_(values.view(parameter.shape))
        return net.to(self.args.device, dtype, memory_format=torch.channels_last).train()

    def images(self, batch, dtype):
        mean, std = (torch.tensor(v, dtype=dtype, device=self.args.device).view(1, 3, 1, 1) for v in (rival.MEAN, rival.STD))
        return ((self.pixels[batch].to(dtype) / 255 - mean) / std).contiguous(memory_format=torch.channels_last)

    def loss(self, net, batch, dtype, autocast=False):
        with torch.autocast(self.args.device, dtype=torch.bfloat16, enabled=autocast):
            logits = net(self.images(batch, dtype))
        logits = logits.float() if autocast else logits
        return nn.functional.binary_cross_entropy_with_logits(logits, self.labels[batch].to(logits.dtype))

    def gradient(self, batch, dtype, autocast=False):
        """A list of tensors in float64."""
        net = self.network(dtype)
        self.loss(net, batch, dtype, autocast).backward()
        return [p.grad.detach().double().flatten() for p in net.parameters()]

    def losses(self, training, dtype, autocast=False):
        """Of the training that begins with that batch."""
        net = self.network(dtype)
        decayed, others = ([p for p in net.parameters() if (p.ndim > 1) == many] for many in (True, False))
        adam = torch.optim.Adam([{"params": decayed, "weight_decay": 1e-4}, {"params": others}], lr=1e-4)
        found = []
        for batch in range(self.args.steps):
            adam.zero_grad()
            loss = self.loss(net, (batch + training) % self.args.steps, dtype, autocast)
            loss.backward()
            adam.step()
            found.append(loss.item())
        return found

    def logits(self, dtype):
        net = self.network(dtype).eval()
        with torch.no_grad():
            return net(self.images(0, dtype)).double()

    def ours(self, folder, precision):
        """Logits, a list of tensors for each batch, losses of each training."""
        gradients = read(folder / (precision + ".gradients.f32"), torch.float32, GRADIENTS, -1).to(self.args.device).double()
        return (read(folder / (precision + ".logits.f32"), torch.float32, self.args.images, 14).to(self.args.device).double(),
                [g.split([math.prod(shape) for shape in self.shapes]) for g in gradients], read(folder / (precision + ".losses.f32"), torch.float32, TRAININGS, -1).tolist())


def whole_error(found, exact):
    return math.sqrt(sum((f - e).square().sum().item() for f, e in zip(found, exact)) / sum(e.square().sum().item() for e in exact))


def furthest(losses, exact):
    return max(abs(a - b) if math.isfinite(a) else math.inf for a, b in zip(losses, exact))


def geometric(values):
    return math.exp(sum(math.log(v) if v > 0 else -50 for v in values) / len(values)) if values else math.inf


def judge(args, folder):
    s = Subject(args, folder)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    row, passed = {"model": args.model, "image_size": args.size, "images": args.images, "steps": args.steps, "torch": torch.__version__}, []

    def limit(name, value, most):
        row[name] = value
        if not value <= most:  # nor NAN
            passed.append("%s %.3g, at most %.3g" % (name, value, most))

    exact = [s.gradient(batch, torch.float64) for batch in range(GRADIENTS)]
    losses, exact_logits = [s.losses(training, torch.float64) for training in range(TRAININGS)], s.logits(torch.float64)
    logits, ours, own_losses = s.ours(folder, "fp32")
    limit("logits_error", ((logits - exact_logits).abs().max() / max(1.0, exact_logits.abs().max().item())).item(), 1e-4)
    errors = [(whole_error(o, e), whole_error(s.gradient(b, torch.float32), e)) for b, (o, e) in enumerate(zip(ours, exact))]
    row["gradient_errors"] = errors
    limit("gradient_ratio", geometric([a / b for a, b in errors]), 1.5)
    theirs = [0] * TRAININGS
    for deterministic, cudnn in ((False, True), (True, True), (False, False)):
        with torch.backends.cudnn.flags(enabled=cudnn, benchmark=False, deterministic=deterministic, allow_tf32=False), torch.backends.mkldnn.flags(enabled=cudnn):
            theirs = [max(most, furthest(s.losses(t, torch.float32), losses[t])) for t, most in enumerate(theirs)]
    row["losses_errors"] = [(furthest(own, exact), their) for own, exact, their in zip(own_losses, losses, theirs)]
    row["losses_pytorch"] = geometric([max(their, 1e-7) for their in theirs])
    limit("losses_error", geometric([max(own, 1e-9) for own, _ in row["losses_errors"]]), 1.5 * row["losses_pytorch"])

    _, ours, own_losses = s.ours(folder, "bf16")
    ratios = []
    for batch, (found, e) in enumerate(zip(ours, exact)):
        theirs = s.gradient(batch, torch.float32, True)
        norms = [t.norm().item() for t in e]
        ratios += [((f - t).norm() / (p - t).norm()).item() for f, p, t, norm in zip(found, theirs, e, norms) if norm > 1e-6 * max(norms)]
    ratios = sorted(r if math.isfinite(r) else math.inf for r in ratios)
    row["bf16_tensors"] = len(ratios)
    limit("bf16_ratio", geometric(ratios), 1.2)
    limit("bf16_ratio_95", ratios[min(len(ratios) - 1, len(ratios) * 95 // 100)], 1.5)
    limit("bf16_ratio_worst", ratios[-1], 5)
    row["bf16_losses_error"] = geometric([furthest(own, exact) for own, exact in zip(own_losses, losses)])
    row["bf16_losses_pytorch"] = geometric([furthest(s.losses(t, torch.float32, True), exact) for t, exact in enumerate(losses)])
    row["note"] = "; ".join(passed) or ("logits within %.1e, gradients err %.2f times as PyTorch's, losses %.1e (PyTorch's %.1e); in bf16 tensors err %.2f times as PyTorch's, 95 %% of them below %.2f, all below %.1f" % (
        row["logits_error"], row["gradient_ratio"], row["losses_error"], row["losses_pytorch"], row["bf16_ratio"], row["bf16_ratio_95"], row["bf16_ratio_worst"]))
    print(json.dumps(row))
    return 1 if passed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="gpu-parity")
    parser.add_argument("--model", choices=NETWORKS, default="densenet121")
    parser.add_argument("--size", type=int, default=224, help="pixels a side")
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run([args.program, args.model, *map(str, (args.size, args.images, args.steps)), folder], stdout=subprocess.PIPE, text=True)
        if ran.returncode:
            print(ran.stdout or '{"note": "%s: exit status %d"}' % (args.program, ran.returncode))
            return 1
        return judge(args, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
