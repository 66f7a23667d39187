"""Train with Accelerate, which steps the schedule once per batch of one rank."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from next_word import NextWord, decay, parse_flags, sentences
from torch.utils.data import DataLoader

args = parse_flags(batch_help="of each rank")
accelerator = Accelerator(gradient_accumulation_steps=args.accum, cpu=True)
set_seed(1)
model = NextWord()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, decay)
loader = DataLoader(sentences(), batch_size=args.batch_size // args.accum, shuffle=True)
model, optimizer, loader, schedule = accelerator.prepare(
    model, optimizer, loader, schedule
)

for epoch in range(3):
    for (words,) in loader:
        with accelerator.accumulate(model):
            loss = model(words)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    accelerator.print(f"epoch {epoch} loss {loss.item():.4f}")
accelerator.end_training()
