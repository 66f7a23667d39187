"""Write all files of a report of a folder, and print its answer."""

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
MOST_LETTERS = 100  # of the kind of scaling in a file name
Render = Callable[[Summary], bytes]


def report(
    source: Path,
    target: Path,
    force: bool = False,
    to_reach: Target | None = None,
    full: bool = False,
    prices: PriceList = NO_PRICES,
) -> None:
    """Write the report of a folder, and print its answer.

    Args:
      source: The folder of run records.
      target: The folder of the report.
      force: Whether files of other programs are overwritten.
      to_reach: What runs should learn. If it is None and runs counted right
        predictions, a target is found.
      full: Whether all tables and remarks are printed, or one table and the answer.
      prices: The prices of machines.

    Raises:
      Refusal: If there is nothing to report, or nothing could be written.
    """
    records = folder.read(source)
    entry.warn(*(f"{line}; left out" for line in records.left_out))
    if not records.runs:
        raise _refuse(f"{source}: {records.nothing}{folder.elsewhere(source)}")
    entry.warn(*prices.unmatched([run.record for run in records.runs]))
    summary = _add_track_record(
        source, summarise(records, str(source), to_reach, prices)
    )
    files = {
        name: functools.partial(render, summary)
        for name, render in file_renderers(summary).items()
    }
    write_files(files, target, force)
    text = full_text if full else brief_text
    terminal.tell(text(summary, target))


def _add_track_record(source: Path, summary: Summary) -> Summary:
    """Return the summary with the folder's earlier predictions, compared with runs."""
    measured = [[row.row for row in series.rows] for series in summary.series]
    cases = list(track_record.of_folder(source, measured).values())
    if not cases:
        return summary
    statements = [track_record.tally(cases)]
    statements += [case.statement() for case in cases[:MOST_CASES]]
    return dataclasses.replace(summary, checked_predictions=tuple(statements))


