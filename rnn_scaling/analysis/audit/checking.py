"""Find the faults of a table.

`auditing` calls `check` for each table. The kinds of faults are in the other modules;
this one decides which of them are reported.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from rnn_scaling.analysis.audit import candidates, headings, limits, repairs, slips
from rnn_scaling.analysis.audit.finding import IMPOSSIBLE, UNLIKELY, Finding, Place
from rnn_scaling.analysis.audit.readings import (
    MIN_BITS,
    Bounds,
    Instance,
    Mark,
    Reading,
)
from rnn_scaling.analysis.audit.relations import Relation
from rnn_scaling.analysis.audit.repairs import Fault
from rnn_scaling.records import cell_numbers
from rnn_scaling.records.tables import measurements
from rnn_scaling.records.tables.measurements import CellPosition, Measurements
from rnn_scaling.records.tables.table import Table

_MAX_SHOWN = 6  # rows, and columns, of an excerpt
_CERTAIN = 10.0  # bits of a relation that does not hold by accident
_UNKNOWN = (math.nan, math.nan)


@dataclasses.dataclass(frozen=True)
class _Detected:
    """Cells that contradict others, with bounds of the right numbers."""

    kind: str  # see `Finding`
    is_certain: bool  # whether it is impossible that the numbers are right
    fits: Mapping[CellPosition, Bounds]
    relation: str = ""
    bits: float = 0.0  # the evidence for the relation
    shown: Sequence[CellPosition] = ()  # further cells of the excerpt
    cells: Sequence[CellPosition] = ()  # all cells that are wrong, if more than `fits`


def check(table: Table) -> tuple[int, list[Finding]]:
    """Return the number of comparisons in a table, and the findings.

    Each cell is reported once.
    """
    num_comparisons = 0
    findings: list[Finding] = []
    reported: set[CellPosition] = set()
    for layout in measurements.read(table):
        swaps = list(headings.find_swapped(layout))
        swapped = {reading.target for reading in itertools.chain(*swaps)}
        readings = []
        for reading in candidates.choose_readings(layout):
            if reading.target not in swapped:
                readings.append(reading)
        all_series = list(limits.find_series(layout))
        num_comparisons += sum(len(series.points) for series in all_series)
        num_comparisons += sum(len(reading.rows) for reading in readings)
        detected = itertools.chain(
            map(_find_swap, swaps),
            _detect_faults(layout, readings),
            _detect_wrong_columns(layout, readings, swapped),
            _detect_outliers(readings, all_series),
        )
        for fault in detected:
            cells = {*fault.fits, *fault.cells}
            if reported.isdisjoint(cells):
                reported |= cells
                findings.append(_make_finding(layout, fault))
    findings.sort(key=lambda finding: finding.places[0].line)
    return num_comparisons, findings


def _find_swap(swap: headings.Swap) -> _Detected:
    first, second = (_list_target_cells(reading) for reading in swap)
    return _Detected(
        "swapped-headings",
        is_certain=True,
        fits={first[0]: _UNKNOWN, second[0]: _UNKNOWN},
        relation=_format_formula(swap[0].relation),
        bits=min(reading.bits for reading in swap),
        shown=list(itertools.chain(*zip(first, second)))[: 2 * _MAX_SHOWN],
        cells=[*first, *second],
    )


def _list_target_cells(reading: Reading) -> list[CellPosition]:
    """Return the cells of the target column."""
    column = reading.layout.columns[reading.target]
    return [item.position for item in column.items if item]


def _detect_faults(
    layout: Measurements, readings: Sequence[Reading]
) -> Iterator[_Detected]:
    """Yield the numbers that break believed relations."""
    instances: dict[Mark, Instance] = {}
    bits: dict[Mark, float] = {}
    has_fault = not all(reading.is_clean for reading in readings)
    for reading in readings if has_fault else ():
        for instance in reading.instances(reading.rows):
            if bits.get(instance.mark, -math.inf) < reading.bits:
                instances[instance.mark] = instance
                bits[instance.mark] = reading.bits
    for fault in repairs.find_faults(instances):
        highest = max(bits[instance.mark] for instance in fault.broken)
        relation = fault.broken[0].relation
        if highest >= MIN_BITS or not relation.is_generic:
            yield from _find_fault(layout, fault, highest)


def _find_fault(layout: Measurements, fault: Fault, bits: float) -> Iterator[_Detected]:
    """Yield a fault, unless medians and unprinted digits explain it."""
    is_material = False
    for change in fault.changes:
        low, high = change.fit
        difference = max(low - change.item.high, change.item.low - high)
        size = max(abs(change.item.high), abs(change.item.low))
        is_material |= difference > repairs.MATERIAL * size
    if is_material:
        is_exact = all(instance.is_exact for instance in fault.broken)
        yield _Detected(
            "number" if len(fault.changes) == 1 else "one-of",
            is_certain=bits >= _CERTAIN and is_exact,
            fits={change.position: change.fit for change in fault.changes},
            relation=_format_formula(fault.broken[0].relation),
            bits=bits,
            shown=list(
                itertools.chain(*(instance.positions for instance in fault.broken))
            ),
        )


def _detect_wrong_columns(
    layout: Measurements, readings: Sequence[Reading], swapped: set[int]
) -> Iterator[_Detected]:
    for reading in headings.find_mistakes(layout, readings):
        if reading.target not in swapped:
            cells = _list_target_cells(dataclasses.replace(reading, layout=layout))
            name = reading.relation.name
            fits = {cells[0]: _UNKNOWN}
            shown_cells = cells[1:_MAX_SHOWN]
            yield _Detected(
                "column",
                is_certain=True,
                fits=fits,
                relation=name,
                bits=reading.bits,
                shown=shown_cells,
                cells=cells,
            )


def _detect_outliers(
    readings: Sequence[Reading], all_series: Sequence[limits.Series]
) -> Iterator[_Detected]:
    for outlier in itertools.chain(*map(limits.find_outliers, all_series)):
        cell = outlier.item.position
        may_follow = outlier.kind == "superlinear"
        if not (may_follow and any(reading.confirms(cell) for reading in readings)):
            yield _Detected(outlier.kind, False, {cell: outlier.fits})


def _make_finding(layout: Measurements, fault: _Detected) -> Finding:
    places = [_locate_cell(layout, cell, fit) for cell, fit in fault.fits.items()]
    if fault.kind == "swapped-headings":
        line = layout.table.line
        titles = [place.column for place in places]
        places = [Place(line, "", title, title, *_UNKNOWN) for title in titles]
    return Finding(
        fault.kind,
        strength=IMPOSSIBLE if fault.is_certain else UNLIKELY,
        source=layout.table.source,
        places=tuple(places),
        relation=fault.relation,
        bits=fault.bits,
        excerpt=_make_excerpt(layout.table, [*fault.fits, *fault.shown]),
    )


def _make_excerpt(
    table: Table, cells: Sequence[CellPosition]
) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Return the header and the rows of some cells, with their columns."""
    shown_columns = {0, *(column % len(table.header) for _, column in cells)}
    rows = {row for row, _ in cells[:_MAX_SHOWN] if row >= 0}
    excerpt = []
    lines = [(table.line, table.header), *(table.rows[row] for row in sorted(rows))]
    for line, texts in lines:
        columns = sorted(shown_columns)[:_MAX_SHOWN]
        excerpt.append(
            (line, tuple(cell_numbers.strip_markup(texts[k]) for k in columns))
        )
    return tuple(excerpt)


def _locate_cell(layout: Measurements, cell: CellPosition, fit: Bounds) -> Place:
    """Return a cell with the bounds of the right number."""
    line, texts = layout.table.rows[cell.row]
    k = cell.column % len(layout.table.header)
    _, row, item = layout.find(cell)
    devices = float(layout.device_counts[row])
    slip = slips.find_cheapest(item, fit, devices)
    names = [text for j, text in enumerate(texts) if text.strip() and j != k]
    return Place(
        line,
        cell_numbers.strip_markup(names[0]) if names else "",
        layout.table.header[k],
        cell_numbers.strip_markup(texts[k]),
        fit[0] / item.scale,
        fit[1] / item.scale,
        slip[1] if slip else "",
    )


def _format_formula(relation: Relation) -> str:
    """Return a relation in words, such as "speedup = rate / baseline rate"."""
    if relation.is_generic:
        return relation.name
    text = re.sub(r"(\w+)_0", r"baseline \1", relation.text)
    return text.replace("each", "rate per device").replace("*", "x")
