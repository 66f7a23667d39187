"""Compare how fast runs learn: how many items and seconds they need to a target.

A point of a curve is the mean over a trailing window, with the same number of items in
all compared runs. A run reaches a target at the first point after which no point misses
it, if at least a window follows. The time to the target is the items until there / the
speed of the measured batches, without the time of starting and compiling.
N: number of batches.

`training.ending` uses the same targets while a run trains.
"""

import bisect
import dataclasses
import itertools
import math
import operator
from collections.abc import Sequence

from rnn_scaling.analysis.confidence import (
    Interval,
    compute_interval_over_runs,
    divide_rates,
)
from rnn_scaling.analysis.interval_kinds import Basis, IntervalKind, Note
from rnn_scaling.analysis.load_correction import CORRECTION_DEGREES
from rnn_scaling.analysis.metrics import SPEEDUP
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.training_differences import (
    OtherTraining,
    find_other_training,
)
from rnn_scaling.config import registry
from rnn_scaling.config.naming import TRAINER
from rnn_scaling.records.parts import Batches
from rnn_scaling.records.record import RunRecord

WINDOW_BATCHES = 10  # a window is this number of the largest global batches
# Without a target, the highest of these accuracies that all runs reach is the target.
_LEVELS = (0.99, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
ACCURACY = "accuracy"
LOSS = "loss"
# A training diverges if its loss grows to this multiple of the first one.
DIVERGENCE_FACTOR = 10
REMEDY = (
    "the speed is measured all the same, but the training does not work; try a lower"
    " --learning_rate"
)


@dataclasses.dataclass(frozen=True)
class Target:
    """A share of correct predictions, or a loss, that a training should reach."""

    kind: str
    value: float
    is_chosen_by_user: bool = True

    def is_met(self, value: float) -> bool:
        """Return whether a smoothed value is as good."""
        return value >= self.value if self.kind == ACCURACY else value <= self.value


@dataclasses.dataclass(frozen=True)
class Curve:
    """The smoothed values of one run.

    The three tuples have one entry per batch from the first full window on.

    Attributes:
      items: Items since the first batch.
      counts: The same in units of `_compute_batch_weights`.
      values: Accuracies or losses.
      window: Length of the window in units of `_compute_batch_weights`.
    """

    items: tuple[int, ...]
    counts: tuple[int, ...]
    values: tuple[float, ...]
    window: float


@dataclasses.dataclass(frozen=True, eq=False)
class LearningResult:
    """The items and seconds of one configuration to the target.

    Attributes:
      row: The configuration.
      run_items: Items of each run; None if it did not reach the target.
      items: The mean items of the runs; None unless all runs reached the target.
      seconds: The mean time; None unless all runs reached the target.
      best: The best smoothed value of any run; None without a full window.
    """

    row: Row
    run_items: tuple[int | None, ...]
    items: Interval | None
    seconds: Interval | None
    best: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class Learning:
    """All configurations of a folder against one target.

    Attributes:
      target: The target.
      results: One per configuration that trains one model.
      windows: Unit -> length of the window.
      other_training: Configurations that provably train otherwise on more devices.
    """

    target: Target
    results: tuple[LearningResult, ...]
    windows: dict[str, float]
    other_training: tuple[OtherTraining, ...] = ()

    def baseline(self, result: LearningResult) -> LearningResult | None:
        """Return the same configuration on one device."""
        one_device = result.row.one_device
        if one_device is None:
            return None
        # Runs disturbed by other processes make a baseline of its own, of the same
        # records.
        for each in self.results:
            if each.row.num_devices == 1 and each.row.records == one_device.records:
                return each
        return None

    def is_time_hidden(self, result: LearningResult) -> bool:
        """Return whether load hides how the time compares with the one of one device.

        This is also the case if the rates of the two count different batches.
        """
        speedup = result.row.shown_metric(SPEEDUP)
        if speedup is None:
            return result.row.is_speedup_hidden
        return Note.ALL_BATCHES in speedup.kind.notes

    def time_speedup(self, result: LearningResult) -> Interval | None:
        """Return the time to the target on one device / the time of a configuration.

        Returns:
          None if one of them did not reach the target, or if load of other programs
          hides the ratio of the two speeds.
        """
        baseline = self.baseline(result)
        if baseline is None or baseline.seconds is None or result.seconds is None:
            return None
        if self.is_time_hidden(result):
            return None
        return divide_rates(baseline.seconds, result.seconds)


def _compute_batch_weights(batches: Batches) -> Sequence[int]:
    """Return the weight of each batch in a mean, [N].

    These are the elements over which its loss is a mean, or the items in old records.
    """
    return batches.loss_items or batches.items


def smooth(batches: Batches, kind: str, window: float) -> Curve:
    """Return the smoothed values of a run; an empty curve if they were not recorded.

    Args:
      kind: ACCURACY or LOSS.
      window: Length of the window in units of `_compute_batch_weights`.
    """
    counts = _compute_batch_weights(batches)
    sums = _compute_batch_sums(batches, kind)
    if len(sums) != len(counts) or all(map(math.isinf, sums)):
        return Curve((), (), (), window)
    total_items = list(itertools.accumulate(batches.items))
    total_counts = list(itertools.accumulate(counts))
    steps = [step for step, total in enumerate(total_counts) if total >= window]
    values = []
    for step in steps:
        # The window starts as late as its length allows.
        first = bisect.bisect_right(total_counts, total_counts[step] - window)
        weight = sum(counts[first : step + 1])
        values.append(math.fsum(sums[first : step + 1]) / weight)
    return Curve(
        tuple(total_items[step] for step in steps),
        tuple(total_counts[step] for step in steps),
        tuple(values),
        window,
    )


def _compute_batch_sums(batches: Batches, kind: str) -> Sequence[float]:
    """Return the sum of each batch: correct predictions, or loss times its weight.

    A loss that was not finite is infinite. The result is empty if not recorded.
    """
    if kind == ACCURACY:
        return batches.correct or ()
    losses = [math.inf if loss is None else loss for loss in batches.loss]
    return list(map(operator.mul, losses, _compute_batch_weights(batches)))


def find_items_to(curve: Curve, target: Target) -> int | None:
    """Return the items until a run reached a target and stayed there.

    Returns:
      None if it did not, or if less than a window followed.
    """
    first = len(curve.values)
    while first and target.is_met(curve.values[first - 1]):
        first -= 1
    if first == len(curve.values):
        return None
    if curve.counts[-1] - curve.counts[first] < curve.window:
        return None
    return curve.items[first]


def measure_learning(rows: Sequence[Row], target: Target | None) -> Learning | None:
    """Return the items and seconds that rows need to a target.

    Rows that train several models, or did not record their progress, are left out.

    Args:
      target: By default the highest of LEVELS that every run reaches.

    Returns:
      None without a target if no run counted correct predictions.
    """
    rows = [
        row for row in rows if _has_learning_curve(row, needs_accuracy=target is None)
    ]
    if not rows:
        return None
    windows = _choose_window_lengths(rows)
    kind = target.kind if target else ACCURACY
    curves: list[list[Curve]] = []
    for row in rows:
        window = windows[row.unit]
        curves.append([smooth(run.batches, kind, window) for run in row.good_runs])
    if target is None:
        target = _find_highest_common_level(list(itertools.chain.from_iterable(curves)))
    results = tuple(map(_measure_row, rows, curves, itertools.repeat(target)))
    return Learning(target, results, windows, tuple(find_other_training(rows)))


def _has_learning_curve(row: Row, needs_accuracy: bool) -> bool:
    """Return whether a row trains one model, and recorded its progress."""
    if not row.good_runs:
        return False
    mode = registry.find_mode(row.options["variable_update"])
    if row.num_devices > 1 and not mode.trains_one_model:
        return False
    if needs_accuracy and not all(run.batches.correct for run in row.good_runs):
        return False
    return all(run.batches.items for run in row.good_runs)


def _find_highest_common_level(curves: Sequence[Curve]) -> Target:
    """Return the highest of LEVELS that all curves reach, or the lowest one."""
    for level in _LEVELS:
        target = Target(ACCURACY, level, is_chosen_by_user=False)
        if all(find_items_to(curve, target) for curve in curves):
            break
    return target


def _choose_window_lengths(rows: Sequence[Row]) -> dict[str, float]:
    """Return the length of the windows of each unit, from its largest batches."""
    windows: dict[str, float] = {}
    for row in rows:
        for run in row.good_runs:
            counts = _compute_batch_weights(run.batches)
            window = WINDOW_BATCHES * sum(counts) / len(counts)
            windows[row.unit] = max(window, windows.get(row.unit, 0.0))
    return windows


def _measure_row(row: Row, curves: Sequence[Curve], target: Target) -> LearningResult:
    """Return the result of a row, given the curve of each of its good runs.

    All good runs count for the items. For the seconds, only runs with an undisturbed
    speed count.
    """
    run_items = tuple(find_items_to(curve, target) for curve in curves)
    values = list(itertools.chain.from_iterable(curve.values for curve in curves))
    choose_best = max if target.kind == ACCURACY else min
    best = choose_best(values, default=None)
    reached_items = [items for items in run_items if items is not None]
    if len(reached_items) < len(run_items):
        return LearningResult(
            row, run_items=run_items, items=None, seconds=None, best=best
        )
    items = compute_interval_over_runs(reached_items)
    if len(reached_items) > 1 and len(set(reached_items)) == 1:
        # Runs on equal data have no scatter except the rounding of logarithms.
        kind = IntervalKind(Basis.EQUAL_RUNS)
        items = Interval(
            float(reached_items[0]), kind=kind, run_counts=items.run_counts
        )
    rates = {id(run): rate for run, rate in zip(row.counted_runs, row.run_rates)}
    seconds = []
    for num_items, run in zip(reached_items, row.good_runs):
        if id(run) in rates:
            seconds.append(num_items / rates[id(run)])
    mean_seconds = compute_interval_over_runs(seconds)
    if row.corrected is not None:
        mean_seconds = mean_seconds.with_further_error(
            row.corrected.error, CORRECTION_DEGREES, Note.CORRECTED
        )
    mean_seconds = mean_seconds.with_rounding(row.rounding)
    return LearningResult(
        row, run_items=run_items, items=items, seconds=mean_seconds, best=best
    )


def find_loss_growth(losses: Sequence[float | None]) -> float | None:
    """Return the last loss / the first one; None if below DIVERGENCE_FACTOR, or unknown."""
    known_losses = [loss for loss in losses if loss is not None]
    if (
        len(known_losses) < 2
        or known_losses[0] <= 0
        or known_losses[-1] < DIVERGENCE_FACTOR * known_losses[0]
    ):
        return None
    return known_losses[-1] / known_losses[0]


def has_diverged(run: RunRecord) -> bool:
    """Return whether the training of a run diverged.

    In a record of this suite, a missing loss was not finite.
    """
    losses = run.batches.loss
    is_ours = TRAINER not in run.options
    if is_ours and losses and losses[-1] is None:
        return True
    return bool(find_loss_growth(losses) or _find_end_of_loss(losses))


def _find_end_of_loss(losses: Sequence[float | None]) -> int | None:
    """Return the first batch from which no loss is finite.

    Returns:
      None if a later loss is finite, or if fewer than two earlier ones are.
    """
    if None not in losses:
        return None
    end = losses.index(None)
    if end < 2 or any(loss is not None for loss in losses[end:]):
        return None
    return end
