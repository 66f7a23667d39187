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


def _place_columns(titles: Titles) -> list[Column[Learned]]:
    """Return the columns that identify a configuration."""
    return [
        Column("series", "Series", lambda learned: titles[learned.row]),
        Column("num_devices", "Devices", lambda learned: learned.row.num_devices),
        Column(
            "global_batch",
            "Global batch",
            lambda learned: learned.row.global_batch_size or None,
        ),
    ]


def _items_column(unit: str) -> Column[Learned]:
    def text(learned: Learned) -> str:
        return plus_minus(learned.items, 0) if learned.seconds else "not reached"

    return Column(
        "items",
        f"{unit_heading(unit)} to target",
        lambda learned: learned.items,
        has_interval=True,
        csv_name="items_to_target",
        text=text,
    )


SECONDS_COLUMN: Column[Learned] = Column(
    "seconds",
    "Seconds",
    lambda learned: learned.seconds,
    digits=1,
    has_interval=True,
    csv_name="seconds_to_target",
)


def _ratio_column(learning: Learning, has_one_device: bool) -> Column[Learned]:
    """Return the column of the speed over one device.

    Args:
      learning: The configurations.
      has_one_device: Whether one device has a value, which is 1.
    """

    def value(learned: Learned) -> Interval | None:
        is_compared = has_one_device or learned.row.num_devices > 1
        return learning.time_speedup(learned) if is_compared else None

    def text(learned: Learned) -> str:
        if learned.row.num_devices == 1:
            return ""
        return plus_minus(learning.time_speedup(learned), 2)

    return Column(
        "times_as_soon",
        "Times as fast as one device",
        value,
        has_interval=True,
        csv_name="times_as_soon_as_one_device",
        text=text,
    )


def section(learning: Learning, titles: Titles) -> Section:
    """Return a line for each configuration, and statements about them."""
    unit = common_unit(learned.row.unit for learned in learning.learned)
    rate: Column[Learned] = Column(
        "rate", f"{unit_heading(unit)}/s", lambda learned: learned.row.rate, digits=1
    )
    columns = [
        *_place_columns(titles),
        _items_column(unit),
        rate,
        SECONDS_COLUMN,
        _ratio_column(learning, has_one_device=False),
    ]
    cells: Columns = {column.header: column.cell for column in columns}
    table = make_grid(f"Until {target_text(learning.target)}", cells, learning.learned)
    return Section(
        "Learning", (table,), (*statements(learning, titles), *notes(learning))
    )


def as_json(learning: Learning, titles: Titles) -> dict[str, Any]:
    """Return the target, and the items and seconds of each configuration."""
    target = learning.target
    needs = [
        _items_column(ITEMS),
        SECONDS_COLUMN,
    ]
    ratio = _ratio_column(learning, has_one_device=True)
    rows = []
    for learned in learning.learned:
        row = json_fields(_place_columns(titles), learned)
        row["needed"] = list(learned.needed)
        row |= json_fields(needs, learned)
        row["best"] = learned.best
        row |= json_fields([ratio], learned)
        rows.append(row)
    return {
        "target": {
            "kind": target.kind,
            "value": target.value,
            "given": target.is_chosen_by_user,
        },
        "windows": dict(learning.windows),
        "statements": [statement.data() for statement in statements(learning, titles)],
        "rows": rows,
    }


def csv_cells(learning: Learning, row: Row) -> list[CsvCell]:
    """Return the cells of a row; empty cells if the row did not train."""
    found = [learned for learned in learning.learned if learned.row is row]
    columns = [
        _items_column(ITEMS),
        SECONDS_COLUMN,
        _ratio_column(learning, has_one_device=False),
    ]
    return csv_line(columns, found[0] if found else None)


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
