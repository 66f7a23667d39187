"""A file or folder -> its tables, whatever the form; memory stays bounded for text and CSV of any size."""

from __future__ import annotations

import codecs
import dataclasses
import io
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rnn_scaling.audit.scaling_table import ScalingTable
from rnn_scaling.audit.tables import delimited, json_rows, pipes, records, text
from rnn_scaling.audit.tables.grid import RawTable
from rnn_scaling.audit.tables.interpret import interpret
from rnn_scaling.files import input_files
from rnn_scaling.records import record
from rnn_scaling.records.own_files import is_result
from rnn_scaling.records.record import RecordError

MAX_LINE_BYTES = 2**20
REPORT_SCHEMA = "rnn_scaling.report/1"
_HEAD_BYTES = 64 * 2**10
_ESCAPES = re.compile(rb"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")  # colours, links


class UnreadableError(ValueError):
    """A file holds no text that the audit can read."""


def tables(path: Path) -> Iterator[ScalingTable]:
    """Yields the tables of a file (Markdown, plain columns, CSV, TSV, JSON, JSON Lines, run record) or record folder.

    Raises:
      OSError: if it cannot be read.
      UnreadableError: with one line, if it is empty, binary, or broken JSON.
    """
    if path.is_dir():
        yield _folder(path)
        return
    with input_files.open_regular(path) as file:
        head = file.read(_HEAD_BYTES)
        _refuse(path, head)
        file.seek(0)
        form = _form(path, head)
        if form == "json":
            yield from _json(path, file)
            return
        lines = _lines(file)
        if form == "jsonl":
            raw_tables = _json_lines(lines)
        else:
            raw_tables = delimited.tables(lines, form) if form else text.tables(lines)
        yield from (interpret(raw, str(path)) for raw in raw_tables if raw.header)


def _refuse(path: Path, head: bytes) -> None:
    if not head.removeprefix(codecs.BOM_UTF8).strip():
        raise UnreadableError(f"{path}: empty")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UnreadableError(f"{path}: UTF-16 text; save it as UTF-8")
    if b"\0" in head:
        raise UnreadableError(f"{path}: a binary file; expected Markdown, plain columns, CSV, TSV, JSON or run records")


def _form(path: Path, head: bytes) -> str:
    """ "json", "jsonl", a delimiter, or "" for prose with tables in it."""
    lines = head.decode("utf-8-sig", errors="replace").splitlines()
    lines = [line for line in lines[: -1 if len(head) == _HEAD_BYTES and len(lines) > 1 else None] if line.strip()]
    first = lines[0].strip()
    if first[:1] in ("{", "[") and first[:2] != "{|" and path.suffix != ".md":
        whole_lines = len(lines) > 1 and all(_is_object(line) for line in lines[:2])
        if whole_lines or path.suffix == ".jsonl":
            return "jsonl"
        opens = first[:1] == "{" or len(first) == 1 or first[1:].lstrip()[:1] in ("{", "[")
        return "json" if path.suffix == ".json" or opens else ""
    if path.suffix == ".json":
        return "json"
    if path.suffix in (".csv", ".tsv"):
        return delimited.delimiter_of(lines[:2]) or ("\t" if path.suffix == ".tsv" else ",")
    if "|" in first or first[:1] in ("<", "\\") or path.suffix in (".md", ".rst", ".html", ".htm", ".tex", ".org"):
        return ""
    delimiter = delimited.delimiter_of(lines[:8]) if len(lines) > 1 else ""
    return delimiter if delimiter in (",", ";") else ""  # the reader of prose knows tabs


def _is_object(line: str) -> bool:
    try:
        return isinstance(input_files.parse_json(line), dict)
    except input_files.JsonError:
        return False


def _lines(file: io.BufferedReader) -> Iterator[tuple[int, str]]:
    """Numbered lines; of one longer than MAX_LINE_BYTES only the beginning, so that memory stays bounded."""
    for number in itertools.count(1):
        line = file.readline(MAX_LINE_BYTES)
        if not line:
            return
        if not line.endswith(b"\n"):
            while (more := file.readline(MAX_LINE_BYTES)) and not more.endswith(b"\n"):
                pass
        if b"\x1b" in line:
            line = _ESCAPES.sub(b"", line)
        yield number, line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace").rstrip("\r\n")


def _json(path: Path, file: io.BufferedReader) -> Iterator[ScalingTable]:
    content = file.read().decode("utf-8-sig", errors="replace")
    try:
        document = input_files.parse_json(content)
    except input_files.JsonError as e:
        raise UnreadableError(f"{path}: {e}") from None
    if isinstance(document, dict) and str(document.get("schema", "")).startswith("rnn_scaling.run/"):
        try:
            yield records.table([(str(path), record.from_json(content, str(path), derived=False))], str(path))
        except RecordError as e:
            raise UnreadableError(str(e)) from e
        return
    if isinstance(document, dict) and str(document.get("schema", "")).startswith("rnn_scaling.report/"):
        yield from _report(path, document)
        return
    yield from (interpret(raw, str(path)) for raw in json_rows.tables(document) if raw.header)


def _report(path: Path, document: dict[str, Any]) -> Iterator[ScalingTable]:
    if document["schema"] != REPORT_SCHEMA:
        raise UnreadableError(f"{path}: schema {document['schema']!r}; expected {REPORT_SCHEMA}")
    try:
        yield from (interpret(raw, str(path)) for raw in json_rows.report(document) if raw.header)
    except ValueError as e:
        raise UnreadableError(f"{path}: a report with {e}") from e


def _json_lines(lines: Iterator[tuple[int, str]]) -> Iterator[RawTable]:
    """Objects, one a line, in pieces; lines that are not objects are named in the notes."""
    for _, piece in itertools.groupby(enumerate(lines), key=lambda item: item[0] // pipes.MAX_ROWS):
        objects, numbers, bad = [], [], []
        for _, (number, line) in piece:
            if not line.strip():
                continue
            try:
                value = input_files.parse_json(line)
            except input_files.JsonError:
                value = None
            if isinstance(value, dict):
                objects.append(value)
                numbers.append(number)
            else:
                bad.append(f"line {number}: not a JSON object; left out")
        for raw in json_rows.tables(objects):
            rows = [(number, texts) for number, (_, texts) in zip(numbers, raw.lines)]
            yield dataclasses.replace(raw, line=numbers[0], lines=rows, notes=tuple(bad))


def _folder(path: Path) -> ScalingTable:
    """One table of a folder's records; files that are neither those nor our own are named in the notes."""
    good, bad = [], []
    for file in sorted(path.rglob("*.json")):
        try:
            good.append((str(file), record.read(file, derived=False)))
        except OSError as e:
            bad.append(f"{file}: {e.strerror or e}; left out")
        except RecordError as e:
            if not is_result(file):
                bad.append(f"{e}; left out")
    if not good:
        reason = f"; {bad[0]}" if bad else ""
        raise UnreadableError(f"{path}: a folder without run records (*.json){reason}")
    table = records.table(good, str(path))
    return dataclasses.replace(table, notes=(*table.notes, *bad))
