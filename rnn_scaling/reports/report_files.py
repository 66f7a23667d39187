"""The run records of a folder -> every file of the report, and what is printed: one table and the answer, or all."""

import dataclasses
import functools
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rnn_scaling.analysis.learning import Target
from rnn_scaling.analysis.prediction import track_record
from rnn_scaling.analysis.prices import NO_PRICES, PriceList
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config import registry
from rnn_scaling.records import folder
from rnn_scaling.records.own_files import is_own
from rnn_scaling.reports import (
    cautions,
    conclusions,
    learning,
    log_findings,
    scaling_data,
    series_table,
    table,
)
from rnn_scaling.reports.numbers import has_interval
from rnn_scaling.reports.pictures import charts, figures
from rnn_scaling.reports.sections import Section, markdown
from rnn_scaling.reports.summary import Summary
from rnn_scaling.reports.summary_builder import summarise
from rnn_scaling.reports.wording import sentence, sentences
from rnn_scaling.system import entry
from rnn_scaling.system.files import terminal
from rnn_scaling.system.files.markdown import escaped
from rnn_scaling.system.files.output_files import write_bytes

MOST_CASES = 3  # earlier predictions that are named
MOST_COMMANDS = 3
MOST_LEARNED = 2
MOST_LETTERS = 100  # of what a file's name says of a kind of scaling
Render = Callable[[Summary], bytes]


def report(
    source: Path,
    target: Path,
    force: bool = False,
    to_reach: Target | None = None,
    full: bool = False,
    prices: PriceList = NO_PRICES,
) -> None:
    """Writes the report of a folder and prints its answer.

    Args:
      to_reach: what runs are to learn; None: found where they counted right predictions.
      full: prints all tables and remarks; else one table and the answer in a few lines.

    Raises:
      Refusal: if there is nothing to report, or nothing could be written.
    """
    records = folder.read(source)
    entry.warn(*(f"{line}; left out" for line in records.left_out))
    if not records.runs:
        raise _failed(f"{source}: {records.nothing}{folder.elsewhere(source)}")
    entry.warn(*prices.unmatched([run.record for run in records.runs]))
    summary = summarise(records, str(source), to_reach, prices)
    measured = [[member.row for member in series.rows] for series in summary.series]
    if cases := [*track_record.of_folder(source, measured).values()]:
        found = (
            track_record.tally(cases),
            *(case.statement() for case in cases[:MOST_CASES]),
        )
        summary = dataclasses.replace(summary, checked_predictions=found)
    write_files(
        {
            name: functools.partial(render, summary)
            for name, render in file_renderers(summary).items()
        },
        target,
        force,
    )
    terminal.tell((full_text if full else brief_text)(summary, target))


