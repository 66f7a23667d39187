"""Train a language model on slices of each batch; sum the gradients by hand."""

import argparse
import os

import torch
import torch.distributed as dist
from language_model import LSTM, Sentences, Transformer, collate, loss_sum, num_targets
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["lstm", "transformer"], default="lstm")
parser.add_argument("--batch_size", type=int, default=15, help="of all ranks")
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
parameters = list(model.parameters())
optimizer = getattr(torch.optim, args.optimizer)(parameters, lr=args.lr)
decay_steps = args.decay_steps or 10**9


def sum_gradients():
    for parameter in parameters:
        dist.all_reduce(parameter.grad)


dataset = Sentences(args.sentences)
step = 0
for epoch in range(args.epochs):
    generator = torch.Generator().manual_seed(epoch)
    order = torch.randperm(len(dataset), generator=generator).tolist()
    for start in range(0, len(order), args.batch_size):
        indices = order[start : start + args.batch_size]
        shard = indices[rank::world]
        count = num_targets(collate([dataset[index] for index in indices]))
        total = 0.0
        for number in range(args.accum):
            rows = shard[number :: args.accum]
            loss = loss_sum(model, collate([dataset[index] for index in rows])) / count
            loss.backward()
            total += loss.item()
        if world > 1:
            sum_gradients()
        if args.clip:
            nn.utils.clip_grad_norm_(parameters, args.clip)
        for group in optimizer.param_groups:
            group["lr"] = args.lr * max(0.1, 1 - step / decay_steps)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if rank == 0:
            print(f"step {step} loss {total:.4f}")

if world > 1:
    dist.destroy_process_group()
