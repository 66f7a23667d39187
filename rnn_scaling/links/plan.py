"""Plan the measurements of a command line, without TensorFlow.

Every conflict is reported before a measurement starts.

worker.py reads the keys of a task's `request`: change both together.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rnn_scaling.config import all_reduce_spec, flags
from rnn_scaling.config import run_config as config
from rnn_scaling.config.flags import option
from rnn_scaling.config.registry import ALL_REDUCES
from rnn_scaling.config.run_config import choose_pool_sizes
from rnn_scaling.links.series import (
    FLOAT32_BYTES,
    list_sizes,
)
from rnn_scaling.system.files.terminal import format_bytes, format_count
from rnn_scaling.system.machine import system
from rnn_scaling.system.machine.cores import list_available_cores
from rnn_scaling.system.machine.gpus import (
    count_visible_gpus,
    explain_uneven_towers,
    read_free_gpu_memory_mib,
)

_MEMORY = "memory"
_COPIES = "copies"
_COMPUTE = "compute"
ALL_REDUCE = "all_reduce"
PARTS = (_MEMORY, _COPIES, _COMPUTE, ALL_REDUCE)
NOTHING = "nothing"  # the series of the call in which nothing is exchanged
_ALL_REDUCE_TITLE = "all-reduce"
ALL = "all"
# Factor between sizes of memory and copies. They are fast, and fits need points.
_FINE_STEP = 2
_MIN_MEMORY_BYTES = 1024  # smaller transfers only measure the call from Python
_MEMORY_BUFFERS = 4  # buffers: source and target, for one core and for all
_MAX_DEVICES = 1024
# Tensors of the largest size in addition to the inputs: results and pieces in flight.
# Of all algorithms xring and rechd need most memory.
_WORKING_COPIES = 4
_PROCESS_BYTES = 700 * 2**20  # memory of TensorFlow
_USABLE_SHARE = 0.8  # share of the free memory
# Matrix products [m, k] x [k, n] by increasing operations: squares, and the scores of
# 32 sentences of 30 words.
_CPU_SHAPES = (
    (512, 512, 512),
    (1024, 1024, 1024),
    (960, 256, 8000),
    (2048, 2048, 2048),
)
_GPU_SHAPES = (
    (960, 256, 8000),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
)
_CPU_DTYPES = ("float32", "bfloat16")
_GPU_DTYPES = ("float32", "bfloat16", "float16")
_UNITS = {"": 1, "k": 2**10, "M": 2**20, "G": 2**30}


@dataclasses.dataclass(frozen=True)
class LinkOptions:
    """Links."""

    out: str = option(
        "results/links",
        "folder of links.md, links.json, all_reduce.txt and the pictures",
    )
    measure: str = option(",".join(PARTS), "kinds of measurements, separated by commas")
    device: str = option(
        "auto",
        "kind of device; auto uses gpu if one is visible",
        choices=("auto", "cpu", "gpu"),
    )
    num_devices: int = option(
        0,
        "number of ranks of the all-reduce (0: all GPUs, or one logical CPU "
        "device per core, 2 to 4); with --measure=compute, the number of devices "
        "that compute at once (0: all)",
        minimum=0,
    )
    cpu_cores_per_device: int = option(
        1,
        "number of cores per CPU device in --measure=compute",
        minimum=1,
        maximum=1_024,
    )
    algorithms: str = option(
        ALL,
        "all-reduce algorithms as in --all_reduce_spec, separated by commas, "
        "such as xring#2,pscpu; all: every one that can run",
    )
    min_bytes: str = option(
        "4",
        "size of the smallest transfer, in bytes, or with k, M or G (powers of 1024)",
    )
    max_bytes: str = option("256M", "size of the largest transfer, in the same units")
    step_factor: int = option(
        4, "factor between one size of the all-reduce and the next", minimum=2
    )
    rounds: int = option(
        10,
        "number of repeats of each size in a pass; sizes and links take turns",
        minimum=3,
    )
    passes: int = option(
        2,
        "number of passes over the algorithms; every second pass is reversed, "
        "so that drift is visible",
        minimum=1,
    )
    timeout: float = option(
        300.0,
        "time limit of one measurement in seconds; its process is ended after that",
        minimum=1.0,
    )
    progress: bool = option(True, "show progress on stderr")


@dataclasses.dataclass(frozen=True)
class LinkTask:
    """One process of the measurement.

    Attributes:
      title: The description for messages.
      series: The name of its series, or its title if it measures several.
      request: The measurement, which `worker.main` reads from a JSON file.
    """

    title: str
    series: str
    request: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The measurements; `left_out` has the reason for each one that is left out."""

    options: LinkOptions
    device: str
    num_devices: int
    devices: str
    tasks: tuple[LinkTask, ...]
    left_out: tuple[str, ...]


