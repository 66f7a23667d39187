"""Find out which options a configuration reads; setting an unread one is an error.

A new condition is a row of `_CONDITIONS_OF_OPTIONS`; help texts, keys of configurations
and errors follow from it.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rnn_scaling.config import registry
from rnn_scaling.config.naming import HOW_RUN, TRAINER
from rnn_scaling.config.registry import join_with_or
from rnn_scaling.config.run_config import GROUP_OF, OPTIONS, RunConfig, from_flat
from rnn_scaling.models.encoder_table import UNIT_TYPES
from rnn_scaling.models.workloads import WORKLOADS

_MAX_CHOICES_AS_FLAGS = 4  # at most this many choices are written as flags
_MAX_NAMED_CHOICES = 16  # a message does not name more choices than this
_CLUSTER_OPTIONS = (
    "num_workers",
    "cluster_timeout",
    "cluster_heartbeat",
    "coordinator_address",
)
_TRAINING_OPTIONS = (
    "dropout",
    "optimizer",
    "weight_decay",
    "learning_rate",
    "lr_schedule",
    "lr_steps",
    "lr_scaling",
    "lr_warmup_batches",
    "loss_scale",
    "max_gradient_norm",
    "gradient_accumulation_steps",
    "stop_at_loss",
    "stop_at_accuracy",
    "save_every",
    "mlperf_log",
)
# Options with which a run ends by its own measurements.
STOP_OPTIONS = ("until_steady", "stop_at_loss", "stop_at_accuracy")
# All options that decide when a run ends, except --num_batches.
END_OPTIONS = (*STOP_OPTIONS, "target_ci", "max_batches", "num_epochs")
_ALL_REDUCE_OPTIONS = (
    "all_reduce_spec",
    "gradient_repacking",
    "agg_small_grads_max_bytes",
    "agg_small_grads_max_group",
)


@dataclasses.dataclass(frozen=True)
class Condition:
    """A condition under which a configuration reads an option."""

    holds: Callable[[RunConfig], bool]
    remedy: str  # flags that fulfil it
    options: tuple[str, ...]  # options that `holds` uses


def _make_choice_condition(option: str, *choices: Any) -> Condition:
    """Return the condition that an option is one of the choices."""
    names = [str(choice).lower() for choice in choices]
    if len(choices) <= _MAX_CHOICES_AS_FLAGS:
        remedy = " or ".join(f"--{option}={name}" for name in names)
    else:
        if len(choices) > _MAX_NAMED_CHOICES:
            num_others = len(choices) - _MAX_CHOICES_AS_FLAGS
            others_text = f"any of {num_others} others (--help={option} names them)"
            names[_MAX_CHOICES_AS_FLAGS:] = [others_text]
        remedy = f"--{option}={join_with_or(names)}"
    return _make_option_condition(option, lambda value: value in choices, remedy)


def _make_option_condition(
    option: str, holds: Callable[[Any], bool], remedy: str
) -> Condition:
    """Return a condition on the value of an option."""
    group = GROUP_OF[option]
    return Condition(
        lambda config: holds(getattr(getattr(config, group), option)),
        remedy,
        (option,),
    )


def _make_either_condition(a: Condition, b: Condition) -> Condition:
    """Return the condition that one of two conditions holds."""
    comma = "," if "," in a.remedy else ""
    return Condition(
        lambda config: a.holds(config) or b.holds(config),
        f"{a.remedy}{comma} or {b.remedy}",
        (*a.options, *b.options),
    )


_TABLES: dict[str, Mapping[str, Any]] = {
    "variable_update": registry.VARIABLE_UPDATES,
    "data_source": registry.DATA_SOURCES,
    "model": WORKLOADS,
    "unit_type": UNIT_TYPES,
    "framework": registry.FRAMEWORKS,
}


def _list_conditions() -> Iterator[tuple[str, Condition]]:
    """Yield the conditions of all options; an option may have several."""
    for option, table in _TABLES.items():
        for name, choices in registry.find_readers(table).items():
            yield name, _make_choice_condition(option, *choices)
    for names, condition in _CONDITIONS_OF_OPTIONS:
        for name in names:
            yield name, condition


def _make_mode_condition(
    has_property: Callable[[registry.UpdateMode], bool],
) -> Condition:
    """Return the condition that the update mode has a property."""
    modes = registry.VARIABLE_UPDATES.items()
    names = [name for name, mode in modes if has_property(mode)]
    return _make_choice_condition("variable_update", *names)


def _make_source_condition(
    has_property: Callable[[registry.DataSource], bool],
) -> Condition:
    """Return the condition that the data source has a property."""
    sources = registry.DATA_SOURCES.items()
    names = [name for name, source in sources if has_property(source)]
    return _make_choice_condition("data_source", *names)


_TRAINS = Condition(
    lambda c: c.model.trains,
    "a run that trains (without --forward_only and --decode)",
    ("forward_only", "decode"),
)
_PREFETCHING_SOURCES = join_with_or(
    registry.find_readers(registry.DATA_SOURCES)["prefetch_data_to_device"]
)
_CONDITIONS_OF_OPTIONS: tuple[tuple[tuple[str, ...], Condition], ...] = (
    (("cpu_cores_per_device",), _make_choice_condition("device", "cpu")),
    (_CLUSTER_OPTIONS, _make_mode_condition(lambda mode: mode.is_distributed)),
    (("num_ps",), _make_mode_condition(lambda mode: mode.has_servers)),
    (("lr_steps",), _make_choice_condition("lr_schedule", "piecewise")),
    (("loss_scale",), _make_choice_condition("compute_dtype", "float16")),
    (("stop_at_accuracy",), _make_choice_condition("accuracy", True)),
    (
        ("accuracy", "label_smoothing", "decoder_type"),
        _make_choice_condition("decode", False),
    ),
    (("beam_size", "length_penalty"), _make_choice_condition("decode", True)),
    (("target_ci", "max_batches"), _make_choice_condition("until_steady", True)),
    (
        _ALL_REDUCE_OPTIONS,
        _make_option_condition(
            "compress_gradients",
            lambda kind: kind != "int8",
            "a --compress_gradients other than int8",
        ),
    ),
    (
        ("save_every",),
        _make_option_condition("checkpoint_dir", bool, "--checkpoint_dir"),
    ),
    (
        ("lr_scaling",),
        _make_mode_condition(
            lambda mode: mode.trains_one_model and not mode.has_coordinator
        ),
    ),
    (
        ("lr_scaling",),
        _make_option_condition(
            "global_batch_size",
            operator.not_,
            "--batch_size instead of --global_batch_size",
        ),
    ),
    (
        ("lr_warmup_batches",),
        _make_either_condition(
            _make_choice_condition("lr_scaling", "linear"),
            _make_choice_condition("lr_schedule", "inverse_sqrt"),
        ),
    ),
    (_TRAINING_OPTIONS, _TRAINS),
    (
        ("variable_update",),
        _make_either_condition(
            _TRAINS, _make_mode_condition(lambda mode: not mode.trains_one_model)
        ),
    ),
    (("ragged_batches",), _make_choice_condition("random_lengths", True)),
    (
        ("pad_to",),
        _make_either_condition(
            _make_source_condition(lambda source: source.varies),
            _make_choice_condition("random_lengths", True),
        ),
    ),
    (
        ("prefetch_buffer_size",),
        _make_option_condition(
            "prefetch_data_to_device",
            bool,
            f"--data_source={_PREFETCHING_SOURCES} and --prefetch_data_to_device=true",
        ),
    ),
)
# An option is read if all its conditions hold.
CONDITIONS: dict[str, list[Condition]] = {}
# The options that decide which options are read, without duplicates.
DECIDING_OPTIONS: dict[str, None] = {}
for _name, _condition in _list_conditions():
    CONDITIONS.setdefault(_name, []).append(_condition)
    DECIDING_OPTIONS.update(dict.fromkeys(_condition.options))


def is_read(config: RunConfig, name: str) -> bool:
    """Return whether a configuration reads an option."""
    return all(condition.holds(config) for condition in CONDITIONS.get(name, ()))


def list_unread_user_options(
    config: RunConfig, user_options: Mapping[str, Any]
) -> list[str]:
    """Return the names of the user's options that a configuration does not read."""
    return [name for name in user_options if not is_read(config, name)]


