"""Columns that contradict each other in (nearly) every row: an honest reading that explains it, or what was done wrong."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from rnn_scaling.audit import relations, rounding
from rnn_scaling.audit.finding import column_of
from rnn_scaling.audit.relations import EACH, Fit, Values
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import Cell, GridRow, ScalingRow, ScalingTable, parse_cell
from rnn_scaling.audit.verdicts import EFFICIENCY, SPEEDUP, Verdict

_ONE = rounding.point(1.0)
# A speedup of something else than devices, or a rate that says itself that it is a worker's.
_OTHER_THING = re.compile(
    r"\bvs\b|\bover\b|compared|against|relative|\bfp ?\d|\bbf ?\d|\btf32|\bint8|\bamp\b|mixed|precision|\bxla\b|half|baseline"
)
_SAYS_EACH = re.compile(
    r"(?:/|\bper|\bper-|\ba|\beach) ?(?:gpu|cpu|device|worker|card|rank|process|node|chip|core)|\beach\b|\bavg\b|average|\bmean\b"
    r"|\blocal\b"
)


@dataclasses.dataclass(frozen=True)
class WrongColumn:
    """A column that fits none of the others.

    rows: that were compared; expected: what each should say; hits: how many agree all the same.
    cause: what explains it, "" where nothing does.
    """

    rows: Sequence[ScalingRow]
    field: str
    against: str
    expected: Sequence[Bounds]
    hits: int
    cause: str = ""


def find(table: ScalingTable, verdict: Verdict) -> tuple[list[WrongColumn], list[str]]:
    """(wrong columns, sentences on honest readings) of one series; at most one column, where one explains the others."""
    ab = verdict.by_speedup.fit if verdict.by_speedup and verdict.by_speedup.fit.refuted else None
    ac = verdict.by_efficiency.fit if verdict.by_efficiency and verdict.by_efficiency.fit.refuted else None
    bc = verdict.within if verdict.within and verdict.within.refuted else None
    sentences = []
    if not (ab or ac or bc) or not _is_scaling(verdict):
        return [], []
    exchanged = _exchanged(table, verdict)
    if exchanged:
        return [exchanged], []
    if ab:
        said = _honest_speedup(table, verdict)
        if said:
            sentences.append(f"the speedups {said}")
            ab = None
            ac = ac if bc else None
    if ac or bc:
        said = _honest_efficiency(verdict)
        if said:
            sentences.append(f"the efficiencies {said}")
            ac = bc = None
    return _blamed(verdict, ab, ac, bc), sentences


def _is_scaling(verdict: Verdict) -> bool:
    """Whether the rows are one series over several numbers of devices, each once."""
    counts = [row.devices for row in verdict.rows if row.devices]
    return len(set(counts)) == len(counts) >= 2


def _blamed(verdict: Verdict, ab: Fit | None, ac: Fit | None, bc: Fit | None) -> list[WrongColumn]:
    """Of three columns the one that contradicts the other two; of two the derived one."""
    within_holds = verdict.within is not None and bc is None
    if ab and ac and within_holds:
        reading = verdict.reading
        assert reading is not None
        expected = [
            reading.back(value * ab.constant, row) if value is not None else None
            for row, value in zip(verdict.rows, verdict.speedups)
        ]
        return [_column(verdict, ab, reading.field, "neither the speedups nor the efficiencies", expected)]
    if ab:
        expected = [value / ab.constant if value is not None else None for value in verdict.measured]
        both = bool(verdict.by_efficiency and not ac)
        field = verdict.reading.field if verdict.reading else "rate"
        against = f"neither the {_PLURAL[field]} nor the efficiencies" if both else f"the {_PLURAL[field]} in no way"
        return [_column(verdict, ab, SPEEDUP, against, expected)]
    fit = bc or ac
    if fit is None:
        return []
    if bc and ac is None and verdict.by_efficiency and verdict.by_speedup is None:
        expected = [v * fit.constant if v is not None else None for v in verdict.from_efficiencies]
        return [_column(verdict, fit, SPEEDUP, "efficiency x devices in no way", expected)]
    speeds = verdict.speedups if bc else verdict.measured
    expected = [
        value / fit.constant / row.devices if value is not None and row.devices else None
        for row, value in zip(verdict.rows, speeds)
    ]
    return [_column(verdict, fit, EFFICIENCY, "speedup / devices in no way", expected)]


_PLURAL = {"rate": "rates", "seconds": "times"}


def _column(verdict: Verdict, fit: Fit, field: str, against: str, expected: Values) -> WrongColumn:
    at = [k for k in fit.holds if k not in fit.anchors and getattr(verdict.rows[k], field) and expected[k] is not None]
    rows, values = [verdict.rows[k] for k in at], [value for k in at if (value := expected[k]) is not None]
    return WrongColumn(rows, field, against, values, fit.hits, _slip([getattr(row, field) for row in rows], values))


def _slip(cells: Sequence[Cell], expected: Sequence[Bounds]) -> str:
    """What was done to a column whose numbers are right and stand in the wrong place."""
    printed = [rounding.of(cell) for cell in cells]
    if len(printed) < 3:
        return ""
    if all(a.meets(b) for a, b in zip(printed, expected[1:])):
        return "the column is shifted by a row: each number is that of the row below"
    if all(a.meets(b) for a, b in zip(printed[1:], expected)):
        return "the column is shifted by a row: each number is that of the row above"
    if all(a.meets(b) for a, b in zip(printed, reversed(expected))):
        return "the column stands upside down"
    ratios = [a / b for a, b in zip(printed, expected)]
    shared, members = rounding.consensus(ratios)
    if len(members) == len(ratios):
        return f"every number is {shared.middle:.4g} times what it should be"
    return ""


def _exchanged(table: ScalingTable, verdict: Verdict) -> WrongColumn | None:
    """Two columns under each other's header."""
    rows = [row for row in verdict.rows if row.speedup and row.efficiency and row.devices and row.devices > 1]
    raw = [(_raw(row.speedup), _raw(row.efficiency), row.devices) for row in rows]
    turned = [s and e and _is_share(s, rounding.of(e) / n) for s, e, n in raw if n]
    if len(turned) >= 2 and all(turned):
        names = [column_of(table, SPEEDUP, rows[0]), column_of(table, EFFICIENCY, rows[0])]
        return _pair(rows, SPEEDUP, names, [rounding.of(e) for _, e, _ in raw if e])
    by_speedup = verdict.by_speedup
    if not by_speedup or not by_speedup.fit.refuted:
        return None
    both = [row for row in verdict.rows if row.rate and row.seconds and row.speedup]
    base = next((row for row in both if rounding.of(row.speedup).meets(_ONE)), None)  # type: ignore[arg-type]
    rest = [row for row in both if row is not base]
    if base is None or len(rest) < 2:
        return None
    fits = [
        (rounding.of(row.seconds) / rounding.of(base.seconds)).meets(rounding.of(row.speedup))  # type: ignore[arg-type]
        for row in rest
    ]
    if all(fits) and any(not rounding.of(row.speedup).meets(_ONE) for row in rest):  # type: ignore[arg-type]
        names = [column_of(table, "rate", base), column_of(table, "seconds", base)]
        return _pair(both, "rate", names, [rounding.of(row.seconds) for row in both if row.seconds])
    return None


