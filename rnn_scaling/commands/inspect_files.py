"""The sources of `inspect`: traced runs, databases of profilers, and PyTorch traces.

Only `inspect` calls `answer`, which chooses the reader by the kind of file.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.inspection.kineto.event_stream import looks_like_trace
from rnn_scaling.inspection.trace_databases import report, summary
from rnn_scaling.inspection.trace_databases.database import (
    MAGIC,
    TraceDbError,
    open_database,
)
from rnn_scaling.inspection.trace_databases.layouts import detect_layout
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import RECORD_IN_LOG_DIR, write_bytes
from rnn_scaling.system.files.terminal import print_fitted

_PICTURES = (".png", ".svg")
# Endings of profilers' files. A report must be exported first.
_DATABASES = (".sqlite", ".sqlite3", ".db", ".nvvp", ".nvprof", ".nsys-rep", ".qdrep")
_TRACE_FILE = "trace.json.gz"  # the trace in a --log_dir, next to its record
_DATABASE_FLAGS = ("from", "to")
_RUN_FLAGS = ("picture", "step")


def _parse_picture(text: str) -> Path:
    """Return the value of --picture; a ValueError explains the rule."""
    if not text.lower().endswith(_PICTURES):
        raise ValueError(f"a file that ends in {' or '.join(_PICTURES)}")
    if not Path(text).resolve().parent.is_dir():
        raise ValueError("a file in an existing folder; create the folder first")
    return Path(text)


def parse_time(text: str, first: int) -> int:
    """Return a time of the command line in ns of the database's clock.

    Args:
      text: Seconds after the first event, or ns of the database's clock.
      first: Time of the first event of the trace, in ns.

    Raises:
      ValueError: If it is neither seconds such as 1.25 nor 1250000000ns.
    """
    if re.fullmatch(r"-?[0-9]{1,19}ns", text):
        return int(text[:-2])
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?|\.[0-9]+", text):
        # A float has too few digits for a clock in ns since 1970.
        return first + int(Decimal(text) * 10**9)
    raise ValueError(
        "a time in seconds (1.25) or a time of the database's clock (1250000000ns)"
    )


def _check_time(text: str) -> str:
    parse_time(text, 0)
    return text


@dataclasses.dataclass(frozen=True)
class ReadingOptions:
    """Reading: a record, a --log_dir, a folder of records, or a trace database."""

    sources: tuple[Path, ...] = flags.declare_positional(
        "files to read instead of training: a record, a --log_dir or its trace, a "
        "folder of records; an SQLite database of Nsight Systems or nvprof; traces of "
        "the PyTorch profiler (a folder, or one file per rank)",
        "SOURCE",
        is_list=True,
        default=(),
    )
    format: str = option(
        "text",
        "text: tables in Markdown; json: all numbers; csv: one row per rank "
        "and step, only for PyTorch traces",
        choices=("text", "json", "csv"),
    )
    picture: Path | None = option(
        None,
        "draw one step of each traced run into this file, .png or .svg "
        "(default: no picture)",
        parse=_parse_picture,
        shown="FILE.png",
    )
    step: int | None = option(
        None,
        "number of the step to draw, counted from 0 (default: the step of median "
        "length)",
        minimum=0,
    )
    from_: str = option(
        "",
        "start of the part of a database to read (default: its first event)",
        parse=_check_time,
        shown="TIME",
    )
    to: str = option(
        "",
        "end of the part of a database to read (default: its last event)",
        parse=_check_time,
        shown="TIME",
    )
    top: int = option(
        20,
        "maximum number of rows per table, and of gaps per device, for "
        "databases and PyTorch traces",
        minimum=1,
        maximum=100_000,
    )


def answer(options: ReadingOptions, user_flags: set[str]) -> int:
    """Print what the sources contain; return the exit status.

    Args:
      options: With at least one source.
      user_flags: The names of the flags that the user gave.
    """
    databases = [path for path in options.sources if _is_database(path)]
    traces = _find_kineto_files(options.sources)
    if databases and len(options.sources) > 1:
        raise entry.Refusal(f"{databases[0]} is a database; name only this file")
    kind = "traced runs"
    foreign_flags: tuple[str, ...] = (*_DATABASE_FLAGS, "top")
    if databases:
        kind = "trace databases"
        foreign_flags = _RUN_FLAGS
    elif traces:
        kind = "PyTorch traces"
        foreign_flags = (*_DATABASE_FLAGS, *_RUN_FLAGS)
    for name in foreign_flags:
        if name in user_flags:
            raise entry.Refusal(f"--{name} does not apply to {kind}; leave it out")
    if traces:
        return _answer_kineto(traces, options)
    if options.format == "csv":
        raise entry.Refusal(f"--format=csv does not apply to {kind}; use --format=json")
    return _answer_database(options) if databases else _answer_runs(options)


def _find_kineto_files(sources: Sequence[Path]) -> list[Path]:
    """Return the traces of the PyTorch profiler; [] if the sources are something else.

    Traces are recognised by name and beginning. If one source is a trace, all are read
    as traces, so that a damaged file is named.
    """
    files = []
    has_traces = False
    for source in sources:
        is_folder = source.is_dir()
        for path in sorted(source.iterdir()) if is_folder else [source]:
            record = path.with_name(RECORD_IN_LOG_DIR)
            is_own = path.name == _TRACE_FILE and record.is_file()
            is_trace = not is_own and looks_like_trace(path)
            has_traces |= is_trace
            if is_trace or not is_folder:
                files.append(path)
    return files if has_traces else []


def _answer_kineto(files: Sequence[Path], options: ReadingOptions) -> int:
    """Print the parts of each rank's steps in PyTorch traces."""
    # Imported here, because reports load more than a database needs.
    from rnn_scaling.inspection.kineto import report
    from rnn_scaling.inspection.kineto.job import read_job

    try:
        job = read_job(files)
    except OSError as e:
        return entry.fail(f"{e.filename}: {e.strerror or e}")
    if options.format == "text":
        print_fitted(report.format_text(job, options.top))
    elif options.format == "json":
        print(report.format_json(job), end="", flush=True)
    else:
        print(report.format_csv(job), end="", flush=True)
    return entry.EXIT_OK


