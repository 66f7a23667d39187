"""Speedup: words/s on n devices over words/s on one."""

from __future__ import annotations

from rnn_scaling.record import RunRecord

UNIT = ""


def compute(record: RunRecord, baseline: RunRecord | None) -> float | None:
    """words/s of `record` over that of `baseline`, the same run on one device; None without a baseline."""
    if baseline is None or baseline.status != "ok" or record.status != "ok":
        return None
    if not baseline.throughput or not record.throughput:
        return None
    return record.throughput["words_per_second"] / baseline.throughput["words_per_second"]
