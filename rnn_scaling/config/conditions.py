"""Which options only some configurations read: setting one that nothing reads is a mistake, and changes no run."""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rnn_scaling.config import registry
from rnn_scaling.config.naming import HOW_RUN, TRAINER
from rnn_scaling.config.registry import either
from rnn_scaling.config.run_config import GROUP_OF, OPTIONS, RunConfig, from_flat
from rnn_scaling.models.kernels import UNIT_TYPES
from rnn_scaling.models.workloads import WORKLOADS

FEW_CHOICES = 4  # that are spelled as flags, one by one
MANY_CHOICES = 16  # of more, a message names a few
_OF_SEVERAL = (
    "num_workers",
    "cluster_timeout",
    "cluster_heartbeat",
    "coordinator_address",
)
_OF_TRAINING = (
    *(
        "dropout",
        "optimizer",
        "weight_decay",
        "learning_rate",
        "lr_schedule",
        "lr_steps",
        "lr_scaling",
    ),
    *(
        "lr_warmup_batches",
        "loss_scale",
        "max_gradient_norm",
        "gradient_accumulation_steps",
    ),
    *("stop_at_loss", "stop_at_accuracy", "save_every", "mlperf_log"),
)
_OF_SUMS = (
    "all_reduce_spec",
    "gradient_repacking",
    "agg_small_grads_max_bytes",
    "agg_small_grads_max_group",
)


@dataclasses.dataclass(frozen=True)
class Condition:
    """An option that only some configurations read. by: the options that `read` looks at."""

    read: Callable[[RunConfig], bool]
    remedy: str
    by: tuple[str, ...]


def _chosen(option: str, *choices: Any) -> Condition:
    """Read where `option` is one of the choices."""
    named = [str(choice).lower() for choice in choices]
    if len(choices) > MANY_CHOICES:
        named = [
            *named[:FEW_CHOICES],
            f"any of {len(choices) - FEW_CHOICES} others (--help={option} names them)",
        ]
    few = len(choices) <= FEW_CHOICES
    remedy = (
        " or ".join(f"--{option}={choice}" for choice in named)
        if few
        else f"--{option}={either(named)}"
    )
    return _where(option, lambda value: value in choices, remedy)


def _where(option: str, holds: Callable[[Any], bool], remedy: str) -> Condition:
    """Read where something holds for the value of `option`."""
    group = GROUP_OF[option]
    return Condition(
        lambda config: holds(getattr(getattr(config, group), option)), remedy, (option,)
    )


def _either(a: Condition, b: Condition) -> Condition:
    """Read where one of the two holds."""
    remedy = f"{a.remedy}{',' if ',' in a.remedy else ''} or {b.remedy}"
    return Condition(
        lambda config: a.read(config) or b.read(config), remedy, (*a.by, *b.by)
    )


