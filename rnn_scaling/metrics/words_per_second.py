"""Words of the measured batches over the seconds of the same batches."""

from __future__ import annotations

from rnn_scaling.record import RunRecord

UNIT = "words/s"


def compute(record: RunRecord, baseline: RunRecord | None) -> float | None:
    """words/s of a run, or None for a run that measured nothing."""
    if record.status != "ok" or not record.throughput:
        return None
    return record.throughput["words_per_second"]
