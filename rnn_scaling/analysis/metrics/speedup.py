"""Speedup: words/s on n devices over words/s on one."""

from __future__ import annotations

from rnn_scaling.analysis.confidence import Interval, ratio

UNIT = ""


def compute(rate: Interval | None, baseline: Interval | None, num_devices: int) -> Interval | None:
    """rate / baseline; None without both. On one device it is 1 by definition, without uncertainty."""
    if rate is None or baseline is None:
        return None
    if num_devices == 1:
        return Interval(1.0, 1.0, 1.0, "by definition", 0.0, float("inf"), ())
    return ratio(rate, baseline)
