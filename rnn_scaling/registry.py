"""Name -> module tables. A new kernel, mode, algorithm or report is one file and one line here.

What a user may choose, the help text, which options a choice reads and what a sweep does by default follow from the
tables. They hold module paths, so that what a module imports loads only when it is chosen.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Protocol


@dataclasses.dataclass(frozen=True)
class Choice:
    """One row of a table.

    Attributes:
      module: loaded when it is chosen.
      help: what it is, in a few words, for `--help`.
      reads: options that not every choice of its table reads; setting one that nobody reads is refused.
      is_swept: whether a sweep runs it when the user names none.
    """

    module: str
    help: str = ""
    reads: tuple[str, ...] = ()
    is_swept: bool = False


Table = Mapping[str, Choice]


def _modules(package: str, *names: str) -> Table:
    return {name: Choice(f"{package}.{name}") for name in names}


_STALE_AND_SPARSE = ("variable_consistency", "sparse_gradients")
VARIABLE_UPDATES: Table = {
    "independent": Choice(
        "rnn_scaling.training.variable_update.independent", "replicas that exchange nothing", is_swept=True
    ),
    "parameter_server": Choice(
        "rnn_scaling.training.variable_update.parameter_server",
        "one copy of the variables",
        reads=("param_server_device", "partition_large_variables", "staged_vars", *_STALE_AND_SPARSE),
        is_swept=True,
    ),
    "replicated": Choice(
        "rnn_scaling.training.variable_update.replicated",
        "a copy a device, gradients all-reduced",
        reads=(
            *("all_reduce_spec", "gradient_repacking", "agg_small_grads_max_bytes", "agg_small_grads_max_group"),
            *_STALE_AND_SPARSE,
        ),
        is_swept=True,
    ),
    "mirrored": Choice("rnn_scaling.training.variable_update.mirrored", "tf.distribute.MirroredStrategy"),
}
ALL_REDUCES = _modules(
    "rnn_scaling.training.all_reduce",
    "nccl",
    "collective",
    "xring",
    "rechd",
    "pscpu",
    "psgpu",
    "hierarchical",
)
TEXT_FILES = ("src_file_name", "tgt_file_name", "src_vocab_file", "tgt_vocab_file")
_PIPELINE = ("num_parallel_calls", "prefetch_data_to_device")
DATA_SOURCES: Table = {
    "device": Choice("rnn_scaling.data.device", "random words drawn on each device"),
    "constant": Choice("rnn_scaling.data.constant", "one batch kept on each device"),
    "host": Choice("rnn_scaling.data.host", "random words from the host's pipeline", reads=_PIPELINE),
    "text": Choice(
        "rnn_scaling.data.text",
        "parallel text files",
        reads=(
            *TEXT_FILES,
            *("bos", "eos", "unk_id", "num_buckets", "disable_shuffle", "output_buffer_size"),
            *_PIPELINE,
        ),
    ),
}
ENGINES = _modules("rnn_scaling.training.engines", "local")
REPORTS: Table = {
    "table": Choice("rnn_scaling.reports.table"),
    "csv": Choice("rnn_scaling.reports.csv_table"),
    "json": Choice("rnn_scaling.reports.json_report"),
    "page": Choice("rnn_scaling.reports.page.document"),
    "plot": Choice("rnn_scaling.reports.pictures.plot"),
}
IMPORTERS: Table = {
    "tf_cnn_benchmarks": Choice("rnn_scaling.importers.tf_cnn_benchmarks"),
    "horovod_synthetic": Choice("rnn_scaling.importers.horovod_synthetic"),
    "horovod_timeline": Choice("rnn_scaling.importers.horovod_timeline"),
    "nccl_tests": Choice("rnn_scaling.importers.nccl_tests"),
    "nccl_tests_json": Choice("rnn_scaling.importers.nccl_tests_json"),
    "mlperf": Choice("rnn_scaling.importers.mlperf"),
    "bandwidth_test": Choice("rnn_scaling.importers.cuda_bandwidth"),
    "p2p_bandwidth_latency": Choice("rnn_scaling.importers.p2p_bandwidth"),
    "nvidia_smi_topo": Choice("rnn_scaling.importers.topo"),
    "seed_trainer": Choice("rnn_scaling.importers.seed_trainer"),
}
CHECKS = _modules(
    "rnn_scaling.audit.checks",
    "values",
    "speedup",
    "efficiency",
    "work",
    "sums",
    "ratios",
    "swapped",
    "shape",
    "copies",
    "cross_table",
    "record_parts",
)


def load(table: Table, name: str) -> ModuleType:
    """Imports and returns the module that `table` names `name`.

    Raises:
      ValueError: if the table has no such name.
    """
    if name not in table:
        raise ValueError(f"expected one of {', '.join(sorted(table))}, got {name!r}")
    return importlib.import_module(table[name].module)


def swept(table: Table) -> list[str]:
    """What a sweep runs when the user names none."""
    return [name for name, choice in table.items() if choice.is_swept]


class Reader(Protocol):
    """A row of a table, here or elsewhere, that says which options it reads."""

    @property
    def reads(self) -> tuple[str, ...]: ...


def readers(table: Mapping[str, Reader]) -> dict[str, tuple[str, ...]]:
    """Option -> the choices of the table that read it, for the options that not all of them read."""
    options = dict.fromkeys(option for choice in table.values() for option in choice.reads)
    return {option: tuple(name for name, choice in table.items() if option in choice.reads) for option in options}


def in_words(table: Table) -> str:
    """ "a (what a is), b (what b is) or c (what c is)", for a help text."""
    return either([f"{name} ({choice.help})" for name, choice in table.items()])


def either(words: Iterable[str]) -> str:
    """ "a, b or c"."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
