"""How fast runs learn: loss and right predictions over items, and what it takes until a target is reached. Pure.

A point of a curve is the mean over a trailing window, with the same number of items in all compared runs. A target
is reached at the first point from which on no later one misses it, if at least a window follows. Time to the target =
items until there / speed of the measured batches: what is spent once (start, compilation) is left out. N: batches.
"""

import dataclasses
import math
from collections.abc import Sequence
from itertools import accumulate

from rnn_scaling.analysis.confidence import Interval, interval_over_runs, ratio
from rnn_scaling.analysis.losses import OtherLosses, other_losses
from rnn_scaling.analysis.rows import Row
from rnn_scaling.config import registry
from rnn_scaling.config.naming import TRAINER
from rnn_scaling.records.parts import Batches
from rnn_scaling.records.record import RunRecord

WINDOW_BATCHES = 10  # of the largest global batch make a window
LEVELS = (
    0.99,
    0.95,
    0.9,
    0.8,
    0.7,
    0.6,
    0.5,
    0.4,
    0.3,
    0.2,
    0.1,
)  # of which the highest that all reach is the target
ACCURACY = "accuracy"
LOSS = "loss"
MANIFOLD = 10  # times the first loss, from which on a training counts as diverged
REMEDY = "a speed is measured all the same, but not of a training that works; try a lower --learning_rate"


@dataclasses.dataclass(frozen=True)
class Target:
    """A share of right predictions, or a loss, that a training should reach."""

    kind: str
    value: float
    is_chosen_by_user: bool = True

    def is_met(self, value: float) -> bool:
        """Whether a smoothed value is as good."""
        return value >= self.value if self.kind == ACCURACY else value <= self.value


@dataclasses.dataclass(frozen=True)
class Curve:
    """The smoothed values of one run, a point for each batch from the first full window on."""

    items: tuple[int, ...]  # since the first batch
    done: tuple[
        int, ...
    ]  # the same of what the loss is a mean over, in which the window is counted
    values: tuple[float, ...]
    window: float


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    row: Row
    needed: tuple[
        int | None, ...
    ]  # items until the target, of each run, None: it did not reach it
    items: Interval | None  # over the runs, as the seconds; None unless all reached it
    seconds: Interval | None
    best: float | None  # the best smoothed value of any run, None without a full window


@dataclasses.dataclass(frozen=True, eq=False)
class Learning:
    """All configurations of a folder against one target.

    windows: What was smoothed over, by unit.
    other_losses: The configurations that provably train otherwise on more devices.
    """

    target: Target
    learned: tuple[Learned, ...]
    windows: dict[str, float]
    other_losses: tuple[OtherLosses, ...] = ()

    def baseline(self, learned: Learned) -> Learned | None:
        """The same configuration on one device."""
        return next(
            (found for found in self.learned if found.row is learned.row.one_device),
            None,
        )

    def time_speedup(self, learned: Learned) -> Interval | None:
        """The time to the target on one device / that of this run; None if one of them did not reach it."""
        baseline = self.baseline(learned)
        if baseline is None or baseline.seconds is None or learned.seconds is None:
            return None
        return ratio(baseline.seconds, learned.seconds)


def weights(batches: Batches) -> Sequence[int]:
    """What each batch counts by in a mean, [N]: what its loss is a mean over, in old records its items."""
    return batches.loss_items or batches.items


def curve(batches: Batches, kind: str, window: float) -> Curve:
    """The smoothed values of a run, none where what is asked for was not recorded; `window`: in units of `weights`."""
    counts = weights(batches)
    if kind == ACCURACY:
        sums: Sequence[float] = batches.correct or ()
    else:
        sums = [
            (math.inf if loss is None else loss) * count
            for loss, count in zip(batches.loss, counts)
        ]
    if len(sums) != len(counts) or all(map(math.isinf, sums)):
        return Curve((), (), (), window)
    points = []
    start = 0
    weight = 0
    for k, (items, done) in enumerate(
        zip(accumulate(batches.items), accumulate(counts))
    ):
        weight += counts[k]
        while weight - counts[start] >= window:
            weight -= counts[start]
            start += 1
        if weight >= window:
            points.append((items, done, math.fsum(sums[start : k + 1]) / weight))
    items_of, done_of, values = zip(*points) if points else ((), (), ())
    return Curve(items_of, done_of, values, window)


