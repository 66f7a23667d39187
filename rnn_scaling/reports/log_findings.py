"""Make statements about other ways to read the rates of logs, one per kind.

Imports and reports use the same statements.
"""

from collections.abc import Iterable
from typing import Any

from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records.parts import LogFinding, LogFindingKind
from rnn_scaling.reports import numbers
from rnn_scaling.reports.summary import Summary
from rnn_scaling.reports.wording import NUMBER_DIGITS

# Kinds whose other rate is not known, with templates that do not have one.
_WITHOUT_RATE = {
    LogFindingKind.NO_RANKS.value: "log-no-ranks",
    LogFindingKind.ONE_TIMED_RANK.value: "log-one-timed-rank",
    LogFindingKind.EVALUATION.value: "log-evaluation-without-rate",
    LogFindingKind.LOG_TOTAL.value: "log-total-without-steps",
}
_ALIKE = "log-start-up-alike"  # a start-up that does not change the printed rate
_TIMED_CLUSTERS = "log-two-clusters-timed"  # lines with milliseconds instead of rates


def summary_statements(summary: Summary) -> list[Statement]:
    """Return a statement per kind of finding, with the numbers of its first run."""
    findings: list[tuple[str, str, LogFinding]] = []
    for name, run in summary.named_runs:
        findings += [(name, run.unit, finding) for finding in run.log_findings or ()]
    by_kind = group_by(findings, [finding.kind for *_, finding in findings])
    statements = []
    for (name, unit, finding), *other_findings in by_kind.values():
        source = f"{name} (and {len(other_findings)} more)" if other_findings else name
        statements += log_statements(source, [finding], unit)
    return statements


def log_statements(
    source: str, findings: Iterable[LogFinding], unit: str
) -> list[Statement]:
    """Return the statements of one log.

    Args:
      source: The name of the log or of its run.
      findings: The findings of the log; kinds of newer versions are omitted.
      unit: The items that the rates count, without "/s".
    """
    known_kinds = {kind.value for kind in LogFindingKind}
    return [
        _statement(source, finding, unit)
        for finding in findings
        if finding.kind in known_kinds
        and (finding.other is not None or finding.kind in _WITHOUT_RATE)
    ]


def _are_printed_alike(finding: LogFinding) -> bool:
    """Return whether a sentence would print the same number for both rates."""
    rates = (finding.taken, finding.other)
    texts = {
        numbers.format_digits(rate, NUMBER_DIGITS) for rate in rates if rate is not None
    }
    return len(texts) == 1


def _statement(source: str, finding: LogFinding, unit: str) -> Statement:
    kind = f"log-{finding.kind}"
    values: dict[str, Any] = {
        "count": finding.count,
        "total": finding.total,
        "taken": finding.taken,
        "unit": unit,
    }
    if finding.other is None or finding.kind == LogFindingKind.ONE_TIMED_RANK:
        return state(_WITHOUT_RATE[finding.kind], source, **values)
    values["other"] = finding.other
    values["difference"] = abs(finding.other / finding.taken - 1)
    if finding.kind == LogFindingKind.START_UP and _are_printed_alike(finding):
        return state(_ALIKE, source, **values)
    is_timed = finding.taken_ms is not None and finding.other_ms is not None
    if finding.kind == LogFindingKind.TWO_CLUSTERS and is_timed:
        kind = _TIMED_CLUSTERS
        values |= {"taken_ms": finding.taken_ms, "other_ms": finding.other_ms}
    return state(kind, source, **values)
