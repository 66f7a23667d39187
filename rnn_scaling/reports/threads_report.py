"""Runs with several numbers of threads as a table, statements and data.

Programs of users read threads.json, schema "rnn_scaling.threads/1": keys may be added,
but never rename one or change its meaning.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.metrics import RATE, find_common_unit
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps import dispatch_threads
from rnn_scaling.analysis.steps.dispatch_threads import Probe, Setting
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import missing_results, report_files
from rnn_scaling.reports.json_data import format_plain_json
from rnn_scaling.reports.sections import Grid, Section, explain_numbers, format_markdown
from rnn_scaling.reports.wording import format_interval, make_interval_notes
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import print_fitted

_SCHEMA = "rnn_scaling.threads/1"


def report(
    out: Path,
    records: Sequence[RunRecord],
    defaults: Mapping[int, int],
    output_format: str = "text",
) -> bool:
    """Print and write what the records show.

    Args:
      out: The folder of the files.
      records: The runs with their numbers of threads.
      defaults: The trainer's own number of threads by number of devices.
      output_format: The format of the output: "text", "markdown" or "json".

    Returns:
      Whether any run measured something and everything is written.
    """
    probes = dispatch_threads.make_probes(records, defaults)
    page = (
        f"# Threads that dispatch operators\n\n{format_markdown(make_sections(probes))}"
    )
    data = format_plain_json(make_data(probes))
    if output_format == "text":
        print_fitted(format_markdown(make_sections(probes), level=3))
    else:
        text = page if output_format == "markdown" else data
        print(text, end="", flush=True)
    if not any(probe.has_rate for probe in probes):
        remedy = "give them measured batches with --num_batches"
        entry.fail(missing_results.format_message("no run has a rate", records, remedy))
        return False
    report_files.write_results(out, "threads", page, data)
    return True


def make_sections(probes: Sequence[Probe]) -> list[Section]:
    """Return a section for each configuration: devices, threads and statements."""
    by_title = group_by(probes, [probe.title for probe in probes])
    return [_make_section(title, members) for title, members in by_title.items()]


def _make_section(title: str, probes: Sequence[Probe]) -> Section:
    """Return the table of a series, with a line per number of threads."""
    unit = find_common_unit(probe.unit for probe in probes)
    lines = []
    rates = []
    for probe in probes:
        for setting in probe.settings:
            lines.append(_make_setting_line(probe, setting))
            rates.append(setting.rate)
    notes: list[str | Statement] = []
    notes += make_interval_notes((f"{unit}/s", rate) for rate in rates)
    notes += explain_numbers(rates)
    for probe in probes:
        notes += dispatch_threads.make_statements(probe)
    head = [
        "Devices",
        "Inter-op threads",
        "Runs",
        f"{unit}/s",
        "% of the fastest",
        "Towers at once",
        "",
    ]
    return Section(title, (Grid("", head, lines),), tuple(notes))


def _make_setting_line(probe: Probe, setting: Setting) -> list[str]:
    """Return the line of one number of threads."""
    runs = str(setting.runs)
    if setting.failed:
        runs = f"{runs}, {setting.failed} failed"
    percent = "100"
    if setting.threads != probe.fastest:
        share = setting.relative_rate
        percent = format_interval(share.scaled(100) if share else None, 1)
    concurrency = "n/a"
    if setting.concurrency is not None:
        concurrency = f"{setting.concurrency:.2f}"
    remarks = []
    if setting.threads == probe.fastest:
        remarks.append("fastest")
    if setting.threads == probe.default:
        remarks.append("default")
    return [
        str(probe.num_devices),
        str(setting.threads),
        runs,
        format_interval(setting.rate, 0),
        percent,
        concurrency,
        ", ".join(remarks),
    ]


def make_data(probes: Sequence[Probe]) -> dict[str, Any]:
    """Return the data for JSON; rates are in items/s, and shares are ratios."""
    statements: list[Statement] = []
    for probe in probes:
        statements += dispatch_threads.make_statements(probe)
    return {
        "schema": _SCHEMA,
        "probes": list(map(_make_probe_data, probes)),
        "statements": statements,
    }


def _make_probe_data(probe: Probe) -> dict[str, Any]:
    """Return the settings of a series as JSON data."""
    rate_name = RATE.with_unit(probe.unit).name
    settings = []
    for setting in probe.settings:
        comparison = setting.comparison
        fields = {
            "threads": setting.threads,
            "runs": setting.runs,
            "failed": setting.failed,
            rate_name: setting.rate,
            "of_best": setting.relative_rate,
            "verdict": comparison.verdict if comparison else None,
            "concurrency": setting.concurrency,
        }
        settings.append(fields)
    return {
        "title": probe.title,
        "num_devices": probe.num_devices,
        "default": probe.default,
        "best": probe.fastest,
        "enough": probe.sufficient,
        "settings": settings,
    }
