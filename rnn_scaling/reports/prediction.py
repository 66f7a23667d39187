"""Renders predictions with their track record, and what changes would do, for the terminal and as JSON."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction import predicting, track_record
from rnn_scaling.analysis.prediction.changes import Sensitivity
from rnn_scaling.analysis.prediction.curves import PredictedPoint, Prediction
from rnn_scaling.analysis.prediction.sizing import SECONDS, Sizes
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.files import input_files
from rnn_scaling.files.markdown import escaped
from rnn_scaling.records.decoding import encode
from rnn_scaling.reports.numbers import interval_data, plain, plus_minus
from rnn_scaling.reports.sections import Columns, Grid, Section, grid_of, markdown
from rnn_scaling.reports.wording import sentence, sentences

SCHEMA, CHANGES_SCHEMA = "rnn_scaling.prediction_report/1", "rnn_scaling.whatif/1"
PERCENT = 100.0
LEAST = 0.0005  # share of the ideal, of a part that is named
LEAST_CHANGED = 0.005  # share of a step, of a part that is named
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
    """A line for each number of devices."""
    unit, measured = (
        prediction.curve.unit,
        {point.devices for point in prediction.curve.points},
    )
    is_speedup, (known, new) = (
        unit == predicting.SPEEDUP,
        predicting.sources(prediction),
    )
    digits = 2 if is_speedup else None
    columns: Columns = {
        "Devices": lambda point: f"{point.devices:,}",
        "Source": lambda point: known if point.devices in measured else new,
        "Speedup" if is_speedup else f"{unit.capitalize()}/s": lambda point: plus_minus(
            point.rate, digits
        ),
        "Efficiency (%)": lambda point: plus_minus(
            point.efficiency and point.efficiency.scaled(PERCENT), None
        ),
        "Largest loss": lambda point: _loss(point.parts),
    }
    return grid_of("", columns, points(prediction))


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
    return [grid_of("", columns, sizes.sizes)] if len(columns) > 1 else []


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
    """A prediction with the fields of the file that keeps it, and the measured rates."""
    kept: dict[str, Any] = encode(track_record.as_kept(prediction))
    measured = [
        {"devices": p.devices, **(interval_data(p.interval) or {})}
        for p in prediction.curve.points
    ]
    return {
        **{name: value for name, value in kept.items() if name not in NOT_WRITTEN},
        "measured": measured,
    }


def _encoded(content: Mapping[str, Any]) -> bytes:
    """JSON of data with intervals and statements."""
    return input_files.json_text(
        content,
        default=lambda value: (
            value.data() if isinstance(value, Statement) else interval_data(value)
        ),
    ).encode()


def changes_text(found: Sequence[Sensitivity]) -> str:
    """Of each series the parts of a step, a line for each change, and what that assumes."""
    parts = []
    for series in found:
        columns: Columns = {
            "Change": lambda effect: effect.title,
            "Gain": lambda effect: plus_minus(effect.gain, 2),
            f"{series.curve.unit.capitalize()}/s": lambda effect: plus_minus(
                effect.rate, 0
            ),
            "Efficiency (%)": lambda effect: plus_minus(
                effect.efficiency.scaled(PERCENT), 0
            ),
        }
        shares = sorted(series.parts.items(), key=lambda part: -part[1].value)
        large = [
            (name, share.scaled(PERCENT))
            for name, share in shares
            if share.value >= LEAST_CHANGED
        ]
        named = [f"{name} {plus_minus(percent, 0)} %" for name, percent in large]
        lead = Statement(
            "whatif-parts",
            series.curve.name,
            {"devices": series.devices, "parts": named},
        )
        parts += [
            sentence(lead),
            "",
            markdown([Section("", (grid_of("", columns, series.effects),))]),
        ]
        parts += [*map(sentence, series.statements), ""]
    return escaped("\n".join(parts))


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
