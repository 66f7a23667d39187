"""Runs with several numbers of threads as a table, statements and data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.metrics import RATE, common_unit
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps import dispatch_threads
from rnn_scaling.analysis.steps.dispatch_threads import Probe, Setting
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import report_files
from rnn_scaling.reports.numbers import has_interval, interval_data, plus_minus
from rnn_scaling.reports.sections import Grid, Section, markdown
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.terminal import tell

SCHEMA = "rnn_scaling.threads/1"


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
      output_format: What is printed: "text", "markdown" or "json".

    Returns:
      Whether any run measured something and everything is written.
    """
    probes = dispatch_threads.probes(records, defaults)
    page = f"# Threads that dispatch operators\n\n{markdown(sections(probes))}"
    data = input_files.json_text(content(probes))
    if output_format == "text":
        tell(markdown(sections(probes), level=3))
    else:
        text = page if output_format == "markdown" else data
        print(text, end="", flush=True)
    if all(probe.fastest is None for probe in probes):
        entry.fail("no run measured anything")
        return False
    files = {"threads.md": page.encode, "threads.json": data.encode}
    report_files.write_files(files, out, force=True, flag="--out")
    entry.note(f"wrote {out / 'threads.md'} and threads.json")
    return True


def sections(probes: Sequence[Probe]) -> list[Section]:
    """Return a section for each configuration: devices, threads and statements."""
    by_title: dict[str, list[Probe]] = {}
    for probe in probes:
        by_title.setdefault(probe.title, []).append(probe)
    return [_section(title, members) for title, members in by_title.items()]


def _section(title: str, probes: Sequence[Probe]) -> Section:
    unit = common_unit(probe.unit for probe in probes)
    lines = []
    intervals: dict[str, None] = {}
    for probe in probes:
        for setting in probe.settings:
            lines.append(_line(probe, setting))
            if setting.rate and has_interval(setting.rate):
                intervals[setting.rate.kind] = None
    notes = []
    for kind in intervals:
        values = {"unit": unit, "interval": kind}
        notes.append(Statement("threads-intervals", values=values))
    for probe in probes:
        notes += dispatch_threads.statements(probe)
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


def _line(probe: Probe, setting: Setting) -> list[str]:
    runs = str(setting.runs)
    if setting.failed:
        runs = f"{runs}, {setting.failed} failed"
    percent = "100"
    if setting.threads != probe.fastest:
        share = setting.relative_rate
        percent = plus_minus(share.scaled(100) if share else None, 1)
    concurrency = "n/a"
    if setting.concurrency is not None:
        concurrency = f"{setting.concurrency:.2f}"
    marks = []
    if setting.threads == probe.fastest:
        marks.append("fastest")
    if setting.threads == probe.default:
        marks.append("default")
    return [
        str(probe.num_devices),
        str(setting.threads),
        runs,
        plus_minus(setting.rate, 0),
        percent,
        concurrency,
        ", ".join(marks),
    ]


def content(probes: Sequence[Probe]) -> dict[str, Any]:
    """Return the data for JSON; rates are in items/s, and shares are ratios."""
    statements = []
    for probe in probes:
        statements += [found.data() for found in dispatch_threads.statements(probe)]
    return {
        "schema": SCHEMA,
        "probes": list(map(_probe_data, probes)),
        "statements": statements,
    }


def _probe_data(probe: Probe) -> dict[str, Any]:
    rate_name = RATE.named_after(probe.unit).name
    settings = []
    for setting in probe.settings:
        comparison = setting.comparison
        fields = {
            "threads": setting.threads,
            "runs": setting.runs,
            "failed": setting.failed,
            rate_name: interval_data(setting.rate),
            "of_best": interval_data(setting.relative_rate),
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
