#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do models cross between chexnet and PyTorch, both ways, with the same logits?

    python3 -m venv build/compat/venv && build/compat/venv/bin/pip install torch torchvision timm safetensors pillow
    build/compat/venv/bin/python tests/compat/interchange.py build/chexnet [--write]

Theirs: networks of torchvision and timm, saved by safetensors, scored by `chexnet predict`; a head of 1000 as the start of a training.
Ours: a model and a checkpoint of `chexnet train`, loaded strictly into torchvision's network. --write makes tests/golden's small
files, which keep it so in `make check`. Prints one line a claim; ends with status 1 if one does not hold.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torchvision
from PIL import Image
from safetensors.torch import load_file, safe_open, save_file

import narrow

SMALL = {"growth_rate": 4, "block_config": (1, 1, 1, 1), "num_init_features": 8}
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
failed = 0


def claim(text, holds, detail=""):
    global failed
    failed += not holds
    print(f"{'ok' if holds else 'NOT OK'} - {text}{': ' + detail if detail else ''}")


def scatter(network, seed):
    """Running statistics and BN parameters as if it had been trained, so that a mix-up shows."""
    generator = torch.Generator().manual_seed(seed)
    for name, t in network.state_dict().items():
        if name.endswith("num_batches_tracked"):
            t.fill_(3)
        elif "running_var" in name or (t.ndim == 1 and name.endswith("weight")):
            t.uniform_(0.5, 1.5, generator=generator)
        elif "running_mean" in name or name.endswith("bias"):
            t.uniform_(-0.5, 0.5, generator=generator)
    return network.eval()


def settle(network):
    """Running statistics that fit the activations, as after a training: else a deep ResNet's logits are in the hundreds."""
    for m in network.modules():
        m.momentum = 1.0
    with torch.no_grad():
        network.train()(torch.randn(4, 3, 224, 224))
    return network.eval()


def pixels(size):
    return (np.arange(size * size, dtype=np.uint64) * 2654435761 >> 13).astype(np.uint8).reshape(size, size)