def _pair(rows: Sequence[ScalingRow], field: str, names: Sequence[str], expected: Sequence[Bounds]) -> WrongColumn:
    cause = f"the columns {names[0]} and {names[1]} are exchanged: put right, all {len(rows)} rows fit"
    return WrongColumn(rows, field, "", expected, 0, cause)


def _raw(cell: Cell | None) -> Cell | None:
    """A cell as printed, before its header made per cent of it; "55 %" stays 0.55."""
    return (parse_cell(cell.text) or cell) if cell else None


def _is_share(cell: Cell, share: Bounds) -> bool:
    """Whether a number is this share, printed as a fraction or as per cent without its sign."""
    printed = rounding.of(cell)
    return printed.meets(share) or (cell.unit != "%" and (printed / 100).meets(share))


def _honest_speedup(table: ScalingTable, verdict: Verdict) -> str:
    """Under which reading all speedups are right; "" for none."""
    related = verdict.by_speedup
    assert related is not None
    base = relations.anchors(verdict.rows, SPEEDUP)
    measured = verdict.measured
    if _OTHER_THING.search(column_of(table, SPEEDUP, verdict.rows[0]).lower()):
        return "compare something else than devices"
    if _fits_all(relations.fit(measured, relations.gains(verdict.speedups), base)):
        return "are what was gained: 90 % for 1.9 times"
    if _fits_all(relations.fit(measured, relations.inverses(verdict.speedups), base)):
        return "are times in times of the baseline, so that less is better"
    if relations.steps_agree(measured, [rounding.of(row.speedup) if row.speedup else None for row in verdict.rows]):
        return "compare each row with the row before"
    for name, values in _other_columns(table, verdict.rows):
        inverse = relations.inverses(values)
        grown = [v * row.devices if v is not None and row.devices else None for v, row in zip(values, verdict.rows)]
        for column in (values, inverse, grown, [v * row.devices if v is not None and row.devices else None
                                                for v, row in zip(inverse, verdict.rows)]):  # fmt: skip
            if _fits_all(relations.fit(column, verdict.speedups, base)):
                return f"are of the column {name}"
    return ""


