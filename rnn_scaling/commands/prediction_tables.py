"""Read the series of a document's tables as curves to predict from."""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rnn_scaling.analysis.audit import derived, documents
from rnn_scaling.analysis.audit.tables import Column, Item, View, views
from rnn_scaling.analysis.prediction.curves import (
    STRONG,
    WEAK,
    Curve,
    Knowledge,
    Link,
    MeasuredPoint,
    PrintedTime,
)
from rnn_scaling.analysis.prediction.from_rows import MeasuredSeries
from rnn_scaling.analysis.prediction.predicting import SPEEDUP
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records import printed_number

MOST = 200  # series that are read from one file
LONGEST_TITLE = 40  # letters of a title in the name of a series
# If the seconds on the most devices are below this share of those on the fewest, the
# total work is constant.
SHRINKS = 0.9
MIXED = ""  # the scaling of a table whose work follows no rule
UNIT_NAMES = {
    1e-9: "ns",
    1e-6: "us",
    1e-3: "ms",
    1.0: "s",
    60.0: "min",
    3600.0: "h",
    86400.0: "days",
}
_UNIT = re.compile(
    r"([A-Za-z]+)\s*(?:/|\bper\b)\s*(?:s|sec|seconds?|min|minutes?|h|hours?)\b"
)
_WORD_AT_END = re.compile(r"[A-Za-zµμ]+$")
_MACHINES = re.compile(r"\b(?:nodes?|machines?|hosts?|servers?|instances?|vms?)\b")
_DEVICES = re.compile(
    r"\b(?:gpus?|tpus?|devices?|accelerators?|cards?|workers?|process(?:es)?|procs?"
    r"|ranks?|cores?|cpus?|threads?)\b"
)


def read(
    path: Path, devices_per_machine: int | None
) -> tuple[list[MeasuredSeries], bool]:
    """Return the series of a file's tables, in the order of their lines.

    Args:
      path: A file in any format that `audit` reads.
      devices_per_machine: As the user states it; None if unknown.

    Returns:
      At most MOST series, and whether there are more.
    """
    found = list(itertools.islice(_pairs(path), MOST + 1))
    made = []
    for view, series in found[:MOST]:
        if all(point.devices % 1 == 0 for point in series.points):
            made.append(_measured_series(view, series, devices_per_machine))
    return made, len(found) > MOST


def _pairs(path: Path) -> Iterator[tuple[View, derived.Series]]:
    """Yield each series and its view, the first view of a table that has any."""
    for table in documents.tables(path):
        for view in views(table):
            every = derived.series(view)
            for series in every:
                yield view, series
            if every:
                break


def _measured_series(
    view: View, series: derived.Series, devices_per_machine: int | None
) -> MeasuredSeries:
    title = printed_number.plain(view.table.title or view.table.caption)
    title = title[:LONGEST_TITLE].strip(" #:*")
    name = ", ".join(filter(None, (title, series.name, f"line {series.line}")))
    stated = _scaling(view, {point.devices for point in series.points})
    column = _column(view, series)
    time = _printed_time(column, series, stated)
    scaling = stated
    if scaling is None:
        scaling = STRONG if time and time.is_of_all_work else WEAK
    counts_machines = _counts_machines(view)
    links: tuple[Link, ...] = ()
    if devices_per_machine:
        links = (Link(0.0, math.inf, devices_per_machine),)
    curve = Curve(
        name,
        _unit(column, series),
        scaling,
        _points(view, series, column, time),
        Knowledge(links=links),
        f"{series.source}:{series.line}",
        time,
        counts_machines,
    )
    refusal = None
    if stated == MIXED:
        refusal = Statement("predict-mixed-table", name)
    elif counts_machines and devices_per_machine:
        refusal = Statement("predict-counts-machines", name)
    assumed = []
    if time:
        kind = (
            "predict-strong-seconds" if time.is_of_all_work else "predict-weak-seconds"
        )
        assumed.append(Statement(kind, name))
    elif stated is None:
        assumed.append(Statement("predict-constant-work", name))
    return MeasuredSeries(curve, refusal=refusal, assumed=tuple(assumed))


def _column(view: View, series: derived.Series) -> Column:
    columns = [column for column in view.columns if column.quantity == series.measure]
    return next(column for column in columns if series.name.endswith(column.name))


def _printed_time(
    column: Column, series: derived.Series, stated: str | None
) -> PrintedTime | None:
    """Return how a column prints times; None if it has no times.

    A time is that of all work if the column is about epochs, or if times fall with more
    devices. A column of steps follows the batch sizes of the table.
    """
    if series.measure != "seconds":
        return None
    falls = series.points[-1].measured < SHRINKS * series.points[0].measured
    is_of_all_work = falls or "epoch" in series.name.lower() or stated == STRONG
    unit_s = column.factor
    if _has_own_units(column):
        unit_s = _unit_of_cells(column)
    return PrintedTime(UNIT_NAMES.get(unit_s, "s"), unit_s, is_of_all_work)


