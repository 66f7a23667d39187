"""What one framework's process is handed by the one with TensorFlow: network, weights, batches, and losses to reach.

starting.py (TensorFlow) -> write(work, file) -> the framework's Python: `-m rnn_scaling.frameworks.NAME FILE` -> read

Standard library and numpy alone. S: words of a source sentence, T: of a target sentence, B: sentence pairs of a tower,
E: embedding, U: units, V: vocabulary. Ids are time-major. Weights have the names of models/seq2seq.py: `src_embedding`
and `tgt_embedding` [V, E], `encoder/layer_0/forward/kernel` [D + U, 4U], whose rows are those of the input before those
of the state, its `bias` [4U], `decoder/layer_0/kernel`, `projection` [U, V]. Gates are i, j, f, o; `forget_bias` is
added to f before its sigmoid and is no part of the bias. The decoder's cell k starts from the final state of the
encoder's cell k: layer 0 forward, layer 0 backward, ... All sentences of a constant batch have their full length, so
there is no padding, and `target_lengths` are all T.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np

NUM_LOSSES = 20
TOLERANCE = 1e-4  # relative; of the losses of a step that computes the same
SGD_LEARNING_RATE = 0.5  # with batches of a thousand words what is wrong shows, and rounding stays below 1e-6
Batch = Mapping[str, np.ndarray]
"""source [S, B], source_lengths [B], target_input [T, B], target_output [T, B], target_lengths [B], all int32."""


@dataclasses.dataclass(frozen=True)
class Work:
    config: Mapping[str, Any]  # every option of the run by name, as its record has them
    weights: Mapping[str, np.ndarray]  # before the first step, float32, by name
    batches: tuple[Batch, ...]  # one a tower, the same at every step
    items: tuple[int, ...]  # words of both sides, of each tower a step
    loss_items: tuple[
        int, ...
    ]  # target words, which the loss is a mean over, of each tower
    # [20, towers], a row a step from the first on: the mean loss of each tower's words in float32 with plain SGD at
    # `sgd_learning_rate`, as our own step has it.
    reference_losses: tuple[tuple[float, ...], ...]
    sgd_learning_rate: float  # of these
    flops_per_item: float
    parameters: Mapping[str, int]
    result_file: str  # where the record goes; empty: nowhere
    threads: int
    cores: tuple[tuple[int, ...], ...]  # of each device; empty on GPUs
    resolved: Mapping[
        str, Any
    ]  # fields of `records.environment.Resolved` that are known already
    started: float  # `time.perf_counter()` when the program started; the clock of all processes of a machine

    @property
    def num_devices(self) -> int:
        """Towers: model copies, each on a device of its own."""
        return len(self.batches)

    @property
    def exchanges(self) -> bool:
        """Whether towers train one model: gradients of the mean loss over all towers' words. Else each has its own."""
        return bool(
            self.config["variable_update"] == "replicated" and self.num_devices > 1
        )

    @property
    def on_gpus(self) -> bool:
        """Whether the devices are GPUs; else each is the cores that `cores` has of it."""
        return bool(self.config["device"] == "gpu")

    @property
    def optimizer(self) -> str:
        """ "sgd", "momentum" (0.9: a = 0.9 a + g, w -= lr a) or "adam" (0.9, 0.999, 1e-7)."""
        return str(self.config["optimizer"])

    @property
    def learning_rate(self) -> float:
        return float(self.config["learning_rate"])

    @property
    def dtype(self) -> str:
        """Of the arithmetic, "float32" or "bfloat16"; weights stay float32."""
        return str(self.config["compute_dtype"])

    def as_reference(self) -> Work:
        """The work of `reference_losses`: float32, plain SGD. A step that is built of it may not use TF32 either."""
        changes = {
            "optimizer": "sgd",
            "learning_rate": self.sgd_learning_rate,
            "compute_dtype": "float32",
        }
        return dataclasses.replace(self, config={**self.config, **changes})

    def losses(self, towers: Iterable[int]) -> list[float]:
        """The reference losses, a step each, as a mean over the words of these towers."""
        chosen = list(towers)
        weights = np.array([self.loss_items[tower] for tower in chosen], np.float64)
        rows = np.array(self.reference_losses, np.float64)[:, chosen]
        return [float(loss) for loss in rows @ weights / weights.sum()]


def cell(
    weights: Mapping[str, np.ndarray], name: str, forget_bias: float, gates: str
) -> tuple[np.ndarray, np.ndarray]:
    """Kernel [D + U, 4U] and bias [4U] of a cell for a framework whose gates stand in another order, such as "ifjo"."""
    kernel = weights[f"{name}/kernel"]
    bias = weights[f"{name}/bias"].copy()
    units = len(bias) // 4
    bias[2 * units : 3 * units] += forget_bias
    order = ["ijfo".index(gate) for gate in gates]
    split_kernel, split_bias = (np.split(part, 4, axis=-1) for part in (kernel, bias))
    return np.concatenate([split_kernel[i] for i in order], axis=-1), np.concatenate(
        [split_bias[i] for i in order]
    )


def write(work: Work, file: BinaryIO) -> None:
    pickle.dump(work, file)


def read(path: str) -> Work:
    """The work that was written, by this program alone. Raises OSError if the file cannot be read."""
    with open(path, "rb") as file:
        work: Work = pickle.load(file)
    return work
