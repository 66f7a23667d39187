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
from collections.abc import Iterator, Mapping, Sequence

from rnn_scaling.audit import rounding
from rnn_scaling.audit.checks.context import Context, is_summary
from rnn_scaling.audit.finding import Finding, name_line, of_cell
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import ASIDE, ScalingTable
from rnn_scaling.audit.tables.columns import plain

NAME = "implied"
_COMPARES = re.compile(
    r"speed-? ?up|\bgain\b|faster|improve|\bratio\b|scaling|efficien|\bchange\b|^(?:δ|Δ|delta|diff)|\bvs\b|versus"
    r"|relative|normali[sz]ed|overhead|reduction|\bper[ -]|/ ?(?:s|sec|second|gpu|worker|core|node|thread)\b|^%$"
    r"|increase"
)
_GAIN = re.compile(r"speed-? ?up|\bgain\b|scaling|efficien|\bratio\b")
_MEASURED = ("rate", "rate_each", "seconds", "work")
_ONE = rounding.point(1.0)
_MAX_COLUMNS, _MAX_LINES = 14, 200
_LEAST_ROWS = 3  # that bear a relation out
_CHANCE = 1e-3  # that the rows fit one of the formulas by chance
_SIGNS = ("+", "-", "−")
_NOTHING = 1e-12  # a change of 0 % shows nothing
_WIDE = 0.25  # a cell that is known no better shows nothing


@dataclasses.dataclass(frozen=True)
class _Formula:
    """One way to make a column: its words, and what it gives in each line, by the line's place in the grid."""

    words: str
    values: Mapping[int, Bounds]
    against_a_row: bool = False


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each cell that a relation of its column contradicts; None for each that it bears out."""
    if not 3 <= len(table.grid) <= _MAX_LINES or len(table.columns) > _MAX_COLUMNS:
        return
    numeric = [k for k in range(len(table.columns)) if sum(line.cells[k] is not None for line in table.grid) > 1]
    compared = _compared(table, context)
    for k in numeric:
        name = table.columns[k]
        if name in compared or table.roles.get(name) in (ASIDE, "devices") or not _COMPARES.search(plain(name)):
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
    signed = any(line.texts[k].lstrip("*` ")[:1] in _SIGNS and line.texts[k] for line in table.grid)
    formulas = [formula for formula in _formulas(table, k, said, others, signed) if len(formula.values) >= _LEAST_ROWS]
    judged = [(formula, _good(said, formula)) for formula in formulas]
    best = max((len(good) for _, good in judged), default=0)
    leading = [(formula, good) for formula, good in judged if len(good) == best]
    if not leading:
        return
    formula, good = min(leading, key=lambda one: _chance(said, *one))
    bad = [i for i in formula.values if i not in good and not said[i].meets(formula.values[i])]
    few = len(bad) <= max(1, len(formula.values) // 4)
    if best < _LEAST_ROWS or not few or _chance(said, formula, good) * len(formulas) > _CHANCE:
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
    if len(distinct) < _LEAST_ROWS:
        return 1.0
    return math.prod(_width(said[i], formula.values[i]) for i in distinct.values())


def _formulas(
    table: ScalingTable, k: int, said: Mapping[int, Bounds], others: Sequence[int], signed: bool
) -> Iterator[_Formula]:
    columns = {i: _positive(table, i, said) for i in others}
    measured = table.roles.get(table.columns[k]) in _MEASURED
    columns = {i: of for i, of in columns.items() if not (measured and _is_derived(table, i))}
    counts = next((of for i, of in columns.items() if table.roles.get(table.columns[i]) == "devices"), {})
    one = 0.0 if signed else 1.0
    stated = next((i for i in said if (cell := table.grid[i].cells[k]) and cell.value == one), None)
    for a, of_a in columns.items():
        if stated is not None and stated in of_a:
            base, name, first = of_a[stated], table.columns[a], table.grid[stated].texts[a]
            rest = {i: value for i, value in of_a.items() if i != stated}
            for words, values in (
                (f"{name} / {first}", {i: v / base for i, v in rest.items()}),
                (f"{first} / {name}", {i: base / v for i, v in rest.items()}),
            ):
                yield _made(words, values, signed, against_a_row=True)
                shares = {
                    i: v / (counts[i] / counts[stated]) for i, v in values.items() if i in counts and stated in counts
                }
                if shares and counts != of_a:
                    yield _made(f"{words} / the devices", shares, signed, against_a_row=True)
        for b, of_b in columns.items():
            if a != b:
                both = {i: value / of_b[i] for i, value in of_a.items() if i in of_b}
                yield _made(f"{table.columns[a]} / {table.columns[b]}", both, signed)


def _is_derived(table: ScalingTable, k: int) -> bool:
    name = table.columns[k]
    return (
        name in table.ratios
        or table.roles.get(name) in ("speedup", "efficiency")
        or _GAIN.search(plain(name)) is not None
    )


def _made(words: str, values: Mapping[int, Bounds], signed: bool, against_a_row: bool = False) -> _Formula:
    if not signed:
        return _Formula(words, values, against_a_row)
    return _Formula(f"{words} - 1", {i: Bounds(v.low - 1, v.high - 1) for i, v in values.items()})


def _positive(table: ScalingTable, k: int, said: Mapping[int, Bounds]) -> dict[int, Bounds]:
    cells = {i: table.grid[i].cells[k] for i in said}
    counts = table.roles.get(table.columns[k]) == "devices"
    return {
        i: rounding.point(cell.value) if counts else rounding.of(cell)
        for i, cell in cells.items() if cell and cell.value > 0
    }  # fmt: skip
