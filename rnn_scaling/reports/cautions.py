"""What a reader must know before trusting a report's numbers, and what its words mean, as statements."""

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
from rnn_scaling.reports import environment, log_findings
from rnn_scaling.reports.differences import DifferenceTexts
from rnn_scaling.reports.summary import Summary
from rnn_scaling.reports.wording import sentence, sentences
from rnn_scaling.system.files.terminal import counted

LOADS = {*SHARES.values()}
DOUBTS = {
    Doubt.LINES_AT_ONCE: "log-lines-at-once",
    Doubt.LONGER_THAN_PROCESS: "log-longer-than-process",
    Doubt.SPREAD: "log-spread",
    Doubt.OTHER_RATE: "log-other-rate",
}
LEAST_ROUNDING = (
    0.005  # share of a rate from which on rounding of printed digits is a caution
)


def caution_texts(summary: Summary) -> list[str]:
    return [sentence(statement) for statement in statements(summary)]


def statements(summary: Summary) -> list[Statement]:
    """Grave differences, load, throttled clocks, losses, programs that failed late, rates from logs."""
    records = [record for row in summary.rows for record in row.records]
    grave = [
        d for d in summary.differences if d.severity == INCOMPARABLE or d.name in LOADS
    ]
    late = [
        *_late_failures(summary),
        *_logs(summary),
        *log_findings.summary_statements(summary),
        *program_output_statements(summary),
    ]
    return [
        *environment.statements(records),
        *map(_difference, grave),
        *hand_made_strong_scaling(summary),
        *loss_statements(summary),
        *late,
    ]


def opening_paragraphs(summary: Summary) -> list[str]:
    """The paragraphs above all tables: machines, unfinished runs, rates from logs, the meaning of units and means."""
    notices = [
        *_late_failures(summary),
        *_logs(summary),
        *log_findings.summary_statements(summary),
        *program_output_statements(summary),
    ]
    if summary.files_in_progress:
        notices.insert(
            0,
            Statement(
                "runs-going-on", values={"files": list(summary.files_in_progress)}
            ),
        )
    if len(summary.machines) > 1:
        named = [(name, counted(runs, "run")) for name, runs in summary.machines]
        machines = [
            f"machine {k} is {name} ({runs})" for k, (name, runs) in enumerate(named, 1)
        ]
        notices.insert(0, Statement("several-machines", values={"machines": machines}))
    paragraphs = [*map(sentence, notices), sentences(_terms(summary))]
    return [paragraph for paragraph in paragraphs if paragraph]


def _terms(summary: Summary) -> list[Statement]:
    """The meaning of units and means, and what ran on CPUs instead of a kernel for GPUs."""
    units = dict.fromkeys(
        (series.unit, series.rows[0].row.items) for series in summary.series
    )
    made = [Statement("unit-meaning", unit, {"items": items}) for unit, items in units]
    if any(len(row.good_runs) > 1 for row in summary.rows):
        made.append(Statement("geometric-means"))
    rows_of_series = [[row.row for row in series.rows] for series in summary.series]
    ran = {
        (rows[0].options["encoder_type"], kernel)
        for rows in rows_of_series
        if (kernel := kernel_on_cpus(rows))
    }
    return [
        *made,
        *(
            Statement("kernel-on-cpus", encoder, {"kernel": kernel})
            for encoder, kernel in sorted(ran)
        ),
    ]


def _difference(difference: DifferenceTexts) -> Statement:
    subject, values = (
        difference.name,
        {
            "first": difference.first,
            "second": difference.second,
            "effect": difference.effect,
        },
    )
    if difference.first == difference.second:
        return Statement("condition-of-runs", subject[:1].upper() + subject[1:], values)
    return Statement("condition-differs", subject, values)


def _late_failures(summary: Summary) -> list[Statement]:
    """Programs that failed after they wrote their record."""
    rows = [row for series in summary.series for row in series.rows]
    runs = [
        pair
        for row in rows
        for pair in zip(row.files, row.row.records)
        if pair[1].status == "ok"
    ]
    failed = [f"{name} ({run.ended})" for name, run in runs if run.ended]
    return [Statement("failed-late", values={"files": failed})] if failed else []


