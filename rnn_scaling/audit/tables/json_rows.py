"""JSON: a list of objects, an object of lists, an object that holds one of these, or one object a line (JSON Lines)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.audit.tables.grid import RawTable

REPORT_SETTINGS = ("num_devices", "batch_size", "global_batch_size")
REPORT_METRICS = ("words_per_second", "speedup", "efficiency")


def tables(document: Any, name: str = "") -> Iterator[RawTable]:
    """Yields every list of flat objects, and every object of equally long lists, in a parsed document.

    A row's line is its place in the list, from 1: JSON does not keep lines. The titles begin with `name`, the keys that
    lead to the document, with dots between.
    """
    if isinstance(document, Sequence) and not isinstance(document, str):
        objects = [item for item in document if isinstance(item, Mapping)]
        if objects:
            yield _rows(objects, name)
        elif _is_matrix(document):
            lines = [(number, [text(value) for value in row]) for number, row in enumerate(document[1:], 2)]
            yield RawTable(1, [text(value) for value in document[0]], lines, title=name)
        return
    if not isinstance(document, Mapping):
        return
    lists = {key: value for key, value in document.items() if isinstance(value, list)}
    flat = {key: value for key, value in lists.items() if not any(isinstance(item, (list, dict)) for item in value)}
    if len(flat) > 1 and len({len(value) for value in flat.values()}) == 1:
        yield _rows([dict(zip(flat, row)) for row in zip(*flat.values())], name)
        return
    for key, value in document.items():
        yield from tables(value, f"{name}.{key}" if name else str(key))


def _is_matrix(document: Sequence[Any]) -> bool:
    """Whether a list holds rows, the first of them the headers."""
    if len(document) < 2 or not all(isinstance(row, list) for row in document):
        return False
    return len(document[0]) > 1 and all(isinstance(name, str) and name for name in document[0])


def report(document: Mapping[str, Any]) -> Iterator[RawTable]:
    """Yields one table a series of a report (rnn_scaling.report/1): settings, metrics and their intervals.

    A row's line is its place in the series, from 1.

    Raises:
      ValueError: if its series are no list of rows.
    """
    series = document.get("series")
    if not isinstance(series, list) or not all(
        isinstance(s, Mapping) and isinstance(s.get("rows"), list) for s in series
    ):
        raise ValueError("no list of series with rows")
    for each in series:
        rows = [row for row in each["rows"] if isinstance(row, Mapping)]
        settings = [{name: row.get(name) for name in REPORT_SETTINGS} for row in rows]
        metrics = [{name: _interval(row.get(name)) for name in REPORT_METRICS} for row in rows]
        flat = [{"series": str(each.get("title", "")), **s, **_flat(m)} for s, m in zip(settings, metrics)]
        if flat:
            yield _rows(flat, str(each.get("title", "")))


def _interval(value: Any) -> dict[str, Any]:
    ends = value if isinstance(value, Mapping) else {}
    return {end: ends.get(end) for end in ("value", "low", "high")}


def _rows(objects: Sequence[Mapping[str, Any]], name: str) -> RawTable:
    flat = [_flat(item) for item in objects]
    header = list(dict.fromkeys(key for item in flat for key in item))
    lines = [(number, [text(item.get(key)) for key in header]) for number, item in enumerate(flat, 1)]
    return RawTable(1, header, lines, title=name)


def _flat(item: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in item.items():
        if isinstance(value, Mapping):
            out.update(_flat(value, f"{prefix}{key}."))
        elif not isinstance(value, list):
            out[f"{prefix}{key}"] = value
    return out


def text(value: Any) -> str:
    """A JSON value as a cell; every decimal of a float counts as printed."""
    if value is None:
        return ""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan"
    return json.dumps(value) if isinstance(value, (bool, int, float)) else str(value)
