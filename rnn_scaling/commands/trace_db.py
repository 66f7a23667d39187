"""python -m rnn_scaling trace-db FILE.sqlite: what a Nsight Systems or nvprof database holds, and a cut of it."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from rnn_scaling.inspection.trace_databases import cut, nsys, nvprof, report, summary
from rnn_scaling.inspection.trace_databases.database import TraceDatabase, TraceDbError, one_line, opened
from rnn_scaling.inspection.trace_databases.layout import Layout
from rnn_scaling.inspection.trace_databases.summary import Window

USAGE = """\
python -m rnn_scaling trace-db FILE.sqlite [--from=TIME] [--to=TIME] [--output=FILE] [--format=markdown] [--top=20]

Summarizes a trace database: time by kernel, by copy kind and by API call, launches a second, busy and idle time of each
device, copies hidden behind kernels and exposed, gaps with what stands before and after, streams, NVTX ranges. Reads
Nsight Systems' SQLite export (nsys export --type=sqlite REPORT) and the databases of nvprof -o. FILE is never changed.

--from=TIME    look at the trace from here (default: its first event) ...
--to=TIME      ... to here (default: its last event). TIME is in seconds after the trace's first event, 1.25, or in
               nanoseconds of the database's own clock, 1250000000ns
--output=FILE  also write a smaller database with the rows of the window and all tables, indices and views
--force        replace the output where it exists
--format=NAME  markdown, or json: every name (20,000 of a table at most, the rest added up), times in ns
--top=N        rows of each table of names, and gaps of each device

Examples:
  nsys export --type=sqlite report1.nsys-rep;  python -m rnn_scaling trace-db report1.sqlite
  python -m rnn_scaling trace-db report1.sqlite --from=2.0 --to=2.5 --output=step.sqlite

The summary goes to stdout; what could not be used goes to stderr as "error: FILE: reason", the rest is still reported.
docs/trace-db.md says what every number means.

