"""Train with DeepSpeed's engine, which clips, steps the schedule and accumulates."""

import deepspeed
import torch
from next_word import NextWord, decay, parse_flags, sentences

args = parse_flags()
torch.manual_seed(1)
model = NextWord()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
engine, _, loader, _ = deepspeed.initialize(
    model=model,
    optimizer=optimizer,
    lr_scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, decay),
    training_data=sentences(),
    config={
        "train_batch_size": args.batch_size,
        "gradient_accumulation_steps": args.accum,
        "gradient_clipping": args.clip,
        "zero_optimization": {"stage": args.zero},
        "zero_allow_untested_optimizer": True,
    },
)

for epoch in range(3):
    loader.data_sampler.set_epoch(epoch)  # DeepSpeed leaves this to the script
    for (words,) in loader:
        loss = engine(words)
        engine.backward(loss)
        engine.step()
