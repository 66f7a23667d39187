"""Renders predictions with their track record, and what changes would do, for the terminal and as JSON."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction import predicting, track_record
from rnn_scaling.analysis.prediction.changes import Sensitivity
from rnn_scaling.analysis.prediction.curves import Curve, PredictedPoint, Prediction
from rnn_scaling.analysis.prediction.sizing import SECONDS, Sizes
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records.decoding import encode
from rnn_scaling.reports.numbers import interval_data, plain, plus_minus, unit_heading
from rnn_scaling.reports.sections import Columns, Grid, Section, make_grid, markdown
from rnn_scaling.reports.wording import sentence, sentences
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import escaped

SCHEMA, CHANGES_SCHEMA = "rnn_scaling.prediction_report/1", "rnn_scaling.whatif/1"
PERCENT = 100.0
LEAST = 0.0005  # share of the ideal, of a part that is named
LEAST_CHANGED = 0.005  # share of a step, of a part that is named
TIME_DIGITS = 9  # of a time that was made into a rate of 12 digits and back
NOT_WRITTEN = ("schema", "date", "version", "fitted")  # fields of a kept prediction


@dataclasses.dataclass(frozen=True)
class PredictionReport:
    """What a call of `predict` found. refused: why series were not predicted."""

    source: str
    predictions: tuple[Prediction, ...] = ()
    refused: tuple[Statement, ...] = ()
    record: tuple[Statement, ...] = ()  # how often intervals held, and hits and misses
    sizes: tuple[Sizes, ...] = ()  # memory, time and cost of each prediction


def points(prediction: Prediction) -> list[PredictedPoint]:
    """The measured numbers of devices, without parts, and the predicted ones that are not measured."""
    first, *_ = measured = prediction.curve.points
    efficiencies = [
        Interval(p.rate / p.devices / first.rate) if first.devices == 1 else None
        for p in measured
    ]
    known = {
        p.devices: PredictedPoint(p.devices, p.interval, e, {})
        for p, e in zip(measured, efficiencies)
    }
    every = {**{point.devices: point for point in prediction.points}, **known}
    return [every[n] for n in sorted(every)]


def table(prediction: Prediction) -> Grid:
    """Return a line for each number of devices, with the numbers as the source prints them."""
    curve = prediction.curve
    measured = {point.devices: point.decimals for point in curve.points}
    known, new = predicting.sources(prediction)
    digits = curve.decimals if curve.time else None
    if curve.unit == predicting.SPEEDUP:
        digits = 2

    def shown(point: PredictedPoint) -> str:
        number = curve.shown(point.devices, point.rate)
        decimals = measured.get(point.devices)
        if decimals is not None:
            return f"{number.value:,.{decimals}f}"
        return plus_minus(number, digits)

    columns: Columns = {
        "Machines" if curve.counts_machines else "Devices": lambda point: (
            f"{point.devices:,}"
        ),
        "Source": lambda point: known if point.devices in measured else new,
        quantity(curve): shown,
        "Efficiency (%)": lambda point: plus_minus(
            point.efficiency and point.efficiency.scaled(PERCENT), None
        ),
        "Largest loss": lambda point: _loss(point.parts),
    }
    return make_grid("", columns, points(prediction))


def quantity(curve: Curve) -> str:
    """Return what the numbers of a curve are, as a heading."""
    if curve.time:
        return f"Time ({curve.time.unit})"
    return (
        "Speedup"
        if curve.unit == predicting.SPEEDUP
        else f"{unit_heading(curve.unit)}/s"
    )


def loss_tables(prediction: Prediction) -> list[Grid]:
    """What each predicted number of devices loses; no table where it is unknown."""
    split = [point for point in prediction.points if point.parts]
    parts = [
        part
        for point in split[:1]
        for part in point.parts
        if any(p.parts[part] >= LEAST for p in split)
    ]
    lines = [
        [f"{p.devices:,}", *(plain(PERCENT * p.parts[part], 1) for part in parts)]
        for p in split
    ]
    return (
        [Grid("", ["Devices", *(f"{part.capitalize()} (%)" for part in parts)], lines)]
        if parts
        else []
    )


def _loss(parts: Mapping[str, float]) -> str:
    name = predicting.largest_part(parts)
    return f"{name} {PERCENT * parts[name]:.0f} %" if name else "-"


def text(report: PredictionReport) -> str:
    """The text for the terminal: of each series the answer, the table and the assumptions; the track record last."""
    parts = []
    for prediction, sizes in zip(report.predictions, report.sizes):
        parts.append(
            f"{prediction.curve.name}\n{sentences(predicting.answer(prediction))}\n"
        )
        losses = loss_tables(prediction) if prediction.is_simulated else []
        parts.append(
            markdown([Section("", (table(prediction), *losses, *size_tables(sizes)))])
        )
        parts.append(
            f"{' '.join(map(sentence, (*sizes.statements, *predicting.assumptions(prediction))))}\n"
        )
    return escaped("\n".join([*parts, *map(sentence, report.record), ""]))


def size_tables(sizes: Sizes) -> list[Grid]:
    """A line for each number of devices; no table where nothing is known."""
    columns: Columns = {"Devices": lambda size: f"{size.devices:,}"}
    if any(size.memory_gib for size in sizes.sizes):
        columns["Peak memory (GiB)"] = lambda size: plus_minus(size.memory_gib, 2)
    if any(size.machines for size in sizes.sizes):
        columns["Machines"] = lambda size: f"{size.machines:,}"
        columns["Hours"] = lambda size: plus_minus(size.seconds.scaled(1 / SECONDS), 2)
    if sizes.currency:
        columns[f"Cost ({sizes.currency})"] = lambda size: plus_minus(size.cost, 2)
    return [make_grid("", columns, sizes.sizes)] if len(columns) > 1 else []


def to_json(report: PredictionReport) -> bytes:
    """All series, points and statements as JSON."""
    both = zip(report.predictions, report.sizes)
    series = [
        {**_series_data(prediction), "sizes": [*map(vars, sizes.sizes)]}
        for prediction, sizes in both
    ]
    statements = {"refused": report.refused, "track_record": report.record}
    return _encoded(
        {"schema": SCHEMA, "source": report.source, "series": series, **statements}
    )


def _series_data(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction with the fields of the file that keeps it, and the measured rates.

    A series of times also has the times, in the unit of its source.
    """
    curve = prediction.curve
    kept: dict[str, Any] = encode(track_record.as_kept(prediction))
    content = {name: value for name, value in kept.items() if name not in NOT_WRITTEN}
    content["measured"] = [
        {"devices": point.devices, **(interval_data(point.interval) or {})}
        for point in curve.points
    ]
    if curve.time:
        content["time_unit"] = curve.time.unit
        for point in content["measured"]:
            rate = Interval(point["value"])
            time = curve.shown(point["devices"], rate).value
            point["time"] = float(f"{time:.{TIME_DIGITS}g}")
        for point in content["predicted"]:
            rate = Interval(point["rate"], point["low"], point["high"])
            point["time"] = interval_data(curve.shown(point["devices"], rate))
    return content


