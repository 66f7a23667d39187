"""The log of one training run, as a sweep of somebody's own trainer reads it: one rate, and what else it tells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rnn_scaling import registry
from rnn_scaling.audit.scaling_table import Cell, ScalingRow, ScalingTable
from rnn_scaling.importers import any_format, pattern
from rnn_scaling.importers.common import ImportedLog, LogError, read_lines
from rnn_scaling.sweeps import log_formats
from rnn_scaling.sweeps.log_formats import Reading, Terms

MOST_ROUNDING = 0.5  # of a number with a single digit, 1


def read(path: Path, terms: Terms) -> Reading:
    """What the log of a run tells.

    Args:
      path: the log.
      terms: how it is read.

    Raises:
      ValueError: saying why it tells nothing.
      OSError: if the file cannot be read.
    """
    if not path.stat().st_size:
        raise ValueError("it printed nothing")
    failures = []
    names, regex = log_formats.split(terms.formats)
    try:
        for name in _tried(path, names):
            try:
                return _reading(registry.load(registry.IMPORTERS, name).parse(read_lines(path), str(path)))
            except ValueError as e:
                failures.append(f"as {name}: {_reason(e)}")
        if regex:
            return pattern.read(read_lines(path), regex, terms)
    except LogError as e:  # no text, or none at all
        raise ValueError(f"its output cannot be read: {e.reason}") from None
    if failures:
        raise ValueError(f"its output tells no rate ({'; '.join(failures)})")
    known = ", ".join(each for each in names if each != log_formats.AUTO) or ", ".join(log_formats.names())
    raise ValueError(f"its output is of no format that is read ({known}); --log_format=regex:PATTERN reads others")


def _tried(path: Path, names: Sequence[str]) -> list[str]:
    """The formats of `names` that the log seems to hold, "auto" being all that tell rates."""
    wanted = dict.fromkeys(
        name for each in names for name in (log_formats.names() if each == log_formats.AUTO else [each])
    )
    detected = set[str]()
    for window in any_format.windows(path) if wanted else ():
        detected |= {name for name in wanted if registry.load(registry.IMPORTERS, name).detect(window)}
    return [name for name in wanted if name in detected]


def _reading(log: ImportedLog) -> Reading:
    """What a log of a known format tells of its one run.

    Raises:
      ValueError: if it tells no rate, or several.
    """
    tables = [table for table in log.tables if isinstance(table, ScalingTable)]
    rows = [row for table in tables for row in table.rows if row.rate]
    if len(rows) != 1:
        first = f"; {log.problems[0].reason}" if log.problems else ""
        raise ValueError(f"{len(rows) or 'no'} rates, and one run has one{first}")
    row = rows[0]
    assert row.rate is not None
    notes = [problem.text(log.source) for problem in log.problems] + list(log.remarks)
    return Reading(
        format=log.format,
        rate=row.rate.value,
        unit=row.rate_unit.removesuffix("/s"),
        devices=row.devices,
        batch_size=_batch_size(row),
        rounding=min(row.rate.half_ulp / row.rate.value, MOST_ROUNDING),
        notes=(*(f"{log.format}: {note}" for note in log.notes), *notes),
    )


def _batch_size(row: ScalingRow) -> int | None:
    """Samples of a device a step."""
    each, of_all = _whole(row.batch_size), _whole(row.global_batch_size)
    if each is None and of_all and row.devices and of_all % row.devices == 0:
        return of_all // row.devices
    return each


def _whole(cell: Cell | None) -> int | None:
    return int(cell.value) if cell and cell.value.is_integer() and cell.value >= 1 else None


def _reason(error: ValueError) -> str:
    return error.reason if isinstance(error, LogError) else str(error)
