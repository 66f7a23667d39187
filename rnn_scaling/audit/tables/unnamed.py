"""Columns that are named after what was measured and not after the quantity: "ResNet-50", "1 GPU", "4 GPUs".

The quantity is in the corner, in the cells' units, above the table, or in how the numbers grow with the devices.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence

from rnn_scaling.audit.scaling_table import Cell
from rnn_scaling.audit.tables import columns
from rnn_scaling.audit.tables.columns import MEASURED, RATES, Column, of_unit

# The role of columns whose cells tell row by row what they are: "250 QPS", "15 ms".
BY_UNIT = "by_unit"
# Of a quantity that grows with the devices: how much it must, and in how many of the steps.
_GROWS, _STEPS = 1.25, 0.7

Curve = Sequence[tuple[int, Cell]]  # devices and number, of one thing


def quantity(said: Iterable[str], curves: Sequence[Curve], growth_tells: bool) -> Column:
    """What the numbers of such columns are; no role where nothing tells.

    Args:
      said: what stands in the corner, above the table and in its title, the nearest first.
      curves: the numbers of each thing by devices.
      growth_tells: the columns are named after models or programs, so that what grows with the devices is their rate.
    """
    cells = [cell for curve in curves for _, cell in curve]
    if not cells:
        return Column()
    by_unit = _by_unit(cells)
    for text in said:
        named = _named(text)
        if named and (not by_unit or by_unit.role == named.role or (by_unit.role, named.role) == RATES):
            return named if _possible(named, curves) else Column()
    if by_unit is None and all(of_unit(cell.unit).role for cell in cells):
        return Column(BY_UNIT)
    if by_unit:
        return by_unit if by_unit.role != "efficiency" or _possible(by_unit, curves) else Column()
    return _by_growth(curves) if growth_tells else Column()


def _named(text: str) -> Column | None:
    """The quantity that a corner, a caption or a heading names; None where it is a sentence, or names none or two."""
    text = re.sub(r"[*`#]+", "", text).strip(" :.")
    if not text or len(text) > 100:
        return None
    inside = re.findall(r"[(\[]([^()\[\]]+)[)\]]", text)
    quantities = [kind for part in (*inside, text) if (kind := columns.recognise(part.strip())).role in MEASURED]
    return quantities[0] if quantities else None


def _by_unit(cells: Sequence[Cell]) -> Column | None:
    """The quantity that the cells' own units tell, where all have one."""
    units = {cell.unit.lower() for cell in cells}
    if units <= {"x", "×", "times"}:
        return Column("speedup")
    if units == {"%"}:
        return Column("efficiency")
    kinds = [of_unit(unit) for unit in units]
    return kinds[0] if kinds[0].role and len(set(kinds)) == 1 else None


def _firsts(curves: Sequence[Curve]) -> list[tuple[int, Cell]]:
    return [min(curve, key=lambda point: point[0]) for curve in curves if len({n for n, _ in curve}) > 1]


def _possible(kind: Column, curves: Sequence[Curve]) -> bool:
    """Whether the numbers may be of the quantity that the texts around them name."""
    if kind.role == "speedup":
        return all(0.5 < cell.value < 2.0 * n for n, cell in _firsts(curves))
    if kind.role == "efficiency":
        values = [cell.value / (100 if kind.scale == 0.01 and cell.unit != "%" else 1) for c in curves for _, cell in c]
        return max(values) <= 1.5 or (all(v > 3 for v in values) and max(values) <= 150)
    return True


def _by_growth(curves: Sequence[Curve]) -> Column:
    """A rate grows with the devices, a time falls; a speedup starts at 1."""
    up, down, gains = 0, 0, []
    for curve in curves:
        points = sorted((n, cell.value) for n, cell in curve if cell.value > 0)
        points = [(n, value) for k, (n, value) in enumerate(points) if k == 0 or points[k - 1][0] != n]
        if len(points) < 2:
            continue
        steps = [right / left for (_, left), (_, right) in zip(points, points[1:])]
        up += sum(step > 1 for step in steps)
        down += sum(step < 1 for step in steps)
        gains.append(points[-1][1] / points[0][1])
    if not gains or up + down < 2:
        return Column()
    gain = statistics.median(gains)
    firsts = _firsts(curves)
    if gain >= _GROWS and up >= _STEPS * (up + down):
        is_one = all(n == 1 and cell.value == 1.0 for n, cell in firsts)
        return Column("speedup" if is_one else "rate")
    if gain <= 1 / _GROWS and down >= _STEPS * (up + down):
        values = [cell.value for curve in curves for _, cell in curve]
        is_share = all(cell.value in (1.0, 100.0) for _, cell in firsts) and max(values) <= 100.5
        return Column("efficiency" if is_share else "seconds")
    return Column()
