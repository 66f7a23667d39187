"""Train with Lightning, whose closure computes the gradients inside of the step."""

import os

import lightning
import torch
from next_word import NextWord, decay, parse_flags, sentences
from torch.utils.data import DataLoader

args = parse_flags()
num_ranks = int(os.environ.get("WORLD_SIZE", "1"))


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = NextWord()

    def training_step(self, batch, number):
        return self.model(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, decay)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


lightning.seed_everything(1)
batch_size = args.batch_size // num_ranks // args.accum
loader = DataLoader(sentences(), batch_size=batch_size, shuffle=True)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=num_ranks,
    strategy="ddp" if num_ranks > 1 else "auto",
    max_epochs=3,
    accumulate_grad_batches=args.accum,
    gradient_clip_val=args.clip,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Module(), loader)
