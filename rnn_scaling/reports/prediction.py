"""Renders predictions, their assumptions and their track record for the terminal and as JSON."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import LEVEL, Interval
from rnn_scaling.analysis.prediction import answers, track_record
from rnn_scaling.analysis.prediction.curves import Curve, MeasuredPoint, Prediction
from rnn_scaling.analysis.prediction.track_record import Case, Tally
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.files import input_files
from rnn_scaling.files.markdown import escaped
from rnn_scaling.reports.numbers import interval_data, plus_minus, rounded
from rnn_scaling.reports.sections import Columns, Grid, Section, grid_of, markdown
from rnn_scaling.reports.wording import sentence, sentences

SCHEMA = "rnn_scaling.prediction_report/1"
DECIMALS = {answers.SPEEDUP: 2}  # of rates, by unit
PERCENT = 100.0


@dataclasses.dataclass(frozen=True)
class Shown:
    """One line of the table of a series."""

    devices: int
    source: str  # "measured" or "predicted"
    rate: Interval
    efficiency: Interval | None
    parts: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class PredictionReport:
    """What a call of `predict` found. refused: why series were not predicted."""

    source: str
    predictions: tuple[Prediction, ...]
    refused: tuple[Statement, ...] = ()
    record: tuple[Statement, ...] = ()  # hits and misses here, and how often intervals held


def measured_rate(point: MeasuredPoint) -> Interval:
    """The rate with the 95 % interval of its error; without ends where that is not known."""
    if point.error is None:
        return Interval(point.rate)
    margin = t_quantile((1 + LEVEL) / 2, max(1.0, point.degrees)) * point.error + point.rounding
    return Interval(point.rate, point.rate * math.exp(-margin), point.rate * math.exp(margin))


def lines(prediction: Prediction) -> list[Shown]:
    """The measured and the predicted numbers of devices, in rising order; a predicted one that was measured once."""
    curve = prediction.curve
    first = curve.points[0]
    shown = []
    for point in curve.points:
        efficiency = Interval(point.rate / (point.devices * first.rate)) if first.devices == 1 else None
        shown.append(Shown(point.devices, "measured", measured_rate(point), efficiency, {}))
    known = {point.devices for point in curve.points}
    shown += [Shown(p.devices, "predicted", p.rate, p.efficiency, p.parts) for p in new_points(prediction)]
    return sorted(shown, key=lambda line: line.devices) if known else shown


def new_points(prediction: Prediction) -> list[Any]:
    """The predicted points that are not measured."""
    known = {point.devices for point in prediction.curve.points}
    return [point for point in prediction.points if point.devices not in known]


def table(prediction: Prediction) -> Grid:
    unit = prediction.curve.unit
    columns: Columns = {
        "Devices": lambda line: f"{line.devices:,}",
        "Source": lambda line: line.source,
        "Speedup" if unit == answers.SPEEDUP else f"{unit.capitalize()}/s": lambda line: plus_minus(
            line.rate, DECIMALS.get(unit, 1)
        ),
        "Efficiency (%)": lambda line: plus_minus(line.efficiency and line.efficiency.scaled(PERCENT), 1),
        "Largest loss": lambda line: _loss(line.parts),
    }
    return grid_of("", columns, lines(prediction))


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
    parts.append("\n".join(map(sentence, report.record)))
    return escaped("\n".join(parts))


def to_json(report: PredictionReport) -> bytes:
    """All series, points and statements as JSON."""
    content = {
        "schema": SCHEMA,
        "source": report.source,
        "series": [_series(prediction) for prediction in report.predictions],
        "refused": [statement.data() for statement in report.refused],
        "track_record": [statement.data() for statement in report.record],
    }
    return input_files.json_text(content).encode()


def _series(prediction: Prediction) -> dict[str, Any]:
    curve: Curve = prediction.curve
    return {
        "name": curve.name,
        "source": curve.source,
        "unit": curve.unit,
        "scaling": curve.scaling,
        "measured": [{"devices": p.devices, "rate": interval_data(measured_rate(p))} for p in curve.points],
        "predicted": [
            {
                "devices": point.devices,
                "rate": interval_data(point.rate),
                "efficiency": interval_data(point.efficiency),
                "parts": {name: rounded(share) for name, share in point.parts.items()},
            }
            for point in prediction.points
        ],
        "models": {name: rounded(share) for name, share in prediction.weights.items()},
        "statements": [s.data() for s in (*answers.answer(prediction), *answers.assumptions(prediction))],
    }


def record_text(cases: Sequence[Case]) -> str:
    """How often intervals held: in one sentence, by extrapolation, and each case."""
    columns: Columns = {
        "Predicted / measured devices": lambda row: row[0],
        "Cases": lambda row: str(row[1].cases),
        "Held": lambda row: str(row[1].held),
        "Median error (%)": lambda row: f"{PERCENT * row[1].error:.1f}",
    }
    grid = grid_of("", columns, [(_class(end), total) for end, total in track_record.by_factor(cases).items()])
    tables = [Section("", (grid,))] if cases else []
    sections = [sentence(answers.track_record(cases)), "", markdown(tables), *map(sentence, answers.outcomes(cases))]
    return escaped("\n".join(sections).rstrip() + "\n")


def _class(end: float) -> str:
    return f"up to {end:.0f}" if math.isfinite(end) else f"more than {track_record.FACTORS[-2]:.0f}"


def record_json(cases: Sequence[Case], folders: Sequence[str]) -> bytes:
    """The same as JSON."""
    content = {
        "schema": "rnn_scaling.track_record/1",
        "folders": list(folders),
        "total": _tally(track_record.tally(cases)),
        "by_factor": [
            {"up_to": end if math.isfinite(end) else None, **_tally(total)}
            for end, total in track_record.by_factor(cases).items()
        ],
        "cases": [
            {
                "series": case.prediction.series,
                "source": case.prediction.source,
                "date": case.prediction.date,
                "version": case.prediction.version,
                "fitted": case.prediction.fitted[-1].devices,
                "devices": case.devices,
                "predicted": {"value": case.point.rate, "low": case.point.low, "high": case.point.high},
                "measured": rounded(case.measured),
                "hit": case.is_hit,
            }
            for case in cases
        ],
    }
    return input_files.json_text(content).encode()


def _tally(total: Tally) -> dict[str, Any]:
    return {"cases": total.cases, "held": total.held, "median_error": total.error}
