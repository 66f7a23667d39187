"""Efficiency: speedup over the number of devices."""

from __future__ import annotations

from rnn_scaling.metrics import speedup
from rnn_scaling.statistics import Interval

UNIT = ""


def compute(rate: Interval | None, baseline: Interval | None, num_devices: int) -> Interval | None:
    """speedup / n; None without a baseline."""
    value = speedup.compute(rate, baseline, num_devices)
    return None if value is None else value.scaled(1 / num_devices)
