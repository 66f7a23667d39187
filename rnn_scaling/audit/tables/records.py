"""Our own run records -> one table: the derived numbers of each as cells, its raw ones as what they should be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.audit.scaling_table import Cell, ScalingRow, ScalingTable, exact
from rnn_scaling.records.record import RunRecord

NOT_SERIES = frozenset({"num_devices", "result_file", "log_dir", "progress", "trace_batches"})
# Pairs that must be equal in every record: column of the derived number, column of the one made from raw values.
EQUAL = (
    ("throughput.words", "sum of batches.words"),
    ("throughput.seconds", "sum of batches.seconds"),
    ("phases.total", "sum of phases"),
    ("batches.measured", "length of batches.seconds less warm-up"),
    ("throughput.words", "words that the settings imply"),
)


def table(records: Sequence[tuple[str, RunRecord]], source: str) -> ScalingTable:
    """The table of some records.

    Args:
      records: (file, record) of each.
      source: the folder or file that the user named.
    """
    rows, notes = [], []
    for path, record in records:
        if record.status != "ok":
            notes.append(f"{path}: the run {record.status}; left out")
            continue
        rows.append(_row(path, record))
    return ScalingTable(source, 0, "run records", (), tuple(rows), (), tuple(notes), {})


def _row(path: str, record: RunRecord) -> ScalingRow:
    config, throughput = record.config, record.throughput
    return ScalingRow(
        source=path,
        line=0,
        series=_series(config),
        devices=config.get("num_devices") if isinstance(config.get("num_devices"), int) else None,
        batch_size=None if _is_strong(config) else _cell(config.get("batch_size")),
        global_batch_size=_cell(config.get("global_batch_size")) if _is_strong(config) else None,
        batches=_cell(record.batches.get("measured")),
        seconds=_cell(throughput.get("seconds")),
        rate=_cell(throughput.get("words_per_second")),
        rate_unit="words/s",
        work=_cell(throughput.get("words")),
        extra={name: cell for name, cell in _parts(record).items() if cell},
    )


def _series(config: Mapping[str, Any]) -> str:
    """The mode and kernel by name, and a short mark for the other options, so that only like runs are compared."""
    unlike = {*NOT_SERIES, "batch_size"} if _is_strong(config) else NOT_SERIES
    rest = sorted((name, repr(value)) for name, value in config.items() if name not in unlike)
    mark = f"{sum(ord(c) * (i + 7) for i, c in enumerate(repr(rest))) & 0xFFFFFF:06x}"
    return " / ".join([str(config.get("encoder_type", "")), str(config.get("variable_update", "")), mark])


def _is_strong(config: Mapping[str, Any]) -> bool:
    """Whether the devices share one batch; a record's batch_size is then the largest share."""
    return bool(config.get("global_batch_size"))


def _parts(record: RunRecord) -> dict[str, Cell | None]:
    batches, warmup = record.batches, record.batches.get("warmup")
    seconds, words = batches.get("seconds"), batches.get("words")
    parts: dict[str, Cell | None] = {
        "throughput.words": _cell(record.throughput.get("words")),
        "throughput.seconds": _cell(record.throughput.get("seconds")),
        "phases.total": _cell(record.phases.get("total")),
        "batches.measured": _cell(batches.get("measured")),
    }
    inside = [value for name, value in record.phases.items() if name != "total"]
    if inside and all(isinstance(value, (int, float)) for value in inside):
        parts["sum of phases"] = _rounded(math.fsum(inside))
    if isinstance(warmup, int) and isinstance(seconds, list) and all(isinstance(s, (int, float)) for s in seconds):
        parts["sum of batches.seconds"] = _rounded(math.fsum(seconds[warmup:]))
        parts["length of batches.seconds less warm-up"] = _cell(len(seconds) - warmup)
    if isinstance(warmup, int) and isinstance(words, list) and all(isinstance(w, (int, float)) for w in words):
        parts["sum of batches.words"] = _cell(sum(words[warmup:]))
    parts["words that the settings imply"] = _implied(record)
    return parts


def _implied(record: RunRecord) -> Cell | None:
    """Words of the measured batches where every sentence has its full length, as synthetic ones do."""
    config = record.config
    names = ("global_batch_size",) if _is_strong(config) else ("batch_size", "num_devices")
    factors = [*map(config.get, names), record.batches.get("measured")]
    lengths = [config.get("src_max_len"), config.get("tgt_max_len")]
    if config.get("data_source") == "text" or not all(isinstance(v, int) for v in factors + lengths):
        return None
    return _cell(math.prod(factors) * sum(lengths))


def _cell(value: Any) -> Cell | None:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    return exact(value) if usable else None


def _rounded(value: float) -> Cell:
    """A sum of floats, good to a microsecond: records may round their derived values."""
    return Cell(value, 6, repr(value))
