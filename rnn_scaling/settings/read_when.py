"""Which options only some configurations read: setting one that nothing reads is a mistake, and changes no run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from rnn_scaling.settings.config import RunConfig

FILE_OPTIONS = ("src_file_name", "tgt_file_name", "src_vocab_file", "tgt_vocab_file")


@dataclasses.dataclass(frozen=True)
class _ReadWhen:
    """An option that only some configurations read."""

    read: Callable[[RunConfig], bool]
    remedy: str


def _update_is(*modes: str) -> _ReadWhen:
    remedy = " or ".join(f"--variable_update={mode}" for mode in modes)
    return _ReadWhen(lambda c: c.update.variable_update in modes, remedy)


def _data_is(*sources: str) -> _ReadWhen:
    return _ReadWhen(
        lambda c: c.data.data_source in sources, " or ".join(f"--data_source={source}" for source in sources)
    )


READ_WHEN: dict[str, _ReadWhen] = {
    "cpu_cores_per_device": _ReadWhen(lambda c: c.devices.device == "cpu", "--device=cpu"),
    **{
        name: _update_is("parameter_server")
        for name in ("param_server_device", "partition_large_variables", "staged_vars")
    },
    **{
        name: _update_is("replicated")
        for name in (
            "all_reduce_spec",
            "gradient_repacking",
            "agg_small_grads_max_bytes",
            "agg_small_grads_max_group",
        )
    },
    **{name: _update_is("parameter_server", "replicated") for name in ("variable_consistency", "sparse_gradients")},
    **{
        name: _data_is("text")
        for name in (*FILE_OPTIONS, "bos", "eos", "unk_id", "num_buckets", "disable_shuffle", "output_buffer_size")
    },
    **{name: _data_is("host", "text") for name in ("num_parallel_calls", "prefetch_data_to_device")},
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
