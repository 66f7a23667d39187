"""The runs of a configuration before and after -> how much it changed, whether that is real, whether it passes.

Student's t over pairs or Welch's over processes (significance.py); over several configurations Holm's step-down keeps
the chance of any false alarm at 5 %.
"""

import bisect
import collections
import dataclasses
import math
from collections.abc import Iterable, Sequence

from rnn_scaling.analysis import confidence, significance
from rnn_scaling.analysis.comparison import matching
from rnn_scaling.analysis.comparison.matching import Configuration
from rnn_scaling.analysis.comparison.step_times import StepTimeChange
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.analysis.rows import Row, process_rates
from rnn_scaling.analysis.significance import Comparison, Gate, Verdict
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord

ALPHA = 1 - confidence.LEVEL
MOST_RUNS = 1000
MOST_LETTERS = 120  # of an error in a note
TOO_FEW = "too-few-runs"  # kind of a reason
# Relative spread of rates between processes that is assumed if one run cannot show it.
ASSUMED_SPREADS = (0.01, 0.03)


@dataclasses.dataclass(frozen=True)
class Result:
    """What is known of one configuration.

    Attributes:
      label: Its name.
      runs: Good runs that were used, before and after.
      before: The metric before, with the interval that a report of its side gives; None
        if it is unknown.
      after: The metric after, in the same way.
      comparison: The test; None if there is none.
      p_adjusted: p-value after Holm's correction over all configurations.
      verdict: Whether it changed.
      gate: Whether it passes.
      reason: Why it cannot be judged; None if it can.
      notes: What else must be known about its runs.
      disturbed: Names of the disturbed runs, before and after, that do not count.
      step_times: Changes by percentile; empty if a run has none.
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


def measure(
    configuration: Configuration,
    metric: Metric,
    paired: bool,
    two_sittings: bool = False,
) -> Result:
    """Compares one configuration, by itself: `conclude` judges them together."""
    before = configuration.before
    after = configuration.after
    counts = [len(side.good_runs) if side else 0 for side in (before, after)]
    result = Result(
        configuration.label,
        tuple(counts),
        notes=tuple(_bad_runs(configuration)),
        disturbed=configuration.disturbed,
    )
    reason = _unusable(before, "before", metric) or _unusable(after, "after", metric)
    if before is None or after is None or reason:
        return dataclasses.replace(result, reason=reason)
    if shared := matching.count_shared_runs(before, after):
        return _because(result, "shared-runs", runs=shared)
    if before.unit != after.unit:
        return _because(result, "other-units", before=before.unit, after=after.unit)
    if paired:
        return _in_pairs(result, configuration, metric)
    result = dataclasses.replace(
        result, before=before.metric(metric), after=after.metric(metric)
    )
    tested = [_tested(row, two_sittings).metric(metric) for row in (before, after)]
    if tested[0] is None or tested[1] is None:
        side = "before" if tested[0] is None else "after"
        return _because(result, "metric-unknown", side=side, metric=metric.title)
    comparison = significance.judge_ratio(confidence.ratio(tested[1], tested[0]))
    result = dataclasses.replace(result, comparison=comparison)
    unjudged = comparison.verdict is Verdict.UNJUDGED
    return _because(result, TOO_FEW) if unjudged else result


def _because(result: Result, kind: str, **values: object) -> Result:
    return dataclasses.replace(result, reason=Statement(kind, values=values))


def _unusable(side: Row | None, when: str, metric: Metric) -> Statement | None:
    """Return why a side by itself says nothing; None if it does."""
    values: dict[str, object] = {"side": when, "metric": metric.title}
    if side is None:
        return Statement("no-run", values=values)
    if side.good_runs and (metric.ideal is None or side.baseline):
        return None
    if side.good_runs:
        return Statement("no-run-on-one-device", values=values)
    if len(side.records) > 1:
        return Statement("no-good-run", values={**values, "runs": len(side.records)})
    status = side.records[0].status
    kind = "only-run-unmeasured" if status == "ok" else "only-run-failed"
    return Statement(kind, values={**values, "status": status})


def _tested(row: Row, drifting: bool = False) -> Row:
    """Return the row with only the scatter of its own runs.

    The error rates of the test assume that.
    """
    base = row.one_device and _tested(row.one_device, drifting)
    scatter = None
    if drifting and row.good_runs:
        runs = sorted(row.counted_runs, key=_started)
        scatter = confidence.drifting_scatter(process_rates(runs))
    return dataclasses.replace(row, one_device=base, scatter=scatter)


def _started(run: RunRecord) -> str:
    return run.environment.started or ""


def conclude(results: Sequence[Result], max_regression: float) -> list[Result]:
    """Adds the verdicts of all configurations together; `max_regression` is the largest slow-down that passes."""
    p_values = {
        i: r.comparison.p_value
        for i, r in enumerate(results)
        if r.reason is None and r.comparison
    }
    tested = {i: p_value for i, p_value in p_values.items() if p_value is not None}
    adjusted = dict(zip(tested, holm(list(tested.values()))))
    concluded = [
        _conclude(result, adjusted.get(i), max_regression)
        for i, result in enumerate(results)
    ]
    return _step_times_adjusted(concluded, judged=tested)


def _step_times_adjusted(
    results: Sequence[Result], judged: Iterable[int]
) -> list[Result]:
    changes = [
        (i, change.percentile, change.p_value)
        for i in judged
        for change in results[i].step_times
    ]
    tested = {
        (i, percentile): p_value
        for i, percentile, p_value in changes
        if p_value is not None
    }
    adjusted = dict(zip(tested, holm([*tested.values()])))
    concluded = []
    for i, result in enumerate(results):
        found = [
            dataclasses.replace(c, p_adjusted=adjusted.get((i, c.percentile)))
            for c in result.step_times
        ]
        concluded.append(dataclasses.replace(result, step_times=tuple(found)))
    return concluded


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values which, compared with 5 % each, give at most 5 % chance of any false alarm, whatever their dependence.

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scand. J. Statist. 6, 1979.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def runs_needed(comparison: Comparison, target: float) -> int | None:
    """Runs per side until a slow-down of `target` is detectable, by their spread; None if more than MOST_RUNS."""
    change = comparison.ratio
    fewest = min(comparison.ratio.run_counts, default=0)
    if change.relative_error is None or fewest < 2:
        return None
    spread = change.relative_error * math.sqrt(fewest)
    return _fewest(spread, change.degrees / (fewest - 1), target, change.rounding)


def runs_for_spread(spread: float, target: float) -> int | None:
    """The same where two independent sides of processes have this relative standard deviation."""
    return _fewest(spread * math.sqrt(2), 2, target)


def _fewest(
    spread: float, degrees_each: float, target: float, rounding: float = 0.0
) -> int | None:
    """Smallest k for which an error of spread / sqrt(k) with (k - 1) * degrees_each degrees shows `target`."""
    limit = -math.log1p(-target) - rounding if target < 1 else math.inf

    def enough(k: int) -> bool:
        return (
            significance.detectable_effect(
                spread / math.sqrt(k), degrees_each * (k - 1)
            )
            <= limit
        )

    if limit <= 0 or not enough(MOST_RUNS):
        return None
    return bisect.bisect_left(range(2, MOST_RUNS), True, key=enough) + 2


def _conclude(
    result: Result, p_adjusted: float | None, max_regression: float
) -> Result:
    comparison = result.comparison
    if p_adjusted is None or comparison is None:
        return result
    is_real = p_adjusted < ALPHA
    verdict = Verdict.from_ratio(comparison.ratio) if is_real else Verdict.SAME
    gate = significance.gate(comparison, max_regression)
    if gate is Gate.REGRESSION and not is_real:
        gate = Gate.UNJUDGED
    reason = None
    if gate is Gate.UNJUDGED:
        needed = runs_needed(comparison, max_regression)
        is_told = needed is not None and needed > min(result.runs)
        kind = "undecided-runs-needed" if is_told else "undecided"
        values = {"limit": 100 * max_regression, "needed": needed}
        reason = Statement(kind, values=values)
    return dataclasses.replace(
        result, p_adjusted=p_adjusted, verdict=verdict, gate=gate, reason=reason
    )


def _in_pairs(result: Result, configuration: Configuration, metric: Metric) -> Result:
    """Runs with the same repeat number, which ran next to each other."""
    numbered = [_by_repeat(configuration, side, metric) for side in configuration.sides]
    twice = [n for side in numbered for n, values in side.items() if len(values) > 1]
    if twice:
        result = dataclasses.replace(result, runs=(0, 0))
        return _because(result, "ambiguous-pairs", repeat=min(twice))
    both = sorted(numbered[0].keys() & numbered[1].keys())
    if alone := sum(map(len, numbered)) - 2 * len(both):
        note = Statement("runs-without-partner", values={"runs": alone})
        result = dataclasses.replace(result, notes=(*result.notes, note))
    result = dataclasses.replace(result, runs=(len(both), len(both)))
    if not both:
        return _because(result, "no-pair")
    before, after = ([side[n][0] for n in both] for side in numbered)
    means = []
    for side in configuration.sides:
        used = [run for run in side.records if configuration.repeat(run) in both]
        row = dataclasses.replace(side, records=tuple(used))
        means.append(row.metric(metric))
    result = dataclasses.replace(result, before=means[0], after=means[1])
    if len(both) > 1:
        digits = [max(value.rounding for value in side) for side in (before, after)]
        rates = [[value.value for value in side] for side in (before, after)]
        ratio = confidence.paired_ratio(*rates).with_rounding(sum(digits))
    else:
        ratio = confidence.ratio(after[0], before[0])
        result = _because(result, TOO_FEW)
    judged = significance.judge_ratio(ratio, paired=True)
    return dataclasses.replace(result, comparison=judged)


def _by_repeat(
    configuration: Configuration, side: Row, metric: Metric
) -> dict[int, list[Interval]]:
    """The metric of each repeat; a speedup is relative to the run on one device of the same repeat."""
    base = side.one_device
    values: dict[int, list[Interval]] = collections.defaultdict(list)
    for run in side.good_runs:
        number = configuration.repeat(run)
        bases: list[Row | None] = [None]
        if metric.ideal and base:
            bases = [
                _of_run(base, one)
                for one in base.good_runs
                if configuration.repeat(one) == number
            ]
        for one_device in bases:
            row = dataclasses.replace(_of_run(side, run), one_device=one_device)
            if (value := row.metric(metric)) is not None:
                values[number].append(value)
    return values


def _of_run(row: Row, run: RunRecord) -> Row:
    return dataclasses.replace(row, records=(run,), scatter=None)


def _bad_runs(configuration: Configuration) -> Iterable[Statement]:
    for side, when in (
        (configuration.before, "before"),
        (configuration.after, "after"),
    ):
        if side is None:
            continue
        good = {id(run) for run in side.good_runs}
        bad = [run for run in side.records if id(run) not in good]
        if not bad:
            continue
        error = bad[0].error or RunError(type=bad[0].status)
        message = " ".join(error.message.split())[:MOST_LETTERS]
        values = {
            "bad": len(bad),
            "runs": len(side.records),
            "side": when,
            "status": bad[0].status,
            "file": configuration.names[id(bad[0])],
            "why": f"{error.type}: {message}".rstrip(": "),
        }
        yield Statement("bad-runs", values=values)
