"""All series in one table, each on its most devices: terminal, table.md and page begin with it."""

from collections.abc import Sequence

from rnn_scaling.analysis.metrics import EFFICIENCY, MODEL_METRICS, SPEEDUP, common_unit
from rnn_scaling.reports import certificates
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, Summary
from rnn_scaling.system.files.terminal import counted


def sections(summary: Summary, is_brief: bool = False) -> list[Section]:
    """Each of the summary's tables: its series beside the rates on one device, or models beside what they exchange.

    A single one has no title. The speedup, or the efficiency, comes first, so that a phone shows it. If brief, for a
    terminal, there are fewer columns.
    """
    made = []
    for title, series in summary.tables:
        heads = _heads(summary, series if is_brief else summary.series, is_brief)
        lines = [
            [cells.get(name, "n/a") for name in heads] for cells in map(_cells, series)
        ]
        made.append(
            Section(
                title if len(summary.tables) > 1 else "",
                (Grid("", [*heads.values()], lines),),
            )
        )
    return made


def _heads(
    summary: Summary, series: Sequence[SeriesSummary], is_brief: bool
) -> dict[str, str]:
    """Name of a cell -> title of its column."""
    rows = [member.largest_row for member in series if member.largest_row]
    is_scaled, compares_models = (
        any(row.row.num_devices > 1 for row in rows),
        summary.has_many_models,
    )
    name, first = ("model", "Model") if compares_models else ("title", "Series")
    on = _common_place(rows)
    heads = {name: first} if on else {name: first, "devices": "Devices"}
    if is_brief:
        heads[name], on = on.strip().capitalize() if is_scaled and on else first, ""
    unit = common_unit(member.unit for member in series).capitalize()
    rate, scaled = (
        {"rate": f"{unit}/s{on}"},
        {"speedup": f"Speedup{on}", "efficiency": f"Efficiency{on} (%)"},
    )
    if compares_models:
        heads |= {
            "efficiency": scaled["efficiency"],
            **{metric.name: metric.column for metric in MODEL_METRICS},
        }
    elif is_brief:
        heads |= {**rate, **(scaled if is_scaled else {})}
    else:
        heads |= {
            **(scaled | rate if is_scaled else {}),
            "base_rate": f"{unit}/s on 1 device",
        }
    heads |= {} if is_brief else {"runs": "Runs"}
    return {
        **heads,
        **({"certificate": certificates.COLUMN_TITLE} if summary.is_certified else {}),
    }


def _common_place(rows: Sequence[RowSummary]) -> str:
    """ " on 2 devices", " on 4 workers", if all rows have the same number of devices; else empty."""
    if len({row.row.num_devices for row in rows}) != 1:
        return ""
    places = {row.devices.removesuffix(" of one device each") for row in rows}
    return f" on {places.pop() if len(places) == 1 else counted(rows[0].row.num_devices, 'device')}"


def _cells(series: SeriesSummary) -> dict[str, str]:
    """Cells by name; what is not known is left out."""
    row, certificate = (
        series.largest_row,
        certificates.verdict_text([row.row for row in series.rows]),
    )
    names = {"title": series.title, "model": series.model}
    if row is None:
        return {
            **names,
            "rate": "failed",
            "runs": "none succeeded",
            "certificate": certificate,
        }
    base = row.row.baseline
    good = dict.fromkeys(
        len(measured.counted_runs)
        for measured in (base, row.row)
        if measured is not None
    )
    return {
        **names,
        "devices": str(row.row.num_devices),
        "speedup": plus_minus(row.row.metric(SPEEDUP), SPEEDUP.digits),
        "efficiency": plus_minus(row.efficiency, EFFICIENCY.digits),
        "rate": plus_minus(row.row.rate, 1),
        "base_rate": plus_minus(base.rate if base else None, 1),
        "runs": " and ".join(map(str, good))
        + (", diverged" if series.num_diverged else ""),
        "certificate": certificate,
        **{
            metric.name: plus_minus(
                metric.in_printed_unit(row.row.metric(metric)), metric.digits
            )
            for metric in MODEL_METRICS
        },
    }
