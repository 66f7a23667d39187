"""The task that this suite's process passes to the process of another framework.

starting.py (TensorFlow) -> write(task, file) -> the framework's Python, which runs
`-m rnn_scaling.frameworks.NAME FILE` -> read

This module needs only numpy and the standard library.

S, T: words of a source and a target sentence, B: sentence pairs of a tower, E:
embedding,
D: width of a cell's input, U: units, V: vocabulary. Ids are time-major.

Weights have the names of models/seq2seq.py: `src_embedding` and `tgt_embedding` [V, E],
`encoder/layer_0/forward/kernel` [D + U, 4U] (first the rows of the input) and its
`bias` [4U], `decoder/layer_0/kernel`, `projection` [U, V]. Gates are i, j, f, o.
`forget_bias` is added to f before its sigmoid and is not included in the bias. The
decoder's cell k starts from the final state of the encoder's cell k: layer 0 forward,
layer 0 backward, ... Sentences of a constant batch have their full length, so there is
no padding, and all `target_lengths` are T.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np

NUM_LOSSES = 20
TOLERANCE = 1e-4  # relative difference of a correct loss
# With batches of a thousand words, faults show at this rate and rounding stays below
# 1e-6.
SGD_LEARNING_RATE = 0.5
# The same numbers as in `training.optimizers`: change both together.
MOMENTUM = 0.9
ADAM_BETA_1 = 0.9
ADAM_BETA_2 = 0.999
ADAM_EPSILON = 1e-7
Batch = Mapping[str, np.ndarray]
"""source [S, B], source_lengths [B], target_input [T, B], target_output [T, B] and
target_lengths [B], all int32."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A run of another framework.

    Attributes:
      config: Every option of the run by name, like in its record.
      weights: Before the first step, float32, by name.
      batches: One per tower, the same at every step.
      items: Words of both sides per tower and step.
      loss_items: Target words per tower, which the loss is a mean over.
      reference_losses: One row per step, one column per tower: the mean loss of the
        tower's words in this suite's training, float32 with plain SGD.
      sgd_learning_rate: Learning rate of `reference_losses`.
      result_file: File of the record, "" for none.
      cores: Per device; empty on GPUs.
      resolved: Fields of `records.environment.Resolved` that are already known.
      started: `time.perf_counter()` at the start of the program; all processes of a
        machine share this clock.
    """

    config: Mapping[str, Any]
    weights: Mapping[str, np.ndarray]
    batches: tuple[Batch, ...]
    items: tuple[int, ...]
    loss_items: tuple[int, ...]
    reference_losses: tuple[tuple[float, ...], ...]
    sgd_learning_rate: float
    flops_per_item: float
    parameters: Mapping[str, int]
    result_file: str
    threads: int
    cores: tuple[tuple[int, ...], ...]
    resolved: Mapping[str, Any]
    started: float

    @property
    def num_devices(self) -> int:
        """The number of towers; each one has its own device."""
        return len(self.batches)

    @property
    def exchanges(self) -> bool:
        """Whether towers train one model, with the mean loss over all towers' words.

        Otherwise each tower trains its own model.
        """
        return bool(
            self.config["variable_update"] == "replicated" and self.num_devices > 1
        )

    @property
    def uses_gpus(self) -> bool:
        """Whether the devices are GPUs; otherwise a device is a set of `cores`."""
        return bool(self.config["device"] == "gpu")

    @property
    def optimizer(self) -> str:
        """The optimizer: "sgd", "momentum" or "adam".

        momentum: a = MOMENTUM a + g, w -= lr a. adam: ADAM_BETA_1, ADAM_BETA_2 and
        ADAM_EPSILON.
        """
        return str(self.config["optimizer"])

    @property
    def learning_rate(self) -> float:
        return float(self.config["learning_rate"])

    @property
    def dtype(self) -> str:
        """The dtype of the arithmetic, "float32" or "bfloat16", but not of the weights."""
        return str(self.config["compute_dtype"])

    def as_reference(self) -> Task:
        """Return the task of `reference_losses`: float32 and plain SGD.

        Its step must not use TF32.
        """
        changes = {
            "optimizer": "sgd",
            "learning_rate": self.sgd_learning_rate,
            "compute_dtype": "float32",
        }
        return dataclasses.replace(self, config={**self.config, **changes})

    def compute_losses(self, towers: Iterable[int]) -> list[float]:
        """Return the reference loss per step: the mean over these towers' words."""
        chosen = list(towers)
        weights = np.array([self.loss_items[tower] for tower in chosen], np.float64)
        rows = np.array(self.reference_losses, np.float64)[:, chosen]
        return [float(loss) for loss in rows @ weights / weights.sum()]


def make_reference_cell(
    weights: Mapping[str, np.ndarray], name: str, forget_bias: float, gates: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return kernel [D + U, 4U] and bias [4U] of a cell in another order of gates.

    Args:
      gates: The order of the gates, such as "ifjo".
    """
    kernel = weights[f"{name}/kernel"]
    bias = weights[f"{name}/bias"].copy()
    units = len(bias) // 4
    bias[2 * units : 3 * units] += forget_bias
    order = ["ijfo".index(gate) for gate in gates]
    kernels = np.split(kernel, 4, axis=-1)
    biases = np.split(bias, 4)
    return (
        np.concatenate([kernels[i] for i in order], axis=-1),
        np.concatenate([biases[i] for i in order]),
    )


def write(task: Task, file: BinaryIO) -> None:
    pickle.dump(task, file)


def read(path: str) -> Task:
    """Read a task. The file must come from this program, because pickle runs its code.

    Raises:
      OSError: If the file cannot be read.
    """
    with open(path, "rb") as file:
        task: Task = pickle.load(file)
    return task
