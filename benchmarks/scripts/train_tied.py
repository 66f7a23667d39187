"""A Transformer with tied weights, bfloat16, dropout and no_sync."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--micro", type=int, default=2)
    args = parser.parse_args()
    world = int(os.environ.get("WORLD_SIZE", 1))
    rank = int(os.environ.get("RANK", 0))
    dist.init_process_group("gloo") if "RANK" in os.environ else None
    ddp_on = world > 1
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 53, (96, 10), generator=g)
    ds = TensorDataset(ids)
    sampler = DistributedSampler(ds, num_replicas=world, rank=rank, seed=9)
    loader = DataLoader(ds, batch_size=24 // world, sampler=sampler, drop_last=True)

    class Tiny(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.wte = nn.Embedding(53, d)
            self.wpe = nn.Embedding(10, d)
            layer = nn.TransformerEncoderLayer(
                d, 4, 64, dropout=0.1, batch_first=True, norm_first=True
            )
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.lm_head = nn.Linear(d, 53, bias=False)
            self.lm_head.weight = self.wte.weight

        def forward(self, x):
            n = x.size(1)
            m = nn.Transformer.generate_square_subsequent_mask(n)
            h = self.wte(x) + self.wpe(torch.arange(n))
            return self.lm_head(self.body(h, mask=m, is_causal=True))

    torch.manual_seed(42)
    raw = Tiny()
    model = DistributedDataParallel(raw) if ddp_on else raw
    torch.manual_seed(42 + rank)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95))
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 12)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            pieces = batch.chunk(args.micro)
            for i, piece in enumerate(pieces):
                last = i == len(pieces) - 1
                ctx = (
                    contextlib.nullcontext() if last or not ddp_on else model.no_sync()
                )
                with ctx:
                    with torch.autocast("cpu", dtype=torch.bfloat16):
                        logits = model(piece[:, :-1])
                    loss = functional.cross_entropy(
                        logits.float().flatten(0, 1), piece[:, 1:].flatten()
                    )
                    (loss / len(pieces)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            sched.step()
        if rank == 0:
            print("loss", epoch, loss.item())
    if ddp_on:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
