"""Statements that a reader needs before trusting the numbers of a report.

The page and the JSON show all cautions, and the terminal those that `answer_text`
selects.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rnn_scaling.analysis import learning, plausibility
from rnn_scaling.analysis.comparison.differences import LOAD_NAMES
from rnn_scaling.analysis.facts.table import INCOMPARABLE
from rnn_scaling.analysis.keys import Key, drop_options
from rnn_scaling.analysis.plausibility import Doubt
from rnn_scaling.analysis.rows import Row, run_rates
from rnn_scaling.analysis.series_titles import find_cpu_replacement_kernel
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.config import scale
from rnn_scaling.config.naming import name_network
from rnn_scaling.records.importers.program_warnings import mask_numbers
from rnn_scaling.records.parts import PrintedOutput
from rnn_scaling.reports import environment, log_findings
from rnn_scaling.reports.differences import DifferenceTexts
from rnn_scaling.reports.summary import Summary
from rnn_scaling.reports.wording import (
    start_with_capital,
    write_sentence,
    write_sentences,
)
from rnn_scaling.system.files.terminal import format_count

_LOADS = set(LOAD_NAMES.values())
_DOUBTS = {
    Doubt.LINES_AT_ONCE: "log-lines-at-once",
    Doubt.LONGER_THAN_PROCESS: "log-longer-than-process",
    Doubt.SPREAD: "log-spread",
    Doubt.OTHER_RATE: "log-other-rate",
}
# Share of a rate; below it, the rounding of printed digits is not mentioned.
_MIN_ROUNDING = 0.005


def format_cautions(summary: Summary) -> list[str]:
    """Return the cautions in English."""
    return list(map(write_sentence, make_statements(summary)))


def make_statements(summary: Summary) -> list[Statement]:
    """Return cautions about machines, differences, losses, programs and logs."""
    differences = [
        _state_difference(difference)
        for difference in summary.differences
        if difference.severity == INCOMPARABLE or difference.name in _LOADS
    ]
    return [
        *environment.make_statements(summary.records),
        *differences,
        *find_hand_made_strong_scaling(summary),
        *state_losses(summary),
        *_state_programs(summary),
    ]


def _state_programs(summary: Summary) -> list[Statement]:
    """Return cautions about programs, their logs and their output."""
    return [
        *_state_late_failures(summary),
        *_state_logs(summary),
        *log_findings.state_summary(summary),
        *state_program_output(summary),
    ]


def write_opening_paragraphs(summary: Summary) -> list[str]:
    """Return the paragraphs above all tables.

    They are about machines, unfinished runs, logs, and the meaning of units and means.
    """
    statements = []
    if len(summary.machines) > 1:
        machines = [
            f"machine {k} is {name} ({format_count(num_runs, 'run')})"
            for k, (name, num_runs) in enumerate(summary.machines, 1)
        ]
        statements.append(state("several-machines", machines=machines))
    if summary.files_in_progress:
        statements.append(state("runs-going-on", files=list(summary.files_in_progress)))
    statements += _state_programs(summary)
    paragraphs = [
        *map(write_sentence, statements),
        write_sentences(_state_terms(summary)),
    ]
    return list(filter(None, paragraphs))


def _state_terms(summary: Summary) -> list[Statement]:
    """Return the meaning of units and means, and which kernel ran on CPUs."""
    statements = state_units(summary.rows)
    if any(len(row.good_runs) > 1 for row in summary.rows):
        statements.append(state("geometric-means"))
    return [*statements, *state_kernels(summary)]


def state_kernels(summary: Summary) -> list[Statement]:
    """State which kernel ran on CPUs in place of one for GPUs."""
    kernels = set()
    for series in summary.series:
        if kernel := find_cpu_replacement_kernel(series.rows):
            kernels.add((series.options["encoder_type"], kernel))
    return [
        state("kernel-on-cpus", encoder, kernel=kernel)
        for encoder, kernel in sorted(kernels)
    ]


def state_units(rows: Iterable[Row]) -> list[Statement]:
    """Return the meaning of each unit."""
    units = dict.fromkeys((row.unit, row.items) for row in rows)
    return [state("unit-meaning", unit, items=items) for unit, items in units]


def _state_difference(difference: DifferenceTexts) -> Statement:
    name = difference.name
    values = {
        "first": difference.first,
        "second": difference.second,
        "effect": difference.effect,
    }
    if difference.first == difference.second:
        return state("condition-of-runs", start_with_capital(name), **values)
    return state("condition-differs", name, **values)


def _state_late_failures(summary: Summary) -> list[Statement]:
    """State which programs failed after they had written their records."""
    failed_texts = [
        f"{name} ({run.ended})"
        for name, run in summary.named_runs
        if run.status == "ok" and run.ended
    ]
    return [state("failed-late", files=failed_texts)] if failed_texts else []


def _state_logs(summary: Summary) -> Iterator[Statement]:
    """Yield the unknown facts about runs whose rates are from logs."""
    good_runs = summary.good_runs
    logs = [run for run in good_runs if not run.batches.seconds]
    formats = list(dict.fromkeys(run.log_format for run in logs if run.log_format))
    rounding = max((run.log_rounding or 0.0 for run in good_runs), default=0.0)

    if logs:
        yield state("rates-from-logs", logs=len(logs), runs=len(good_runs))
    if formats:
        yield state("log-formats", formats=formats)
    if logs and not rounding and any(map(_has_equal_log_rates, summary.rows)):
        yield state("log-rates-alike")
    if rounding >= _MIN_ROUNDING:
        yield state("log-digits", rounding=rounding)


def _has_equal_log_rates(row: Row) -> bool:
    """Return whether the logs of several runs have exactly the same rate."""
    if any(run.batches.seconds for run in row.good_runs):
        return False
    return len(row.good_runs) > 1 and len(set(run_rates(row.good_runs))) == 1


def state_program_output(summary: Summary) -> Iterator[Statement]:
    """State why printed rates are doubtful, and the warnings of other programs."""
    runs = [
        (name, run, run.output)
        for name, run in summary.named_runs
        if run.status == "ok" and run.output is not None
    ]
    for doubt, kind in _DOUBTS.items():
        doubtful = [run for run in runs if doubt in plausibility.find_doubts(run[1])]
        if doubtful:
            files = [name for name, *_ in doubtful]
            yield state(kind, files=files, **_list_doubt_values(doubtful[0][2]))
    yield from _state_warnings([(name, output) for name, _, output in runs])


def _list_doubt_values(output: PrintedOutput) -> dict[str, Any]:
    """Return the numbers of a run whose output is doubtful."""
    ratio = output.other_rate_ratio or 1.0
    return {
        "lines": output.lines,
        "span_ms": max(1.0, 1000 * (output.span_s or 0.0)),
        "process_s": output.process_s or 0.0,
        "printed_s": output.printed_s or 0.0,
        "spread": plausibility.compute_rate_spread(output),
        "ratio": max(ratio, 1 / ratio),
    }


def _state_warnings(
    outputs: Sequence[tuple[str, PrintedOutput]],
) -> list[Statement]:
    """Return the warnings of programs, once if they differ only in numbers."""
    lines: dict[str, str] = {}
    files = []
    for name, output in outputs:
        if output.warnings:
            files.append(name)
        for line in output.warnings or ():
            plain_line = line.replace("`", "'")
            lines.setdefault(mask_numbers(plain_line), f"`{plain_line}`")
    if not lines:
        return []
    return [state("program-warnings", files=files, warnings=list(lines.values()))]


def state_losses(summary: Summary) -> list[Statement]:
    """State which runs have a loss that grew many times, or that is not finite."""
    statements = []
    if summary.diverged_files:
        statements.append(
            state(
                "loss-grew",
                remedy=learning.REMEDY,
                files=list(summary.diverged_files),
                times=learning.DIVERGENCE_FACTOR,
            )
        )
    if summary.files_without_loss:
        statements.append(
            state(
                "loss-not-finite",
                remedy=learning.REMEDY,
                files=list(summary.files_without_loss),
            )
        )
    return statements


def find_hand_made_strong_scaling(summary: Summary) -> list[Statement]:
    """Return series that together have a constant total work, by their batch sizes.

    Their runs have no common baseline; --global_batch_size would make them one series.
    """
    groups: dict[tuple[str, Key], list[Row]] = {}
    for series in summary.series:
        row = series.rows[0]
        if row.batch_size is not None:
            key = drop_options(row.key, (*scale.AXES, "batch_size"))
            groups.setdefault((series.machine, key), []).extend(series.rows)
    statements = []
    for rows in groups.values():
        has_one_total = len({row.global_batch_size for row in rows}) == 1
        if has_one_total and len({row.batch_size for row in rows}) > 1:
            statements.append(_state_hand_made(rows))
    return statements


def _state_hand_made(rows: Sequence[Row]) -> Statement:
    """Return the batch sizes that keep the global batch constant by hand."""
    ordered = sorted(rows, key=lambda row: row.num_devices)
    first = ordered[0]
    names = (name_network(first.options), first.options["variable_update"])
    sizes = []
    for row in ordered:
        devices = format_count(row.num_devices, "device")
        sizes.append(f"--batch_size={row.batch_size} on {devices}")
    return state(
        "strong-scaling-by-hand",
        ", ".join(filter(None, names)),
        sizes=sizes,
        total=first.global_batch_size,
        samples=first.samples,
    )
