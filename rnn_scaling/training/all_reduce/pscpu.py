"""Additions on CPUs: on the towers' devices if they are CPUs, otherwise on the host.

A training step, `links` and `verification` build it by its name in the registry.
"""

from collections.abc import Sequence

import tensorflow as tf

from rnn_scaling.training.all_reduce import psgpu
from rnn_scaling.training.gradients import Reduce


def build(devices: Sequence[str], shards: int) -> Reduce:
    """Return a function that sums one tensor per tower, on each tower's device.

    Each tensor is cut in `shards` pieces, which CPUs add.
    """
    return psgpu.build(devices, shards, [_find_host_cpu(device) for device in devices])


def _find_host_cpu(device: str) -> str:
    """Return `device` if it is a CPU, otherwise the first CPU of the same host."""
    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type == "CPU":
        return device
    return spec.replace(device_type="CPU", device_index=0).to_string()
