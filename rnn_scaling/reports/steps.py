"""Where a step goes: the parts of each tower's time as tables, time lines and data; their numbers are StepParts'."""

from typing import Any

from rnn_scaling.analysis.steps.parts import Spread, StepParts, statements
from rnn_scaling.records.step_parts import (
    EXPOSED,
    IDLE,
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
MEANING = {
    "forward": "the tower computes its loss",
    "backward": "the tower computes its gradients",
    "update": "the tower updates its own copy of the variables",
    "input": "the tower fetches its batch and the variables that it reads",
    "other": "the tower runs operators outside of all phases",
    "shared_update": "the variables that all towers share are updated",
    "shared_input": "the batches of all towers are made",
    "shared_other": "operators outside of all towers and phases",
    EXPOSED: "gradients or variables are exchanged while the tower computes nothing; includes the wait of a "
    "collective for the last tower",
    STARVED: "the next batch is not there yet",
    WAITS: "nothing of the tower runs while another tower computes, or its kernels are too short for the trace",
    IDLE: "nothing runs: the host launches kernels, or kernels are too short for the trace",
}
EXCHANGE = (
    "busy",
    "hidden",
    "beside_shared",
    "exposed",
)  # seconds of a tower's exchange, in JSON
WIDEST = 4  # towers beside each other in a table


def title(part: str) -> str:
    return TITLES.get(part, part)


def milliseconds(value: Spread | None, whole: float | None = None) -> str:
    """ "12.34 sd 0.12 (45.1 %)": mean, standard deviation between the steps, share of `whole` seconds."""
    if value is None:
        return "n/a"
    share = f" ({100 * value.mean / whole:.1f} %)" if whole else ""
    return f"{1000 * value.mean:.2f} sd {1000 * value.scatter:.2f}{share}"


def parts_grids(parts: StepParts) -> list[Grid]:
    """A line for each part and one for their sum, for every few towers; the last column has their mean."""
    towers: list[int | None] = list(range(parts.num_towers))
    columns = [*towers, None] if parts.num_towers > 1 else towers
    grids = []
    for first in range(0, len(columns), WIDEST + 1):
        shown = columns[first : first + WIDEST + 1]
        head = [
            "Part (ms)",
            *("all towers" if tower is None else f"tower {tower}" for tower in shown),
        ]
        whole = parts.seconds
        lines = [
            [
                title(name),
                *(milliseconds(parts.part(name, n), whole.mean) for n in shown),
            ]
            for name in parts.nonzero_parts
        ]
        lines.append(
            ["sum: the step", *(milliseconds(whole, whole.mean) for _ in shown)]
        )
        grids.append(Grid("Parts of a step", head, lines))
    return grids


def exchange_grid(parts: StepParts) -> Grid:
    """A line for each tower: exchange, when the tower begins and ends, its own compute."""
    columns: Columns = {
        "Tower": str,
        "Exchange active (ms)": lambda tower: milliseconds(
            parts.exchange("busy", tower)
        ),
        "hidden behind its compute": lambda tower: milliseconds(
            parts.exchange("hidden", tower)
        ),
        "exposed": lambda tower: milliseconds(parts.exchange("exposed", tower)),
        "First forward kernel starts (ms)": lambda tower: milliseconds(
            parts.moment("first_s", tower)
        ),
        "Last backward kernel ends": lambda tower: milliseconds(
            parts.moment("arrival_s", tower)
        ),
        "Own compute (ms)": lambda tower: milliseconds(parts.compute(tower)),
    }
    return make_grid(
        "Exchange, start and end of each tower", columns, range(parts.num_towers)
    )


def kernels_grid(run: Trace, num_towers: int) -> Grid:
    """A line for each phase of the kernels that one step executes."""
    counts = {(row.tower, row.phase): row.kernels for row in run.kernels.by_phase}
    owners: list[int | None] = [*range(num_towers), None]
    head = [
        "Kernels per step",
        *("shared" if owner is None else f"tower {owner}" for owner in owners),
        "all",
    ]
    lines = []
    for phase in PHASES:
        cells = [counts.get((owner, phase), 0) for owner in owners]
        if any(cells):
            lines.append([phase, *(f"{n:,}" for n in cells), f"{sum(cells):,}"])
    sums = [
        sum(n for (tower, _), n in counts.items() if tower == owner) for owner in owners
    ]
    lines.append(["all", *(f"{n:,}" for n in sums), f"{sum(counts.values()):,}"])
    return Grid("Kernels by phase", head, lines)


def section(parts: StepParts, heading: str) -> Section:
    """Where a step goes: the tables of its parts and of its exchange, and what they show."""
    return Section(
        heading, (*parts_grids(parts), exchange_grid(parts)), tuple(statements(parts))
    )


def as_json(parts: StepParts) -> dict[str, Any]:
    """The same as numbers, in seconds; docs/phases.md has the fields."""
    tower, why = parts.straggler
    return {
        "steps": len(parts.steps),
        "runs": len(parts.runs),
        "step_s": _pair(parts.seconds),
        "towers": [
            {
                "tower": number,
                "parts": {part: _pair(parts.part(part, number)) for part in PARTS},
                "exchange": {
                    name: _pair(parts.exchange(name, number)) for name in EXCHANGE
                },
                "compute": _pair(parts.compute(number)),
                **{
                    name: _pair(parts.moment(name, number))
                    for name in ("first_s", "arrival_s")
                },
            }
            for number in range(parts.num_towers)
        ],
        "all": {part: _pair(parts.part(part)) for part in PARTS},
        "concurrency": parts.concurrency,
        "straggler": {"tower": tower, **why.data()},
        "cost": vars(parts.cost),
        "kernels": dict(zip(("a_step", "timed"), parts.kernels)),
    }


def _pair(value: Spread | None) -> dict[str, float] | None:
    return (
        None
        if value is None
        else {"mean": round(value.mean, 12), "scatter": round(value.scatter, 12)}
    )
