"""A Transformer with accumulation and an all-reduce of one flat gradient."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

ACCUM = 2
for arg in sys.argv[1:]:
    if arg.startswith("--accum="):
        ACCUM = int(arg.split("=")[1])
R = int(os.environ.get("RANK", "0"))
W = int(os.environ.get("WORLD_SIZE", "1"))
if W > 1:
    dist.init_process_group(backend="gloo")
V, T, B = 39, 11, 16  # B sentences per step over all ranks

gen = torch.Generator().manual_seed(77)
tokens = torch.randint(1, V, (80, T + 1), generator=gen)
lengths = torch.randint(3, T + 2, (80,), generator=gen)
for row, n in zip(tokens, lengths):
    row[n:] = 0


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm1 = nn.LayerNorm(d)
        self.att = nn.MultiheadAttention(d, 4, batch_first=True)
        self.norm2 = nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x, mask):
        y = self.norm1(x)
        x = x + self.att(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.ff(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok = nn.Embedding(V, d)
        self.pos = nn.Parameter(torch.randn(T, d) * 0.02)
        self.blocks = nn.ModuleList([Block(d), Block(d)])
        self.head = nn.Linear(d, V, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, ids):
        n = ids.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)
        x = self.tok(ids) * 0.3 + self.pos[:n]
        for b in self.blocks:
            x = b(x, mask)
        return self.head(x)


torch.manual_seed(1234)
model = GPT()
if W > 1:
    for param in model.parameters():
        dist.broadcast(param.data, 0)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)


def exchange():
    if W == 1:
        return
    flat = torch.cat([q.grad.view(-1) for q in model.parameters()])
    dist.all_reduce(flat)
    at = 0
    for q in model.parameters():
        q.grad.copy_(flat[at : at + q.numel()].view_as(q))
        at += q.numel()


step = 0
for epoch in range(4):
    order = torch.randperm(80, generator=torch.Generator().manual_seed(epoch))
    for start in range(0, 80, B):
        mine = order[start : start + B][R::W]
        total = (tokens[order[start : start + B], 1:] != 0).sum()
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1, (step + 1) / 8)
        optimizer.zero_grad()
        for micro in mine.chunk(ACCUM):
            x, y = tokens[micro, :-1], tokens[micro, 1:]
            loss = (
                nn.functional.cross_entropy(
                    model(x).transpose(1, 2), y, ignore_index=0, reduction="sum"
                )
                / total
            )
            loss.backward()
        exchange()
        nn.utils.clip_grad_norm_(model.parameters(), 0.7)
        optimizer.step()
        step += 1
    if R == 0:
        print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
if W > 1:
    dist.barrier()
    dist.destroy_process_group()
