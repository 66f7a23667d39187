"""python -m rnn_scaling report DIR: the run records of a folder -> tables, CSV, JSON, pictures and one HTML page."""

from __future__ import annotations

import dataclasses
import errno
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rnn_scaling import registry
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.records import folder
from rnn_scaling.records.files import write_bytes
from rnn_scaling.records.own_files import is_own
from rnn_scaling.reports import answer, table
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.summary import SeriesSummary, Summary, summarise
from rnn_scaling.settings import flags
from rnn_scaling.settings.config import option

USAGE = """\
python -m rnn_scaling report DIR [--output=DIR2] [--force]    (or ./run.sh report DIR)

How far do the runs of a folder scale, and where does the rest go? Reads its run records (*.json), prints the tables and
writes to DIR, or to DIR2:

    report.html       the answer, tables, curves, where the loss goes, steady state, environment; opens from disk
    table.md          the tables
    table.csv         every row with its 95 % intervals
    report.json       everything above as numbers (docs/report.md has the schema)
    speedup.png, words_per_second.svg, speedup.svg, efficiency.svg
                      (beside weak scaling, strong scaling has its own: speedup_strong.svg ...)

Subfolders are other sets of runs: report each of them. A file that is no good record is named and left out.
A file of one of these names that the report did not write is not overwritten without --force.

Exit status: 0 done, 1 nothing to report or nothing could be written, 2 wrong use."""


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """Report."""

    output: str = option("", "write here instead of the records' folder")
    force: bool = option(False, "overwrite files of the same names that the report did not write")


MOST_SAID = 3  # commands, and hints, on the terminal
Render = Callable[[Summary], bytes]


def main(argv: Sequence[str] | None = None) -> int:
    """Reports one folder; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if flags.wants_help(words):
        print(flags.help_text(USAGE, {"report": ReportOptions}))
        return 0
    folders = [word for word in words if not word.startswith("-")]
    try:
        given = flags.parse(
            [word for word in words if word.startswith("-")], {f.name: f for f in dataclasses.fields(ReportOptions)}
        )
    except flags.FlagErrors as e:
        return _fail(2, *e.lines)
    if len(folders) != 1:
        return _fail(2, "expected one folder of run records; --help explains")
    source = Path(folders[0])
    if not source.is_dir():
        return _fail(2, f"{source}: no such folder")
    options = ReportOptions(**given)
    try:
        return _report(source, Path(options.output) if options.output else source, options.force)
    except OSError as e:
        if e.errno in (errno.EPIPE, errno.ENOSPC):  # of what is printed: the files' own errors are named where they are
            raise
        return _fail(1, f"{source}: {e.strerror or e}")


def _report(source: Path, target: Path, force: bool) -> int:
    held = folder.read(source)
    for line in held.left_out:
        print(f"warning: {line}; left out", file=sys.stderr)
    if not held.runs:
        others = folder.subfolders_with_records(source)
        hint = f"; there are some in {', '.join(map(str, others[:5]))}: report one of these" if others else ""
        return _fail(1, f"{source}: no run records (*.json) in this folder{hint}")
    summary = summarise(held, str(source))
    files = _files(summary)
    if wrong := _unwritable(target):
        return _fail(1, f"{target}: {wrong}; --output=DIR writes elsewhere")
    foreign = [path for path in (target / name for name in files) if path.exists() and not is_own(path)]
    if foreign and not force:
        remedy = "--force overwrites it, --output=DIR writes elsewhere"
        return _fail(1, *(f"{path}: not written by the report; {remedy}" for path in foreign))
    for name, render in files.items():
        content = render(summary)
        if name == "table.md":
            print(content.decode().removesuffix(table.MARK), end="", flush=True)
        try:
            write_bytes(content, target / name)
        except OSError as e:
            return _fail(1, f"{target / name}: {e.strerror or e}; --output=DIR writes elsewhere")
    print(f"\n{_said(summary)}\n\n{', '.join(str(target / name) for name in files)} written")
    return 0


def _said(summary: Summary) -> str:
    """The answer for the terminal, with what its ± is and the first of the commands that would say more."""
    lines = [" ".join([answer.lead(summary), answer.overview(summary)]).strip()]
    lines += [f"± is half of the interval: {kind}." for kind in answer.kinds(summary.series)]
    lines += summary.hand_made[:MOST_SAID]
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


def _files(summary: Summary) -> dict[str, Render]:
    """Name -> how it is made; pictures only where something was measured."""
    names = {"table.md": "table", "table.csv": "csv", "report.json": "json", "report.html": "page"}
    if summary.measured:
        names |= {"speedup.png": "plot"}
    made = {file: _render(kind) for file, kind in names.items()}
    for k, (name, series) in enumerate(figures.groups(summary)):
        suffix = f"_{name.split()[0].lower()}" if k else ""  # a second kind of scaling has pictures of its own
        made |= {f"{metric.name}{suffix}.svg": _picture(series, metric) for metric in figures.drawn(series)}
    return made


def _render(kind: str) -> Render:
    return lambda summary: registry.load(registry.REPORTS, kind).render(summary)


def _picture(series: Sequence[SeriesSummary], metric: Metric) -> Render:
    return lambda _: figures.standalone(figures.lines(series, metric, legend=True))


def _fail(status: int, *lines: str) -> int:
    for line in lines:
        print(f"error: {line}", file=sys.stderr)
    return status
