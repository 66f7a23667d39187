"""The network of rnn_scaling/frameworks/torch.py: a peer that benchmarks/kernels.py starts and controls by its streams.

    torch_peer.py NPZ     NPZ: the weights by their names in models/seq2seq.py, and the batch

The command `step float32|bfloat16 COUNT` is one line. The answer is a line of JSON: {"wall_s": [...], "cpu_s": [...],
"loss": first loss}, or {"error": why PyTorch cannot}. The end of its input ends the process. It needs only PyTorch;
bfloat16 is `torch.autocast`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from rnn_scaling.frameworks.torch import Seq2Seq, build_optimizer


def make_step(
    arrays: Mapping[str, np.ndarray], dtype: str
) -> Callable[[], torch.Tensor]:
    """One training step: zero_grad, loss, backward, fused Adam."""
    model = Seq2Seq(arrays, float(arrays["forget_bias"]))
    optimizer = build_optimizer(
        "adam", [each for each in model.parameters() if each.requires_grad], 1e-3
    )
    batch = [
        torch.tensor(arrays[name]).long()
        for name in ("source", "target_input", "target_output")
    ]

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = model(*batch) / batch[2].numel()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def time_steps(step: Callable[[], torch.Tensor], count: int) -> dict[str, Any]:
    """Seconds of `count` steps, and the loss of the first."""
    wall_s, cpu_s, losses = [], [], []
    for _ in range(count):
        wall, cpu = time.perf_counter(), time.process_time()
        losses.append(float(step()))
        wall_s.append(time.perf_counter() - wall)
        cpu_s.append(time.process_time() - cpu)
    return {"wall_s": wall_s, "cpu_s": cpu_s, "loss": losses[0]}


def main() -> None:
    torch.set_num_threads(1)
    with np.load(sys.argv[1]) as stored:
        arrays = dict(stored)
    steps: dict[str, Callable[[], torch.Tensor]] = {}
    for line in sys.stdin:
        _, dtype, count = line.split()
        if dtype not in steps:
            steps[dtype] = make_step(arrays, dtype)
        try:
            answer = time_steps(steps[dtype], int(count))
        except RuntimeError as e:  # without AVX-512, oneDNN has no bfloat16 LSTM
            answer = {"error": str(e).splitlines()[0]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
