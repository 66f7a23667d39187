"""How many threads TensorFlow's two pools get."""

from rnn_scaling.settings.config import RunConfig


def pool_sizes(config: RunConfig, num_cores: int) -> tuple[int, int]:
    """(inter-op, intra-op) threads of a run.

    With a core per device, one inter-op thread per device: with one less, towers wait for each other's operators; one
    more competes with them for their cores (BUILD_NOTES.md has both, measured). If devices have several cores, or if a
    process also serves others, one thread more than devices. All CPU devices share one intra-op pool with a thread for
    each of their cores; with one core per device, operators are not split.
    """
    devices, measure = config.devices, config.measure
    inter, intra = measure.inter_op_parallelism_threads, measure.intra_op_parallelism_threads
    count, per_device = devices.num_devices, devices.cpu_cores_per_device
    if devices.device == "gpu":
        return inter or max(count + 1, num_cores), intra or num_cores
    alone = per_device == 1 and config.num_processes == 1
    return inter or (count if alone else count + 1), intra or (count * per_device if per_device > 1 else 1)
