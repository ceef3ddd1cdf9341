#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's training step, as fast as PyTorch offers it: what `chexnet bench` is compared with.

    tests/gpu/rival.py --model densenet121 --batch 256 --mode eager
    tests/gpu/rival.py --model resnet50 --batch 64 --mode max-autotune

A step is forward, loss, backward and fused Adam on the resident batch of random pixels that `chexnet bench` has, in bf16 autocast
and channels_last with cudnn.benchmark. Modes:

    eager               as it is usually run: each kernel is launched by Python
    graph               the same step, captured once with the optimiser's kernels and replayed as one CUDA graph, as chexnet's step is
    default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs
                        torch.compile's; those that capture graphs have one for forward and one for backward, and the optimiser outside
    graph-MODE          torch.compile's MODE, captured whole with the optimiser

cudnn.benchmark times ten plans for each convolution in eager mode, which is PyTorch's default, and all that there are in the others; with --plans 10 those
choose among the same, and the difference is the mode's alone. On the CPU, where there is nothing to capture, graph is eager and graph-MODE is MODE.

Prints a JSON object; before it, after the first step, the warm-up and about every 50 steps, what is known until then, with "partial": true.
"""
import argparse
import json
import statistics
import sys
import time

import numpy
import torch
from torch import nn

TELL_EVERY = 50
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class DenseLayer(nn.Module):
    def __init__(self, channels, growth):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(channels), nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, features):
        x = self.conv1(self.relu(self.norm1(torch.cat(features, 1))))
        return self.conv2(self.relu(self.norm2(x)))


class DenseBlock(nn.Module):
    def __init__(self, channels, growth, layers):
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(channels + i * growth, growth) for i in range(layers))

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


def own_densenet121(classes, growth=32, blocks=(6, 12, 24, 16)):
    """torchvision's DenseNet without torchvision: the same operations in the same order."""
    channels = 2 * growth
    net = [nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    for i, layers in enumerate(blocks):
        net.append(DenseBlock(channels, growth, layers))
        channels += layers * growth
        if i + 1 < len(blocks):
            net += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2, 2)]
            channels //= 2
    net += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*net)


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def own_resnet50(classes, width=64, blocks=(3, 4, 6, 3)):
    """torchvision's ResNet-50 (v1.5: the stride is in the 3x3) without torchvision."""
    net = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = width
    for stage, layers in enumerate(blocks):
        for i in range(layers):
            net.append(Bottleneck(channels, width << stage, 2 if i == 0 and stage > 0 else 1))
            channels = 4 * width << stage
    return nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def build(model, classes, own, blocks):
    """The network and where its definition comes from."""
    if blocks:
        return own_densenet121(classes, blocks=blocks), "rival.py, blocks %s" % (blocks,)
    if not own:
        try:
            import torchvision
            return getattr(torchvision.models, model)(weights=None, num_classes=classes), "torchvision " + torchvision.__version__
        except ImportError:
            pass
    return {"densenet121": own_densenet121, "resnet50": own_resnet50}[model](classes), "rival.py"


def random_words(count, seed):
    """Philox4x32-10 under (seed, rank 0): the words of which `chexnet bench` makes its pixels and labels (data/random.h)."""
    low, word = numpy.uint64(0xffffffff), numpy.uint64(32)
    block = numpy.arange((count + 3) // 4, dtype=numpy.uint64)
    c = [block & low, block >> word, numpy.zeros_like(block), numpy.zeros_like(block)]
    for r in range(10):
        keys = [numpy.uint64((seed + r * 0x9E3779B9) & 0xffffffff), numpy.uint64(((seed >> 32) + r * 0xBB67AE85) & 0xffffffff)]
        a, b = numpy.uint64(0xD2511F53) * c[0], numpy.uint64(0xCD9E8D57) * c[2]
        c = [(b >> word) ^ c[1] ^ keys[0], b & low, (a >> word) ^ c[3] ^ keys[1], a & low]
    return numpy.stack(c, 1).reshape(-1)[:count].astype(numpy.int64)


def make_batch(args, dtype):
    """The batch of `chexnet bench`: normalised images in the layout and type that suit PyTorch best, and labels."""
    pixels = args.batch * args.image_size ** 2
    words = random_words(pixels + 2 * args.batch, args.seed)
    gray = torch.from_numpy((words[:pixels] & 255).astype(numpy.uint8)).view(args.batch, 1, args.image_size, args.image_size)
    gray = gray.to(args.device).float() / 255
    mean, std = (torch.tensor(v, device=args.device).view(1, 3, 1, 1) for v in (MEAN, STD))
    images = ((gray - mean) / std).to(dtype).contiguous(memory_format=torch.channels_last)
    if args.model == "resnet50":
        return images, torch.from_numpy(words[pixels:pixels + args.batch] % args.classes).to(args.device), nn.CrossEntropyLoss()
    found = words[pixels::2] & words[pixels + 1::2]
    return images, torch.from_numpy(found[:, None] >> numpy.arange(args.classes) & 1).float().to(args.device), nn.BCEWithLogitsLoss()


def timed(args, step, steps, tell):
    """Milliseconds of each step. About every 50 of them, tell(those that have ended) without waiting for any."""
    if args.device == "cpu":
        now, told = [time.perf_counter()], 0
        took = lambda until: [1000 * (b - a) for a, b in zip(now[:until], now[1:until + 1])]
    else:
        events, told = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)], 0
        events[0].record()
        took = lambda until: [a.elapsed_time(b) for a, b in zip(events[:until], events[1:until + 1])]
    for i in range(1, steps + 1):
        step()
        if args.device == "cpu":
            now.append(time.perf_counter())
        else:
            events[i].record()
        if i < steps and i >= told + TELL_EVERY and (args.device == "cpu" or events[told + TELL_EVERY].query()):
            told += TELL_EVERY
            tell(took(told))
    if args.device != "cpu":
        torch.cuda.synchronize()
    return took(steps)


