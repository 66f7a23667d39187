"""A process with a tower on each of its devices, logical ones when there are too few real ones.

The towers of workers that exchange nothing are numbered over all workers.
"""

import dataclasses
from typing import Any

import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

from rnn_scaling.system.machine.gpus import (
    DeviceError,
    free_gpu_memory_mib,
    uneven_towers,
)
from rnn_scaling.training.cluster import Place

ONEDNN_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
MEMORY_SHARE = 0.9  # of a GPU's free memory that its logical devices divide; the rest is cuDNN's and the driver's


@dataclasses.dataclass(frozen=True)
class Engine:
    """Where towers run."""

    rank: int  # of this process among those that run the step, each with its own towers
    size: int  # how many run it: 1 where one client runs the step for all and drives the devices of others
    devices: tuple[str, ...]  # full name of each tower's device
    host: str  # the CPU device that holds what belongs to no tower
    device_type: str  # "CPU" or "GPU"
    num_physical: int  # real devices behind `own_devices`
    transport: str = ""  # what carries the sums of workers, if it can be chosen
    strategy: Any = None  # tf.distribute's, of modes that train with one which must be made before anything else
    servers: tuple[str, ...] = ()  # devices of the processes that only hold variables
    tower_devices: tuple[
        str, ...
    ] = ()  # where each step's tower may be, if `devices` does not say

    @property
    def num_towers(self) -> int:
        """Towers of all processes; every process has the same number."""
        return self.size * len(self.devices)

    @property
    def own_devices(self) -> tuple[str, ...]:
        """The devices of this process, which are the first where it drives those of others too."""
        return tuple(
            device for device in self.devices if _task(device) == _task(self.host)
        )

    @property
    def first_tower(self) -> int:
        """Number of this process's first tower among all."""
        return self.rank * len(self.devices)


@dataclasses.dataclass(frozen=True)
class Request:
    device: str  # "cpu" or "gpu"
    num_devices: int  # towers of this process
    inter_op_threads: int = 0  # that dispatch operators
    intra_op_threads: int = 0  # inside one operator on the CPU
    xla: bool = False  # whether XLA clusters the step's operators
    place: Place | None = (
        None  # of this process among those of its run; None: it is alone
    )


def start(request: Request) -> Engine:
    """Sets up TensorFlow's devices and thread pools; to be called before any other TensorFlow operation.

    Raises DeviceError if TensorFlow finds no GPU although one was asked for, towers would spread unevenly over the
    GPUs, or nvidia-smi does not tell how much memory they may divide.
    """
    configure(request)
    place = (
        request.place
    )  # of a worker that exchanges nothing with the others, or not by TensorFlow
    rank, size = (place.index, place.num_workers) if place else (0, 1)
    return describe(request, task_name("localhost", 0), rank, size)


def configure(request: Request) -> None:
    """Configures TensorFlow before its first operation starts it; errors as in `start`."""
    tf.config.threading.set_inter_op_parallelism_threads(request.inter_op_threads)
    tf.config.threading.set_intra_op_parallelism_threads(request.intra_op_threads)
    if request.xla:
        tf.config.optimizer.set_jit("autoclustering")
    if request.device == "cpu":
        _configure_cpus(request.num_devices)
    else:
        _configure_gpus(request.num_devices, request.place)


def describe(request: Request, task: str, rank: int, size: int) -> Engine:
    """The engine of this process after `configure`, which starts TensorFlow; DeviceError if its devices are others."""
    wanted = request.num_devices
    device_type = request.device.upper()
    names = _names(task, device_type)[:wanted]
    if len(names) < wanted:
        raise DeviceError(
            f"expected {wanted} {device_type} devices, got {len(names)}: TensorFlow had started before"
        )
    num_physical = (
        1
        if device_type == "CPU"
        else min(wanted, len(tf.config.list_physical_devices("GPU")))
    )
    return Engine(rank, size, names, _names(task, "CPU")[0], device_type, num_physical)


def task_name(job: str, index: int) -> str:
    """What the names of the devices of a process begin with."""
    return f"/job:{job}/replica:0/task:{index}"


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
    return [
        tf.config.experimental.get_memory_info(device)["peak"]
        for device in engine.own_devices
    ]


def _configure_cpus(count: int) -> None:
    tf.config.set_visible_devices([], "GPU")
    (cpu,) = tf.config.list_physical_devices("CPU")
    if count > 1:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
        )


def _configure_gpus(count: int, place: Place | None) -> None:
    gpus = tf.config.list_physical_devices("GPU")
    if (
        place is not None and len(gpus) >= place.local_size * count
    ):  # else each process sees GPUs of its own, or shares
        gpus = gpus[place.local_rank * count :]
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


def _task(device: str) -> tuple[str | None, int | None]:
    spec = tf.DeviceSpec.from_string(device)
    return spec.job, spec.task


def _names(task: str, device_type: str) -> tuple[str, ...]:
    """Full names, as variables have them: a graph that mixes two spellings shows two devices for one."""
    # TensorFlow's names in a process without a cluster leave the task out.
    known = [device.name for device in tf.config.list_logical_devices(device_type)]
    names = [name for name in known if name.startswith(("/device:", f"{task}/"))]
    return tuple(f"{task}/device:{device_type}:{index}" for index in range(len(names)))
