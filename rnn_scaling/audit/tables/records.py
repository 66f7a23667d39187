"""Our own run records -> one table: the derived numbers of each as cells, its raw ones as what they should be."""

from __future__ import annotations

import dataclasses
import math
import os.path
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.audit.scaling_table import Cell, ScalingRow, ScalingTable, exact
from rnn_scaling.records.decoding import LARGEST
from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings import scale
from rnn_scaling.settings.naming import TRAINER, network

NOT_SERIES = frozenset(
    {
        *("result_file", "log_dir", "progress", "trace_batches"),
        *("cluster_timeout", "cluster_heartbeat", "coordinator_address"),
    }
)
# Pairs that must be equal in every record: column of the derived number, column of the one made from raw values.
EQUAL = (
    ("throughput.words", "sum of batches.words"),
    ("throughput.seconds", "sum of batches.seconds"),
    ("phases.total", "sum of phases"),
    ("batches.measured", "length of batches.seconds less warm-up"),
    ("throughput.words", "words that the settings imply"),
    ("throughput.words", "sum of all ranks' words"),
    ("throughput.seconds", "latest end of the ranks"),
)


def table(records: Sequence[tuple[str, RunRecord]], source: str) -> ScalingTable:
    """The table of some records.

    Args:
      records: (file, record) of each.
      source: the folder or file that the user named.
    """
    rows, notes = [], []
    several = len({_machine(record) for _, record in records} - {""}) > 1
    folders = {Path(path).parent for path, _ in records}
    for path, record in records:
        if record.status != "ok":
            notes.append(f"{path}: the run {record.status}; left out")
            continue
        apart = [_machine(record) or "machine not recorded"] if several else []
        if len(folders) > 1:  # before and after, the two sides of an A/B: no repeats of each other
            apart.append(os.path.relpath(Path(path).parent, source))
        rows.append(_row(path, record, apart))
    return ScalingTable(source, 0, "run records", (), tuple(rows), (), tuple(notes), {})


def _machine(record: RunRecord) -> str:
    """The GPUs and the processor of a run, "" where it does not say; runs of two machines are no repeats."""
    machine = record.environment
    cores = f"{machine.cpu} {machine.cpu_cores or ''}".strip() if machine.cpu else ""
    return ", ".join([*(str(gpu.get("name")) for gpu in machine.gpus), *filter(None, [cores])])


def _row(path: str, record: RunRecord, apart: Sequence[str]) -> ScalingRow:
    config, throughput = record.config, record.throughput
    return ScalingRow(
        source=path,
        line=0,
        series=" / ".join([_series(config, record.unit), *apart]),
        devices=scale.num_devices(config),
        batch_size=None if _is_strong(config) else _cell(config.get("batch_size")),
        global_batch_size=_cell(config.get("global_batch_size")) if _is_strong(config) else None,
        batches=_cell(record.batches.measured),
        seconds=_cell(throughput.seconds if throughput else None),
        rate=_rate(record),
        rate_unit=f"{record.unit}/s",
        work=_cell(throughput.items if throughput else None),
        extra={name: cell for name, cell in _parts(record).items() if cell},
    )


def _series(config: Mapping[str, Any], unit: str) -> str:
    """The mode and kernel by name, and a short mark for the other options, so that only like runs are compared."""
    unlike = {*NOT_SERIES, scale.axis(config), *(["batch_size"] if _is_strong(config) else [])}
    rest = sorted((name, repr(value)) for name, value in config.items() if name not in unlike)
    rest += [("unit", unit)] if TRAINER in config else []  # of ours the model says it
    mark = f"{sum(ord(c) * (i + 7) for i, c in enumerate(repr(rest))) & 0xFFFFFF:06x}"
    name = network(config) if config.keys() & {"encoder_type", TRAINER} else ""
    mode = str(config.get("variable_update", ""))
    return " / ".join([name, mark] if TRAINER in config and not mode else [name, mode, mark])


def _is_strong(config: Mapping[str, Any]) -> bool:
    """Whether the devices share one batch; a record's batch_size is then the largest share."""
    return bool(config.get("global_batch_size"))


def _parts(record: RunRecord) -> dict[str, Cell | None]:
    batches, throughput, phases = record.batches, record.throughput, record.phases
    seconds, items = batches.seconds[batches.warmup :], batches.items[batches.warmup :]
    return {
        "throughput.words": _cell(throughput.items if throughput else None),
        "throughput.seconds": _cell(throughput.seconds if throughput else None),
        "phases.total": _cell(phases.total),
        "batches.measured": _cell(batches.measured),
        "sum of phases": _rounded(math.fsum(phases.parts.values())) if any(phases.parts.values()) else None,
        "sum of batches.seconds": _rounded(math.fsum(seconds)) if seconds else None,
        "length of batches.seconds less warm-up": _cell(len(seconds)),
        "sum of batches.words": _cell(sum(items)),
        "words that the settings imply": _implied(record),
        **_of_ranks(record),
    }


def _of_ranks(record: RunRecord) -> dict[str, Cell | None]:
    """What the ranks of several processes timed themselves; nothing where they did not, or some were lost."""
    workers, first = record.workers, record.batches.warmup
    timed = [rank for rank in workers.ranks if rank.seconds] if workers and not workers.lost else []
    if not timed:
        return {}
    return {
        "sum of all ranks' words": _cell(sum(sum(rank.items[first:]) for rank in timed)),
        "latest end of the ranks": _rounded(max(math.fsum(rank.seconds[first:]) for rank in timed)),
    }


def _implied(record: RunRecord) -> Cell | None:
    """Words of the measured batches where every sentence has its full length, as synthetic ones do."""
    config = record.config
    total = "global_batch_size" if _is_strong(config) else "batch_size"
    lengths = ("src_max_len", "tgt_max_len")
    unknown = any(config.get(name) is None for name in (total, *lengths))
    if record.unit != "words" or config.get("data_source") == "text" or unknown or TRAINER in config:
        return None
    times = 1 if _is_strong(config) else scale.num_devices(config)
    sentences = config[total] * times * record.batches.measured
    return _cell(sentences * sum(config[name] for name in lengths))


def _rate(record: RunRecord) -> Cell | None:
    """items/s; of a log with the digits that it printed."""
    cell = _cell(record.throughput.items_per_second if record.throughput else None)
    if cell is None or not record.log_rounding:
        return cell
    unit = 2 * record.log_rounding * cell.value  # of the last digit
    return dataclasses.replace(cell, digits=math.floor(1e-6 - math.log10(unit)))


def _cell(value: float | None) -> Cell | None:
    return exact(value) if value and value <= LARGEST else None  # a product of options has no bound


def _rounded(value: float) -> Cell:
    """A sum of floats, good to a microsecond: records may round their derived values."""
    return Cell(value, 6, repr(value))
