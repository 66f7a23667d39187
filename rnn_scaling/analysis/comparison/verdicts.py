"""Verdicts about configurations: whether their rate changed, and whether it passes.

The tests are Student's t over pairs and Welch's t over runs (significance.py).
With several configurations, Holm's correction keeps the probability of any false alarm
at 5 %.

`judgement` calls `measure` for each configuration and then `conclude` for all, because
the correction needs all p-values.
"""

import bisect
import collections
import dataclasses
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from rnn_scaling.analysis import confidence, significance
from rnn_scaling.analysis.comparison import matching
from rnn_scaling.analysis.comparison.drift import Drift
from rnn_scaling.analysis.comparison.matching import Configuration, start_time
from rnn_scaling.analysis.comparison.step_times import StepTimeChange
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.analysis.rows import Row, run_rates
from rnn_scaling.analysis.significance import Comparison, Gate, Verdict
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord

ALPHA = 1 - confidence.LEVEL
_MAX_RUNS = 1000
_MAX_ERROR_LENGTH = 120  # letters of an error in a note
TOO_FEW = "too-few-runs"  # kind of a reason
# Relative spread of rates between runs that is assumed if one run cannot show it.
ASSUMED_SPREADS = (0.01, 0.03)

Name = TypeVar("Name", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Result:
    """The comparison of one configuration.

    Attributes:
      label: The configuration's name.
      runs: Good runs that were used, before and after.
      before: The metric before, with the interval that a report of its side gives; None
        if it is unknown, or if load hides it.
      after: The metric after, in the same way.
      comparison: The test; None if there are too few runs for any.
      p_adjusted: p-value after Holm's correction over all configurations.
      verdict: Whether it changed.
      gate: Whether it passes.
      reason: Why it cannot be judged; None if it can.
      notes: Remarks about its runs.
      disturbed: Names of the disturbed runs, before and after, that do not count.
      step_times: Changes by percentile; empty if a run has no step times.
      drift: The drift between two sessions that the interval includes; None if the
        sides were not measured in two sessions, or the metric is a ratio of runs of
        one session.
      hidden_by_load: Number of sides whose metric load hides, as in a report.
    """

    label: str
    runs: tuple[int, ...]
    before: Interval | None = None
    after: Interval | None = None
    comparison: Comparison | None = None
    p_adjusted: float | None = None
    verdict: Verdict = Verdict.UNJUDGED
    gate: Gate = Gate.UNJUDGED
    reason: Statement | None = None
    notes: tuple[Statement, ...] = ()
    disturbed: tuple[tuple[str, ...], ...] = ((), ())
    step_times: tuple[StepTimeChange, ...] = ()
    drift: Drift | None = None
    hidden_by_load: int = 0


def measure(
    configuration: Configuration,
    metric: Metric,
    paired: bool,
    has_drift: bool = False,
    drift: Drift | None = None,
) -> Result:
    """Return the change of one configuration, without a verdict.

    Args:
      configuration: The configuration.
      metric: The compared metric.
      paired: Whether runs with the same repeat number are compared in pairs.
      has_drift: Whether the sides were measured one after the other.
      drift: The drift between their sessions; None if it is not included.
    """
    row_before = configuration.row_before
    row_after = configuration.row_after
    counts = [len(side.good_runs) if side else 0 for side in (row_before, row_after)]
    result = Result(
        configuration.label,
        tuple(counts),
        notes=tuple(_state_bad_runs(configuration)),
        disturbed=configuration.disturbed,
    )
    reason = _describe_missing_data(row_before, "before", metric)
    reason = reason or _describe_missing_data(row_after, "after", metric)
    if row_before is None or row_after is None or reason:
        return dataclasses.replace(result, reason=reason)
    if num_shared := matching.count_shared_runs(row_before, row_after):
        return _leave_unjudged(result, "shared-runs", runs=num_shared)
    if row_before.unit != row_after.unit:
        return _leave_unjudged(
            result, "other-units", before=row_before.unit, after=row_after.unit
        )
    if paired:
        return _measure_pairs(
            result,
            configuration=configuration,
            row_before=row_before,
            row_after=row_after,
            metric=metric,
        )
    result = dataclasses.replace(
        result,
        before=row_before.shown_metric(metric),
        after=row_after.shown_metric(metric),
        hidden_by_load=_count_hidden([row_before, row_after], metric),
    )
    tested_before = _use_own_scatter(row_before, has_drift).metric(metric)
    tested_after = _use_own_scatter(row_after, has_drift).metric(metric)
    if tested_before is None or tested_after is None:
        side = "before" if tested_before is None else "after"
        return _leave_unjudged(result, "metric-unknown", side=side, metric=metric.title)
    ratio = confidence.divide_rates(
        tested_after, tested_before, drift.scatter if drift else None
    )
    comparison = significance.judge_ratio(ratio)
    if drift is not None and ratio.ends:
        result = dataclasses.replace(result, drift=drift.of_change(ratio))
    result = dataclasses.replace(result, comparison=comparison)
    is_unjudged = comparison.verdict is Verdict.UNJUDGED
    return _leave_unjudged(result, TOO_FEW) if is_unjudged else result


def _leave_unjudged(result: Result, kind: str, **values: object) -> Result:
    """Return the result with the reason why it cannot be judged."""
    return dataclasses.replace(result, reason=state(kind, **values))


def _describe_missing_data(
    side: Row | None, name: str, metric: Metric
) -> Statement | None:
    """State why a side has no value of the metric; None if it has one."""
    values: dict[str, object] = {"side": name, "metric": metric.title}
    if side is None:
        return state("no-run", **values)
    if side.good_runs and (not metric.ideal or side.baseline):
        return None
    if side.good_runs:
        return state("no-run-on-one-device", **values)
    if len(side.records) > 1:
        return state("no-good-run", **values, runs=len(side.records))
    status = side.records[0].status
    kind = "only-run-unmeasured" if status == "ok" else "only-run-failed"
    return state(kind, **values, status=status)


def _use_own_scatter(row: Row, has_drift: bool = False) -> Row:
    """Return the row without the scatter that it shares with other rows.

    The error rates of the test are only right for independent rows.
    """
    base = row.one_device and _use_own_scatter(row.one_device, has_drift)
    scatter = None
    if has_drift and row.good_runs:
        runs = sorted(row.counted_runs, key=start_time)
        rates = run_rates(runs, row.counts_all_batches)
        scatter = confidence.compute_drifting_scatter(rates)
    return dataclasses.replace(row, one_device=base, scatter=scatter)


def conclude(results: Sequence[Result], max_regression: float) -> list[Result]:
    """Return the results with verdicts, corrected for their number.

    Args:
      results: All measured configurations.
      max_regression: The largest slow-down that passes, a share.
    """
    p_values = {}
    step_p_values = {}
    for i, result in enumerate(results):
        if result.reason or not result.comparison:
            continue
        if result.comparison.p_value is None:
            continue
        p_values[i] = result.comparison.p_value
        for change in result.step_times:
            if (p_value := change.p_value) is not None:
                step_p_values[i, change.percentile] = p_value
    adjusted = adjust_p_values(p_values)
    step_adjusted = adjust_p_values(step_p_values)
    concluded = []
    for i, result in enumerate(results):
        changes = [
            dataclasses.replace(
                change, p_adjusted=step_adjusted.get((i, change.percentile))
            )
            for change in result.step_times
        ]
        result = dataclasses.replace(result, step_times=tuple(changes))
        if result.comparison and i in adjusted:
            result = _conclude(result, result.comparison, adjusted[i], max_regression)
        concluded.append(result)
    return concluded


def adjust_p_values(p_values: Mapping[Name, float]) -> dict[Name, float]:
    """Return p-values that can each be compared with 5 %.

    Then the probability of any false alarm is at most 5 %, even if they are dependent.

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scand. J.
    Statist. 6, 1979.
    """
    adjusted = {}
    highest = 0.0
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        corrected_p = (len(p_values) - rank) * p_values[name]
        highest = max(highest, min(1.0, corrected_p))
        adjusted[name] = highest
    return adjusted


def count_needed_runs(
    comparison: Comparison, target: float, drift: Drift | None = None
) -> int | None:
    """Return the runs per side that would show a slow-down of `target`.

    Args:
      comparison: The comparison of the present runs.
      target: The slow-down, a share.
      drift: The drift that the comparison includes; more runs do not reduce it.

    Returns:
      The number, by the spread of the runs; None if it is more than _MAX_RUNS.
    """
    change = comparison.ratio
    num_runs = min(change.run_counts, default=0)
    if change.relative_error is None or num_runs < 2:
        return None
    error = change.relative_error
    degrees = change.degrees
    if drift is not None:
        error, degrees = _subtract_drift(error, degrees, drift)
    return _find_min_runs(
        error * math.sqrt(num_runs),
        degrees_per_run=degrees / (num_runs - 1),
        target=target,
        rounding=change.rounding,
        drift=drift,
    )


def compute_detectable_if_interleaved(
    comparison: Comparison, drift: Drift
) -> float | None:
    """Return the slow-down that interleaved runs would find in 80 of 100 cases.

    Args:
      comparison: The comparison of as many runs that were not interleaved.
      drift: The drift that the comparison includes.

    Returns:
      A share; None if the comparison has no interval.
    """
    change = comparison.ratio
    if change.relative_error is None:
        return None
    error, _ = _subtract_drift(change.relative_error, change.degrees, drift)
    # Interleaved runs are compared in pairs.
    num_pairs = min(change.run_counts)
    if num_pairs < 2:
        return None
    effect = significance.compute_detectable_effect(error, num_pairs - 1)
    return -math.expm1(-effect - change.rounding)


def _subtract_drift(error: float, degrees: float, drift: Drift) -> tuple[float, float]:
    """Return the arguments of `confidence.add_drift`, from its result."""
    drift_variance = 2 * drift.scatter.deviation**2
    variance = max(0.0, error**2 - drift_variance)
    shares = error**4 / degrees - drift_variance**2 / drift.degrees
    if not variance or shares <= 0:
        return math.sqrt(variance), degrees
    return math.sqrt(variance), variance**2 / shares


def runs_for_spread(spread: float, target: float) -> int | None:
    """Return `count_needed_runs` for two sides of this relative standard deviation."""
    return _find_min_runs(spread * math.sqrt(2), 2, target)


def _find_min_runs(
    spread: float,
    degrees_per_run: float,
    target: float,
    rounding: float = 0.0,
    drift: Drift | None = None,
) -> int | None:
    """Return the smallest number of runs per side that shows a slow-down.

    Args:
      spread: Standard error of the log ratio, times the root of the number of runs.
      degrees_per_run: Degrees of freedom / (number of runs - 1).
      target: The slow-down, a share.
      rounding: Largest error of the log ratio because of printed digits.
      drift: The drift between the sides, which does not depend on the number of runs.
    """
    limit = math.inf
    if target < 1:
        limit = -math.log1p(-target) - rounding

    def is_enough(num_runs: int) -> bool:
        error = spread / math.sqrt(num_runs)
        degrees = degrees_per_run * (num_runs - 1)
        if drift is not None:
            error, degrees = confidence.add_drift(error, degrees, drift.scatter)
        return significance.compute_detectable_effect(error, degrees) <= limit

    if limit <= 0 or not is_enough(_MAX_RUNS):
        return None
    return bisect.bisect_left(range(2, _MAX_RUNS), True, key=is_enough) + 2


def _conclude(
    result: Result, comparison: Comparison, p_adjusted: float, max_regression: float
) -> Result:
    """Return a tested result with its verdict."""
    is_real = p_adjusted < ALPHA
    verdict = Verdict.from_ratio(comparison.ratio) if is_real else Verdict.SAME
    gate = significance.gate(comparison, max_regression)
    if gate is Gate.REGRESSION and not is_real:
        gate = Gate.UNJUDGED
    reason = None
    if gate is Gate.UNJUDGED:
        num_runs_needed = count_needed_runs(comparison, max_regression, result.drift)
        kind = "undecided"
        if num_runs_needed is not None and num_runs_needed > min(result.runs):
            kind = "undecided-runs-needed"
        elif num_runs_needed is None and result.drift is not None:
            kind = "undecided-drift"
        reason = state(kind, limit=100 * max_regression, needed=num_runs_needed)
    return dataclasses.replace(
        result, p_adjusted=p_adjusted, verdict=verdict, gate=gate, reason=reason
    )


def _measure_pairs(
    result: Result,
    configuration: Configuration,
    row_before: Row,
    row_after: Row,
    metric: Metric,
) -> Result:
    """Return the change by pairs: runs with the same repeat number ran together."""
    values_before = _group_values_by_repeat(configuration, row_before, metric)
    values_after = _group_values_by_repeat(configuration, row_after, metric)
    all_values = [*values_before.items(), *values_after.items()]
    ambiguous = [repeat for repeat, values in all_values if len(values) > 1]
    if ambiguous:
        result = dataclasses.replace(result, runs=(0, 0))
        return _leave_unjudged(result, "ambiguous-pairs", repeat=min(ambiguous))
    repeats = sorted(values_before.keys() & values_after.keys())
    if unpaired := len(values_before) + len(values_after) - 2 * len(repeats):
        note = state("runs-without-partner", runs=unpaired)
        result = dataclasses.replace(result, notes=(*result.notes, note))
    result = dataclasses.replace(result, runs=(len(repeats), len(repeats)))
    if not repeats:
        return _leave_unjudged(result, "no-pair")
    sides = []
    for side in (row_before, row_after):
        runs = [run for run in side.records if configuration.repeat(run) in repeats]
        sides.append(dataclasses.replace(side, records=tuple(runs)))
    result = dataclasses.replace(
        result,
        before=sides[0].shown_metric(metric),
        after=sides[1].shown_metric(metric),
        hidden_by_load=_count_hidden(sides, metric),
    )
    paired_before = [values_before[repeat][0] for repeat in repeats]
    paired_after = [values_after[repeat][0] for repeat in repeats]
    if len(repeats) > 1:
        ratio = confidence.compute_paired_ratio(
            [interval.value for interval in paired_before],
            [interval.value for interval in paired_after],
        )
        rounding_before = max(interval.rounding for interval in paired_before)
        rounding_after = max(interval.rounding for interval in paired_after)
        ratio = ratio.with_rounding(rounding_before + rounding_after)
    else:
        ratio = confidence.divide_rates(paired_after[0], paired_before[0])
        result = _leave_unjudged(result, TOO_FEW)
    comparison = significance.judge_ratio(ratio, paired=True)
    return dataclasses.replace(result, comparison=comparison)


def _count_hidden(sides: Sequence[Row], metric: Metric) -> int:
    """Return on how many sides the load of other programs hides the metric."""
    return sum(bool(metric.ideal) and side.is_speedup_hidden for side in sides)


def _group_values_by_repeat(
    configuration: Configuration, side: Row, metric: Metric
) -> dict[int, list[Interval]]:
    """Return the metric of each repeat.

    A speedup is relative to the run on one device with the same repeat number.
    """
    base = side.one_device
    values: dict[int, list[Interval]] = collections.defaultdict(list)
    for run in side.good_runs:
        repeat = configuration.repeat(run)
        bases: list[Row | None] = [None]
        if metric.ideal and base:
            bases = [
                _select_run(base, base_run)
                for base_run in base.good_runs
                if configuration.repeat(base_run) == repeat
            ]
        for one_device in bases:
            row = dataclasses.replace(_select_run(side, run), one_device=one_device)
            if (value := row.metric(metric)) is not None:
                values[repeat].append(value)
    return values


def _select_run(row: Row, run: RunRecord) -> Row:
    return dataclasses.replace(row, records=(run,), scatter=None)


def _state_bad_runs(configuration: Configuration) -> Iterator[Statement]:
    """Yield a note for each side with runs that measured nothing."""
    sides = {"before": configuration.row_before, "after": configuration.row_after}
    for name, side in sides.items():
        if side is None:
            continue
        good_run_ids = set(map(id, side.good_runs))
        bad_runs = [run for run in side.records if id(run) not in good_run_ids]
        if not bad_runs:
            continue
        error = bad_runs[0].error or RunError(type=bad_runs[0].status)
        message = " ".join(error.message.split())[:_MAX_ERROR_LENGTH]
        yield state(
            "bad-runs",
            bad=len(bad_runs),
            runs=len(side.records),
            side=name,
            status=bad_runs[0].status,
            file=configuration.names[id(bad_runs[0])],
            why=f"{error.type}: {message}".rstrip(": "),
        )
