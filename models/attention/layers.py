"""Layers of the networks with attention: one bias per gate, or two like cuDNN and PyTorch.

Both attention architectures use these functions. Checkpoints contain the names of the
variables.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from rnn_scaling.models import stacks
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.workload import Tensors, VariableSpec

_SECOND_BIAS = "recurrent_bias"


def variables(
    stack: stacks.RecurrentStack, cells: Sequence[str], config: ModelConfig
) -> Iterator[VariableSpec]:
    """Yield the variables of every cell; --biases_per_gate=2 adds a second bias of zeros."""
    for spec in stack.list_variables(cells):
        yield spec
        if config.biases_per_gate == 2 and spec.name.endswith("/bias"):
            name = spec.name.removesuffix("bias") + _SECOND_BIAS
            yield dataclasses.replace(spec, name=name, initial="zeros")


def select_weights(
    stack: stacks.RecurrentStack, cells: Sequence[str], weights: Tensors
) -> list[stacks.CellWeights]:
    """Return the weights of the cells; the two biases of a gate become their sum."""
    sums = {
        f"{cell}/bias": weights[f"{cell}/bias"] + weights[f"{cell}/{_SECOND_BIAS}"]
        for cell in cells
        if f"{cell}/{_SECOND_BIAS}" in weights
    }
    return stack.select_weights(cells, {**weights, **sums})


def make_one_layer(
    config: ModelConfig, input_dim: int, num_directions: int = 1
) -> stacks.RecurrentStack:
    """Return a stack of one layer; the caller applies the dropout."""
    return dataclasses.replace(
        stacks.build_stack(config, 1, num_directions), input_dim=input_dim, dropout=0.0
    )
