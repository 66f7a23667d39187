"""Predictions, kept next to the runs that they were made from: FOLDER/predictions/prediction-DIGEST.json.

Files are never changed. docs/predict.md describes schema "rnn_scaling.prediction/1".
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnn_scaling.records import sealed_files
from rnn_scaling.records.decoding import Length, Name, Number, Part, PositiveCount

SCHEMA = "rnn_scaling.prediction/1"
FOLDER = "predictions"  # in the folder of the runs, whose files are run records
UNSEALED = ("date", "version")  # the same prediction at another time is no new one
Key = tuple[
    int, str
]  # of a run: devices, and the rate, which no two runs share in all digits


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fitted(Part):
    """The rates of the runs on some devices, or the one that a table prints."""

    devices: PositiveCount
    rates: tuple[Length, ...]

    @property
    def keys(self) -> set[Key]:
        return {
            (self.devices, f"{rate:.9g}") for rate in self.rates
        }  # platforms differ in the last digits


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Predicted(Part):
    """The rate on some devices with the ends of its 95 % interval; efficiency and its loss as shares of 1."""

    devices: PositiveCount
    rate: Length
    low: Length
    high: Length
    efficiency: Number | None = None
    parts: Mapping[str, Number] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeptPrediction(Part):
    """What was predicted for one series, from which runs, when and by which version."""

    schema: Name = SCHEMA
    date: str  # UTC
    version: str
    source: str  # folder of runs, or file and line of a table
    name: Name
    unit: str
    scaling: str
    fitted: tuple[Fitted, ...]  # in rising order of devices
    predicted: tuple[Predicted, ...]
    models: Mapping[str, Number]  # their weights
    statements: tuple[Any, ...] = ()

    @property
    def runs(self) -> frozenset[Key]:
        """The runs that it was made from."""
        return frozenset().union(*(fitted.keys for fitted in self.fitted))


def read(folder: Path) -> tuple[list[KeptPrediction], list[str]]:
    """The predictions that are kept in a folder, by date, and a message for each file that is left out."""
    found = []
    left_out = []
    for path in sorted((folder / FOLDER).glob("*.json")):
        try:
            kept = sealed_files.read(path, KeptPrediction, SCHEMA, UNSEALED)
            _check_fitted(kept)
            found.append(kept)
        except (OSError, ValueError) as e:
            left_out.append(f"{path}: {getattr(e, 'strerror', None) or e}")
    return sorted(found, key=lambda kept: kept.date), left_out


def _check_fitted(kept: KeptPrediction) -> None:
    """Refuse a prediction that no run identifies; it would belong to every series.

    Raises:
      ValueError: If a number of devices has no rate, or none is listed.
    """
    if not kept.fitted or not all(fitted.rates for fitted in kept.fitted):
        raise ValueError(
            "fitted has no rates; expected the rates of the runs on each number of devices"
        )


def keep(new: KeptPrediction, folder: Path) -> None:
    """Writes a prediction completely or not at all, unless it is kept already. Raises OSError."""
    if new.predicted:
        sealed_files.write(new, folder / FOLDER, "prediction", UNSEALED)
