"""One row's speedups by three clocks: the measured batches, all batches, the whole process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from rnn_scaling.analysis.confidence import Interval, over_processes, ratio
from rnn_scaling.analysis.metrics import SPEEDUP
from rnn_scaling.analysis.rows import Row
from rnn_scaling.records.record import RunRecord


@dataclasses.dataclass(frozen=True)
class Speedups:
    """One row's speedups by three clocks, each a rate against the same rate on one device.

    steady: the measured batches; train: all batches, warm-up and the first one's compilation included; total: the
    process from its first line to its last. `phases`: mean seconds of each phase.

    same_work: how much sooner the items of the run on one device would be done, from start to end: what is spent once
    on n devices + these items at their steady rate, against the same on one device. The first batch is spent once, so
    its items are not among them. In weak scaling n devices do n times the items in a run, which hides a fixed cost
    from the other three.
    """

    steady: Interval
    train: Interval
    total: Interval
    same_work: float
    phases: Mapping[str, float]

    @property
    def once(self) -> float:
        """Seconds that are spent once, whatever the number of batches."""
        return _spent_once(self.phases)


def speedups(row: Row) -> Speedups | None:
    """Those of a row; None on what has no baseline, or a run without its phases."""
    base = row.baseline
    if row.rate is None or base is None or base.rate is None:
        return None
    if not is_timed(row) or not is_timed(base):
        return None
    steady = row.metric(SPEEDUP)
    train, total = (_against(row, base, seconds) for seconds in (_train_s, lambda record: record.phases.total))
    phases = mean_phases(row)
    items = sum(sum(record.batches.items[1:]) for record in base.good) / len(base.good)
    same_work = (_spent_once(mean_phases(base)) + items / base.rate.value) / (
        _spent_once(phases) + items / row.rate.value
    )
    return Speedups(steady, train, total, same_work, phases) if steady else None


def _spent_once(phases: Mapping[str, float]) -> float:
    """Seconds of a run that do not grow with its batches: start, build, first batch, end."""
    return sum(seconds for name, seconds in phases.items() if name not in ("warmup", "measured"))


def mean_phases(row: Row) -> dict[str, float]:
    """Seconds of each phase, the mean over a row's good runs."""
    spent = [record.phases.parts for record in row.good]
    names = [name for name in spent[0] if name != "cluster" or row.is_distributed]
    return {name: sum(parts.get(name, 0.0) for parts in spent) / len(spent) for name in names}


def is_timed(row: Row) -> bool:
    """Whether all good runs of a row say how long their phases took."""
    return all(min(record.phases.total, _train_s(record)) > 0 for record in row.good)


def _train_s(record: RunRecord) -> float:
    return record.phases.first_batch + record.phases.warmup + record.phases.measured


def _against(row: Row, base: Row, seconds: Callable[[RunRecord], float]) -> Interval:
    def rate(measured: Row) -> Interval:
        rates = [sum(record.batches.items) / seconds(record) for record in measured.good]
        return over_processes(rates).printed(measured.rounding)

    if row.num_devices == 1:
        return Interval(1.0, 1.0, 1.0, "by definition", 0.0, float("inf"), ())
    return ratio(rate(row), rate(base))
