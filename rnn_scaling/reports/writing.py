"""The run records of a folder -> every file of the report, and the answer for the terminal."""

from __future__ import annotations

import contextlib
import gc
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rnn_scaling import entry, registry
from rnn_scaling.analysis.learning import Target
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.files import terminal
from rnn_scaling.files.output_files import write_bytes
from rnn_scaling.machine.beside import MANY, beside
from rnn_scaling.records import folder
from rnn_scaling.records.own_files import is_own
from rnn_scaling.reports import answer, learning, overview, table
from rnn_scaling.reports.pictures import curves, figures, learning_curves
from rnn_scaling.reports.summarising import summarise
from rnn_scaling.reports.summary import SeriesSummary, Summary

MOST_LETTERS = 100  # of what a file's name says of a kind of scaling
MOST_SAID = 3  # commands, and hints, on the terminal
Render = Callable[[Summary], bytes]


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Lets Python look for no garbage that goes in circles: thousands of records do not, and would be walked each time.

    Pictures do, but are some 4 MB for each kind of scaling, workload and machine.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@uncollected()
def report(source: Path, target: Path, force: bool = False, to_reach: Target | None = None) -> None:
    """Prints the tables and the answer of a folder, and writes the report.

    Args:
      to_reach: what runs are to learn; None: found where they counted right predictions.

    Raises:
      Refusal: if there is nothing to report, or nothing could be written.
      OSError: if the folder cannot be read, or what is printed cannot be written.
    """
    records = folder.read(source)
    entry.warn(*(f"{line}; left out" for line in records.left_out))
    if not records.runs:
        others = folder.subfolders_with_records(source)
        hint = f"; there are some in {', '.join(map(str, others[:5]))}: report one of these" if others else ""
        raise _failed(f"{source}: {records.nothing}{hint}")
    summary = summarise(records, str(source), to_reach)
    files = files_of(summary)
    if wrong := _unwritable(target):
        raise _failed(f"{target}: {wrong}; --output=DIR writes elsewhere")
    foreign = [path for path in (target / name for name in files) if path.exists() and not is_own(path)]
    if foreign and not force:
        remedy = "--force overwrites it, --output=DIR writes elsewhere"
        raise _failed(*(f"{path}: not written by the report; {remedy}" for path in foreign))
    for name, content in rendered(files, summary):
        if name == "table.md":
            _print(summary, content.decode().removesuffix(table.MARK))
        try:
            write_bytes(content, target / name)
        except OSError as e:
            raise _failed(f"{target / name}: {e.strerror or e}; --output=DIR writes elsewhere") from None
    terminal.tell(f"\n{_said(summary)}\n\n{_written(target, list(files))}\n")


def rendered(files: Mapping[str, Render], summary: Summary) -> Iterator[tuple[str, bytes]]:
    """Each file's name and content; of many rows another process makes the page and the pictures meanwhile."""
    many = len(summary.rows) >= MANY
    drawn = [name for name in files if many and name.endswith((".html", ".png", ".svg"))]
    with beside(lambda: [files[name](summary) for name in drawn], pays=many) as contents:
        yield from ((name, render(summary)) for name, render in files.items() if name not in drawn)
        yield from zip(drawn, contents())


def _print(summary: Summary, tables: str) -> None:
    """All tables; on a terminal the one of all series, whose details are in the files."""
    if sys.stdout.isatty() and len(summary.series) > 1:
        tables = "".join(f"{line}\n\n" for line in summary.opening) + overview.markdown(summary)
    terminal.tell(tables)


def _written(target: Path, names: Sequence[str]) -> str:
    page = "report.html"
    return f"{target / page} written, and beside it {', '.join(name for name in names if name != page)}"


def _failed(*lines: str) -> entry.Refusal:
    return entry.Refusal(*lines, status=entry.EXIT_FAILED)


def _said(summary: Summary) -> str:
    """The answer for the terminal, with what its ± is and the first of the commands that would say more."""
    lines = [" ".join([answer.lead(summary), answer.overview(summary)]).strip()]
    lines += [f"± is the longer side of the interval: {kind}." for kind in answer.kinds(summary.series)]
    lines += [*summary.hand_made[:MOST_SAID], *summary.growth]
    lines += learning.sentences(summary.learning, summary.row_titles)[:MOST_SAID] if summary.learning else []
    if commands := answer.all_missing(summary):
        more = len(commands) - MOST_SAID
        lines += ["", "Runs that would say more:", *(f"  {command}" for command in commands[:MOST_SAID])]
        lines += [f"and {more} more in report.html"] if more > 0 else []
    return "\n".join(lines)


def _unwritable(folder_: Path) -> str | None:
    """Why no file can be made in this folder, which is made if it is not there; None if one can."""
    try:
        folder_.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder_):
            return None
    except OSError as e:
        return f"cannot be written ({e.strerror or e})"


def files_of(summary: Summary) -> dict[str, Render]:
    """Name -> how it is made; pictures only where something was measured."""
    kinds = registry.REPORTS.items()
    made = {report.file: _render(kind) for kind, report in kinds if summary.measured or not report.needs_rates}
    suffixes: set[str] = set()
    for k, (name, series) in enumerate(figures.groups(summary)):
        words = re.sub(r"[^a-z0-9]+", "_", name.lower().replace(" scaling", ""))[:MOST_LETTERS]
        suffix = f"_{words}" if k else ""  # a second kind of scaling has pictures of its own
        suffix += f"_{k + 1}" if suffix in suffixes else ""  # of names that differ in other letters
        suffixes.add(suffix)
        made |= {f"{metric.name}{suffix}.svg": _picture(series, metric) for metric in figures.drawn(series)}
    if summary.learning:
        for kind, over in learning_curves.kinds(summary.learning):
            made[f"{kind}_over_{over}.svg"] = _learning_picture(kind, over)
    return made


def _render(kind: str) -> Render:
    return lambda summary: registry.load(registry.REPORTS, kind).render(summary)


def _learning_picture(kind: str, over: str) -> Render:
    def render(summary: Summary) -> bytes:
        if summary.learning is None:
            raise ValueError("expected what runs learned")
        names = learning.line_names(summary.learning, summary.row_titles)
        return figures.standalone(learning_curves.draw(summary.learning, names, kind, over, legend=True))

    return render


def _picture(series: Sequence[SeriesSummary], metric: Metric) -> Render:
    return lambda _: figures.standalone(curves.lines(series, metric, legend=True))
