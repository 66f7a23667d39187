"""The runs of a configuration before and after -> how much it changed, whether that is real, whether it passes.

Student's t over pairs or Welch's over processes (statistics.py); over several configurations Holm's step-down keeps
the chance of any false alarm at 5 %.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence

from rnn_scaling.analysis import confidence, rows
from rnn_scaling.analysis.comparison import matching
from rnn_scaling.analysis.comparison.matching import Configuration, Runs
from rnn_scaling.analysis.confidence import Comparison, Interval
from rnn_scaling.analysis.student import t_cdf
from rnn_scaling.records.folder import RunFile

METRICS = ("words_per_second", "speedup", "efficiency")
ALPHA = 1 - confidence.LEVEL
MOST_RUNS = 1000
ASSUMED_SPREADS = (0.01, 0.03)  # of rates between processes, where one run says nothing about it


@dataclasses.dataclass(frozen=True)
class Result:
    """One configuration judged.

    Attributes:
      runs: good runs that were used, before and after.
      before, after: the metric with its interval, None where it cannot be known.
      comparison: change with interval, p-value and smallest detectable slow-down; None if nothing could be compared.
      p_adjusted: p-value after Holm's correction over all configurations.
      verdict: "faster", "slower", "no difference seen" or "cannot judge".
      gate: "ok", "regression" or "cannot judge".
      reason: why it cannot be judged; empty otherwise.
      notes: what else is to be known about its runs.
    """

    label: str
    runs: tuple[int, int]
    before: Interval | None
    after: Interval | None
    comparison: Comparison | None
    p_adjusted: float | None = None
    verdict: str = "cannot judge"
    gate: str = "cannot judge"
    reason: str = ""
    notes: tuple[str, ...] = ()


def measure(configuration: Configuration, metric: str, paired: bool) -> Result:
    """Compares one configuration, by itself: `conclude` judges them together."""
    sides = (configuration.before, configuration.after)
    label, notes = configuration.label, _not_ok(configuration)
    counts = tuple(len(matching.good(side.files)) if side else 0 for side in sides)
    for side, when in zip(sides, ("before", "after")):
        if side is None or not matching.good(side.files):
            why = "no run" if side is None else f"none of {len(side.files)} runs is good"
            return Result(label, counts, None, None, None, reason=f"{why} {when}", notes=notes)
        if metric != "words_per_second" and not matching.good(side.baseline):
            why = f"no good run on one device {when}, which {metric} is relative to"
            return Result(label, counts, None, None, None, reason=why, notes=notes)
    if paired:
        return _in_pairs(label, sides, metric, notes)
    intervals = [_interval(side, metric) for side in sides]
    if metric == "words_per_second":
        comparison = confidence.compare(*([_rate(file) for file in matching.good(side.files)] for side in sides))
    else:
        comparison = _from_change(confidence.ratio(intervals[1], intervals[0]))
    if comparison.verdict == "cannot judge":
        # What the batches of single runs tell is shown, and never judged by.
        comparison = dataclasses.replace(comparison, ratio=confidence.ratio(intervals[1], intervals[0]))
        return Result(label, counts, *intervals, comparison, reason=_too_few(counts), notes=notes)
    return Result(label, counts, *intervals, comparison, notes=notes)


def conclude(results: Sequence[Result], max_regression: float) -> list[Result]:
    """Adds the verdicts of all configurations together.

    Args:
      max_regression: the largest slow-down that is let through, as a share.
    """
    tested = [i for i, r in enumerate(results) if not r.reason and r.comparison and r.comparison.p_value is not None]
    adjusted = dict(zip(tested, holm([results[i].comparison.p_value for i in tested])))
    return [_conclude(result, adjusted.get(i), max_regression) for i, result in enumerate(results)]


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values which, compared with 5 % each, give at most 5 % chance of any false alarm among them all.

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scand. J. Statist. 6, 1979. Holds for any
    dependence, as between speedups that share a baseline.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def runs_needed(comparison: Comparison, target: float) -> int | None:
    """Runs a side until a slow-down of `target` is detectable, by the spread of these; None if more than MOST_RUNS."""
    change, fewest = comparison.ratio, min(comparison.ratio.processes, default=0)
    if change.standard_error is None or fewest < 2:
        return None
    spread = change.standard_error / change.value * math.sqrt(fewest)
    return _fewest(spread, change.degrees / (fewest - 1), target)


def runs_for_spread(spread: float, target: float) -> int | None:
    """The same where two independent sides of processes have this relative standard deviation."""
    return _fewest(spread * math.sqrt(2), 2, target)


def _fewest(spread: float, degrees_each: float, target: float) -> int | None:
    """Smallest k for which an error of spread / sqrt(k) with (k - 1) * degrees_each degrees shows `target`."""
    limit = -math.log1p(-target) if target < 1 else math.inf

    def enough(k: int) -> bool:
        return confidence.detectable_effect(spread / math.sqrt(k), degrees_each * (k - 1)) <= limit

    low, high = 2, MOST_RUNS
    if not limit or not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def _conclude(result: Result, p_adjusted: float | None, max_regression: float) -> Result:
    comparison = result.comparison
    if p_adjusted is None or comparison is None:
        return result
    real, gate = p_adjusted < ALPHA, confidence.gate(comparison, max_regression)
    verdict = ("faster" if comparison.ratio.value > 1 else "slower") if real else "no difference seen"
    reason = ""
    if gate == "regression" and not real:
        gate = "cannot judge"
    if gate == "cannot judge":
        needed = runs_needed(comparison, max_regression)
        reason = f"a slow-down of {100 * max_regression:g} % is neither shown nor excluded"
        if needed and needed > min(result.runs):
            reason += f"; about {needed} runs a side would show it or exclude it"
    return dataclasses.replace(result, p_adjusted=p_adjusted, verdict=verdict, gate=gate, reason=reason)


def _rate(file: RunFile) -> float:
    return confidence.process_rate(*rows.measured_batches(file.record))


def _rates(files: Sequence[RunFile]) -> Interval:
    measured = [rows.measured_batches(file.record) for file in matching.good(files)]
    return confidence.rate_interval([seconds for seconds, _ in measured], [words for _, words in measured])


def _interval(side: Runs, metric: str) -> Interval:
    rate = _rates(side.files)
    if metric == "words_per_second":
        return rate
    speedup = confidence.ratio(rate, _rates(side.baseline))
    return speedup if metric == "speedup" else speedup.scaled(1 / side.num_devices)


def _from_change(change: Interval) -> Comparison:
    """As statistics.compare, of a ratio that is known already."""
    if change.standard_error is None or min(change.processes) < 2:
        return Comparison(change, None, None, False, "cannot judge")
    error = change.standard_error / change.value
    distance = abs(math.log(change.value))
    p_value = 2 * (1 - t_cdf(distance / error, change.degrees)) if error else float(distance == 0)
    detectable = -math.expm1(-confidence.detectable_effect(error, change.degrees))
    return Comparison(change, p_value, detectable, False, "no difference seen")


def _in_pairs(label: str, sides: Sequence[Runs], metric: str, notes: tuple[str, ...]) -> Result:
    """Runs with the same repeat number, which ran beside each other."""
    numbered = [_by_repeat(side, metric) for side in sides]
    twice = [n for each in numbered for n, values in each.items() if len(values) > 1]
    if twice:
        why = f"several files are repeat {min(twice)} of it, so nobody can tell which are a pair"
        return Result(label, (0, 0), None, None, None, reason=why, notes=notes)
    both = sorted(numbered[0].keys() & numbered[1].keys())
    alone = sum(len(each) for each in numbered) - 2 * len(both)
    if alone:
        notes = (*notes, f"{alone} runs without a good partner of the same repeat number are left out")
    values = [[each[n][0] for n in both] for each in numbered]
    counts = (len(both), len(both))
    if not both:
        return Result(label, counts, None, None, None, reason="no pair of good runs", notes=notes)
    intervals = [confidence.over_processes(side) for side in values]
    if len(both) > 1:
        return Result(label, counts, *intervals, confidence.compare(*values, paired=True), notes=notes)
    intervals = [_interval(Runs(*_only(side, both[0])), metric) for side in sides]
    change = Comparison(confidence.ratio(intervals[1], intervals[0]), None, None, True, "cannot judge")
    return Result(label, counts, *intervals, change, reason=_too_few(counts), notes=notes)


def _only(side: Runs, number: int) -> tuple[tuple[RunFile, ...], ...]:
    return tuple(tuple(f for f in files if matching.repeat(f.name) == number) for files in (side.files, side.baseline))


def _by_repeat(side: Runs, metric: str) -> dict[int, list[float]]:
    """The metric of each repeat; a speedup is relative to the run on one device of the same repeat."""
    rates, ones = (_grouped(files) for files in (side.files, side.baseline))
    if metric == "words_per_second":
        return rates
    share = side.num_devices if metric == "efficiency" else 1
    return {n: [rate / one / share for rate in rates[n] for one in ones[n]] for n in rates if n in ones}


def _grouped(files: Sequence[RunFile]) -> dict[int, list[float]]:
    groups: dict[int, list[float]] = collections.defaultdict(list)
    for file in matching.good(files):
        groups[matching.repeat(file.name)].append(_rate(file))
    return dict(groups)


def _too_few(counts: Sequence[int]) -> str:
    return f"{counts[0]} and {counts[1]} runs; two a side are the least, five or more are usual"


def _not_ok(configuration: Configuration) -> tuple[str, ...]:
    notes = []
    for side, when in ((configuration.before, "before"), (configuration.after, "after")):
        files = side.files if side else ()
        bad = [file for file in files if not matching.is_good(file)]
        if bad:
            error = bad[0].record.error or {}
            message = " ".join(str(error.get("message", "")).split())[:120]
            why = f"{error.get('type', bad[0].record.status)}: {message}".rstrip(": ")
            notes.append(f"{len(bad)} of {len(files)} runs {when} {bad[0].record.status} ({bad[0].name}: {why})")
    return tuple(notes)
