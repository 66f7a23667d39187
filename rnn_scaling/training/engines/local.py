"""One process on one machine: a tower on each of its devices, logical ones when there are too few real ones."""

from __future__ import annotations

import dataclasses

import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

from rnn_scaling.machine.gpus import DeviceError, free_gpu_memory_mib, uneven_towers

ONEDNN_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
MEMORY_SHARE = 0.9  # of a GPU's free memory that its logical devices divide; the rest is cuDNN's and the driver's


@dataclasses.dataclass(frozen=True)
class Engine:
    """Where towers run.

    rank, size: of this process among those that run the step, each with its own towers; (0, 1) where one client runs
    the step for all, as for one process and where it drives the devices of others.
    """

    rank: int
    size: int
    devices: tuple[str, ...]  # full name of each tower's device
    host: str  # the CPU device that holds what belongs to no tower
    device_type: str  # "CPU" or "GPU"
    num_physical: int  # real devices behind `devices`

    @property
    def num_towers(self) -> int:
        """Towers of all processes; each process has as many."""
        return self.size * len(self.devices)

    @property
    def first_tower(self) -> int:
        """Number of this process's first tower among all."""
        return self.rank * len(self.devices)


def start(device: str, num_devices: int, inter_op_threads: int, intra_op_threads: int, xla: bool) -> Engine:
    """Sets up TensorFlow's devices and thread pools; to be called before any other TensorFlow operation.

    Args:
      device: "cpu" or "gpu".
      num_devices: towers.
      inter_op_threads: threads that dispatch operators.
      intra_op_threads: threads inside one operator on the CPU.
      xla: whether XLA clusters the step's operators.

    Raises:
      DeviceError: if TensorFlow finds no GPU although one was asked for, towers would spread unevenly over the GPUs,
        or nvidia-smi does not tell how much memory they may divide.
    """
    tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads)
    tf.config.threading.set_intra_op_parallelism_threads(intra_op_threads)
    if xla:
        tf.config.optimizer.set_jit("autoclustering")
    if device == "cpu":
        return _cpus(num_devices)
    return _gpus(num_devices)


def uses_onednn() -> bool:
    """Whether TensorFlow rewrites graphs for oneDNN and runs its kernels on CPUs.

    By default it does on processors with AVX512-VNNI, AVX-VNNI, AVX512-BF16 or AMX and on ARM's Neoverse V1;
    ONEDNN_VARIABLE overrules that. Source: tensorflow/core/util/port.cc, DefaultOneDnnPolicy.
    """
    return bool(_pywrap_util_port.IsMklEnabled())


def peak_device_bytes(engine: Engine) -> list[int] | None:
    """The most that TensorFlow had in use on each GPU at once; None on CPUs, where it does not count."""
    if engine.device_type != "GPU":
        return None
    return [tf.config.experimental.get_memory_info(device)["peak"] for device in engine.devices]


def _cpus(count: int) -> Engine:
    tf.config.set_visible_devices([], "GPU")
    (cpu,) = tf.config.list_physical_devices("CPU")
    wanted = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    if count > 1:
        tf.config.set_logical_device_configuration(cpu, wanted)
    names = _names("CPU")[:count]
    if len(names) < count:
        raise DeviceError(f"expected {count} logical CPU devices, got {len(names)}: TensorFlow had started before")
    return Engine(0, 1, names, names[0], "CPU", 1)


def _gpus(count: int) -> Engine:
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise DeviceError(
            "--device=gpu: the driver shows a GPU but TensorFlow cannot use it; install "
            "tensorflow[and-cuda] (./run.sh does) or give --device=cpu"
        )
    uneven = uneven_towers(count, len(gpus))
    if uneven:
        raise DeviceError(uneven)
    used = gpus[: min(count, len(gpus))]
    tf.config.set_visible_devices(used, "GPU")
    for index, gpu in enumerate(used):
        towers = count // len(used)
        if towers == 1:
            tf.config.experimental.set_memory_growth(gpu, True)
            continue
        limit_mib = int(free_gpu_memory_mib(index) * MEMORY_SHARE / towers)
        part = tf.config.LogicalDeviceConfiguration(memory_limit=limit_mib)
        tf.config.set_logical_device_configuration(gpu, [part] * towers)
    return Engine(0, 1, _names("GPU"), _names("CPU")[0], "GPU", len(used))


def _names(device_type: str) -> tuple[str, ...]:
    """Full names, as variables have them: a graph that mixes two spellings shows two devices for one."""
    return tuple(f"/job:localhost/replica:0/task:0{d.name}" for d in tf.config.list_logical_devices(device_type))
