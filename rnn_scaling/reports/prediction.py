"""Renders predictions, their assumptions and their track record for the terminal and as JSON."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction import answers, track_record
from rnn_scaling.analysis.prediction.curves import PredictedPoint, Prediction
from rnn_scaling.analysis.prediction.sizing import SECONDS, Size, Sizes
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.files import input_files
from rnn_scaling.files.markdown import escaped
from rnn_scaling.records.decoding import encode
from rnn_scaling.reports.numbers import interval_data, plus_minus
from rnn_scaling.reports.sections import Columns, Grid, Section, grid_of, markdown
from rnn_scaling.reports.wording import sentence, sentences

SCHEMA = "rnn_scaling.prediction_report/1"
PERCENT = 100.0
RATE_DIGITS = 12  # decimals at most: 1 / seconds of an epoch is small
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
    efficiencies = [Interval(p.rate / p.devices / first.rate) if first.devices == 1 else None for p in measured]
    known = {p.devices: PredictedPoint(p.devices, p.interval, e, {}) for p, e in zip(measured, efficiencies)}
    every = {**{point.devices: point for point in prediction.points}, **known}
    return [every[n] for n in sorted(every)]


def table(prediction: Prediction) -> Grid:
    """A line for each number of devices."""
    unit, measured = prediction.curve.unit, {point.devices for point in prediction.curve.points}
    head = "Speedup" if unit == answers.SPEEDUP else f"{unit.capitalize()}/s"
    columns: Columns = {
        "Devices": lambda point: f"{point.devices:,}",
        "Source": lambda point: "measured" if point.devices in measured else "predicted",
        head: lambda point: plus_minus(point.rate, RATE_DIGITS),
        "Efficiency (%)": lambda point: plus_minus(point.efficiency and point.efficiency.scaled(PERCENT), 1),
        "Largest loss": lambda point: _loss(point.parts),
    }
    return grid_of("", columns, points(prediction))


def _loss(parts: Mapping[str, float]) -> str:
    name = answers.largest_part(parts)
    return f"{name} {PERCENT * parts[name]:.0f} %" if name else "-"


def text(report: PredictionReport) -> str:
    """The text for the terminal: of each series the answer, the table and the assumptions; the track record last."""
    parts = []
    for prediction, sizes in zip(report.predictions, report.sizes):
        parts.append(f"{prediction.curve.name}\n{sentences(answers.answer(prediction))}\n")
        parts.append(markdown([Section("", (table(prediction), *size_tables(sizes)))]))
        parts.append(f"{' '.join(map(sentence, (*sizes.statements, *answers.assumptions(prediction))))}\n")
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
    content = {
        "schema": SCHEMA,
        "source": report.source,
        "series": [
            {**series_data(prediction), "sizes": [*map(_size_data, sizes.sizes)]}
            for prediction, sizes in zip(report.predictions, report.sizes)
        ],
        "refused": [statement.data() for statement in report.refused],
        "track_record": [statement.data() for statement in report.record],
    }
    return input_files.json_text(content).encode()


def _size_data(size: Size) -> dict[str, Any]:
    numbers = {name: interval_data(getattr(size, name)) for name in ("memory_gib", "seconds", "cost")}
    return {"devices": size.devices, "machines": size.machines, **numbers}


def series_data(prediction: Prediction) -> dict[str, Any]:
    """A prediction as JSON data, with the fields of the file that keeps it, and the measured rates."""
    kept: dict[str, Any] = encode(track_record.as_kept(prediction, track_record.of_curve(prediction.curve)))
    measured = [{"devices": p.devices, **(interval_data(p.interval) or {})} for p in prediction.curve.points]
    return {**{name: value for name, value in kept.items() if name not in NOT_WRITTEN}, "measured": measured}
