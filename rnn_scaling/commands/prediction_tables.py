"""Read the series of a document's tables as curves to predict from.

`records.tables` finds the series, with the rules that `audit` has. This module decides
what a prediction must assume about them: how the work scales, whether times are of all
work, and what a device is. Each assumption becomes a statement.
"""

import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path

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
from rnn_scaling.analysis.prediction.predicting import SPEEDUP_UNIT
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records import cell_numbers
from rnn_scaling.records.tables import documents, measurements
from rnn_scaling.records.tables.headers import Quantity
from rnn_scaling.records.tables.measurements import Column
from rnn_scaling.records.tables.series import Point, Series, find_series

_MAX_SERIES = 200  # series that are read from one file
_MAX_TITLE_LENGTH = 40  # letters of a title in the name of a series
# The total work is constant if the seconds on the most devices are below this share of
# the seconds on the fewest.
_MAX_STRONG_RATIO = 0.9
_MIXED = ""  # the scaling of a table whose work follows no rule
_UNIT_NAMES = {
    1e-9: "ns",
    1e-6: "us",
    1e-3: "ms",
    1.0: "s",
    60.0: "min",
    3600.0: "h",
    86400.0: "days",
}
_UNIT = re.compile(
    r"(?P<multiple>\b(?:1?[kKMGT]|1e\d+|1,?0+|thousands?|millions?|billions?)\s)?\s*"
    r"(?P<items>[A-Za-z]+)\s*(?:/|\bper\b)\s*"
    r"(?:s|sec|seconds?|min|minutes?|h|hours?)\b"
)
# Behind the unit, as in "tokens/s (x1000)".
_MULTIPLE = re.compile(
    r"[x×*]\s?(?:10\^?\d+|1,?0+|1e\d+)|\b1e\d+\b|\b(?:thousand|million|billion)s?\b"
)
_WORD_AT_END = re.compile(r"[A-Za-zµμ]+$")
_MACHINES = re.compile(r"\b(?:nodes?|machines?|hosts?|servers?|instances?|vms?)\b")
_DEVICES = re.compile(
    r"\b(?:gpus?|tpus?|accelerators?|cards?|workers?|process(?:es)?|procs?"
    r"|ranks?|cores?|cpus?|threads?)\b"
)


def read(
    path: Path, devices_per_machine: int | None
) -> tuple[list[MeasuredSeries], bool]:
    """Return the series of a file's tables, in the order of their lines.

    Args:
      path: A file in any format that `audit` reads.
      devices_per_machine: The number that the user states; None if unknown.

    Returns:
      At most _MAX_SERIES series, and whether there are more.
    """
    all_series = list(itertools.islice(_read_series(path), _MAX_SERIES + 1))
    measured_series = []
    for series in all_series[:_MAX_SERIES]:
        measured_series.append(_make_measured_series(series, devices_per_machine))
    return measured_series, len(all_series) > _MAX_SERIES


def _read_series(path: Path) -> Iterator[Series]:
    """Yield the series of each table, in the first layout that has any."""
    for table in documents.read_tables(path):
        layouts = map(find_series, measurements.read(table))
        yield from next(filter(None, layouts), [])


def _make_measured_series(
    series: Series, devices_per_machine: int | None
) -> MeasuredSeries:
    """Return a series with the assumptions that its prediction makes."""
    table = series.measurements.table
    title = cell_numbers.strip_markup(table.title or table.caption)
    title = title[:_MAX_TITLE_LENGTH].strip(" #:*")
    name = ", ".join(filter(None, (title, series.name, f"line {series.line}")))
    stated_scaling = _find_stated_scaling(series)
    time = _find_printed_time(series, stated_scaling)
    scaling = stated_scaling
    if scaling is None:
        scaling = STRONG if time and time.is_of_all_work else WEAK
    counts_machines = _counts_machines(series)
    links: tuple[Link, ...] = ()
    if devices_per_machine:
        links = (Link(0.0, math.inf, devices_per_machine),)
    curve = Curve(
        name,
        unit=_find_rate_unit(series.column),
        scaling=scaling,
        points=tuple(
            _make_measured_point(series, point, time) for point in series.points
        ),
        knowledge=Knowledge(links=links),
        source=f"{table.source}:{series.line}",
        time=time,
        counts_machines=counts_machines,
    )
    refusal = None
    if stated_scaling == _MIXED:
        refusal = Statement("predict-mixed-table", name)
    elif counts_machines and devices_per_machine:
        refusal = Statement("predict-counts-machines", name)
    assumptions = []
    if time:
        kind = "strong" if time.is_of_all_work else "weak"
        assumptions.append(Statement(f"predict-{kind}-seconds", name))
    elif stated_scaling is None:
        assumptions.append(Statement("predict-constant-work", name))
    return MeasuredSeries(curve, refusal=refusal, assumptions=tuple(assumptions))


