"""Make a statement for each second way to read a log's rate.

For example, the start-up was left out, and all lines have another rate.
`state_findings` has the statements of one log, and `state_summary` the statements of
all runs of a report.

A new kind needs a member of `LogFindingKind` and a template `log-KIND` in
templates/cautions.txt.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records.parts import LogFinding, LogFindingKind
from rnn_scaling.reports import wording
from rnn_scaling.reports.summary import Summary
from rnn_scaling.reports.wording import NUMBER_DIGITS

# Template of each kind whose second rate may be unknown.
_WITHOUT_RATE = {
    LogFindingKind.NO_RANKS.value: "log-no-ranks",
    LogFindingKind.ONE_TIMED_RANK.value: "log-one-timed-rank",
    LogFindingKind.EVALUATION.value: "log-evaluation-without-rate",
    LogFindingKind.LOG_TOTAL.value: "log-total-without-steps",
}
_KINDS = frozenset(kind.value for kind in LogFindingKind)
_ALIKE = "log-start-up-alike"  # a start-up that does not change the printed rate
_TIMED_CLUSTERS = "log-two-clusters-timed"  # lines with milliseconds instead of rates


@dataclasses.dataclass(frozen=True)
class _RunFinding:
    """A finding in the log of one run."""

    run_name: str
    unit: str
    finding: LogFinding


def state_summary(summary: Summary) -> list[Statement]:
    """Return one statement per kind: it shows the first run and counts the others."""
    run_findings = []
    for name, run in summary.named_runs:
        for finding in run.log_findings or ():
            run_findings.append(_RunFinding(name, run.unit, finding))
    kinds = [run_finding.finding.kind for run_finding in run_findings]
    statements = []
    for same_kind in group_by(run_findings, kinds).values():
        first = same_kind[0]
        source = first.run_name
        if len(same_kind) > 1:
            source = f"{source} (and {len(same_kind) - 1} more)"
        statements += state_findings(source, [first.finding], first.unit)
    return statements


def state_findings(
    source: str, findings: Iterable[LogFinding], unit: str
) -> list[Statement]:
    """Return the statements of one log.

    Args:
      source: The name of the log or of its run.
      findings: The findings of the log; kinds of newer versions are omitted.
      unit: The items that the rates count, without "/s".
    """
    return [
        _make_statement(source, finding, unit)
        for finding in findings
        if _has_template(finding)
    ]


def _has_template(finding: LogFinding) -> bool:
    """Return whether a template has all values: the kind and the rates are known."""
    if finding.other is None:
        return finding.kind in _WITHOUT_RATE
    return finding.kind in _KINDS


def _make_statement(source: str, finding: LogFinding, unit: str) -> Statement:
    """Return the statement of a finding that has a template."""
    values: dict[str, Any] = {
        "count": finding.count,
        "total": finding.total,
        "taken": finding.taken,
        "unit": unit,
    }
    # The times of one rank give no second rate, even if the record contains one.
    if finding.other is None or finding.kind == LogFindingKind.ONE_TIMED_RANK:
        return state(_WITHOUT_RATE[finding.kind], source, **values)
    values["other"] = finding.other
    values["difference"] = abs(finding.other / finding.taken - 1)
    is_alike = _prints_as(finding.other) == _prints_as(finding.taken)
    if finding.kind == LogFindingKind.START_UP and is_alike:
        return state(_ALIKE, source, **values)
    has_times = finding.taken_ms is not None and finding.other_ms is not None
    if finding.kind == LogFindingKind.TWO_CLUSTERS and has_times:
        values |= {"taken_ms": finding.taken_ms, "other_ms": finding.other_ms}
        return state(_TIMED_CLUSTERS, source, **values)
    return state(f"log-{finding.kind}", source, **values)


def _prints_as(rate: float) -> str:
    return wording.format_digits(rate, NUMBER_DIGITS)
