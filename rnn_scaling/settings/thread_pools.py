"""How many threads TensorFlow's two pools get."""

from __future__ import annotations

from rnn_scaling.settings.config import RunConfig


def pool_sizes(config: RunConfig, num_cores: int) -> tuple[int, int]:
    """(inter-op, intra-op) threads of a run.

    One more inter-op thread than devices: with as many, a tower's operators wait while another's are dispatched, and
    many more cost CPU time. All CPU devices share one intra-op pool, so it has as many threads as they have cores
    together; with a core a device, operators are not split at all.
    """
    devices, measure = config.devices, config.measure
    inter, intra = measure.inter_op_parallelism_threads, measure.intra_op_parallelism_threads
    if devices.device == "gpu":
        return inter or max(devices.num_devices + 1, num_cores), intra or num_cores
    per_device = devices.cpu_cores_per_device
    return inter or devices.num_devices + 1, intra or (devices.num_devices * per_device if per_device > 1 else 1)
