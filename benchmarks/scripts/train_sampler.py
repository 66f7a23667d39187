"""An LSTM language model with DistributedDataParallel and a DistributedSampler."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

p = argparse.ArgumentParser()
p.add_argument("--epochs", type=int, default=3)
a = p.parse_args()
rank = int(os.environ.get("RANK", 0))
world = int(os.environ.get("WORLD_SIZE", 1))
dist.init_process_group("gloo", rank=rank, world_size=world) if world > 1 else None
VOCAB, GLOBAL = 47, 12


class Text(Dataset):
    def __init__(self, n=72):
        g = torch.Generator().manual_seed(5)
        self.rows = [
            torch.randint(
                1, VOCAB, (int(torch.randint(4, 15, (1,), generator=g)),), generator=g
            )
            for _ in range(n)
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 24, padding_idx=0)
        self.drop = nn.Dropout(0.2)
        self.rnn = nn.LSTM(24, 32, num_layers=2, batch_first=True)
        self.out = nn.Linear(32, VOCAB)

    def forward(self, x):
        h, _ = self.rnn(self.drop(self.emb(x)))
        return self.out(self.drop(h))


torch.manual_seed(11)
net = LM()
ddp = DistributedDataParallel(net) if world > 1 else net
torch.manual_seed(100 + rank)
data = Text()
held_out = Text(8)
sampler = DistributedSampler(data, world, rank, shuffle=True, seed=3)
loader = DataLoader(
    data, batch_size=GLOBAL // world, sampler=sampler, collate_fn=collate
)
opt = torch.optim.Adam(ddp.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 6))


def evaluate():
    net.eval()
    with torch.no_grad():
        x = collate([held_out[i] for i in range(8)])
        v = functional.cross_entropy(
            net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten(), ignore_index=0
        )
    net.train()
    return float(v)


evaluate()
for epoch in range(a.epochs):
    sampler.set_epoch(epoch)
    for x in loader:
        y = x[:, 1:]
        count = (y != 0).sum()
        if world > 1:
            dist.all_reduce(count)
        opt.zero_grad()
        logits = ddp(x[:, :-1])
        loss = (
            functional.cross_entropy(
                logits.flatten(0, 1), y.flatten(), ignore_index=0, reduction="sum"
            )
            * world
            / count
        )
        loss.backward()
        nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        opt.step()
        sched.step()
    if rank == 0:
        print("epoch", epoch, "loss", float(loss), "held out", evaluate())
if world > 1:
    dist.destroy_process_group()
