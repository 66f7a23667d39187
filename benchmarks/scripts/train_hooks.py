"""Hooks average each gradient when it is complete; Adam; clipping by hand."""

import os

import torch
import torch.distributed as dist


class Context:
    def __init__(self):
        self.n = int(os.environ.get("WORLD_SIZE", 1))
        self.i = int(os.environ.get("RANK", 0))
        if self.n > 1:
            dist.init_process_group("gloo")

    def close(self):
        if self.n > 1:
            dist.destroy_process_group()


ctx = Context()


class Ratings(torch.utils.data.Dataset):
    """Users rate items."""

    def __init__(self):
        g = torch.Generator().manual_seed(21)
        self.user = torch.randint(0, 30, (200,), generator=g)
        self.item = torch.randint(0, 40, (200,), generator=g)
        self.score = torch.rand(200, generator=g) * 4

    def __len__(self):
        return 200

    def __getitem__(self, k):
        return self.user[k], self.item[k], self.score[k]


class Factor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.users = torch.nn.Embedding(30, 8)
        self.items = torch.nn.Embedding(40, 8)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(16, 12), torch.nn.SiLU(), torch.nn.Linear(12, 1)
        )

    def forward(self, u, i):
        return self.mlp(torch.cat([self.users(u), self.items(i)], 1)).squeeze(1)


torch.manual_seed(77)
model = Factor()


def exchange(p):
    if ctx.n > 1:
        dist.all_reduce(p.grad)
        p.grad /= ctx.n


for p in model.parameters():
    p.register_post_accumulate_grad_hook(exchange)

optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
MAX_NORM = 0.3
GLOBAL = 20
sampler = torch.utils.data.distributed.DistributedSampler(
    Ratings(), ctx.n, ctx.i, seed=4
)
loader = torch.utils.data.DataLoader(
    Ratings(), batch_size=GLOBAL // ctx.n, sampler=sampler
)
steps = 0
for epoch in range(2):
    sampler.set_epoch(epoch)
    for u, i, s in loader:
        loss = torch.nn.functional.huber_loss(model(u, i), s)
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        scale = (MAX_NORM / (norm + 1e-6)).clamp(max=1.0)
        for p in model.parameters():
            p.grad *= scale
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        if ctx.i == 0:
            print(f"{steps} {loss.item():.6f}")
ctx.close()
