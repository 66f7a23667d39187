"""Choose the options that name a configuration in series and in pairs of runs.

Series and configurations of all reports follow these rules: a change here regroups the
rows of old records.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.models.workloads import WORKLOADS

TRAINER = "trainer"  # the option that names a program of the user
# Options about starting such a program and reading its output, not about its work.
HOW_RUN = (
    "trainer_command",
    "log_format",
    "log_warmup",
    "ranks",
    "items_per_step",
    "items",
    "unit",
)
# Options whose values are in every name.
NAMED = ("encoder_type", "variable_update", "num_devices")
FRAMEWORK = "framework"  # the option that names the framework of our networks
OWN_FRAMEWORK = OPTIONS[FRAMEWORK].default
# Options with a list of choices. Programs of users may have other choices, except for
# the device, which a sweep sets.
CHOICE_OPTIONS = frozenset(
    name for name, field in OPTIONS.items() if field.metadata["choices"]
) - {"device"}
_DEFAULT_MODEL = OPTIONS["model"].default


def name_network(config: Mapping[str, Any]) -> str:
    """Return the first part of a run's name.

    It is the user's program, another framework, the encoder, or the workload if that
    has no encoder.
    """
    if TRAINER in config:
        return str(config[TRAINER])
    if config.get(FRAMEWORK, OWN_FRAMEWORK) != OWN_FRAMEWORK:
        return str(config[FRAMEWORK])
    workload = WORKLOADS.get(config.get("model", _DEFAULT_MODEL))
    if workload and "encoder_type" not in workload.reads:
        return str(config["model"])
    return str(config.get("encoder_type") or "")


def find_network_family(model: str) -> str:
    """Return the family of a network.

    Networks of one family have the same kinds of layers, so they are not independent.
    All networks with recurrent layers are one family.
    """
    workload = WORKLOADS.get(model)
    if workload is None:  # a network of an earlier version
        return model
    return "recurrent" if "unit_type" in workload.reads else workload.help


def drop_network_options(names: Iterable[str], config: Mapping[str, Any]) -> list[str]:
    """Leave out `model` and `framework` if the first part of the name contains them."""
    return [
        name
        for name in names
        if name not in ("model", FRAMEWORK) or name_network(config) != config.get(name)
    ]


def make_program_key(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the user's program, or the framework of our trainer."""
    return config.get(TRAINER), config.get(FRAMEWORK, OWN_FRAMEWORK)


def find_recorded_work(config: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the model and the batch size, as far as a record contains them.

    Returns:
      The model, samples per device and samples per step, of which only one is set.
      None without a model or a size.
    """
    model = config.get("model")
    batch_size = config.get("batch_size") or None
    global_batch_size = config.get("global_batch_size") or 0
    if not model or not (batch_size or global_batch_size):
        return None
    if global_batch_size:
        return model, None, global_batch_size
    return model, batch_size, 0


def disambiguate(names: Sequence[str], units: Sequence[str]) -> list[str]:
    """Add the unit to equal names that have different units."""
    units_of_names: dict[str, set[str]] = {}
    for name, unit in zip(names, units):
        units_of_names.setdefault(name, set()).add(unit)
    return [
        f"{name}, {unit}" if len(units_of_names[name]) > 1 else name
        for name, unit in zip(names, units)
    ]


def find_distinguishing(
    names: Iterable[str], configurations: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the options that have several values, and a model that is not the default.

    Args:
      names: The options to choose from.
      configurations: For each configuration, the options that it reads. Options are
        compared only between configurations that read them.
    """
    result = []
    for name in names:
        values = {options[name] for options in configurations if name in options}
        if len(values) > 1 or (name == "model" and values - {_DEFAULT_MODEL}):
            result.append(name)
    return result
