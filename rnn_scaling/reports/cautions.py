"""Statements that a reader needs before trusting the numbers of a report."""

from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis import learning, plausibility
from rnn_scaling.analysis.comparison.differences import SHARES
from rnn_scaling.analysis.facts.table import INCOMPARABLE
from rnn_scaling.analysis.keys import Key, drop_options
from rnn_scaling.analysis.plausibility import Doubt
from rnn_scaling.analysis.rows import Row, process_rates
from rnn_scaling.analysis.series_titles import kernel_on_cpus
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config import scale
from rnn_scaling.config.naming import network
from rnn_scaling.records.importers.program_warnings import mask_numbers
from rnn_scaling.records.parts import PrintedOutput
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import environment, log_findings
from rnn_scaling.reports.differences import DifferenceTexts
from rnn_scaling.reports.summary import Summary
from rnn_scaling.reports.wording import sentence, sentences
from rnn_scaling.system.files.terminal import counted

LOADS = set(SHARES.values())
DOUBTS = {
    Doubt.LINES_AT_ONCE: "log-lines-at-once",
    Doubt.LONGER_THAN_PROCESS: "log-longer-than-process",
    Doubt.SPREAD: "log-spread",
    Doubt.OTHER_RATE: "log-other-rate",
}
LEAST_ROUNDING = 0.005  # share of a rate; less rounding of printed digits is no caution


def caution_texts(summary: Summary) -> list[str]:
    """Return the cautions in English."""
    return list(map(sentence, statements(summary)))


def statements(summary: Summary) -> list[Statement]:
    """Return cautions about machines, differences, losses, programs and logs."""
    records: list[RunRecord] = []
    for row in summary.rows:
        records += row.records
    differences = []
    for difference in summary.differences:
        if difference.severity == INCOMPARABLE or difference.name in LOADS:
            differences.append(_difference_statement(difference))
    return [
        *environment.statements(records),
        *differences,
        *hand_made_strong_scaling(summary),
        *loss_statements(summary),
        *_program_statements(summary),
    ]


def _program_statements(summary: Summary) -> list[Statement]:
    """Return cautions about programs, their logs and their output."""
    return [
        *_late_failures(summary),
        *_log_statements(summary),
        *log_findings.summary_statements(summary),
        *program_output_statements(summary),
    ]


def opening_paragraphs(summary: Summary) -> list[str]:
    """Return the paragraphs above all tables.

    They are about machines, unfinished runs, logs, and the meaning of units and means.
    """
    found = []
    if len(summary.machines) > 1:
        machines = []
        for k, (name, num_runs) in enumerate(summary.machines, 1):
            machines.append(f"machine {k} is {name} ({counted(num_runs, 'run')})")
        found.append(Statement("several-machines", values={"machines": machines}))
    if summary.files_in_progress:
        values = {"files": list(summary.files_in_progress)}
        found.append(Statement("runs-going-on", values=values))
    found += _program_statements(summary)
    paragraphs = [*map(sentence, found), sentences(_terms(summary))]
    return list(filter(None, paragraphs))


def _terms(summary: Summary) -> list[Statement]:
    """Return the meaning of units and means, and which kernel ran on CPUs."""
    units: dict[tuple[str, str], None] = {}
    kernels = set()
    for series in summary.series:
        rows = [row.row for row in series.rows]
        units[series.unit, rows[0].items] = None
        if kernel := kernel_on_cpus(rows):
            kernels.add((rows[0].options["encoder_type"], kernel))

    found = [Statement("unit-meaning", unit, {"items": items}) for unit, items in units]
    if any(len(row.good_runs) > 1 for row in summary.rows):
        found.append(Statement("geometric-means"))
    for encoder, kernel in sorted(kernels):
        found.append(Statement("kernel-on-cpus", encoder, {"kernel": kernel}))
    return found


def _difference_statement(difference: DifferenceTexts) -> Statement:
    name = difference.name
    values = {
        "first": difference.first,
        "second": difference.second,
        "effect": difference.effect,
    }
    if difference.first == difference.second:
        return Statement("condition-of-runs", name[:1].upper() + name[1:], values)
    return Statement("condition-differs", name, values)


def _finished_runs(summary: Summary) -> list[tuple[str, RunRecord]]:
    """Return (file, record) of all runs with status "ok"."""
    runs = []
    for row in summary.row_summaries:
        for name, run in zip(row.files, row.row.records):
            if run.status == "ok":
                runs.append((name, run))
    return runs


def _late_failures(summary: Summary) -> list[Statement]:
    """Return which programs failed after they had written their records."""
    runs = _finished_runs(summary)
    failed = [f"{name} ({run.ended})" for name, run in runs if run.ended]
    return [Statement("failed-late", values={"files": failed})] if failed else []