def _find_printed_time(
    series: Series, stated_scaling: str | None
) -> PrintedTime | None:
    """Return the kind of times that a column prints, or None if it prints no times.

    A time is for all work if the column is about epochs, or if times fall with more
    devices. A column of steps follows the batch sizes of the table.
    """
    if series.column.quantity != Quantity.SECONDS:
        return None
    falls = series.points[-1].value < _MAX_STRONG_RATIO * series.points[0].value
    is_of_all_work = falls or "epoch" in series.name.lower() or stated_scaling == STRONG
    unit_s = series.column.factor
    if any(number.unit == "s" for number in series.column.numbers):
        unit_s = _find_common_cell_unit_s(series.column)
    return PrintedTime(_UNIT_NAMES.get(unit_s, "s"), unit_s, is_of_all_work)


def _find_common_cell_unit_s(column: Column) -> float:
    """Return the seconds of the unit that all cells end with; 1 if they differ."""
    units_s = set()
    for number in column.numbers:
        word = _WORD_AT_END.search(number.text.strip())
        is_clock = ":" in number.text
        name = word[0].lower() if word and not is_clock else ""
        units_s.add(cell_numbers.SECONDS.get(name, 1.0))
    return units_s.pop() if len(units_s) == 1 else 1.0


def _find_rate_unit(column: Column) -> str:
    """Return the unit of a rate; "items" if the header does not name it.

    Numbers stay in the unit of the header, such as "k img" or "GB".
    """
    if column.quantity == Quantity.SPEEDUP:
        return SPEEDUP_UNIT
    if column.quantity == Quantity.SECONDS:
        return "steps"
    match = _UNIT.search(column.name)
    if match is None:
        return "items"
    items = match["items"]
    # GB are bytes, and Gb are bits.
    unit = items.lower() if items.istitle() or len(items) > 3 else items
    multiple = match["multiple"] or ""
    if not multiple and (behind := _MULTIPLE.search(column.name)):
        multiple = behind[0]
    return f"{multiple.strip()} {unit}".strip()


def _make_measured_point(
    series: Series, point: Point, time: PrintedTime | None
) -> MeasuredPoint:
    """Return a point as a rate, or a speedup."""
    item = point.item
    rate = point.value
    if time:
        rate = (1 if time.is_of_all_work else point.devices) / rate
    rounding = math.log(item.high / item.low) / 2 if item.low > 0 else 1.0
    is_speedup = series.column.quantity == Quantity.SPEEDUP
    if is_speedup and point is series.points[0] and math.isclose(point.value, 1.0):
        rounding = 0.0  # the baseline is 1 by definition, however it is printed
    decimals = None
    if time or item.scale == 1.0:
        step = item.number.resolution * item.scale / (time.unit_s if time else 1.0)
        decimals = max(0, round(-math.log10(step)))
    return MeasuredPoint(
        point.devices, float(f"{rate:.12g}"), rounding=rounding, decimals=decimals
    )


def _find_stated_scaling(series: Series) -> str | None:
    """Return STRONG or WEAK according to the batch sizes of the table.

    Returns:
      WEAK or STRONG, MIXED if the sizes follow neither, or None without sizes.
    """
    devices = series.measurements.devices
    assert devices
    for quantity in (Quantity.GLOBAL_BATCH, Quantity.BATCH):
        for k in series.measurements.find_columns(quantity):
            column = series.measurements.columns[k]
            pairs = [(devices.items[row], column.items[row]) for row in series.rows]
            sizes = {(n.low, item.number.value) for n, item in pairs if n and item}
            is_whole = all(size % 1 == 0 for _, size in sizes)  # no "First batch (s)"
            if not is_whole or len(sizes) != len(series.points):
                continue
            constant_scaling = STRONG if quantity == Quantity.GLOBAL_BATCH else WEAK
            if len({size for _, size in sizes}) == 1:
                return constant_scaling
            if len({size / count for count, size in sizes}) == 1:
                return WEAK
            is_divided = len({size * count for count, size in sizes}) == 1
            return STRONG if is_divided else _MIXED
    return None


def _counts_machines(series: Series) -> bool:
    """Return whether the numbers of devices are numbers of whole machines.

    The words of the column, or the words of the first cell with a number, decide this.
    """
    devices = series.measurements.devices
    assert devices
    table = series.measurements.table
    row, column = next(item for item in devices.items if item).position
    texts = table.rows[row][1] if row >= 0 else table.header
    words = f"{devices.name} {texts[column]}".lower().replace("_", " ")
    return bool(_MACHINES.search(words)) and not _DEVICES.search(words)
