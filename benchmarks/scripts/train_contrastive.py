"""Contrastive pairs over the batches of all ranks: all_gather with gradients."""

import os

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dnn
from torch import nn
from torch.nn import functional

rank = int(os.environ.get("RANK", 0))
world = int(os.environ.get("WORLD_SIZE", 1))


def gather(t):
    if world == 1:
        return t
    return torch.cat(dnn.all_gather(t))


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8))
        self.text = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
        self.log_t = nn.Parameter(torch.tensor(0.5))

    def forward(self, a, b):
        return (
            functional.normalize(self.image(a), dim=1),
            functional.normalize(self.text(b), dim=1),
            self.log_t.exp(),
        )


def contrast(model, a, b):
    u, v, t = model(a, b)
    u, v = gather(u), gather(v)
    logits = t * u @ v.T
    target = torch.arange(len(u))
    return (
        functional.cross_entropy(logits, target)
        + functional.cross_entropy(logits.T, target)
    ) / 2


def train():
    torch.manual_seed(7)
    model = TwoTower()
    if world > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    g = torch.Generator().manual_seed(3)
    data = torch.utils.data.TensorDataset(
        torch.randn(128, 10, generator=g), torch.randn(128, 6, generator=g)
    )
    sampler = torch.utils.data.distributed.DistributedSampler(data, world, rank)
    loader = torch.utils.data.DataLoader(data, 16 // world, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for a, b in loader:
            opt.zero_grad()
            loss = contrast(model, a, b)
            loss.backward()
            opt.step()
            if rank == 0:
                print(loss.item())
    if world > 1:
        dist.destroy_process_group()


train()