def _log_statements(summary: Summary) -> list[Statement]:
    """Return what is unknown about runs whose rates are from logs."""
    good: list[RunRecord] = []
    for row in summary.rows:
        good += row.good_runs
    logs = [run for run in good if not run.batches.seconds]
    formats = list(dict.fromkeys(run.log_format for run in logs if run.log_format))
    rounding = max((run.log_rounding or 0.0 for run in good), default=0.0)

    found = []
    if logs:
        values = {"logs": len(logs), "runs": len(good)}
        found.append(Statement("rates-from-logs", values=values))
    if formats:
        found.append(Statement("log-formats", values={"formats": formats}))
    if logs and not rounding and any(map(_has_equal_log_rates, summary.rows)):
        found.append(Statement("log-rates-alike"))
    if rounding >= LEAST_ROUNDING:
        found.append(Statement("log-digits", values={"rounding": rounding}))
    return found


def _has_equal_log_rates(row: Row) -> bool:
    """Return whether the logs of several runs have exactly the same rate."""
    if any(run.batches.seconds for run in row.good_runs):
        return False
    return len(row.good_runs) > 1 and len(set(process_rates(row.good_runs))) == 1


def program_output_statements(summary: Summary) -> list[Statement]:
    """Return why printed rates are doubtful, and the warnings of other programs."""
    runs = []
    for name, run in _finished_runs(summary):
        if run.output is not None:
            runs.append((name, run, run.output))
    found = []
    for doubt, kind in DOUBTS.items():
        doubtful = [run for run in runs if doubt in plausibility.doubts(run[1])]
        if doubtful:
            files = [name for name, *_ in doubtful]
            values = {"files": files, **_doubt_values(doubtful[0][2])}
            found.append(Statement(kind, values=values))
    return [*found, *_warnings([(name, output) for name, _, output in runs])]


def _doubt_values(output: PrintedOutput) -> dict[str, Any]:
    """Return the numbers of a run whose output is doubtful."""
    ratio = output.other_rate_ratio or 1.0
    return {
        "lines": output.lines,
        "span_ms": max(1.0, 1000 * (output.span_s or 0.0)),
        "process_s": output.process_s or 0.0,
        "printed_s": output.printed_s or 0.0,
        "spread": plausibility.spread(output),
        "ratio": max(ratio, 1 / ratio),
    }


def _warnings(outputs: Sequence[tuple[str, PrintedOutput]]) -> list[Statement]:
    """Return the warnings of programs; those that differ only in numbers count once."""
    lines: dict[str, str] = {}
    files = []
    for name, output in outputs:
        if output.warnings:
            files.append(name)
        for line in output.warnings or ():
            plain = line.replace("`", "'")
            lines.setdefault(mask_numbers(plain), f"`{plain}`")
    if not lines:
        return []
    values = {"files": files, "warnings": list(lines.values())}
    return [Statement("program-warnings", values=values)]


def loss_statements(summary: Summary) -> list[Statement]:
    """Return which runs have a loss that grew many times, or that is not finite."""
    found = []
    if summary.diverged_files:
        values = {
            "remedy": learning.REMEDY,
            "files": list(summary.diverged_files),
            "times": learning.MANIFOLD,
        }
        found.append(Statement("loss-grew", values=values))
    if summary.files_without_loss:
        values = {
            "remedy": learning.REMEDY,
            "files": list(summary.files_without_loss),
        }
        found.append(Statement("loss-not-finite", values=values))
    return found


def hand_made_strong_scaling(summary: Summary) -> list[Statement]:
    """Return series that together have a constant total work, by their batch sizes.

    Their runs have no common baseline; --global_batch_size would make them one series.
    """
    groups: dict[tuple[str, Key], list[Row]] = {}
    for series in summary.series:
        row = series.rows[0].row
        if row.batch_size is not None:
            key = drop_options(row.key, (*scale.AXES, "batch_size"))
            group = groups.setdefault((series.machine, key), [])
            group.extend(member.row for member in series.rows)
    found = []
    for rows in groups.values():
        has_one_total = len({row.global_batch_size for row in rows}) == 1
        if has_one_total and len({row.batch_size for row in rows}) > 1:
            found.append(_hand_made_statement(rows))
    return found


def _hand_made_statement(rows: Sequence[Row]) -> Statement:
    ordered = sorted(rows, key=lambda row: row.num_devices)
    first = ordered[0]
    names = (network(first.options), first.options["variable_update"])
    sizes = []
    for row in ordered:
        devices = counted(row.num_devices, "device")
        sizes.append(f"--batch_size={row.batch_size} on {devices}")
    values = {
        "sizes": sizes,
        "total": first.global_batch_size,
        "samples": first.samples,
    }
    return Statement("strong-scaling-by-hand", ", ".join(filter(None, names)), values)
