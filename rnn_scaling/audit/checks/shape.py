"""Points out of line: superlinear steps, rates that look like one worker's, batch sizes of weak and strong scaling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rnn_scaling.audit import baselines, batches, rounding, work_model
from rnn_scaling.audit.checks import batch_rule
from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import UNLIKELY, Finding, of_row
from rnn_scaling.audit.having import WithDevices, having
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import Cell, ScalingRow, ScalingTable

NAME = "shape"
# A rate a worker is a factor of the devices below its neighbours; an honest point is not this far below both.
_FAR_BELOW = 0.6
_ALIKE = 2.0  # its neighbours must scale alike: where the second row is far below the first, all are
# Each device more must add this many times what one alone does to be a finding: a few per cent are noise, caches or
# another clock, and efficiencies above 1 are another kind of run. What the derived numbers show is not repeated here.
_SUPERLINEAR = 1.2
_IMPOSSIBLE = 1.5  # an efficiency that no cache explains


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each point out of line; None for each that is in line."""
    with_speedup = {(r.series, r.devices) for r in context.previous.rows if r.speedup} if context.previous else set()
    misfits = {id(row) for model in context.models(table) for row, fits in zip(model.rows, model.fits) if not fits}
    for group in baselines.groups(table.rows):
        samples = dict(zip(map(id, group.rows), batches.in_samples(table, group.rows)))
        base = None if group.inferred or group.baseline is None else samples[id(group.baseline)]
        if all(not r.speedup and not r.rate and (r.series, r.devices) in with_speedup for r in group.rows):
            continue  # efficiencies of the points whose speedups the table before has
        misfitting = {id(samples[id(row)]) for row in group.rows if id(row) in misfits}
        rows = sorted(having(samples.values(), WithDevices), key=lambda row: row.devices)
        if len({row.devices for row in rows}) != len(rows):
            continue  # repeats: neighbours mean nothing
        known = [(row, _efficiency(row, base)) for row in rows if id(row) not in misfitting]
        yield from _points(table, [(row, value.widened(_spread(row))) for row, value in known if value])
        yield from batch_rule.check(NAME, table, group.rows)


def _efficiency(row: WithDevices, base: ScalingRow | None) -> Bounds | None:
    if row is base and row.devices == 1:
        return Bounds(1.0, 1.0)
    by_rate = None
    if base and base.rate and row.rate:
        by_rate = rounding.of(row.rate) / rounding.of(base.rate) / row.devices
    if row.speedup:  # coarser, but right where the rates are a worker's
        by_speedup = rounding.of(row.speedup) / row.devices
        if by_rate is None or by_rate.meets(by_speedup):
            return by_rate or by_speedup
        return by_speedup if (by_rate * row.devices).meets(by_speedup) else None  # None: the speedup check says it
    return by_rate or (rounding.of(row.efficiency) if row.efficiency else None)


def _spread(row: ScalingRow) -> float:
    return max(cell.relative_spread if cell else 0.0 for cell in (row.rate, row.speedup, row.efficiency))


def _points(table: ScalingTable, known: Sequence[tuple[WithDevices, Bounds]]) -> Iterator[Finding | None]:
    for k in range(1, len(known)):
        if len(known) < 3:
            return
        last = k == len(known) - 1
        neighbours = [known[k - 1], known[k - 2] if last else known[k + 1]]
        (row, value), (left, left_value) = known[k], known[k - 1]
        gain = value.low * row.devices - left_value.high * left.devices
        steps = row.devices - left.devices
        possible = value.low <= 1 or (value.low > _IMPOSSIBLE and row.rate and not row.speedup)
        if gain > steps * _SUPERLINEAR and possible and all(value.low > other.high for _, other in neighbours):
            yield _superlinear(table, row, value, left, left_value, [other for _, other in neighbours])
        elif row.rate and _is_each(row, value, [other for _, other in neighbours]):
            yield _each(table, row, row.rate)
        elif row.rate and _collapses([(row.devices, value) for row, value in known], k):
            yield _collapse(table, row, left)
        else:
            yield None


def _superlinear(
    table: ScalingTable, row: WithDevices, value: Bounds, left: WithDevices, left_value: Bounds, others: list[Bounds]
) -> Finding:
    rate = value * row.devices
    field = "speedup" if row.speedup else "rate" if row.rate else "efficiency"
    low, high = min(o.low for o in others) * row.devices, max(o.high for o in others) * row.devices
    cell = getattr(row, field)
    cause = (
        f"superlinear: from {left.devices} to {row.devices} devices the speedup rises by "
        f"{rate.middle - left_value.middle * left.devices:.2f}, while both neighbours are less efficient; they "
        "were disturbed, or this run was another one: measure again"
    )
    expected = f"a speedup of {low:.2f} to {high:.2f}, at its neighbours' efficiency"
    stands = "" if field == "speedup" else f"{cell.text} (speedup {rate.middle:.2f})"
    return of_row(NAME, UNLIKELY, table, row, field, expected, cause, stands=stands)


def _collapses(known: Sequence[tuple[int, Bounds]], k: int) -> bool:
    """Whether the speed of a point is less than half of the one before, though it rose up to there.

    The last point after three that rise, or one before a point that rises again. A series that falls from its first
    step on does not scale, and its derived numbers say that.
    """
    speeds = [value * devices for devices, value in known]
    fell = 2 * speeds[k].high < speeds[k - 1].low
    rose = k >= 2 and all(b.low > a.high for a, b in zip(speeds[:k], speeds[1:k]))
    return (
        fell and rose and (k == len(known) - 1 and k >= 3 or k + 1 < len(known) and speeds[k + 1].low > speeds[k].high)
    )


def _collapse(table: ScalingTable, row: WithDevices, left: WithDevices) -> Finding:
    before = left.rate.text if left.rate else f"the point on {left.devices}"
    cause = (
        "collapses to less than half, after it rose with every device: disturbed, mistyped, or out of memory or links; "
        "measure again"
    )
    expected = f"more than {before}, as up to {left.devices} devices"
    return of_row(NAME, UNLIKELY, table, row, "rate", expected, cause)


def _is_each(row: WithDevices, value: Bounds, others: Sequence[Bounds]) -> bool:
    if row.speedup or row.devices < 2 or row.rate_unit in work_model.STEP_UNITS:
        return False
    low, high = min(other.low for other in others), max(other.high for other in others)
    if high > _ALIKE * low:
        return False  # a plateau, or machines that were numbered
    return value.high < _FAR_BELOW * low and 0.8 * low < value.middle * row.devices < 1.2 * high


def _each(table: ScalingTable, row: WithDevices, rate: Cell) -> Finding:
    cause = f"far below both neighbours, and in line with them when multiplied by {row.devices}: a worker's rate"
    return of_row(NAME, UNLIKELY, table, row, "rate", rounding.of(rate) * row.devices, cause)
