"""Predictions, stored with their runs: FOLDER/predictions/prediction-DIGEST.json.

Files are never changed. docs/predict.md describes schema "rnn_scaling.prediction/1".
Field names are keys of these files; rename only with metadata `older`, see decoding.py.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnn_scaling.records import sealed_files
from rnn_scaling.records.decoding import (
    Name,
    Number,
    Part,
    PositiveCount,
    PositiveNumber,
)

SCHEMA = "rnn_scaling.prediction/1"
FOLDER = "predictions"  # subfolder of the folder of the runs
_UNSEALED = ("date", "version")  # they may differ between files of equal predictions
# Devices and rate of a run. No two runs have rates with the same digits.
Key = tuple[int, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fitted(Part):
    """The rates of the runs on a number of devices, or the one in a table."""

    devices: PositiveCount
    rates: tuple[PositiveNumber, ...]

    @property
    def keys(self) -> set[Key]:
        """The runs; nine digits, because platforms differ in the last ones."""
        return {(self.devices, f"{rate:.9g}") for rate in self.rates}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Predicted(Part):
    """The predicted rate on a number of devices."""

    devices: PositiveCount
    rate: PositiveNumber
    # The ends of the 95 % interval of the rate.
    low: PositiveNumber
    high: PositiveNumber
    efficiency: Number | None = None  # 1 is 100 %
    # The parts of the efficiency loss, as shares of 1.
    parts: Mapping[str, Number] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeptPrediction(Part):
    """The prediction for one series."""

    schema: Name = SCHEMA
    date: str  # UTC
    version: str
    source: str  # folder of runs, or file and line of a table
    name: Name
    unit: str
    scaling: str
    fitted: tuple[Fitted, ...]  # fitted runs in ascending order of devices
    predicted: tuple[Predicted, ...]
    models: Mapping[str, Number]  # weights of the models
    statements: tuple[Any, ...] = ()
    # Machines that the predicted devices are spread over; None for any number.
    machines: PositiveCount | None = None

    @property
    def runs(self) -> frozenset[Key]:
        """The runs that it was fitted to."""
        return frozenset().union(*(fitted.keys for fitted in self.fitted))


def read(folder: Path) -> tuple[list[KeptPrediction], list[str]]:
    """Return the predictions in a folder by date, and a message per unusable file."""
    predictions = []
    messages = []
    for path in sorted((folder / FOLDER).glob("*.json")):
        try:
            prediction = sealed_files.read(path, KeptPrediction, SCHEMA, _UNSEALED)
            _check_fitted(prediction)
            predictions.append(_restore_machines(prediction))
        except (OSError, ValueError) as e:
            messages.append(f"{path}: {getattr(e, 'strerror', None) or e}")
    predictions.sort(key=lambda prediction: prediction.date)
    return predictions, messages


def _check_fitted(prediction: KeptPrediction) -> None:
    """Refuse a prediction that no run identifies; it would belong to every series.

    Raises:
      ValueError: If a number of devices has no rate, or there is no such number.
    """
    if not prediction.fitted or not all(part.rates for part in prediction.fitted):
        raise ValueError(
            "fitted has no rates; "
            "expected the rates of the runs on each number of devices"
        )


def _restore_machines(prediction: KeptPrediction) -> KeptPrediction:
    """Return the prediction with its machines, which older files only stated."""
    if prediction.machines is not None:
        return prediction
    for statement in prediction.statements:
        if isinstance(statement, dict) and statement.get("kind") == "predict-machines":
            values = statement.get("values")
            machines = values.get("machines") if isinstance(values, dict) else None
            if isinstance(machines, int):
                return dataclasses.replace(prediction, machines=machines)
    return prediction


def write(prediction: KeptPrediction, folder: Path) -> None:
    """Write a prediction completely or not at all, unless the folder has it.

    Raises:
      OSError: If it cannot be written.
    """
    if prediction.predicted:
        sealed_files.write(prediction, folder / FOLDER, "prediction", _UNSEALED)