def find_unread_options(config: Mapping[str, Any]) -> frozenset[str]:
    """Return all options that a configuration does not read.

    Args:
      config: The value of each option; missing ones have their defaults. Programs of
        users read all options that they record.
    """
    if TRAINER in config:
        return frozenset()
    values = [config.get(name, OPTIONS[name].default) for name in DECIDING_OPTIONS]
    return _find_unread_options(tuple(values))


@functools.lru_cache(maxsize=1024)  # thousands of runs have few different values
def _find_unread_options(deciding_values: tuple[Any, ...]) -> frozenset[str]:
    config = from_flat(dict(zip(DECIDING_OPTIONS, deciding_values)))
    return frozenset(name for name in CONDITIONS if not is_read(config, name))


def find_remedy(config: RunConfig, name: str) -> str:
    """Return the flags with which a configuration would read an option."""
    return " and ".join(
        condition.remedy
        for condition in CONDITIONS[name]
        if not condition.holds(config)
    )


# Options that decide on other options; in records of our trainer, those have the
# resolved values.
RESOLVED = ("preset", "independent_replica", "use_synthetic_data")
# Options that do not change the work of a run.
NOT_COMPARED = frozenset(
    (
        "result_file",
        "mlperf_log",
        "log_dir",
        "progress",
        "trace_batches",
        *RESOLVED,
        "cluster_timeout",
        "cluster_heartbeat",
        "coordinator_address",
        "checkpoint_dir",
        "save_every",
        *HOW_RUN,
    )
)
# The same for programs of users.
FOREIGN_NOT_COMPARED = NOT_COMPARED - {*RESOLVED}
