"""Which settings are compared: the modes with what belongs to them, and one option at a time. Pure.

A new option to compare is one line of FACTORS.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rnn_scaling import registry
from rnn_scaling.models.workloads import WORKLOADS
from rnn_scaling.settings import config as configs
from rnn_scaling.settings import conflicts, flags
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.settings.read_when import is_read, remedy, unread
from rnn_scaling.settings.spelling import spell
from rnn_scaling.settings.thread_pools import pool_sizes

MODE_OPTIONS = ("variable_update", "all_reduce_spec", "param_server_device")  # that are compared together
HIERARCHICAL_FROM = 4  # devices from which on a sum in two levels is another one than a sum in one


@dataclasses.dataclass(frozen=True)
class Machine:
    """What there is to run on: GPUs and CPU cores."""

    num_gpus: int
    num_cores: int


@dataclasses.dataclass(frozen=True)
class Factor:
    """An option that is compared by itself.

    Attributes:
      option: its name.
      others: what is tried beside the value that a configuration has, on so many cores, the first ones first.
      changes: what of training it changes, as in "another global batch"; empty: its speed alone.
      allow: its name in --allow; empty: it may always be taken.
    """

    option: str
    others: Callable[[RunConfig, int], Sequence[Any]]
    changes: str = ""
    allow: str = ""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A configuration that is compared, by what it changes of the base; factor: the option, of one that changes one."""

    changes: tuple[tuple[str, Any], ...] = ()
    factor: str = ""

    def given(self, base: Mapping[str, Any]) -> dict[str, Any]:
        """The options that are given to its run."""
        return {**base, **dict(self.changes)}

    def value(self, option: str) -> Any:
        """What it changes an option to; None: nothing."""
        return dict(self.changes).get(option)


def _dtypes(config: RunConfig, num_cores: int) -> Sequence[str]:
    half = ["bfloat16", "float16"] if config.devices.device == "gpu" else ["bfloat16"]
    return half if config.model.compute_dtype == "float32" else ["float32"]


def _batch_sizes(config: RunConfig, num_cores: int) -> Sequence[int]:
    size = config.training.batch_size
    return [] if config.training.global_batch_size else [2 * size, 4 * size]


def _inter_threads(config: RunConfig, num_cores: int) -> Sequence[int]:
    devices, own = config.devices.num_devices, pool_sizes(config, num_cores)[0]
    return [each for each in dict.fromkeys([2 * devices, devices]) if each != own]


def _intra_threads(config: RunConfig, num_cores: int) -> Sequence[int]:
    towers = config.devices.num_devices * config.devices.cpu_cores_per_device
    own = pool_sizes(config, num_cores)[1]
    return [each for each in dict.fromkeys([min(towers, num_cores), 1]) if each != own]


def _other(option: str, *values: Any) -> Callable[[RunConfig, int], Sequence[Any]]:
    return lambda config, num_cores: [each for each in values if each != _value(config, option)]


def _value(config: RunConfig, option: str) -> Any:
    return getattr(getattr(config, configs.GROUP_OF[option]), option)


def _between_towers(*values: str) -> Callable[[RunConfig, int], Sequence[str]]:
    """Values that make a difference only where several towers exchange something."""
    return lambda config, num_cores: values if config.num_towers > 1 else ()


def _of_embeddings(config: RunConfig, num_cores: int) -> Sequence[str]:
    """Images are looked up in no table."""
    is_text = not WORKLOADS[config.model.model].datasets
    return ("densify",) if is_text and config.num_towers > 1 else ()


def _nothing(config: RunConfig, num_cores: int) -> Sequence[Any]:
    """Of options that are compared only where the user names values."""
    return ()