def write_files(
    files: Mapping[str, Callable[[], bytes]],
    target: Path,
    force: bool,
    flag: str = "--output",
) -> None:
    """Write files to a folder.

    Args:
      files: Name -> function that returns the content.
      target: The folder.
      force: Whether files of other programs are overwritten.
      flag: The flag of the folder, for errors.

    Raises:
      Refusal: If a file cannot be written, or would replace another program's file.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target):
            pass
    except OSError as e:
        problem = f"cannot be written ({e.strerror or e})"
        raise _refuse(f"{target}: {problem}; {flag}=DIR writes elsewhere") from None

    paths = [target / name for name in files]
    foreign = [path for path in paths if path.exists() and not is_own(path)]
    if foreign and not force:
        remedy = f"--force overwrites it, {flag}=DIR writes elsewhere"
        raise _refuse(
            *(f"{path}: not written by the report; {remedy}" for path in foreign)
        )
    for name, render in files.items():
        content = render()
        path = target / name
        try:
            write_bytes(content, path)
        except OSError as e:
            problem = f"{path}: {e.strerror or e}"
            raise _refuse(f"{problem}; {flag}=DIR writes elsewhere") from None


def _refuse(*lines: str) -> entry.Refusal:
    return entry.Refusal(*lines, status=entry.EXIT_FAILED)


def file_renderers(summary: Summary) -> dict[str, Render]:
    """Return name -> function that renders the file.

    Pictures need runs that measured something.
    """
    renderers = {}
    for kind, report_file in registry.REPORTS.items():
        if summary.measured or not report_file.needs_rates:
            renderers[report_file.file] = _load_renderer(kind)

    suffixes: set[str] = set()
    for k, group in enumerate(scaling_data.groups(summary)):
        kind = re.sub(r"[^a-z0-9]+", "_", group.name.lower().replace(" scaling", ""))
        # A second kind of scaling has separate pictures.
        suffix = f"_{kind[:MOST_LETTERS]}" if k else ""
        # Names may differ only in characters that file names do not have.
        if suffix in suffixes:
            suffix += f"_{k + 1}"
        suffixes.add(suffix)
        for metric in group.drawn:
            chart = group.chart(metric)
            renderers[f"{metric.name}{suffix}.svg"] = _picture_renderer(chart)
    if summary.learning:
        learning_charts = learning.charts(summary.learning, summary.row_titles)
        for name, chart in learning_charts.items():
            renderers[f"{name}.svg"] = _picture_renderer(chart)
    return renderers


def _load_renderer(kind: str) -> Render:
    """Return a function that loads a kind of report when it is called."""
    return lambda summary: registry.load(registry.REPORTS, kind).render(summary)


def _picture_renderer(chart: charts.Chart) -> Render:
    name = chart.metric.name
    return lambda _: figures.standalone(charts.svg(chart, name))


def _learning_statements(summary: Summary) -> list[Statement]:
    if summary.learning is None:
        return []
    return learning.statements(summary.learning, summary.row_titles)


def brief_text(summary: Summary, folder: Path) -> str:
    """Return one table, one footnote, the answer and the path of the page."""
    sections = []
    brief_sections = series_table.sections(summary, is_brief=True)
    for section, (_, series) in zip(brief_sections, summary.tables):
        if len(series) == 1:
            # The rates of a single series, on each number of devices.
            grids = table.series_rates(series[0]).grids[:1]
            section = Section(section.title, grids)
        sections.append(section)

    statements = [
        *cautions.hand_made_strong_scaling(summary)[:1],
        *cautions.loss_statements(summary),
        *cautions.program_output_statements(summary),
        *log_findings.summary_statements(summary),
        *_learning_statements(summary)[:MOST_LEARNED],
    ]
    if commands := conclusions.all_missing_run_commands(summary):
        statements.append(Statement("more-runs", values={"runs": len(commands)}))
    answer = [conclusions.answer_text(summary), *map(sentence, statements)]
    paragraphs = [
        _footnote(summary),
        "\n".join(answer),
        _page_text("page-written", folder),
    ]
    return escaped(markdown(sections, level=3)) + "".join(
        f"\n{text}\n" for text in paragraphs if text
    )


def full_text(summary: Summary, folder: Path) -> str:
    """Return all tables, the answer, the kinds of intervals, and missing runs."""
    answer = conclusions.answer_text(summary)
    lines = [f"{answer} {conclusions.overview_text(summary)}".strip()]
    for kind in conclusions.interval_kinds(summary.series):
        lines.append(f"±: half of the interval, or its longer half: {kind}.")
    statements = [
        *cautions.hand_made_strong_scaling(summary)[:MOST_COMMANDS],
        *cautions.loss_statements(summary),
        *cautions.program_output_statements(summary),
        *_learning_statements(summary),
    ]
    lines += map(sentence, statements)
    if commands := conclusions.all_missing_run_commands(summary):
        lines += ["", "Runs that would say more:"]
        lines += [f"  {command}" for command in commands]
    page = _page_text("page-after-full", folder)
    return "\n".join([table.text(summary), *lines, "", page, ""])


def _page_text(kind: str, folder: Path) -> str:
    page = {"page": str(folder / "report.html")}
    return sentence(Statement(kind, values=page))


def _footnote(summary: Summary) -> str:
    """Return the meaning of ± and of the units."""
    units: dict[tuple[str, str], None] = {}
    run_counts: set[int] = set()
    for row in summary.rows:
        if row.good_runs:
            units[row.unit, row.items] = None
        if row.rate and has_interval(row.rate):
            run_counts.update(row.rate.run_counts)
    statements = []
    if run_counts:
        least = min(run_counts)
        most = max(run_counts)
        kind = "plus-minus" if least == most else "plus-minus-range"
        statements.append(Statement(kind, values={"least": least, "most": most}))
    for unit, items in units:
        statements.append(Statement("unit-meaning", unit, {"items": items}))
    return sentences(statements)
