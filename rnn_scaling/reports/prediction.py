"""Renders predictions, their assumptions and their track record for the terminal and as JSON."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rnn_scaling.analysis.confidence import LEVEL, Interval
from rnn_scaling.analysis.prediction import answers, track_record
from rnn_scaling.analysis.prediction.curves import MeasuredPoint, PredictedPoint, Prediction
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.files import input_files
from rnn_scaling.files.markdown import escaped
from rnn_scaling.records.decoding import encode
from rnn_scaling.reports.numbers import interval_data, plus_minus
from rnn_scaling.reports.sections import Columns, Grid, Section, grid_of, markdown
from rnn_scaling.reports.wording import sentence, sentences

SCHEMA = "rnn_scaling.prediction_report/1"
PERCENT = 100.0
NOT_WRITTEN = ("schema", "date", "version", "fitted")  # fields of a kept prediction


@dataclasses.dataclass(frozen=True)
class PredictionReport:
    """What a call of `predict` found. refused: why series were not predicted."""

    source: str
    predictions: tuple[Prediction, ...] = ()
    refused: tuple[Statement, ...] = ()
    record: tuple[Statement, ...] = ()  # how often intervals held, and hits and misses


def measured_rate(point: MeasuredPoint) -> Interval:
    """The rate with the 95 % interval of its error; without ends where that is not known."""
    if point.error is None:
        return Interval(point.rate)
    margin = t_quantile((1 + LEVEL) / 2, max(1.0, point.degrees)) * point.error + point.rounding
    return Interval(point.rate).with_margin(margin, "repeats")


def points(prediction: Prediction) -> list[PredictedPoint]:
    """The measured numbers of devices, without parts, and the predicted ones that are not measured."""
    first, *_ = measured = prediction.curve.points
    efficiencies = [Interval(p.rate / p.devices / first.rate) if first.devices == 1 else None for p in measured]
    known = {p.devices: PredictedPoint(p.devices, measured_rate(p), e, {}) for p, e in zip(measured, efficiencies)}
    every = {**{point.devices: point for point in prediction.points}, **known}
    return [every[n] for n in sorted(every)]


def table(prediction: Prediction) -> Grid:
    """A line for each number of devices."""
    unit, measured = prediction.curve.unit, {point.devices for point in prediction.curve.points}
    is_speedup = unit == answers.SPEEDUP
    columns: Columns = {
        "Devices": lambda point: f"{point.devices:,}",
        "Source": lambda point: "measured" if point.devices in measured else "predicted",
        "Speedup" if is_speedup else f"{unit.capitalize()}/s": lambda point: plus_minus(point.rate, 1 + is_speedup),
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
    for prediction in report.predictions:
        parts.append(f"{prediction.curve.name}\n{sentences(answers.answer(prediction))}\n")
        parts.append(markdown([Section("", (table(prediction),))]))
        parts.append(f"{' '.join(map(sentence, answers.assumptions(prediction)))}\n")
    return escaped("\n".join([*parts, *map(sentence, report.record), ""]))


def to_json(report: PredictionReport) -> bytes:
    """All series, points and statements as JSON."""
    content = {
        "schema": SCHEMA,
        "source": report.source,
        "series": [*map(series_data, report.predictions)],
        "refused": [statement.data() for statement in report.refused],
        "track_record": [statement.data() for statement in report.record],
    }
    return input_files.json_text(content).encode()


def series_data(prediction: Prediction) -> dict[str, Any]:
    """A prediction as JSON data, with the fields of the file that keeps it, and the measured rates."""
    kept: dict[str, Any] = encode(track_record.as_kept(prediction, track_record.of_curve(prediction.curve)))
    measured = [{"devices": p.devices, **(interval_data(measured_rate(p)) or {})} for p in prediction.curve.points]
    return {**{name: value for name, value in kept.items() if name not in NOT_WRITTEN}, "measured": measured}