FACTORS = {
    each.option: each
    for each in (
        Factor("compute_dtype", _dtypes, "less exact arithmetic", "dtype"),
        Factor("batch_size", _batch_sizes, "another global batch", "batch_size"),
        Factor("variable_consistency", _between_towers("relaxed"), "gradients are applied one step late", "relaxed"),
        Factor("data_format", _other("data_format", "NCHW", "NHWC")),
        Factor("intra_op_parallelism_threads", _intra_threads),
        Factor("inter_op_parallelism_threads", _inter_threads),
        Factor("prefetch_data_to_device", _other("prefetch_data_to_device", True, False)),
        Factor("num_parallel_calls", lambda config, num_cores: [2 * config.data.num_parallel_calls]),
        Factor("slice_on", _other("slice_on", "host", "device")),
        Factor("sparse_gradients", _of_embeddings),
        Factor("xla", _nothing),
        Factor("encoder_type", _nothing),
        Factor("gradient_repacking", _nothing),
        Factor("partition_large_variables", _nothing),
        Factor("prefetch_buffer_size", _nothing),
        Factor("staged_vars", _nothing, "towers read variables that are one step old", "staged_vars"),
        Factor("compress_gradients", _nothing, "gradients lose digits on their way", "compression"),
    )
    if each.option in configs.OPTIONS
}
ALLOWED = {each.allow: each.option for each in FACTORS.values() if each.allow}


