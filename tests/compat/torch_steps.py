#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does training follow PyTorch's? Same weights, same batches, 20 steps of Adam.

    python3 -m venv build/compat/venv && build/compat/venv/bin/pip install torch torchvision safetensors
    build/compat/venv/bin/python tests/compat/torch_steps.py build [--write]

Trains torchvision's DenseNets and ResNets on the inputs of build/tests/test_trainer_torch, in float64, and in float32 on 1 and 2 threads and without oneDNN, and
runs that test against what came out. --write keeps it in tests/golden, for `make check`, which needs no PyTorch.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import safetensors
import torch
import torchvision

import narrow

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CLASSES, STEPS, GRADIENTS = 14, 20, 5


def make_network(notes, weights, dtype):
    blocks, channels = tuple(map(int, notes["blocks"].split(","))), int(notes["init_channels"])
    if notes["model"].startswith("resnet"):
        network = narrow.resnet(channels, blocks, CLASSES)
    else:
        network = torchvision.models.DenseNet(growth_rate=int(notes["growth"]), block_config=blocks, num_init_features=channels, num_classes=CLASSES)
    missing, unexpected = network.load_state_dict(weights, strict=False)
    assert not unexpected and all("running" in name or "num_batches" in name for name in missing), (missing, unexpected)
    return network.to(dtype)


def make_optimizer(network, notes):
    """Weight decay on convolutions and the classifier's weights only."""
    decayed = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim == 1]
    return torch.optim.Adam([{"params": decayed, "weight_decay": float(notes["weight_decay"])}, {"params": others}], lr=float(notes["rate"]))


def prepare(notes, tensors, dtype, threads):
    """The network with its first weights, and a function that gives the loss on a step's batch."""
    torch.set_num_threads(threads)
    network = make_network(notes, {name: t for name, t in tensors.items() if name not in ("pixels", "labels")}, dtype)
    mean, std = (torch.tensor(v, dtype=dtype).view(1, 3, 1, 1) for v in (MEAN, STD))

    def logits(step):
        return network((tensors["pixels"][step].to(dtype).unsqueeze(1) / 255 - mean) / std)

    def loss(step):
        bits = tensors["labels"][step].unsqueeze(1) >> torch.arange(CLASSES) & 1
        return torch.nn.functional.binary_cross_entropy_with_logits(logits(step), bits.to(dtype))

    return network, logits, loss


def train(*how):
    network, logits, loss_of = prepare(*how)
    optimizer = make_optimizer(network, how[0])
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    network.eval()
    with torch.no_grad():
        return losses, logits(STEPS - 1).flatten().tolist()


def first_gradient(step, *how):
    network, _, loss_of = prepare(*how)
    loss_of(step).backward()
    return torch.cat([p.grad.flatten() for p in network.parameters()]).double()


def golden(path):
    with safetensors.safe_open(path, framework="pt") as f:
        notes, tensors = f.metadata(), {name: f.get_tensor(name) for name in f.keys()}
    loss, error = {}, []
    loss["float64"], logits = train(notes, tensors, torch.float64, 2)
    for threads in 1, 2:
        loss[f"float32, {threads} threads"], _ = train(notes, tensors, torch.float32, threads)
    with torch.backends.mkldnn.flags(enabled=False):
        loss["float32, without oneDNN"], _ = train(notes, tensors, torch.float32, 2)
    for step in range(GRADIENTS):
        exact = first_gradient(step, notes, tensors, torch.float64, 2)
        error.append(((first_gradient(step, notes, tensors, torch.float32, 2) - exact).norm() / exact.norm()).item())
    return {"made_by": f"PyTorch {torch.__version__.split('+')[0]}, torchvision {torchvision.__version__.split('+')[0]}: tests/compat/torch_steps.py",
            "inputs": notes["hash"], "loss": loss, "gradient_error": error, "logits": logits}


def main():
    build = os.path.abspath(sys.argv[1])
    test = os.path.join(build, "tests", "test_trainer_torch")
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([test], check=True, env={**os.environ, "TEST_TORCH_EXPORT": scratch})
        for name in "small", "densenet121", "small-resnet", "resnet50":
            found = golden(os.path.join(scratch, name + ".safetensors"))
            for directory in [scratch] + [os.path.join(top, "tests", "golden")] * ("--write" in sys.argv):
                with open(os.path.join(directory, f"torch-{name}.json"), "w") as f:
                    json.dump(found, f, indent=1)
                    f.write("\n")
            own = [max(abs(np.subtract(loss, found["loss"]["float64"]))) for run, loss in found["loss"].items() if run != "float64"]
            print(f"# {name}: PyTorch's own distance from its float64 losses, on 1 and 2 threads and without oneDNN: {', '.join(f'{d:.1e}' for d in own)}")
        return subprocess.run([test], env={**os.environ, "TEST_TORCH_GOLDEN": scratch}, cwd=top).returncode


if __name__ == "__main__":
    sys.exit(main())