def _fits_all(fit: Fit | None) -> bool:
    return fit is not None and fit.whole and not fit.other_baseline and fit.rest >= 2


def _honest_efficiency(verdict: Verdict) -> str:
    """Under which reading all efficiencies are right; "" for none."""
    steps: list[Bounds | None] = [None]
    for before, row in zip(verdict.rows, verdict.rows[1:]):
        known = row.efficiency and row.devices and before.devices
        steps.append(rounding.of(row.efficiency) * (row.devices / before.devices) if known else None)  # type: ignore
    for speeds in (verdict.speedups, verdict.measured):
        if relations.steps_agree(speeds, steps):
            return "compare each row with the row before"
    return ""


def _other_columns(table: ScalingTable, rows: Sequence[ScalingRow]) -> Iterator[tuple[str, list[Bounds | None]]]:
    """Every column of numbers that is not speedup, efficiency or devices, with its number in each row."""
    lines: dict[int, GridRow] = {line.line: line for line in table.grid}
    if len(lines) != len(table.grid):
        return  # a turned table: its lines are its columns
    for k, name in enumerate(table.columns[:200]):
        if table.roles.get(name) in (SPEEDUP, EFFICIENCY, "devices"):
            continue
        cells = [lines[row.line].cells[k] if row.line in lines else None for row in rows]
        if sum(cell is not None and cell.value > 0 for cell in cells) >= 3:
            yield name, [rounding.of(cell) if cell and cell.value > 0 else None for cell in cells]


def worker_rates(table: ScalingTable, verdict: Verdict) -> tuple[WrongColumn | None, str]:
    """Rates that are a worker's by all speedups: a column that is wrong, or a sentence where the table says so."""
    if verdict.reading is not EACH:
        return None, ""
    fit = (verdict.by_speedup or verdict.by_efficiency).fit  # type: ignore[union-attr]
    rows = [row for k, row in enumerate(verdict.rows) if k in fit.holds and row.rate and (row.devices or 1) > 1]
    if not rows or fit.hits < 1:
        return None, ""
    header = f"{table.title} {column_of(table, 'rate', rows[0])}".lower()
    if _SAYS_EACH.search(header):
        return None, "the rates are a worker's"
    expected = [rounding.of(row.rate) * row.devices for row in rows if row.rate and row.devices]
    return WrongColumn(rows, "rate", "", expected, 0, "a worker's rate printed as if it were the total"), ""
