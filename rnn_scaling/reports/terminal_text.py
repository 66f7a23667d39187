"""What a report prints: one table, the answer and where the page is; or, in full, every table and remark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP, common_unit
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.files.markdown import escaped, markdown_table
from rnn_scaling.reports import cautions, certificates, conclusions, learning, table
from rnn_scaling.reports.numbers import has_interval, plus_minus
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.wording import sentence, sentences

MOST_COMMANDS = 3
MOST_LEARNED = 2


def brief(summary: Summary, folder: Path) -> str:
    """One table, one footnote, the answer and the path of the page."""
    tables = [_table(name if len(summary.scalings) > 1 else "", series) for name, series in summary.scalings]
    lines = [conclusions.lead(summary), *map(sentence, [*cautions.hand_made(summary)[:1], *cautions.losses(summary)])]
    lines += learning.sentences(summary.learning, summary.row_titles)[:MOST_LEARNED] if summary.learning else []
    if commands := conclusions.all_missing(summary):
        lines.append(sentence(Statement("more-runs", values={"runs": len(commands)})))
    page = sentence(Statement("page-written", values={"page": str(folder / "report.html")}))
    paragraphs = [_footnote(summary), "\n".join(lines), page]
    return escaped("\n".join(tables)) + "".join(f"\n{text}\n" for text in paragraphs if text)


def full(summary: Summary, folder: Path) -> str:
    """All tables, the answer, what ± is, and the first of the commands that would say more."""
    lines = [" ".join([conclusions.lead(summary), conclusions.overview(summary)]).strip()]
    lines += [f"± is the longer side of the interval: {kind}." for kind in conclusions.kinds(summary.series)]
    lines += [*map(sentence, [*cautions.hand_made(summary)[:MOST_COMMANDS], *cautions.losses(summary)])]
    lines += learning.sentences(summary.learning, summary.row_titles) if summary.learning else []
    commands = conclusions.all_missing(summary)
    lines += ["", "Runs that would say more:", *(f"  {command}" for command in commands)] if commands else []
    page = sentence(Statement("page-written", values={"page": str(folder / "report.html")}))
    return "\n".join([table.text(summary), *lines, "", page, ""])


def _table(title: str, series: Sequence[SeriesSummary]) -> str:
    """The series on their most devices; of a single series each number of devices."""
    head = f"### {title}\n\n" if title else ""
    if len(series) == 1:
        rates = table.rates_of(series[0]).grids[0]
        return head + markdown_table(rates.head, rates.lines)
    largest = [member.largest for member in series if member.largest]
    counts = {row.row.num_devices for row in largest}
    is_scaled, is_certified = any(count > 1 for count in counts), certificates.is_any([row.row for row in largest])
    unit = common_unit(member.unit for member in series)
    columns = [
        f"On {largest[0].devices}" if len(counts) == 1 and is_scaled else "Series",
        *(["Devices"] if len(counts) > 1 else []),
        f"{unit.capitalize()}/s",
        *([SPEEDUP.title.capitalize(), "Efficiency (%)"] if is_scaled else []),
        *([certificates.HEAD] if is_certified else []),
    ]
    lines = [[member.title, *_cells(member, len(counts) > 1, is_scaled, is_certified)] for member in series]
    return head + markdown_table(columns, lines)


def _cells(series: SeriesSummary, has_devices: bool, is_scaled: bool, is_certified: bool) -> list[str]:
    """The cells after the title."""
    row = series.largest
    cells = [str(row.row.num_devices) if row else "n/a"] if has_devices else []
    cells.append(plus_minus(row.row.rate, 1) if row else "failed")
    if is_scaled:
        cells.append(plus_minus(row.row.metric(SPEEDUP), SPEEDUP.digits) if row else "n/a")
        cells.append(plus_minus(row.efficiency, EFFICIENCY.digits) if row else "n/a")
    return [*cells, *([certificates.of_rows([row.row for row in series.rows])] if is_certified else [])]


def _footnote(summary: Summary) -> str:
    """What ± and the unit are."""
    what = [Statement("unit-meaning", unit, {"items": items}) for unit, items in _units(summary)]
    intervals = [row.row.rate for series in summary.series for row in series.rows if row.row.rate]
    processes = sorted({count for rate in intervals if has_interval(rate) for count in rate.processes})
    if not processes:
        return sentences(what)
    kind = "plus-minus" if processes[0] == processes[-1] else "plus-minus-range"
    return sentences([Statement(kind, values={"least": processes[0], "most": processes[-1]}), *what])


def _units(summary: Summary) -> list[tuple[str, str]]:
    """(unit, which items it counts) of the measured rows, each once."""
    return list(dict.fromkeys((row.unit.capitalize(), row.items) for row in summary.rows if row.good))