def items_to(curve: Curve, target: Target) -> int | None:
    """Items until the target was reached for good; None if it was not, or if less than a window followed."""
    first = len(curve.values)
    while first and target.is_met(curve.values[first - 1]):
        first -= 1
    if first == len(curve.values) or curve.done[-1] - curve.done[first] < curve.window:
        return None
    return curve.items[first]


def time_to_target(rows: Sequence[Row], target: Target | None) -> Learning | None:
    """What each row took to the target, of rows that train one model.

    Without a target it is the highest of LEVELS that every run reaches; None where no run counted right predictions.
    """
    rows = [
        row
        for row in rows
        if row.good_runs and all(run.batches.items for run in row.good_runs)
    ]
    rows = [
        row
        for row in rows
        if row.num_devices == 1
        or registry.mode_of(row.options["variable_update"]).trains_one_model
    ]
    if target is None:
        rows = [
            row for row in rows if all(run.batches.correct for run in row.good_runs)
        ]
    if not rows:
        return None
    windows = _windows(rows)
    kind = target.kind if target else ACCURACY
    curves = [
        [curve(run.batches, kind, windows[row.unit]) for run in row.good_runs]
        for row in rows
    ]
    if target is None:
        levels = [Target(ACCURACY, level, is_chosen_by_user=False) for level in LEVELS]
        drawn = [curve for of_row in curves for curve in of_row]
        target = next(
            (
                level
                for level in levels
                if all(items_to(curve, level) for curve in drawn)
            ),
            levels[-1],
        )
    learned = tuple(_learned(row, of_row, target) for row, of_row in zip(rows, curves))
    return Learning(target, learned, windows, tuple(other_losses(rows)))


def _windows(rows: Sequence[Row]) -> dict[str, float]:
    windows: dict[str, float] = {}
    for row in rows:
        for run in row.good_runs:
            counts = weights(run.batches)
            window = WINDOW_BATCHES * sum(counts) / len(counts)
            windows[row.unit] = max(window, windows.get(row.unit, 0.0))
    return windows


def _learned(row: Row, curves: Sequence[Curve], target: Target) -> Learned:
    needed = tuple(items_to(curve, target) for curve in curves)
    values = [value for curve in curves for value in curve.values]
    best = (
        None if not values else max(values) if target.kind == ACCURACY else min(values)
    )
    known = [items for items in needed if items is not None]
    if len(known) < len(needed):
        return Learned(row, needed, None, None, best)
    items = interval_over_runs(known)
    if (
        len(known) > 1 and len(set(known)) == 1
    ):  # on equal data, and no rounding of logarithms is an interval
        items = Interval(
            float(known[0]), kind="the same in all runs", run_counts=items.run_counts
        )
    counted = {id(run) for run in row.counted_runs}
    seconds = []
    for items_needed, run in zip(known, row.good_runs):
        if id(run) in counted and run.throughput:
            seconds.append(items_needed / run.throughput.items_per_second)
    return Learned(
        row,
        needed,
        items,
        interval_over_runs(seconds).with_rounding(row.rounding),
        best,
    )


def loss_growth(losses: Sequence[float | None]) -> float | None:
    """The last loss over the first one where that is MANIFOLD or more; None where it is not, or is not known."""
    known = [loss for loss in losses if loss is not None]
    if len(known) < 2 or known[0] <= 0 or known[-1] < MANIFOLD * known[0]:
        return None
    return known[-1] / known[0]


def is_lost(run: RunRecord) -> bool:
    """Whether a run's training diverged: our records without a loss had one that was not finite."""
    losses = run.batches.loss
    is_ours = TRAINER not in run.options
    return bool(
        loss_growth(losses)
        or end_of_loss(losses)
        or (is_ours and losses and losses[-1] is None)
    )


def end_of_loss(losses: Sequence[float | None]) -> int | None:
    """The batch from which on there is no finite loss, if all before had one, two at least; None elsewhere."""
    end = next((k for k, loss in enumerate(losses) if loss is None), 0)
    return end if end > 1 and all(loss is None for loss in losses[end:]) else None
