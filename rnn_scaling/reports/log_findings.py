"""Make statements about other ways to read the rates of logs, one per kind."""

from collections.abc import Iterable
from typing import Any

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records.parts import LogFinding, LogFindingKind
from rnn_scaling.reports.summary import Summary

# Kinds whose other rate is not known, with templates that do not have one.
WITHOUT_RATE = {
    LogFindingKind.NO_RANKS.value: "log-no-ranks",
    LogFindingKind.ONE_TIMED_RANK.value: "log-one-timed-rank",
    LogFindingKind.EVALUATION.value: "log-evaluation-without-rate",
    LogFindingKind.LOG_TOTAL.value: "log-total-without-steps",
}
TIMED_CLUSTERS = "log-two-clusters-timed"  # lines with milliseconds instead of rates


def summary_statements(summary: Summary) -> list[Statement]:
    """Return a statement per kind of finding, with the numbers of its first run."""
    first: dict[str, tuple[str, LogFinding, str]] = {}
    runs: dict[str, int] = {}
    for row in summary.row_summaries:
        for name, run in zip(row.files, row.row.records):
            for finding in run.log_findings or ():
                first.setdefault(finding.kind, (name, finding, run.unit))
                runs[finding.kind] = runs.get(finding.kind, 0) + 1
    statements = []
    for kind, (name, finding, unit) in first.items():
        source = name
        if runs[kind] > 1:
            source = f"{name} (and {runs[kind] - 1} more)"
        statements += log_statements(source, [finding], unit)
    return statements


def log_statements(
    source: str, findings: Iterable[LogFinding], unit: str
) -> list[Statement]:
    """Return the statements of one log.

    Args:
      source: The name of the log or of its run.
      findings: Its findings; kinds of newer versions are omitted.
      unit: What the rates count, without "/s".
    """
    known = {kind.value for kind in LogFindingKind}
    return [
        _statement(source, finding, unit)
        for finding in findings
        if finding.kind in known
        and (finding.other is not None or finding.kind in WITHOUT_RATE)
    ]


def _statement(source: str, finding: LogFinding, unit: str) -> Statement:
    kind = f"log-{finding.kind}"
    values: dict[str, Any] = {
        "count": finding.count,
        "total": finding.total,
        "taken": finding.taken,
        "unit": unit,
    }
    if finding.other is None or finding.kind == LogFindingKind.ONE_TIMED_RANK:
        return Statement(WITHOUT_RATE[finding.kind], source, values)
    values["other"] = finding.other
    values["difference"] = abs(finding.other / finding.taken - 1)
    is_timed = finding.taken_ms is not None and finding.other_ms is not None
    if finding.kind == LogFindingKind.TWO_CLUSTERS and is_timed:
        kind = TIMED_CLUSTERS
        values |= {"taken_ms": finding.taken_ms, "other_ms": finding.other_ms}
    return Statement(kind, source, values)
