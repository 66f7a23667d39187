"""Files of this suite that are no records: each kind has a mark of its own."""

import re
from pathlib import Path

from rnn_scaling.system.files import input_files

REPORT_SCHEMA = "rnn_scaling.report/1"
EDGE = 4096  # bytes at the start of a file within which a report's own file says so
MARK = f"\n<!-- {REPORT_SCHEMA} -->\n"  # the end of Markdown
_SCHEMA = re.escape(REPORT_SCHEMA.encode())
# How a file of the report says so, by the end of its name: at one place, so that a text about reports is not one.
STARTS = {
    ".csv": rb"schema,[^\n]*\r?\n" + _SCHEMA + rb",",
    # inspect, threads, history, predict and whatif write these next to their records and entries.
    ".json": rb'\{\s*"schema": "rnn_scaling\.(?:report|inspect|threads|whatif|(?:history|prediction)_report)/1"',
    ".html": rb'<!doctype html>\n(?:<(?!meta name="generator")[^\n]*\n){1,8}<meta name="generator" content="'
    + _SCHEMA
    + rb'">',
    ".svg": rb"<!-- " + _SCHEMA + rb" -->\n<svg ",
    ".png": rb"\x89PNG\r\n\x1a\n(?s:.){0,200}tEXtSoftware\x00" + _SCHEMA,
}


def is_own(path: Path) -> bool:
    """Whether a file was written by the report: the schema stands where the report puts it in a file of that name."""
    if path.suffix == ".md":
        return _edge(path, at_end=True).endswith(MARK.encode())
    pattern = STARTS.get(path.suffix)
    return pattern is not None and re.match(pattern, _edge(path)) is not None


def is_result(path: Path) -> bool:
    """Whether one of this suite's commands wrote a file that is no record."""
    return starts_as(path, rb"(?!run/)")


def starts_as(path: Path, schema: bytes) -> bool:
    """Whether a file begins as this suite's files do, with a schema that matches the pattern."""
    return (
        re.match(rb'\{\s*"schema":\s*"rnn_scaling\.' + schema, _edge(path)) is not None
    )


def _edge(path: Path, at_end: bool = False) -> bytes:
    """The first bytes of a file, or the last; none if it cannot be read."""
    try:
        with input_files.open_regular(path, input_files.UNLIMITED) as file:
            file.seek(max(0, path.stat().st_size - EDGE) if at_end else 0)
            return file.read(EDGE)
    except OSError:
        return b""
