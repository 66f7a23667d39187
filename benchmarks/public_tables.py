"""Public tables of training throughput over numbers of devices: docs/results/prediction/public.csv.

A line of the file is a curve. Its columns:

    source    owner/repository:path, owner/repository:issues/number, or seeds/number
    table     model, hardware, precision, mode
    group     seeds, tf_cnn_benchmarks, Horovod, NVIDIA or other
    scaling   weak or strong
    half      seeds, development or test; of a source, the parity of its SHA-256 decides between the last two
    quantity  of the printed numbers: rate, rate per device, or time of a fixed amount of work
    devices   numbers of devices, in rising order
    printed   the numbers as the source prints them, without separators of thousands
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
from pathlib import Path

from rnn_scaling.analysis.prediction.curves import Curve, MeasuredPoint

PATH = (
    Path(__file__).resolve().parent.parent
    / "docs"
    / "results"
    / "prediction"
    / "public.csv"
)
GROUPS = ("seeds", "tf_cnn_benchmarks", "Horovod", "NVIDIA", "other")
HALVES = ("seeds", "development", "test")


@dataclasses.dataclass(frozen=True)
class PublicCurve:
    """A curve, and where it belongs."""

    group: str
    half: str
    curve: Curve


def read(path: Path = PATH) -> list[PublicCurve]:
    """All curves of the file, in its order."""
    with path.open(newline="", encoding="utf-8") as file:
        return [_public_curve(row) for row in csv.DictReader(file)]


def half_of(source: str, group: str) -> str:
    """One of HALVES."""
    if group == "seeds":
        return "seeds"
    return HALVES[1 + int(hashlib.sha256(source.encode()).hexdigest(), 16) % 2]


def _public_curve(row: dict[str, str]) -> PublicCurve:
    numbers = zip(map(int, row["devices"].split()), row["printed"].split(), strict=True)
    points = tuple(_point(n, printed, row["quantity"]) for n, printed in numbers)
    curve = Curve(row["table"], "items", row["scaling"], points, source=row["source"])
    return PublicCurve(row["group"], row["half"], curve)


def _point(n: int, printed: str, quantity: str) -> MeasuredPoint:
    value = float(printed)
    rate = {"rate": value, "rate per device": n * value, "time": 1 / value}[quantity]
    unit = 10.0 ** -len(printed.partition(".")[2])
    return MeasuredPoint(n, rate, rounding=unit / 2 / value)
