"""Start-up and training: the seconds that more devices do not shorten, and speedups.

The keys of `make_data` and `compute_speedups` are part of report.json: never rename one.
"""

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import (
    Interval,
    compute_interval_over_runs,
    divide_rates,
)
from rnn_scaling.analysis.interval_kinds import Basis, Note
from rnn_scaling.analysis.metrics import SPEEDUP
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports.sections import Columns, Section, explain_rows, make_grid
from rnn_scaling.reports.wording import MARKS, format_interval, round_for_files

_INITIALISATION = ("start", "cluster", "build")


@dataclasses.dataclass(frozen=True)
class StartUp:
    """The seconds that a row takes for the items of the run on one device."""

    row: Row
    phases: Mapping[str, float]  # geometric mean of the seconds of each phase
    steady: float  # seconds after the first batch, at the measured rate

    @property
    def initialisation(self) -> float:
        """The seconds until the first batch begins."""
        return sum(self.phases.get(name, 0.0) for name in _INITIALISATION)

    @property
    def training(self) -> float:
        """The seconds of all batches."""
        return self.phases["first_batch"] + self.steady

    @property
    def total(self) -> float:
        return self.initialisation + self.training + self.phases["teardown"]


def compute_speedups(row: Row) -> dict[str, Any] | None:
    """Return a row's speedups by several clocks, and the mean seconds of its phases.

    Returns:
      None without a baseline or phases, or if load of other programs hides the
      speedup. Otherwise data for JSON: `steady` is the speedup of the measured batches,
      `train` of all batches, and `total` of the process; these two are None if disturbed
      runs count, because they cannot be corrected for load. `same_work` is the speedup from
      start to end for the items of the run on one device. In weak scaling, n devices
      process n times the items per run, which hides a fixed cost from the other three.
    """
    baseline = row.baseline
    steady = row.shown_metric(SPEEDUP)
    if baseline is None or steady is None:
        return None
    if not _has_phases(row) or not _has_phases(baseline):
        return None
    one_device = _start_up(baseline, baseline)
    start_up = _start_up(row, baseline)
    train = None
    total = None
    if not steady.kind.inherited_notes:
        train = _compute_speedup(row, baseline, _find_training_seconds)
        total = _compute_speedup(row, baseline, _compute_total_seconds)
    return {
        "steady": steady,
        "train": train,
        "total": total,
        "same_work": round_for_files(one_device.total / start_up.total),
        "phases_s": start_up.phases,
    }


def start_ups(rows: Sequence[Row]) -> list[StartUp]:
    """Return the seconds on one device, and on each larger number of devices.

    Returns:
      [] if one device, all larger numbers, or their phases are missing.
    """
    baseline = rows[0].baseline
    if baseline is None or baseline.rate is None or not _has_phases(baseline):
        return []
    parallel_start_ups = [
        _start_up(row, baseline)
        for row in rows
        if row.num_devices > 1 and row.rate is not None and _has_phases(row)
    ]
    return (
        [_start_up(baseline, baseline), *parallel_start_ups]
        if parallel_start_ups
        else []
    )


def _start_up(row: Row, baseline: Row) -> StartUp:
    """Return the seconds of a measured row for the items of its baseline."""
    assert row.rate
    phases_of_runs = [record.phases.parts for record in row.counted_runs]
    phases = {}
    for name in phases_of_runs[0]:
        seconds = [parts.get(name, 0.0) for parts in phases_of_runs]
        # A single process has no cluster, but a program with a Recorder may have ranks.
        if name != "cluster" or row.is_distributed or any(seconds):
            phases[name] = _compute_mean_seconds(seconds)
    items = statistics.mean(sum(run.batches.items) for run in baseline.counted_runs)
    first_items = statistics.mean(_find_first_items(run) for run in row.counted_runs)
    remaining_items = max(0.0, items - first_items)
    return StartUp(row, phases, remaining_items / row.rate.value)


def _find_first_items(run: RunRecord) -> float:
    """Return the items of the batch in the phase "first_batch"; 0 without warm-up."""
    return run.batches.items[0] if run.batches.warmup else 0.0


def _compute_mean_seconds(seconds: Sequence[float]) -> float:
    """Return the geometric mean over runs, like other seconds; 0.0 if one is 0."""
    return statistics.geometric_mean(seconds) if min(seconds) > 0 else 0.0


def _has_phases(row: Row) -> bool:
    """Return whether all good runs of a row recorded the seconds of their phases."""
    return all(
        min(_compute_total_seconds(record), _find_training_seconds(record)) > 0
        for record in row.good_runs
    )


