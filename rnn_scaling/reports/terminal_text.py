"""What a report prints: one table, the answer and where the page is; or, in full, every table and remark."""

from pathlib import Path

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.files.markdown import escaped
from rnn_scaling.reports import cautions, conclusions, learning, series_table, table
from rnn_scaling.reports.numbers import has_interval
from rnn_scaling.reports.sections import Section, markdown
from rnn_scaling.reports.summary import Summary
from rnn_scaling.reports.wording import sentence, sentences

MOST_COMMANDS = 3
MOST_LEARNED = 2


def brief(summary: Summary, folder: Path) -> str:
    """One table, one footnote, the answer and the path of the page."""
    tables = [
        # A single series: on each number of devices.
        section if len(series) > 1 else Section(section.title, table.rates_of(series[0]).grids[:1])
        for section, (_, series) in zip(series_table.sections(summary, is_brief=True), summary.tables)
    ]
    lines = [conclusions.lead(summary), *map(sentence, [*cautions.hand_made(summary)[:1], *cautions.losses(summary)])]
    lines += learning.sentences(summary.learning, summary.row_titles)[:MOST_LEARNED] if summary.learning else []
    if commands := conclusions.all_missing(summary):
        lines.append(sentence(Statement("more-runs", values={"runs": len(commands)})))
    page = sentence(Statement("page-written", values={"page": str(folder / "report.html")}))
    paragraphs = [_footnote(summary), "\n".join(lines), page]
    return escaped(markdown(tables, level=3)) + "".join(f"\n{text}\n" for text in paragraphs if text)


def full(summary: Summary, folder: Path) -> str:
    """All tables, the answer, what ± is, and the first of the commands that would say more."""
    lines = [" ".join([conclusions.lead(summary), conclusions.overview(summary)]).strip()]
    lines += [f"±: half of the interval, or its longer half: {kind}." for kind in conclusions.kinds(summary.series)]
    lines += [*map(sentence, [*cautions.hand_made(summary)[:MOST_COMMANDS], *cautions.losses(summary)])]
    lines += learning.sentences(summary.learning, summary.row_titles) if summary.learning else []
    commands = conclusions.all_missing(summary)
    lines += ["", "Runs that would say more:", *(f"  {command}" for command in commands)] if commands else []
    page = sentence(Statement("page-written", values={"page": str(folder / "report.html")}))
    return "\n".join([table.text(summary), *lines, "", page, ""])


def _footnote(summary: Summary) -> str:
    counted = dict.fromkeys((row.unit.capitalize(), row.items) for row in summary.rows if row.good)
    units = [Statement("unit-meaning", unit, {"items": items}) for unit, items in counted]
    intervals = [row.row.rate for series in summary.series for row in series.rows if row.row.rate]
    processes = sorted({count for rate in intervals if has_interval(rate) for count in rate.processes})
    if not processes:
        return sentences(units)
    kind = "plus-minus" if processes[0] == processes[-1] else "plus-minus-range"
    return sentences([Statement(kind, values={"least": processes[0], "most": processes[-1]}), *units])
