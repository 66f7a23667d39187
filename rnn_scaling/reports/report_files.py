"""Write all files of the report of a folder.

Commands call `report` or `write_results`. A new file is one module and one row of
`registry.REPORTS`.
"""

import dataclasses
import functools
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

from rnn_scaling.analysis.learning import Target
from rnn_scaling.analysis.prediction import track_record
from rnn_scaling.analysis.prices import NO_PRICES, PriceList
from rnn_scaling.config import registry
from rnn_scaling.records import folder
from rnn_scaling.records.own_files import is_own
from rnn_scaling.reports import answer_text, learning, scaling_data
from rnn_scaling.reports.pictures import charts, figures
from rnn_scaling.reports.sections import format_markdown
from rnn_scaling.reports.summary import Summary, summarise
from rnn_scaling.system import entry
from rnn_scaling.system.files import terminal
from rnn_scaling.system.files.markdown import escape
from rnn_scaling.system.files.output_files import write_bytes

_MAX_CASES = 3  # earlier predictions that are named
_MAX_LETTERS = 100  # letters of the kind of scaling in a file name
Render = Callable[[], bytes]


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
    refuse_without_runs(source, records)
    entry.warn(*prices.unmatched_warnings([run.record for run in records.runs]))
    summary = _add_track_record(
        source, summarise(records, str(source), to_reach, prices)
    )
    write_files(list_file_renderers(summary), target, force)
    text = answer_text.format_in_full if full else answer_text.format_briefly
    terminal.print_fitted(text(summary, target))


def refuse_without_runs(source: Path, records: folder.Folder) -> None:
    """Raise Refusal if a folder has no run to report."""
    if not records.runs:
        raise _refuse(
            f"{source}: {records.empty_reason}{folder.suggest_subfolders(source)}"
        )


def render_all(source: Path, records: folder.Folder) -> dict[str, bytes]:
    """Return name -> content of every file of a folder's report."""
    summary = _add_track_record(source, summarise(records, str(source)))
    return {name: render() for name, render in list_file_renderers(summary).items()}


def print_table(source: Path, stream: TextIO) -> None:
    """Print the tables of the series of a folder, as they begin the report's answer.

    Raises:
      Refusal: If the folder has no record that can be read.
    """
    records = folder.read(source)
    if not records.runs:
        raise _refuse(f"{source}: {records.empty_reason}")
    summary = summarise(records, str(source))
    text = format_markdown(answer_text.make_brief_sections(summary), level=3)
    terminal.print_fitted(f"\n{escape(text)}\n", stream)


def _add_track_record(source: Path, summary: Summary) -> Summary:
    """Return the summary with the folder's earlier predictions, compared with runs."""
    measured_rows = [series.rows for series in summary.series]
    cases = list(track_record.read_cases(source, measured_rows).values())
    if not cases:
        return summary
    statements = [track_record.summarize(cases)]
    statements += [case.statement() for case in cases[:_MAX_CASES]]
    return dataclasses.replace(summary, checked_predictions=tuple(statements))


def write_files(
    files: Mapping[str, Render],
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


def write_results(out: Path, name: str, markdown_text: str, json_data: str) -> None:
    """Write NAME.md and NAME.json next to the records in a folder, and say so."""
    files = {f"{name}.md": markdown_text.encode, f"{name}.json": json_data.encode}
    write_files(files, out, force=True, flag="--out")
    entry.note(f"wrote {out / name}.md and {name}.json")


def _refuse(*lines: str) -> entry.Refusal:
    return entry.Refusal(*lines, status=entry.EXIT_FAILED)


def list_file_renderers(summary: Summary) -> dict[str, Render]:
    """Return name -> function that returns the content of the file.

    Pictures need runs that measured something.
    """
    renderers: dict[str, Render] = {
        report_file.file: functools.partial(_render, kind, summary)
        for kind, report_file in registry.REPORTS.items()
        if summary.measured or not report_file.needs_rates
    }

    suffixes: set[str] = set()
    for k, group in enumerate(scaling_data.list_groups(summary)):
        kind = re.sub(r"[^a-z0-9]+", "_", group.name.lower().replace(" scaling", ""))
        # A second kind of scaling has separate pictures.
        suffix = f"_{kind[:_MAX_LETTERS]}" if k else ""
        # Names may differ only in characters that file names do not have.
        if suffix in suffixes:
            suffix += f"_{k + 1}"
        suffixes.add(suffix)
        for metric in group.picture_metrics:
            picture = functools.partial(_render_picture, group.chart(metric))
            renderers[f"{metric.name}{suffix}.svg"] = picture
    if summary.learning:
        learning_charts = learning.make_charts(summary.learning, summary.row_titles)
        for name, chart in learning_charts.items():
            renderers[f"{name}.svg"] = functools.partial(_render_picture, chart)
    return renderers


def _render(kind: str, summary: Summary) -> bytes:
    """Load the module of a kind of report, and return the content of its file."""
    content: bytes = registry.load(registry.REPORTS, kind).render(summary)
    return content


def _render_picture(chart: charts.Chart) -> bytes:
    return figures.make_standalone(charts.draw_svg(chart, chart.metric.name))
