"""The time to a target of accuracy or loss, on one device and on several.

The keys of `make_data` are part of report.json: never rename one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.learning import (
    ACCURACY,
    LOSS,
    WINDOW_BATCHES,
    Learning,
    LearningResult,
    Target,
    smooth,
)
from rnn_scaling.analysis.metrics import ITEMS, Metric, find_common_unit
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.reports.columns import (
    Column,
    format_cells_by_header,
    format_csv_line,
    make_json_fields,
)
from rnn_scaling.reports.explorer import Axis, Line, Point
from rnn_scaling.reports.sections import Section, explain_numbers, make_grid
from rnn_scaling.reports.wording import format_interval, format_plain, make_unit_heading

if TYPE_CHECKING:
    from rnn_scaling.reports.pictures.charts import Chart

SECONDS = "seconds"
_MAX_POINTS = 300  # points in one line of a picture
_COLOURS_PER_SHAPE = 6

Titles = dict[Row, str]  # title of the series of each row
ResultColumn = Column[LearningResult]


def _format_target(target: Target) -> str:
    """Return "90 % accuracy" or "a loss of 2.5"."""
    if target.kind == ACCURACY:
        return f"{100 * target.value:g} % accuracy"
    return f"a loss of {target.value:g}"


def make_statements(learning: Learning, titles: Titles) -> list[Statement]:
    """State whether several devices reach the target sooner than one device.

    If no configuration has several devices, the statements are about one device.
    Configurations that train differently come first, because their times compare
    different trainings.
    """
    statements = []
    differing_rows = set()
    for proof in learning.other_training:
        if proof.loss is None:
            continue
        differing_rows.add(proof.row)
        statements.append(
            state(
                "target-other-losses",
                titles[proof.row],
                devices=proof.row.devices,
                fewer_devices=proof.reference.devices,
                step=proof.loss.step,
                loss=proof.loss.value,
                fewer_devices_loss=proof.loss.reference_value,
                repeats=proof.loss.repeats,
            )
        )

    parallel = [result for result in learning.results if result.row.num_devices > 1]
    has_single_runs = False
    for result in parallel or learning.results:
        title = titles[result.row]
        if result.seconds is None:
            statements.append(_state_missed_target(learning.target, result, title))
        elif result.row.num_devices == 1 or result.row in differing_rows:
            statements.append(_state_reached_target(learning.target, result, title))
        else:
            statements += _state_comparisons(learning, result, title)
            ratio = learning.time_speedup(result)
            has_single_runs |= ratio is not None and not ratio.ends
    if has_single_runs:
        statements.append(state("target-single-runs"))
    return statements


def _state_reached_target(
    target: Target, result: LearningResult, title: str
) -> Statement:
    """State that a configuration reached the target, and when."""
    assert result.seconds and result.items
    return state(
        "target-reached",
        title,
        devices=result.row.devices,
        target=_format_target(target),
        unit=result.row.unit,
        seconds=result.seconds,
        items=result.items,
    )


def _state_comparisons(
    learning: Learning, result: LearningResult, title: str
) -> list[Statement]:
    """Compare a configuration that reached the target with one device."""
    baseline = learning.baseline(result)
    ratio = learning.time_speedup(result)
    reached_statement = _state_reached_target(learning.target, result, title)
    if baseline is None:
        return [reached_statement, state("target-without-baseline", title)]
    if learning.is_time_hidden(result):
        return [reached_statement, *_state_work(result, baseline, title)]
    if ratio is None or not (baseline.seconds and baseline.items and result.items):
        return [
            reached_statement,
            _state_missed_target(learning.target, baseline, title),
        ]
    values = {
        **reached_statement.values,
        "sooner": ratio,
        "work": result.items.value / baseline.items.value,
        "baseline_seconds": baseline.seconds,
    }
    kind = "target-sooner" if ratio.value >= 1 else "target-later"
    if ratio.ends and ratio.ends[0] <= 1 <= ratio.ends[1]:
        kind = "target-within-noise"
    return [state(kind, title, **values)]


def _state_work(
    result: LearningResult, baseline: LearningResult, title: str
) -> list[Statement]:
    """Return the items that a configuration needs if load hides how times compare."""
    if not (result.items and baseline.items):
        return []
    work = result.items.value / baseline.items.value
    return [state("target-work", title, unit=result.row.unit, work=work)]


def _state_missed_target(
    target: Target, result: LearningResult, title: str
) -> Statement:
    """State that not all runs reached the target, and the nearest value."""
    values = {
        "devices": result.row.devices,
        "runs": len(result.run_items),
        "target": _format_target(target),
    }
    if result.best is None:
        values |= {"quantity": target.kind, "batches": WINDOW_BATCHES}
        return state("target-not-recorded", title, **values)
    values["best"] = f"{result.best:.4g}"
    if target.kind == ACCURACY:
        values["best"] = f"{100 * result.best:.1f} %"
    values["missed"] = result.run_items.count(None)
    return state("target-missed", title, **values)


def _make_notes(learning: Learning) -> Iterator[Statement]:
    """Yield the meaning of the target, of the means and of the seconds."""
    target = learning.target
    unit = find_common_unit(learning.windows)
    if not target.is_chosen_by_user:
        is_missed = any(None in result.run_items for result in learning.results)
        kind = "target-lowest" if is_missed else "target-highest"
        yield state(kind, target=_format_target(target))
    is_of_predictions = unit == ITEMS or target.kind == ACCURACY
    window = {
        "windows": [
            format_plain(window, 0) for window in sorted(learning.windows.values())
        ],
        "per": "predictions" if is_of_predictions else "predicted items",
    }
    yield state("target-window", **window)
    yield state("target-seconds", unit=unit)


def _make_columns(learning: Learning, titles: Titles) -> dict[str, ResultColumn]:
    """Return the columns of all formats by name."""
    unit = find_common_unit(result.row.unit for result in learning.results)
    heading = make_unit_heading(unit)

    def format_items(result: LearningResult) -> str:
        return format_interval(result.items, 0) if result.seconds else "not reached"

    def format_speedup(result: LearningResult) -> str:
        if result.row.num_devices == 1:
            return ""
        return format_interval(learning.time_speedup(result), 2)

    columns = [
        ResultColumn("series", lambda result: titles[result.row], "Series"),
        ResultColumn("num_devices", lambda result: result.row.num_devices, "Devices"),
        ResultColumn(
            "global_batch",
            lambda result: result.row.global_batch_size,
            "Global batch",
        ),
        ResultColumn("needed", lambda result: list(result.run_items)),
        ResultColumn(
            "items",
            lambda result: result.items,
            f"{heading} to target",
            has_interval=True,
            csv_name="items_to_target",
            text=format_items,
        ),
        ResultColumn("rate", lambda result: result.row.rate, f"{heading}/s", 1),
        ResultColumn(
            "seconds",
            lambda result: result.seconds,
            "Seconds",
            1,
            has_interval=True,
            csv_name="seconds_to_target",
        ),
        ResultColumn("best", lambda result: result.best),
        ResultColumn(
            "times_as_soon",
            learning.time_speedup,
            "Times as fast as one device",
            has_interval=True,
            csv_name="times_as_soon_as_one_device",
            text=format_speedup,
        ),
    ]
    return {column.name: column for column in columns}


def make_section(learning: Learning, titles: Titles) -> Section:
    """Return a line for each configuration, and statements about them."""
    cells = format_cells_by_header(_make_columns(learning, titles).values())
    table = make_grid(
        f"Until {_format_target(learning.target)}", cells, learning.results
    )
    seconds = [result.seconds for result in learning.results]
    notes = (
        *make_statements(learning, titles),
        *explain_numbers(seconds),
        *_make_notes(learning),
    )
    return Section("Learning", (table,), notes)


def make_data(learning: Learning, titles: Titles) -> dict[str, Any]:
    """Return the target, and the items and seconds of each configuration."""
    target = learning.target
    columns = _make_columns(learning, titles)
    del columns["rate"]
    return {
        "target": {
            "kind": target.kind,
            "value": target.value,
            "given": target.is_chosen_by_user,
        },
        "windows": dict(learning.windows),
        "statements": make_statements(learning, titles),
        "rows": [
            make_json_fields(columns.values(), result) for result in learning.results
        ],
    }


def make_csv_fields(learning: Learning, titles: Titles, row: Row) -> dict[str, Any]:
    """Return the fields of a row; None if the row did not train."""
    columns = _make_columns(learning, titles)
    results = {result.row: result for result in learning.results}
    result = results.get(row)
    fields = format_csv_line([columns["items"], columns["seconds"]], result)
    # One device is not compared with itself.
    compared_result = result if row.num_devices > 1 else None
    return fields | columns["times_as_soon"].csv_fields(compared_result)


def make_charts(learning: Learning, titles: Titles) -> dict[str, Chart]:
    """Return accuracy and loss over items and seconds, by the names of their files."""
    has_accuracy = False
    for result in learning.results:
        has_accuracy |= any(run.batches.correct for run in result.row.good_runs)
    axes = [
        Axis(ITEMS, find_common_unit(learning.windows), "amount"),
        Axis(SECONDS, "seconds at the measured speed", "amount"),
    ]
    charts = {}
    for kind in (ACCURACY, LOSS) if has_accuracy else (LOSS,):
        for axis in axes:
            charts[f"{kind}_over_{axis.name}"] = _make_chart(
                learning, titles, kind, axis
            )
    return charts


def _make_chart(learning: Learning, titles: Titles, kind: str, axis: Axis) -> Chart:
    """Return the chart of one quantity, with the target as a level."""
    from rnn_scaling.reports.pictures.charts import Chart

    target = learning.target
    unit = "%" if kind == ACCURACY else ""
    factor = 100.0 if kind == ACCURACY else 1.0
    level = factor * target.value if target.kind == kind else None

    lines = []
    for number, result in enumerate(learning.results):
        points = [
            Point({axis.name: place}, {kind: Interval(factor * value)})
            for place, value in _list_curve_points(result, learning, kind, axis.name)
        ]
        name = f"{titles[result.row]}, {result.row.devices}"
        lines.append(
            Line(name, points, colour=number, shape=number // _COLOURS_PER_SHAPE)
        )
    metric = Metric(kind, kind, unit, digits=4)
    return Chart(
        metric, axis=axis, lines=lines, ideal=lambda _: level, ideal_title="target"
    )


def _list_curve_points(
    result: LearningResult, learning: Learning, kind: str, axis: str
) -> list[tuple[float, float]]:
    """Return the (place, value) pairs of the first run of a configuration."""
    run = result.row.good_runs[0]
    curve = smooth(run.batches, kind, learning.windows[result.row.unit])
    rate = 1.0
    if axis == SECONDS and run.throughput:
        rate = disturbance.compute_counted_rate(run)
    line = [
        (items / rate, value)
        for items, value in zip(curve.items, curve.values)
        if math.isfinite(value)
    ]
    return line[:: max(1, len(line) // _MAX_POINTS)]
