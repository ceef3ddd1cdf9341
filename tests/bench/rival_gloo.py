"""Gloo, as PyTorch has it, in the place of libhvd; measured as hvd-bench measures (see rival_mpi.c).

    rival_gloo.py STORE BYTES ROUNDS   microseconds of an all-reduce of f32: median of the rounds
"""
import os
import sys
import time

import torch
import torch.distributed as dist

store, size, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_STEP_NUM_TASKS"])
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
whole = torch.arange(size // 4, dtype=torch.float32) % 1000  # any order of the sum gives the same
gradient = torch.empty_like(whole)
seconds, right = [], True
for k in range(-2, rounds):
    torch.mul(whole, rank + 1, out=gradient)
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(gradient)
    if k >= 0:
        seconds.append(time.perf_counter() - begin)
    dist.barrier()
    right &= torch.equal(gradient, whole * (world * (world + 1) // 2))
slowest = torch.tensor(seconds, dtype=torch.float64)
dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
if rank == 0:
    print(f"{slowest.sort().values[rounds // 2].item() * 1e6:.1f}")
dist.destroy_process_group()
sys.exit(not right)
