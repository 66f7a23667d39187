"""The network of rnn_scaling/frameworks/torch.py: a peer of benchmarks/kernels.py.

    torch_peer.py NPZ

NPZ contains the weights by their names in models/seq2seq.py, and the batch. A request
is one line of stdin, `step float32|bfloat16 COUNT`. The answer is a line of JSON:
{"wall_s": [...], "cpu_s": [...], "loss": first loss}, or {"error": why PyTorch cannot}.
The end of stdin ends the process. It needs only PyTorch; bfloat16 is `torch.autocast`.
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
    """Return one training step: zero_grad, loss, backward, fused Adam."""
    model = Seq2Seq(arrays, float(arrays["forget_bias"]))
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = build_optimizer("adam", trained, 1e-3)
    source = torch.tensor(arrays["source"]).long()
    target_input = torch.tensor(arrays["target_input"]).long()
    target_output = torch.tensor(arrays["target_output"]).long()

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss_sum = model(source, target_input, target_output)
            loss = loss_sum / target_output.numel()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def time_steps(step: Callable[[], torch.Tensor], count: int) -> dict[str, Any]:
    """Return the seconds of each of `count` steps, and the loss of the first one."""
    wall_s = []
    cpu_s = []
    losses = []
    for _ in range(count):
        wall_start = time.perf_counter()
        cpu_start = time.process_time()
        losses.append(float(step()))
        wall_s.append(time.perf_counter() - wall_start)
        cpu_s.append(time.process_time() - cpu_start)
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
        except RuntimeError as error:
            # Without AVX-512, oneDNN has no LSTM in bfloat16.
            answer = {"error": str(error).splitlines()[0]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
