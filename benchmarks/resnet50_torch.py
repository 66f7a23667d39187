"""ResNet-50 of keras.applications in PyTorch: a peer that benchmarks/resnet50.py starts.

    resnet50_torch.py NPZ THREADS FORM     FORM: contiguous, channels_last or compiled (channels_last by torch.compile)

NPZ contains "images" [B, 224, 224, 3], "labels" and the weights by Keras' names. After its first step, the program
prints {"loss": ...} as a line of JSON. It answers each number of steps by a line {"wall_s": [...], "cpu_s": [...]}.
The end of its input ends the process. It needs only PyTorch and NumPy.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import nn

from benchmarks.peers import serve, timed

LEARNING_RATE = 0.01
STACKS = (
    (64, 3, 1),
    (128, 4, 2),
    (256, 6, 2),
    (512, 3, 2),
)  # channels, blocks, stride of the first


class Normalized(nn.Sequential):
    """A convolution with a bias, and batch normalisation, with Keras' values."""

    def __init__(
        self, arrays: dict, name: str, stride: int = 1, padding: int = 0
    ) -> None:
        kernel = torch.tensor(arrays[f"{name}_conv/kernel"].transpose(3, 2, 0, 1))
        outputs, inputs, size, _ = kernel.shape
        convolution = nn.Conv2d(inputs, outputs, size, stride, padding)
        norm = nn.BatchNorm2d(outputs, eps=1.001e-5, momentum=0.01)
        with torch.no_grad():
            convolution.weight.copy_(kernel)
            convolution.bias.copy_(torch.tensor(arrays[f"{name}_conv/bias"]))
        super().__init__(convolution, norm)


class Block(nn.Module):
    """1 x 1 (with the stride), 3 x 3, 1 x 1, and the shortcut."""

    def __init__(self, arrays: dict, name: str, stride: int, projects: bool) -> None:
        super().__init__()
        self.shortcut = (
            Normalized(arrays, f"{name}_0", stride) if projects else nn.Identity()
        )
        self.first = Normalized(arrays, f"{name}_1", stride)
        self.second = Normalized(arrays, f"{name}_2", padding=1)
        self.third = Normalized(arrays, f"{name}_3")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.second(torch.relu(self.first(x))))
        return torch.relu(self.shortcut(x) + self.third(y))


class ResNet50(nn.Module):
    """[B, 3, 224, 224] -> logits."""

    def __init__(self, arrays: dict) -> None:
        super().__init__()
        self.first = Normalized(arrays, "conv1", stride=2, padding=3)
        self.blocks = nn.Sequential(
            *(
                Block(
                    arrays,
                    f"conv{number}_block{block}",
                    stride if block == 1 else 1,
                    block == 1,
                )
                for number, (_, blocks, stride) in enumerate(STACKS, start=2)
                for block in range(1, blocks + 1)
            )
        )
        self.logits = nn.Linear(2048, arrays["predictions/bias"].size)
        with torch.no_grad():
            self.logits.weight.copy_(torch.tensor(arrays["predictions/kernel"].T))
            self.logits.bias.copy_(torch.tensor(arrays["predictions/bias"]))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.first(images)), 3, 2, padding=1)
        return self.logits(self.blocks(x).mean((2, 3)))


def main() -> None:
    npz, threads, form = sys.argv[1:]
    torch.set_num_threads(int(threads))
    with np.load(npz) as stored:
        arrays = dict(stored)
    order = torch.contiguous_format if form == "contiguous" else torch.channels_last
    images = torch.tensor(arrays.pop("images").transpose(0, 3, 1, 2)).contiguous(
        memory_format=order
    )
    labels = torch.tensor(arrays.pop("labels"))
    model = ResNet50(arrays).to(memory_format=order).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def loss_of(images: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(images), labels)

    compute = torch.compile(loss_of) if form == "compiled" else loss_of

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = compute(images)
        loss.backward()
        optimizer.step()
        return float(loss)

    serve(step(), timed(step))


if __name__ == "__main__":
    main()
