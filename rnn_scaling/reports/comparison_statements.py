"""The verdict of a comparison, what it rests on, and which of two settings is faster, as statements."""

from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.comparison import costs, verdicts
from rnn_scaling.analysis.comparison.judgement import MachineRatio, Report, of_machine
from rnn_scaling.analysis.comparison.matching import ALL_DEVICES, PER_DEVICE
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.analysis.confidence import ORDERED, Interval
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.reports.numbers import has_interval

MOST_STEP_TIMES = 3  # sentences about step times
SCOPES = {PER_DEVICE: "Per device", ALL_DEVICES: "With all devices"}


def verdict(report: Report) -> list[Statement]:
    """The answer (for machines, one per scope), and step times that changed although the metric did not."""
    return [*_verdict(report), *step_times(report, (report.before, report.after))]


def step_times(report: Report, names: Sequence[str] = ("A", "B")) -> list[Statement]:
    """The highest percentile that changed in each configuration whose metric did not, largest changes first."""
    highest = []
    for result in report.results:
        shown = [(change.percentile, change.ratio) for change in result.step_times if change.is_shown]
        if shown and result.verdict == "no difference seen":
            highest.append((result.label, *shown[-1]))
    made = [_step_time(report, names, label, percentile, ratio) for label, percentile, ratio in highest if ratio]
    return sorted(made, key=lambda statement: -statement.values["change"])[:MOST_STEP_TIMES]


def _step_time(report: Report, names: Sequence[str], label: str, percentile: int, ratio: Interval) -> Statement:
    low, value, high = sorted(100 * abs(end - 1) for end in (ratio.value, *(ratio.ends or ())))
    values = {"percentile": percentile, "time": report.step_time, "metric": report.metric.title}
    values |= {"before": names[0], "after": names[1], "change": value, "low": low, "high": high}
    return Statement("step-time-grew" if ratio.value > 1 else "step-time-shrank", label, values)


def _verdict(report: Report) -> list[Statement]:
    """The answer; for machines with prices, also the cheapest."""
    if report.machines:
        made = [statement for scope in SCOPES for statement in _of_scope(report, scope)]
        return [*made, *costs.statements(report.machine_costs)]
    sittings = [Statement("two-sittings")] if report.two_sittings else []
    total = len(report.results)
    values: dict[str, Any] = {"limit": 100 * report.max_regression, "total": total}
    slower = [(r.comparison.ratio.value, r.label) for r in report.results if r.gate == "regression" and r.comparison]
    if slower:
        ratio, label = min(slower)
        values |= {"slower": len(slower), "change": 100 * (ratio - 1)}
        return [Statement("regressions" if total > 1 else "regression", label, values), *sittings]
    unjudged = [result for result in report.results if result.gate != "ok"]
    if not unjudged and report.exit_status == 0:
        return [Statement("no-regression", values=values), *sittings]
    grave = [entry.difference for entry in report.found if entry.difference.is_grave]
    if not unjudged:
        return [Statement("not-judged", values={"reasons": [difference.what for difference in grave]})]
    values |= {"unjudged": len(unjudged), "reasons": list(dict.fromkeys(result.reason for result in unjudged))}
    remedy = [Statement("compare-machines-instead")] if any(map(of_machine, grave)) else []
    return [Statement("some-not-judged" if total > 1 else "not-judged", values=values), *remedy]


def _of_scope(report: Report, scope: str) -> list[Statement]:
    """Which machine is faster: by how much in the only series, or in how many of several."""
    ratios = [ratio for ratio in report.machine_ratios if ratio.scope == scope]
    names = {"before": report.before, "after": report.after}
    if len(ratios) == 1:
        [only] = ratios
        ends = {"ratio": only.ratio, "low": only.low, "high": only.high, "reason": only.reason}
        return [Statement(f"machine-{only.kind}", SCOPES[scope], {**names, **ends})]
    groups: dict[str, list[MachineRatio]] = {}
    for ratio in ratios:
        groups.setdefault(ratio.kind, []).append(ratio)
    kinds = [kind for kind in ("faster", "slower", "tie", "unknown") if kind in groups]
    values = {**names, "total": len(ratios)}
    return [Statement(f"machine-{kind}-series", SCOPES[scope], {**values, **_range(groups[kind])}) for kind in kinds]


