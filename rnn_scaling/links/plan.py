"""Command line -> what will be measured, with every conflict found before anything starts. No TensorFlow here."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.config import all_reduce_spec, flags
from rnn_scaling.config import run_config as config
from rnn_scaling.config.flags import option
from rnn_scaling.config.registry import ALL_REDUCES
from rnn_scaling.config.run_config import pool_sizes
from rnn_scaling.links.series import FLOAT32_BYTES, size_text, sizes_between
from rnn_scaling.system.machine import system
from rnn_scaling.system.machine.cores import available_cores
from rnn_scaling.system.machine.gpus import (
    free_gpu_memory_mib,
    uneven_towers,
    visible_gpus,
)

MEMORY, COPIES, COMPUTE, ALL_REDUCE = PARTS = (
    "memory",
    "copies",
    "compute",
    "all_reduce",
)
ALL = "all"
FINE_STEP = 2  # between sizes of memory and copies, which cost little: a fit is as good as it has points
SMALLEST_MEMORY = 1024  # below, one sees the call from Python alone
MEMORY_BUFFERS = 4  # of the largest size: source and target, of one core and of all
MOST_DEVICES = 1024
# Of the largest size, in addition to the inputs: results, and pieces in flight. benchmarks: xring and rechd hold most.
WORKING_COPIES = 4
PROCESS_BYTES = 700 * 2**20  # TensorFlow itself
SHARE = 0.8  # of the free memory
# Matrix products [m, k] x [k, n] by increasing operations: squares, and the scores of 32 sentences of 30 words.
CPU_SHAPES = ((512, 512, 512), (1024, 1024, 1024), (960, 256, 8000), (2048, 2048, 2048))
GPU_SHAPES = (
    (960, 256, 8000),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
)
CPU_DTYPES, GPU_DTYPES = ("float32", "bfloat16"), ("float32", "bfloat16", "float16")
_UNITS = {"": 1, "k": 2**10, "M": 2**20, "G": 2**30}


@dataclasses.dataclass(frozen=True)
class LinkOptions:
    """Links."""

    out: str = option(
        "results/links",
        "folder of links.md, links.json, all_reduce.txt and the pictures",
    )
    measure: str = option(",".join(PARTS), "what is measured, separated by commas")
    device: str = option(
        "auto",
        "kind of device; auto is gpu where one is visible",
        choices=("auto", "cpu", "gpu"),
    )
    num_devices: int = option(
        0,
        "ranks of the all-reduce (0: all GPUs, or one logical CPU device per core, 2 to 4); "
        "devices that compute at once (0: all)",
        minimum=0,
    )
    cpu_cores_per_device: int = option(
        1, "cores of a CPU device in --measure=compute", minimum=1, maximum=1_024
    )
    algorithms: str = option(
        ALL,
        "all-reduces, as in --all_reduce_spec, separated by commas (xring#2,pscpu); all: every one that can run",
    )
    min_bytes: str = option(
        "4", "smallest transfer, in bytes, or with k, M or G: powers of 1024"
    )
    max_bytes: str = option("256M", "largest transfer")
    step_factor: int = option(
        4, "from one size of the all-reduce to the next", minimum=2
    )
    rounds: int = option(
        10, "repeats of each size in a pass; sizes and links take turns", minimum=3
    )
    passes: int = option(
        2,
        "passes over the algorithms; every second one is reversed, so that drift is visible",
        minimum=1,
    )
    timeout: float = option(
        300.0,
        "seconds that one measurement may take; its process is ended then",
        minimum=1.0,
    )
    progress: bool = option(True, "show progress on stderr")


@dataclasses.dataclass(frozen=True)
class LinkTask:
    """One process: `what` in words, and what `worker.main` is asked for."""

    what: str
    request: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What will be measured; `left_out`: what is not measured and why."""

    options: LinkOptions
    device: str
    num_devices: int
    devices: str
    tasks: tuple[LinkTask, ...]
    left_out: tuple[str, ...]


