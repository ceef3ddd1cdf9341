#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DenseNet-121's predictions on a CPU by others, the rivals in tests/bench/cpu.sh: random pixels in memory, 14 outputs. Prints the
median in milliseconds.

    cpu_forward.py torch|openvino fp32|bf16 BATCH THREADS STEPS

torch: eager, channels last, inference_mode, bf16 by autocast. openvino: its CPU plugin, one stream, the same precision as a hint."""
import statistics
import sys
import time

import torch
import torchvision


def by_torch(model, x, precision):
    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)

    def predict():
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            return model(x)

    return predict


def by_openvino(model, x, precision, threads):
    import openvino

    hints = {"INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    converted = openvino.convert_model(model, example_input=x, input=[list(x.shape)])
    request, pixels = openvino.Core().compile_model(converted, "CPU", hints).create_infer_request(), x.numpy()
    return lambda: request.infer([pixels])


rival, kind, batch, count, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
torch.set_num_threads(count)
torch.manual_seed(1)
net = torchvision.models.densenet121(num_classes=14).eval()
images = torch.rand(batch, 3, 224, 224)
run = by_torch(net, images, kind) if rival == "torch" else by_openvino(net, images, kind, count)
seconds = []
for _ in range(steps + 2):
    begin = time.monotonic()
    run()
    seconds.append(time.monotonic() - begin)
print(f"{1e3 * statistics.median(seconds[2:]):.2f}")
