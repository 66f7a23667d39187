"""Columns that contradict each other in nearly every row: an honest reading that explains it, or what was done."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from rnn_scaling.audit import relations, rounding
from rnn_scaling.audit.finding import column_of
from rnn_scaling.audit.relations import EACH, Fit, Values
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import Cell, GridRow, ScalingRow, ScalingTable, parse_cell
from rnn_scaling.audit.verdicts import EFFICIENCY, SPEEDUP, Related, Verdict
from rnn_scaling.audit.work_model import STEP_UNITS

_COARSE = 0.02  # a number that was rounded by more explains anything
_MAX_ROWS = 1000  # of a table in which every row is looked through for every series
_ONE = rounding.point(1.0)
BY_SPEEDUP, BY_EFFICIENCY, WITHIN = "by_speedup", "by_efficiency", "within"  # the relations of a Verdict
# A speedup of something else than devices, or a rate that says itself that it is a worker's.
_OTHER_THING = re.compile(
    r"\bvs\b|\bover\b|compared|against|relative|\bfp ?\d|\bbf ?\d|\btf32|\bint8|\bamp\b|mixed|precision|\bxla\b"
    r"|half|baseline"
)
SAYS_EACH = re.compile(
    r"(?:/|\bper|\bper-|\ba|\beach) ?(?:gpu|cpu|device|worker|card|rank|process|node|chip|core)"
    r"|\b(?:each|avg|average|mean|local)\b"
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


def examine(table: ScalingTable, verdict: Verdict) -> tuple[list[WrongColumn], list[str], Verdict]:
    """The columns of one series that are wrong as such.

    Returns:
      Wrong columns, sentences on honest readings, and the verdict without the relations that these explain.
    """
    fits = {BY_SPEEDUP: _fit(verdict.by_speedup), BY_EFFICIENCY: _fit(verdict.by_efficiency), WITHIN: verdict.within}
    off = {name for name, fit in fits.items() if fit and (fit.doubtful or fit.other_baseline)}
    columns, workers = _worker_rates(table, verdict)
    verdict, sentences = _by_other_columns(table, verdict)
    sentences += workers
    nowhere = _baseline_nowhere(table, verdict)
    if not _is_scaling(verdict):
        off, nowhere = off & {WITHIN}, None  # speedup / devices is of each row alone
    if not (off or nowhere):
        return columns, sentences, verdict
    exchanged = _exchanged(table, verdict)
    if exchanged:
        return [exchanged], [], _without(verdict, {BY_SPEEDUP, BY_EFFICIENCY, WITHIN})
    explained: set[str] = set()
    related = verdict.by_speedup
    if BY_SPEEDUP in off and related and related.fit.doubtful and (said := _honest_speedup(table, verdict)):
        sentences.append(f"the speedups {said}")
        explained.add(BY_SPEEDUP)
        if not {BY_EFFICIENCY, WITHIN} <= off:
            explained.add(WITHIN if WITHIN in off else BY_EFFICIENCY)
    if off - explained & {BY_EFFICIENCY, WITHIN} and (said := _honest_efficiency(verdict)):
        sentences.append(f"the efficiencies {said}")
        explained |= {BY_EFFICIENCY, WITHIN}
    if nowhere and BY_SPEEDUP not in explained:
        return [*columns, nowhere], sentences, _without(verdict, {BY_SPEEDUP, WITHIN})
    within = fits[WITHIN]
    if {BY_EFFICIENCY, WITHIN} & off == {BY_EFFICIENCY} and within and within.rest > within.hits > 0:
        explained.add(BY_EFFICIENCY)  # made from the printed speedups, as coarse as these: only a row of them is off
    left = {name for name in off - explained if (fit := fits[name]) and (fit.refuted or fit.other_baseline)}
    wrong = _blamed(verdict, left, {name for name, fit in fits.items() if fit} - off - explained)
    wrong += columns
    of_measured = {BY_SPEEDUP, BY_EFFICIENCY}
    for column in wrong:
        explained |= {SPEEDUP: {BY_SPEEDUP, WITHIN}, EFFICIENCY: {BY_EFFICIENCY, WITHIN}}.get(column.field, of_measured)
    return wrong, sentences, _without(verdict, explained)


def _fit(related: Related | None) -> Fit | None:
    return related.fit if related else None


def _without(verdict: Verdict, names: set[str]) -> Verdict:
    """The verdict without some of its relations."""
    return dataclasses.replace(verdict, **dict.fromkeys(names))  # type: ignore[arg-type]


def _is_scaling(verdict: Verdict) -> bool:
    """Whether the rows are one series over several numbers of devices, few of them repeated."""
    counts = [row.devices for row in verdict.rows if row.devices]
    return 2 <= len(set(counts)) >= 0.75 * len(counts)


def _blamed(verdict: Verdict, off: set[str], holding: set[str]) -> list[WrongColumn]:
    """Of three columns the one that contradicts the other two; of two the derived one."""
    ab, ac, bc = _fit(verdict.by_speedup), _fit(verdict.by_efficiency), verdict.within
    if BY_SPEEDUP in off and BY_EFFICIENCY in off and WITHIN in holding:
        if not (ab and ac and verdict.reading) or ab.other_baseline or ac.other_baseline:
            return []  # the baseline's cell is wrong
        back, constant = verdict.reading.back, _stated(ab, verdict.measured, verdict.speedups)
        measured = [
            back(v * constant, row) if v is not None else None for row, v in zip(verdict.rows, verdict.speedups)
        ]
        return [_column(verdict, ab, verdict.reading.field, "neither the speedups nor the efficiencies", measured)]
    if BY_SPEEDUP in off and ab and (ab.refuted or BY_EFFICIENCY in holding or _shifted_speedups(verdict)):
        constant = _stated(ab, verdict.measured, verdict.speedups)
        field = verdict.reading.field if verdict.reading else "rate"
        plural = _PLURAL[field]
        against = f"neither the {plural} nor the efficiencies" if BY_EFFICIENCY in holding else f"no {plural}"
        return [
            _column(verdict, ab, SPEEDUP, against, [v / constant if v is not None else None for v in verdict.measured])
        ]
    fit = bc if WITHIN in off else ac if BY_EFFICIENCY in off else None
    if fit is None or (fit is ac and ac.other_baseline and BY_SPEEDUP not in holding):
        return []
    speeds = verdict.speedups if fit is bc else verdict.measured
    constant = fit.constant if fit is bc else _stated(fit, speeds, verdict.from_efficiencies)
    expected = [
        value / constant / row.devices if value is not None and row.devices else None
        for row, value in zip(verdict.rows, speeds)
    ]
    return [_column(verdict, fit, EFFICIENCY, "no speedup / devices", expected)]


def _baseline_nowhere(table: ScalingTable, verdict: Verdict) -> WrongColumn | None:
    """Speedups that agree on a baseline which no row of the table is, although a row on one device is there."""
    related, rows = verdict.by_speedup, verdict.rows
    one = next((k for k, row in enumerate(rows) if row.devices == 1 and row.speedup), None)
    if related is None or related.fit.anchors or not related.fit.whole or one is None or related.reading is EACH:
        return None
    header, constant = column_of(table, SPEEDUP, rows[one]).lower(), related.fit.constant
    if (
        not 3 <= len(related.fit.holds) <= len(table.rows) <= _MAX_ROWS
        or _OTHER_THING.search(header)
        or verdict.measured[one] is None
    ):
        return None
    everyone = (related.reading.speed(row) for row in table.rows)
    if any(value is not None and value.meets(constant) for value in everyone):
        return None
    slower = rounding.of(rows[one].speedup).low < 1  # type: ignore[arg-type]
    if slower or (verdict.within and verdict.within.holds.get(one) and verdict.within.whole):
        return None  # of another program, which such speedups are made to say: the efficiencies say so too
    at = [k for k in related.fit.holds if rows[k].speedup]
    own = verdict.measured[one]
    pairs = [(rows[k], value / own) for k in at if own and (value := verdict.measured[k]) is not None]
    baseline = related.reading.back(constant, rows[one]).middle
    cause = f"all {len(pairs)} speedups are against {baseline:.4g}, which no row has, and the one on 1 device is not 1"
    return WrongColumn([row for row, _ in pairs], SPEEDUP, "", [value for _, value in pairs], 0, cause)


def _stated(fit: Fit, measured: Values, printed: Values) -> Bounds:
    """The measured number of a speedup of 1, by the row that states it."""
    pairs = ((measured[k], printed[k]) for k in sorted(fit.anchors))
    return next((a / relations.exactly(b) for a, b in pairs if a is not None and b is not None), fit.constant)


def _shifted_speedups(verdict: Verdict) -> bool:
    assert verdict.by_speedup is not None
    constant = _stated(verdict.by_speedup.fit, verdict.measured, verdict.speedups)
    rows = [(c, v / constant) for row, v in zip(verdict.rows, verdict.measured) if (c := row.speedup) and v is not None]
    return "shifted" in _slip([cell for cell, _ in rows], [value for _, value in rows])


_PLURAL = {"rate": "rates", "seconds": "times"}


def _column(verdict: Verdict, fit: Fit, field: str, against: str, expected: Values) -> WrongColumn:
    at = [
        k for k, holds in fit.holds.items()
        if k not in fit.anchors and getattr(verdict.rows[k], field) and expected[k] is not None
        and (fit.other_baseline or not holds)
    ]  # fmt: skip
    rows, values = [verdict.rows[k] for k in at], [value for k in at if (value := expected[k]) is not None]
    hits = 0 if fit.other_baseline else fit.hits
    return WrongColumn(rows, field, against, values, hits, _slip([getattr(row, field) for row in rows], values))


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
    if all((a * b).meets(_ONE) for a, b in zip(printed, expected)):
        return "each number is 1 / what it should be"
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
    header = column_of(table, SPEEDUP, verdict.rows[0]).lower()
    of_devices = any(row.baseline_devices for row in verdict.rows) or "scaling" in header
    if related.fit.refuted and _OTHER_THING.search(header) and not of_devices:
        return "compare something else than devices"
    says_one = any(rounding.of(cell).meets(_ONE) for k in base if (cell := verdict.rows[k].speedup))
    if not says_one and _fits_all(relations.fit(measured, relations.gains(verdict.speedups), base)):
        return "are what was gained: 90 % for 1.9 times"
    if relations.steps_agree(measured, [rounding.of(row.speedup) if row.speedup else None for row in verdict.rows]):
        return "compare each row with the row before"
    name = _other_column(table, verdict, verdict.speedups, base)
    return f"are of the column {name}" if name else ""


def _by_other_columns(table: ScalingTable, verdict: Verdict) -> tuple[Verdict, list[str]]:
    """The verdict without a relation of which another column, one that was not read, bears out every row."""
    sentences = []
    for field, related, printed in (
        (SPEEDUP, verdict.by_speedup, verdict.speedups),
        (EFFICIENCY, verdict.by_efficiency, verdict.from_efficiencies),
    ):
        if related is None or related.fit.rest < 3 or related.fit.rest - related.fit.hits < 2:
            continue  # of one row that is off, the other column tells that the number that was read is wrong
        name = _other_column(table, verdict, printed, relations.anchors(verdict.rows, field))
        if name:
            sentences.append(f"the {'speedups' if field == SPEEDUP else 'efficiencies'} are of the column {name}")
            verdict = _without(verdict, {BY_SPEEDUP if field == SPEEDUP else BY_EFFICIENCY})
    return verdict, sentences


def _other_column(table: ScalingTable, verdict: Verdict, printed: Values, base: Sequence[int]) -> str:
    """The column of rates or times, a device or together, that bears all printed numbers out; "" for none."""
    for name, values in _other_columns(table, verdict.rows):
        inverse = [_ONE / value if value is not None else None for value in values]
        for speeds in (values, inverse):
            grown = [v * row.devices if v is not None and row.devices else None for v, row in zip(speeds, verdict.rows)]
            if any(_fits_all(relations.fit(column, printed, base)) for column in (speeds, grown)):
                return name
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
    """Every column of measured numbers that was not read, with its number in each row."""
    lines: dict[int, GridRow] = {line.line: line for line in table.grid}
    if len(lines) != len(table.grid):
        return  # a turned table: its lines are its columns
    for k, name in enumerate(table.columns[:200]):
        if name in table.roles:
            continue
        cells = [lines[row.line].cells[k] if row.line in lines else None for row in rows]
        known = [cell for cell in cells if cell and cell.value > 0]
        if any(cell.value in (1.0, 100.0) or cell.unit in ("%", "x", "×") for cell in known):
            continue  # itself a speedup or an efficiency
        if len(known) >= 3 and all(cell.half_ulp < _COARSE * cell.value for cell in known):
            yield name, [rounding.of(cell) if cell and cell.value > 0 else None for cell in cells]


def _worker_rates(table: ScalingTable, verdict: Verdict) -> tuple[list[WrongColumn], list[str]]:
    """Rates that are a worker's by all speedups: a sentence where the table says so, else a wrong column."""
    if verdict.reading is not EACH:
        return [], []
    fit = _fit(verdict.by_speedup or verdict.by_efficiency)
    rows = [row for k, row in enumerate(verdict.rows) if fit and k in fit.holds and row.rate and (row.devices or 1) > 1]
    if not rows or not fit or fit.hits < 1:
        return [], []
    header = column_of(table, "rate", rows[0])
    if rows[0].rate_unit in STEP_UNITS and rows[0].rate_scope != "total":
        return [], [f"the speedups are of {header} x devices, which take their steps together"]
    shared_out = _shared_out(table, rows)
    if shared_out:
        return [], [f"the rates under {header} are of as many devices in all rows: {shared_out} x devices is the same"]
    if SAYS_EACH.search(f"{table.title} {header}".lower()) and rows[0].rate_scope != "total":
        return [], [f"the rates under {header} are a worker's, by all speedups"]
    expected = [rounding.of(row.rate) * row.devices for row in rows if row.rate and row.devices]
    return [WrongColumn(rows, "rate", "", expected, 0, "a worker's rate printed as if it were the total")], []


def _shared_out(table: ScalingTable, rows: Sequence[ScalingRow]) -> str:
    """The column that falls as the devices grow, "jobs on 64 CPUs": its name, "" for none."""
    lines = {line.line: line for line in table.grid}
    for k, name in enumerate(table.columns):
        cells = [lines[row.line].cells[k] if row.line in lines else None for row in rows]
        whole = {cell.value * (row.devices or 0) for cell, row in zip(cells, rows) if cell}
        if name not in table.roles and len(rows) > 2 and all(cells) and len(whole) == 1:
            return name
    return ""
