"""Start-up against training: the seconds that more devices do not shorten, and the speedups that follow."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval, interval_over_runs, ratio
from rnn_scaling.analysis.metrics import SPEEDUP
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports.numbers import interval_data, plus_minus, rounded
from rnn_scaling.reports.sections import Columns, Section, make_grid

INITIALISATION = ("start", "cluster", "build")


@dataclasses.dataclass(frozen=True)
class StartUp:
    """Seconds that a row takes for the items of the run on one device."""

    row: Row
    phases: Mapping[str, float]  # mean seconds of each phase
    steady: float  # seconds of those items but the first batch's, at the rate of the measured batches

    @property
    def initialisation(self) -> float:
        """Until the first batch begins."""
        return sum(self.phases.get(name, 0.0) for name in INITIALISATION)

    @property
    def training(self) -> float:
        """The first batch, and the others at the steady rate."""
        return self.phases["first_batch"] + self.steady

    @property
    def whole(self) -> float:
        return self.initialisation + self.training + self.phases["teardown"]


def speedups(row: Row) -> dict[str, Any] | None:
    """For JSON, a row's speedups by three clocks, and the mean seconds of its phases.

    `steady` is of the measured batches, `train` of all batches with warm-up and compilation, `total` of the process.
    `same_work`: how much sooner the items of the run on one device would be done, from start to end. In weak scaling
    n devices do n times the items in a run, which hides a fixed cost from the other three. None: without a baseline,
    or where a run has no phases.
    """
    base, steady = row.baseline, row.metric(SPEEDUP)
    if base is None or steady is None or not _is_timed(row) or not _is_timed(base):
        return None
    first, started = _start_up(base, base), _start_up(row, base)
    train, total = (
        _against(row, base, _train_s),
        _against(row, base, lambda record: record.phases.total),
    )
    numbers = {
        "steady": interval_data(steady),
        "train": interval_data(train),
        "total": interval_data(total),
    }
    return {
        **numbers,
        "same_work": rounded(first.whole / started.whole),
        "phases_s": started.phases,
    }


def start_ups(rows: Sequence[Row]) -> list[StartUp]:
    """Of one series: one device, and every larger number of devices; empty where either or their phases are missing."""
    base = rows[0].baseline
    if base is None or base.rate is None or not _is_timed(base):
        return []
    several = [
        row
        for row in rows
        if row.num_devices > 1 and row.rate is not None and _is_timed(row)
    ]
    return [_start_up(row, base) for row in (base, *several)] if several else []


def _start_up(row: Row, base: Row) -> StartUp:
    """The seconds of a measured row for the items of its baseline."""
    assert row.rate
    spent = [record.phases.parts for record in row.counted_runs]
    names = [name for name in spent[0] if name != "cluster" or row.is_distributed]
    phases = {
        name: sum(parts.get(name, 0.0) for parts in spent) / len(spent)
        for name in names
    }
    items_of_runs = [sum(run.batches.items[1:]) for run in base.counted_runs]
    items = sum(items_of_runs) / len(items_of_runs)
    return StartUp(row, phases, items / row.rate.value)


def _is_timed(row: Row) -> bool:
    """Whether all good runs of a row say how long their phases took."""
    return all(
        min(record.phases.total, _train_s(record)) > 0 for record in row.good_runs
    )


def _train_s(record: RunRecord) -> float:
    return record.phases.first_batch + record.phases.warmup + record.phases.measured


def _against(row: Row, base: Row, seconds: Callable[[RunRecord], float]) -> Interval:
    """The items over these seconds of a row against those of its baseline."""
    if row.num_devices == 1:
        return Interval(1.0, 1.0, 1.0, "by definition", 0.0, float("inf"), ())
    rates = [
        [sum(record.batches.items) / seconds(record) for record in side.counted_runs]
        for side in (row, base)
    ]
    return ratio(
        *(
            interval_over_runs(values).with_rounding(side.rounding)
            for side, values in zip((row, base), rates)
        )
    )


def section(rows: Sequence[Row], title: str) -> Section | None:
    """The seconds of a series and why its speedups differ; None where nothing is known of them."""
    started = start_ups(rows)
    if not started:
        return None
    base, most = started[0], started[-1]
    unit, rate = most.row.unit, most.row.metric(SPEEDUP)
    columns: Columns = {
        "Devices": lambda measured: str(measured.row.num_devices),
        "Initialisation (s)": lambda measured: f"{measured.initialisation:.2f}",
        "First batch (s)": lambda measured: f"{measured.phases['first_batch']:.2f}",
        "Other batches (s)": lambda measured: f"{measured.steady:.2f}",
        "End (s)": lambda measured: f"{measured.phases['teardown']:.2f}",
        "Total (s)": lambda measured: f"{measured.whole:.2f}",
        f"Speedup: {unit}/s": lambda measured: plus_minus(
            measured.row.metric(SPEEDUP), SPEEDUP.digits
        ),
        "training": lambda measured: f"{base.training / measured.training:.2f}",
        "whole run": lambda measured: f"{base.whole / measured.whole:.2f}",
    }
    caption = f"Seconds for the {unit} of the run on one device; after the first batch at the steady {unit}/s"
    grid = make_grid(caption, columns, started)
    values = {
        "unit": unit,
        "devices": most.row.devices,
        "initialisation": most.initialisation,
        "first_batch": most.phases["first_batch"],
        "whole": most.whole,
        "by_rate": interval_values(rate) if rate else None,
        "by_training": base.training / most.training,
        "by_whole": base.whole / most.whole,
    }
    return Section(title, (grid,), (Statement("start-up-speedups", values=values),))


def as_json(rows: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    """The seconds of a series of several processes, under "initialisation"; nothing where there are none."""
    started = start_ups(rows) if rows[0].is_distributed else []
    numbers = []
    for measured in started:
        rate = measured.row.metric(SPEEDUP)
        values = {
            name: getattr(measured, name)
            for name in ("initialisation", "training", "whole")
        }
        values |= {
            f"by_{name}": getattr(started[0], name) / values[name]
            for name in ("training", "whole")
        }
        printed = {name: rounded(value) for name, value in values.items()}
        by_rate = rate and rounded(rate.value)
        numbers.append(
            {"num_workers": measured.row.num_workers, **printed, "by_rate": by_rate}
        )
    return {"initialisation": numbers} if numbers else {}
