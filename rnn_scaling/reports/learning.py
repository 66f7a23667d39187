"""What runs learned: do several devices reach the target in less time than one?"""

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
from rnn_scaling.reports.explorer import Axis, Line, Metric, Point
from rnn_scaling.reports.numbers import interval_data, plain, plus_minus, unit_heading
from rnn_scaling.reports.sections import Columns, Section, make_grid

if TYPE_CHECKING:
    from rnn_scaling.reports.pictures.charts import Chart

SECONDS = "seconds"
MOST_POINTS = 300  # of a line of a picture

Titles = dict[Row, str]  # of the series of each row


def target_text(target: Target) -> str:
    """Return "90 % accuracy" or "a loss of 2.5"."""
    if target.kind == ACCURACY:
        return f"{100 * target.value:g} % accuracy"
    return f"a loss of {target.value:g}"


def statements(learning: Learning, titles: Titles) -> list[Statement]:
    """Return whether several devices reach the target sooner than one device.

    Without a configuration on several devices, it is about one device. Configurations
    that train otherwise come first, because their times compare different trainings.
    """
    found = []
    others = set()
    for proof in learning.other_losses:
        others.add(proof.row)
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
            continue
        if learned.row.num_devices == 1 or learned.row in others:
            found.append(_reached(learning.target, learned, title))
            continue
        found += _compared(learning, learned, title)
        ratio = learning.time_speedup(learned)
        has_single_runs |= ratio is not None and not ratio.ends
    if has_single_runs:
        found.append(Statement("target-single-runs"))
    return found


def _reached(target: Target, learned: Learned, title: str) -> Statement:
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
    sooner = learning.time_speedup(learned)
    reached = _reached(learning.target, learned, title)
    if baseline is None:
        return [reached, Statement("target-without-baseline", title)]
    if sooner is None or not (baseline.seconds and baseline.items and learned.items):
        return [reached, _missed(learning.target, baseline, title)]
    values = {
        **reached.values,
        "sooner": interval_values(sooner),
        "work": learned.items.value / baseline.items.value,
        "baseline_seconds": interval_values(baseline.seconds),
    }
    kind = "target-sooner" if sooner.value >= 1 else "target-later"
    if sooner.ends and sooner.ends[0] <= 1 <= sooner.ends[1]:
        kind = "target-within-noise"
    return [Statement(kind, title, values)]


def _missed(target: Target, learned: Learned, title: str) -> Statement:
    """State that not all runs reached the target, and how near they came."""
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


def section(learning: Learning, titles: Titles) -> Section:
    """Return a line for each configuration, and what they show."""
    unit = unit_heading(common_unit(learned.row.unit for learned in learning.learned))
    columns: Columns = {
        "Series": lambda learned: titles[learned.row],
        "Devices": lambda learned: str(learned.row.num_devices),
        "Global batch": lambda learned: str(learned.row.global_batch_size or "n/a"),
        f"{unit} to target": lambda learned: (
            plus_minus(learned.items, 0) if learned.seconds else "not reached"
        ),
        f"{unit}/s": lambda learned: plus_minus(learned.row.rate, 1),
        "Seconds": lambda learned: plus_minus(learned.seconds, 1),
        "Times as fast as one device": lambda learned: (
            plus_minus(learning.time_speedup(learned), 2)
            if learned.row.num_devices > 1
            else ""
        ),
    }
    table = make_grid(
        f"Until {target_text(learning.target)}", columns, learning.learned
    )
    found = (*statements(learning, titles), *notes(learning))
    return Section("Learning", (table,), found)


def as_json(learning: Learning, titles: Titles) -> dict[str, Any]:
    target = learning.target
    rows = []
    for learned in learning.learned:
        rows.append(
            {
                "series": titles[learned.row],
                "num_devices": learned.row.num_devices,
                "global_batch": learned.row.global_batch_size,
                "needed": list(learned.needed),
                "items": interval_data(learned.items),
                "seconds": interval_data(learned.seconds),
                "best": learned.best,
                "times_as_soon": interval_data(learning.time_speedup(learned)),
            }
        )
    given = {
        "kind": target.kind,
        "value": target.value,
        "given": target.is_chosen_by_user,
    }
    return {
        "target": given,
        "windows": dict(learning.windows),
        "statements": [statement.data() for statement in statements(learning, titles)],
        "rows": rows,
    }


def row_numbers(
    learning: Learning, row: Row
) -> tuple[Interval | None, Interval | None, Interval | None]:
    """Return (items to the target, seconds, times as soon as one device) of a row."""
    for learned in learning.learned:
        if learned.row is row:
            sooner = learning.time_speedup(learned) if row.num_devices > 1 else None
            return learned.items, learned.seconds, sooner
    return None, None, None


def charts(learning: Learning, titles: Titles) -> dict[str, Chart]:
    """Return accuracy and loss over items and seconds, by the names of their files."""
    from rnn_scaling.reports.pictures.charts import Chart

    has_accuracy = any(
        run.batches.correct
        for learned in learning.learned
        for run in learned.row.good_runs
    )
    across = {
        ITEMS: common_unit(learning.windows),
        SECONDS: "seconds at the measured speed",
    }
    target = learning.target
    made = {}
    for kind in (ACCURACY, LOSS) if has_accuracy else (LOSS,):
        factor = 100.0 if kind == ACCURACY else 1.0
        metric = Metric(kind, kind, "%" if kind == ACCURACY else "", 4)
        level = factor * target.value if target.kind == kind else None
        for over, title in across.items():
            lines = []
            for k, learned in enumerate(learning.learned):
                points = [
                    Point({over: place}, {kind: Interval(factor * value)})
                    for place, value in _curve(learned, learning, kind, over)
                ]
                name = f"{titles[learned.row]}, {learned.row.devices}"
                lines.append(Line(name, points, colour=k, shape=k // 6))
            made[f"{kind}_over_{over}"] = Chart(
                metric,
                Axis(over, title, "amount"),
                lines,
                functools.partial(_level, level),
                "target",
            )
    return made


def _level(level: float | None, _: float) -> float | None:
    return level


def _curve(
    learned: Learned, learning: Learning, kind: str, over: str
) -> list[tuple[float, float]]:
    """Return the (place, value) pairs of the first run of a configuration."""
    run = learned.row.good_runs[0]
    smooth = curve(run.batches, kind, learning.windows[learned.row.unit])
    rate = 1.0
    if over == SECONDS and run.throughput:
        rate = run.throughput.items_per_second
    line = [
        (items / rate, value)
        for items, value in zip(smooth.items, smooth.values)
        if math.isfinite(value)
    ]
    return line[:: max(1, len(line) // MOST_POINTS)]