def make(words: Sequence[str]) -> Plan:
    """What the command line asks for on this machine. Raises FlagErrors naming everything that is wrong."""
    num_gpus, cores = visible_gpus(), available_cores()
    given, lines = flags.parsed(words, flags.fields([LinkOptions]))
    asked = LinkOptions(**given)
    parts = asked.measure.split(",")
    device = (
        asked.device if asked.device in ("cpu", "gpu") else "gpu" if num_gpus else "cpu"
    )
    ranks = asked.num_devices or (
        num_gpus if device == "gpu" else min(4, max(2, len(cores)))
    )
    lines += _problems(asked, parts, device, num_gpus, len(cores))
    bounds = (
        _size("min_bytes", asked.min_bytes, lines),
        _size("max_bytes", asked.max_bytes, lines),
    )
    if bounds[0] > bounds[1] > 0:
        lines.append(
            f"--min_bytes={asked.min_bytes} is more than --max_bytes={asked.max_bytes}"
        )
    names, left_out, wrong = algorithms(
        asked.algorithms, device, ranks, num_gpus if device == "gpu" else 1
    )
    (options,) = flags.build([LinkOptions], given, lines + wrong)
    common = {"device": device, "num_devices": ranks, "rounds": options.rounds}
    common["inter_op_threads"], common["intra_op_threads"] = threads(
        device, ranks, len(cores)
    )
    tasks, more_left_out = _tasks(
        parts, common, names, bounds, options, num_gpus, len(cores)
    )
    left_out = [
        *(left_out if ALL_REDUCE in parts and ranks > 1 else []),
        *more_left_out,
    ]
    in_words = _in_words(device, ranks, num_gpus if device == "gpu" else len(cores))
    return Plan(options, device, ranks, in_words, tuple(tasks), tuple(left_out))


def _problems(
    asked: LinkOptions, parts: Sequence[str], device: str, num_gpus: int, num_cores: int
) -> list[str]:
    ranks, cores = asked.num_devices, asked.cpu_cores_per_device
    reads_cores = device == "cpu" and COMPUTE in parts
    problems = {
        f"--measure={','.join(parts)} must be some of {', '.join(PARTS)}, separated by commas": set(
            parts
        )
        - set(PARTS),
        "--device=gpu needs a GPU, none is visible; use --device=cpu": asked.device
        == "gpu"
        and not num_gpus,
        f"--num_devices={ranks} must be at most {MOST_DEVICES}": ranks > MOST_DEVICES,
        "--num_devices=1 leaves an all-reduce nothing to do; use 2 or more, or --measure=memory,copies,compute": (
            ranks == 1 and ALL_REDUCE in parts
        ),
        f"--cpu_cores_per_device={cores} is read by --measure=compute on CPUs alone; leave it out": (
            cores > 1 and not reads_cores
        ),
        f"--cpu_cores_per_device={cores} must be at most {num_cores}, the cores that there are": (
            cores > num_cores and reads_cores
        ),
    }
    uneven = (
        uneven_towers(ranks, num_gpus)
        if device == "gpu" and num_gpus and 1 < ranks <= MOST_DEVICES
        else ""
    )
    return [line for line, applies in problems.items() if applies] + (
        [uneven] if uneven else []
    )


def _size(name: str, text: str, lines: list[str]) -> int:
    """Bytes that a flag says, or 0 after adding what is wrong with it."""
    match = re.fullmatch(r"([0-9]{1,12})([kKMG]?)", text)
    size = int(match[1]) * _UNITS[match[2].replace("K", "k")] if match else 0
    if size < FLOAT32_BYTES or size % FLOAT32_BYTES or size > 2**36:
        lines.append(
            f"--{name}={text} must be a multiple of 4 bytes from 4 to 64G, such as 4, 64k or 256M"
        )
        return 0
    return size


