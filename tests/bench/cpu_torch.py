#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's training step of DenseNet-121 on a CPU, the rival in tests/bench/cpu.sh: random pixels in memory, channels last,
Adam with decay, the same 14 outputs. Prints the median step in milliseconds.

    cpu_torch.py fp32|bf16 BATCH THREADS STEPS [ranks]

bf16 is autocast. With ranks, that many processes of THREADS threads each train data-parallel with DDP over Gloo; BATCH is one rank's."""
import os
import statistics
import sys
import time


def train(rank, ranks, precision, batch, threads, steps):
    import torch
    import torchvision

    torch.set_num_threads(threads)
    torch.manual_seed(rank)
    model = torchvision.models.densenet121(num_classes=14).to(memory_format=torch.channels_last)
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["RIVAL_PORT"])
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-5)
    x = torch.randn(batch, 3, 224, 224).to(memory_format=torch.channels_last)
    y = (torch.rand(batch, 14) < 0.1).float()
    seconds = []
    for _ in range(steps + 1):
        begin = time.monotonic()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = model(x)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.float(), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        seconds.append(time.monotonic() - begin)
    assert loss.isfinite()
    if ranks > 1:
        torch.distributed.destroy_process_group()
    if rank == 0:
        print(f"{1e3 * statistics.median(seconds[1:]):.1f}")


if __name__ == "__main__":
    kind, size, count, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    world = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    if world == 1:
        train(0, 1, kind, size, count, n)
    else:
        import socket

        import torch.multiprocessing

        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            os.environ["RIVAL_PORT"] = str(s.getsockname()[1])
        torch.multiprocessing.spawn(train, (world, kind, size, count, n), nprocs=world)