def make(words: Sequence[str]) -> Plan:
    """Plan the measurements of a command line on this machine.

    Raises:
      FlagErrors: With all conflicts.
      OSError: If the system does not report the free memory.
      DeviceError: If nvidia-smi does not report the free memory of a GPU.
    """
    num_gpus = count_visible_gpus()
    num_cores = len(list_available_cores())
    values, lines = flags.parse_with_errors(words, flags.collect_fields([LinkOptions]))
    unchecked = LinkOptions(**values)
    parts = unchecked.measure.split(",")
    device = unchecked.device
    if device not in ("cpu", "gpu"):
        device = "gpu" if num_gpus else "cpu"
    default_ranks = num_gpus if device == "gpu" else min(4, max(2, num_cores))
    ranks = unchecked.num_devices or default_ranks
    lines += _find_problems(
        unchecked, parts=parts, device=device, num_gpus=num_gpus, num_cores=num_cores
    )
    smallest, largest = _parse_size_range(unchecked, lines)
    num_physical = num_gpus if device == "gpu" else 1
    names, left_out, errors = parse_algorithms(
        unchecked.algorithms, device, ranks, num_physical
    )
    (options,) = flags.build([LinkOptions], values, lines + errors)
    if ALL_REDUCE not in parts or ranks < 2:
        left_out = []
    planner = _Planner(
        options,
        device=device,
        ranks=ranks,
        num_gpus=num_gpus,
        num_cores=num_cores,
        left_out=left_out,
    )
    tasks: list[LinkTask] = []
    if _MEMORY in parts:
        tasks += planner.plan_memory(smallest, largest)
    if _COPIES in parts:
        tasks += planner.plan_copies(smallest, largest)
    if _COMPUTE in parts:
        tasks += planner.plan_products()
    if ALL_REDUCE in parts:
        tasks += planner.plan_all_reduces(names, smallest, largest)
    num_physical = num_gpus if device == "gpu" else num_cores
    return Plan(
        options,
        device=device,
        num_devices=ranks,
        devices=_describe_devices(device, ranks, num_physical),
        tasks=tuple(tasks),
        left_out=tuple(planner.left_out),
    )


def _parse_size_range(options: LinkOptions, errors: list[str]) -> tuple[int, int]:
    """Return the smallest and the largest size in bytes; conflicts join `errors`."""
    smallest = _parse_size("min_bytes", options.min_bytes, errors)
    largest = _parse_size("max_bytes", options.max_bytes, errors)
    if smallest > largest > 0:
        errors.append(
            f"--min_bytes={options.min_bytes} must be at most "
            f"--max_bytes={options.max_bytes}"
        )
    return smallest, largest


