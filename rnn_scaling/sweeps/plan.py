"""Lists of values -> the runs of a sweep, each with its name. Pure."""

import dataclasses
import hashlib
import itertools
import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rnn_scaling.config import conflicts, flags, registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import unread
from rnn_scaling.config.naming import FRAMEWORK, NAMED, OURS, TRAINER
from rnn_scaling.config.registry import WORKLOADS, kernels, workloads
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.spelling import spell
from rnn_scaling.sweeps.estimate import Identity
from rnn_scaling.sweeps.runs import AnyRun

OUTPUTS = (
    "result_file",
    "log_dir",
    "progress",
)  # these do not change the work of a run, and a sweep sets them
OF_ONE_RUN = ("checkpoint_dir", "save_every", "mlperf_log")
TRACE = "trace_batches"
MAX_NAME_BYTES = 180  # file systems allow 255, and suffixes such as ".r10.json" follow
R = TypeVar("R", bound=AnyRun)


@dataclasses.dataclass(frozen=True)
class Run(AnyRun):
    """A run of this suite's trainer: the flags that were given, and everything resolved."""

    flags: Mapping[str, Any]
    config: RunConfig

    @property
    def options(self) -> dict[str, Any]:
        return self.config.flat()

    @property
    def unit(self) -> str:
        return workloads.unit_of(vars(self.config.model))

    def identity_of(self, config: Mapping[str, Any]) -> Identity:
        return identity(config)

    def arguments(self, result_file: str | Path) -> list[str]:
        """The trainer's arguments; the lines of --progress feed the sweep's bar."""
        words = [spell(name, value) for name, value in self.flags.items()]
        return [*words, f"--result_file={result_file}", "--progress=true"]


def identity(config: Mapping[str, Any]) -> Identity:
    """The values that make two runs the same: all options except outputs."""
    if TRAINER in config:
        return ((TRAINER, config[TRAINER]),)
    return tuple(
        (n, config.get(n, field.default))
        for n, field in configs.OPTIONS.items()
        if n not in OUTPUTS
    )


def split(
    words: Sequence[str], groups: Sequence[type]
) -> tuple[list[Any], dict[str, list[Any]]]:
    """Command line -> (an instance of each option group, values of each trainer flag that was given or has to be).

    Where one of the command's groups has the field `trace_batches`, every run is traced. A FlagErrors names every
    unknown flag, malformed value and contradiction.
    """
    own_fields = flags.fields(groups)
    given, lines = flags.parsed(words, {**configs.OPTIONS, **own_fields}, lists=True)
    lines += [
        f"--{name} is set by this command; leave it out"
        for name in OUTPUTS
        if name in given
    ]
    # Runs that only read a checkpoint may share one.
    only_reads = any(
        all(given.get(name, [False])) for name in ("decode", "forward_only")
    )
    lines += [
        f"--{name} applies to one run, but this command makes several; leave it out"
        for name in OF_ONE_RUN
        if name in given and not (name == "checkpoint_dir" and only_reads)
    ]
    single = {}
    for name in own_fields.keys() & given.keys():
        values = given.pop(name)
        single[name] = values[0]
        if len(values) > 1:
            lines.append(f"--{name}={','.join(map(str, values))} must be one value")
    built = flags.build(groups, single, lines)
    traced = [getattr(group, TRACE) for group in built if hasattr(group, TRACE)]
    return built, {**given, **({TRACE: traced} if traced else {})}


def plan(
    lists: Mapping[str, Sequence[Any]], *, num_gpus: int, num_cores: int
) -> list[Run]:
    """The configurations of a sweep, in order. Raises FlagErrors naming every conflict of any combination, once."""
    asked_for = lists.keys()
    assumed = {name: [value] for name, value in configs.assumed(lists).items()}
    lists = {**_defaults(lists, num_gpus, num_cores), **assumed, **lists}
    # From the lists alone, because a sweep resumes by the names of its files; reports use the resolved options.
    varied = [
        name
        for name, values in lists.items()
        if len(values) > 1 or name in (FRAMEWORK, *NAMED)
    ]

    def name(given: Mapping[str, Any], config: RunConfig) -> str | None:
        encoders = kernels.of_cell(config.model.unit_type)
        if (
            "encoder_type" not in asked_for
            and config.model.encoder_type not in encoders
        ):
            return None  # a default encoder that does not compute these cells
        return name_of(given, varied)

    runs, problems, unused = distinct_runs(
        lists, name, asked_for, num_gpus=num_gpus, num_cores=num_cores
    )
    if problems or unused:
        raise flags.FlagErrors([*problems, *unused])
    return with_distinct_names(runs)


def distinct_runs(
    lists: Mapping[str, Sequence[Any]],
    name: Callable[[Mapping[str, Any], RunConfig], str | None],
    asked: Collection[str],
    *,
    num_gpus: int,
    num_cores: int,
) -> tuple[list[Run], list[str], list[str]]:
    """Make a run of each combination of the values that can run.

    Runs that differ only in flags that they do not read are the same.

    Args:
      lists: The values of each flag.
      name: Names a run by the flags that it reads; None leaves it out.
      asked: The flags that the user gave.
      num_gpus: GPUs of this machine.
      num_cores: Cores of this machine.

    Returns:
      The runs, what is wrong with other combinations, and a line for each flag of the
      user that no run reads.
    """
    runs: dict[tuple, Run] = {}
    problems: dict[str, None] = {}
    read: set[str] = set()
    for values in itertools.product(*lists.values()):
        given = dict(zip(lists, values))
        config = configs.resolve(given, num_gpus=num_gpus, num_cores=num_cores)
        ignored = unread(config, given)
        given = {flag: value for flag, value in given.items() if flag not in ignored}
        config = configs.resolve(given, num_gpus=num_gpus, num_cores=num_cores)
        run_name = name(given, config)
        if run_name is None:
            continue
        read |= given.keys()
        found = conflicts.problems(config, given, num_gpus=num_gpus)
        problems |= dict.fromkeys(found)
        if not found:
            runs.setdefault(identity(config.flat()), Run(run_name, given, config))
    unused = []
    for flag in asked:
        if flag not in read:
            value = ",".join(map(str, lists[flag]))
            unused.append(
                f"{spell(flag, value)} is not read by any of the runs; leave it out"
            )
    return list(runs.values()), list(problems), unused


