"""What speedup, efficiency and the measured number of a series must be to each other, and in which rows they are.

speedup = measured / measured of the baseline; efficiency = speedup / devices. "Measured" has several honest readings
(the total rate, a worker's rate, the time of one work, the time of a work that grows with the devices): that one counts
which the most rows bear out. The baseline need not be in the table: rows must agree on measured / speedup.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

from rnn_scaling.audit import rounding
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import Cell, ScalingRow
from rnn_scaling.audit.work_model import STRONG, WEAK

Values = Sequence[Bounds | None]
_ONE = rounding.point(1.0)
_MAX_ANCHORS = 64


@dataclasses.dataclass(frozen=True)
class Reading:
    """One way to understand a measured column.

    field: of the row that is read.
    speed: a row's number that grows as the speedup does, or None.
    back: such a number and its row -> what the field should say.
    scaling: what speedups of it say of the work, WEAK or STRONG; "" where they say nothing.
    """

    field: str
    speed: Callable[[ScalingRow], Bounds | None]
    back: Callable[[Bounds, ScalingRow], Bounds]
    scaling: str = ""


def _rate(row: ScalingRow) -> Bounds | None:
    return rounding.of(row.rate) if row.rate else None


def _worker_rate(row: ScalingRow) -> Bounds | None:
    return rounding.of(row.rate) * row.devices if row.rate and row.devices else None


def _time(row: ScalingRow) -> Bounds | None:
    return _ONE / rounding.of(row.seconds) if row.seconds else None


def _grown_time(row: ScalingRow) -> Bounds | None:
    return rounding.point(row.devices) / rounding.of(row.seconds) if row.seconds and row.devices else None


def _stated_worker_rate(row: ScalingRow) -> Bounds | None:
    return rounding.of(row.rate_each) * row.devices if row.rate_each and row.devices else None


TOTAL = Reading("rate", _rate, lambda value, row: value)
EACH = Reading("rate", _worker_rate, lambda value, row: value / (row.devices or 1))
STATED_EACH = Reading("rate_each", _stated_worker_rate, lambda value, row: value / (row.devices or 1))
TIME = Reading("seconds", _time, lambda value, row: _ONE / value, STRONG)
GROWN = Reading("seconds", _grown_time, lambda value, row: rounding.point(row.devices or 1) / value, WEAK)


@dataclasses.dataclass(frozen=True)
class Fit:
    """How far the rows bear out that two columns are the same up to a constant.

    constant: the first column over the second where they agree.
    holds: row number -> whether it agrees; rows without both numbers are not in it.
    anchors: the rows that state the baseline ("1.00x"); they agree with themselves.
    other_baseline: most rows agree with each other, and not with the anchors.
    """

    constant: Bounds
    holds: Mapping[int, bool]
    anchors: frozenset[int] = frozenset()
    other_baseline: bool = False

    @functools.cached_property
    def hits(self) -> int:
        """Rows that agree and are no anchors."""
        return sum(holds for k, holds in self.holds.items() if k not in self.anchors)

    @functools.cached_property
    def rest(self) -> int:
        """Rows that are no anchors."""
        return sum(k not in self.anchors for k in self.holds)

    @functools.cached_property
    def whole(self) -> bool:
        """Whether every row agrees."""
        return all(self.holds.values())

    @functools.cached_property
    def doubtful(self) -> bool:
        """Whether fewer than half of the rows agree: then an honest reading is looked for."""
        return 2 * self.hits < self.rest

    @functools.cached_property
    def refuted(self) -> bool:
        """Whether hardly a row agrees: then the columns contradict each other and not their rows."""
        return self.rest >= 2 and (self.hits == 0 or (2 * self.hits < self.rest and self.rest - self.hits >= 3))


def fit(above: Values, below: Values, anchors: Sequence[int], trusted: bool = True) -> Fit | None:
    """Which rows agree on above / below.

    Args:
      above, below: a number a row, or None.
      anchors: the rows that state the baseline; there `below` is what they state, as printed.
      trusted: whether the anchors count even when fewer than half of the rows agree with them.

    Returns:
      None when nothing can be said: fewer than two rows, or no anchor and no majority of three.
    """
    ratios = {k: a / b for k, (a, b) in enumerate(zip(above, below)) if a is not None and b is not None}
    stating = [k for k in anchors if k in ratios][:_MAX_ANCHORS]
    rest = [k for k in ratios if k not in set(anchors)]
    if len(ratios) < 2:
        return None
    if not stating or not rest:
        return _by_majority(ratios)
    stated = {k: above[k] / exactly(below[k]) for k in stating}  # type: ignore[operator, arg-type]
    holds = {k: any(ratios[k].meets(one) for one in stated.values()) for k in rest}
    hits = sum(holds.values())
    if 2 * hits < len(rest):
        among = _by_majority({k: ratios[k] for k in rest}) if len(rest) >= 3 else None
        if among and among.hits > hits:
            # "1.0" of another baseline than 1 exactly
            rounded = {k: among.constant.meets(ratios[k]) for k in stating}
            if not any(among.constant.meets(one) for one in stated.values()):
                return Fit(among.constant, {**among.holds, **rounded}, frozenset(stating), not any(rounded.values()))
        if not trusted:
            return _by_majority(ratios)
    return Fit(stated[stating[0]], {**holds, **dict.fromkeys(stating, True)}, frozenset(stating))


def exactly(stated: Bounds) -> Bounds:
    """The whole number that a baseline states: the 1.00 of a baseline was not rounded."""
    whole = stated.integers()
    return rounding.point(float(whole[0])) if len(whole) == 1 else stated


def _by_majority(ratios: Mapping[int, Bounds]) -> Fit | None:
    rows = list(ratios)
    shared, members = rounding.consensus([ratios[k] for k in rows])
    if len(members) < 3 or 2 * len(members) <= len(rows):
        return None
    inside = {rows[k] for k in members}
    return Fit(shared, {k: k in inside for k in rows})


def anchors(rows: Sequence[ScalingRow], field: str) -> list[int]:
    """The rows that state the baseline of a column: those of the fewest devices, where they say 1, 100 % or nothing.

    A speedup of n on the fewest n devices states it too. Without devices it is the rows that say exactly 1.
    """
    fewest = min((row.devices for row in rows if row.devices), default=None)
    out = [k for k, row in enumerate(rows) if (cell := getattr(row, field)) and "base" in cell.text.lower()]
    if out:
        return out  # "1x (base)"
    for k, row in enumerate(rows):
        cell = getattr(row, field)
        if fewest is None:
            if cell and cell.value == 1.0:
                out.append(k)
        elif row.devices == fewest:
            stated = rounding.of(cell) if cell else None
            if stated is None:
                out += [k] if fewest == 1 else []
            elif stated.meets(_ONE) or (field == "speedup" and stated.meets(rounding.point(fewest))):
                out.append(k)
        elif row.devices is None and cell and cell.value == 1.0:
            out.append(k)  # "serial"
    return out


def speedups(rows: Sequence[ScalingRow], base: Sequence[int] = ()) -> list[Bounds | None]:
    """The printed speedups; 1 where a baseline row prints none."""
    stated = set(base)
    finest = max((row.speedup.digits for row in rows if row.speedup), default=0)
    return [
        _of_baseline(row.speedup, finest) if row.speedup and k in stated
        else rounding.of(row.speedup) if row.speedup else _ONE if k in stated and row.devices == 1 else None
        for k, row in enumerate(rows)
    ]  # fmt: skip


def _of_baseline(cell: Cell, finest: int) -> Bounds:
    """ "1x" above "1.84x" was not rounded to a whole number."""
    return rounding.of(dataclasses.replace(cell, digits=finest) if cell.value == 1.0 and not cell.step else cell)


def speedups_of_efficiencies(rows: Sequence[ScalingRow], base: Sequence[int] = ()) -> list[Bounds | None]:
    """Efficiency x devices; 1 where a baseline row prints none."""
    stated = set(base)
    return [
        rounding.of(row.efficiency) * row.devices if row.efficiency and row.devices
        else _ONE if k in stated and row.devices == 1 else None
        for k, row in enumerate(rows)
    ]  # fmt: skip


def gains(values: Values) -> list[Bounds | None]:
    """Speedups of a column that prints what was gained: "90 %" for 1.9."""
    return [value + _ONE if value is not None and value != _ONE else value for value in values]


def steps_agree(measured: Values, printed: Values) -> bool:
    """Whether every printed number (two at least) compares its row with the row before."""
    pairs = [
        (here / before).meets(said)
        for before, here, said in zip(measured, measured[1:], printed[1:])
        if before is not None and here is not None and said is not None
    ]
    return len(pairs) >= 2 and all(pairs)