def captured(step, net, warm=5):
    """`step` as one CUDA graph, after `warm` steps on a stream of their own, as capturing asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm):
            step()
    torch.cuda.current_stream().wait_stream(side)
    for parameter in net.parameters():
        parameter.grad = None
    graph = torch.cuda.CUDAGraph()
    torch.cuda.reset_peak_memory_stats()  # replays allocate nothing: what a step takes is what its capture takes
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss

    return replay


def make_step(args, net, loss_of, images, labels, dtype):
    """A training step, which returns its loss; not captured yet."""
    whole = args.mode == "graph" or args.mode.startswith("graph-")
    compiled = "" if args.mode in ("eager", "graph") else args.mode[len("graph-"):] if whole else args.mode
    adam = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True, capturable=whole and args.device == "cuda")
    scaler = torch.amp.GradScaler(args.device, enabled=args.precision == "fp16")

    def forward(x, y):
        with torch.autocast(args.device, dtype=dtype, enabled=dtype is not None):
            return loss_of(net(x).float(), y)

    if compiled:
        forward = torch.compile(forward, mode=compiled)

    def step():
        if compiled and not whole:
            torch.compiler.cudagraph_mark_step_begin()
        adam.zero_grad(set_to_none=True)  # in a graph: its gradients are written, not added to
        loss = forward(images, labels)
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
        return loss.detach() if whole else loss

    return step, whole and args.device == "cuda"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=("densenet121", "resnet50"), default="densenet121")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--mode", default="eager", help="eager, graph, default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs, graph-MODE")
    parser.add_argument("--plans", type=int, help="cuDNN plans that are timed for each convolution; 0: all; default: 10 in eager mode, which is PyTorch's, else 0")
    parser.add_argument("--precision", choices=("bf16", "fp16", "tf32", "fp32"), default="bf16")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=0, help="default: 14, ResNet-50 1000")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--own-definition", action="store_true", help="do not use torchvision")
    parser.add_argument("--blocks", type=lambda text: tuple(map(int, text.split(","))), help="layers a block of a smaller DenseNet, for rehearsals")
    args = parser.parse_args()
    args.classes = args.classes or (1000 if args.model == "resnet50" else 14)

    start = time.perf_counter()
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = args.plans = (10 if args.mode == "eager" else 0) if args.plans is None else args.plans
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision != "fp32"
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(args.precision)
    images, labels, loss_of = make_batch(args, dtype or torch.float32)
    net, source = build(args.model, args.classes, args.own_definition, args.blocks)
    net = net.to(args.device, memory_format=torch.channels_last).train()
    step, capture = make_step(args, net, loss_of, images, labels, dtype)
    row = {"model": args.model, "definition": source, "batch": args.batch, "mode": args.mode, "precision": args.precision, "plans": args.plans,
           "image_size": args.image_size, "warmup": args.warmup, "torch": torch.__version__}

    def tell(times, **more):
        """One line: `times` are those of the steps that it is about, in milliseconds."""
        times = sorted(times)
        if times:
            median = statistics.median(times)
            row.update(images_per_s=1000 * args.batch / median, steps=len(times),
                       step_ms={"median": median, "p5": times[len(times) // 20], "p95": times[-1 - len(times) // 20], "mean": statistics.fmean(times)})
        print(json.dumps({**row, **more}), flush=True)

    row["first_loss"] = step().item()
    row["first_step_s"] = time.perf_counter() - start
    tell([], partial=True, of="first step")
    if capture:
        step = captured(step, net)
        row["captured_s"] = time.perf_counter() - start
    tell(timed(args, step, args.warmup, lambda times: None), partial=True, of="warm-up")
    if args.device == "cuda":
        row.update(device=torch.cuda.get_device_name(), cudnn=torch.backends.cudnn.version())
        if not capture:  # which has its peak
            torch.cuda.reset_peak_memory_stats()
    else:
        row.update(device="cpu", threads=torch.get_num_threads())
    times = timed(args, step, args.steps, lambda times: tell(times, partial=True))
    row["last_loss"] = step().item()
    if args.device == "cuda":
        row.update(peak_memory_mb=torch.cuda.max_memory_allocated() / 1e6, reserved_memory_mb=torch.cuda.max_memory_reserved() / 1e6)
    tell(times)
    return 0 if numpy.isfinite(row["last_loss"]) else 1


if __name__ == "__main__":
    sys.exit(main())
