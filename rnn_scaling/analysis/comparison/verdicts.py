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
from rnn_scaling.analysis.comparison.matching import Configuration, Runs
from rnn_scaling.analysis.comparison.step_times import StepTimeChange
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.analysis.rows import Row, process_rates
from rnn_scaling.analysis.significance import Comparison
from rnn_scaling.records.parts import RunError

ALPHA = 1 - confidence.LEVEL
MOST_RUNS = 1000
TOO_FEW = "fewer than 2 runs per side"
ASSUMED_SPREADS = (
    0.01,
    0.03,
)  # of rates between processes, where one run says nothing about it


@dataclasses.dataclass(frozen=True)
class Result:
    label: str
    runs: tuple[int, int]  # good runs that were used, before and after
    # The metric with the interval that a report of its side gives, None where it cannot be known.
    before: Interval | None = None
    after: Interval | None = None
    comparison: Comparison | None = None
    p_adjusted: float | None = (
        None  # p-value after Holm's correction over all configurations
    )
    verdict: str = "cannot judge"  # or "faster", "slower", "no difference seen"
    gate: str = "cannot judge"  # or "ok", "regression"
    reason: str = ""  # why it cannot be judged; empty otherwise
    notes: tuple[str, ...] = ()  # what else is to be known about its runs
    # Names of the disturbed runs, before and after, that do not count.
    disturbed: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    step_times: tuple[
        StepTimeChange, ...
    ] = ()  # by percentile; empty if a run has none


def measure(
    configuration: Configuration,
    metric: Metric,
    paired: bool,
    two_sittings: bool = False,
) -> Result:
    """Compares one configuration, by itself: `conclude` judges them together."""
    before, after = configuration.before, configuration.after
    counts = tuple(
        len(matching.good(side.files)) if side else 0 for side in (before, after)
    )
    result = Result(
        configuration.label,
        (counts[0], counts[1]),
        notes=_not_ok(configuration),
        disturbed=configuration.disturbed,
    )
    why = _not_good(before, "before", metric) or _not_good(after, "after", metric)
    if before is None or after is None or why:
        return dataclasses.replace(result, reason=why)
    rows = (_row(before, two_sittings), _row(after, two_sittings))
    if same := matching.on_both_sides(before, after):
        return dataclasses.replace(
            result, reason=f"the same runs on both sides ({same})"
        )
    if rows[0].unit != rows[1].unit:
        return dataclasses.replace(
            result, reason=f"before counts {rows[0].unit}, after counts {rows[1].unit}"
        )
    if paired:
        return _in_pairs(result, (before, after), metric)
    shown = (_reported(before).metric(metric), _reported(after).metric(metric))
    result = dataclasses.replace(result, before=shown[0], after=shown[1])
    values = (rows[0].metric(metric), rows[1].metric(metric))
    if values[0] is None or values[1] is None:
        side = "before" if values[0] is None else "after"
        return dataclasses.replace(
            result, reason=f"the runs {side} have no {metric.title}"
        )
    comparison = significance.judged(confidence.ratio(values[1], values[0]))
    why = TOO_FEW if comparison.verdict == "cannot judge" else ""
    return dataclasses.replace(result, comparison=comparison, reason=why)


def _not_good(side: Runs | None, when: str, metric: Metric) -> str:
    """Why a side by itself says nothing; empty if it does."""
    if side is None:
        return f"no run {when}"
    if not matching.good(side.files):
        if len(side.files) > 1:
            return f"none of {len(side.files)} runs is good {when}"
        status = side.files[0].record.status
        return f"the only run {when} {'measured nothing' if status == 'ok' else status}"
    if metric.ideal is not None and not matching.good(side.baseline):
        return f"no good run on one device {when}, which {metric.title} is relative to"
    return ""


def _row(side: Runs, drifting: bool = False) -> Row:
    """What is tested: by the scatter of its own runs alone, as the error rates of the test assume."""
    baseline = _row(Runs(side.baseline), drifting) if side.baseline else None
    records = sorted(
        (file.record for file in side.files),
        key=lambda record: record.environment.started or "",
    )
    row = Row(tuple(records), (), baseline)
    if drifting and row.good:
        return dataclasses.replace(
            row, scatter=confidence.drifting_scatter(process_rates(row.counted))
        )
    return row


