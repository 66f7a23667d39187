"""Turn lists of values into the runs of a sweep, each with its name. Pure.

Every sweep plans with this module. The name of a run is the name of its file, so a
change here makes sweeps repeat runs that earlier versions finished.
"""

import dataclasses
import hashlib
import itertools
import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rnn_scaling.config import conflicts, flags, presets, registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import list_unread_user_options
from rnn_scaling.config.naming import FRAMEWORK, NAMED, OWN_FRAMEWORK, TRAINER
from rnn_scaling.config.registry import WORKLOADS, encoder_table, workloads
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.spelling import spell
from rnn_scaling.sweeps.command_lines import format_flags
from rnn_scaling.sweeps.estimate import Identity
from rnn_scaling.sweeps.runs import AnyRun

# A sweep sets these; they do not change the work of a run.
OUTPUTS = ("result_file", "log_dir", "progress")
SINGLE_RUN_OPTIONS = ("checkpoint_dir", "save_every", "mlperf_log")
_TRACE = "trace_batches"
# Without and with an exchange of gradients: together they show what the exchange costs.
CORE_MODES = ("independent", "replicated")
MAX_NAME_BYTES = 180  # file systems allow 255, and suffixes such as ".r10.json" follow
_MAX_LISTED_DEVICES = 8  # beyond this a sweep takes only the powers of two
R = TypeVar("R", bound=AnyRun)


@dataclasses.dataclass(frozen=True)
class Run(AnyRun):
    """A run of this suite's trainer."""

    flags: Mapping[str, Any]  # the user's flags and the flags of the sweep
    config: RunConfig

    @property
    def options(self) -> dict[str, Any]:
        return self.config.flat()

    @property
    def unit(self) -> str:
        return workloads.name_item_unit(vars(self.config.model))

    def identify(self, config: Mapping[str, Any]) -> Identity:
        return identify(config)

    def list_arguments(self, result_file: str | Path) -> list[str]:
        """Return the flags of the trainer; its progress lines feed the sweep's bar."""
        words = format_flags(self.flags)
        return [*words, f"--result_file={result_file}", "--progress=true"]


def identify(config: Mapping[str, Any]) -> Identity:
    """Return the values that make two runs the same: all options except outputs."""
    if TRAINER in config:
        return ((TRAINER, config[TRAINER]),)
    pairs = []
    for name, field in configs.OPTIONS.items():
        if name not in OUTPUTS:
            pairs.append((name, config.get(name, field.default)))
    return tuple(pairs)


def split(
    words: Sequence[str], groups: Sequence[type]
) -> tuple[list[Any], dict[str, list[Any]]]:
    """Split a command line into the options of the command and lists for the trainer.

    If one of the groups has the field `trace_batches`, every run is traced.

    Args:
      words: The command line.
      groups: The option groups of the command.

    Returns:
      An instance of each group, and the values of each flag of the trainer that the
      user or the command gives.

    Raises:
      FlagErrors: If anything is wrong; it names everything.
    """
    own_fields = flags.collect_fields(groups)
    lists, lines = flags.parse_with_errors(
        words, {**configs.OPTIONS, **own_fields}, lists=True
    )
    for name in OUTPUTS:
        if name in lists:
            lines.append(f"--{name} is set by this command; leave it out")
    for name in SINGLE_RUN_OPTIONS:
        # Runs that only read a checkpoint may share one.
        is_shared = name == "checkpoint_dir" and _is_only_reading_checkpoint(lists)
        if name in lists and not is_shared:
            lines.append(
                f"--{name} applies to one run, but this command makes several; "
                "leave it out"
            )
    own_values = {}
    for name in own_fields.keys() & lists.keys():
        values = lists.pop(name)
        own_values[name] = values[0]
        if len(values) > 1:
            lines.append(f"--{name}={','.join(map(str, values))} must be one value")
    options = flags.build(groups, own_values, lines)
    traced = [getattr(group, _TRACE) for group in options if hasattr(group, _TRACE)]
    if traced:
        lists[_TRACE] = traced
    return options, lists


def _is_only_reading_checkpoint(lists: Mapping[str, Sequence[Any]]) -> bool:
    return any(all(lists.get(name, [False])) for name in ("decode", "forward_only"))


