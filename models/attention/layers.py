"""Cells as both networks with attention have them: with one bias a gate, or the two of cuDNN and PyTorch."""

import dataclasses
from collections.abc import Iterator, Sequence

from rnn_scaling.models import stacks
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.workload import Tensors, VariableSpec

_SECOND_BIAS = "recurrent_bias"


def variables(
    stack: stacks.RecurrentStack, cells: Sequence[str], config: ModelConfig
) -> Iterator[VariableSpec]:
    """Every cell's variables; with --biases_per_gate=2 a second bias, of zeros as the first."""
    for spec in stack.variables(cells):
        yield spec
        if config.biases_per_gate == 2 and spec.name.endswith("/bias"):
            yield dataclasses.replace(
                spec,
                name=spec.name.removesuffix("bias") + _SECOND_BIAS,
                initial="zeros",
            )


def weights_of(
    stack: stacks.RecurrentStack, cells: Sequence[str], weights: Tensors
) -> list[stacks.CellWeights]:
    """The weights of the cells, of all `weights` by name; two biases are one, their sum."""
    added = {
        f"{cell}/bias": weights[f"{cell}/bias"] + weights[f"{cell}/{_SECOND_BIAS}"]
        for cell in cells
        if f"{cell}/{_SECOND_BIAS}" in weights
    }
    return stack.weights_of(cells, {**weights, **added})


def one_layer(
    config: ModelConfig, input_dim: int, num_directions: int = 1
) -> stacks.RecurrentStack:
    """A layer by itself, whose inputs the caller drops."""
    return dataclasses.replace(
        stacks.stack_of(config, 1, num_directions), input_dim=input_dim, dropout=0.0
    )
