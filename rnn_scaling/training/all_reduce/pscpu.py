"""The additions on the host: on the towers' own devices if these are CPUs, else on the towers' host CPU."""

from collections.abc import Sequence

import tensorflow as tf

from rnn_scaling.training.all_reduce import psgpu
from rnn_scaling.training.gradients import Reduce


def build(devices: Sequence[str], shards: int) -> Reduce:
    """One tensor a tower -> their sum on each tower's device, added on CPUs in `shards` pieces."""
    return psgpu.build(devices, shards, [_host_cpu(device) for device in devices])


def _host_cpu(device: str) -> str:
    """`device` itself if it is a CPU, else the first CPU of the same host."""
    spec = tf.DeviceSpec.from_string(device)
    return (
        device
        if spec.device_type == "CPU"
        else spec.replace(device_type="CPU", device_index=0).to_string()
    )
