"""Measure the CPU seconds of a step with and without torch.compile, in turns.

    .venv-torch/bin/python -m benchmarks.torch_compile

The network is that of --framework=torch: two layers of 256 units on each side, 32
sentences of 20 words, 8,000 words, one core.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from rnn_scaling.frameworks import torch as framework

WORDS = 8_000  # of each vocabulary
UNITS = 256
LENGTH = 20  # words per sentence
SENTENCES = 32  # per batch
ROUNDS = 25
WARMUP = 3  # rounds


def make_step(is_compiled: bool) -> Callable[[], float]:
    """Return a training step from the same weights in every call."""
    generator = np.random.default_rng(0)

    def values(*shape: int) -> np.ndarray:
        return generator.normal(scale=0.1, size=shape).astype(np.float32)

    weights = {
        "src_embedding": values(WORDS, UNITS),
        "tgt_embedding": values(WORDS, UNITS),
        "projection": values(UNITS, WORDS),
    }
    for cell in ("encoder/layer_0", "encoder/layer_1", "decoder/layer_0"):
        weights[f"{cell}/kernel"] = values(2 * UNITS, 4 * UNITS)
        weights[f"{cell}/bias"] = np.zeros(4 * UNITS, np.float32)
    weights["decoder/layer_1/kernel"] = values(2 * UNITS, 4 * UNITS)
    weights["decoder/layer_1/bias"] = np.zeros(4 * UNITS, np.float32)
    batch = []
    for _ in range(3):
        ids = generator.integers(0, WORDS, (LENGTH, SENTENCES))
        batch.append(torch.tensor(ids, dtype=torch.long))
    network: torch.nn.Module = framework.Seq2Seq(weights, forget_bias=1.0)
    parameters = [weight for weight in network.parameters() if weight.requires_grad]
    optimizer = framework.build_optimizer("adam", parameters, 1e-3)
    if is_compiled:
        network = torch.compile(network)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = network(*batch) / (LENGTH * SENTENCES)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def main() -> None:
    torch.set_num_threads(1)
    plain_step = make_step(False)
    compiled_step = make_step(True)
    ratios = []
    for number in range(ROUNDS + WARMUP):
        seconds = []
        for step in (plain_step, compiled_step):
            start = time.process_time()
            step()
            seconds.append(time.process_time() - start)
        if number >= WARMUP:
            ratios.append(seconds[1] / seconds[0])
    error = statistics.stdev(ratios) / ROUNDS**0.5
    print(f"compiled / plain: {statistics.mean(ratios):.3f} ± {2 * error:.3f}")
    print(f"seconds of compilation: {framework.compile_s() or 0:.1f}")


if __name__ == "__main__":
    main()
