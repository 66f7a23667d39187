"""A convolution and a GRU with batch normalisation over all processes."""

import os

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dfn
from torch import nn

RANK, WORLD = int(os.getenv("RANK", 0)), int(os.getenv("WORLD_SIZE", 1))
if WORLD > 1:
    dist.init_process_group("gloo")


class SyncNorm(nn.Module):
    """Batch norm over all ranks (channels last)."""

    def __init__(self, c):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(c))
        self.shift = nn.Parameter(torch.zeros(c))
        self.register_buffer("mean", torch.zeros(c))
        self.register_buffer("var", torch.ones(c))

    def forward(self, x):
        if not self.training:
            return (x - self.mean) / (self.var + 1e-5).sqrt() * self.gain + self.shift
        flat = x.reshape(-1, x.shape[-1])
        sums = torch.cat(
            [flat.sum(0), (flat**2).sum(0), torch.tensor([float(len(flat))])]
        )
        if WORLD > 1:
            sums = dfn.all_reduce(sums)
        c = flat.shape[1]
        n = sums[-1]
        mean = sums[:c] / n
        var = sums[c : 2 * c] / n - mean**2
        with torch.no_grad():
            self.mean.lerp_(mean, 0.1)
            self.var.lerp_(var, 0.1)
        return (x - mean) / (var + 1e-5).sqrt() * self.gain + self.shift


class CharNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(31, 16)
        self.conv = nn.Conv1d(16, 32, 3)
        self.bn = SyncNorm(32)
        self.rnn = nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, 31)

    def forward(self, x):
        h = self.emb(x).transpose(1, 2)
        h = self.conv(nn.functional.pad(h, (2, 0))).transpose(1, 2)
        h, _ = self.rnn(torch.relu(self.bn(h)))
        return self.out(h)


class Chars(torch.utils.data.Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(8)
        self.x = torch.randint(0, 31, (57, 9), generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, k):
        return self.x[k]


class Shards:
    """Batches of 10 over all ranks; the last batch is smaller and uneven."""

    def __init__(self, n):
        self.n, self.epoch = n, 0

    def __iter__(self):
        g = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(self.n, generator=g).tolist()
        for i in range(0, self.n, 10):
            yield order[i : i + 10][RANK::WORLD]

    def __len__(self):
        return (self.n + 9) // 10


torch.manual_seed(3)
net = CharNet()
model = (
    nn.parallel.DistributedDataParallel(net, broadcast_buffers=False)
    if WORLD > 1
    else net
)
chars = Chars()
shards = Shards(len(chars))
loader = torch.utils.data.DataLoader(chars, batch_sampler=shards)
opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
crit = nn.CrossEntropyLoss(reduction="sum")
for epoch in range(4):
    shards.epoch = epoch
    for x in loader:
        n = torch.tensor(float(x[:, 1:].numel()))
        if WORLD > 1:
            dist.all_reduce(n)
        opt.zero_grad()
        loss = crit(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()) / n
        (loss * WORLD).backward()
        opt.step()
    print(f"[{RANK}] {epoch} {loss.item():.3f}")
if WORLD > 1:
    dist.destroy_process_group()
