"""python -m rnn_scaling trace-db FILE.sqlite: summarizes a Nsight Systems or nvprof database."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.inspection.trace_databases import report, summary
from rnn_scaling.inspection.trace_databases.database import TraceDbError, opened
from rnn_scaling.inspection.trace_databases.layouts import layout_of
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files

USAGE = """\
Summarizes a trace database: time by kernel and by copy kind, busy and idle time of each device, hidden and exposed
copies and communication, and gaps with the events around them. Reads
Nsight Systems' SQLite export (nsys export --type=sqlite REPORT) and the databases of nvprof -o. FILE is never changed.

    nsys export --type=sqlite report1.nsys-rep;  ./run.sh trace-db report1.sqlite
    ./run.sh trace-db report1.sqlite --from=2.0 --to=2.5

TIME is in seconds after the trace's first event, 1.25, or in nanoseconds of the database's own clock, 1250000000ns.
The summary goes to stdout. Data that cannot be used is reported on stderr as "error: FILE: reason".
FILE is read in pieces, and --max_file_mb does not limit it. docs/trace-db.md explains every number.

Exit status: 0 everything was read, 1 something could not be used, 2 wrong use, 130 interrupted."""


@entry.command
def main(words: Sequence[str]) -> int:
    options = flags.read(words, USAGE, TraceDbOptions, "trace-db")
    try:
        text, problems = look(options)
    except TraceDbError as e:
        return entry.fail(str(e))
    except OSError as e:
        return entry.fail(f"{e.filename or options.file}: {e.strerror or e}")
    print(text, end="", flush=True)
    return (
        entry.fail(*(f"{options.file}: {problem}" for problem in problems))
        if problems
        else 0
    )


def time_ns(text: str, first: int) -> int:
    """A time of the command line in ns of the database's clock, of which `first` is the trace's first event.

    Raises:
      ValueError: if it is neither seconds such as 1.25 nor nanoseconds such as 1250000000ns.
    """
    if re.fullmatch(r"-?[0-9]{1,19}ns", text):
        return int(text[:-2])
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?|\.[0-9]+", text):
        return first + int(
            Decimal(text) * 10**9
        )  # a float has too few digits for a clock in ns since 1970
    raise ValueError(
        "a time in seconds (1.25) or of the database's clock (1250000000ns)"
    )


def _time(text: str) -> str:
    time_ns(text, 0)
    return text


@dataclasses.dataclass(frozen=True)
class TraceDbOptions:
    """Trace database."""

    file: Path = flags.positional("the database", shown="FILE.sqlite")
    from_: str = option(
        "",
        "look at the trace from here (default: its first event) ...",
        parse=_time,
        shown="TIME",
    )
    to: str = option(
        "", "... to here (default: its last event)", parse=_time, shown="TIME"
    )
    format: str = option(
        "markdown",
        "markdown, or json with all names, times in ns",
        choices=("markdown", "json"),
    )
    top: int = option(
        20,
        "rows of each table of names, and gaps of each device",
        minimum=1,
        maximum=100_000,
    )


def look(options: TraceDbOptions) -> tuple[str, list[str]]:
    with opened(options.file) as db:
        layout = layout_of(db)
        if layout is None:
            reason = "neither a Nsight Systems export nor an nvprof database"
            raise TraceDbError(
                options.file,
                f"{reason} (tables: {', '.join(list(db.columns)[:5]) or 'none'})",
            )
        span = summary.trace_span(db, layout)
        if span is None:
            raise TraceDbError(
                options.file,
                "; ".join(["no event with a time in this file", *db.problems]),
            )
        window = _window(options, span)
        found = summary.summarize(
            db, layout, str(options.file), span, window, min(options.top, 1000)
        )
    text = (
        input_files.json_text(found, default=str)
        if options.format == "json"
        else report.markdown(found, options.top)
    )
    return text, db.problems


def _window(options: TraceDbOptions, span: tuple[int, int]) -> tuple[int, int]:
    """The part of the trace between the times of the command line."""
    start = time_ns(options.from_, span[0]) if options.from_ else span[0]
    end = time_ns(options.to, span[0]) if options.to else max(span[1], start + 1)
    wanted = f"--from={options.from_ or 0} --to={options.to or 'its end'}"
    length = f"the trace is {(span[1] - span[0]) / 1e9:.6f} s long, {span[0]}ns to {span[1]}ns"
    if end <= start:
        raise entry.Refusal(
            f"{options.file}: {wanted}: the end is not after the start; {length}"
        )
    if start > span[1] or end <= span[0]:
        raise TraceDbError(options.file, f"{wanted}: outside of the trace; {length}")
    return max(start, span[0]), min(end, span[1])
