"""The seed's table: devices, batch size, seconds, words/s, speedup; as Markdown that also reads well as it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rnn_scaling.analysis.attribution import Attribution
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.rows import Row, measured_batches, with_baselines
from rnn_scaling.records.own_files import MARK
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import steps
from rnn_scaling.reports.markdown import markdown_table
from rnn_scaling.reports.summary import SeriesSummary, Summary, seconds

WIDE = 0.15  # half an interval over its number, from which on both ends are printed: they are not equally far away
NOTHING = 1e-9  # points of efficiency below it are the error of floating point
ALL_THERE = "every run that the parts need is there"


def render(summary: Summary) -> bytes:
    """Markdown with a last line that says whose file it is."""
    return f"{text(summary)}{MARK}".encode()


def text(summary: Summary) -> str:
    """Tables for each series: rates, where the loss goes, where a traced step goes; what ± is stands below each."""
    return "\n".join(
        f"### {each.title}\n\n{table([row.row for row in each.rows])}{_split(each)}{_steps(each)}"
        for each in summary.series
    )


def _steps(series: SeriesSummary) -> str:
    """Where a step goes, on each number of devices on which a run was traced."""
    sections = []
    for row in series.rows:
        if row.traced is not None:
            grids = "\n".join(markdown_table(*grid) for grid in steps.parts_grids(row.traced))
            notes = "".join(f"\n{note}\n" for note in steps.notes(row.traced))
            sections.append(f"\nWhere a step goes on {row.devices}:\n\n{grids}{notes}")
    return "".join(sections)


def _split(series: SeriesSummary) -> str:
    head, lines = parts_grid(series)
    if not lines:
        return ""
    notes = "".join(f"\n{note}\n" for note in parts_notes(series))
    return f"\nPoints of efficiency lost, and to what:\n\n{markdown_table(head, lines)}{notes}"


def render_runs(records: Sequence[RunRecord]) -> str:
    """The table alone, for the terminal."""
    return table(with_baselines(records))


def table(rows: Sequence[Row]) -> str:
    """One table, and a line for each kind of ± that occurs in it."""
    return markdown_table(*grid(rows)) + "".join(f"\n{note}\n" for note in notes(rows))


def notes(rows: Sequence[Row]) -> list[str]:
    """What the intervals of each column are over: a line for each kind, with the columns that have it."""
    if _is_plain(rows):
        return []
    names = {"words_per_second": "words/s", "speedup": "speedup", "efficiency": "efficiency"}
    found: dict[str, dict[str, bool]] = {}
    for metric, name in names.items():
        for value in (row.metric(metric) for row in rows):
            if value is not None and value.half_width:
                columns = found.setdefault(value.kind, {})
                columns[name] = columns.get(name, False) or is_wide(value)
    return [f"{_marks(columns.values())} {', '.join(columns)}: {kind}." for kind, columns in found.items()]


def _marks(wide: Iterable[bool]) -> str:
    return " and ".join(mark for mark, is_there in (("±", not all(wide)), ("[low, high]", any(wide))) if is_there)


def parts_grid(series: SeriesSummary) -> tuple[list[str], list[list[str]]]:
    """(header, a line for each number of devices above 1) of the points that each part takes."""
    losses = [(row.row.num_devices, row.loss) for row in series.rows if row.loss is not None]
    names = list(dict.fromkeys(part.name for _, loss in losses for part in loss.parts))
    lines = []
    for count, loss in losses:
        points = {part.name: plus_minus(part.points, 1) for part in loss.parts}
        rest = plus_minus(loss.residual_points, 1) if has_rest(loss) else "0"
        lines.append([str(count), plus_minus(loss.loss_points, 1), *(points.get(name, "n/a") for name in names), rest])
    return ["Devices", "Whole loss", *names, "Not split"], lines


def parts_notes(series: SeriesSummary) -> list[str]:
    """What ± is in the parts, and what a rest of 0 says."""
    losses = [row.loss for row in series.rows if row.loss is not None]
    values = [v for loss in losses for v in (loss.loss_points, loss.residual_points, *(p.points for p in loss.parts))]
    kinds: dict[str, list[bool]] = {}
    for value in values:
        if value is not None and value.half_width:
            kinds.setdefault(value.kind, []).append(is_wide(value))
    lines = [f"{_marks(wide)} points: {kind}." for kind, wide in kinds.items()]
    return [*lines, *([f"not split 0: {ALL_THERE}."] if any(not has_rest(loss) for loss in losses) else [])]


def has_rest(loss: Attribution) -> bool:
    """Whether something of a loss is in none of its parts, or cannot be split."""
    return any(part.value is None for part in loss.parts) or abs(loss.residual_points.value) > NOTHING


def grid(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """(header, a line of cells for each row) in the form of the seed's tables."""
    counts = {len(measured_batches(r)[0]) for row in rows for r in row.good} or {
        row.config["num_batches"] for row in rows
    }
    batches = "/".join(str(n) for n in sorted(counts)) if len(counts) < 4 else f"{min(counts)} to {max(counts)}"
    repeated = any(len(row.records) > 1 for row in rows)
    head = [
        f"{'GPU' if all(row.config['device'] == 'gpu' for row in rows) else 'Device'} number",
        "Batch size",
        f"Total time to process {batches} batches (s)",
        "Processing speed (words/s)",
        "Speedup ratio",
    ]
    plain = _is_plain(rows)
    if not plain:
        head.append("Efficiency (%)")
    if repeated:
        head.insert(2, "Runs")
    return head, [_cells(row, plain=plain, repeated=repeated) for row in rows]