def logits_of(network, gray):
    mean, std = (torch.tensor(v, dtype=torch.float64).view(1, 3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    image = torch.tensor(gray).double()[None, None] / 255
    with torch.no_grad():
        return network.double()((image - mean) / std)[0].tolist()


def predict(chexnet, weights, size=256):
    Image.fromarray(pixels(size)).save("image.png")
    answer = subprocess.run([chexnet, "predict", "--weights", weights, "--json", "image.png"], check=True, capture_output=True, text=True).stdout
    return list(json.loads(answer)[0]["logits"].values())


def window(gray, size):
    margin = (gray.shape[0] - size) // 2
    return gray[margin:margin + size, margin:margin + size]


def same_logits(text, chexnet, weights, network, size=256, crop=224):
    ours, theirs = predict(chexnet, weights, size), logits_of(network, window(pixels(size), crop))
    error = max(abs(np.subtract(ours, theirs)))
    claim(text, error < 1e-4, f"logits of {min(theirs):.2f} to {max(theirs):.2f} differ by {error:.1e} at most, limit 1e-04")


def theirs_to_us(chexnet):
    network = scatter(torchvision.models.densenet121(num_classes=14), 1)
    save_file(network.state_dict(), "tv.safetensors", metadata={"format": "pt"})
    same_logits("torchvision's densenet121 in ours", chexnet, "tv.safetensors", network)
    network = settle(scatter(torchvision.models.resnet50(num_classes=14), 5))
    save_file(network.state_dict(), "tv.safetensors", metadata={"format": "pt"})
    same_logits("torchvision's resnet50 in ours", chexnet, "tv.safetensors", network)
    try:
        import timm
        for name in "densenet121", "resnet50":
            network = settle(scatter(timm.create_model(name, num_classes=14), 2))
            save_file(network.state_dict(), "timm.safetensors", metadata={"format": "pt"})
            same_logits(f"timm {timm.__version__}'s {name} in ours", chexnet, "timm.safetensors", network)
    except ImportError:
        print("left out: timm is not installed")
    save_file(scatter(torchvision.models.densenet121(num_classes=1000), 3).state_dict(), "imagenet.safetensors", metadata={"format": "pt"})
    refused = subprocess.run([chexnet, "predict", "--weights", "imagenet.safetensors", "image.png"], capture_output=True, text=True)
    claim("a head of 1000 outputs does not predict findings", refused.returncode == 65 and "1000 outputs" in refused.stderr, refused.stderr.strip())
    started = subprocess.run([chexnet, "train", "--weights", "imagenet.safetensors", "--image-size", "32", "--batch", "4", "--steps", "1", "--resamples", "0",
                              "--output", "fine"], capture_output=True, text=True)
    claim("but it starts a training", started.returncode == 0 and "the head starts afresh" in started.stdout, started.stderr.strip())
    trunk, tuned = load_file("imagenet.safetensors"), load_file("fine/model.safetensors")
    moved = max((trunk[n] - t).abs().max().item() for n, t in tuned.items() if "classifier" not in n and "running" not in n and t.ndim)
    claim("from its trunk", 0 < moved < 1e-3, f"weights moved by {moved:.1e} at most in one step")


def ours_to_them(chexnet):
    for name, options, make in (("densenet121", [], lambda: torchvision.models.densenet121(num_classes=14)),
                                ("a small densenet", ["--model=densenet", "--growth=4", "--init-channels=8", "--blocks=1,1,1,1"],
                                 lambda: torchvision.models.DenseNet(num_classes=14, **SMALL)),
                                ("a densenet of two blocks", ["--model=densenet", "--growth=4", "--init-channels=8", "--blocks=2,1"],
                                 lambda: torchvision.models.DenseNet(4, (2, 1), 8, num_classes=14)),
                                ("resnet50", ["--model=resnet50"], lambda: torchvision.models.resnet50(num_classes=14))):
        subprocess.run([chexnet, "train", *options, "--image-size=32", "--batch=8", "--steps=3", "--resamples=0", "--output=run"],
                       check=True, stdout=subprocess.DEVNULL)
        network = make()
        network.load_state_dict(load_file("run/model.safetensors"), strict=True)
        with safe_open("run/model.safetensors", framework="pt") as f:
            source = int(f.metadata()["source_size"])
        same_logits(f"{name} of ours in torchvision", chexnet, "run/model.safetensors", network.eval(), source, 32)
        state = load_file("run/checkpoint-00000003.safetensors")
        moments = {n: state[f"adam.exp_avg.{n}"].shape == p.shape == state[f"adam.exp_avg_sq.{n}"].shape for n, p in network.named_parameters()}
        network.load_state_dict({n: t for n, t in state.items() if not n.startswith("adam.")}, strict=True)
        claim(f"a checkpoint of {name}: its network, and Adam's two moments of each parameter", all(moments.values()), f"{len(moments)} parameters")
        subprocess.run(["rm", "-r", "run"], check=True)


def write_golden():
    network = scatter(torchvision.models.DenseNet(num_classes=14, **SMALL), 4)
    save_file(network.state_dict(), os.path.join(GOLDEN, "torchvision-14.safetensors"), metadata={"format": "pt"})
    wide = torchvision.models.DenseNet(num_classes=1000, **SMALL)
    wide.load_state_dict({n: t for n, t in network.state_dict().items() if "classifier" not in n}, strict=False)
    save_file(wide.state_dict(), os.path.join(GOLDEN, "torchvision-1000.safetensors"), metadata={"format": "pt"})
    residual = scatter(narrow.resnet(2, (1, 1, 1, 1), 14), 6)
    save_file(residual.state_dict(), os.path.join(GOLDEN, "torchvision-resnet.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(GOLDEN, "interchange.json"), "w") as f:
        json.dump({"made_by": f"PyTorch {torch.__version__.split('+')[0]}, torchvision {torchvision.__version__.split('+')[0]}: tests/compat/interchange.py",
                   "logits": logits_of(network, pixels(64)), "resnet_logits": logits_of(residual, pixels(64))}, f, indent=1)
        f.write("\n")


def main():
    chexnet = os.path.abspath(sys.argv[1])
    torch.manual_seed(20240611)
    if "--write" in sys.argv:
        write_golden()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        theirs_to_us(chexnet)
        ours_to_them(chexnet)
        os.chdir("/")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
