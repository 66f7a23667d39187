"""All series in one table, each on its most devices beside itself on one: terminal, table.md and page begin with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP
from rnn_scaling.files.markdown import markdown_table
from rnn_scaling.reports import certificates
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, Summary, devices


@dataclasses.dataclass(frozen=True)
class Overview:
    """The table's head, and its lines in groups: weak and strong scaling, or units; one group has no name.

    A line: the series, and a cell for each column after the first.
    """

    head: Sequence[str]
    groups: Sequence[tuple[str, Sequence[tuple[SeriesSummary, Sequence[str]]]]]


def table_of(summary: Summary) -> Overview:
    """The overview of a report; the speedup comes first, so that a phone shows it."""
    counts = {member.largest.row.num_devices for member in summary.measured if member.largest}
    rows = [member.largest.row for member in summary.measured if member.largest]
    workers = {row.num_workers if row.config["num_devices"] == 1 else 1 for row in rows}
    places = f"{count} workers" if len(workers) == 1 and (count := workers.pop()) > 1 else ""
    on = f" on {places or devices(counts.pop())}" if len(counts) == 1 else ""
    unit = summary.unit.capitalize()
    several = [] if on else ["Devices"]
    is_scaled = any(row.num_devices > 1 for row in rows)  # else there is no speedup to tell
    scaled = [f"Speedup{on}", f"Efficiency{on} (%)", f"{unit}/s{on}"] if is_scaled else []
    head = ["Series", *several, *scaled, f"{unit}/s on 1 device", "Runs"]
    is_certified = summary.is_certified
    head += [certificates.HEAD] if is_certified else []
    groups = [
        (
            name if len(summary.scalings) > 1 else "",
            [
                (
                    member,
                    [
                        *_cells(member, bool(several), is_scaled),
                        *([certificates.of_rows([row.row for row in member.rows])] if is_certified else []),
                    ],
                )
                for member in series
            ],
        )
        for name, series in summary.scalings
    ]
    return Overview(head, groups)


def markdown(summary: Summary) -> str:
    """The overview as Markdown, a table for each group; empty where nothing was measured."""
    overview = table_of(summary)
    tables = []
    for name, lines in overview.groups:
        title = f"### {name}\n\n" if name else ""
        tables.append(title + markdown_table(overview.head, [[member.title, *cells] for member, cells in lines]))
    return "\n".join(tables)


def _cells(series: SeriesSummary, with_devices: bool, is_scaled: bool) -> list[str]:
    """The cells after the title."""
    row = series.largest
    if row is None:
        return [*(["n/a"] if with_devices else []), *["n/a"] * (4 if is_scaled else 1), "none succeeded"]
    base = row.row.baseline
    one = base.rate if base else None
    good = [len(measured.good) for measured in (base, row.row) if measured is not None]
    return [
        *([str(row.row.num_devices)] if with_devices else []),
        *(_scaled(row) if is_scaled else []),
        plus_minus(one, 1),
        " and ".join(str(count) for count in dict.fromkeys(good)) + (", diverged" if series.num_diverged else ""),
    ]


def _scaled(row: RowSummary) -> list[str]:
    return [
        plus_minus(row.row.metric(SPEEDUP), SPEEDUP.digits),
        plus_minus(row.efficiency, EFFICIENCY.digits),
        plus_minus(row.row.rate, 1),
    ]
