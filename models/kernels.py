"""What a layer's cells can be (--unit_type), and which module computes them: kernel name x kind of device -> module.

A new cell is one file and one line, and so is a new kernel. The module of a cell, models/cells/NAME.py, has

- `STATE`: names of what a cell keeps from one step to the next, each [B, U]; the last of them is its output;
- `weights(input_dim, num_units)`: the specs of its variables;
- `step(x, state, weights, forget_bias)`: one step, x [B, D] -> the next state. It is the definition of the cell:
  every kernel that claims the cell must agree with it.

A kernel module has `kernel_name(stack)`, what really runs, and `build(stack)`, a function with the arguments and
results of `rnn_scaling.models.stacks.reference(stack)`.
"""

import dataclasses
import importlib
from types import ModuleType


@dataclasses.dataclass(frozen=True)
class UnitType:
    help: str  # in a few words
    title: str  # its name in sentences
    matrices: int  # its products with x [B, D] and with h [B, U] have `matrices * U` columns each
    reads: tuple[str, ...] = ()  # options that not every cell reads


UNIT_TYPES = {
    "lstm": UnitType("without peepholes", "LSTM", 4, ("forget_bias",)),
    "gru": UnitType("as cuDNN's", "GRU", 3),
    "layer_norm_lstm": UnitType(
        "LSTM with layer normalization", "layer-normalized LSTM", 4, ("forget_bias",)
    ),
    "nas": UnitType("NASCell", "NAS cell", 8),
}


@dataclasses.dataclass(frozen=True)
class Kernel:
    """An encoder implementation: its modules in models/encoders/ and its cells.

    help: What it is, in a few words.
    gpu: Its module for GPUs.
    cpu: Its module for CPUs.
    cells: The cells that both modules compute.
    is_swept: Whether a sweep without --encoder_type runs it. Each one multiplies the
      time of the default sweep, so a new implementation does not join by itself.
    """

    help: str
    gpu: str
    cpu: str
    cells: tuple[str, ...]
    is_swept: bool = False


KERNELS = {  # of a cell's kernels the first is the default
    "cudnn_lstm": Kernel(
        "one fused kernel: cuDNN on GPUs, BlockLSTM on CPUs",
        "cudnn",
        "block_lstm",
        ("lstm",),
        is_swept=True,
    ),
    "cudnn_gru": Kernel(
        "one fused GRU kernel: cuDNN on GPUs, one MatMul per step on CPUs",
        "cudnn",
        "gru_steps",
        ("gru",),
        is_swept=True,
    ),
    "dynamic_rnn": Kernel(
        "a step-wise loop",
        "dynamic_rnn",
        "dynamic_rnn",
        tuple(UNIT_TYPES),
        is_swept=True,
    ),
}


def of_cell(unit_type: str) -> list[str]:
    """The kernels that compute this cell, the one to take first; all of a cell that is none of ours."""
    return [
        name
        for name, kernel in KERNELS.items()
        if unit_type in kernel.cells or unit_type not in UNIT_TYPES
    ]


def swept(unit_type: str) -> list[str]:
    """Return the encoder implementations of a cell that the default sweep runs.

    These are the ones with `is_swept`; the cell's first one if none has it.
    """
    of_this_cell = of_cell(unit_type)
    names = [name for name in of_this_cell if KERNELS[name].is_swept]
    return names or of_this_cell[:1]


def load(name: str | None, device_type: str, unit_type: str) -> ModuleType:
    """Imports a kernel of the cell for "GPU" or "CPU", by default its first."""
    module = getattr(KERNELS[name or of_cell(unit_type)[0]], device_type.lower())
    return importlib.import_module(f"rnn_scaling.models.encoders.{module}")
