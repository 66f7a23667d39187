"""Runs with several numbers of threads as a table, statements and data; `report` prints and writes them."""

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
    """One section for each configuration: its numbers of devices and threads, and what they show."""
    titled: dict[str, list[Probe]] = {}
    for probe in probes:
        titled.setdefault(probe.title, []).append(probe)
    return [_section(title, members) for title, members in titled.items()]


def _section(title: str, probes: Sequence[Probe]) -> Section:
    unit = common_unit(probe.unit for probe in probes)
    head = [
        "Devices",
        "Inter-op threads",
        "Runs",
        f"{unit}/s",
        "% of the fastest",
        "Towers at once",
        "",
    ]
    lines = [_line(probe, setting) for probe in probes for setting in probe.settings]
    rates = [
        setting.rate for probe in probes for setting in probe.settings if setting.rate
    ]
    intervals = dict.fromkeys(rate.kind for rate in rates if has_interval(rate))
    notes = [
        Statement("threads-intervals", values={"unit": unit, "interval": kind})
        for kind in intervals
    ]
    notes += [
        statement
        for probe in probes
        for statement in dispatch_threads.statements(probe)
    ]
    return Section(title, (Grid("", head, lines),), tuple(notes))


def _line(probe: Probe, setting: Setting) -> list[str]:
    marks = [
        word
        for word, at in (("fastest", probe.fastest), ("default", probe.default))
        if at == setting.threads
    ]
    percent = setting.relative_rate.scaled(100) if setting.relative_rate else None
    return [
        str(probe.num_devices),
        str(setting.threads),
        f"{setting.runs}, {setting.failed} failed"
        if setting.failed
        else str(setting.runs),
        plus_minus(setting.rate, 0),
        "100" if setting.threads == probe.fastest else plus_minus(percent, 1),
        "n/a" if setting.concurrency is None else f"{setting.concurrency:.2f}",
        ", ".join(marks),
    ]


def content(probes: Sequence[Probe]) -> dict[str, Any]:
    """The same as data; rates in items/s, shares as ratios."""
    statements = [
        statement.data()
        for probe in probes
        for statement in dispatch_threads.statements(probe)
    ]
    return {
        "schema": SCHEMA,
        "probes": [_probe_data(probe) for probe in probes],
        "statements": statements,
    }


def _probe_data(probe: Probe) -> dict[str, Any]:
    settings = [
        {
            "threads": setting.threads,
            "runs": setting.runs,
            "failed": setting.failed,
            RATE.named_after(probe.unit).name: interval_data(setting.rate),
            "of_best": interval_data(setting.relative_rate),
            "verdict": setting.comparison.verdict if setting.comparison else None,
            "concurrency": setting.concurrency,
        }
        for setting in probe.settings
    ]
    return {
        "title": probe.title,
        "num_devices": probe.num_devices,
        "default": probe.default,
        "best": probe.fastest,
        "enough": probe.sufficient,
        "settings": settings,
    }
