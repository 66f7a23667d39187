"""Records -> rows: each run with the run on one device that it is compared with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnn_scaling import registry
from rnn_scaling.record import RunRecord

# Options that may differ between a run and its baseline: the number of devices, and what says nothing about the work.
NOT_COMPARED = frozenset({"num_devices", "result_file", "log_dir", "progress"})


@dataclasses.dataclass(frozen=True)
class Row:
    """One run and its baseline (None if there is none)."""

    record: RunRecord
    baseline: RunRecord | None = None

    def metric(self, name: str) -> float | None:
        """A metric of METRICS by name."""
        return registry.load(registry.METRICS, name).compute(self.record, self.baseline)


def series_key(record: RunRecord) -> tuple[tuple[str, str], ...]:
    """What runs of one scaling series have in common."""
    # In strong scaling the total is constant and a tower's share follows from it.
    left_out = NOT_COMPARED | ({"batch_size"} if record.config.get("global_batch_size") else set())
    return tuple((name, repr(value)) for name, value in record.config.items() if name not in left_out)


def with_baselines(records: Sequence[RunRecord]) -> list[Row]:
    """Rows in the given order; the baseline is the first good run of the same series on one device."""
    baselines: dict[tuple, RunRecord] = {}
    for record in records:
        if record.config.get("num_devices") == 1 and record.status == "ok":
            baselines.setdefault(series_key(record), record)
    return [Row(record, baselines.get(series_key(record))) for record in records]