def _encoded(content: Mapping[str, Any]) -> bytes:
    """JSON of data with intervals and statements."""
    return input_files.json_text(
        content,
        default=lambda value: (
            value.data() if isinstance(value, Statement) else interval_data(value)
        ),
    ).encode()


def changes_text(found: Sequence[Sensitivity]) -> str:
    """Return of each series the parts of a step, a line for each change, and what that assumes."""
    parts = []
    for series in found:
        parts += [
            sentence(_step_parts(series)),
            "",
            markdown([Section("", (_changes_table(series),))]),
            *map(sentence, series.statements),
            "",
        ]
    return escaped("\n".join(parts))


def _changes_table(series: Sensitivity) -> Grid:
    """Return a line for each change."""
    curve = series.curve
    digits = curve.decimals if curve.time else 0
    columns: Columns = {
        "Change": lambda effect: effect.title,
        "Gain": lambda effect: plus_minus(effect.gain, 2),
        quantity(curve): lambda effect: plus_minus(
            curve.shown(series.devices, effect.rate), digits
        ),
        "Efficiency (%)": lambda effect: plus_minus(
            effect.efficiency.scaled(PERCENT), 0
        ),
    }
    return make_grid("", columns, series.effects)


def _step_parts(series: Sensitivity) -> Statement:
    """Return the parts that a step has now, the largest first."""
    named = []
    for name, share in sorted(series.parts.items(), key=lambda part: -part[1].value):
        if share.value >= LEAST_CHANGED:
            named.append(f"{name} {plus_minus(share.scaled(PERCENT), 0)} %")
    values = {
        "devices": series.devices,
        "is_device": not series.curve.counts_machines,
        "parts": named,
    }
    return Statement("whatif-parts", series.curve.name, values)


def changes_json(found: Sequence[Sensitivity]) -> bytes:
    """All series, changes and statements as JSON."""
    return _encoded({"schema": CHANGES_SCHEMA, "series": [*map(_changes_data, found)]})


def _changes_data(found: Sensitivity) -> dict[str, Any]:
    curve, effects = found.curve, found.effects
    changes = [
        {"change": e.title, "gain": e.gain, "rate": e.rate, "efficiency": e.efficiency}
        for e in effects
    ]
    named = {
        "name": curve.name,
        "source": curve.source,
        "unit": curve.unit,
        "devices": found.devices,
    }
    return {
        **named,
        "parts": found.parts,
        "changes": changes,
        "statements": found.statements,
    }
