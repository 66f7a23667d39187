"""Which module computes an LSTM: kernel name x kind of device -> module. A new kernel is one file and one line.

A kernel module has `kernel_name(stack)`, what really runs, and `build(stack)`, a function with the arguments and
results of `models.lstm.reference(stack)`.
"""

from __future__ import annotations

import dataclasses
import importlib
from types import ModuleType


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What a kernel is, in a few words, and its module for each kind of device."""

    help: str
    gpu: str
    cpu: str


KERNELS = {
    "cudnn_lstm": Kernel(
        "one fused kernel: cuDNN on GPUs, BlockLSTM on CPUs",
        gpu="models.encoders.cudnn",
        cpu="models.encoders.block_lstm",
    ),
    "dynamic_rnn": Kernel("a step-wise loop", gpu="models.encoders.dynamic_rnn", cpu="models.encoders.dynamic_rnn"),
}


def load(name: str, device_type: str) -> ModuleType:
    """Imports and returns the kernel `name` for "GPU" or "CPU".

    Raises:
      ValueError: if the table has no such kernel, or there is no such kind of device.
    """
    if name not in KERNELS or device_type not in ("GPU", "CPU"):
        raise ValueError(f"expected one of {', '.join(KERNELS)} on GPU or CPU, got {name} on {device_type}")
    return importlib.import_module(getattr(KERNELS[name], device_type.lower()))
