"""Which module computes an LSTM: kernel name x kind of device -> module. A new kernel is one file and one line.

A kernel module has `kernel_name(stack)`, what really runs, and `build(stack)`, a function with the arguments and
results of `models.lstm.reference(stack)`.
"""

from __future__ import annotations

import importlib
from types import ModuleType

KERNELS = {
    ("cudnn_lstm", "GPU"): "models.encoders.cudnn",
    ("cudnn_lstm", "CPU"): "models.encoders.block_lstm",
    ("dynamic_rnn", "GPU"): "models.encoders.dynamic_rnn",
    ("dynamic_rnn", "CPU"): "models.encoders.dynamic_rnn",
}


def load(name: str, device_type: str) -> ModuleType:
    """Imports and returns the kernel `name` for "GPU" or "CPU".

    Raises:
      ValueError: if the table has no such pair.
    """
    key = (name, device_type.upper())
    if key not in KERNELS:
        raise ValueError(f"expected one of {', '.join(map(str, sorted(KERNELS)))}, got {key}")
    return importlib.import_module(KERNELS[key])
