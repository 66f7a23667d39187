"""The preset's network in PyTorch: a peer that benchmarks/kernels.py starts and talks to on stdin and stdout.

    torch_peer.py NPZ     NPZ: the weights by their names in models/seq2seq.py, and the batch

Commands, a line each, answered by a line of JSON: `step float32|bfloat16 COUNT` -> {"wall_s": [...], "cpu_s": [...],
"loss": first loss}.
An end of input ends the process. Needs PyTorch only; bfloat16 is `torch.autocast`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np
import torch

ADAM = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-7, "fused": True}


class Seq2Seq(torch.nn.Module):
    """nn.LSTM encoder (one bidirectional layer or more) and decoder, no attention; time-major."""

    def __init__(self, arrays: Mapping[str, np.ndarray], forget_bias: float) -> None:
        super().__init__()
        self.source = torch.nn.Embedding.from_pretrained(torch.tensor(arrays["src_embedding"]), freeze=False)
        self.target = torch.nn.Embedding.from_pretrained(torch.tensor(arrays["tgt_embedding"]), freeze=False)
        self.projection = torch.nn.Parameter(torch.tensor(arrays["projection"]))
        self.encoder = _lstm(arrays, "encoder", forget_bias)
        self.decoder = _lstm(arrays, "decoder", forget_bias)

    def forward(self, source: torch.Tensor, target_input: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        _, state = self.encoder(self.source(source))
        hidden, _ = self.decoder(self.target(target_input), state)
        logits = hidden.flatten(0, 1) @ self.projection
        return torch.nn.functional.cross_entropy(logits, labels.flatten())


def _lstm(arrays: Mapping[str, np.ndarray], part: str, forget_bias: float) -> torch.nn.LSTM:
    kernels = [name for name in arrays if name.startswith(part) and name.endswith("/kernel")]
    bidirectional = any("backward" in name for name in kernels)
    units = arrays[kernels[0]].shape[1] // 4
    layers = len(kernels) // (2 if bidirectional else 1)
    module = torch.nn.LSTM(arrays[kernels[0]].shape[0] - units, units, layers, bidirectional=bidirectional)
    for index, name in enumerate(kernels):
        layer, direction = divmod(index, 2) if bidirectional else (index, 0)
        suffix = f"l{layer}" + ("_reverse" if direction else "")
        kernel, bias = arrays[name], arrays[name.replace("/kernel", "/bias")].copy()
        bias[2 * units : 3 * units] += forget_bias
        kernel, bias = _gates_ifgo(kernel.T), _gates_ifgo(bias)
        with torch.no_grad():
            getattr(module, f"weight_ih_{suffix}").copy_(torch.tensor(kernel[:, :-units]))
            getattr(module, f"weight_hh_{suffix}").copy_(torch.tensor(kernel[:, -units:]))
            getattr(module, f"bias_ih_{suffix}").copy_(torch.tensor(bias))
            getattr(module, f"bias_hh_{suffix}").zero_()
    return module


def _gates_ifgo(rows: np.ndarray) -> np.ndarray:
    """Gates i, j, f, o along axis 0 in PyTorch's order i, f, g, o."""
    i, j, f, o = np.split(rows, 4)
    return np.concatenate([i, f, j, o])


def make_step(arrays: Mapping[str, np.ndarray], dtype: str) -> Callable[[], torch.Tensor]:
    """One training step: zero_grad, loss, backward, fused Adam."""
    model = Seq2Seq(arrays, float(arrays["forget_bias"]))
    optimizer = torch.optim.Adam(model.parameters(), **ADAM)
    batch = [torch.tensor(arrays[name]).long() for name in ("source", "target_input", "target_output")]

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = model(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def main() -> None:
    torch.set_num_threads(1)
    with np.load(sys.argv[1]) as stored:
        arrays = dict(stored)
    steps: dict[str, Callable[[], torch.Tensor]] = {}
    for line in sys.stdin:
        _, dtype, count = line.split()
        if dtype not in steps:
            steps[dtype] = make_step(arrays, dtype)
        wall_s, cpu_s, losses = [], [], []
        for _ in range(int(count)):
            wall, cpu = time.perf_counter(), time.process_time()
            losses.append(float(steps[dtype]()))
            wall_s.append(time.perf_counter() - wall)
            cpu_s.append(time.process_time() - cpu)
        print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "loss": losses[0]}), flush=True)


if __name__ == "__main__":
    main()
