"""Statements about two sets of runs: the verdict, its method, and which side is faster.

`comparison` renders them in every format, and `ab` adds which side is faster.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from rnn_scaling.analysis.comparison import verdicts
from rnn_scaling.analysis.comparison.costs import make_statements
from rnn_scaling.analysis.comparison.drift import Source
from rnn_scaling.analysis.comparison.judgement import (
    MachineRatio,
    MachineVerdict,
    Report,
    describes_machine,
)
from rnn_scaling.analysis.comparison.matching import ALL_DEVICES, PER_DEVICE
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.interval_kinds import Note
from rnn_scaling.analysis.significance import Gate, Verdict
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.reports import training_differences
from rnn_scaling.reports.wording import group_by_kind, write_sentence
from rnn_scaling.system.machine.load import NOTICEABLE_LOAD

_MAX_STEP_TIMES = 3  # statements about step times
_SCOPES = {PER_DEVICE: "Per device", ALL_DEVICES: "With all devices"}


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

    @property
    def places(self) -> tuple[str, str]:
        """Where a value was recorded: ("before", "after") or ("in A", "in B")."""
        if self.is_gate:
            return self.names
        return (f"in {self.first}", f"in {self.second}")

    def word(self, statement: Statement) -> str:
        """Return a statement in words; its side is BEFORE or AFTER, or A or B."""
        side = statement.values.get("side")
        if side is None:
            return write_sentence(statement)
        name = self.first if side == "before" else self.second
        values = {**statement.values, "side": name.upper()}
        return write_sentence(dataclasses.replace(statement, values=values))


BEFORE_AFTER = Sides("before", "after", is_gate=True)
A_AND_B = Sides("A", "B", is_gate=False)


def format_reason(result: Result | MachineRatio, sides: Sides = BEFORE_AFTER) -> str:
    """Return why a result cannot be judged; "" if it can."""
    return sides.word(result.reason) if result.reason else ""


def state_verdicts(report: Report) -> list[Statement]:
    """Return the answer, other trainings, and step times that changed.

    Step times are mentioned if the metric did not change.
    """
    names = (report.before, report.after)
    answer = _state_machines if report.machines else _state_gate
    return [
        *answer(report),
        *training_differences.state_changes(report.changed_training, names),
        *state_step_times(report, names),
    ]


def state_step_times(
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
    facts = []
    for result in report.results:
        if result.verdict is not Verdict.SAME:
            continue
        visible_changes = [
            (change.percentile, change.ratio)
            for change in result.step_times
            if change.is_shown and change.ratio
        ]
        if visible_changes:
            percentile, ratio = visible_changes[-1]
            kind = "step-time-grew" if ratio.value > 1 else "step-time-shrank"
            facts.append(
                state(
                    kind,
                    result.label,
                    percentile=percentile,
                    time=report.step_time,
                    metric=report.metric.title,
                    before=names[0],
                    after=names[1],
                    **_list_percent_values(ratio),
                )
            )
    facts.sort(key=lambda statement: -statement.values["change"])
    return facts[:_MAX_STEP_TIMES]


def _list_percent_values(ratio: Interval) -> dict[str, float]:
    """Return the size of a change and its ends in per cent, without their signs."""
    numbers = [ratio.value, *(ratio.ends or ())]
    low, value, high = sorted(100 * abs(number - 1) for number in numbers)
    return {"change": value, "low": low, "high": high}


def _state_machines(report: Report) -> Iterator[Statement]:
    """State which machine is faster and, with prices, which is the cheapest."""
    for scope in _SCOPES:
        yield from _state_scope(report, scope)
    yield from make_statements(report.machine_costs)


def _state_gate(report: Report) -> list[Statement]:
    """State whether the second side is slower than the limit allows."""
    sessions = state_sessions(report)
    total = len(report.results)
    values: dict[str, Any] = {"limit": 100 * report.max_regression, "total": total}
    regressions = []
    unjudged = []
    for result in report.results:
        if result.gate is Gate.REGRESSION and result.comparison:
            regressions.append((result.comparison.ratio.value, result.label))
        if result.gate is not Gate.PASSED:
            unjudged.append(result)
    if regressions:
        ratio, label = min(regressions)
        values |= {"slower": len(regressions), "change": 100 * (ratio - 1)}
        kind = "regressions" if total > 1 else "regression"
        return [state(kind, label, **values), *sessions]
    if not unjudged and report.exit_status == 0:
        return [state("no-regression", **values), *sessions]

    incomparable_differences = [
        f.difference for f in report.differences if f.difference.is_incomparable
    ]
    if not unjudged:
        names = [difference.name for difference in incomparable_differences]
        return [state("not-judged", reasons=names)]
    reasons = list(dict.fromkeys(map(format_reason, unjudged)))
    values |= {"unjudged": len(unjudged), "reasons": reasons}
    kind = "some-not-judged" if total > 1 else "not-judged"
    gate_statements = [state(kind, **values)]
    if any(map(describes_machine, incomparable_differences)):
        gate_statements.append(state("compare-machines-instead"))
    return [*gate_statements, *sessions]


def state_sessions(report: Report) -> list[Statement]:
    """State how far apart two sessions are, and the drift between them; [] if one."""
    if report.minutes_apart is None:
        return []
    values: dict[str, Any] = {"apart": report.minutes_apart}
    drift_comparisons = [
        (result.drift, result.comparison)
        for result in report.results
        if result.drift and result.comparison
    ]
    if not drift_comparisons:
        return [state("two-sittings-of-ratios", **values)]
    largest, comparison = max(
        drift_comparisons, key=lambda pair: pair[0].half_width or 0.0
    )
    values["drift"] = 100 * (largest.half_width or 0.0)
    values["sessions"] = largest.sessions
    kind = "two-sittings"
    if largest.source is Source.HISTORY:
        kind = "two-sittings-with-history"
    facts = [state(kind, **values)]
    interleaved = verdicts.compute_detectable_if_interleaved(comparison, largest)
    detectable_now = comparison.detectable
    if (
        detectable_now is not None
        and interleaved is not None
        and interleaved < detectable_now
    ):
        facts.append(
            state(
                "interleaved-runs-would-show",
                now=detectable_now,
                interleaved=interleaved,
            )
        )
    return facts


def _state_scope(report: Report, scope: str) -> Iterator[Statement]:
    """State which machine is faster, per device or with all devices.

    For the only series, the statement has the ratio; for several series, there is a
    statement per verdict with their number.
    """
    ratios = [ratio for ratio in report.machine_ratios if ratio.scope == scope]
    names = {"before": report.before, "after": report.after}
    if len(ratios) == 1:
        [only] = ratios
        yield state(
            f"machine-{only.kind.value}",
            _SCOPES[scope],
            **names,
            ratio=only.ratio,
            low=only.low,
            high=only.high,
            reason=format_reason(only),
        )
        return

    groups = group_by(ratios, [ratio.kind for ratio in ratios])
    for kind in MachineVerdict:
        if kind in groups:
            name = f"machine-{kind.value}-series"
            yield state(
                name,
                _SCOPES[scope],
                **names,
                total=len(ratios),
                **_list_range_values(groups[kind]),
            )


def _list_range_values(ratios: Sequence[MachineRatio]) -> dict[str, Any]:
    values = [ratio.ratio for ratio in ratios if ratio.ratio]
    return {
        "series": len(ratios),
        "low": min(values, default=None),
        "high": max(values, default=None),
    }


def state_disturbed_runs(report: Report, sides: Sides) -> list[Statement]:
    """State which runs, and how many batches, do not count; [] if all count."""
    files: list[str] = []
    for result in report.results:
        for name, disturbed in zip(sides.names, result.disturbed):
            files.extend(f"{name} {file}" for file in disturbed)
    disturbed_notes = []
    if files:
        kind = "disturbed-pairs" if report.paired else "disturbed-runs"
        names = list(dict.fromkeys(files))
        disturbed_notes.append(state(kind, files=names, threshold=NOTICEABLE_LOAD))
    if report.batches_left_out:
        disturbed_notes.append(
            state(
                "disturbed-batches",
                **report.batches_left_out,
                threshold=NOTICEABLE_LOAD,
            )
        )
    return disturbed_notes


def state_method(report: Report, sides: Sides = BEFORE_AFTER) -> list[Statement]:
    """Return the tests, their corrections, runs that do not count, and caveats."""
    # An answer about A and B already contains the disturbed runs.
    method_notes = state_disturbed_runs(report, sides) if sides.is_gate else []
    numbers = []
    for result in report.results:
        numbers += [("", result.before), ("", result.after)]
    method_notes += [state("interval-kind", kind) for kind in group_by_kind(numbers)]
    method_notes += _state_test(report)
    if any(map(_has_step_time_interval, report.results)):
        method_notes.append(state("step-time-intervals", report.step_time))
    return [*method_notes, *_state_single_runs(report)]


def _state_test(report: Report) -> Iterator[Statement]:
    """Yield the test of the changes, and what it assumes."""
    num_judged = sum(result.p_adjusted is not None for result in report.results)
    caveat = ""
    sources = {result.drift.source for result in report.results if result.drift}
    if Source.ASSUMED in sources:
        caveat = "sittings-drift"
    elif Source.HISTORY in sources:
        caveat = "sittings-drift-of-history"
    elif report.ran_in_two_sessions:
        caveat = "sittings-of-ratios"
    elif report.machines:
        caveat = "all-devices-of-runs"
    test = "unpaired-test"
    if report.is_history:
        test = "history-test"
    elif report.paired:
        test = "paired-test"

    if num_judged:
        yield state(test)
        if any(map(_includes_drift, report.results)):
            yield state("drift-in-interval")
    if num_judged > 1:
        yield state("corrected-p", configurations=num_judged)
    if caveat:
        yield state(caveat)
    elif num_judged and test == "unpaired-test":
        yield state("independent-sides")


def _includes_drift(result: Result) -> bool:
    if result.comparison is None:
        return False
    return Note.ORDERED in result.comparison.ratio.kind.notes


def _has_step_time_interval(result: Result) -> bool:
    return any(change.ratio and change.ratio.ends for change in result.step_times)


def _state_single_runs(report: Report) -> Iterator[Statement]:
    """State why one run on a side shows no change, and how many runs would show one."""
    single_run_results = [
        result
        for result in report.results
        if result.comparison is not None and result.comparison.p_value is None
    ]
    if not single_run_results:
        return

    are_both_single = all(max(result.runs) == 1 for result in single_run_results)
    yield state("one-run-a-side" if are_both_single else "one-run-on-one-side")
    limit = report.max_regression
    runs = [
        f"{count} at {100 * spread:.0f} %"
        for spread in verdicts.ASSUMED_SPREADS
        if (count := verdicts.runs_for_spread(spread, limit))
    ]
    if runs:
        yield state("runs-needed", limit=100 * limit, runs=runs)


def state_sides(report: Report) -> list[Statement]:
    """State which of two settings is faster, or why that is not clear."""
    differing_facts: dict[str, None] = {
        labelled.difference.name: None
        for labelled in report.differences
        if labelled.difference.is_incomparable
    }
    options = [name for name in differing_facts if name.startswith("--")]
    if options:
        return [state("ab-other-work", options=options)]
    if differing_facts:
        return [state("ab-unlike", facts=list(differing_facts))]

    results = report.results
    if len(results) == 1 and results[0].comparison is not None:
        return [_state_ratio(results[0].comparison.ratio, results[0].runs[0])]
    unjudged = [result for result in results if result.reason]
    reasons = list(dict.fromkeys(format_reason(result, A_AND_B) for result in unjudged))
    return [state("ab-no-answer", reasons=reasons or ["no configuration in common"])]


def _state_ratio(ratio: Interval, pairs: int) -> Statement:
    """State which setting is faster.

    Args:
      ratio: B's rate / A's rate.
      pairs: The number of pairs of runs.
    """
    values: dict[str, Any] = {"ratio": ratio, "pairs": pairs}
    if ratio.ends is None:
        return state("ab-one-pair", **values)
    low, high = ratio.ends
    if low <= 1 <= high:
        digits = 2 if high - low >= 0.05 else 3
        values |= {"low": round(low, digits), "high": round(high, digits)}
        return state("ab-wide" if ratio.is_wide else "ab-tie", **values)
    if ratio.value > 1:
        return state("ab-faster", "B", **values, other="A")
    values["ratio"] = ratio.inverse()
    return state("ab-faster", "A", **values, other="B")
