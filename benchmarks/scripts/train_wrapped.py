"""Encoder and decoder wrapped one by one; two optimizers; one warm-up schedule each."""

import os
from contextlib import ExitStack

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel

ws, rk = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
distributed = ws > 1
if distributed:
    dist.init_process_group("gloo")
ACC = 2
BS = 16 // ws // ACC

torch.manual_seed(42)
enc = nn.Sequential(nn.Linear(14, 20), nn.ReLU(), nn.LayerNorm(20))
dec = nn.Sequential(nn.Linear(20, 14))
if distributed:
    enc = DistributedDataParallel(enc)
    dec = DistributedDataParallel(dec)
opts = [optim.SGD(enc.parameters(), lr=0.1), optim.Adam(dec.parameters(), lr=0.01)]
scheds = [optim.lr_scheduler.LinearLR(o, 0.1, 1.0, total_iters=12) for o in opts]

gen = torch.Generator().manual_seed(1)
X = torch.randn(160, 14, generator=gen)
ds = torch.utils.data.TensorDataset(X)
samp = torch.utils.data.DistributedSampler(
    ds, num_replicas=ws, rank=rk, shuffle=True, seed=2
)
dl = torch.utils.data.DataLoader(ds, batch_size=BS, sampler=samp)


def run_epoch(ep):
    samp.set_epoch(ep)
    for k, (x,) in enumerate(dl):
        boundary = (k + 1) % ACC == 0
        with ExitStack() as stack:
            if distributed and not boundary:
                for m in (enc, dec):
                    stack.enter_context(m.no_sync())
            rec = dec(enc(x))
            err = (rec - x).abs().mean() / ACC
            err.backward()
        if boundary:
            for o in opts:
                o.step()
                o.zero_grad(set_to_none=True)
            for s in scheds:
                s.step()
            if rk == 0:
                print(f"{err.item():.5f}")


for ep in range(3):
    run_epoch(ep)
if distributed:
    dist.destroy_process_group()