def _range(ratios: Sequence[MachineRatio]) -> dict[str, Any]:
    values = [ratio.ratio for ratio in ratios if ratio.ratio]
    return {"series": len(ratios), "low": min(values, default=None), "high": max(values, default=None)}


def method(report: Report) -> list[Statement]:
    """Tests, corrections and what the intervals leave out."""
    judged = [result for result in report.results if result.p_adjusted is not None]
    compared = [result.comparison for result in report.results if result.comparison]
    sides = [side for result in report.results for side in (result.before, result.after)]
    kinds = dict.fromkeys(side.kind for side in sides if side and has_interval(side))
    made = [Statement("interval-kind", kind) for kind in kinds]
    if judged and report.is_history:
        made.append(Statement("history-test"))
    elif judged:
        made.append(Statement("paired-test" if report.paired else "unpaired-test"))
    if judged and any(ORDERED in comparison.ratio.kind for comparison in compared):
        made.append(Statement("drift-in-interval"))
    if len(judged) > 1:
        made.append(Statement("corrected-p", values={"configurations": len(judged)}))
    if report.two_sittings:
        made.append(Statement("sittings-drift"))
    elif report.machines:
        made.append(Statement("all-devices-of-runs"))
    elif judged and not report.paired and not report.is_history:
        made.append(Statement("independent-sides"))
    if any(change.ratio and change.ratio.ends for result in report.results for change in result.step_times):
        made.append(Statement("step-time-intervals", report.step_time))
    return [*made, *_single_runs(report)]


def _single_runs(report: Report) -> list[Statement]:
    """Why one run on a side cannot show a change, and how many runs would show a slow-down beyond the limit."""
    single: list[Result] = [r for r in report.results if r.comparison is not None and r.comparison.p_value is None]
    if not single:
        return []
    limit = report.max_regression
    needed = [(verdicts.runs_for_spread(spread, limit), spread) for spread in verdicts.ASSUMED_SPREADS]
    runs = [f"{count} at {100 * spread:.0f} %" for count, spread in needed if count]
    both = all(max(result.runs) == 1 for result in single)
    made = [Statement("one-run-a-side" if both else "one-run-on-one-side")]
    return [*made, Statement("runs-needed", values={"limit": 100 * limit, "runs": runs})] if runs else made


def ab_answer(report: Report) -> list[Statement]:
    """That one setting is faster, by how much, or why that is not clear."""
    unlike = list(dict.fromkeys(f.difference.what for f in report.found if f.difference.is_grave))
    if options := [fact for fact in unlike if fact.startswith("--")]:
        return [Statement("ab-other-work", values={"options": options})]
    if unlike:
        return [Statement("ab-unlike", values={"facts": unlike})]
    ratios = [result.comparison.ratio for result in report.results if result.comparison is not None]
    if len(ratios) != 1 or len(report.results) != 1:
        reasons = list(dict.fromkeys(result.reason for result in report.results if result.reason))
        return [Statement("ab-no-answer", values={"reasons": reasons or ["no configuration in common"]})]
    return [_ab_ratio(ratios[0], report.results[0].runs[0])]


def _ab_ratio(ratio: Interval, pairs: int) -> Statement:
    """Of B's rate over A's in so many pairs."""
    values = {"ratio": interval_values(ratio), "pairs": pairs}
    if ratio.ends is None:
        return Statement("ab-one-pair", values=values)
    low, high = ratio.ends
    if low <= 1 <= high:
        digits = 2 if high - low >= 0.05 else 3
        ends = {"low": round(low, digits), "high": round(high, digits)}
        return Statement("ab-wide" if ratio.is_wide else "ab-tie", values={**values, **ends})
    if ratio.value > 1:
        return Statement("ab-faster", "B", {**values, "other": "A"})
    return Statement("ab-faster", "A", {**values, "ratio": interval_values(ratio.inverse()), "other": "B"})