def _tasks(
    parts: Sequence[str],
    common: Mapping[str, Any],
    names: Sequence[str],
    bounds: tuple[int, int],
    options: LinkOptions,
    num_gpus: int,
    num_cores: int,
) -> tuple[list[LinkTask], list[str]]:
    """(what to run, what is left out and why)."""
    free, ranks, tasks = system.available_memory_bytes(), common["num_devices"], []
    if free is None:
        raise OSError(
            "the system does not tell how much memory is free (no MemAvailable in /proc/meminfo)"
        )
    left_out: list[str] = []
    if MEMORY in parts:
        wanted = sizes_between(
            min(max(bounds[0], SMALLEST_MEMORY), bounds[1]), bounds[1], FINE_STEP
        )
        sizes = [s for s in wanted if MEMORY_BUFFERS * s <= SHARE * free]
        left_out += _too_large(
            "host memory", wanted, sizes, MEMORY_BUFFERS * bounds[1], free
        )
        tasks += (
            [LinkTask("host memory", {**common, "what": "memory", "sizes": sizes})]
            if sizes
            else []
        )
    if COPIES in parts:
        on_gpus = common["device"] == "gpu"
        wanted = sizes_between(*bounds, FINE_STEP if on_gpus else options.step_factor)
        sizes = fitting(wanted, 2, free)
        left_out += _too_large("copies", wanted, sizes, needed_bytes(wanted, 2), free)
        made = (
            _gpu_copies(common, sizes, min(ranks, num_gpus))
            if on_gpus
            else [_cpu_copies(common, sizes)]
        )
        tasks += made if sizes else []
    if COMPUTE in parts:
        tasks += computes(common, options, num_gpus, num_cores)
    if ALL_REDUCE in parts and ranks < 2:
        left_out.append(
            "all-reduce: needs two devices; --num_devices=2 divides the GPU into two logical ones"
        )
    elif ALL_REDUCE in parts:
        wanted = sizes_between(*bounds, options.step_factor)
        sizes = fitting(wanted, ranks, free)
        left_out += _too_large(
            "all-reduce", wanted, sizes, needed_bytes(wanted, ranks), free
        )
        if common["device"] == "gpu":
            of_one, free = -(-ranks // num_gpus), free_gpu_bytes(min(ranks, num_gpus))
            fit_host, sizes = sizes, fitting(sizes, of_one, free)
            needed = needed_bytes(fit_host, of_one)
            left_out += _too_large(
                "all-reduce", fit_host, sizes, needed, free, "of a GPU's memory"
            )
        tasks += all_reduces(common, names, sizes, options.passes) if sizes else []
    return tasks, left_out


def _gpu_copies(
    common: Mapping[str, Any], sizes: Sequence[int], num_gpus: int
) -> list[LinkTask]:
    """The links of all GPUs with the host, then those of each GPU with the later ones: --timeout is for one of them."""
    request = {**common, "what": "gpu_copies", "sizes": list(sizes)}
    gpus = list(range(num_gpus))
    with_host = LinkTask(
        "copies between host and GPUs", {**request, "devices": gpus, "origin": None}
    )
    later = [{**request, "devices": gpus[gpu:], "origin": gpu} for gpu in gpus[:-1]]
    return [
        with_host,
        *(
            LinkTask(f"copies between GPU {fields['origin']} and later ones", fields)
            for fields in later
        ),
    ]


def _cpu_copies(common: Mapping[str, Any], sizes: Sequence[int]) -> LinkTask:
    """Of logical CPUs two are enough: all are the same memory."""
    two = {"num_devices": 2, "inter_op_threads": 2}
    return LinkTask(
        "copies between logical CPU devices",
        {**common, **two, "what": "cpu_copies", "sizes": list(sizes)},
    )


def _too_large(
    what: str,
    wanted: Sequence[int],
    kept: Sequence[int],
    needed: int,
    free: int,
    where: str = "of memory",
) -> list[str]:
    """The line about sizes that do not fit into memory; none if all fit."""
    if len(kept) == len(wanted):
        return []
    sizes = ", ".join(size_text(size) for size in wanted[len(kept) :])
    return [
        f"{what} of {sizes}: needs {size_text(needed)} {where}, {size_text(free)} are free; lower --max_bytes"
    ]


def all_reduces(
    common: Mapping[str, Any], names: Sequence[str], sizes: Sequence[int], passes: int
) -> list[LinkTask]:
    """Nothing exchanged, then every algorithm; the next pass goes back, so that a steady drift falls on all alike."""
    tasks = []
    for turn in range(passes):
        order = ["", *names] if turn % 2 == 0 else [*reversed(names), ""]
        for name in order:
            what = (
                f"all-reduce by {name}" if name else "the call with nothing exchanged"
            )
            shown = f"{what}, pass {turn + 1} of {passes}" if passes > 1 else what
            tasks.append(
                LinkTask(
                    shown,
                    {
                        **common,
                        "what": "all_reduce",
                        "algorithm": name,
                        "sizes": list(sizes),
                    },
                )
            )
    return tasks


def computes(
    common: Mapping[str, Any], options: LinkOptions, num_gpus: int, num_cores: int
) -> list[LinkTask]:
    """Matrix products by one device, and by all real devices at once."""
    on_gpus, cores = common["device"] == "gpu", options.cpu_cores_per_device
    real = num_gpus if on_gpus else num_cores // cores
    request = {**common, "what": "compute", "cores_per_device": 0 if on_gpus else cores}
    request["shapes"], request["dtypes"] = (
        (GPU_SHAPES, GPU_DTYPES) if on_gpus else (CPU_SHAPES, CPU_DTYPES)
    )
    tasks = []
    for count in sorted({1, min(options.num_devices or real, real)}):
        pools = dict(
            zip(
                ("inter_op_threads", "intra_op_threads"),
                threads(common["device"], count, num_cores, cores),
            )
        )
        what = f"matrix products on {count} device{'' if count == 1 else 's'}"
        tasks.append(LinkTask(what, {**request, "num_devices": count, **pools}))
    return tasks


def algorithms(
    text: str, device: str, ranks: int, num_physical: int
) -> tuple[list[str], list[str], list[str]]:
    """Names to measure; why others of "all" are left out; what is wrong with those that were named."""
    names = list(ALL_REDUCES) if text == ALL else text.split(",")
    usable: list[str] = []
    wrong: list[str] = []
    for name in names:
        try:
            segments = all_reduce_spec.parse(name)
            if len(segments) > 1 or segments[0].algorithm == all_reduce_spec.AUTO:
                raise ValueError(
                    f"--algorithms={name}: name one algorithm, without limits, such as pscpu or xring#2"
                )
            problems = (
                all_reduce_spec.problems(segments, device, ranks, num_physical)
                if ranks > 1
                else []
            )
        except ValueError as e:
            problems = [str(e)]
        wrong += [
            line.replace("--all_reduce_spec=", "--algorithms=") for line in problems
        ]
        if not problems and name not in usable:
            usable.append(name)
    if text != ALL:
        return usable, [], wrong
    return (
        usable,
        [line.removeprefix("--algorithms=").partition(";")[0] for line in wrong],
        [],
    )


def threads(
    device: str, ranks: int, num_cores: int, cores_per_device: int = 1
) -> tuple[int, int]:
    """(inter-op, intra-op) threads as the trainer has them."""
    given = {
        "device": device,
        "num_devices": ranks,
        "cpu_cores_per_device": cores_per_device,
    }
    resolved = config.resolve(
        given, num_gpus=ranks if device == "gpu" else 0, num_cores=num_cores
    )
    return pool_sizes(
        resolved,
        num_cores if device == "gpu" else min(num_cores, ranks * cores_per_device),
    )


def _in_words(device: str, ranks: int, num_physical: int) -> str:
    """The ranks' devices; `num_physical`: GPUs, or cores."""
    if device == "gpu":
        return f"{ranks} {'logical ' if ranks > num_physical else ''}GPU{'' if ranks == 1 else 's'}"
    shared = f" on {num_physical} cores" if ranks > num_physical else ""
    return f"{ranks} logical CPU devices of one host's memory{shared}"


def needed_bytes(sizes: Sequence[int], num_devices: int) -> int:
    """Host memory that the all-reduces of these sizes take at most: inputs of all sizes, and what one works in."""
    return PROCESS_BYTES + num_devices * (
        sum(sizes) + WORKING_COPIES * max(sizes, default=0)
    )


def fitting(sizes: Sequence[int], num_devices: int, free_bytes: int) -> list[int]:
    """The sizes from the smallest on whose all-reduces fit into SHARE of what is free."""
    kept = sorted(sizes)
    while kept and needed_bytes(kept, num_devices) > SHARE * free_bytes:
        kept.pop()
    return kept


def free_gpu_bytes(num_gpus: int) -> int:
    """Free memory of the GPU that has least. Raises DeviceError if nvidia-smi does not tell."""
    return int(min(free_gpu_memory_mib(gpu) for gpu in range(num_gpus)) * 2**20)
