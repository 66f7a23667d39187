"""Statements about two sets of runs: the verdict, its method, and which side is faster."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.comparison import verdicts
from rnn_scaling.analysis.comparison.costs import statements
from rnn_scaling.analysis.comparison.judgement import (
    MachineRatio,
    MachineVerdict,
    Report,
    of_machine,
)
from rnn_scaling.analysis.comparison.matching import ALL_DEVICES, PER_DEVICE
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.analysis.confidence import ORDERED, Interval
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.significance import Gate, Verdict
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.reports.numbers import has_interval
from rnn_scaling.reports.wording import phrase
from rnn_scaling.system.machine.load import NOTICEABLE

MOST_STEP_TIMES = 3  # statements about step times
SCOPES = {PER_DEVICE: "Per device", ALL_DEVICES: "With all devices"}


@dataclasses.dataclass(frozen=True)
class Sides:
    """The names of two sets of runs.

    Attributes:
      first: The name of the first set.
      second: The name of the second set.
      is_gate: Whether the first set is the norm, so that a slow-down is a regression.
    """

    first: str
    second: str
    is_gate: bool

    @property
    def names(self) -> tuple[str, str]:
        return (self.first, self.second)


BEFORE_AFTER = Sides("before", "after", is_gate=True)
A_AND_B = Sides("A", "B", is_gate=False)


def reason_text(result: Result | MachineRatio) -> str:
    """Return why a result cannot be judged; "" if it can."""
    return phrase(result.reason) if result.reason else ""


def verdict_statements(report: Report) -> list[Statement]:
    """Return the answer, and step times that changed although the metric did not."""
    names = (report.before, report.after)
    answer = _machine_statements if report.machines else _gate_statements
    return [*answer(report), *step_time_statements(report, names)]


def step_time_statements(
    report: Report, names: Sequence[str] = A_AND_B.names
) -> list[Statement]:
    """Return the step times that changed although the metric did not.

    Args:
      report: The comparison.
      names: The names of the two sides.

    Returns:
      The highest percentile that changed in each configuration, the largest changes
      first.
    """
    found = []
    for result in report.results:
        if result.verdict is not Verdict.SAME:
            continue
        shown = []
        for change in result.step_times:
            if change.is_shown and change.ratio:
                shown.append((change.percentile, change.ratio))
        if shown:
            percentile, ratio = shown[-1]
            kind = "step-time-grew" if ratio.value > 1 else "step-time-shrank"
            values = {
                "percentile": percentile,
                "time": report.step_time,
                "metric": report.metric.title,
                "before": names[0],
                "after": names[1],
                **_percent_values(ratio),
            }
            found.append(Statement(kind, result.label, values))
    found.sort(key=lambda statement: -statement.values["change"])
    return found[:MOST_STEP_TIMES]


def _percent_values(ratio: Interval) -> dict[str, float]:
    """Return the size of a change and its ends in per cent, without their signs."""
    numbers = [ratio.value, *(ratio.ends or ())]
    low, value, high = sorted(100 * abs(number - 1) for number in numbers)
    return {"change": value, "low": low, "high": high}


def _machine_statements(report: Report) -> list[Statement]:
    """Return which machine is faster and, with prices, which is the cheapest."""
    found = []
    for scope in SCOPES:
        found += _scope_statements(report, scope)
    return [*found, *statements(report.machine_costs)]


def _gate_statements(report: Report) -> list[Statement]:
    """Return whether the second side is slower than the limit allows."""
    sessions = [Statement("two-sittings")] if report.two_sittings else []
    total = len(report.results)
    values: dict[str, Any] = {"limit": 100 * report.max_regression, "total": total}
    slower = []
    unjudged = []
    for result in report.results:
        if result.gate is Gate.REGRESSION and result.comparison:
            slower.append((result.comparison.ratio.value, result.label))
        if result.gate is not Gate.PASSED:
            unjudged.append(result)
    if slower:
        ratio, label = min(slower)
        values |= {"slower": len(slower), "change": 100 * (ratio - 1)}
        kind = "regressions" if total > 1 else "regression"
        return [Statement(kind, label, values), *sessions]
    if not unjudged and report.exit_status == 0:
        return [Statement("no-regression", values=values), *sessions]

    incomparable = [f.difference for f in report.found if f.difference.is_grave]
    if not unjudged:
        names = [difference.what for difference in incomparable]
        return [Statement("not-judged", values={"reasons": names})]
    reasons = list(dict.fromkeys(map(reason_text, unjudged)))
    values |= {"unjudged": len(unjudged), "reasons": reasons}
    kind = "some-not-judged" if total > 1 else "not-judged"
    found = [Statement(kind, values=values)]
    if any(map(of_machine, incomparable)):
        found.append(Statement("compare-machines-instead"))
    return found


def _scope_statements(report: Report, scope: str) -> list[Statement]:
    """Return which machine is faster, per device or with all devices.

    For the only series, the statement has the ratio; for several series, there is a
    statement per verdict with their number.
    """
    ratios = [ratio for ratio in report.machine_ratios if ratio.scope == scope]
    names = {"before": report.before, "after": report.after}
    if len(ratios) == 1:
        [only] = ratios
        values = {
            **names,
            "ratio": only.ratio,
            "low": only.low,
            "high": only.high,
            "reason": reason_text(only),
        }
        return [Statement(f"machine-{only.kind.value}", SCOPES[scope], values)]

    groups = group_by(ratios, [ratio.kind for ratio in ratios])
    found = []
    for kind in MachineVerdict:
        if kind in groups:
            values = {**names, "total": len(ratios), **_range_values(groups[kind])}
            name = f"machine-{kind.value}-series"
            found.append(Statement(name, SCOPES[scope], values))
    return found


def _range_values(ratios: Sequence[MachineRatio]) -> dict[str, Any]:
    values = [ratio.ratio for ratio in ratios if ratio.ratio]
    return {
        "series": len(ratios),
        "low": min(values, default=None),
        "high": max(values, default=None),
    }


def disturbed_statements(report: Report, sides: Sides) -> list[Statement]:
    """Return which runs do not count because they were disturbed; [] if none."""
    files: list[str] = []
    for result in report.results:
        for name, disturbed in zip(sides.names, result.disturbed):
            files.extend(f"{name} {file}" for file in disturbed)
    values = {"files": list(dict.fromkeys(files)), "threshold": NOTICEABLE}
    kind = "disturbed-pairs" if report.paired else "disturbed-runs"
    return [Statement(kind, values=values)] if files else []


def method_statements(report: Report, sides: Sides = BEFORE_AFTER) -> list[Statement]:
    """Return the tests, their corrections, runs that do not count, and caveats."""
    # An answer about A and B already contains the disturbed runs.
    found = disturbed_statements(report, sides) if sides.is_gate else []
    kinds: dict[str, None] = {}
    for result in report.results:
        for side in (result.before, result.after):
            if side and has_interval(side):
                kinds[side.kind] = None
    found += [Statement("interval-kind", kind) for kind in kinds]
    found += _test_statements(report)
    if any(map(_has_step_time_interval, report.results)):
        found.append(Statement("step-time-intervals", report.step_time))
    return [*found, *_single_run_statements(report)]


def _test_statements(report: Report) -> list[Statement]:
    """Return the test of the changes, and what it assumes."""
    num_judged = sum(result.p_adjusted is not None for result in report.results)
    caveat = ""
    if report.two_sittings:
        caveat = "sittings-drift"
    elif report.machines:
        caveat = "all-devices-of-runs"
    test = "unpaired-test"
    if report.is_history:
        test = "history-test"
    elif report.paired:
        test = "paired-test"

    found = []
    if num_judged:
        found.append(Statement(test))
        if any(map(_includes_drift, report.results)):
            found.append(Statement("drift-in-interval"))
    if num_judged > 1:
        values = {"configurations": num_judged}
        found.append(Statement("corrected-p", values=values))
    if caveat:
        found.append(Statement(caveat))
    elif num_judged and test == "unpaired-test":
        found.append(Statement("independent-sides"))
    return found


def _includes_drift(result: Result) -> bool:
    return result.comparison is not None and ORDERED in result.comparison.ratio.kind


def _has_step_time_interval(result: Result) -> bool:
    return any(change.ratio and change.ratio.ends for change in result.step_times)


def _single_run_statements(report: Report) -> list[Statement]:
    """Return why one run on a side shows no change, and how many runs would show one."""
    single = []
    for result in report.results:
        if result.comparison is not None and result.comparison.p_value is None:
            single.append(result)
    if not single:
        return []

    are_both_single = all(max(result.runs) == 1 for result in single)
    found = [Statement("one-run-a-side" if are_both_single else "one-run-on-one-side")]
    limit = report.max_regression
    runs = []
    for spread in verdicts.ASSUMED_SPREADS:
        if count := verdicts.runs_for_spread(spread, limit):
            runs.append(f"{count} at {100 * spread:.0f} %")
    if runs:
        values = {"limit": 100 * limit, "runs": runs}
        found.append(Statement("runs-needed", values=values))
    return found


def ab_statements(report: Report) -> list[Statement]:
    """Return which of two settings is faster, or why that is not clear."""
    differing: dict[str, None] = {}
    for found in report.found:
        if found.difference.is_grave:
            differing[found.difference.what] = None
    options = [name for name in differing if name.startswith("--")]
    if options:
        return [Statement("ab-other-work", values={"options": options})]
    if differing:
        return [Statement("ab-unlike", values={"facts": list(differing)})]

    results = report.results
    if len(results) == 1 and results[0].comparison is not None:
        return [_ratio_statement(results[0].comparison.ratio, results[0].runs[0])]
    reasons = list(dict.fromkeys(reason_text(r) for r in results if r.reason))
    values = {"reasons": reasons or ["no configuration in common"]}
    return [Statement("ab-no-answer", values=values)]


def _ratio_statement(ratio: Interval, pairs: int) -> Statement:
    """Return which setting is faster.

    Args:
      ratio: B's rate / A's rate.
      pairs: The number of pairs of runs.
    """
    values: dict[str, Any] = {"ratio": interval_values(ratio), "pairs": pairs}
    if ratio.ends is None:
        return Statement("ab-one-pair", values=values)
    low, high = ratio.ends
    if low <= 1 <= high:
        digits = 2 if high - low >= 0.05 else 3
        values |= {"low": round(low, digits), "high": round(high, digits)}
        return Statement("ab-wide" if ratio.is_wide else "ab-tie", values=values)
    if ratio.value > 1:
        return Statement("ab-faster", "B", {**values, "other": "A"})
    values["ratio"] = interval_values(ratio.inverse())
    return Statement("ab-faster", "A", {**values, "other": "B"})
