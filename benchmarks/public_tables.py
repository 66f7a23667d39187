"""Read public tables of training throughput over numbers of devices.

They are in docs/results/prediction/public.csv. A line of the file is a curve. Columns:

    source    owner/repository:path, owner/repository:issues/number, or seeds/number
    table     model, hardware, precision, mode
    group     seeds, tf_cnn_benchmarks, Horovod, NVIDIA or other
    scaling   weak or strong
    half      seeds, development or test; see `find_half`
    quantity  rate, rate per device, or time (of a fixed amount of work)
    devices   numbers of devices, in rising order
    printed   the numbers as the source prints them, without separators of thousands
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
from pathlib import Path

from rnn_scaling.analysis.prediction.curves import Curve, MeasuredPoint

ROOT = Path(__file__).resolve().parent.parent
PATH = ROOT / "docs/results/prediction/public.csv"
GROUPS = ("seeds", "tf_cnn_benchmarks", "Horovod", "NVIDIA", "other")
HALVES = ("seeds", "development", "test")


@dataclasses.dataclass(frozen=True)
class PublicCurve:
    """A curve, and where it belongs."""

    group: str
    half: str
    curve: Curve


def read(path: Path = PATH) -> list[PublicCurve]:
    """Return all curves of the file, in its order."""
    with path.open(newline="", encoding="utf-8") as file:
        return [_parse_curve(row) for row in csv.DictReader(file)]


def find_half(source: str, group: str) -> str:
    """Return the half to which a source belongs, one of HALVES.

    The parity of its SHA-256 decides between development and test.
    """
    if group == "seeds":
        return "seeds"
    digest = hashlib.sha256(source.encode()).hexdigest()
    is_test = int(digest, 16) % 2 == 1
    return "test" if is_test else "development"


def _parse_curve(row: dict[str, str]) -> PublicCurve:
    """Return the curve of a line."""
    points = []
    for count, printed in zip(
        row["devices"].split(), row["printed"].split(), strict=True
    ):
        points.append(_parse_point(int(count), printed, row["quantity"]))
    curve = Curve(
        row["table"], "items", row["scaling"], tuple(points), source=row["source"]
    )
    return PublicCurve(row["group"], row["half"], curve)


def _parse_point(num_devices: int, printed: str, quantity: str) -> MeasuredPoint:
    """Return a point of a curve, with the rounding error of the printed number."""
    value = float(printed)
    if quantity == "rate":
        rate = value
    elif quantity == "rate per device":
        rate = num_devices * value
    else:
        rate = 1 / value
    decimals = printed.partition(".")[2]
    unit = 10.0 ** -len(decimals)
    return MeasuredPoint(num_devices, rate, rounding=unit / 2 / value)