def plan(
    lists: Mapping[str, Sequence[Any]], *, num_gpus: int, num_cores: int
) -> list[Run]:
    """Return the configurations of a sweep, in order.

    Raises:
      FlagErrors: If any combination has a conflict; it names each conflict once.
    """
    user_flags = lists.keys()
    assumed = {
        name: [value] for name, value in configs.find_implied_options(lists).items()
    }
    lists = {**_list_default_values(lists, num_gpus, num_cores), **assumed, **lists}
    # Derived only from the lists, because a sweep resumes by the names of its files;
    # reports use the resolved options.
    varied_options = []
    for name, values in lists.items():
        if len(values) > 1 or name in (FRAMEWORK, *NAMED):
            varied_options.append(name)

    def make_name(values: Mapping[str, Any], config: RunConfig) -> str | None:
        encoders = encoder_table.list_encoders(config.model.unit_type)
        is_default = "encoder_type" not in user_flags
        if is_default and config.model.encoder_type not in encoders:
            return None  # this encoder does not compute these cells
        return run_name(values, varied_options)

    runs, problems, unused = make_distinct_runs(
        lists, make_name, user_flags, num_gpus=num_gpus, num_cores=num_cores
    )
    if problems or unused:
        raise flags.FlagErrors([*problems, *unused])
    return make_names_distinct(runs)


class DistinctRuns(NamedTuple):
    """The runs of a command line.

    Attributes:
      runs: A run of each combination that can run.
      problems: The conflicts of the other combinations.
      unused: A line for each flag of the user that no run reads.
    """

    runs: list[Run]
    problems: list[str]
    unused: list[str]


def make_distinct_runs(
    lists: Mapping[str, Sequence[Any]],
    make_name: Callable[[Mapping[str, Any], RunConfig], str | None],
    user_flags: Collection[str],
    *,
    num_gpus: int,
    num_cores: int,
) -> DistinctRuns:
    """Make a run of each combination of the values that can run.

    Runs that differ only in flags that they do not read are the same.

    Args:
      lists: The values of each flag.
      make_name: Names a run by the flags that it reads; None leaves it out.
      user_flags: The flags that the user gave.
      num_gpus: GPUs of this machine.
      num_cores: Cores of this machine.
    """
    runs: dict[tuple, Run] = {}
    problems: dict[str, None] = {}
    read: set[str] = set()
    for combination in itertools.product(*lists.values()):
        values = dict(zip(lists, combination))
        config = configs.resolve(values, num_gpus=num_gpus, num_cores=num_cores)
        for unused_flag in list_unread_user_options(config, values):
            del values[unused_flag]
        config = configs.resolve(values, num_gpus=num_gpus, num_cores=num_cores)
        name = make_name(values, config)
        if name is None:
            continue
        read |= values.keys()
        run_problems = conflicts.find_problems(config, values, num_gpus=num_gpus)
        problems |= dict.fromkeys(run_problems)
        if not run_problems:
            runs.setdefault(identify(config.flat()), Run(name, values, config))
    unused = []
    for flag in user_flags:
        if flag not in read:
            value = ",".join(map(str, lists[flag]))
            unused.append(
                f"{spell(flag, value)} is not read by any of the runs; leave it out"
            )
    return DistinctRuns(list(runs.values()), list(problems), unused)


def repeat_runs(runs: Sequence[R], repeats: int) -> list[R]:
    """Return the runs of each round, always in the same order."""
    repeated: list[R] = []
    for repeat in range(1, repeats + 1):
        repeated += [dataclasses.replace(run, repeat=repeat) for run in runs]
    return repeated


def interleave(runs: Sequence[R], repeats: int) -> list[R]:
    """Return rounds in a random order and back: B C A A C B ....

    A change of the machine then affects all configurations equally: a steady drift
    cancels in two rounds, and anything else affects them at random. A single round
    keeps the order. The order depends only on the number of runs.
    """
    ordered: list[R] = []
    for repeat in range(1, repeats + 1):
        order = shuffle_round(runs, repeat) if repeats > 1 else runs
        ordered += [dataclasses.replace(run, repeat=repeat) for run in order]
    return ordered


def shuffle_round(runs: Sequence[R], repeat: int) -> list[R]:
    """Return the runs of one round in a random order.

    An even round has the reverse order of the round before.
    """
    is_odd = repeat % 2 == 1
    seed = repeat if is_odd else repeat - 1
    order = random.Random(seed).sample(runs, len(runs))
    return order if is_odd else order[::-1]