def _find_problems(
    options: LinkOptions,
    parts: Sequence[str],
    device: str,
    num_gpus: int,
    num_cores: int,
) -> list[str]:
    """Return the conflicts of the flags with each other and with the machine."""
    ranks = options.num_devices
    cores = options.cpu_cores_per_device
    reads_cores = device == "cpu" and _COMPUTE in parts
    cores_flag = f"--cpu_cores_per_device={cores}"
    problems = []
    if set(parts) - set(PARTS):
        problems.append(
            f"--measure={','.join(parts)} must list one or more of "
            f"{', '.join(PARTS)}, separated by commas"
        )
    if options.device == "gpu" and not num_gpus:
        problems.append(
            "--device=gpu needs a GPU, but none is visible; use --device=cpu"
        )
    if ranks > _MAX_DEVICES:
        problems.append(f"--num_devices={ranks} must be at most {_MAX_DEVICES}")
    if ranks == 1 and ALL_REDUCE in parts:
        problems.append(
            "--num_devices=1 is too few for an all-reduce; use 2 or more, or "
            "--measure=memory,copies,compute"
        )
    if cores > 1 and not reads_cores:
        problems.append(
            f"{cores_flag} applies only to --measure=compute on CPUs; leave it out"
        )
    if cores > num_cores and reads_cores:
        problems.append(
            f"{cores_flag} must be at most {num_cores}, the number of cores"
        )
    if device == "gpu" and num_gpus and 1 < ranks <= _MAX_DEVICES:
        problems.append(explain_uneven_towers(ranks, num_gpus))
    return [problem for problem in problems if problem]


def _parse_size(name: str, text: str, lines: list[str]) -> int:
    """Return the bytes of a flag, or 0 after adding its error to `lines`."""
    match = re.fullmatch(r"([0-9]{1,12})([kKMG]?)", text)
    size = int(match[1]) * _UNITS[match[2].replace("K", "k")] if match else 0
    if size < FLOAT32_BYTES or size % FLOAT32_BYTES or size > 2**36:
        lines.append(
            f"--{name}={text} must be a multiple of 4 bytes from 4 to 64G, such as 4, "
            "64k or 256M"
        )
        return 0
    return size


