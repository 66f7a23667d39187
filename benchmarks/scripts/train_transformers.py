"""Train a small GPT-2 with the Trainer of Transformers."""

import os
import tempfile

import torch
from next_word import LENGTH, NUM_WORDS, WIDTH, parse_flags, sentences
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

args = parse_flags()
num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
rank = int(os.environ.get("RANK", "0"))


class OwnDropout(TrainerCallback):
    """Seeds each rank; the Trainer seeds all ranks alike, so dropout would be equal."""

    def on_train_begin(self, arguments, state, control, **options):
        torch.manual_seed(100 + rank)


def collate(rows):
    words = torch.stack([words for (words,) in rows])
    return {"input_ids": words, "labels": words}


torch.manual_seed(1)
config = GPT2Config(
    vocab_size=NUM_WORDS,
    n_positions=LENGTH,
    n_embd=WIDTH,
    n_layer=2,
    n_head=2,
    bos_token_id=0,
    eos_token_id=0,
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        optim="sgd",
        learning_rate=0.5,
        num_train_epochs=3,
        per_device_train_batch_size=args.batch_size // num_ranks // args.accum,
        gradient_accumulation_steps=args.accum,
        max_grad_norm=args.clip,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=1,
    )
    trainer = Trainer(
        GPT2LMHeadModel(config),
        arguments,
        train_dataset=sentences(),
        data_collator=collate,
        callbacks=[OwnDropout()],
    )
    trainer.train()
