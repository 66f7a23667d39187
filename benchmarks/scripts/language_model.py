"""Small language models on sentences of random lengths; 0 pads, 1 ends."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

VOCABULARY = 97
WIDTH = 16


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(7)
        self.rows = []
        for _ in range(count):
            length = int(torch.randint(3, 15, (), generator=generator))
            row = torch.randint(2, VOCABULARY, (length,), generator=generator)
            row[-1] = 1
            self.rows.append(row)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    return pad_sequence(rows, batch_first=True)


class LSTM(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, sparse=args.sparse)
        self.body = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.dropout = nn.Dropout(args.dropout)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        if args.tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        hidden = self.encode(tokens)
        return self.head(self.dropout(hidden))

    def encode(self, tokens):
        return self.body(self.embedding(tokens))[0]


class Transformer(LSTM):
    def __init__(self, args):
        super().__init__(args)
        self.positions = nn.Parameter(0.1 * torch.randn(16, WIDTH))
        self.body = nn.TransformerEncoderLayer(
            WIDTH, nhead=2, dim_feedforward=32, dropout=args.dropout, batch_first=True
        )

    def encode(self, tokens):
        length = tokens.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).triu(1)
        hidden = self.embedding(tokens) + self.positions[:length]
        return self.body(
            hidden, src_mask=causal, src_key_padding_mask=tokens == 0, is_causal=True
        )


def loss_sum(model, tokens):
    """Return the cross-entropy summed over real tokens."""
    logits = model(tokens[:, :-1])
    targets = tokens[:, 1:]
    return cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=0, reduction="sum"
    )


def num_targets(tokens):
    return int((tokens[:, 1:] != 0).sum())
