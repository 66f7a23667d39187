"""Which cell of a series is wrong: of measured number, speedup and efficiency the one that the other two contradict."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence

from rnn_scaling.audit import baselines, relations, rounding, work_model
from rnn_scaling.audit.baselines import Group
from rnn_scaling.audit.relations import EACH, GROWN, STATED_EACH, TIME, TOTAL, Fit, Reading
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import ScalingRow

SPEEDUP, EFFICIENCY = "speedup", "efficiency"
_SERIAL = re.compile(rf"\b(?:{baselines.SERIAL}|seq|baseline)\b")
_LONG = 1000  # rows of one series; of more, no neighbours are looked for, which would take their square


@dataclasses.dataclass(frozen=True)
class Related:
    """Two columns and the reading under which the most rows bear their relation out."""

    reading: Reading
    fit: Fit


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What one series says of itself.

    rows: of the series, in the order of the table.
    measured: each row's measured number as a speed, by the reading of `by_speedup` or `by_efficiency`.
    speedups, from_efficiencies: the printed speedups, and efficiency x devices.
    by_speedup: measured against speedup; by_efficiency: measured against efficiency x devices; within: speedup against
      efficiency x devices. None where there are not both.
    """

    rows: Sequence[ScalingRow]
    measured: relations.Values
    speedups: relations.Values
    from_efficiencies: relations.Values
    by_speedup: Related | None
    by_efficiency: Related | None
    within: Fit | None

    @property
    def reading(self) -> Reading | None:
        """How the measured column is read."""
        related = self.by_speedup or self.by_efficiency
        return related.reading if related else None

    def fits(self) -> list[Fit]:
        """The relations that were compared."""
        related = (self.by_speedup, self.by_efficiency)
        return [r.fit for r in related if r] + ([self.within] if self.within else [])

    def comparisons(self) -> int:
        """Numbers that were compared with others."""
        return sum(fit.rest if fit.anchors else len(fit.holds) for fit in self.fits())


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A cell that does not fit.

    field: of the row; its cell is the one that the others contradict.
    expected: what the others say it should be.
    baseline: the row is the one that the others are compared with.
    """

    row: ScalingRow
    field: str
    expected: Bounds
    baseline: bool = False


def verdicts(rows: Sequence[ScalingRow]) -> Iterator[Verdict]:
    """One a series; series that share the baseline of another are judged together with it where the numbers allow."""
    parts = baselines.groups(rows)
    if len(parts) > 1 and all(len(part.rows) == 1 for part in parts) and len({r.devices for r in rows}) == len(rows):
        yield judge(rows, shared=True)  # a column of notes parts the rows of one series
        return
    own = {id(part.baseline): part for part in parts if part.baseline is not None and not part.inferred}
    borrowers: dict[int, list[Group]] = {}
    single: list[ScalingRow] = []
    for part in parts:
        if part.inferred:
            borrowers.setdefault(id(part.baseline), []).append(part)
        elif part.baseline is None and len(part.rows) == 1 and not part.rows[0].devices:
            single.append(part.rows[0])
        elif part.baseline is None:
            yield judge(part.rows)
    if single:
        yield judge(single, shared=True)  # "method | time | speedup": each row has a name of its own
    for key, part in own.items():
        others = borrowers.get(key, [])
        serial = _serial_alone(part, others)
        together = (
            judge([*part.rows, *(row for other in others for row in other.rows)], shared=not serial) if others else None
        )
        if together is not None and (serial or _borne_out(together)):
            yield together
            continue
        yield judge(part.rows)
        yield from (judge(other.rows) for other in others)


def _serial_alone(part: Group, others: Sequence[Group]) -> bool:
    """Whether the only row of a series says that it is the baseline, and no two rows of the others agree on another."""
    only = part.rows[0]
    if len(part.rows) > 1 or not _SERIAL.search(only.series.lower()) or not only.speedup or only.speedup.value != 1.0:
        return False
    rows = [row for other in others for row in other.rows if row.speedup and row.seconds and only.seconds]
    implied = [rounding.of(row.seconds) * rounding.of(row.speedup) for row in rows if row.seconds and row.speedup]
    return len(implied) > 1 and len(rounding.consensus(implied)[1]) < 2


def _borne_out(verdict: Verdict) -> bool:
    related = verdict.by_speedup or verdict.by_efficiency
    if related is None or related.fit.other_baseline:
        return False
    return 2 * related.fit.hits >= max(related.fit.rest, 3)


def judge(rows: Sequence[ScalingRow], shared: bool = False) -> Verdict:
    """Compares the columns of one series.

    Args:
      rows: in the order of the table.
      shared: whether the baseline belongs to another series, so that it counts only where the numbers bear it out.
    """
    base_s, base_e = relations.anchors(rows, SPEEDUP), relations.anchors(rows, EFFICIENCY)
    with_speedup, with_efficiency = any(row.speedup for row in rows), any(row.efficiency for row in rows)
    speedups = relations.speedups(rows, base_s) if with_speedup else [None] * len(rows)
    others = relations.speedups_of_efficiencies(rows, base_e) if with_efficiency else [None] * len(rows)
    trusted = not shared and any(row.devices for row in rows)
    by_speedup = _related(rows, speedups, base_s, trusted) if with_speedup else None
    by_efficiency = _related(rows, others, base_e, trusted, by_speedup) if with_efficiency else None
    chosen = by_speedup or by_efficiency
    measured = [chosen.reading.speed(row) for row in rows] if chosen else [None] * len(rows)
    within = _within(rows, speedups, others) if with_speedup and with_efficiency else None
    return Verdict(rows, measured, speedups, others, by_speedup, by_efficiency, within)


def _related(
    rows: Sequence[ScalingRow],
    printed: relations.Values,
    base: Sequence[int],
    trusted: bool,
    like: Related | None = None,
) -> Related | None:
    """The reading of the measured number that the printed column bears out best; the plain one where two do as well."""
    if like and like.fit.hits:
        plain, others = [like.reading], []
    elif any(row.rate for row in rows):
        of_steps = any(row.rate_unit in work_model.STEP_UNITS for row in rows)  # of all that go in step, or of each
        of_times = [TIME, GROWN] if any(row.seconds for row in rows) else []
        plain, others = [TOTAL, EACH] if of_steps else [TOTAL], [EACH, *of_times]
    elif any(row.rate_each for row in rows):
        plain, others = [STATED_EACH], []
    else:
        plain, others = [TIME, GROWN], []
    best = _best(rows, printed, base, trusted, plain)
    if others and (best is None or 2 * best.fit.hits < best.fit.rest):
        other = _best(rows, printed, base, trusted, others)
        if other and other.fit.hits > max(best.fit.hits if best else 0, 1) and 2 * other.fit.hits >= other.fit.rest:
            return other
    return best


def _best(
    rows: Sequence[ScalingRow], printed: relations.Values, base: Sequence[int], trusted: bool, readings: list[Reading]
) -> Related | None:
    fits = ((r, relations.fit([r.speed(row) for row in rows], printed, base, trusted)) for r in readings)
    related = [Related(reading, fit) for reading, fit in fits if fit is not None]
    return max(related, key=lambda one: one.fit.hits, default=None)


def _within(rows: Sequence[ScalingRow], speedups: relations.Values, others: relations.Values) -> Fit | None:
    """Speedup / (efficiency x devices): 1, or 1 / the fewest devices where those have a speedup of 1."""
    ratios = {k: a / b for k, (a, b) in enumerate(zip(speedups, others)) if a is not None and b is not None}
    if not ratios:
        return None
    counts = {row.devices for row in rows if row.devices}
    fewest = min(counts)
    base = frozenset(
        k for k in ratios if rows[k].devices == fewest and len(counts) > 1
    )  # 1 and 100 %: not a comparison
    stated = {row.baseline_devices for row in rows if row.baseline_devices}
    candidates = [rounding.point(1.0 / devices) for devices in sorted({1, fewest} | stated)]
    fits = [Fit(one, {k: ratio.meets(one) for k, ratio in ratios.items()}, base) for one in candidates]
    best = max(fits, key=lambda fit: fit.hits)
    if 2 * best.hits < len(ratios) and len(ratios) >= 3:
        shared, members = rounding.consensus(list(ratios.values()))
        if len(members) == len(ratios):  # efficiencies against another best than the first row's
            return Fit(shared, dict.fromkeys(ratios, True))
    return best


def wrong_cells(verdict: Verdict) -> list[Wrong]:
    """The cells that do not fit, at most one a row and cause, where the columns as such do."""
    wrong = []
    ab, ac = (_holds(r.fit if r else None) for r in (verdict.by_speedup, verdict.by_efficiency))
    bc = _holds(verdict.within)
    for k in range(len(verdict.rows)):
        fits = (ab.get(k), ac.get(k), bc.get(k))
        if False in fits:
            wrong += _blame(verdict, k, *fits)
    return wrong


def _holds(fit: Fit | None) -> dict[int, bool]:
    """Row -> whether it agrees; nothing where the columns contradict each other as such."""
    return dict(fit.holds) if fit and not fit.refuted else {}


def _blame(verdict: Verdict, k: int, ab: bool | None, ac: bool | None, bc: bool | None) -> list[Wrong]:
    """Of measured number, speedup and efficiency the odd one out.

    Args:
      verdict: of the series.
      k: the row.
      ab: whether measured number and speedup agree; None: not compared.
      ac: the same of measured number and efficiency.
      bc: the same of speedup and efficiency.
    """
    row = verdict.rows[k]
    devices = _devices(verdict, k) if ab is not False and (ac is False or bc is False) else None
    if devices is not None:
        return [Wrong(row, "devices", rounding.point(devices))]
    speedup, efficiency = _speedup(verdict, k), _efficiency(verdict, k)
    measured = _measured(verdict, k) if verdict.reading else efficiency
    known = (ab, ac, bc)
    if known in ((False, False, True), (False, False, None)):
        return [measured]
    if known in ((False, True, False), (False, True, None), (False, None, True)):
        return [speedup]
    if known == (False, True, True):  # a coarse efficiency between two that differ
        return [] if _is_from(row.speedup, row.efficiency, row.devices or 1) else [speedup]
    if known == (True, False, True):  # a coarse speedup between two that differ
        return [] if _is_from(row.efficiency, row.speedup, 1 / (row.devices or 1)) else [efficiency]
    if known == (True, True, False):  # both fit what was measured, which is coarser than both
        twice = rounding.twice(rounding.of(row.speedup)) / (row.devices or 1) if row.speedup else None
        fits = twice is None or verdict.within is None or row.efficiency is None
        fits = fits or (twice / verdict.within.constant).meets(rounding.of(row.efficiency))  # type: ignore
        return [] if fits else [efficiency]
    if known == (False, None, None):
        return [measured if _odd(verdict, k, verdict.speedups) else speedup]
    if known == (None, False, None) and _bears_out_efficiency(verdict, k):
        return [measured]
    if known == (None, False, None):
        return [measured if _odd(verdict, k, verdict.from_efficiencies) else efficiency]
    if known == (None, None, False) and _less_smooth(verdict, k):
        return [speedup]
    if known == (False, False, False):
        return [speedup, efficiency]
    return [speedup] if known == (False, None, False) else [efficiency]


def _bears_out_efficiency(verdict: Verdict, k: int) -> bool:
    """Whether the rate of one device, which stands beside the total, gives the efficiency that the total does not."""
    related, printed = verdict.by_efficiency, verdict.from_efficiencies[k]
    made = relations.STATED_EACH.speed(verdict.rows[k])
    if related is None or related.reading is not TOTAL or printed is None or made is None:
        return False
    return (made / related.fit.constant).meets(printed)


def _is_from(cell: object, other: object, factor: float) -> bool:
    """Whether a number was made from another one as printed."""
    if cell is None or other is None:
        return True
    return rounding.of(cell).meets(rounding.point(other.value * factor))  # type: ignore[arg-type, attr-defined]


def _measured(verdict: Verdict, k: int) -> Wrong:
    row, related = verdict.rows[k], verdict.by_speedup or verdict.by_efficiency
    assert related is not None
    printed = verdict.speedups[k] if verdict.by_speedup else verdict.from_efficiencies[k]
    expected = related.reading.back((printed or rounding.point(1.0)) * related.fit.constant, row)
    return Wrong(row, related.reading.field, expected, baseline=k in related.fit.anchors)


def _speedup(verdict: Verdict, k: int) -> Wrong:
    row, value = verdict.rows[k], verdict.measured[k]
    if verdict.by_speedup and value is not None:
        return Wrong(row, SPEEDUP, value / verdict.by_speedup.fit.constant, k in verdict.by_speedup.fit.anchors)
    other, constant = verdict.from_efficiencies[k], verdict.within.constant if verdict.within else rounding.point(1.0)
    return Wrong(row, SPEEDUP, (other or rounding.point(1.0)) * constant)


def _efficiency(verdict: Verdict, k: int) -> Wrong:
    row, value, printed = verdict.rows[k], verdict.measured[k], verdict.speedups[k]
    devices = row.devices or 1
    of_measured = verdict.by_speedup and not verdict.by_speedup.fit.holds.get(k, True)
    if printed is not None and verdict.within and not verdict.within.holds.get(k) and not of_measured:
        return Wrong(row, EFFICIENCY, printed / verdict.within.constant / devices)
    if verdict.by_efficiency and value is not None:
        base = k in verdict.by_efficiency.fit.anchors
        return Wrong(row, EFFICIENCY, value / verdict.by_efficiency.fit.constant / devices, base)
    return Wrong(row, EFFICIENCY, (printed or rounding.point(1.0)) / devices)


def _devices(verdict: Verdict, k: int) -> int | None:
    """Another number of devices that would make everything in the row fit, and that belongs between its neighbours."""
    row, speed, constant = verdict.rows[k], verdict.speedups[k], verdict.within.constant if verdict.within else None
    if len(verdict.rows) > _LONG:
        return None
    if speed is None and verdict.by_efficiency and verdict.reading is TOTAL:
        speed, constant = verdict.measured[k], verdict.by_efficiency.fit.constant
    if speed is None or constant is None or row.efficiency is None or not row.devices:
        return None
    value = speed / constant / rounding.of(row.efficiency)
    whole = value.integers()
    if len(whole) != 1 or value.high - value.low > 0.3 or whole[0] in {other.devices for other in verdict.rows}:
        return None
    line = _line_of(verdict, k)
    here = (speed / constant).middle / row.devices
    if line is None or _far(here, line) <= 3 * _far(rounding.of(row.efficiency).middle, line):
        return None  # with the printed devices the row is in line, and its efficiency is not
    before = [other.devices for other in verdict.rows[:k] if other.devices]
    after = [other.devices for other in verdict.rows[k + 1 :] if other.devices]
    in_order = max(before, default=0) < whole[0] < min(after, default=math.inf)
    return whole[0] if in_order else None


def _line_of(verdict: Verdict, k: int) -> float | None:
    """The efficiency that the nearest rows lead one to expect of row k; None where fewer than two of several do."""
    row = verdict.rows[k]
    if len(verdict.rows) > _LONG or not row.devices:
        return None
    good = {
        other.devices: value.middle / other.devices
        for j, (other, value) in enumerate(zip(verdict.rows, _finest(verdict)))
        if j != k and value is not None and other.devices and all(fit.holds.get(j, True) for fit in verdict.fits())
    }
    below, above = sorted(n for n in good if n < row.devices)[-2:], sorted(n for n in good if n > row.devices)[:2]
    near = [below[-1], above[0]] if below and above else below or above
    if len(near) < 2 or len(good) - (1 in good) < 2:
        return None
    (a, of_a), (b, of_b) = ((math.log(devices), good[devices]) for devices in near)
    return of_a + (of_b - of_a) * (math.log(row.devices) - a) / (b - a)


def _finest(verdict: Verdict) -> list[Bounds | None]:
    """Each row's speedup as printed or by what was measured, whichever was rounded less."""
    printed = verdict.speedups if verdict.by_speedup or verdict.within else verdict.from_efficiencies
    related = verdict.by_speedup or verdict.by_efficiency
    if related is None:
        return list(printed)
    made = [value / related.fit.constant if value is not None else None for value in verdict.measured]
    return [min((b for b in both if b is not None), key=_width, default=None) for both in zip(printed, made)]


def _width(value: Bounds) -> float:
    return value.high / value.low if value.low > 0 else math.inf


def _far(value: float, line: float) -> float:
    return abs(math.log(value / line)) if value > 0 and line > 0 else math.inf


def _odd(verdict: Verdict, k: int, printed: relations.Values) -> bool:
    """Whether the measured number of row k, and not the printed one, is out of line with the rows beside it."""
    row, value, said, line = verdict.rows[k], verdict.measured[k], printed[k], _line_of(verdict, k)
    related = verdict.by_speedup or verdict.by_efficiency
    assert related is not None
    if k in related.fit.anchors:
        return True
    if value is None or said is None or line is None or not row.devices:
        return False
    of_measured = _far((value / related.fit.constant).middle / row.devices, line)
    return of_measured > 2 * _far(said.middle / row.devices, line)


def _less_smooth(verdict: Verdict, k: int) -> bool:
    """Whether the speedup of row k, and not its efficiency, is out of line."""
    row, speedup, other, line = verdict.rows[k], verdict.speedups[k], verdict.from_efficiencies[k], _line_of(verdict, k)
    if speedup is None or other is None or line is None or not row.devices:
        return False
    return _far(speedup.middle / row.devices, line) > 2 * _far(other.middle / row.devices, line)
