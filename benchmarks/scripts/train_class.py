"""A Transformer trained by a class, with a sampler of its own and momentum."""

import dataclasses
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


@dataclasses.dataclass
class Config:
    vocab: int = 37
    dim: int = 28
    global_batch: int = 10
    lr: float = 0.1
    clip: float = 50.0
    samples: int = 64
    epochs: int = 3
    seed: int = 17


class Sampler(torch.utils.data.Sampler):
    def __init__(self, n, rank, world, seed):
        self.n = n
        self.rank = rank
        self.world = world
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, e):
        self.epoch = e

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.n, generator=g).tolist()
        return iter(order[self.rank :: self.world])

    def __len__(self):
        return len(range(self.rank, self.n, self.world))


class Words(torch.utils.data.Dataset):
    def __init__(self, cfg):
        g = torch.Generator().manual_seed(2)
        self.items = []
        for _ in range(cfg.samples):
            n = 4 + int(torch.randint(0, 8, (1,), generator=g))
            self.items.append(torch.randint(2, cfg.vocab, (n,), generator=g))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]

    @staticmethod
    def collate(rows):
        n = max(map(len, rows))
        return torch.stack([functional.pad(r, (0, n - len(r))) for r in rows])


class Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.dim)
        self.pos = nn.Embedding(16, cfg.dim)
        self.q = nn.Linear(cfg.dim, 3 * cfg.dim)
        self.o = nn.Linear(cfg.dim, cfg.dim)
        self.n1 = nn.LayerNorm(cfg.dim)
        self.n2 = nn.LayerNorm(cfg.dim)
        self.mlp = nn.Sequential(
            nn.Linear(cfg.dim, 64), nn.ReLU(), nn.Linear(64, cfg.dim)
        )
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, x):
        h = self.embed(x) + self.pos(torch.arange(x.shape[1]))
        q, k, v = self.q(self.n1(h)).chunk(3, -1)
        h = h + self.drop(
            self.o(
                functional.scaled_dot_product_attention(
                    q[:, None], k[:, None], v[:, None], is_causal=True
                )[:, 0]
            )
        )
        h = h + self.drop(self.mlp(self.n2(h)))
        return self.head(h)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank = int(os.environ.get("RANK", 0))
        self.world = int(os.environ.get("WORLD_SIZE", 1))
        if self.world > 1:
            dist.init_process_group("gloo")
        torch.manual_seed(cfg.seed)
        self.model = Model(cfg)
        self.wrapped = (
            DistributedDataParallel(self.model, find_unused_parameters=True)
            if self.world > 1
            else self.model
        )
        torch.manual_seed(cfg.seed * 1000 + self.rank)
        self.data = Words(cfg)
        self.sampler = Sampler(cfg.samples, self.rank, self.world, cfg.seed)
        self.loader = torch.utils.data.DataLoader(
            self.data,
            cfg.global_batch // self.world,
            sampler=self.sampler,
            collate_fn=Words.collate,
        )
        decay = [p for p in self.model.parameters() if p.dim() > 1]
        plain = [p for p in self.model.parameters() if p.dim() <= 1]
        self.opt = torch.optim.SGD(
            [{"params": decay, "weight_decay": 0.01}, {"params": plain}],
            lr=cfg.lr,
            momentum=0.9,
        )
        self.sched = torch.optim.lr_scheduler.OneCycleLR(
            self.opt, cfg.lr, total_steps=60
        )

    def tokens(self, y):
        n = (y != 0).sum().float()
        if self.world > 1:
            dist.all_reduce(n)
        return n / self.world

    def step(self, x):
        y = x[:, 1:]
        logits = self.wrapped(x[:, :-1])
        loss = functional.cross_entropy(
            logits.transpose(1, 2), y, reduction="none", ignore_index=0
        ).sum() / self.tokens(y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.wrapped.parameters(), self.cfg.clip)
        self.opt.step()
        self.sched.step()
        self.opt.zero_grad()
        return loss.detach()

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.sampler.set_epoch(epoch)
            for x in self.loader:
                loss = self.step(x)
            if self.rank == 0:
                print("epoch", epoch, round(float(loss), 4))
        if self.world > 1:
            dist.destroy_process_group()


if __name__ == "__main__":
    Trainer(Config()).fit()
