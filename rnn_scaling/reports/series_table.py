"""All series in one table, each on its most devices: terminal, table.md and page begin with it."""

from collections.abc import Mapping, Sequence

from rnn_scaling.analysis.metrics import EFFICIENCY, OF_MODELS, SPEEDUP, common_unit
from rnn_scaling.reports import certificates
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.wording import counted


def sections(summary: Summary) -> list[Section]:
    """Each of the summary's tables: its series beside the rates on one device, or models beside what they exchange.

    A single one has no title. The speedup, or the efficiency, comes first, so that a phone shows it.
    """
    rows = [member.largest.row for member in summary.measured if member.largest]
    counts = {row.num_devices for row in rows}
    workers = {row.num_workers if row.config["num_devices"] == 1 else 1 for row in rows}
    places = f"{count} workers" if len(workers) == 1 and (count := workers.pop()) > 1 else ""
    on = f" on {places or counted(counts.pop(), 'device')}" if len(counts) == 1 else ""
    unit = summary.unit.capitalize()
    heads = {} if on else {"devices": "Devices"}
    if summary.has_many_models:
        heads |= _model_heads(f"Efficiency{on} (%)")
    elif any(row.num_devices > 1 for row in rows):
        heads |= {"speedup": f"Speedup{on}", "efficiency": f"Efficiency{on} (%)", "rate": f"{unit}/s{on}"}
    heads |= {"runs": "Runs"} if summary.has_many_models else {"base_rate": f"{unit}/s on 1 device", "runs": "Runs"}
    heads |= {"certificate": certificates.HEAD} if summary.is_certified else {}
    return [_section(summary, name, _grid("Series", heads, series)) for name, series in summary.tables]


def brief_sections(summary: Summary) -> list[Section]:
    """The same in fewer columns, for a terminal."""
    return [_section(summary, name, _brief_grid(series, summary.has_many_models)) for name, series in summary.tables]


def _section(summary: Summary, name: str, grid: Grid) -> Section:
    return Section(name if len(summary.tables) > 1 else "", (grid,))


def _model_heads(efficiency: str) -> dict[str, str]:
    return {"efficiency": efficiency, **{metric.name: metric.column for metric in OF_MODELS}}


def _brief_grid(series: Sequence[SeriesSummary], of_models: bool) -> Grid:
    largest = [member.largest for member in series if member.largest]
    counts = {row.row.num_devices for row in largest}
    is_scaled = any(count > 1 for count in counts)
    heads = {"devices": "Devices"} if len(counts) > 1 else {}
    if of_models:
        heads |= _model_heads("Efficiency (%)")
    else:
        heads["rate"] = f"{common_unit(member.unit for member in series).capitalize()}/s"
    if is_scaled and not of_models:
        heads |= {"speedup": SPEEDUP.title.capitalize(), "efficiency": "Efficiency (%)"}
    if certificates.is_any([row.row for row in largest]):
        heads["certificate"] = certificates.HEAD
    return _grid(f"On {largest[0].devices}" if len(counts) == 1 and is_scaled else "Series", heads, series)


def _grid(first: str, heads: Mapping[str, str], series: Sequence[SeriesSummary]) -> Grid:
    """A line for each series; `heads`: name of a cell -> title of its column."""
    of_models = OF_MODELS[0].name in heads
    titles = [member.model if of_models else member.title for member in series]
    lines = [[title, *(_cells(member).get(name, "n/a") for name in heads)] for title, member in zip(titles, series)]
    return Grid("", ["Model" if of_models and first == "Series" else first, *heads.values()], lines)


def _cells(series: SeriesSummary) -> dict[str, str]:
    """Cells by name; what is not known is left out."""
    row, certificate = series.largest, certificates.of_rows([row.row for row in series.rows])
    if row is None:
        return {"rate": "failed", "runs": "none succeeded", "certificate": certificate}
    base = row.row.baseline
    good = dict.fromkeys(len(measured.good) for measured in (base, row.row) if measured is not None)
    return {
        "devices": str(row.row.num_devices),
        "speedup": plus_minus(row.row.metric(SPEEDUP), SPEEDUP.digits),
        "efficiency": plus_minus(row.efficiency, EFFICIENCY.digits),
        "rate": plus_minus(row.row.rate, 1),
        "base_rate": plus_minus(base.rate if base else None, 1),
        "runs": " and ".join(map(str, good)) + (", diverged" if series.num_diverged else ""),
        "certificate": certificate,
        **{metric.name: plus_minus(metric.printed(row.row.metric(metric)), metric.digits) for metric in OF_MODELS},
    }
