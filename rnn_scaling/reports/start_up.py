"""Initialisation against training: what workers shorten, what they do not, and the three speedups that follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import SPEEDUP
from rnn_scaling.analysis.rows import Row
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.speedups import is_timed, mean_phases

INITIALISATION = ("start", "cluster", "build")
SHRUNK = 0.9  # of the initialisation on one device, below which it is not said that it does not shrink


@dataclasses.dataclass(frozen=True)
class StartUp:
    """Seconds that a row takes for the items of the run on one device: as measured, and the batches at the steady rate.

    Attributes:
      row: whose they are.
      phases: mean seconds of each.
      steady: those items but the first batch's, at the rate of the measured batches.
      rate: items/s over the common window; `by_rate`: against one device.
      by_training, by_whole: how many times as fast as on one device.
    """

    row: Row
    phases: Mapping[str, float]
    steady: float
    rate: Interval
    by_rate: Interval | None
    by_training: float = 1.0
    by_whole: float = 1.0

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
        """From the start of the program to its end."""
        return self.initialisation + self.training + self.phases["teardown"]


def of(rows: Sequence[Row]) -> list[StartUp]:
    """Of one series: one device, and every number of workers that was measured.

    Returns:
      Empty for a mode of one process, and where the run on one device, those on several, or their phases are missing.
    """
    base = rows[0].baseline
    if not rows[0].is_distributed or base is None or not is_timed(base):
        return []
    several = [row for row in rows if row.num_devices > 1 and row.good and is_timed(row)]
    items = sum(sum(run.batches.items[1:]) for run in base.good) / len(base.good)
    made = [
        StartUp(row, mean_phases(row), items / row.rate.value, row.rate, row.metric(SPEEDUP))
        for row in (base, *several)
        if row.rate is not None
    ]
    one = made[0]
    return [
        dataclasses.replace(each, by_training=one.training / each.training, by_whole=one.whole / each.whole)
        for each in made
        if several
    ]


def grid(rows: list[StartUp]) -> tuple[list[str], list[list[str]]]:
    """(header, a line for each number of workers)."""
    head = ["Workers", "Initialisation (s)", "Training (s)", "End (s)", "Total (s)"]
    head += [f"{rows[0].row.unit.capitalize()}/s", *(f"Speedup: {by}" for by in (f"{rows[0].row.unit}/s", "training"))]
    return [*head, "Speedup: whole run"], [_line(each) for each in rows]


def _line(each: StartUp) -> list[str]:
    seconds = (each.initialisation, each.training, each.phases["teardown"], each.whole)
    rates = [plus_minus(each.rate, 1), plus_minus(each.by_rate, SPEEDUP.digits)]
    times = [f"{value:.2f}" for value in (each.by_training, each.by_whole)]
    return [str(each.row.num_workers), *(f"{value:.2f}" for value in seconds), *rates, *times]


def sentences(rows: list[StartUp]) -> list[str]:
    """What the seconds are of, and why the three speedups differ on the most workers, in numbers."""
    one, most = rows[0], rows[-1]
    unit = one.row.unit
    own = [f"{each.phases['first_batch']:.1f} of {each.training:.1f} s" for each in (most, one)]
    stays = ", which does not shrink with workers" if most.initialisation > SHRUNK * one.initialisation else ""
    return [
        f"Seconds for the {unit} of the run on one device: initialisation (start, cluster, build), first batch and end "
        f"as measured, the other batches at the {unit}/s of the table.",
        f"On {most.row.devices} {most.initialisation:.1f} of {most.whole:.1f} s are initialisation{stays} (on one "
        f"device {one.initialisation:.1f} of {one.whole:.1f} s). Of the training the first batch is {own[0]} (on one "
        f"device {own[1]}). So {unit}/s are {plus_minus(most.by_rate, 2)} times those of one device, "
        f"the training is {most.by_training:.2f} times as fast and the whole run {most.by_whole:.2f} times. The longer "
        "the training, the nearer these three come to each other.",
    ]


def as_json(rows: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    """The same of a series as numbers, under "initialisation"; nothing where there is none."""
    names = ("initialisation", "training", "whole", "by_training", "by_whole")
    numbers = [
        {
            "num_workers": each.row.num_workers,
            **{name: float(f"{getattr(each, name):.12g}") for name in names},
            "by_rate": each.by_rate and float(f"{each.by_rate.value:.12g}"),
        }
        for each in of(rows)
    ]
    return {"initialisation": numbers} if numbers else {}