def _has_own_units(column: Column) -> bool:
    """Return whether the cells of a column name units, so that numbers are seconds."""
    return any(item.number.unit == "s" for item in column.items if item)


def _unit_of_cells(column: Column) -> float:
    """Return the seconds of the unit that all cells end with; 1 if they differ."""
    found = set()
    for item in column.items:
        if item:
            word = _WORD_AT_END.search(item.number.text.strip())
            found.add(printed_number.SECONDS.get(word[0].lower(), 1.0) if word else 1.0)
    is_clock = any(":" in item.number.text for item in column.items if item)
    return found.pop() if len(found) == 1 and not is_clock else 1.0


def _unit(column: Column, series: derived.Series) -> str:
    """Return what is counted per second; "items" if the header does not name it."""
    if series.measure == "speedup":
        return SPEEDUP
    if series.measure == "seconds":
        return "steps"
    found = _UNIT.search(column.name)
    return found[1].lower() if found else "items"


def _points(
    view: View, series: derived.Series, column: Column, time: PrintedTime | None
) -> tuple[MeasuredPoint, ...]:
    """Return the points of a series as rates, or speedups."""
    printed: dict[int, list[Item]] = {}
    for count, cell in _cells(view, column):
        printed.setdefault(int(count), []).append(cell)
    factor = (
        1.0 if series.measure == "speedup" or _has_own_units(column) else column.factor
    )
    made = []
    for place, point in enumerate(series.points):
        devices = int(point.devices)
        own = point.measured / (devices if series.measure == "each" else 1)
        item = _closest(printed.get(devices, ()), own)
        value = factor * point.measured
        rate = value
        if time:
            rate = (1 if time.is_of_all_work else devices) / value
        rounding = 1.0
        if item and item.low > 0:
            rounding = math.log(item.high / item.low) / 2
        if series.measure == "speedup" and place == 0 and point.measured == 1:
            rounding = 0.0  # the baseline is 1 by definition, however it is printed
        decimals = None
        if item and (time or factor == 1):
            unit_s = time.unit_s if time else 1.0
            shown_step = item.number.step * factor / unit_s
            decimals = max(0, round(-math.log10(shown_step)))
        made.append(
            MeasuredPoint(
                devices, float(f"{rate:.12g}"), rounding=rounding, decimals=decimals
            )
        )
    return tuple(made)


def _closest(items: Sequence[Item], value: float) -> Item | None:
    """Return the item whose number is closest to a value; None without items."""
    closest = None
    for item in items:
        distance = abs(item.number.value - value)
        if closest is None or distance < abs(closest.number.value - value):
            closest = item
    return closest


def _scaling(view: View, devices: set[float]) -> str | None:
    """Return how the work scales according to the batch sizes of the table.

    Returns:
      WEAK or STRONG, MIXED if the sizes follow neither, or None without sizes.
    """
    for k in (*view.of("global_batch"), *view.of("batch")):
        column = view.columns[k]
        cells = set()
        for count, item in _cells(view, column):
            size = item.number.value
            if count in devices and size % 1 == 0:  # and no "First batch (s)"
                cells.add((count, size))
        if len(cells) == len(devices) == len({count for count, _ in cells}):
            constant = STRONG if column.quantity == "global_batch" else WEAK
            rules = [
                (constant, {size for _, size in cells}),
                (WEAK, {size / count for count, size in cells}),
                (STRONG, {size * count for count, size in cells}),
            ]
            return next((scaling for scaling, sizes in rules if len(sizes) == 1), MIXED)
    return None


def _cells(view: View, column: Column) -> list[tuple[float, Item]]:
    """Return (devices, item) of the rows that have both."""
    counts = view.columns[view.of("devices")[0]].items
    return [
        (count.low, item) for count, item in zip(counts, column.items) if count and item
    ]


def _counts_machines(view: View) -> bool:
    """Return whether the numbers of devices are numbers of whole machines.

    The words are those of the column, or of the first cell that holds a number.
    """
    column = view.columns[view.of("devices")[0]]
    texts = [column.name.lower()]
    first = next(item for item in column.items if item)
    texts.append(_text_at(view, *first.ref).lower())
    has_machines = any(_MACHINES.search(text.replace("_", " ")) for text in texts)
    named = [text for text in texts if text != "devices"]
    has_devices = any(_DEVICES.search(text.replace("_", " ")) for text in named)
    return has_machines and not has_devices


def _text_at(view: View, row: int, column: int) -> str:
    """Return the text of a cell, or of the header for row -1."""
    texts: Sequence[str] = view.table.header
    if row >= 0:
        texts = view.table.rows[row][1]
    return texts[column] if column < len(texts) else ""
