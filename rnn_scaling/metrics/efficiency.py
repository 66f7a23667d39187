"""Efficiency: speedup over the number of devices."""

from __future__ import annotations

from rnn_scaling.record import RunRecord

UNIT = ""


def compute(record: RunRecord, baseline: RunRecord | None) -> float | None:
    """words/s a device of `record` over that of `baseline`; None without a baseline."""
    if baseline is None or baseline.status != "ok" or record.status != "ok":
        return None
    if not baseline.throughput or not record.throughput:
        return None
    rates = [r.throughput["words_per_second"] / r.config["num_devices"] for r in (record, baseline)]
    return rates[0] / rates[1]
