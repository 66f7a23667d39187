"""Predictions that were made, kept next to the runs that they were made from: small files that are never changed.

FOLDER/predictions/DATE-DIGEST.json, schema "rnn_scaling.prediction/1"; docs/predict.md describes the fields.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path

from rnn_scaling.records import sealed_files
from rnn_scaling.records.decoding import Length, Name, Number, Part, PositiveCount

SCHEMA = "rnn_scaling.prediction/1"
FOLDER = "predictions"  # in the folder of the runs, whose files are run records
DIGITS = 9  # of two numbers that are the same; platforms differ in the last ones


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fitted(Part):
    """The rates of the runs on some devices, or the one that a table prints. No two runs have the same rate."""

    devices: PositiveCount
    rates: tuple[Length, ...]

    @property
    def keys(self) -> frozenset[tuple[int, str]]:
        """What identifies each run."""
        return frozenset((self.devices, f"{rate:.{DIGITS}g}") for rate in self.rates)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Predicted(Part):
    """The rate on one number of devices, with the ends of its 95 % interval."""

    devices: PositiveCount
    rate: Length
    low: Length
    high: Length

    @property
    def key(self) -> tuple[int, str, str]:
        return self.devices, f"{self.low:.{DIGITS}g}", f"{self.high:.{DIGITS}g}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeptPrediction(Part):
    """What was predicted for one series, from which runs, when and by which version."""

    schema: Name = SCHEMA
    date: Name  # UTC
    version: Name
    source: str  # folder of runs, or file and line of a table
    series: str
    unit: str
    scaling: str
    fitted: tuple[Fitted, ...]  # in rising order of devices
    points: tuple[Predicted, ...]
    weights: Mapping[str, Number]  # of the models

    @property
    def runs(self) -> frozenset[tuple[int, str]]:
        """What identifies the runs that it was made from."""
        return frozenset().union(*(fitted.keys for fitted in self.fitted))


@dataclasses.dataclass(frozen=True)
class Kept:
    """The predictions of a folder in the order of their dates, and a message for each file that is left out."""

    predictions: tuple[KeptPrediction, ...] = ()
    left_out: tuple[str, ...] = ()


def read(folder: Path) -> Kept:
    """The predictions that are kept in a folder; none if it has no subfolder for them."""
    place = folder / FOLDER
    try:
        names = sorted(name for name in os.listdir(place) if name.endswith(".json"))
    except FileNotFoundError:
        return Kept()
    except OSError as e:
        return Kept(left_out=(f"{place}: {e.strerror or e}",))
    found, left_out = [], []
    for name in names:
        try:
            found.append(_read_one(place / name))
        except (OSError, ValueError) as e:
            left_out.append(f"{place / name}: {getattr(e, 'strerror', None) or e}")
    return Kept(tuple(found), tuple(left_out))


def keep(new: KeptPrediction, folder: Path, kept: Kept) -> bool:
    """Writes a prediction completely or not at all, without points that are kept already; False if all are.

    Raises OSError.
    """
    known = {point.key for old in kept.predictions if old.runs == new.runs for point in old.points}
    points = tuple(point for point in new.points if point.key not in known)
    if points:
        sealed_files.write(dataclasses.replace(new, points=points), folder / FOLDER, re.sub("[-:]", "", new.date))
    return bool(points)


def _read_one(path: Path) -> KeptPrediction:
    found = sealed_files.read(path, KeptPrediction, SCHEMA, "a prediction")
    devices = [fitted.devices for fitted in found.fitted]
    if not devices or devices != sorted({*devices}) or not all(fitted.rates for fitted in found.fitted):
        raise ValueError("fitted: expected rates on rising numbers of devices")
    if wrong := [point.devices for point in found.points if not point.low <= point.rate <= point.high]:
        raise ValueError(f"points: the rate on {wrong[0]} devices is outside of its interval")
    return found
