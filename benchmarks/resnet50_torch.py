"""ResNet-50 of keras.applications in PyTorch: a peer of benchmarks/resnet50.py.

    resnet50_torch.py NPZ THREADS FORM

NPZ contains "images" [B, 224, 224, 3], "labels" [B] and the weights by Keras' names.
FORM is contiguous, channels_last or compiled (channels_last by torch.compile). The
process answers requests by `peers.serve`. It needs only PyTorch and NumPy.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from benchmarks.peers import serve, time_each

LEARNING_RATE = 0.01


class Stage(NamedTuple):
    """Blocks with the same number of channels."""

    num_blocks: int
    first_stride: int  # stride of the first block; the others have 1


STAGES = (
    Stage(num_blocks=3, first_stride=1),
    Stage(num_blocks=4, first_stride=2),
    Stage(num_blocks=6, first_stride=2),
    Stage(num_blocks=3, first_stride=2),
)


class NormalizedConvolution(nn.Sequential):
    """A convolution with a bias, and batch normalisation, with Keras' values."""

    def __init__(
        self, arrays: dict, name: str, stride: int = 1, padding: int = 0
    ) -> None:
        # Keras' kernel is [H, W, inputs, outputs].
        kernel = torch.tensor(arrays[f"{name}_conv/kernel"].transpose(3, 2, 0, 1))
        outputs, inputs, size, _ = kernel.shape
        convolution = nn.Conv2d(inputs, outputs, size, stride, padding)
        norm = nn.BatchNorm2d(outputs, eps=1.001e-5, momentum=0.01)
        with torch.no_grad():
            convolution.weight.copy_(kernel)
            convolution.bias.copy_(torch.tensor(arrays[f"{name}_conv/bias"]))
        super().__init__(convolution, norm)


class Block(nn.Module):
    """Convolutions of 1 x 1 (with the stride), 3 x 3 and 1 x 1, and the shortcut."""

    def __init__(self, arrays: dict, name: str, stride: int, is_first: bool) -> None:
        super().__init__()
        if is_first:
            self.shortcut = NormalizedConvolution(arrays, f"{name}_0", stride)
        else:
            self.shortcut = nn.Identity()
        self.first = NormalizedConvolution(arrays, f"{name}_1", stride)
        self.second = NormalizedConvolution(arrays, f"{name}_2", padding=1)
        self.third = NormalizedConvolution(arrays, f"{name}_3")

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(inputs))
        hidden = torch.relu(self.second(hidden))
        return torch.relu(self.shortcut(inputs) + self.third(hidden))


class ResNet50(nn.Module):
    """Images [B, 3, 224, 224] -> logits [B, classes]."""

    def __init__(self, arrays: dict) -> None:
        super().__init__()
        self.first = NormalizedConvolution(arrays, "conv1", stride=2, padding=3)
        blocks = []
        # In Keras' names, the first convolution is conv1 and the stages follow.
        for number, stage in enumerate(STAGES, start=2):
            for block in range(1, stage.num_blocks + 1):
                is_first = block == 1
                stride = stage.first_stride if is_first else 1
                name = f"conv{number}_block{block}"
                blocks.append(Block(arrays, name, stride, is_first))
        self.blocks = nn.Sequential(*blocks)
        self.logits = nn.Linear(2048, arrays["predictions/bias"].size)
        with torch.no_grad():
            self.logits.weight.copy_(torch.tensor(arrays["predictions/kernel"].T))
            self.logits.bias.copy_(torch.tensor(arrays["predictions/bias"]))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(images))
        hidden = nn.functional.max_pool2d(hidden, 3, 2, padding=1)
        return self.logits(self.blocks(hidden).mean((2, 3)))


def main() -> None:
    npz, threads, form = sys.argv[1:]
    torch.set_num_threads(int(threads))
    with np.load(npz) as stored:
        arrays = dict(stored)
    order = torch.contiguous_format if form == "contiguous" else torch.channels_last
    images = torch.tensor(arrays.pop("images").transpose(0, 3, 1, 2))
    images = images.contiguous(memory_format=order)
    labels = torch.tensor(arrays.pop("labels"))
    model = ResNet50(arrays).to(memory_format=order).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def compute_loss(images: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(images), labels)

    if form == "compiled":
        compute_loss = torch.compile(compute_loss)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = compute_loss(images)
        loss.backward()
        optimizer.step()
        return float(loss)

    serve(step(), time_each(step))


if __name__ == "__main__":
    main()
