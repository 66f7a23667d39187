"""Files that this suite writes and that are not records; each kind has its own mark.

STARTS must match what the renderers of reports write first, or a command refuses to
replace its own file.
"""

import re
from pathlib import Path

from rnn_scaling.system.files import input_files

REPORT_SCHEMA = "rnn_scaling.report/1"
EDGE_BYTES = 4096  # bytes at the start or end of a file that contain the mark
MARK = f"\n<!-- {REPORT_SCHEMA} -->\n"  # the end of Markdown
_SCHEMA = re.escape(REPORT_SCHEMA.encode())
# The start of a file of the report, by the end of its name. The mark has a fixed place,
# so that a text about reports is not taken for one.
STARTS = {
    ".csv": rb"schema,[^\n]*\r?\n" + _SCHEMA + rb",",
    # Several commands write their reports next to records and entries. A command whose
    # schema is missing here refuses to replace its own file. Any version is its own.
    ".json": rb'\{\s*"schema": "rnn_scaling\.'
    rb'(?:report|inspect|threads|whatif|(?:history|prediction)_report)/\d+"',
    ".html": rb'<!doctype html>\n(?:<(?!meta name="generator")[^\n]*\n){1,8}'
    rb'<meta name="generator" content="' + _SCHEMA + rb'">',
    ".svg": rb"<!-- " + _SCHEMA + rb" -->\n<svg ",
    ".png": rb"\x89PNG\r\n\x1a\n(?s:.){0,200}tEXtSoftware\x00" + _SCHEMA,
}


def is_own(path: Path) -> bool:
    """Return whether the report wrote a file: whether it has the mark of its kind."""
    if path.suffix == ".md":
        return _read_edge(path, at_end=True).endswith(MARK.encode())
    pattern = STARTS.get(path.suffix)
    return pattern is not None and re.match(pattern, _read_edge(path)) is not None


def is_result(path: Path) -> bool:
    """Return whether a command of this suite wrote a JSON file that is not a record."""
    return starts_as(path, rb"(?!run/)")


def starts_as(path: Path, schema: bytes) -> bool:
    """Return whether a file starts like JSON of this suite.

    Args:
      path: The file.
      schema: Pattern of its schema, without "rnn_scaling.".
    """
    pattern = rb'\{\s*"schema":\s*"rnn_scaling\.' + schema
    return re.match(pattern, _read_edge(path)) is not None


def _read_edge(path: Path, at_end: bool = False) -> bytes:
    """Return the first or last bytes of a file; b"" if it cannot be read."""
    try:
        with input_files.open_regular(path, input_files.UNLIMITED) as file:
            if at_end:
                file.seek(max(0, path.stat().st_size - EDGE_BYTES))
            return file.read(EDGE_BYTES)
    except OSError:
        return b""
