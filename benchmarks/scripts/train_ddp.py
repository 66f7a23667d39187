"""Train a language model with DistributedDataParallel."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from language_model import LSTM, Sentences, Transformer, collate, loss_sum, num_targets
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["lstm", "transformer"], default="lstm")
parser.add_argument("--batch_size", type=int, default=16, help="of all ranks")
parser.add_argument("--sentences", type=int, default=90)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--accum", type=int, default=1)
parser.add_argument("--optimizer", default="SGD")
parser.add_argument("--lr", type=float, default=0.5)
parser.add_argument("--clip", type=float, default=0)
parser.add_argument("--dropout", type=float, default=0)
parser.add_argument("--decay_steps", type=int, default=0)
parser.add_argument("--sparse", action="store_true")
parser.add_argument("--tied", action="store_true")
args = parser.parse_args()

rank = int(os.environ.get("RANK", 0))
world = int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    dist.init_process_group("gloo")

torch.manual_seed(1)
model = LSTM(args) if args.model == "lstm" else Transformer(args)
torch.manual_seed(100 + rank)
ddp = DistributedDataParallel(model) if world > 1 else model
optimizer = getattr(torch.optim, args.optimizer)(ddp.parameters(), lr=args.lr)
decay_steps = args.decay_steps or 10**9
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: max(0.1, 1 - step / decay_steps)
)

dataset = Sentences(args.sentences)
sampler = DistributedSampler(dataset, world, rank)
loader = DataLoader(
    dataset,
    batch_size=args.batch_size // world // args.accum,
    sampler=sampler,
    collate_fn=collate,
)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    batches = iter(loader)
    for step in range(len(loader) // args.accum):
        micro_batches = [next(batches) for _ in range(args.accum)]
        count = torch.tensor(float(sum(map(num_targets, micro_batches))))
        if world > 1:
            dist.all_reduce(count)
        for number, tokens in enumerate(micro_batches):
            is_last = number == args.accum - 1
            is_synced = world == 1 or is_last
            with contextlib.nullcontext() if is_synced else ddp.no_sync():
                loss = loss_sum(ddp, tokens) / count * world
                loss.backward()
        if args.clip:
            nn.utils.clip_grad_norm_(ddp.parameters(), args.clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")

if world > 1:
    dist.destroy_process_group()