def write_files(
    files: Mapping[str, Callable[[], bytes]],
    target: Path,
    force: bool,
    flag: str = "--output",
) -> None:
    """Writes files to a folder. Raises Refusal if one cannot be written, or would replace another program's file."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target):
            pass
    except OSError as e:
        raise _failed(
            f"{target}: cannot be written ({e.strerror or e}); {flag}=DIR writes elsewhere"
        ) from None
    foreign = [
        path
        for path in (target / name for name in files)
        if path.exists() and not is_own(path)
    ]
    if foreign and not force:
        remedy = f"--force overwrites it, {flag}=DIR writes elsewhere"
        raise _failed(
            *(f"{path}: not written by the report; {remedy}" for path in foreign)
        )
    for name, render in files.items():
        content = render()
        try:
            write_bytes(content, target / name)
        except OSError as e:
            raise _failed(
                f"{target / name}: {e.strerror or e}; {flag}=DIR writes elsewhere"
            ) from None


def _failed(*lines: str) -> entry.Refusal:
    return entry.Refusal(*lines, status=entry.EXIT_FAILED)


def file_renderers(summary: Summary) -> dict[str, Render]:
    """Name -> how it is made; pictures only where something was measured."""
    kinds = registry.REPORTS.items()
    made = {
        report.file: _render(kind)
        for kind, report in kinds
        if summary.measured or not report.needs_rates
    }
    suffixes: set[str] = set()
    for k, group in enumerate(scaling_data.groups(summary)):
        words = re.sub(r"[^a-z0-9]+", "_", group.name.lower().replace(" scaling", ""))
        # A second kind of scaling has pictures of its own.
        suffix = f"_{words[:MOST_LETTERS]}" if k else ""
        # Names may differ in other letters alone.
        suffix += f"_{k + 1}" if suffix in suffixes else ""
        suffixes.add(suffix)
        for metric in group.drawn:
            made[f"{metric.name}{suffix}.svg"] = _picture(group.chart(metric))
    if learned := summary.learning:
        for name, chart in learning.charts(learned, summary.row_titles).items():
            made[f"{name}.svg"] = _picture(chart)
    return made


def _render(kind: str) -> Render:
    return lambda summary: registry.load(registry.REPORTS, kind).render(summary)


def _picture(chart: charts.Chart) -> Render:
    name = chart.metric.name
    return lambda _: figures.standalone(charts.svg(chart, name))


def brief_text(summary: Summary, folder: Path) -> str:
    """One table, one footnote, the answer and the path of the page."""
    tables = [
        # A single series: on each number of devices.
        section
        if len(series) > 1
        else Section(section.title, table.series_rates(series[0]).grids[:1])
        for section, (_, series) in zip(
            series_table.sections(summary, is_brief=True), summary.tables
        )
    ]
    lines = [
        conclusions.answer_text(summary),
        *map(
            sentence,
            [
                *cautions.hand_made_strong_scaling(summary)[:1],
                *cautions.loss_statements(summary),
            ],
        ),
        *map(sentence, cautions.program_output_statements(summary)),
    ]
    lines += map(sentence, log_findings.summary_statements(summary))
    learned = (
        learning.statements(summary.learning, summary.row_titles)
        if summary.learning
        else []
    )
    lines += map(sentence, learned[:MOST_LEARNED])
    if commands := conclusions.all_missing_run_commands(summary):
        lines.append(sentence(Statement("more-runs", values={"runs": len(commands)})))
    page = sentence(
        Statement("page-written", values={"page": str(folder / "report.html")})
    )
    paragraphs = [_footnote(summary), "\n".join(lines), page]
    return escaped(markdown(tables, level=3)) + "".join(
        f"\n{text}\n" for text in paragraphs if text
    )


def full_text(summary: Summary, folder: Path) -> str:
    """All tables, the answer, what ± is, and the first of the commands that would say more."""
    lines = [
        " ".join(
            [conclusions.answer_text(summary), conclusions.overview_text(summary)]
        ).strip()
    ]
    lines += [
        f"±: half of the interval, or its longer half: {kind}."
        for kind in conclusions.interval_kinds(summary.series)
    ]
    lines += [
        *map(
            sentence,
            [
                *cautions.hand_made_strong_scaling(summary)[:MOST_COMMANDS],
                *cautions.loss_statements(summary),
                *cautions.program_output_statements(summary),
            ],
        )
    ]
    lines += map(
        sentence,
        learning.statements(summary.learning, summary.row_titles)
        if summary.learning
        else (),
    )
    commands = conclusions.all_missing_run_commands(summary)
    lines += (
        ["", "Runs that would say more:", *(f"  {command}" for command in commands)]
        if commands
        else []
    )
    page = sentence(
        Statement("page-after-full", values={"page": str(folder / "report.html")})
    )
    return "\n".join([table.text(summary), *lines, "", page, ""])


def _footnote(summary: Summary) -> str:
    counted = dict.fromkeys(
        (row.unit, row.items) for row in summary.rows if row.good_runs
    )
    units = [
        Statement("unit-meaning", unit, {"items": items}) for unit, items in counted
    ]
    intervals = [
        row.row.rate for series in summary.series for row in series.rows if row.row.rate
    ]
    processes = sorted(
        {count for rate in intervals if has_interval(rate) for count in rate.run_counts}
    )
    if not processes:
        return sentences(units)
    kind = "plus-minus" if processes[0] == processes[-1] else "plus-minus-range"
    return sentences(
        [Statement(kind, values={"least": processes[0], "most": processes[-1]}), *units]
    )
