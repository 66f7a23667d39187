"""Relations that no header spells out and nearly every row bears out: the rows that do not are wrong.

A column is tried as a ratio of two others, as one of them against the row that states 1 (or 0 %), as the change between
two in per cent, and by the devices. What fits only by its coarse digits is no relation: the chance that so many rows
fit one of all the formulas that were tried must be small.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rnn_scaling.audit import rounding
from rnn_scaling.audit.checks.context import Context, is_summary
from rnn_scaling.audit.finding import Finding, name_line, of_cell
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import ASIDE, ScalingTable
from rnn_scaling.audit.tables.columns import OF_SEVERAL, plain, recognise, timed_thing
from rnn_scaling.audit.tables.vocabulary import COUNTED, TIME_UNITS

NAME = "implied"
_COMPARES = re.compile(
    r"speed-? ?up|\bgain\b|faster|improve|\bratio\b|scaling|efficien|\bchange\b|^(?:δ|Δ|delta|diff)|\bvs\b|versus"
    rf"|relative|normali[sz]ed|overhead|reduction|\bper[ -]?{COUNTED}|/ ?(?:s|sec|second|gpu|worker|core|node|thread)\b"
    r"|^%$|increase|\b(?:ideal|linear|perfect)\b"
)
_GAIN = re.compile(r"speed-? ?up|\bgain\b|scaling|efficien|\bratio\b")
_MEASURED = ("rate", "rate_each", "seconds", "work")
_ONE = rounding.point(1.0)
_MAX_COLUMNS, _MAX_LINES = 14, 200
_LEAST_ROWS = 3  # that bear a relation out
_CHANCE = 1e-3  # that the rows fit one of the formulas by chance
_CHANCE_OF_TWO = 1e-4  # the same where they are two
_BASELINE = re.compile(r"[-–—]*|n/?a|base(?:line)?|ref(?:erence|\.)?")
_SIGNS = ("+", "-", "−")
_NOTHING = 1e-12  # a change of 0 % shows nothing
_WIDE = 0.25  # a cell that is known no better shows nothing


@dataclasses.dataclass(frozen=True)
class _Formula:
    """One way to make a column: its words, and what it gives in each line, by the line's place in the grid."""

    words: str
    values: Mapping[int, Bounds]
    against_a_row: bool = False
    free: bool = False
    of_speed: bool = False


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each cell that a relation of its column contradicts; None for each that it bears out."""
    if not 3 <= len(table.grid) <= _MAX_LINES or len(table.columns) > _MAX_COLUMNS:
        return
    numeric = [k for k in range(len(table.columns)) if sum(line.cells[k] is not None for line in table.grid) > 1]
    compared = _compared(table, context)
    for k in numeric:
        name = table.columns[k]
        says = (
            _COMPARES.search(plain(name))
            and not OF_SEVERAL.search(plain(name))
            or recognise(name).role in ("rate", "rate_each")
        )
        if name in compared or table.roles.get(name) in (ASIDE, "devices") or not says:
            continue
        said = {
            i: rounding.of(cell)
            for i, line in enumerate(table.grid)
            if (cell := line.cells[k]) and not is_summary(line)
        }
        if len(said) > _LEAST_ROWS - 1:
            yield from _column(
                table, k, said, [i for i in numeric if i != k and table.roles.get(table.columns[i]) != ASIDE]
            )


def _compared(table: ScalingTable, context: Context) -> set[str]:
    """The columns that other checks compare already."""
    out = set(table.ratios)
    for judged in context.judged(table):
        verdict = judged.verdict
        fits = {"speedup": [verdict.by_speedup and verdict.by_speedup.fit, verdict.within],
                "efficiency": [verdict.by_efficiency and verdict.by_efficiency.fit, verdict.within]}  # fmt: skip
        for field, of_field in fits.items():
            if any(fit and (fit.anchors and fit.hits or fit.refuted) for fit in of_field) or judged.columns:
                out |= {name for name, role in table.roles.items() if role == field}
    return out


def _column(table: ScalingTable, k: int, said: Mapping[int, Bounds], others: Sequence[int]) -> Iterator[Finding | None]:
    formulas = [formula for formula in _formulas(table, k, said, others) if len(formula.values) >= _LEAST_ROWS]
    judged = [(formula, _good(said, formula)) for formula in formulas]
    best = max((len(good) for _, good in judged), default=0)
    leading = [(formula, good) for formula, good in judged if len(good) == best]
    if not leading:
        return
    formula, good = min(leading, key=lambda one: _chance(said, *one))
    bad = [i for i in formula.values if i not in good and not said[i].meets(formula.values[i])]
    few = len(bad) <= max(1, len(formula.values) // 4)
    enough = _CHANCE if best >= _LEAST_ROWS or formula.of_speed else _CHANCE_OF_TWO
    tried = sum(other.of_speed for other in formulas) if formula.of_speed else len(formulas)
    if best < 2 or not few or _chance(said, formula, good) * tried > enough:
        if 2 * best < len(said):
            yield from _off_together(table, k, said, formulas)
        return
    cause = f"not {formula.words}, which the other rows are"
    for i, value in formula.values.items():
        disputed = any(said[i].meets(other.values[i]) for other, _ in leading if i in other.values)
        wrong = i in bad and not disputed
        yield of_cell(NAME, table, table.grid[i], k, value, cause) if wrong else None


def _off_together(
    table: ScalingTable, k: int, said: Mapping[int, Bounds], formulas: Sequence[_Formula]
) -> Iterator[Finding | None]:
    """One finding where every row is the same number of times what the row that states 1 makes it."""
    tried = [formula for formula in formulas if formula.against_a_row]
    for known, formula in itertools.product((said, {i: rounding.twice(value) for i, value in said.items()}), tried):
        ratios = [known[i] / value for i, value in formula.values.items() if value.low > 0]
        factor = rounding.one_factor(ratios, len(tried)) if len(ratios) == len(formula.values) else None
        if factor is None:
            continue
        first, value = next(iter(formula.values.items()))
        line = table.grid[first]
        row = f"{name_line(table, line)} and {len(formula.values) - 1} other rows"
        cause = f"every number is {factor.middle:.4g} times {formula.words}: the row that says 1 is not their baseline"
        yield dataclasses.replace(of_cell(NAME, table, line, k, value, ""), row=row, cause=cause)
        return


def _good(said: Mapping[int, Bounds], formula: _Formula) -> set[int]:
    """The lines that bear a formula out, without those that say 1, 0 or too little."""
    return {
        i for i, value in formula.values.items()
        if said[i].meets(value) and not value.meets(_ONE) and abs(value.middle) > _NOTHING
        and _width(said[i], value) < _WIDE
    }  # fmt: skip


def _width(said: Bounds, value: Bounds) -> float:
    """How likely a number of this size fits by chance."""
    return ((said.high - said.low) + (value.high - value.low)) / max(abs(said.middle), abs(value.middle), _NOTHING)


def _chance(said: Mapping[int, Bounds], formula: _Formula, good: set[int]) -> float:
    distinct = {(round(said[i].middle, 9), round(formula.values[i].middle, 4)): i for i in good}  # a copy shows nothing
    widths = sorted(_width(said[i], formula.values[i]) for i in distinct.values())
    if formula.free:
        widths = widths[:-1]  # one row sets the number
    return math.prod(widths) if len(widths) > 1 else 1.0


def _formulas(table: ScalingTable, k: int, said: Mapping[int, Bounds], others: Sequence[int]) -> Iterator[_Formula]:
    stated = _said_without_number(table, k)
    signed = any(line.texts[k].lstrip("*` ")[:1] in _SIGNS and line.texts[k] for line in table.grid)
    forms = _forms(table, k, signed)
    columns = {i: _positive(table, i, [*said, stated] if stated is not None else said) for i in others}
    measured = table.roles.get(table.columns[k]) in _MEASURED
    columns = {i: of for i, of in columns.items() if not (measured and _is_derived(table, i))}
    counts = next((of for i, of in columns.items() if table.roles.get(table.columns[i]) == "devices"), {})
    if stated is None:
        nothing = 0.0 if forms[0] != _plainly else 1.0
        stated = next((i for i in said if (cell := table.grid[i].cells[k]) and cell.value == nothing), None)
    header = plain(table.columns[k])
    is_share = re.search(r"\bper\b|/", header) is not None
    yield from _of_one_constant(table, k, said, columns)
    speeds = [i for i in columns if recognise(table.columns[i]).role in ("rate", "rate_each", "seconds")]
    for form in forms if _COMPARES.search(header) else ():
        for a, of_a in columns.items():
            if stated is not None and stated in of_a:
                base, name, first = of_a[stated], table.columns[a], table.grid[stated].texts[a]
                rest = {i: value for i, value in of_a.items() if i != stated}
                for words, values in (
                    (f"{name} / {first}", {i: v / base for i, v in rest.items()}),
                    (f"{first} / {name}", {i: base / v for i, v in rest.items()}),
                ):
                    yield dataclasses.replace(form(words, values, True), of_speed="speed" in header and a in speeds)
                    shares = {
                        i: v / (counts[i] / counts[stated])
                        for i, v in values.items()
                        if i in counts and stated in counts
                    }
                    if shares and counts != of_a:
                        yield form(f"{words} / the devices", shares, True)
            for b, of_b in columns.items():
                if a != b and (is_share or _alike(table, a, b)):
                    both = {i: value / of_b[i] for i, value in of_a.items() if i in of_b and i in said}
                    yield form(f"{table.columns[a]} / {table.columns[b]}", both, False)


def _of_one_constant(
    table: ScalingTable, k: int, said: Mapping[int, Bounds], columns: Mapping[int, Mapping[int, Bounds]]
) -> Iterator[_Formula]:
    """What falls or grows as another column does: rate x time = 768 MB, or one image; "ideal" / GPUs."""
    header, kind = plain(table.columns[k]), recognise(table.columns[k])
    of_times = kind.role in _MEASURED or kind.other == "bandwidth"
    strong = "devices" in table.roles.values()  # else each row may have work of its own
    strong = strong and "rate" not in (table.roles.get(table.columns[k]), kind.role)  # which the check of work reads
    if any(cell.spread for line in table.grid if (cell := line.cells[k])):
        return  # means need not multiply exactly
    for a, of_a in columns.items():
        rows = [i for i in of_a if i in said]
        counts = table.roles.get(table.columns[a]) == "devices"
        grows = counts and re.search(r"\b(?:ideal|linear|perfect)\b", header) is not None
        falls = of_times and strong and recognise(table.columns[a]).role == "seconds"
        if kind.unit and kind.unit == f"{timed_thing(table.columns[a])}/s":  # ms/step, and steps/s
            yield _Formula(f"1 / {table.columns[a]}", {i: _ONE / of_a[i] / kind.scale for i in rows}, of_speed=True)
            continue
        if len(rows) < _LEAST_ROWS or not (grows or falls):
            continue
        shared, members = rounding.consensus([said[i] / of_a[i] if grows else said[i] * of_a[i] for i in rows])
        if len(members) > 2:
            words = f"{shared.middle:.5g} {'x' if grows else '/'} {table.columns[a]}"
            values = {i: shared * of_a[i] if grows else shared / of_a[i] for i in rows}
            yield _Formula(words, values, free=True)


def _alike(table: ScalingTable, a: int, b: int) -> bool:
    """Whether two columns may be of one quantity: their headers say so, or one says none, and their units are one."""
    kinds = [recognise(table.columns[i]).quantity for i in (a, b)]
    units = [{cell.unit for line in table.grid if (cell := line.cells[i])} for i in (a, b)]
    return units[0] == units[1] and (kinds[0] == kinds[1] or "" in kinds)


def _is_derived(table: ScalingTable, k: int) -> bool:
    name = table.columns[k]
    return (
        name in table.ratios
        or table.roles.get(name) in ("speedup", "efficiency")
        or _GAIN.search(plain(name)) is not None
    )


def _plainly(words: str, values: Mapping[int, Bounds], against_a_row: bool) -> _Formula:
    return _Formula(words, values, against_a_row)


def _gained(words: str, values: Mapping[int, Bounds], _: bool) -> _Formula:
    # against a row it proves no baseline wrong: a difference in points is always as many times the change
    return _Formula(f"{words} - 1", {i: Bounds(v.low - 1, v.high - 1) for i, v in values.items()})


def _saved(words: str, values: Mapping[int, Bounds], _: bool) -> _Formula:
    return _Formula(f"1 - {words}", {i: Bounds(1 - v.high, 1 - v.low) for i, v in values.items()})


def _forms(table: ScalingTable, k: int, signed: bool) -> list[Callable[..., _Formula]]:
    """What a ratio may be printed as: itself, what was gained ("+17 %"), what was saved ("reduction: 75 %")."""
    if signed:
        return [_gained]
    percent = all(cell.unit == "%" for line in table.grid if (cell := line.cells[k]))
    header = plain(table.columns[k])
    if percent and re.search(r"reduc|\bsav|less|lower|decrease", header):
        return [_saved]
    gains = percent and re.search(r"speed|gain|improve|overhead|increase|change", header)
    return [_plainly, _gained] if gains else [_plainly]


def _said_without_number(table: ScalingTable, k: int) -> int | None:
    """The only line, the first, whose cell is a dash or calls it the baseline."""
    lines = [i for i, line in enumerate(table.grid) if line.cells[k] is None]
    is_it = lines[:1] == [0] == lines and _BASELINE.fullmatch(plain(table.grid[0].texts[k]).strip("() "))
    return 0 if is_it else None


def _positive(table: ScalingTable, k: int, lines: Iterable[int]) -> dict[int, Bounds]:
    cells = {i: table.grid[i].cells[k] for i in lines}
    counts = table.roles.get(table.columns[k]) == "devices"
    kind = recognise(table.columns[k])
    scale = kind.scale if kind.role == "seconds" else 1.0
    return {
        i: rounding.point(cell.value) if counts else rounding.of(cell) * TIME_UNITS.get(cell.unit, scale)
        for i, cell in cells.items() if cell and cell.value > 0
    }  # fmt: skip
