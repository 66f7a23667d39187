"""Summarizes a window of a trace database."""

from __future__ import annotations

import dataclasses
import math
import re
from fractions import Fraction
from pathlib import Path

from rnn_scaling.inspection.trace_databases import nsys, nvprof, report, summary
from rnn_scaling.inspection.trace_databases.database import TraceDatabase, TraceDbError, opened
from rnn_scaling.inspection.trace_databases.layout import DatabaseLayout
from rnn_scaling.inspection.trace_databases.summary import TraceWindow
from rnn_scaling.models.config import option
from rnn_scaling.settings import flags

SCHEMAS = (nsys, nvprof)


class WindowError(TraceDbError):
    """Times of the command line between which there is nothing."""


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
    raise ValueError("a time in seconds (1.25) or of the database's clock (1250000000ns)")


def _time(text: str) -> str:
    time_ns(text, 0)
    return text


@dataclasses.dataclass(frozen=True)
class TraceDbOptions:
    """Trace database."""

    file: Path = flags.positional("the database", shown="FILE.sqlite")
    from_: str = option("", "look at the trace from here (default: its first event) ...", parse=_time, shown="TIME")
    to: str = option("", "... to here (default: its last event)", parse=_time, shown="TIME")
    format: str = option(
        "markdown",
        "markdown, or json: every name (20,000 of a table at most, the rest added up), times in ns",
        choices=("markdown", "json"),
    )
    top: int = option(20, "rows of each table of names, and gaps of each device", minimum=1, maximum=100_000)


def look(options: TraceDbOptions) -> tuple[str, list[str]]:
    """Returns the text of the summary and the problems of the file.

    Raises:
      TraceDbError, OSError: if nothing can be read.
    """
    with opened(options.file) as db:
        layout = _recognized(db)
        span = summary.trace_span(db, layout)
        if span is None:
            raise TraceDbError(
                options.file, "; ".join([f"no event with a time in this {layout.tool} file", *db.problems])
            )
        window = _window_of(options, span)
        summarised = summary.summarize(db, layout, span, window.within(span), min(options.top, 1000))
        if options.format == "json":
            return report.as_json(summarised, str(options.file), db.problems), db.problems
        return report.markdown(summarised, str(options.file), db.problems, options.top), db.problems


def _recognized(db: TraceDatabase) -> DatabaseLayout:
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


def _window_of(options: TraceDbOptions, span: tuple[int, int]) -> TraceWindow:
    """The window of the command line.

    Raises:
      WindowError: if it is empty.
      TraceDbError: if it is wholly outside of the trace.
    """
    start = time_ns(options.from_, span[0]) if options.from_ else span[0]
    end = time_ns(options.to, span[0]) if options.to else None
    length = f"the trace is {(span[1] - span[0]) / 1e9:.6f} s long, {span[0]}ns to {span[1]}ns"
    if end is not None and end <= start:
        raise WindowError(options.file, f"--to={options.to} is not after --from={options.from_ or 0}; {length}")
    if start > span[1] or (end is not None and end <= span[0]):
        wanted = f"--from={options.from_ or 0}" + (f" and --to={options.to}" if options.to else "")
        raise TraceDbError(options.file, f"nothing of the trace is in the window of {wanted}; {length}")
    return TraceWindow(start, end)