def _is_plain(rows: Sequence[Row]) -> bool:
    """A single run has nothing to be compared with: the seed's own form."""
    return len(rows) == 1 and len(rows[0].records) == 1


def _cells(row: Row, plain: bool, repeated: bool) -> list[str]:
    config = row.config
    size = f"{config['global_batch_size']} in all" if config["global_batch_size"] else str(config["batch_size"])
    cells = [str(row.num_devices), size]
    if repeated:
        failed = len(row.records) - len(row.good)
        cells.append(f"{len(row.good)}" + (f", {failed} failed" if failed else ""))
    taken = seconds(row)
    if row.rate is None or taken is None:
        return [*cells, row.records[-1].status, "n/a", "n/a", *([] if plain else ["n/a"])]
    if plain:
        return [*cells, f"{taken:.3f}", f"{row.rate.value:.3f}", "n/a"]
    speedup, efficiency = row.metric("speedup"), row.metric("efficiency")
    return [
        *cells,
        f"{taken:.3f}",
        plus_minus(row.rate, 3),
        plus_minus(speedup, 2),
        plus_minus(efficiency.scaled(100) if efficiency else None, 1),
    ]


def plus_minus(interval: Interval | None, digits: int) -> str:
    """The number with its 95 % interval where it has one; "n/a" for None.

    "70.0 ± 0.8"; "160 [120, 220]" where the interval is wide and lies unevenly about the number, without the digits
    that it leaves no meaning to.
    """
    if interval is None:
        return "n/a"
    value = f"{interval.value:.{digits}f}"
    if not interval.half_width:
        return value
    if not is_wide(interval):
        return f"{value} ± {interval.half_width:.{digits}f}"
    # Two digits of the half-width, but never fewer than two of the number.
    kept = min(digits, 1 - math.floor(math.log10(min(interval.half_width, abs(interval.value)))))
    numbers = (interval.value, interval.low, interval.high)
    value, low, high = (f"{round(number or 0.0, kept):.{max(0, kept)}f}" for number in numbers)
    return f"{value} [{low}, {high}]"


def is_wide(interval: Interval) -> bool:
    """Whether ± would mislead: intervals of rates and ratios reach further up than down."""
    half = interval.half_width
    if not half or interval.low is None or interval.high is None:
        return False
    uneven = abs(interval.low + interval.high - 2 * interval.value) > 0.01 * half
    return half > WIDE * abs(interval.value) and uneven
