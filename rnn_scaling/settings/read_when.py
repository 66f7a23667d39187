"""Which options only some configurations read: setting one that nothing reads is a mistake, and changes no run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from rnn_scaling import registry
from rnn_scaling.settings.config import RunConfig


@dataclasses.dataclass(frozen=True)
class _ReadWhen:
    """An option that only some configurations read."""

    read: Callable[[RunConfig], bool]
    remedy: str


def _chosen(option: str, choices: tuple[str, ...], group: str) -> _ReadWhen:
    """Read where `option`, of this group of the configuration, is one of the choices."""
    remedy = " or ".join(f"--{option}={choice}" for choice in choices)
    return _ReadWhen(lambda config: getattr(getattr(config, group), option) in choices, remedy)


READ_WHEN: dict[str, _ReadWhen] = {
    "cpu_cores_per_device": _ReadWhen(lambda c: c.devices.device == "cpu", "--device=cpu"),
    **{
        name: _chosen("variable_update", modes, "update")
        for name, modes in registry.readers(registry.VARIABLE_UPDATES).items()
    },
    **{
        name: _chosen("data_source", sources, "data")
        for name, sources in registry.readers(registry.DATA_SOURCES).items()
    },
    **{
        name: _ReadWhen(lambda c: c.measure.until_steady, "--until_steady=true")
        for name in ("target_ci", "max_batches")
    },
    "prefetch_buffer_size": _ReadWhen(
        lambda c: c.data.prefetch_data_to_device, "--data_source=host or text and --prefetch_data_to_device=true"
    ),
}


def unread(config: RunConfig, given: Mapping[str, Any]) -> list[str]:
    """Names of the given options that nothing in `config` would read."""
    return [name for name in given if name in READ_WHEN and not READ_WHEN[name].read(config)]


# Options that say nothing about the work of a run.
NOT_COMPARED = frozenset(
    {"result_file", "log_dir", "progress", "trace_batches", "preset", "independent_replica", "use_synthetic_data"}
)