def _find_training_seconds(record: RunRecord) -> float:
    return record.phases.first_batch + record.phases.warmup + record.phases.measured


def _compute_total_seconds(record: RunRecord) -> float:
    return record.phases.total


def _compute_speedup(
    row: Row, baseline: Row, seconds: Callable[[RunRecord], float]
) -> Interval:
    """Return the speedup of a row by a clock that covers more than measured batches."""
    if row.num_devices == 1:
        return Interval.exact(1.0, Basis.DEFINITION)
    return divide_rates(
        _compute_mean_rate(row, seconds), _compute_mean_rate(baseline, seconds)
    )


def _compute_mean_rate(row: Row, seconds: Callable[[RunRecord], float]) -> Interval:
    rates = [sum(run.batches.items) / seconds(run) for run in row.counted_runs]
    return compute_interval_over_runs(rates).with_rounding(row.rounding)


def make_section(rows: Sequence[Row], title: str) -> Section | None:
    """Return the seconds of a series, and why its speedups differ; None if unknown."""
    all_start_ups = start_ups(rows)
    if not all_start_ups:
        return None
    base = all_start_ups[0]
    largest = all_start_ups[-1]
    unit = largest.row.unit
    columns: Columns = {
        "Devices": lambda start_up: str(start_up.row.num_devices),
        "Initialisation (s)": lambda start_up: f"{start_up.initialisation:.2f}",
        "First batch (s)": lambda start_up: f"{start_up.phases['first_batch']:.2f}",
        "Other batches (s)": lambda start_up: _format_rate(
            start_up.steady, start_up.row.rate
        ),
        "End (s)": lambda start_up: f"{start_up.phases['teardown']:.2f}",
        "Total (s)": lambda start_up: _format_rate(start_up.total, start_up.row.rate),
        f"Speedup: {unit}/s": lambda start_up: format_interval(
            start_up.row.shown_metric(SPEEDUP), SPEEDUP.digits
        ),
        "training": lambda start_up: _format_ratio(
            start_up, base.training / start_up.training
        ),
        "whole run": lambda start_up: _format_ratio(
            start_up, base.total / start_up.total
        ),
    }
    caption = (
        f"Seconds to process the {unit} of the run on one device; "
        f"batches after the first one are assumed to run at the measured {unit}/s"
    )
    rows = [start_up.row for start_up in all_start_ups]
    notes = explain_rows(rows)
    speedup = largest.row.shown_metric(SPEEDUP)
    if speedup is not None:
        notes.insert(0, _state_speedups(base, largest, speedup))
    return Section(title, (make_grid(caption, columns, all_start_ups),), tuple(notes))


def _format_rate(number: float, source: Interval | None) -> str:
    """Return a number with the mark of the rate or speedup that it contains."""
    mark = MARKS[Note.CORRECTED] if source and source.is_corrected else ""
    return f"{number:.2f}{mark}"


def _format_ratio(start_up: StartUp, ratio: float) -> str:
    """Return a speedup by a clock, or "n/a" if load of other programs hides it."""
    if start_up.row.is_speedup_hidden:
        return "n/a"
    return _format_rate(ratio, start_up.row.shown_metric(SPEEDUP))


def _state_speedups(base: StartUp, largest: StartUp, speedup: Interval) -> Statement:
    """State how the speedups of the largest row differ."""
    return state(
        "start-up-speedups",
        unit=largest.row.unit,
        devices=largest.row.devices,
        initialisation=largest.initialisation,
        first_batch=largest.phases["first_batch"],
        whole=largest.total,
        by_rate=speedup,
        by_training=base.training / largest.training,
        by_whole=base.total / largest.total,
    )


def make_data(rows: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    """Return the seconds of a series of several processes, under "initialisation".

    The data are empty for a series of single processes.
    """
    all_start_ups = start_ups(rows) if rows[0].is_distributed else []
    if not all_start_ups:
        return {}
    base = all_start_ups[0]
    data = []
    for start_up in all_start_ups:
        speedup = start_up.row.shown_metric(SPEEDUP)
        fields = {
            "num_workers": start_up.row.num_workers,
            "initialisation": round_for_files(start_up.initialisation),
            "training": round_for_files(start_up.training),
            "whole": round_for_files(start_up.total),
            "by_training": None,
            "by_whole": None,
            "by_rate": None,
        }
        if speedup is not None:
            fields["by_training"] = round_for_files(base.training / start_up.training)
            fields["by_whole"] = round_for_files(base.total / start_up.total)
            fields["by_rate"] = round_for_files(speedup.value)
        data.append(fields)
    return {"initialisation": data}