def _logs(summary: Summary) -> list[Statement]:
    """What is unknown of runs whose rates are from logs."""
    good = [run for row in summary.rows for run in row.good_runs]
    logs = [run for run in good if not run.batches.seconds]
    rounding = max((run.log_rounding or 0.0 for run in good), default=0.0)
    formats = list(dict.fromkeys(run.log_format for run in logs if run.log_format))
    of_logs = [
        process_rates(row.good_runs)
        for row in summary.rows
        if not any(run.batches.seconds for run in row.good_runs)
    ]
    are_alike = (
        logs
        and not rounding
        and any(len(rates) > 1 and len(set(rates)) == 1 for rates in of_logs)
    )
    known = [
        (
            logs,
            Statement("rates-from-logs", values={"logs": len(logs), "runs": len(good)}),
        ),
        (formats, Statement("log-formats", values={"formats": formats})),
        (are_alike, Statement("log-rates-alike")),
        (
            rounding >= LEAST_ROUNDING,
            Statement("log-digits", values={"rounding": rounding}),
        ),
    ]
    return [statement for is_held, statement in known if is_held]


def program_output_statements(summary: Summary) -> list[Statement]:
    """Return why printed rates are doubtful, and the warnings of other programs."""
    named = []
    for series in summary.series:
        for row in series.rows:
            for name, run in zip(row.files, row.row.records):
                if run.status == "ok" and run.output is not None:
                    named.append((name, run))
    made = []
    for doubt, kind in DOUBTS.items():
        doubtful = [pair for pair in named if doubt in plausibility.doubts(pair[1])]
        if doubtful:
            files = [name for name, _ in doubtful]
            values = {"files": files, **_doubt_values(doubtful[0][1].output)}
            made.append(Statement(kind, values=values))
    return [*made, *_warnings([(name, run.output) for name, run in named])]


def _doubt_values(output: PrintedOutput | None) -> dict[str, Any]:
    """Return the numbers of the first run of which something is doubtful."""
    output = output or PrintedOutput()
    ratio = output.other_rate_ratio or 1.0
    return {
        "lines": output.lines,
        "span_ms": max(1.0, 1000 * (output.span_s or 0.0)),
        "process_s": output.process_s or 0.0,
        "printed_s": output.printed_s or 0.0,
        "spread": plausibility.spread(output),
        "ratio": max(ratio, 1 / ratio),
    }


def _warnings(named: Sequence[tuple[str, PrintedOutput | None]]) -> list[Statement]:
    """Return each warning of the programs once, whatever numbers are in it."""
    lines: dict[str, str] = {}
    files = []
    for name, output in named:
        warnings = output.warnings if output else None
        if warnings:
            files.append(name)
        for line in warnings or ():
            plain = line.replace("`", "'")
            lines.setdefault(mask_numbers(plain), f"`{plain}`")
    if not lines:
        return []
    values = {"files": files, "warnings": list(lines.values())}
    return [Statement("program-warnings", values=values)]


def loss_statements(summary: Summary) -> list[Statement]:
    """Runs whose loss grew manifold, or beyond all numbers."""
    made = []
    values = {
        "remedy": learning.REMEDY,
        "files": list(summary.diverged_files),
        "times": learning.MANIFOLD,
    }
    if summary.diverged_files:
        made.append(Statement("loss-grew", values=values))
    if summary.files_without_loss:
        values = {"remedy": learning.REMEDY, "files": list(summary.files_without_loss)}
        made.append(Statement("loss-not-finite", values=values))
    return made


def hand_made_strong_scaling(summary: Summary) -> list[Statement]:
    """Strong scaling that was put together from batch sizes: no run of it has a baseline."""
    groups: dict[tuple[str, Key], list[Row]] = {}
    for series in summary.series:
        row = series.rows[0].row
        if row.batch_size is not None:
            key = drop_options(row.key, (*scale.AXES, "batch_size"))
            groups.setdefault((series.machine, key), []).extend(
                member.row for member in series.rows
            )
    same = [
        rows
        for rows in groups.values()
        if len({row.global_batch_size for row in rows}) == 1
    ]
    return [
        _hand_made(rows) for rows in same if len({row.batch_size for row in rows}) > 1
    ]


def _hand_made(rows: Sequence[Row]) -> Statement:
    ordered = sorted(rows, key=lambda row: row.num_devices)
    first = ordered[0]
    title = ", ".join(
        filter(None, [network(first.options), first.options["variable_update"]])
    )
    sizes = [
        f"--batch_size={row.batch_size} on {counted(row.num_devices, 'device')}"
        for row in ordered
    ]
    values = {
        "sizes": sizes,
        "total": first.global_batch_size,
        "samples": first.samples,
    }
    return Statement("strong-scaling-by-hand", title, values)