Exit status: 0 everything was read, 1 something could not be used, 2 wrong use, 130 interrupted."""
SCHEMAS = (nsys, nvprof)
FORMATS = ("markdown", "json")
MAX_TOP = 100_000


class WindowError(TraceDbError):
    """Times of the command line between which there is nothing."""


@dataclasses.dataclass(frozen=True)
class Options:
    """The command line. Times are the text that was given; they mean something only with the trace at hand."""

    file: Path
    start: str = ""
    end: str = ""
    output: Path | None = None
    force: bool = False
    format: str = "markdown"
    top: int = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the summary and writes the cut; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if any(word in ("--help", "-h") for word in words):
        print(USAGE)
        return 0
    try:
        options = parse(words)
    except ValueError as e:
        print(f"error: {e}; --help explains", file=sys.stderr)
        return 2
    try:
        text, problems = run(options)
    except TraceDbError as e:
        print(f"error: {one_line(str(e))}", file=sys.stderr)
        return 2 if isinstance(e, WindowError) else 1
    except OSError as e:
        print(f"error: {one_line(f'{e.filename or options.file}: {e.strerror or e}')}", file=sys.stderr)
        return 1
    print(text, end="", flush=True)
    for problem in problems:
        print(f"error: {one_line(f'{options.file}: {problem}')}", file=sys.stderr)
    return 1 if problems else 0


def parse(words: Sequence[str]) -> Options:
    """The options.

    Raises:
      ValueError: with what is wrong.
    """
    found: dict[str, object] = {}
    names = {"from": "start", "to": "end", "output": "output", "format": "format", "top": "top"}
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("-"):
            if "file" in found:
                raise ValueError(f"expected one file, got {found['file']} and {word}")
            found["file"] = Path(word)
        elif word == "--force":
            found["force"] = True
        elif not word.startswith("--") or name not in names or not equals:
            raise ValueError(f"unknown option {word}; expected --from=, --to=, --output=, --force, --format= or --top=")
        elif value == "":
            raise ValueError(f"--{name} is empty")
        else:
            found[names[name]] = _value(name, value)
    if "file" not in found:
        raise ValueError("expected a database")
    return Options(**found)


def _value(name: str, value: str) -> object:
    if name in ("from", "to"):
        time_ns(value, 0)
        return value
    if name == "format" and value not in FORMATS:
        raise ValueError(f"--format: expected one of {', '.join(FORMATS)}, got {value!r}")
    if name == "top":
        if not re.fullmatch(r"[0-9]{1,9}", value) or not 1 <= int(value) <= MAX_TOP:
            raise ValueError(f"--top: expected a number from 1 to {MAX_TOP}, got {value!r}")
        return int(value)
    return Path(value) if name == "output" else value


def time_ns(text: str, first: int) -> int:
    """A time of the command line in ns of the database's clock, of which `first` is the trace's first event.

    Raises:
      ValueError: if it is neither seconds such as 1.25 nor nanoseconds such as 1250000000ns.
    """
    if re.fullmatch(r"-?[0-9]{1,19}ns", text):
        return min(max(int(text[:-2]), summary.EVER), summary.FOREVER)  # what a database can hold
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?|\.[0-9]+", text):
        # Not through a float, which has too few digits for a clock that counts ns since 1970.
        return min(first + math.floor(Fraction(text) * 10**9), summary.FOREVER)
    raise ValueError(f"expected a time in seconds (1.25) or of the database's clock (1250000000ns), got {text!r}")


def run(options: Options) -> tuple[str, list[str]]:
    """The summary's text, and what could not be used; writes the cut where one is wanted.

    Raises:
      TraceDbError, OSError: if nothing can be read, or the cut not be written.
    """
    with opened(options.file) as db:
        if options.output:
            cut.check(options.file, options.output, options.force)  # before reading for minutes
        layout = recognized(db)
        span = summary.trace_span(db, layout)
        if span is None:
            raise TraceDbError(
                options.file, "; ".join([f"no event with a time in this {layout.tool} file", *db.problems])
            )
        window = window_of(options, span)
        found = summary.summarize(db, layout, span, window.within(span), min(options.top, 1000))
        written = None
        if options.output:
            # What is not summarized, such as samples, may come before the first event that is.
            wanted = window if options.start else Window(summary.EVER, window.end)
            written = cut.write(db, wanted, options.output, options.force)
        if options.format == "json":
            return report.as_json(found, str(options.file), db.problems), db.problems
        text = report.markdown(found, str(options.file), db.problems, options.top)
        return text + (_told(options.output, written) if written else ""), db.problems


def recognized(db: TraceDatabase) -> Layout:
    """The layout of the database by the first schema that knows its tables.

    Raises:
      TraceDbError: if none does.
    """
    for schema in SCHEMAS:
        if schema.detect(db):
            return schema.describe(db)
    tables = ", ".join(list(db.columns)[:5]) or "none"
    raise TraceDbError(
        db.file,
        f"neither a Nsight Systems export nor an nvprof database: no table StringIds or StringTable (tables: {tables})",
    )


def window_of(options: Options, span: tuple[int, int]) -> Window:
    """The window of the command line.

    Raises:
      WindowError: if it is empty.
      TraceDbError: if it is wholly outside of the trace.
    """
    start = time_ns(options.start, span[0]) if options.start else span[0]
    end = time_ns(options.end, span[0]) if options.end else None
    length = f"the trace is {(span[1] - span[0]) / 1e9:.6f} s long, {span[0]}ns to {span[1]}ns"
    if end is not None and end <= start:
        raise WindowError(options.file, f"--to={options.end} is not after --from={options.start or 0}; {length}")
    if start > span[1] or (end is not None and end <= span[0]):
        wanted = f"--from={options.start or 0}" + (f" and --to={options.end}" if options.end else "")
        raise TraceDbError(options.file, f"nothing of the trace is in the window of {wanted}; {length}")
    return Window(start, end)


def _told(output: Path, written: cut.Cut) -> str:
    share = 100 * written.bytes / written.bytes_before
    return f"\nWrote {output}: {written.bytes} of {written.bytes_before} bytes ({share:.3g} %), with all tables.\n"
