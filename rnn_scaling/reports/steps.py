"""The parts of each tower's step as tables and data.

The keys of `make_data` are part of report.json: never rename one.
"""

from collections.abc import Iterator
from typing import Any

from rnn_scaling.analysis.steps.parts import Spread, StepParts, make_statements
from rnn_scaling.records.step_parts import (
    EXPOSED,
    PARTS,
    PHASES,
    SHARED_OWN,
    STARVED,
    WAITS,
    Trace,
)
from rnn_scaling.reports.sections import Columns, Grid, Section, make_grid

TITLES = {
    EXPOSED: "exchange, exposed",
    STARVED: "waits for input",
    WAITS: "waits for other towers",
    **{f"shared_{phase}": f"{phase}, all towers'" for phase in SHARED_OWN},
}
# Seconds of a tower's exchange, in JSON.
EXCHANGE = ("busy", "hidden", "beside_shared", "exposed")
_MAX_TOWERS_PER_LINE = 4  # towers in a line of a table


def name_part(part: str) -> str:
    """Return the name of a part in tables."""
    return TITLES.get(part, part)


def format_milliseconds(value: Spread | None, total_s: float | None = None) -> str:
    """Return "12.34 sd 0.12 (45.1 %)", or "n/a" for None.

    Args:
      value: The mean, and the standard deviation between steps, in seconds.
      total_s: Seconds of which the share in per cent is added, or None.
    """
    if value is None:
        return "n/a"
    share = f" ({100 * value.mean / total_s:.1f} %)" if total_s else ""
    return f"{1000 * value.mean:.2f} sd {1000 * value.scatter:.2f}{share}"


def _make_parts_grids(parts: StepParts) -> Iterator[Grid]:
    """Yield tables with a line for each part, and one for their sum.

    A table has few towers, and the last column of the last table has their mean.
    """
    # None is the mean of all towers.
    towers: list[int | None] = list(range(parts.num_towers))
    if parts.num_towers > 1:
        towers.append(None)
    step_s = parts.seconds
    for first in range(0, len(towers), _MAX_TOWERS_PER_LINE + 1):
        members = towers[first : first + _MAX_TOWERS_PER_LINE + 1]
        head = ["Part (ms)", *(_name_tower(tower, "all towers") for tower in members)]
        lines = []
        for name in parts.nonzero_parts:
            cells = [
                format_milliseconds(parts.part(name, tower), step_s.mean)
                for tower in members
            ]
            lines.append([name_part(name), *cells])
        sums = [format_milliseconds(step_s, step_s.mean)] * len(members)
        lines.append(["sum: the step", *sums])
        yield Grid("Parts of a step", head, lines)


def _name_tower(tower: int | None, mean_name: str) -> str:
    return mean_name if tower is None else f"tower {tower}"


def _make_exchange_grid(parts: StepParts) -> Grid:
    """Return each tower's exchange, its start and end, and its own compute."""
    columns: Columns = {
        "Tower": str,
        "Exchange active (ms)": lambda tower: format_milliseconds(
            parts.exchange("busy", tower)
        ),
        "hidden behind its compute": lambda tower: format_milliseconds(
            parts.exchange("hidden", tower)
        ),
        "exposed": lambda tower: format_milliseconds(parts.exchange("exposed", tower)),
        "First forward kernel starts (ms)": lambda tower: format_milliseconds(
            parts.moment("first_s", tower)
        ),
        "Last backward kernel ends": lambda tower: format_milliseconds(
            parts.moment("arrival_s", tower)
        ),
        "Own compute (ms)": lambda tower: format_milliseconds(parts.compute(tower)),
    }
    caption = "Exchange, start and end of each tower"
    return make_grid(caption, columns, range(parts.num_towers))


def make_kernels_grid(run: Trace, num_towers: int) -> Grid:
    """Return the kernels that one step executes, by phase and tower.

    Kernels outside of all towers are in the column "shared".
    """
    counts = {(row.tower, row.phase): row.kernels for row in run.kernels.by_phase}
    towers: list[int | None] = [*range(num_towers), None]
    names = [_name_tower(tower, "shared") for tower in towers]
    lines = []
    for phase in PHASES:
        numbers = [counts.get((tower, phase), 0) for tower in towers]
        if any(numbers):
            lines.append(_make_kernels_line(phase, numbers, sum(numbers)))
    sums = dict.fromkeys(towers, 0)
    for (tower, _), number in counts.items():
        if tower in sums:
            sums[tower] += number
    lines.append(_make_kernels_line("all", list(sums.values()), sum(counts.values())))
    return Grid("Kernels by phase", ["Kernels per step", *names, "all"], lines)


def _make_kernels_line(name: str, numbers: list[int], total: int) -> list[str]:
    return [name, *(f"{number:,}" for number in numbers), f"{total:,}"]


def make_section(parts: StepParts, heading: str) -> Section:
    """Return the parts of a step, its exchange, and statements about them."""
    grids = (*_make_parts_grids(parts), _make_exchange_grid(parts))
    return Section(heading, grids, tuple(make_statements(parts)))


def make_data(parts: StepParts) -> dict[str, Any]:
    """Return the numbers in seconds; docs/inspect.md has the fields."""
    straggler, reason = parts.straggler
    return {
        "steps": len(parts.steps),
        "runs": len(parts.runs),
        "step_s": parts.seconds,
        "towers": [_make_tower_data(parts, tower) for tower in range(parts.num_towers)],
        "all": {part: parts.part(part) for part in PARTS},
        "concurrency": parts.concurrency,
        "straggler": {"tower": straggler, **reason.data()},
        "cost": parts.cost,
        "kernels": {"a_step": parts.kernels, "timed": parts.timed_kernels},
    }


def _make_tower_data(parts: StepParts, tower: int) -> dict[str, Any]:
    exchange = {name: parts.exchange(name, tower) for name in EXCHANGE}
    return {
        "tower": tower,
        "parts": {part: parts.part(part, tower) for part in PARTS},
        "exchange": exchange,
        "compute": parts.compute(tower),
        "first_s": parts.moment("first_s", tower),
        "arrival_s": parts.moment("arrival_s", tower),
    }
