"""Which options make the name of a configuration, for the names of series and of pairs of runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.models.workloads import WORKLOADS

TRAINER = "trainer"  # the option that names a program of the user
# Options of such runs that say how they were started and read, and nothing about the work.
HOW_RUN = (
    "trainer_command",
    "log_format",
    "log_warmup",
    "ranks",
    "items_per_step",
    "items",
    "unit",
)
NAMED = (
    "encoder_type",
    "variable_update",
    "num_devices",
)  # always in a name, by value alone
FRAMEWORK = "framework"  # the option that names the framework that trains our network
OURS = OPTIONS[FRAMEWORK].default
# Our options with words for values; another program may use other words. A sweep decides on the device.
THEIRS = frozenset(
    name for name, field in OPTIONS.items() if field.metadata["choices"]
) - {"device"}
_DEFAULT_MODEL = OPTIONS["model"].default


def network(config: Mapping[str, Any]) -> str:
    """The name of a run: the kernel of its encoder, its workload if that has none, or the user's program."""
    if TRAINER in config:
        return str(config[TRAINER])
    if config.get(FRAMEWORK, OURS) != OURS:
        return str(config[FRAMEWORK])
    entry = WORKLOADS.get(config.get("model", OPTIONS["model"].default))
    return str(
        config["model"]
        if entry and "encoder_type" not in entry.reads
        else config.get("encoder_type") or ""
    )


def without_network(names: Iterable[str], config: Mapping[str, Any]) -> list[str]:
    """Names of options without `model` or `framework` if the name of the run already contains it."""
    return [
        name
        for name in names
        if name not in ("model", FRAMEWORK) or network(config) != config.get(name)
    ]


def program(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """The program that trained: the user's, or ours in one of the frameworks."""
    return config.get(TRAINER), config.get(FRAMEWORK, OURS)


def told_work(config: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """(network, samples of a device, of all devices a step) from the options; None if they do not say."""
    sizes = (config.get("batch_size") or None, config.get("global_batch_size") or 0)
    if not config.get("model") or not any(sizes):
        return None
    return config["model"], *((None, sizes[1]) if sizes[1] else sizes)


def told_apart(names: Sequence[str], units: Sequence[str]) -> list[str]:
    """The names, and what is counted added to those that several have which count different things."""
    counted: dict[str, set[str]] = {}
    for name, unit in zip(names, units):
        counted.setdefault(name, set()).add(unit)
    return [
        f"{name}, {unit}" if len(counted[name]) > 1 else name
        for name, unit in zip(names, units)
    ]


def distinguishing(
    names: Iterable[str], configurations: Sequence[Mapping[str, Any]]
) -> list[str]:
    """The options that tell the configurations apart, and the model where any's is not the default.

    An option that only some of them read tells those apart alone. Each has the options that it reads.
    """
    values = {
        name: {options[name] for options in configurations if name in options}
        for name in names
    }
    return [
        name
        for name, given in values.items()
        if len(given) > 1 or (name == "model" and given - {_DEFAULT_MODEL})
    ]
