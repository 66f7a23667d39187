"""The engine of a process that drives only its own devices: one tower per device.

An engine names the devices of a run's towers. It is a module with a function
`start(request)` that configures TensorFlow and returns an `Engine`. The other modules
of this package are engines for several processes and use `configure` and `describe`.

If the process has too few physical devices, they are divided into logical devices. The
towers of workers that exchange nothing are numbered over all workers.
"""

import dataclasses
from typing import Any

import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

from rnn_scaling.system.machine.gpus import (
    DeviceError,
    explain_uneven_towers,
    read_free_gpu_memory_mib,
)
from rnn_scaling.training.cluster import RankPosition

# Share of a GPU's free memory that its logical devices divide. cuDNN and the driver
# need the remaining memory.
_MEMORY_SHARE = 0.9


@dataclasses.dataclass(frozen=True)
class Engine:
    """The devices of the towers, and this process among the processes of the step."""

    rank: int  # this process among the processes that run the step
    # Processes that run the step; 1 if one client drives the devices of all processes.
    size: int
    devices: tuple[str, ...]  # full name of each tower's device
    host: str  # the CPU for tensors that do not belong to a tower
    device_type: str  # "CPU" or "GPU"
    num_physical: int  # physical devices behind `own_devices`
    transport: str = ""  # transport of the workers' sums, if it can be chosen
    # The strategy of tf.distribute, for modes that must create it first.
    strategy: Any = None
    servers: tuple[str, ...] = ()  # devices of processes that only store variables
    # Possible devices of a step's tower, if `devices` is not fixed.
    tower_devices: tuple[str, ...] = ()

    @property
    def num_towers(self) -> int:
        """Towers of all processes, which all have the same number of towers."""
        return self.size * len(self.devices)

    @property
    def own_devices(self) -> tuple[str, ...]:
        """The devices of this process.

        They come first if it also drives devices of other processes.
        """
        return tuple(
            device
            for device in self.devices
            if _parse_task(device) == _parse_task(self.host)
        )

    @property
    def first_tower(self) -> int:
        """The number of this process's first tower, counted over all processes."""
        return self.rank * len(self.devices)


@dataclasses.dataclass(frozen=True)
class Request:
    """The devices and threads that a run needs."""

    device: str  # "cpu" or "gpu"
    num_devices: int  # towers of this process
    inter_op_threads: int = 0  # threads that dispatch operators
    intra_op_threads: int = 0  # threads inside one operator on the CPU
    xla: bool = False  # whether XLA clusters the step's operators
    # This process among the processes of the run; None for a single process.
    position: RankPosition | None = None


def start(request: Request) -> Engine:
    """Set up TensorFlow's devices and thread pools, before any TensorFlow operation.

    Raises:
      DeviceError: If TensorFlow does not find a requested GPU, if the towers would
        spread unevenly over the GPUs, or if nvidia-smi does not report the free memory.
    """
    configure(request)
    # A worker with a position exchanges nothing with the others, or not by TensorFlow.
    position = request.position
    rank = position.index if position else 0
    size = position.num_workers if position else 1
    return describe(request, make_task_name("localhost", 0), rank, size)


def configure(request: Request) -> None:
    """Configure TensorFlow before its first operation; raises like `start`."""
    tf.config.threading.set_inter_op_parallelism_threads(request.inter_op_threads)
    tf.config.threading.set_intra_op_parallelism_threads(request.intra_op_threads)
    if request.xla:
        tf.config.optimizer.set_jit("autoclustering")
    if request.device == "cpu":
        _configure_cpus(request.num_devices)
    else:
        _configure_gpus(request.num_devices, request.position)


def describe(request: Request, task: str, rank: int, size: int) -> Engine:
    """Start TensorFlow after `configure` and return the engine of this process.

    Raises:
      DeviceError: If TensorFlow does not have the requested devices.
    """
    num_devices = request.num_devices
    device_type = request.device.upper()
    names = _list_device_names(task, device_type)[:num_devices]
    if len(names) < num_devices:
        raise DeviceError(
            f"expected {num_devices} {device_type} devices, got {len(names)}: "
            "TensorFlow had already started"
        )
    num_physical = 1
    if device_type == "GPU":
        num_physical = min(num_devices, len(tf.config.list_physical_devices("GPU")))
    host = _list_device_names(task, "CPU")[0]
    return Engine(
        rank,
        size=size,
        devices=names,
        host=host,
        device_type=device_type,
        num_physical=num_physical,
    )


def make_task_name(job: str, index: int) -> str:
    """Return the prefix of the names of a process's devices."""
    return f"/job:{job}/replica:0/task:{index}"


def uses_onednn() -> bool:
    """Return whether TensorFlow rewrites graphs for oneDNN and runs its CPU operators.

    By default it does on processors with AVX512-VNNI, AVX-VNNI, AVX512-BF16 or AMX and
    on ARM's Neoverse V1. ONEDNN_VARIABLE overrides that.

    Source: tensorflow/core/util/port.cc, DefaultOneDnnPolicy.
    """
    return bool(_pywrap_util_port.IsMklEnabled())


def read_peak_device_bytes(engine: Engine) -> list[int] | None:
    """Return the peak of the bytes in use on each GPU, or None on CPUs."""
    if engine.device_type != "GPU":
        return None
    return [
        tf.config.experimental.get_memory_info(device)["peak"]
        for device in engine.own_devices
    ]


def _configure_cpus(count: int) -> None:
    """Divide the CPU into logical devices, and hide all GPUs."""
    tf.config.set_visible_devices([], "GPU")
    (cpu,) = tf.config.list_physical_devices("CPU")
    if count > 1:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
        )


def _configure_gpus(count: int, position: RankPosition | None) -> None:
    """Choose the GPUs of this process and divide them if there are too few."""
    gpus = tf.config.list_physical_devices("GPU")
    # With fewer GPUs, each process sees only its own GPUs, or the processes share them.
    if position is not None and len(gpus) >= position.local_size * count:
        gpus = gpus[position.local_rank * count :]
    if not gpus:
        raise DeviceError(
            "--device=gpu: the driver shows a GPU but TensorFlow cannot use it; "
            "install tensorflow[and-cuda] (./run.sh does) or give --device=cpu"
        )
    uneven = explain_uneven_towers(count, len(gpus))
    if uneven:
        raise DeviceError(uneven)
    gpus = gpus[: min(count, len(gpus))]
    tf.config.set_visible_devices(gpus, "GPU")
    for index, gpu in enumerate(gpus):
        towers = count // len(gpus)
        if towers == 1:
            tf.config.experimental.set_memory_growth(gpu, True)
            continue
        limit_mib = int(read_free_gpu_memory_mib(index) * _MEMORY_SHARE / towers)
        logical_device = tf.config.LogicalDeviceConfiguration(memory_limit=limit_mib)
        tf.config.set_logical_device_configuration(gpu, [logical_device] * towers)


def _parse_task(device: str) -> tuple[str | None, int | None]:
    """Return the job and the task in the name of a device."""
    spec = tf.DeviceSpec.from_string(device)
    return spec.job, spec.task


def _list_device_names(task: str, device_type: str) -> tuple[str, ...]:
    """Return the full names of a process's devices, which variables also use.

    A graph with two spellings of a device would show two devices.
    """
    # In a process without a cluster, TensorFlow's names do not contain the task.
    prefixes = ("/device:", f"{task}/")
    devices = tf.config.list_logical_devices(device_type)
    count = sum(device.name.startswith(prefixes) for device in devices)
    return tuple(f"{task}/device:{device_type}:{index}" for index in range(count))