def allowed(text: str) -> frozenset[str]:
    """The value of --allow: options that change training and may be taken.

    Raises:
      ValueError: saying what the text must be.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    options = {ALLOWED.get(word, word) for word in words}
    if not options <= set(ALLOWED.values()):
        raise ValueError(f"some of {', '.join(ALLOWED)}")
    return frozenset(options)


def base(lists: Mapping[str, Sequence[Any]], machine: Machine) -> dict[str, Any]:
    """The options of the base: the first of each list, on all devices, trained as one model.

    Raises:
      FlagErrors: if several values of an option that cannot be compared are given.
    """
    several = [name for name, values in lists.items() if len(values) > 1 and name not in {*MODE_OPTIONS, *FACTORS}]
    if several:
        what = ", ".join([*MODE_OPTIONS, *FACTORS])
        raise flags.FlagErrors(
            [
                f"{spell(name, ','.join(map(str, lists[name])))} must be one value; recommend compares {what}"
                for name in several
            ]
        )
    given = {name: values[0] for name, values in lists.items()}
    on_gpus = machine.num_gpus > 0 and given.get("device", "auto") != "cpu"
    given = {"preset": "seed" if on_gpus else "small", "num_devices": 0, **given}
    devices = resolved(given, machine).devices.num_devices
    given["num_devices"] = devices
    return given


def modes(lists: Mapping[str, Sequence[Any]], machine: Machine) -> list[Candidate]:
    """The update modes that train one model, each with the all-reduces or places that fit; one where nothing varies.

    Raises:
      FlagErrors: naming every conflict, if none of them can run or the user named one that cannot.
    """
    first = base(lists, machine)
    names = list(lists.get("variable_update", ())) or _one_model_modes(first, machine)
    made: dict[tuple[Any, ...], Candidate] = {}
    lines: list[str] = []
    for mode in names:
        config = resolved({**first, "variable_update": mode}, machine)
        values = {name: list(lists.get(name, ())) or _values(name, config) for name in MODE_OPTIONS[1:]}
        read = {name: each for name, each in values.items() if is_read(config, name)}
        for chosen in itertools.product(*read.values()):
            changes = {"variable_update": mode, **dict(zip(read, chosen))}
            candidate = Candidate(tuple((n, v) for n, v in changes.items() if v is not None))
            problems = _problems_of(candidate, first, machine)
            if not problems:
                made.setdefault(_key(candidate, first, machine), candidate)
            lines += problems
    configurations = [resolved(each.given(first), machine) for each in made.values()]
    for name in lists:
        if configurations and not any(is_read(each, name) for each in configurations):
            needed = remedy(configurations[0], name)
            lines.append(f"{spell(name, first[name])} would be ignored here; it needs {needed}, or leave it out")
            made.clear()
    if not made or (lines and any(name in lists for name in MODE_OPTIONS)):
        raise flags.FlagErrors(list(dict.fromkeys(lines)))
    return list(made.values())


def _one_model_modes(given: Mapping[str, Any], machine: Machine) -> list[str]:
    config = resolved(given, machine)
    several = config.cluster.num_workers > 1
    if config.num_towers == 1:
        return [config.update.variable_update]
    return [name for name in registry.swept(registry.VARIABLE_UPDATES, several) if registry.trains_one_model(name)]


def _values(option: str, config: RunConfig) -> list[Any]:
    """What is tried of an option that belongs to a mode; [None]: its default alone."""
    if option == "param_server_device" and config.devices.device == "gpu":
        return ["gpu", "cpu"]
    # Over several workers auto is collective.
    if option == "all_reduce_spec" and config.devices.num_devices > 1 and config.cluster.num_workers == 1:
        return [None, "collective", *(["hierarchical"] if config.devices.num_devices >= HIERARCHICAL_FROM else [])]
    return [None]


def options(
    pivot: Candidate, lists: Mapping[str, Sequence[Any]], allow: Iterable[str], machine: Machine
) -> list[Candidate]:
    """The pivot with one option changed: the first alternative of each option first, since time may run out.

    Args:
      lists: values of each trainer flag that was given: one value is fixed unless `allow` names it.
      allow: options that change training and may be taken.
    """
    first, may_change = base(lists, machine), set(allow)
    config = resolved(pivot.given(first), machine)
    of_each = []
    for name, factor in FACTORS.items():
        listed = list(lists.get(name, ()))
        if not is_read(config, name) or (len(listed) == 1 and name not in may_change):
            continue
        values = listed[1:] or list(factor.others(config, machine.num_cores))
        made = [Candidate((*pivot.changes, (name, value)), name) for value in values]
        is_named = len(listed) > 1
        of_each.append([each for each in made if is_named or not _problems_of(each, first, machine)])
        if is_named and (lines := [line for each in made for line in _problems_of(each, first, machine)]):
            raise flags.FlagErrors(lines)
    in_turns = itertools.chain.from_iterable(itertools.zip_longest(*of_each))
    return [candidate for candidate in in_turns if candidate is not None]


def resolved(given: Mapping[str, Any], machine: Machine) -> RunConfig:
    """What runs with these options."""
    return configs.resolve(given, num_gpus=machine.num_gpus, num_cores=machine.num_cores)


def _problems_of(candidate: Candidate, first: Mapping[str, Any], machine: Machine) -> list[str]:
    """Why a candidate cannot run; what the base gives and this one does not read is no reason."""
    given = readable(candidate.given(first), machine)
    return conflicts.problems(resolved(given, machine), given, num_gpus=machine.num_gpus)


def readable(given: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """The given options without those that nothing would read."""
    ignored = unread(resolved(given, machine), given)
    return {name: value for name, value in given.items() if name not in ignored}


def _key(candidate: Candidate, first: Mapping[str, Any], machine: Machine) -> tuple[Any, ...]:
    return tuple(resolved(readable(candidate.given(first), machine), machine).flat().items())


def in_words(candidate: Candidate) -> str:
    """ "replicated with all_reduce_spec=collective", of what a candidate changes."""
    changes = dict(candidate.changes)
    mode = changes.pop("variable_update", "")
    rest = " and ".join(spell(name, value).removeprefix("--") for name, value in changes.items())
    return " with ".join(filter(None, [mode, rest])) or "the flags as given"


def change_in_words(candidate: Candidate, pivot: RunConfig, machine: Machine) -> str:
    """ "batch_size=64 instead of 32", of the option that a candidate changes."""
    name = candidate.factor
    own = _value(pivot, name)
    threads = ("inter_op_parallelism_threads", "intra_op_parallelism_threads")
    if name in threads and not own:
        own = pool_sizes(pivot, machine.num_cores)[threads.index(name)]
    value = candidate.value(name)
    shown = [str(each).lower() if isinstance(each, bool) else str(each) for each in (value, own)]
    return f"{name}={shown[0]} instead of {shown[1]}"


def effect(factor: Factor, candidate: Candidate, pivot: RunConfig) -> str:
    """What of training an option changes, with its numbers; empty: nothing."""
    if factor.option == "batch_size":
        towers, samples = pivot.num_towers, WORKLOADS[pivot.model.model].samples
        sizes = candidate.value("batch_size") * towers, pivot.training.batch_size * towers
        return f"another global batch: {sizes[0]:,} {samples} a step instead of {sizes[1]:,}"
    return factor.changes
