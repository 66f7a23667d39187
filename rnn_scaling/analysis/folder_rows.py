"""A folder of records as rows, for Python code and data frames."""

from __future__ import annotations

import dataclasses
import html
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.machines import group_by_machine
from rnn_scaling.analysis.metrics import EFFICIENCY, METRICS
from rnn_scaling.analysis.rows import Row, build_rows
from rnn_scaling.analysis.series_titles import (
    group_by_series,
    option_names,
    series_facts,
    titles,
)
from rnn_scaling.config import scale
from rnn_scaling.config.conditions import NOT_COMPARED, NOT_COMPARED_THEIRS
from rnn_scaling.config.naming import TRAINER, distinguishing
from rnn_scaling.records import folder as folders
from rnn_scaling.records.options import DEFAULTS, UNKNOWN
from rnn_scaling.system.files.terminal import three_digits

if TYPE_CHECKING:
    import pandas

MOST_SHOWN = 50  # rows in a notebook
SHOWN = ("machine", "series", "devices", "speed", "95 % interval", "efficiency")
ALWAYS = (
    "model",
    "encoder_type",
    "variable_update",
    "num_devices",
    "batch_size",
    "global_batch_size",
)


@dataclasses.dataclass(frozen=True, repr=False)
class Rows(Sequence[Row]):
    """One row for each configuration and machine, with its one-device baseline, grouped by machine."""

    rows: tuple[
        Row, ...
    ]  # `row.metric(METRICS["speedup"])` is one of `analysis.metrics` with its interval
    left_out: tuple[
        str, ...
    ] = ()  # a line for each file of the folder that is no good record
    machines: tuple[
        str, ...
    ] = ()  # of each row, by name; rows of several are never one, nor each other's baseline

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __repr__(self) -> str:
        runs = sum(len(row.records) for row in self.rows)
        return f"<Rows: rows={len(self)}, runs={runs}, left_out={len(self.left_out)}>"

    def _repr_html_(self) -> str:
        """A table of the first rows, for notebooks."""
        rows = zip(self.machines, self._titles(), self.rows)
        lines = [
            _cells(machine, title, row)
            for machine, title, row in itertools.islice(rows, MOST_SHOWN)
        ]
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>"
            for line in lines
        )
        more = (
            f"<p>{len(self) - MOST_SHOWN} more rows; to_records() has all.</p>"
            if len(self) > MOST_SHOWN
            else ""
        )
        return f"<table><tr>{''.join(f'<th>{name}</th>' for name in SHOWN)}</tr>{body}</table>{more}"

    def _titles(self) -> list[str]:
        """The title of each row's series, as in the report of its machine."""
        rows_of = group_by(self.rows, self.machines)
        titled = [
            pair
            for series in map(group_by_series, rows_of.values())
            for pair in zip(series, titles(series))
        ]
        names = {id(row): title for members, title in titled for row in members}
        return [names[id(row)] for row in self.rows]

    def to_records(self) -> list[dict[str, Any]]:
        """A flat mapping a row: machine, differing facts, options, unit, runs, and metrics with their ends."""
        facts = series_facts([[row] for row in self.rows])
        options = identifying_options(self.rows)
        rows = zip(self.machines, facts, self.rows)
        return [
            {"machine": machine, **dict(known), **_record(row, options)}
            for machine, known, row in rows
        ]

    def to_pandas(self) -> pandas.DataFrame:
        """The same as a data frame, if pandas is installed."""
        import pandas

        return pandas.DataFrame(self.to_records())


def _cells(machine: str, title: str, row: Row) -> list[str]:
    """The cells of a row in a notebook; a failed row has no numbers."""
    rate = row.rate
    efficiency = row.metric(EFFICIENCY)
    ends = rate.ends if rate else None
    return [
        machine,
        title,
        str(row.num_devices),
        f"{three_digits(rate.value)} {row.unit}/s" if rate else "n/a",
        " to ".join(map(three_digits, ends)) if ends else "n/a",
        f"{100 * efficiency.value:.1f} %" if efficiency else "n/a",
    ]


def _record(row: Row, options: Sequence[str]) -> dict[str, Any]:
    record = {name: row.reported(name) for name in options} | {
        "num_devices": row.num_devices
    }
    record |= {
        "unit": row.unit,
        "runs_ok": len(row.good_runs),
        "runs_failed": len(row.records) - len(row.good_runs),
        "runs_disturbed": len(row.disturbed_runs),
    }
    for metric in METRICS.values():
        value = row.metric(metric)
        ends = (value.value, value.low, value.high) if value else (None, None, None)
        record |= zip((metric.name, f"{metric.name}_low", f"{metric.name}_high"), ends)
    return record


def identifying_options(rows: Sequence[Row]) -> list[str]:
    """The options that identify rows: those of `ALWAYS`, and those in which the rows differ.

    Where a row's mode has workers, `num_workers` is told; `num_devices` of a row are those of all its workers.
    """
    left_out = NOT_COMPARED if all(row.is_ours for row in rows) else NOT_COMPARED_THEIRS
    names = [name for name in option_names(rows) if name not in left_out]
    # Not recording an option of its own tells another program's run apart, too.
    theirs = {name: UNKNOWN for name in names if name not in DEFAULTS}
    known = [{**theirs, **row.options.known} for row in rows]
    always = {*ALWAYS, *(scale.axis(row.options) for row in rows)}
    if not all(row.is_ours for row in rows):
        always.add(TRAINER)
    differing = distinguishing(names, known)
    return [name for name in names if name in always or name in differing]


def load(path: str | Path) -> Rows:
    """The run records of a folder (not of its subfolders) as rows.

    Raises:
      OSError: if the folder cannot be read.
      ValueError: if it has no run records; the message names subfolders that have some.
    """
    files = folders.read(Path(path))
    if not files.runs:
        raise ValueError(
            "\n".join(
                [
                    f"{path}: {files.nothing}{folders.elsewhere(Path(path))}",
                    *files.not_used,
                ]
            )
        )
    machines = group_by_machine([file.record for file in files.runs])
    named_rows = [
        (row, name) for name, records in machines.items() for row in build_rows(records)
    ]
    return Rows(
        tuple(row for row, _ in named_rows),
        files.not_used,
        tuple(name for _, name in named_rows),
    )
