"""The time to a target of accuracy or loss, on one device and on several."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.learning import (
    ACCURACY,
    LOSS,
    WINDOW_BATCHES,
    Learned,
    Learning,
    Target,
    curve,
)
from rnn_scaling.analysis.metrics import ITEMS, common_unit
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.reports.columns import Column, CsvCell, csv_line, json_fields
from rnn_scaling.reports.explorer import Axis, Line, Metric, Point
from rnn_scaling.reports.numbers import plain, plus_minus, unit_heading
from rnn_scaling.reports.sections import Columns, Section, make_grid

if TYPE_CHECKING:
    from rnn_scaling.reports.pictures.charts import Chart

SECONDS = "seconds"
MOST_POINTS = 300  # of a line of a picture
COLOURS_PER_SHAPE = 6

Titles = dict[Row, str]  # title of the series of each row
LearnedColumn = Column[Learned]


def target_text(target: Target) -> str:
    """Return "90 % accuracy" or "a loss of 2.5"."""
    if target.kind == ACCURACY:
        return f"{100 * target.value:g} % accuracy"
    return f"a loss of {target.value:g}"


def statements(learning: Learning, titles: Titles) -> list[Statement]:
    """Return whether several devices reach the target sooner than one device.

    If no configuration has several devices, the statements are about one device.
    Configurations that train differently come first, because their times compare
    different trainings.
    """
    found = []
    differing_rows = set()
    for proof in learning.other_losses:
        differing_rows.add(proof.row)
        values = {
            "devices": proof.row.devices,
            "fewer_devices": proof.reference.devices,
            "step": proof.step,
            "loss": proof.loss,
            "fewer_devices_loss": proof.reference_loss,
            "repeats": proof.repeats,
        }
        found.append(Statement("target-other-losses", titles[proof.row], values))

    several = [learned for learned in learning.learned if learned.row.num_devices > 1]
    has_single_runs = False
    for learned in several or learning.learned:
        title = titles[learned.row]
        if learned.seconds is None:
            found.append(_missed(learning.target, learned, title))
        elif learned.row.num_devices == 1 or learned.row in differing_rows:
            found.append(_reached(learning.target, learned, title))
        else:
            found += _compared(learning, learned, title)
            ratio = learning.time_speedup(learned)
            has_single_runs |= ratio is not None and not ratio.ends
    if has_single_runs:
        found.append(Statement("target-single-runs"))
    return found


def _reached(target: Target, learned: Learned, title: str) -> Statement:
    """State that a configuration reached the target, and when."""
    assert learned.seconds and learned.items
    values = {
        "devices": learned.row.devices,
        "target": target_text(target),
        "unit": learned.row.unit,
        "seconds": interval_values(learned.seconds),
        "items": interval_values(learned.items),
    }
    return Statement("target-reached", title, values)


def _compared(learning: Learning, learned: Learned, title: str) -> list[Statement]:
    """Compare a configuration that reached the target with one device."""
    baseline = learning.baseline(learned)
    ratio = learning.time_speedup(learned)
    reached = _reached(learning.target, learned, title)
    if baseline is None:
        return [reached, Statement("target-without-baseline", title)]
    if ratio is None or not (baseline.seconds and baseline.items and learned.items):
        return [reached, _missed(learning.target, baseline, title)]
    values = {
        **reached.values,
        "sooner": interval_values(ratio),
        "work": learned.items.value / baseline.items.value,
        "baseline_seconds": interval_values(baseline.seconds),
    }
    kind = "target-sooner" if ratio.value >= 1 else "target-later"
    if ratio.ends and ratio.ends[0] <= 1 <= ratio.ends[1]:
        kind = "target-within-noise"
    return [Statement(kind, title, values)]


def _missed(target: Target, learned: Learned, title: str) -> Statement:
    """State that not all runs reached the target, and the nearest value."""
    values = {
        "devices": learned.row.devices,
        "runs": len(learned.needed),
        "target": target_text(target),
    }
    if learned.best is None:
        values |= {"quantity": target.kind, "batches": WINDOW_BATCHES}
        return Statement("target-not-recorded", title, values)
    values["best"] = f"{learned.best:.4g}"
    if target.kind == ACCURACY:
        values["best"] = f"{100 * learned.best:.1f} %"
    values["missed"] = learned.needed.count(None)
    return Statement("target-missed", title, values)


def notes(learning: Learning) -> list[Statement]:
    """Return the meaning of the target, of the means and of the seconds."""
    target = learning.target
    unit = common_unit(learning.windows)
    found = []
    if not target.is_chosen_by_user:
        is_missed = any(None in learned.needed for learned in learning.learned)
        kind = "target-lowest" if is_missed else "target-highest"
        found.append(Statement(kind, values={"target": target_text(target)}))
    is_of_predictions = unit == ITEMS or target.kind == ACCURACY
    window = {
        "windows": [plain(window, 0) for window in sorted(learning.windows.values())],
        "per": "predictions" if is_of_predictions else "predicted items",
    }
    return [
        *found,
        Statement("target-window", values=window),
        Statement("target-seconds", values={"unit": unit}),
    ]


def _columns(learning: Learning, titles: Titles) -> dict[str, LearnedColumn]:
    """Return the columns of all formats by name."""
    unit = common_unit(learned.row.unit for learned in learning.learned)
    heading = unit_heading(unit)

    def items_text(learned: Learned) -> str:
        return plus_minus(learned.items, 0) if learned.seconds else "not reached"

    def speedup_text(learned: Learned) -> str:
        if learned.row.num_devices == 1:
            return ""
        return plus_minus(learning.time_speedup(learned), 2)

    columns = [
        LearnedColumn("series", lambda learned: titles[learned.row], "Series"),
        LearnedColumn(
            "num_devices", lambda learned: learned.row.num_devices, "Devices"
        ),
        LearnedColumn(
            "global_batch",
            lambda learned: learned.row.global_batch_size,
            "Global batch",
        ),
        LearnedColumn("needed", lambda learned: list(learned.needed)),
        LearnedColumn(
            "items",
            lambda learned: learned.items,
            f"{heading} to target",
            has_interval=True,
            csv_name="items_to_target",
            text=items_text,
        ),
        LearnedColumn("rate", lambda learned: learned.row.rate, f"{heading}/s", 1),
        LearnedColumn(
            "seconds",
            lambda learned: learned.seconds,
            "Seconds",
            1,
            has_interval=True,
            csv_name="seconds_to_target",
        ),
        LearnedColumn("best", lambda learned: learned.best),
        LearnedColumn(
            "times_as_soon",
            learning.time_speedup,
            "Times as fast as one device",
            has_interval=True,
            csv_name="times_as_soon_as_one_device",
            text=speedup_text,
        ),
    ]
    return {column.name: column for column in columns}


def section(learning: Learning, titles: Titles) -> Section:
    """Return a line for each configuration, and statements about them."""
    cells: Columns = {}
    for column in _columns(learning, titles).values():
        if column.header:
            cells[column.header] = column.cell
    table = make_grid(f"Until {target_text(learning.target)}", cells, learning.learned)
    return Section(
        "Learning", (table,), (*statements(learning, titles), *notes(learning))
    )


def as_json(learning: Learning, titles: Titles) -> dict[str, Any]:
    """Return the target, and the items and seconds of each configuration."""
    target = learning.target
    columns = _columns(learning, titles)
    del columns["rate"]
    return {
        "target": {
            "kind": target.kind,
            "value": target.value,
            "given": target.is_chosen_by_user,
        },
        "windows": dict(learning.windows),
        "statements": [statement.data() for statement in statements(learning, titles)],
        "rows": [
            json_fields(columns.values(), learned) for learned in learning.learned
        ],
    }


def csv_cells(learning: Learning, titles: Titles, row: Row) -> list[CsvCell]:
    """Return the cells of a row; empty cells if the row did not train."""
    columns = _columns(learning, titles)
    found = [learned for learned in learning.learned if learned.row is row]
    learned = found[0] if found else None
    cells = csv_line([columns["items"], columns["seconds"]], learned)
    compared = learned if row.num_devices > 1 else None
    return cells + columns["times_as_soon"].csv_cells(compared)


def charts(learning: Learning, titles: Titles) -> dict[str, Chart]:
    """Return accuracy and loss over items and seconds, by the names of their files."""
    has_accuracy = False
    for learned in learning.learned:
        has_accuracy |= any(run.batches.correct for run in learned.row.good_runs)
    axes = [
        Axis(ITEMS, common_unit(learning.windows), "amount"),
        Axis(SECONDS, "seconds at the measured speed", "amount"),
    ]
    found = {}
    for kind in (ACCURACY, LOSS) if has_accuracy else (LOSS,):
        for axis in axes:
            found[f"{kind}_over_{axis.name}"] = _chart(learning, titles, kind, axis)
    return found


def _chart(learning: Learning, titles: Titles, kind: str, axis: Axis) -> Chart:
    """Return the chart of one quantity, with the target as a level."""
    from rnn_scaling.reports.pictures.charts import Chart

    target = learning.target
    unit = "%" if kind == ACCURACY else ""
    factor = 100.0 if kind == ACCURACY else 1.0
    level = factor * target.value if target.kind == kind else None

    lines = []
    for k, learned in enumerate(learning.learned):
        points = []
        for place, value in _curve(learned, learning, kind, axis.name):
            points.append(Point({axis.name: place}, {kind: Interval(factor * value)}))
        name = f"{titles[learned.row]}, {learned.row.devices}"
        lines.append(Line(name, points, colour=k, shape=k // COLOURS_PER_SHAPE))
    metric = Metric(kind, kind, unit, 4)
    return Chart(metric, axis, lines, functools.partial(_level, level), "target")


def _level(level: float | None, _: float) -> float | None:
    return level


def _curve(
    learned: Learned, learning: Learning, kind: str, axis: str
) -> list[tuple[float, float]]:
    """Return the (place, value) pairs of the first run of a configuration."""
    run = learned.row.good_runs[0]
    smooth = curve(run.batches, kind, learning.windows[learned.row.unit])
    rate = 1.0
    if axis == SECONDS and run.throughput:
        rate = run.throughput.items_per_second
    line = []
    for items, value in zip(smooth.items, smooth.values):
        if math.isfinite(value):
            line.append((items / rate, value))
    return line[:: max(1, len(line) // MOST_POINTS)]
