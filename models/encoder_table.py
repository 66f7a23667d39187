"""The cells (--unit_type) and the encoder implementations that compute them.

A new cell is one file and one row, and so is a new encoder implementation. The module
of a cell, models/cells/NAME.py, has

- `STATE`: names of the tensors of its state, [B, U] each; the last one is its output;
- `weights(input_dim, num_units)`: the specs of its variables;
- `step(x, state, weights, forget_bias)`: one step, x [B, D] -> the next state. It
  defines the cell: every encoder implementation of the cell must agree with it.

The module of an encoder implementation has `kernel_name(stack)`, the name of the code
that runs, and `build(stack)`, which returns a function like
`stacks.build_reference(stack)`.

B: sentences, D: width of the input, U: units.
"""

import dataclasses
import importlib
from types import ModuleType


@dataclasses.dataclass(frozen=True)
class UnitType:
    """One cell.

    Attributes:
      matrices: The products with x [B, D] and with h [B, U] have `matrices * U` columns
        each.
      reads: Options that only some cells read.
    """

    help: str
    title: str  # name in sentences
    matrices: int
    reads: tuple[str, ...] = ()


UNIT_TYPES = {
    "lstm": UnitType("without peepholes", "LSTM", 4, ("forget_bias",)),
    "gru": UnitType("with cuDNN's equations", "GRU", 3),
    "layer_norm_lstm": UnitType(
        "LSTM with layer normalization", "layer-normalized LSTM", 4, ("forget_bias",)
    ),
    "nas": UnitType("NASCell", "NAS cell", 8),
}


@dataclasses.dataclass(frozen=True)
class Encoder:
    """An encoder implementation.

    Attributes:
      gpu: Module in models/encoders/ for GPUs.
      cpu: Module in models/encoders/ for CPUs.
      cells: The cells that both modules compute.
      is_swept: Whether a sweep without --encoder_type runs it. Each one multiplies the
        time of the default sweep, so a new implementation does not join automatically.
    """

    help: str
    gpu: str
    cpu: str
    cells: tuple[str, ...]
    is_swept: bool = False


# The first one that computes a cell is its default.
ENCODERS = {
    "cudnn_lstm": Encoder(
        "one fused kernel: cuDNN on GPUs, this suite's operator or BlockLSTM on CPUs",
        "cudnn",
        "block_lstm",
        ("lstm",),
        is_swept=True,
    ),
    "cudnn_gru": Encoder(
        "one fused GRU kernel: cuDNN on GPUs, this suite's operator or a loop on CPUs",
        "cudnn",
        "gru_steps",
        ("gru",),
        is_swept=True,
    ),
    "dynamic_rnn": Encoder(
        "a step-wise loop",
        "dynamic_rnn",
        "dynamic_rnn",
        tuple(UNIT_TYPES),
        is_swept=True,
    ),
}


def list_encoders(unit_type: str) -> list[str]:
    """Return the encoder implementations of a cell, the default first.

    An unknown cell gets all of them.
    """
    return [
        name
        for name, encoder in ENCODERS.items()
        if unit_type in encoder.cells or unit_type not in UNIT_TYPES
    ]


def list_swept_encoders(unit_type: str) -> list[str]:
    """Return the encoder implementations of a cell that the default sweep runs.

    These are the ones with `is_swept`; the cell's first one if none has it.
    """
    candidates = list_encoders(unit_type)
    names = [name for name in candidates if ENCODERS[name].is_swept]
    return names or candidates[:1]


def load(name: str | None, device_type: str, unit_type: str) -> ModuleType:
    """Import an encoder implementation for "GPU" or "CPU"; None: the cell's default."""
    module = getattr(ENCODERS[name or list_encoders(unit_type)[0]], device_type.lower())
    return importlib.import_module(f"rnn_scaling.models.encoders.{module}")
