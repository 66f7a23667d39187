"""A small model of the next word, its data and flags, for scripts of libraries."""

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

NUM_WORDS = 23
LENGTH = 7
WIDTH = 16


class NextWord(nn.Module):
    """An LSTM; returns the mean loss of a batch of sentences."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(NUM_WORDS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.output = nn.Linear(WIDTH, NUM_WORDS)

    def forward(self, words):
        states, _ = self.lstm(self.embedding(words[:, :-1]))
        scores = self.output(states)
        return cross_entropy(scores.flatten(0, 1), words[:, 1:].flatten())


def decay(step):
    """Return the share of the learning rate at a step."""
    return max(0.1, 1 - step / 40)


def sentences(count=100):
    """Return random sentences of equal length."""
    generator = torch.Generator().manual_seed(2)
    return TensorDataset(torch.randint(NUM_WORDS, (count, LENGTH), generator=generator))


def parse_flags(batch_help="of all ranks"):
    """Return the values of the flags that all scripts have."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8, help=batch_help)
    parser.add_argument("--accum", type=int, default=1)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--zero", type=int, default=0, help="stage, for DeepSpeed")
    return parser.parse_args()