def _reported(side: Runs) -> Row:
    """What is shown: the row that a report has of these runs, with the scatter that it shares with others there."""
    row = _row(side)
    baseline = row.one_device and dataclasses.replace(
        row.one_device, scatter=side.baseline_scatter
    )
    return dataclasses.replace(row, one_device=baseline, scatter=side.scatter)


def conclude(results: Sequence[Result], max_regression: float) -> list[Result]:
    """Adds the verdicts of all configurations together; `max_regression` is the largest slow-down that passes."""
    p_values = {
        i: r.comparison.p_value
        for i, r in enumerate(results)
        if not r.reason and r.comparison
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
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def runs_needed(comparison: Comparison, target: float) -> int | None:
    """Runs per side until a slow-down of `target` is detectable, by their spread; None if more than MOST_RUNS."""
    change, fewest = comparison.ratio, min(comparison.ratio.processes, default=0)
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
    real, gate = p_adjusted < ALPHA, significance.gate(comparison, max_regression)
    verdict = (
        ("faster" if comparison.ratio.value > 1 else "slower")
        if real
        else "no difference seen"
    )
    reason = ""
    if gate == "regression" and not real:
        gate = "cannot judge"
    if gate == "cannot judge":
        needed = runs_needed(comparison, max_regression)
        reason = (
            f"a slow-down of {100 * max_regression:g} % is neither shown nor excluded"
        )
        if needed and needed > min(result.runs):
            reason += f"; about {needed} runs per side would show it or exclude it"
    return dataclasses.replace(
        result, p_adjusted=p_adjusted, verdict=verdict, gate=gate, reason=reason
    )


def _in_pairs(result: Result, sides: tuple[Runs, Runs], metric: Metric) -> Result:
    """Runs with the same repeat number, which ran next to each other."""
    numbered = [_by_repeat(side, metric) for side in sides]
    twice = [
        n
        for values_of in numbered
        for n, values in values_of.items()
        if len(values) > 1
    ]
    if twice:
        why = f"several files are repeat {min(twice)}, so the pairs are ambiguous"
        return dataclasses.replace(result, runs=(0, 0), reason=why)
    both = sorted(numbered[0].keys() & numbered[1].keys())
    notes = result.notes
    if alone := sum(map(len, numbered)) - 2 * len(both):
        notes = (
            *notes,
            f"{alone} runs without a good partner of the same repeat number are left out",
        )
    result = dataclasses.replace(result, runs=(len(both), len(both)), notes=notes)
    if not both:
        return dataclasses.replace(result, reason="no pair of good runs")
    before, after = ([values_of[n][0] for n in both] for values_of in numbered)
    used = [
        tuple(file for file in side.files if matching.repeat(file.name) in both)
        for side in sides
    ]
    means = [
        _reported(dataclasses.replace(side, files=files)).metric(metric)
        for side, files in zip(sides, used)
    ]
    if len(both) > 1:
        digits = sum(max(value.rounding for value in side) for side in (before, after))
        ratio = confidence.paired_ratio(
            [rate.value for rate in before], [rate.value for rate in after]
        )
        ratio, reason = ratio.printed(digits), ""
    else:
        ratio, reason = confidence.ratio(after[0], before[0]), TOO_FEW
    judged = significance.judged(ratio, paired=True)
    return dataclasses.replace(
        result, before=means[0], after=means[1], comparison=judged, reason=reason
    )


def _by_repeat(side: Runs, metric: Metric) -> dict[int, list[Interval]]:
    """The metric of each repeat; a speedup is relative to the run on one device of the same repeat."""
    values: dict[int, list[Interval]] = collections.defaultdict(list)
    for file in matching.good(side.files):
        number = matching.repeat(file.name)
        ones = [
            (run,)
            for run in matching.good(side.baseline)
            if matching.repeat(run.name) == number
        ]
        for baseline in ones if metric.ideal else [()]:
            value = _row(Runs((file,), baseline)).metric(metric)
            if value is not None:
                values[number].append(value)
    return values


def _not_ok(configuration: Configuration) -> tuple[str, ...]:
    notes = []
    for side, when in (
        (configuration.before, "before"),
        (configuration.after, "after"),
    ):
        files = side.files if side else ()
        bad = [file for file in files if not matching.good([file])]
        if bad:
            error = bad[0].record.error or RunError(type=bad[0].record.status)
            why = f"{error.type}: {' '.join(error.message.split())[:120]}".rstrip(": ")
            notes.append(
                f"{len(bad)} of {len(files)} runs {when} {bad[0].record.status} ({bad[0].name}: {why})"
            )
    return tuple(notes)
