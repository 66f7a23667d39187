"""Start-up against training: the seconds that more devices do not shorten, and the three speedups that follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.metrics import SPEEDUP
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.reports.speedups import is_timed, mean_phases

INITIALISATION = ("start", "cluster", "build")


@dataclasses.dataclass(frozen=True)
class StartUp:
    """Seconds that a row takes for the items of the run on one device.

    Attributes:
      phases: mean seconds of each phase.
      steady: seconds of those items but the first batch's, at the rate of the measured batches.
    """

    row: Row
    phases: Mapping[str, float]
    steady: float

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
    """Of one series: one device, and every larger number of devices; empty where either or their phases are missing."""
    base = rows[0].baseline
    if base is None or base.rate is None or not is_timed(base):
        return []
    several = [row for row in rows if row.num_devices > 1 and row.good and is_timed(row)]
    items = sum(sum(run.batches.items[1:]) for run in base.good) / len(base.good)
    made = [StartUp(row, mean_phases(row), items / row.rate.value) for row in (base, *several) if row.rate is not None]
    return made if len(made) > 1 else []


def section(rows: Sequence[Row], title: str) -> Section | None:
    """The seconds of a series and why its speedups differ; None where nothing is known of them."""
    started = of(rows)
    if not started:
        return None
    base, most = started[0], started[-1]
    unit, rate = most.row.unit, most.row.metric(SPEEDUP)
    head = ["Devices", "Initialisation (s)", "First batch (s)", "Other batches (s)", "End (s)", "Total (s)"]
    head += [f"Speedup: {unit}/s", "training", "whole run"]
    caption = f"Seconds for the {unit} of the run on one device; after the first batch at the steady {unit}/s"
    grid = Grid(caption, head, [_line(measured, base) for measured in started])
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


def _line(measured: StartUp, base: StartUp) -> list[str]:
    phases = measured.phases
    seconds = (measured.initialisation, phases["first_batch"], measured.steady, phases["teardown"], measured.whole)
    times = (base.training / measured.training, base.whole / measured.whole)
    return [
        str(measured.row.num_devices),
        *(f"{value:.2f}" for value in seconds),
        plus_minus(measured.row.metric(SPEEDUP), SPEEDUP.digits),
        *(f"{value:.2f}" for value in times),
    ]


def as_json(rows: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    """The seconds of a series of several processes, under "initialisation"; nothing where there are none."""
    started = of(rows) if rows[0].is_distributed else []
    numbers = []
    for measured in started:
        rate = measured.row.metric(SPEEDUP)
        values = {
            "initialisation": measured.initialisation,
            "training": measured.training,
            "whole": measured.whole,
            "by_training": started[0].training / measured.training,
            "by_whole": started[0].whole / measured.whole,
        }
        printed = {name: float(f"{value:.12g}") for name, value in values.items()}
        by_rate = rate and float(f"{rate.value:.12g}")
        numbers.append({"num_workers": measured.row.num_workers, **printed, "by_rate": by_rate})
    return {"initialisation": numbers} if numbers else {}