def repeated(runs: Sequence[R], repeats: int) -> list[R]:
    """Return the runs of each round, without a change of order."""
    every = []
    for repeat in range(1, repeats + 1):
        every += [dataclasses.replace(run, repeat=repeat) for run in runs]
    return every


def interleave(runs: Sequence[R], repeats: int) -> list[R]:
    """B C A A C B ...: rounds in a random order and back; the order depends only on the number of runs.

    A change of the machine then affects all configurations alike: a steady drift cancels in two rounds, and anything
    else falls on them at random. A single round keeps the order.
    """
    ordered: list[R] = []
    for repeat in range(1, repeats + 1):
        order = round_order(runs, repeat) if repeats > 1 else runs
        ordered += [dataclasses.replace(run, repeat=repeat) for run in order]
    return ordered


def round_order(runs: Sequence[R], repeat: int) -> list[R]:
    """The runs of one round in a random order, in even rounds the reverse of the round before."""
    order = random.Random(repeat - 1 + repeat % 2).sample(runs, len(runs))
    return order if repeat % 2 else order[::-1]


def device_counts(most: int) -> list[int]:
    """1 to `most` devices; above 8 the powers of two and `most`, to save runs."""
    if most <= 8:
        return list(range(1, most + 1)) or [1]
    powers = [2**k for k in range(most.bit_length()) if 2**k < most]
    return [*powers, most]


def _defaults(
    lists: Mapping[str, Sequence[Any]], num_gpus: int, num_cores: int
) -> dict[str, list[Any]]:
    on_gpus = _is_on_gpus(lists, num_gpus)
    cores_per_device = max(1, lists.get("cpu_cores_per_device", [1])[0])
    has_workers = any(number > 1 for number in lists.get("num_workers", []))
    most = num_gpus if on_gpus else num_cores // cores_per_device
    defaults: dict[str, list[Any]] = {
        "encoder_type": _swept_encoders(lists),
        "variable_update": registry.swept_modes(has_workers),
        "num_devices": device_counts(1 if has_workers else most),
        "preset": [default_preset(lists, num_gpus)],
    }
    if set(lists.get(FRAMEWORK, [OURS])) != {
        OURS
    }:  # all frameworks train the same work, this suite with one kernel
        ours = {
            "encoder_type": [kernels.of_cell("lstm")[0]],
            "variable_update": ["independent", "replicated"],
        }
        defaults = {
            FRAMEWORK: list(lists[FRAMEWORK]),
            **defaults,
            **ours,
            "data_source": ["constant"],
        }
    return {name: values for name, values in defaults.items() if is_read(name, lists)}


def _is_on_gpus(lists: Mapping[str, Sequence[Any]], num_gpus: int) -> bool:
    return num_gpus > 0 and lists.get("device", ["auto"])[0] != "cpu"


def default_preset(lists: Mapping[str, Sequence[Any]], num_gpus: int) -> str:
    """Return the sizes of the published benchmark on GPUs, else small ones."""
    return "seed" if _is_on_gpus(lists, num_gpus) else "small"


def _swept_encoders(lists: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the default encoder implementations of all cells of a sweep."""
    unit_types = lists.get("unit_type", [configs.OPTIONS["unit_type"].default])
    names: set[str] = set()
    for unit_type in unit_types:
        names.update(kernels.swept(unit_type))
    return [name for name in kernels.KERNELS if name in names]


def is_read(option: str, lists: Mapping[str, Sequence[Any]]) -> bool:
    """Whether any of a sweep's workloads reads an option."""
    workloads = lists.get("model", [configs.OPTIONS["model"].default])
    readers = registry.readers(WORKLOADS).get(option)
    return readers is None or not set(workloads).isdisjoint(readers)


def name_of(given: Mapping[str, Any], varied: Sequence[str]) -> str:
    """A run's name: framework, encoder, mode and devices by value, other options that vary as flag=value."""
    return "-".join(word(given[name], name) for name in varied if name in given)


def word(value: Any, name: str) -> str:
    """An option in the name of a run, and of a file."""
    text = (
        str(value).lower()
        if name in (FRAMEWORK, *NAMED)
        else f"{name}={str(value).lower()}"
    )
    return re.sub(r"[^A-Za-z0-9_.=#:]+", "_", text)


def with_distinct_names(runs: Sequence[R]) -> list[R]:
    """Adds a hash of the options to names that two runs share or that are too long for a file."""
    named: dict[str, R] = {}
    for run in runs:
        if run.name in named or len(run.name) > MAX_NAME_BYTES:
            digest = hashlib.sha256(repr(run.identity).encode()).hexdigest()[:12]
            run = dataclasses.replace(
                run, name=f"{run.name[: MAX_NAME_BYTES - 13]}-{digest}"
            )
        named[run.name] = run
    return list(named.values())