def list_device_counts(num_devices: int) -> list[int]:
    """Return the numbers of devices of a sweep, at most `num_devices`.

    Above _MAX_LISTED_DEVICES they are the powers of two and the largest number.
    """
    if num_devices <= _MAX_LISTED_DEVICES:
        return list(range(1, num_devices + 1)) or [1]
    counts = []
    count = 1
    while count < num_devices:
        counts.append(count)
        count *= 2
    return [*counts, num_devices]


def _list_default_values(
    lists: Mapping[str, Sequence[Any]], num_gpus: int, num_cores: int
) -> dict[str, Sequence[Any]]:
    """Return the values of the flags that a sweep varies by default."""
    cores_per_device = max(1, lists.get("cpu_cores_per_device", [1])[0])
    num_devices = num_cores // cores_per_device
    if _is_on_gpus(lists, num_gpus):
        num_devices = num_gpus
    has_workers = any(count > 1 for count in lists.get("num_workers", []))
    if has_workers:
        num_devices = 1
    defaults: dict[str, Sequence[Any]] = {
        "encoder_type": _list_swept_encoders(lists),
        "variable_update": registry.list_swept_modes(has_workers),
        "num_devices": list_device_counts(num_devices),
        "preset": [choose_default_preset(lists, num_gpus)],
    }
    # All frameworks train the same work, so this suite uses only one encoder
    # implementation.
    if set(lists.get(FRAMEWORK, [OWN_FRAMEWORK])) != {OWN_FRAMEWORK}:
        defaults = {FRAMEWORK: lists[FRAMEWORK], **defaults}
        defaults["encoder_type"] = [encoder_table.list_encoders("lstm")[0]]
        defaults["variable_update"] = CORE_MODES
        defaults["data_source"] = ["constant"]
    return {name: values for name, values in defaults.items() if is_read(name, lists)}


def _is_on_gpus(lists: Mapping[str, Sequence[Any]], num_gpus: int) -> bool:
    return num_gpus > 0 and lists.get("device", ["auto"])[0] != "cpu"


def choose_default_preset(lists: Mapping[str, Sequence[Any]], num_gpus: int) -> str:
    """Return the preset of a sweep if the user names none."""
    return presets.choose_sweep_preset(_is_on_gpus(lists, num_gpus))


def _list_swept_encoders(lists: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the default encoder implementations of all cells of a sweep."""
    unit_types = lists.get("unit_type", [configs.OPTIONS["unit_type"].default])
    names: set[str] = set()
    for unit_type in unit_types:
        names.update(encoder_table.list_swept_encoders(unit_type))
    return [name for name in encoder_table.ENCODERS if name in names]


def is_read(option: str, lists: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether any of a sweep's workloads reads an option."""
    models = lists.get("model", [configs.OPTIONS["model"].default])
    readers = registry.find_readers(WORKLOADS).get(option)
    return readers is None or not set(models).isdisjoint(readers)


def run_name(values: Mapping[str, Any], varied_options: Sequence[str]) -> str:
    """Return the name of a run.

    Framework, encoder, mode and devices are in it by value, other options that vary as
    flag=value.
    """
    return "-".join(
        name_part(values[name], name) for name in varied_options if name in values
    )


def name_part(value: Any, option: str) -> str:
    """Return an option as a part of a run's name, which is also the name of a file."""
    text = str(value).lower()
    if option not in (FRAMEWORK, *NAMED):
        text = f"{option}={text}"
    return re.sub(r"[^A-Za-z0-9_.=#:]+", "_", text)


def make_names_distinct(runs: Sequence[R]) -> list[R]:
    """Add a hash of the options to names that are too long or that two runs share."""
    runs_by_name: dict[str, R] = {}
    for run in runs:
        if run.name in runs_by_name or len(run.name) > MAX_NAME_BYTES:
            digest = hashlib.sha256(repr(run.identity).encode()).hexdigest()[:12]
            name = f"{run.name[: MAX_NAME_BYTES - 13]}-{digest}"
            run = dataclasses.replace(run, name=name)
        runs_by_name[run.name] = run
    return list(runs_by_name.values())