def _is_database(path: Path) -> bool:
    """Return whether a file is an SQLite database by its content or its name."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC or path.suffix.lower() in _DATABASES


def _answer_runs(options: ReadingOptions) -> int:
    """Print the parts of each tower's step, and the seconds of each run."""
    from rnn_scaling.reports import phases

    paths = [
        path.parent if path.name == _TRACE_FILE else path for path in options.sources
    ]
    runs, problems = phases.read(paths)
    shown_runs = []
    for run in runs:
        if run.parts and (options.step or 0) >= len(run.parts.steps):
            last = len(run.parts.steps) - 1
            problems.append(
                f"--step={options.step} must be at most {last}, the last step of "
                f"{run.path}"
            )
        else:
            shown_runs.append(run)
    if shown_runs and options.format == "json":
        print(phases.format_json(shown_runs), end="", flush=True)
    elif shown_runs:
        print_fitted(phases.format_text(shown_runs))
    if options.picture and any(run.parts for run in shown_runs):
        kind = options.picture.suffix.lower().removeprefix(".")
        try:
            write_bytes(
                phases.draw_picture(shown_runs, options.step, kind), options.picture
            )
        except OSError as e:
            problems.append(f"{options.picture}: {e.strerror or e}")
    return entry.fail(*problems) if problems else entry.EXIT_OK


def _answer_database(options: ReadingOptions) -> int:
    [file] = options.sources
    try:
        text, problems = look(options)
    except TraceDbError as e:
        return entry.fail(str(e))
    except OSError as e:
        return entry.fail(f"{e.filename or file}: {e.strerror or e}")
    print(text, end="", flush=True)
    lines = [f"{file}: {problem}" for problem in problems]
    return entry.fail(*lines) if lines else entry.EXIT_OK


def look(options: ReadingOptions) -> tuple[str, list[str]]:
    """Return the summary of a database, and a line for each part that is unreadable.

    Raises:
      TraceDbError: If the file is not a trace database, or has no events.
    """
    [file] = options.sources
    with open_database(file) as db:
        layout = detect_layout(db)
        if layout is None:
            reason = "expected an Nsight Systems export or an nvprof database"
            tables = ", ".join(list(db.columns)[:5]) or "none"
            raise TraceDbError(file, f"{reason} (tables: {tables})")
        span = summary.trace_span(db, layout)
        if span is None:
            reasons = ["this file contains no event with a time", *db.problems]
            raise TraceDbError(file, "; ".join(reasons))
        window = _find_window(options, span)
        content = summary.summarize(
            db,
            layout=layout,
            source=str(file),
            span=span,
            window=window,
            largest_gaps=min(options.top, 1000),
        )
    if options.format == "json":
        return input_files.format_json(content, default=str), db.problems
    return report.format_markdown(content, options.top), db.problems


def _find_window(options: ReadingOptions, span: tuple[int, int]) -> tuple[int, int]:
    """Return the part of a trace between the times of the command line."""
    [file] = options.sources
    first, last = span
    start = parse_time(options.from_, first) if options.from_ else first
    end = parse_time(options.to, first) if options.to else max(last, start + 1)
    requested = f"--from={options.from_ or 0} --to={options.to or 'its end'}"
    seconds = (last - first) / 1e9
    length = f"the trace is {seconds:.6f} s long, {first}ns to {last}ns"
    if end <= start:
        raise entry.Refusal(
            f"{file}: {requested}: the end must be after the start; {length}"
        )
    if start > last or end <= first:
        raise TraceDbError(file, f"{requested} is outside the trace; {length}")
    return max(start, first), min(end, last)
