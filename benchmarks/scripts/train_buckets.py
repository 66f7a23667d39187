"""Sentences passed one by one to an LSTM; sparse embedding; own exchange."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils.rnn import pack_sequence

NUM = int(os.environ.get("WORLD_SIZE", 1))
ID = int(os.environ.get("RANK", 0))


class Texts(torch.utils.data.Dataset):
    def __init__(self):
        rng = torch.Generator().manual_seed(13)
        lengths = torch.randint(1, 12, (93,), generator=rng).tolist()
        self.rows = [torch.randint(0, 50, (n,), generator=rng) for n in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], int(self.rows[i].sum()) % 4


class Buckets:
    """Batches of the next sentences in a random order; the last one is small."""

    def __init__(self, data, size):
        self.data, self.size, self.epoch = data, size, 0

    def __len__(self):
        return -(-len(self.data) // self.size)

    def __iter__(self):
        order = torch.randperm(
            len(self.data), generator=torch.Generator().manual_seed(self.epoch)
        ).tolist()
        for k in range(0, len(order), self.size):
            whole = order[k : k + self.size]
            yield whole[ID::NUM]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 6, sparse=True)
        self.lstm = nn.LSTM(6, 9)
        self.top = nn.Linear(9, 4)

    def forward(self, texts):
        packed = pack_sequence([self.table(t) for t in texts], enforce_sorted=False)
        _, (h, _) = self.lstm(packed)
        return self.top(h[-1])


def all_reduce_gradients(model):
    for p in model.parameters():
        if p.grad.is_sparse:
            p.grad = p.grad.to_dense()
        dist.all_reduce(p.grad)


def share(rows):
    """Return the number of samples of all ranks."""
    n = torch.tensor(len(rows))
    if NUM > 1:
        dist.all_reduce(n)
    return n.item()


def main():
    if NUM > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(99)
    model = Classifier()
    data = Texts()
    batches = Buckets(data, 10)
    loader = torch.utils.data.DataLoader(
        data, batch_sampler=batches, collate_fn=lambda rows: rows
    )
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(3):
        batches.epoch = epoch
        for rows in loader:
            texts, labels = zip(*rows)
            losses = nn.functional.cross_entropy(
                model(texts), torch.tensor(labels), reduction="none"
            )
            loss = losses.sum() / share(rows)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            if NUM > 1:
                all_reduce_gradients(model)
            opt.step()
            if ID == 0:
                print("loss", loss.item())
    if NUM > 1:
        dist.destroy_process_group()


main()
