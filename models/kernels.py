"""Which module computes the layers: kernel name x kind of device -> module. A new kernel is one file and one line.

A kernel module has `kernel_name(stack)`, what really runs, and `build(stack)`, a function with the arguments and
results of `rnn_scaling.models.stacks.reference(stack)`.
"""

import dataclasses
import importlib
from types import ModuleType

from rnn_scaling.models.unit_types import UNIT_TYPES


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What a kernel is, its module in models/encoders/ for each kind of device, and the cells that both compute."""

    help: str
    gpu: str
    cpu: str
    cells: tuple[str, ...]


KERNELS = {  # of a cell's kernels the first is the default
    "cudnn_lstm": Kernel("one fused kernel: cuDNN on GPUs, BlockLSTM on CPUs", "cudnn", "block_lstm", ("lstm",)),
    "cudnn_gru": Kernel(
        "one fused GRU kernel: cuDNN on GPUs, one MatMul per step on CPUs", "cudnn", "gru_steps", ("gru",)
    ),
    "dynamic_rnn": Kernel("a step-wise loop", "dynamic_rnn", "dynamic_rnn", tuple(UNIT_TYPES)),
}


def of_cell(unit_type: str) -> list[str]:
    """The kernels that compute this cell, the one to take first; all of a cell that is none of ours."""
    return [name for name, kernel in KERNELS.items() if unit_type in kernel.cells or unit_type not in UNIT_TYPES]


def load(name: str | None, device_type: str, unit_type: str) -> ModuleType:
    """Imports a kernel of the cell for "GPU" or "CPU", by default its first."""
    module = getattr(KERNELS[name or of_cell(unit_type)[0]], device_type.lower())
    return importlib.import_module(f"rnn_scaling.models.encoders.{module}")
