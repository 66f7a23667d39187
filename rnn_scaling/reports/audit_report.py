"""What the audit found -> text, Markdown, JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from rnn_scaling.audit.auditing import FileReport
from rnn_scaling.audit.derived import Series
from rnn_scaling.audit.finding import Finding
from rnn_scaling.files import input_files
from rnn_scaling.files.markdown import markdown_table

MAX_NOTES = 20  # printed a file
_RATES = {
    "total": "of all together",
    "a worker's": "of one worker",
    "steps": "of steps, times the batch of all devices",
}
_COLLAPSE = 2 / 3  # of the speed before; what keeps more only falls
MAX_SERIES, MAX_POINTS = 12, 10  # printed a file, and a series


def _sum_line(report: FileReport) -> str:
    return (
        f"{report.source}: {report.tables} tables, {report.numbers} numbers, {report.comparisons} comparisons, "
        f"{report.found} findings"
    )


def _where(finding: Finding) -> str:
    return f"{finding.source}:{finding.line}" if finding.line else finding.source


def render_text(reports: Sequence[FileReport]) -> str:
    """One line a finding, and one a file."""
    lines = []
    for report in reports:
        for f in sorted(report.findings, key=lambda f: f.line):
            lines.append(
                f"{_where(f)}: {f.kind} [{f.check}] {f.row}: {f.column} is {f.stands}, expected {f.expected}; {f.cause}"
            )
        if report.found > len(report.findings):
            lines.append(f"{report.source}: {report.found - len(report.findings)} more findings are not shown")
        lines.append(_sum_line(report))
        lines += [f"{fact} [derived]" for fact in report.facts]
        for series in report.derived[:MAX_SERIES]:
            lines += ["", *derived_lines(series)]
        if len(report.derived) > MAX_SERIES:
            lines.append(f"{report.source}: {len(report.derived) - MAX_SERIES} more series: --format=json has all")
    return "\n".join(lines)


def derived_lines(series: Series) -> list[str]:
    """What one series implies: a line that names it, a small table, and a sentence."""
    place = f"{series.source}:{series.line}" if series.line else series.source
    kind = f"{series.scaling} scaling" if series.scaling else "scaling, weak or strong not said"
    rates = f", rates {_RATES[series.rates]}" if series.rates else ""
    name = f" {series.series}," if series.series else ""
    points = series.points[:MAX_POINTS]
    rows = [
        ["devices", *(str(point.devices) for point in points)],
        ["speedup", *(f"{point.speedup:.3g}" for point in points)],
        ["efficiency", *(f"{100 * point.efficiency:.3g} %" for point in points)],
        ["step", *("" if point.step is None else f"x {point.step:.3g}" for point in points)],
    ]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    more = [f"  {len(series.points) - MAX_POINTS} more points"] if len(series.points) > MAX_POINTS else []
    return [f"{place}:{name} {kind}{rates} [derived]", *lines, *more, f"  {derived_sentence(series)}"]


def derived_sentence(series: Series) -> str:
    """Best number of devices, knee, collapse, and the part of the time that does not scale."""
    said = [*_means(series), f"Fastest on {series.best_devices}."]
    if series.knee and series.knee not in series.collapse[:1]:
        said.append(f"Beyond {series.knee} a further device adds less than half of what the first does.")
    if series.collapse:
        before, after = (next(p for p in series.points if p.devices == n) for n in series.collapse)
        fall = f"{before.speedup / after.speedup:.2g}"
        numbers = ""
        if series.rates and before.measured and after.measured:
            numbers = f", {before.measured:,.6g} to {after.measured:,.6g}"
        falls = "collapses" if after.speedup <= _COLLAPSE * before.speedup else "falls"
        said.append(f"From {before.devices} to {after.devices} it {falls}: {fall} times slower{numbers}.")
    if series.time:
        share = series.time.fixed / (series.time.fixed + series.time.scaled / series.points[-1].devices)
        said.append(
            f"Seconds = {series.time.scaled:.4g} / devices + {series.time.fixed:.3g}, within "
            f"{100 * series.time.residual:.2g} %: {100 * share:.2g} % of the time on "
            f"{series.points[-1].devices} devices does not scale."
        )
    if series.phases:
        most = series.points[-1].devices
        each = ", ".join(f"{name} {speedup:.3g}" for name, speedup in series.phases.items())
        said.append(f"Times faster on {most}: {each}.")
    return " ".join(said)


def _means(series: Series) -> list[str]:
    """Which points stand for several rows: one sentence, or none."""
    repeated = [point for point in series.points if point.rows > 1]
    if not repeated:
        return []
    what = "rows" if repeated[0].line else "runs"  # records have no lines
    if len({point.rows for point in series.points}) == 1:
        return [f"Each point is the geometric mean of {repeated[0].rows} {what}."]
    means = ", ".join(f"{point.rows} {what} on {point.devices}" for point in repeated[:MAX_POINTS])
    return [f"Geometric means of {means}{' and more' if len(repeated) > MAX_POINTS else ''}."]


def render_markdown(reports: Sequence[FileReport]) -> str:
    """A table of all findings."""
    head = ["Where", "Kind", "Check", "Row", "Column", "Stands", "Expected", "Likely cause"]
    rows = [
        [_where(f), f.kind, f.check, f.row, f.column, f.stands, f.expected, f.cause]
        for report in reports
        for f in sorted(report.findings, key=lambda f: f.line)
    ]
    summary = [f"- {_sum_line(report)}" for report in reports]
    facts = [f"- {fact}" for report in reports for fact in report.facts]
    for report in reports:
        for series in report.derived:
            first, *_ = derived_lines(series)
            gains = ", ".join(f"{p.devices}: {p.speedup:.3g} ({100 * p.efficiency:.3g} %)" for p in series.points)
            facts.append(
                f"- {first.removesuffix(' [derived]')}. Speedup (efficiency) on {gains}. {derived_sentence(series)}"
            )
    return "\n".join(
        [markdown_table(head, rows, padded=False), *summary, *(["", "Derived:", "", *facts] if facts else [])]
    )


def render_json(reports: Sequence[FileReport]) -> str:
    """The reports as they are, under the schema "rnn_scaling.audit/1"."""
    files = [dataclasses.asdict(r) for r in reports]
    return input_files.json_text({"schema": "rnn_scaling.audit/1", "files": files}).rstrip("\n")


RENDER: dict[str, Callable[[Sequence[FileReport]], str]] = {
    "text": render_text,
    "markdown": render_markdown,
    "json": render_json,
}


def left_out(report: FileReport) -> list[str]:
    """What of a file could not be used, for stderr."""
    lines = [f"error: {report.error}"] if report.error else []
    for note in report.notes[:MAX_NOTES]:
        lines.append(f"note: {note if note.startswith(report.source) else f'{report.source}: {note}'}")
    if len(report.notes) > MAX_NOTES:
        lines.append(f"note: {report.source}: {len(report.notes) - MAX_NOTES} more of the kind")
    return lines
