"""An LSTM that saves, and resumes in the same process; with a regulariser."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader


class Comm:
    def __init__(self):
        self.rank = int(os.environ.get("RANK", 0))
        self.size = int(os.environ.get("WORLD_SIZE", 1))
        if self.size > 1:
            dist.init_process_group("gloo", init_method="env://")

    def total(self, value):
        t = torch.tensor([float(value)])
        if self.size > 1:
            dist.all_reduce(t)
        return t.item()

    def add(self, named):
        if self.size == 1:
            return
        work = []
        for _, q in named:
            if q.grad is None:
                q.grad = torch.zeros_like(q)
            work.append(dist.all_reduce(q.grad, async_op=True))
        for w in work:
            w.wait()


comm = Comm()
N, V = 90, 41
g = torch.Generator().manual_seed(21)
sentences = []
for _ in range(N):
    n = int(torch.randint(3, 12, (1,), generator=g))
    sentences.append(torch.randint(1, V, (n,), generator=g))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(V, 20)
        self.cell = nn.LSTM(20, 28)
        self.proj = nn.Linear(28, 20)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, x):
        h, _ = self.cell(self.table(x))
        return torch.tanh(self.proj(h)) @ self.table.weight.T + self.bias


def pack(rows):
    return nn.utils.rnn.pad_sequence(rows)


def make(seed=4):
    torch.manual_seed(seed)
    net = Net()
    return net, torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=0.05)


def batches(epoch):
    order = torch.randperm(
        N, generator=torch.Generator().manual_seed(1000 + epoch)
    ).tolist()
    lo = [order[i : i + 14] for i in range(0, N, 14)]
    return [b[comm.rank :: comm.size] for b in lo]


def train(net, opt, epoch, first, last):
    todo = batches(epoch)[first:last]
    loader = DataLoader(sentences, batch_sampler=todo, collate_fn=pack)
    for x in loader:
        y = x[1:]
        count = comm.total((y > 0).sum())
        loss = nn.functional.cross_entropy(
            net(x[:-1]).reshape(-1, V), y.reshape(-1), ignore_index=0, reduction="sum"
        )
        penalty = 1e-3 * sum(q.pow(2).sum() for q in net.parameters()) / comm.size
        opt.zero_grad()
        (loss / count + penalty).backward()
        comm.add(net.named_parameters())
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
    return loss.item() / count


net, opt = make()
train(net, opt, 0, 0, 2)
path = os.path.join(tempfile.gettempdir(), f"ck_{os.getpid()}.pt")
torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, path)
net, opt = make(5)
state = torch.load(path)
net.load_state_dict(state["net"])
opt.load_state_dict(state["opt"])
os.remove(path) if os.path.exists(path) else None
print("resumed", train(net, opt, 0, 2, None))
for epoch in range(1, 3):
    print(epoch, train(net, opt, epoch, 0, None))
if comm.size > 1:
    dist.destroy_process_group()
