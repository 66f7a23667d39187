"""Compares the latest entry of each curve with the level before it, as `compare` judges two sets of runs."""

import math

from rnn_scaling.analysis import significance
from rnn_scaling.analysis.comparison import judgement, verdicts
from rnn_scaling.analysis.comparison.judgement import Report
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.analysis.history.curves import Curve, Timeline
from rnn_scaling.analysis.metrics import RATE, common_unit
from rnn_scaling.analysis.student import t_cdf

TOO_FEW = "fewer than 3 entries"


def check(history: str, shown: Timeline, max_regression: float) -> Report:
    """Judges the curves that are in the latest entry of their machine; `history`: its name."""
    current = [curve for curve in shown.curves if _is_current(curve, shown)]
    results = verdicts.conclude([_measure(curve) for curve in current], max_regression)
    return Report(
        before=f"the level in {history}",
        after=f"the latest entry, {shown.entries[-1].name}",
        runs=(sum(result.runs[0] for result in results), sum(result.runs[1] for result in results)),
        metric=RATE.named_after(common_unit(curve.unit for curve in current)),
        max_regression=max_regression,
        results=tuple(results),
        exit_status=judgement.exit_status_of(results),
        only_before=tuple(curve.title for curve in shown.curves if curve not in current),
        is_history=True,
    )


def _is_current(curve: Curve, shown: Timeline) -> bool:
    """Whether the latest commit of its machine has the curve; a curve that is no longer measured is not judged."""
    place, last = curve.points[-1].place, curve.points[-1].entry
    later = [entry for entry in shown.entries[place + 1 :] if entry.machine == last.machine]
    return all(entry.commit and entry.source == last.source for entry in later)


def _measure(curve: Curve) -> Result:
    """Compares the latest entry with the level before it, or two levels if this entry revealed a step."""
    levels, last = curve.levels, len(curve.points) - 1
    edges = [0, *levels.cuts]
    if levels.found[-1:] == (last,):
        before, after, stop = (edges[-2], edges[-1]), (edges[-1], last + 1), last + 1
    else:
        before, after, stop = (edges[-1], last), (last, last + 1), last
    sizes = [len(point.configuration.rates) for point in curve.points]
    runs = (sum(sizes[slice(*before)]), sum(sizes[slice(*after)]))
    if len(curve.points) < 3:
        return Result(curve.title, runs, after=curve.points[-1].rate, reason=TOO_FEW)
    change = levels.change(before, after, stop)
    error, ratio = change.relative_error or 1.0, change.value
    p_value = 2 * (1 - t_cdf(abs(math.log(ratio)) / error, change.degrees))
    detectable = -math.expm1(-significance.detectable_effect(error, change.degrees))
    comparison = significance.Comparison(change, p_value, detectable, False, "")
    return Result(curve.title, runs, levels.rate(before, stop), levels.rate(after, stop), comparison)
