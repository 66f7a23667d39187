"""Load a folder of records as rows, for Python code and data frames.

`rnn_scaling.load` returns `Rows`: its methods and columns are public.
"""

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
    list_distinguishing_facts,
    list_option_names,
    make_titles,
)
from rnn_scaling.config import scale
from rnn_scaling.config.conditions import FOREIGN_NOT_COMPARED, NOT_COMPARED
from rnn_scaling.config.naming import TRAINER, find_distinguishing
from rnn_scaling.records import folder as folders
from rnn_scaling.records.options import DEFAULTS, UNKNOWN
from rnn_scaling.system.files.terminal import format_three_digits

if TYPE_CHECKING:
    import pandas

_MAX_SHOWN_ROWS = 50  # rows in a notebook
_HEADINGS = ("machine", "series", "devices", "speed", "95 % interval", "efficiency")
_ALWAYS = (
    "model",
    "encoder_type",
    "variable_update",
    "num_devices",
    "batch_size",
    "global_batch_size",
)


@dataclasses.dataclass(frozen=True, repr=False)
class Rows(Sequence[Row]):
    """One row per configuration and machine, with its baseline on one device.

    Rows of different machines are separate, and never each other's baseline.
    `row.shown_metric(METRICS["speedup"])` is a metric with its interval; None if load
    hides it.

    Attributes:
      rows: Grouped by machine.
      left_out: A line for each file of the folder that is not a good record.
      machines: The machine of each row, by name.
    """

    rows: tuple[Row, ...]
    left_out: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __repr__(self) -> str:
        runs = sum(len(row.records) for row in self.rows)
        return f"<Rows: rows={len(self)}, runs={runs}, left_out={len(self.left_out)}>"

    def _repr_html_(self) -> str:
        """Return a table of the first rows, for notebooks."""
        heads = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
        lines = [f"<tr>{heads}</tr>"]
        rows = zip(self.machines, self.titles(), self.rows)
        for machine, title, row in itertools.islice(rows, _MAX_SHOWN_ROWS):
            cells = map(html.escape, _make_notebook_cells(machine, title, row))
            line = "".join(f"<td>{cell}</td>" for cell in cells)
            lines.append(f"<tr>{line}</tr>")
        table = f"<table>{''.join(lines)}</table>"
        num_omitted = len(self) - _MAX_SHOWN_ROWS
        if num_omitted > 0:
            table += f"<p>{num_omitted} more rows; to_records() has all.</p>"
        return table

    def titles(self) -> list[str]:
        """Return the title of each row's series in the report of its machine."""
        row_titles = {}
        for machine_rows in group_by(self.rows, self.machines).values():
            series = group_by_series(machine_rows)
            for members, title in zip(series, make_titles(series)):
                for row in members:
                    row_titles[id(row)] = title
        return [row_titles[id(row)] for row in self.rows]

    def to_records(self) -> list[dict[str, Any]]:
        """Return a flat mapping per row.

        It has the machine, the facts that differ, options, the unit, the number of
        runs, and metrics with their ends.
        """
        facts = list_distinguishing_facts([[row] for row in self.rows])
        options = find_identifying_options(self.rows)
        records = []
        for machine, row_facts, row in zip(self.machines, facts, self.rows):
            fields = {"machine": machine, **dict(row_facts)}
            records.append({**fields, **_record(row, options)})
        return records

    def to_pandas(self) -> pandas.DataFrame:
        """Return the same as a data frame, if pandas is installed."""
        import pandas

        return pandas.DataFrame(self.to_records())


def _make_notebook_cells(machine: str, title: str, row: Row) -> list[str]:
    """Return the cells of a row in a notebook; a failed row has no numbers."""
    rate = row.rate
    efficiency = row.shown_metric(EFFICIENCY)
    ends = rate.ends if rate else None
    return [
        machine,
        title,
        str(row.num_devices),
        f"{format_three_digits(rate.value)} {row.unit}/s" if rate else "n/a",
        " to ".join(map(format_three_digits, ends)) if ends else "n/a",
        f"{100 * efficiency.value:.1f} %" if efficiency else "n/a",
    ]


def _record(row: Row, options: Sequence[str]) -> dict[str, Any]:
    """Return a row as a flat dict for data frames."""
    record = {name: row.reported(name) for name in options}
    record |= {
        "num_devices": row.num_devices,
        "unit": row.unit,
        "runs_ok": len(row.good_runs),
        "runs_failed": len(row.records) - len(row.good_runs),
        "runs_disturbed": len(row.disturbed_runs),
        "rate_corrected": row.corrected is not None,
        "measured_items_per_second": row.measured_rate and row.measured_rate.value,
    }
    for metric in METRICS.values():
        value = row.shown_metric(metric)
        ends = (value.value, value.low, value.high) if value else (None, None, None)
        record |= zip((metric.name, f"{metric.name}_low", f"{metric.name}_high"), ends)
    return record


def find_identifying_options(rows: Sequence[Row]) -> list[str]:
    """Return ALWAYS, and the options in which rows differ.

    `num_workers` is one of them if a row's mode has workers. The `num_devices` of a row
    are the devices of all its workers.
    """
    is_ours = all(row.is_ours for row in rows)
    left_out = NOT_COMPARED if is_ours else FOREIGN_NOT_COMPARED
    names = [name for name in list_option_names(rows) if name not in left_out]
    # Another program's option also differs if some runs do not record it.
    unrecorded = {name: UNKNOWN for name in names if name not in DEFAULTS}
    values = [{**unrecorded, **row.options.known} for row in rows]
    identifying = {*_ALWAYS, *(scale.find_axis(row.options) for row in rows)}
    if not is_ours:
        identifying.add(TRAINER)
    identifying.update(find_distinguishing(names, values))
    return [name for name in names if name in identifying]


def load(path: str | Path) -> Rows:
    """Return the run records of a folder, without its subfolders, as rows.

    Raises:
      OSError: If the folder cannot be read.
      ValueError: If it has no run records; the message names subfolders that have some.
    """
    files = folders.read(Path(path))
    if not files.runs:
        reason = f"{path}: {files.empty_reason}{folders.suggest_subfolders(Path(path))}"
        raise ValueError("\n".join([reason, *files.not_used]))
    return build(files)


def build(files: folders.Folder) -> Rows:
    """Return the records of a folder as rows, grouped by machine."""
    rows: list[Row] = []
    names: list[str] = []
    machines = group_by_machine([file.record for file in files.runs])
    for name, records in machines.items():
        machine_rows = build_rows(records)
        rows += machine_rows
        names += [name] * len(machine_rows)
    return Rows(tuple(rows), files.not_used, tuple(names))