def _rules() -> Iterator[tuple[str, Condition]]:
    for option, table in (
        ("variable_update", registry.VARIABLE_UPDATES),
        ("data_source", registry.DATA_SOURCES),
        ("model", WORKLOADS),
        ("unit_type", UNIT_TYPES),
        ("framework", registry.FRAMEWORKS),
    ):
        for name, choices in registry.readers(table).items():
            yield name, _chosen(option, *choices)
    modes = registry.VARIABLE_UPDATES
    sources = registry.DATA_SOURCES
    together = [
        name
        for name, mode in modes.items()
        if mode.trains_one_model and not mode.has_coordinator
    ]
    independent = [name for name, mode in modes.items() if not mode.trains_one_model]
    with_servers = [name for name, mode in modes.items() if mode.has_servers]
    varying = [name for name, source in sources.items() if source.varies]
    prefetching = f"--data_source={' or '.join(registry.readers(sources)['prefetch_data_to_device'])}"
    training = Condition(
        lambda c: c.model.trains,
        "training, without --forward_only and --decode",
        ("forward_only", "decode"),
    )
    for names, condition in (
        (("cpu_cores_per_device",), _chosen("device", "cpu")),
        (
            _OF_SEVERAL,
            _chosen("variable_update", *registry.distributed_modes()),
        ),
        (("num_ps",), _chosen("variable_update", *with_servers)),
        (("lr_steps",), _chosen("lr_schedule", "piecewise")),
        (("loss_scale",), _chosen("compute_dtype", "float16")),
        (("stop_at_accuracy",), _chosen("accuracy", True)),
        (("accuracy", "label_smoothing", "decoder_type"), _chosen("decode", False)),
        (("beam_size", "length_penalty"), _chosen("decode", True)),
        (("target_ci", "max_batches"), _chosen("until_steady", True)),
        (
            _OF_SUMS,
            _where(
                "compress_gradients",
                lambda kind: kind != "int8",
                "a --compress_gradients other than int8",
            ),
        ),
        (("save_every",), _where("checkpoint_dir", bool, "--checkpoint_dir")),
        (("lr_scaling",), _chosen("variable_update", *together)),
        (
            ("lr_scaling",),
            _where(
                "global_batch_size",
                operator.not_,
                "--batch_size instead of --global_batch_size",
            ),
        ),
        (
            ("lr_warmup_batches",),
            _either(
                _chosen("lr_scaling", "linear"), _chosen("lr_schedule", "inverse_sqrt")
            ),
        ),
        (_OF_TRAINING, training),
        (
            ("variable_update",),
            _either(training, _chosen("variable_update", *independent)),
        ),
        (
            ("pad_to",),
            _either(_chosen("data_source", *varying), _chosen("random_lengths", True)),
        ),
        (
            ("prefetch_buffer_size",),
            _where(
                "prefetch_data_to_device",
                bool,
                f"{prefetching} and --prefetch_data_to_device=true",
            ),
        ),
    ):
        for name in names:
            yield name, condition


CONDITIONS: dict[
    str, list[Condition]
] = {}  # an option is read where all of its rules say so
for _name, _rule in _rules():
    CONDITIONS.setdefault(_name, []).append(_rule)


DECIDING = tuple(
    dict.fromkeys(
        name for rules in CONDITIONS.values() for rule in rules for name in rule.by
    )
)


def is_read(config: RunConfig, name: str) -> bool:
    """Whether something in `config` reads the option `name`."""
    return all(rule.read(config) for rule in CONDITIONS.get(name, ()))


def unread(config: RunConfig, given: Mapping[str, Any]) -> list[str]:
    """Names of the given options that nothing in `config` would read."""
    return [name for name in given if not is_read(config, name)]


def unread_options(values: Mapping[str, Any]) -> frozenset[str]:
    """The options that nothing reads of these flat values, or their defaults; another trainer reads what it tells."""
    if TRAINER in values:
        return frozenset()
    return _unread(
        tuple([values.get(name, OPTIONS[name].default) for name in DECIDING])
    )


@functools.lru_cache(
    maxsize=1024
)  # thousands of runs have few settings of these among them
def _unread(deciding: tuple[Any, ...]) -> frozenset[str]:
    config = from_flat(dict(zip(DECIDING, deciding)))
    return frozenset(name for name in CONDITIONS if not is_read(config, name))


def remedy(config: RunConfig, name: str) -> str:
    """What would make `config` read the option `name`, as flags."""
    return " and ".join(
        rule.remedy for rule in CONDITIONS[name] if not rule.read(config)
    )


# Of our trainer's runs other options hold what these come to; of another's nothing else does.
RESOLVED = ("preset", "independent_replica", "use_synthetic_data")
# Options that say nothing about the work of a run.
NOT_COMPARED = frozenset(
    {
        *(
            "result_file",
            "mlperf_log",
            "log_dir",
            "progress",
            "trace_batches",
            *RESOLVED,
        ),
        *(
            "cluster_timeout",
            "cluster_heartbeat",
            "coordinator_address",
            "checkpoint_dir",
            "save_every",
        ),
        *HOW_RUN,
    }
)
NOT_COMPARED_THEIRS = NOT_COMPARED - {*RESOLVED}  # the same of another trainer's run
