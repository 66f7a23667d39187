"""Predictions and the effects of changes as text and as JSON.

Programs of users read the JSON, schemas "rnn_scaling.prediction_report/1" and
"rnn_scaling.whatif/1": keys may be added, but never rename one or change its meaning.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.interval_kinds import Basis, Note
from rnn_scaling.analysis.prediction import predicting, track_record
from rnn_scaling.analysis.prediction.changes import Effect, Sensitivity
from rnn_scaling.analysis.prediction.curves import Curve, PredictedPoint, Prediction
from rnn_scaling.analysis.prediction.sizing import SECONDS, Sizes
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records.decoding import encode
from rnn_scaling.reports.json_data import format_plain_json, make_interval_data
from rnn_scaling.reports.sections import (
    Columns,
    Grid,
    Section,
    explain_numbers,
    format_markdown,
    make_grid,
)
from rnn_scaling.reports.wording import (
    format_interval,
    format_plain,
    make_unit_heading,
    write_sentence,
    write_sentences,
)
from rnn_scaling.system.files.markdown import escape

SCHEMA = "rnn_scaling.prediction_report/1"
_CHANGES_SCHEMA = "rnn_scaling.whatif/1"
PERCENT = 100.0
_MIN_LOSS = 0.0005  # share of the ideal; smaller parts are not named
_MIN_PART = 0.005  # share of a step; smaller parts are not named
_TIME_DIGITS = 9  # digits of a time that was converted to a rate of 12 digits and back
_NOT_WRITTEN = ("schema", "date", "version", "fitted")  # fields of a kept prediction


@dataclasses.dataclass(frozen=True)
class PredictionReport:
    """The results of one call of `predict`.

    Attributes:
      source: The folder or file.
      predictions: A prediction per series.
      refused: Why other series were not predicted.
      record: How often intervals of earlier predictions held, and their cases.
      sizes: Memory, time and cost of each prediction.
    """

    source: str
    predictions: tuple[Prediction, ...] = ()
    refused: tuple[Statement, ...] = ()
    record: tuple[Statement, ...] = ()
    sizes: tuple[Sizes, ...] = ()


def list_points(prediction: Prediction) -> list[PredictedPoint]:
    """Return measured and predicted points by number of devices.

    Measured points have no parts, and replace predicted ones.
    """
    measured_points = prediction.curve.points
    first = measured_points[0]
    by_devices = {point.devices: point for point in prediction.points}
    for point in measured_points:
        efficiency = None
        if first.devices == 1:
            efficiency = Interval(point.rate / point.devices / first.rate)
            if point is first:
                efficiency = Interval.exact(1.0, Basis.DEFINITION)
            elif point.is_corrected or first.is_corrected:
                kind = efficiency.kind.with_note(Note.CORRECTED)
                efficiency = dataclasses.replace(efficiency, kind=kind)
        by_devices[point.devices] = PredictedPoint(
            point.devices, point.interval, efficiency, {}
        )
    return [by_devices[devices] for devices in sorted(by_devices)]


def make_table(prediction: Prediction) -> Grid:
    """Return a line for each number of devices, with the numbers of the source."""
    curve = prediction.curve
    decimals = {point.devices: point.decimals for point in curve.points}
    measured_source, predicted_source = predicting.list_source_names(prediction)
    digits = curve.decimals if curve.time else None
    if curve.unit == predicting.SPEEDUP_UNIT:
        digits = 2

    def format_source(point: PredictedPoint) -> str:
        return measured_source if point.devices in decimals else predicted_source

    def format_number(point: PredictedPoint) -> str:
        number = curve.to_source_unit(point.devices, point.rate)
        source_decimals = decimals.get(point.devices)
        if source_decimals is not None:
            return f"{number.value:,.{source_decimals}f}"
        return format_interval(number, digits)

    def format_efficiency(point: PredictedPoint) -> str:
        return format_interval(
            point.efficiency and point.efficiency.scaled(PERCENT), None
        )

    columns: Columns = {
        "Machines" if curve.counts_machines else "Devices": lambda point: (
            f"{point.devices:,}"
        ),
        "Source": format_source,
        _name_quantity(curve): format_number,
        "Efficiency (%)": format_efficiency,
        "Largest loss": lambda point: _find_largest_loss(point.parts),
    }
    return make_grid("", columns, list_points(prediction))


def _name_quantity(curve: Curve) -> str:
    """Return the quantity of a curve, as a heading."""
    if curve.time:
        return f"Time ({curve.time.unit})"
    if curve.unit == predicting.SPEEDUP_UNIT:
        return "Speedup"
    return f"{make_unit_heading(curve.unit)}/s"


def make_loss_tables(prediction: Prediction) -> list[Grid]:
    """Return the losses on each predicted number of devices; [] if they are unknown."""
    split_points = [point for point in prediction.points if point.parts]
    if not split_points:
        return []
    parts = []
    for part in split_points[0].parts:
        if any(point.parts[part] >= _MIN_LOSS for point in split_points):
            parts.append(part)
    if not parts:
        return []
    lines = []
    for point in split_points:
        cells = [format_plain(PERCENT * point.parts[part], 1) for part in parts]
        lines.append([f"{point.devices:,}", *cells])
    head = ["Devices", *(f"{part.capitalize()} (%)" for part in parts)]
    return [Grid("", head, lines)]


def _find_largest_loss(parts: Mapping[str, float]) -> str:
    name = predicting.find_largest_part(parts)
    return f"{name} {PERCENT * parts[name]:.0f} %" if name else "-"


def format_text(report: PredictionReport) -> str:
    """Return the answer, the tables and the assumptions of each series.

    The track record comes last.
    """
    parts = []
    for prediction, sizes in zip(report.predictions, report.sizes):
        answer = write_sentences(predicting.answer(prediction))
        parts.append(f"{prediction.curve.name}\n{answer}\n")
        grids = [make_table(prediction)]
        if prediction.is_simulated:
            grids += make_loss_tables(prediction)
        grids += make_size_tables(sizes)
        measured = [point.interval for point in prediction.curve.points]
        notes = tuple(explain_numbers(measured))
        parts.append(format_markdown([Section("", grids, notes)]))
        statements = (*sizes.statements, *predicting.state_assumptions(prediction))
        parts.append(f"{' '.join(map(write_sentence, statements))}\n")
    return escape("\n".join([*parts, *map(write_sentence, report.record), ""]))


def make_size_tables(sizes: Sizes) -> list[Grid]:
    """Return memory, time and cost by number of devices; [] if they are unknown."""
    columns: Columns = {"Devices": lambda size: f"{size.devices:,}"}
    if any(size.memory_gib for size in sizes.sizes):
        columns["Peak memory (GiB)"] = lambda size: format_interval(size.memory_gib, 2)
    if any(size.machines for size in sizes.sizes):
        columns["Machines"] = lambda size: f"{size.machines:,}"
        columns["Hours"] = lambda size: format_interval(
            size.seconds.scaled(1 / SECONDS), 2
        )
    if sizes.currency:
        columns[f"Cost ({sizes.currency})"] = lambda size: format_interval(size.cost, 2)
    return [make_grid("", columns, sizes.sizes)] if len(columns) > 1 else []


def to_json(report: PredictionReport) -> bytes:
    """Return all series, points and statements as JSON."""
    series = []
    for prediction, sizes in zip(report.predictions, report.sizes):
        fields = _make_series_data(prediction)
        fields["sizes"] = sizes.sizes
        series.append(fields)
    content = {
        "schema": SCHEMA,
        "source": report.source,
        "series": series,
        "refused": report.refused,
        "track_record": report.record,
    }
    return format_plain_json(content).encode()


def _make_series_data(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction with the fields of the file that keeps it, and the measured rates.

    A series of times also has the times, in the unit of its source.
    """
    curve = prediction.curve
    fields: dict[str, Any] = encode(track_record.make_kept_prediction(prediction))
    content = {
        name: value for name, value in fields.items() if name not in _NOT_WRITTEN
    }
    content["measured"] = [
        {"devices": point.devices, **make_interval_data(point.interval)}
        for point in curve.points
    ]
    if curve.time:
        content["time_unit"] = curve.time.unit
        for point in content["measured"]:
            rate = Interval(point["value"])
            time = curve.to_source_unit(point["devices"], rate).value
            point["time"] = float(f"{time:.{_TIME_DIGITS}g}")
        for point in content["predicted"]:
            rate = Interval(point["rate"], point["low"], point["high"])
            point["time"] = curve.to_source_unit(point["devices"], rate)
    return content