class _Planner:
    """Plans the tasks of each part, and leaves out sizes without memory."""

    def __init__(
        self,
        options: LinkOptions,
        device: str,
        ranks: int,
        num_gpus: int,
        num_cores: int,
        left_out: list[str],
    ) -> None:
        self._options = options
        self._device = device
        self._ranks = ranks
        self._num_gpus = num_gpus
        self._num_cores = num_cores
        self.left_out = left_out
        free_bytes = system.find_available_memory_bytes()
        if free_bytes is None:
            raise OSError(
                "the system does not report how much memory is free; measure on Linux, "
                "where /proc/meminfo has MemAvailable"
            )
        self._free = free_bytes

    def _make_task(
        self, title: str, part: str, series: str = "", **fields: Any
    ) -> LinkTask:
        """Return a task on all ranks; `fields` replace or extend its request."""
        pools = _choose_threads(self._device, self._ranks, self._num_cores)
        request = {
            "what": part,
            "device": self._device,
            "num_devices": self._ranks,
            "rounds": self._options.rounds,
            "inter_op_threads": pools[0],
            "intra_op_threads": pools[1],
        }
        return LinkTask(title, series or title, request | fields)

    def _select_fitting_sizes(
        self,
        title: str,
        sizes: Sequence[int],
        needed: Callable[[Sequence[int]], int],
        free_bytes: int,
        memory: str = "of memory",
    ) -> list[int]:
        """Return the smallest sizes that fit into _USABLE_SHARE of the free memory."""
        fitting = list(sizes)
        while fitting and needed(fitting) > _USABLE_SHARE * free_bytes:
            fitting.pop()
        if len(fitting) < len(sizes):
            large = ", ".join(map(format_bytes, sizes[len(fitting) :]))
            self.left_out.append(
                f"{title} of {large}: needs {format_bytes(needed(sizes))} {memory}, "
                f"but only {format_bytes(free_bytes)} are free; lower --max_bytes"
            )
        return fitting

    def plan_memory(self, smallest: int, largest: int) -> list[LinkTask]:
        first = min(max(smallest, _MIN_MEMORY_BYTES), largest)
        sizes = self._select_fitting_sizes(
            "host memory",
            list_sizes(first, largest, _FINE_STEP),
            lambda sizes: _MEMORY_BUFFERS * sizes[-1],
            self._free,
        )
        return [self._make_task("host memory", _MEMORY, sizes=sizes)] if sizes else []

    def plan_copies(self, smallest: int, largest: int) -> list[LinkTask]:
        """Return the tasks of copies with GPUs, or between logical CPUs."""
        on_gpus = self._device == "gpu"
        step = _FINE_STEP if on_gpus else self._options.step_factor
        sizes = self._select_fitting_sizes(
            "copies",
            list_sizes(smallest, largest, step),
            lambda sizes: estimate_needed_bytes(sizes, 2),
            self._free,
        )
        if not sizes:
            return []
        if not on_gpus:
            # Two logical CPUs suffice, because all have the same memory.
            task = self._make_task(
                "copies between logical CPU devices",
                "cpu_copies",
                sizes=sizes,
                num_devices=2,
                inter_op_threads=2,
            )
            return [task]
        # One task for links with the host, and one per GPU for links with later GPUs,
        # because --timeout is the limit of one task.
        gpus = list(range(min(self._ranks, self._num_gpus)))
        tasks = []
        for origin in (None, *gpus[:-1]):
            title = "copies between host and GPUs"
            if origin is not None:
                title = f"copies between GPU {origin} and later ones"
            devices = gpus[origin or 0 :]
            tasks.append(
                self._make_task(
                    title, "gpu_copies", sizes=sizes, devices=devices, origin=origin
                )
            )
        return tasks

    def plan_products(self) -> list[LinkTask]:
        """Return the tasks of one device, and of all real devices at once."""
        on_gpus = self._device == "gpu"
        cores = self._options.cpu_cores_per_device
        num_real = self._num_gpus if on_gpus else self._num_cores // cores
        tasks = []
        for count in sorted({1, min(self._options.num_devices or num_real, num_real)}):
            pools = _choose_threads(self._device, count, self._num_cores, cores)
            tasks.append(
                self._make_task(
                    f"matrix products on {format_count(count, 'device')}",
                    _COMPUTE,
                    cores_per_device=0 if on_gpus else cores,
                    shapes=_GPU_SHAPES if on_gpus else _CPU_SHAPES,
                    dtypes=_GPU_DTYPES if on_gpus else _CPU_DTYPES,
                    num_devices=count,
                    inter_op_threads=pools[0],
                    intra_op_threads=pools[1],
                )
            )
        return tasks

    def plan_all_reduces(
        self, names: Sequence[str], smallest: int, largest: int
    ) -> list[LinkTask]:
        """Return a task per algorithm and pass, and of a call that exchanges nothing.

        Every second pass is reversed, so that a steady drift affects all equally.
        """
        if self._ranks < 2:
            self.left_out.append(
                "all-reduce: needs at least two devices; --num_devices=2 divides the "
                "GPU into two logical ones"
            )
            return []
        sizes = self._select_fitting_sizes(
            _ALL_REDUCE_TITLE,
            list_sizes(smallest, largest, self._options.step_factor),
            lambda sizes: estimate_needed_bytes(sizes, self._ranks),
            self._free,
        )
        if self._device == "gpu":
            per_gpu = -(-self._ranks // self._num_gpus)
            sizes = self._select_fitting_sizes(
                _ALL_REDUCE_TITLE,
                sizes=sizes,
                needed=lambda sizes: estimate_needed_bytes(sizes, per_gpu),
                free_bytes=read_free_gpu_bytes(min(self._ranks, self._num_gpus)),
                memory="of a GPU's memory",
            )
        tasks: list[LinkTask] = []
        passes = self._options.passes if sizes else 0
        for turn in range(passes):
            order = ["", *names]
            if turn % 2:
                order = [*reversed(names), ""]
            for name in order:
                title = "the call with nothing exchanged"
                if name:
                    title = f"all-reduce by {name}"
                if passes > 1:
                    title += f", pass {turn + 1} of {passes}"
                series = name or NOTHING
                tasks.append(
                    self._make_task(
                        title, ALL_REDUCE, series, algorithm=name, sizes=sizes
                    )
                )
        return tasks


class Algorithms(NamedTuple):
    """The all-reduces of --algorithms.

    Attributes:
      names: The algorithms to measure.
      left_out: For "all": a reason for each algorithm that cannot run here.
      errors: For other texts: the mistakes in them.
    """

    names: list[str]
    left_out: list[str]
    errors: list[str]


def parse_algorithms(
    text: str, device: str, ranks: int, num_physical: int
) -> Algorithms:
    """Check the all-reduces of --algorithms.

    Args:
      text: The value of the flag.
      device: "cpu" or "gpu".
      ranks: Number of ranks.
      num_physical: Devices that the ranks share.
    """
    names = list(ALL_REDUCES) if text == ALL else text.split(",")
    usable: list[str] = []
    errors: list[str] = []
    for name in names:
        problems: list[str] = []
        try:
            segments = all_reduce_spec.parse(name)
            if len(segments) > 1 or segments[0].algorithm == all_reduce_spec.AUTO:
                raise ValueError(
                    f"--algorithms={name} must be one algorithm without size limits, "
                    "such as pscpu or xring#2"
                )
            if ranks > 1:
                problems = all_reduce_spec.find_conflicts(
                    segments, device, ranks, num_physical
                )
        except ValueError as e:
            problems = [str(e)]
        for line in problems:
            errors.append(line.replace("--all_reduce_spec=", "--algorithms="))
        if not problems and name not in usable:
            usable.append(name)
    if text != ALL:
        return Algorithms(usable, [], errors)
    left_out = [line.removeprefix("--algorithms=").partition(";")[0] for line in errors]
    return Algorithms(usable, left_out, [])


def _choose_threads(
    device: str, ranks: int, num_cores: int, cores_per_device: int = 1
) -> tuple[int, int]:
    """Return the trainer's inter-op and intra-op threads."""
    options = {
        "device": device,
        "num_devices": ranks,
        "cpu_cores_per_device": cores_per_device,
    }
    num_gpus = 0
    cores = min(num_cores, ranks * cores_per_device)
    if device == "gpu":
        num_gpus = ranks
        cores = num_cores
    resolved = config.resolve(options, num_gpus=num_gpus, num_cores=num_cores)
    return choose_pool_sizes(resolved, cores)


def _describe_devices(device: str, ranks: int, num_physical: int) -> str:
    """Describe the devices of the ranks on `num_physical` GPUs or cores."""
    is_shared = ranks > num_physical
    if device == "gpu":
        return format_count(ranks, "logical GPU" if is_shared else "GPU")
    shared_text = f" on {num_physical} cores" if is_shared else ""
    return f"{ranks} logical CPU devices of one host's memory{shared_text}"


def estimate_needed_bytes(sizes: Sequence[int], num_devices: int) -> int:
    """Return the peak memory of all-reduces of these sizes.

    It consists of inputs of all sizes, and the working memory of the largest.
    """
    largest = max(sizes, default=0)
    return _PROCESS_BYTES + num_devices * (sum(sizes) + _WORKING_COPIES * largest)


def read_free_gpu_bytes(num_gpus: int) -> int:
    """Return the smallest free memory of the GPUs.

    Raises:
      DeviceError: If nvidia-smi does not report it.
    """
    return int(min(read_free_gpu_memory_mib(gpu) for gpu in range(num_gpus)) * 2**20)