def format_changes(sensitivities: Sequence[Sensitivity]) -> str:
    """Return the parts of a step, one line per change, and the assumptions."""
    parts = []
    for sensitivity in sensitivities:
        parts += [
            write_sentence(_state_step(sensitivity)),
            "",
            format_markdown([Section("", (_make_changes_table(sensitivity),))]),
            *map(write_sentence, sensitivity.statements),
            "",
        ]
    return escape("\n".join(parts))


def _make_changes_table(sensitivity: Sensitivity) -> Grid:
    """Return a line for each change."""
    curve = sensitivity.curve
    digits = curve.decimals if curve.time else 0

    def format_number(effect: Effect) -> str:
        return format_interval(
            curve.to_source_unit(sensitivity.devices, effect.rate), digits
        )

    columns: Columns = {
        "Change": lambda effect: effect.change,
        "Gain": lambda effect: format_interval(effect.gain, 2),
        _name_quantity(curve): format_number,
        "Efficiency (%)": lambda effect: format_interval(
            effect.efficiency.scaled(PERCENT), 0
        ),
    }
    return make_grid("", columns, sensitivity.effects)


def _state_step(sensitivity: Sensitivity) -> Statement:
    """Return the parts of a step before any change, the largest first."""
    parts = sorted(sensitivity.parts.items(), key=lambda part: -part[1].value)
    names = [
        f"{name} {format_interval(share.scaled(PERCENT), 0)} %"
        for name, share in parts
        if share.value >= _MIN_PART
    ]
    return state(
        "whatif-parts",
        sensitivity.curve.name,
        devices=sensitivity.devices,
        is_device=not sensitivity.curve.counts_machines,
        parts=names,
    )


def format_changes_json(sensitivities: Sequence[Sensitivity]) -> bytes:
    """Return all series, changes and statements as JSON."""
    series = list(map(_make_sensitivity_data, sensitivities))
    return format_plain_json({"schema": _CHANGES_SCHEMA, "series": series}).encode()


def _make_sensitivity_data(sensitivity: Sensitivity) -> dict[str, Any]:
    """Return the effects of changes as JSON data."""
    curve = sensitivity.curve
    return {
        "name": curve.name,
        "source": curve.source,
        "unit": curve.unit,
        "devices": sensitivity.devices,
        "parts": sensitivity.parts,
        "changes": sensitivity.effects,
        "statements": sensitivity.statements,
    }
