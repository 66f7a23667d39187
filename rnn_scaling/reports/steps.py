"""Where a step goes, in words: the parts of each tower's time as tables and sentences; their numbers are StepParts'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.steps.parts import Spread, StepParts
from rnn_scaling.records.step_names import EXPOSED, IDLE, LETTERS, PARTS, PHASES, SHARED_OWN, STARVED, WAITS
from rnn_scaling.records.step_parts import TimedStep, Trace

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
    "input": "the tower's batch, and the variables that it reads, are fetched",
    "other": "operators of the tower outside of every phase",
    "shared_update": "variables that all towers share are updated",
    "shared_input": "the batches of all towers are made",
    "shared_other": "operators outside of every tower and phase",
    EXPOSED: "gradients, or variables that towers read from a server, are exchanged and the tower computes "
    "nothing: exchange that its compute does not hide, a collective's wait for the last tower included",
    STARVED: "the next batch is not there yet",
    WAITS: "nothing of the tower runs and another tower computes: on the device, core or thread that it would "
    "need, or towards the gradients that it waits for; or the tower's kernels are too short to be in the trace",
    IDLE: "nothing runs anywhere: the host launches kernels, or kernels are too short to be in the trace",
}
CLUSTERS = (
    "XLA's clusters (--xla) hold operators of several phases and do not say which: their time is in \"other, all "
    "towers'\", and a CPU's run of one counts as kernels of the runtime (_XlaCompile, _XlaRun), whatever it computes."
)
WIDEST = 4  # towers beside each other in a table
BAR = 80  # characters of a tower's time line


def title(part: str) -> str:
    """A part's name for people."""
    return TITLES.get(part, part)


def drawn_title(part: str) -> str:
    """A part's name beside a time line, where a row of its own shows when any exchange runs."""
    return "exchange (a tower's: exposed)" if part == EXPOSED else title(part)


def milliseconds(value: Spread, whole: float | None = None) -> str:
    """ "12.34 sd 0.12 (45.1 %)": mean, standard deviation between the steps, share of `whole` seconds."""
    share = f" ({100 * value.mean / whole:.1f} %)" if whole else ""
    return f"{1000 * value.mean:.2f} sd {1000 * value.scatter:.2f}{share}"


def parts_grids(parts: StepParts) -> list[tuple[list[str], list[list[str]]]]:
    """(header, a line for each part and one for their sum), for every few towers; the last one has their mean."""
    towers: list[int | None] = list(range(parts.num_towers))
    columns = [*towers, None] if parts.num_towers > 1 else towers
    grids = []
    for first in range(0, len(columns), WIDEST + 1):
        shown = columns[first : first + WIDEST + 1]
        head = ["Part (ms)", *("all towers" if tower is None else f"tower {tower}" for tower in shown)]
        whole = parts.seconds
        lines = [
            [title(part), *(milliseconds(parts.part(part, tower), whole.mean) for tower in shown)]
            for part in parts.shown
        ]
        lines.append(["sum: the step", *(milliseconds(whole, whole.mean) for _ in shown)])
        grids.append((head, lines))
    return grids


def exchange_grid(parts: StepParts) -> tuple[list[str], list[list[str]]]:
    """(header, a line for each tower): exchange, when the tower begins and ends, its own compute."""
    head = [
        "Tower",
        "Exchange active (ms)",
        "hidden behind its compute",
        "exposed",
        "First forward kernel at (ms)",
        "Last backward kernel ends at",
        "Own compute (ms)",
    ]
    names = ("busy", "hidden", "exposed")
    lines = []
    for tower in range(parts.num_towers):
        at = [parts.at(name, tower) for name in ("first_s", "arrival_s")]
        lines.append(
            [
                str(tower),
                *(milliseconds(parts.exchange(name, tower)) for name in names),
                *("n/a" if when is None else milliseconds(when) for when in at),
                milliseconds(parts.compute(tower)),
            ]
        )
    return head, lines


def kernels_grid(run: Trace, num_towers: int) -> tuple[list[str], list[list[str]]]:
    """(header, a line for each phase) of the kernels that one step executes."""
    counts = {(row.tower, row.phase): row.kernels for row in run.kernels.by_phase}
    owners: list[int | None] = [*range(num_towers), None]
    head = ["Kernels a step", *("shared" if owner is None else f"tower {owner}" for owner in owners), "all"]
    lines = []
    for phase in PHASES:
        cells = [counts.get((owner, phase), 0) for owner in owners]
        if any(cells):
            lines.append([phase, *(f"{n:,}" for n in cells), f"{sum(cells):,}"])
    sums = [sum(n for (tower, _), n in counts.items() if tower == owner) for owner in owners]
    return head, [*lines, ["all", *(f"{n:,}" for n in sums), f"{sum(counts.values()):,}"]]


def notes(parts: StepParts) -> list[str]:
    """What sd is, who is last, what tracing cost, what the trace does not hold or tell."""
    sentences = [_scatter(parts), _concurrency(parts), _straggler(parts), cost(parts), coverage(parts)]
    return [*sentences, CLUSTERS] if parts.clustered else sentences


def _scatter(parts: StepParts) -> str:
    runs = f" of {len(parts.runs)} runs" if len(parts.runs) > 1 else ""
    if len(parts.steps) == 1:
        return "One traced step: nothing is known of the scatter."
    return f"sd is the standard deviation over the {len(parts.steps)} traced steps{runs}."


def _concurrency(parts: StepParts) -> str:
    if parts.num_towers == 1:
        return "One tower: nothing overlaps with another one's compute."
    if parts.clustered:
        return "How many towers compute at once cannot be said: XLA's clusters do not say whose operators they hold."
    if parts.concurrency is None:
        return "No tower computes in the trace."
    return (
        f"While any tower computes, {parts.concurrency:.2f} of {parts.num_towers} do at once (1: one after the other)."
    )


def _straggler(parts: StepParts) -> str:
    text = parts.straggler[1]
    return f"{text[0].upper()}{text[1:]}."


def cost(parts: StepParts) -> str:
    """What tracing cost, in a sentence."""
    paid = parts.cost
    steps = f"{paid.count} step{'' if paid.count == 1 else 's'}"
    interval = (
        f" (95 % interval {paid.low:.2f} to {paid.high:.2f}, {steps})" if paid.low and paid.high else f" ({steps})"
    )
    judged = ""
    if paid.low and paid.high and paid.high < 1:
        judged = (
            " No tracing makes a step shorter: the speed changed between the two, and this is not what tracing costs."
        )
    elif paid.low and paid.high and paid.low <= 1:
        judged = " No cost can be told from that."
    return (
        f"Tracing: a traced step took {paid.ratio:.2f} times an untraced one{interval}, "
        f"{paid.counted:.2f} times where every kernel is recorded, for the counts.{judged} Starting the profiler took "
        f"{paid.start_s:.2f} s, stopping it {paid.stop_s:.2f} s. The measured batches ran before it."
    )


def coverage(parts: StepParts) -> str:
    """What the timed steps do not hold."""
    every, timed = parts.kernels
    where = "the waits for other towers and of " if parts.num_towers > 1 else ""
    return (
        f"The times hold {timed:,.0f} of {every:,.0f} kernels a step: those that TensorFlow's executor thinks cheap "
        f"(some microseconds) leave no times and are part of {where}what is idle, {100 * parts.idle:.1f} % of a step."
    )


def bars(step: TimedStep, width: int = BAR, colours: bool = False) -> list[str]:
    """One line a tower: a letter for each stretch of one step's time, by the part that most of it is."""
    timeline = step.timeline
    rows = [(f"tower {i}", bar) for i, bar in enumerate(timeline.towers)]
    if "x" in timeline.exchange:
        rows.append(("exchange", timeline.exchange))
    margin = max(len(name) for name, _ in rows)
    return [f"{name.rjust(margin)} |{_coloured(_narrowed(bar, width), colours)}|" for name, bar in rows]


def legend(steps: Sequence[TimedStep]) -> str:
    """What the letters of time lines mean, those that occur."""
    used = {letter for step in steps for bar in step.timeline.towers for letter in bar}
    used |= {letter for step in steps for letter in step.timeline.exchange}
    pairs = [(letter, drawn_title(part)) for letter, part in zip(LETTERS, PARTS) if letter in used]
    return ", ".join(f"{letter} {name}" for letter, name in pairs)


def as_json(parts: StepParts) -> dict[str, Any]:
    """The same as numbers, in seconds; docs/phases.md has the fields."""
    tower, text = parts.straggler
    return {
        "steps": len(parts.steps),
        "runs": len(parts.runs),
        "step_s": _pair(parts.seconds),
        "towers": [
            {
                "tower": number,
                "parts": {part: _pair(parts.part(part, number)) for part in PARTS},
                "exchange": {
                    n: _pair(parts.exchange(n, number)) for n in ("busy", "hidden", "beside_shared", "exposed")
                },
                "compute": _pair(parts.compute(number)),
                **{
                    name: None if (at := parts.at(name, number)) is None else _pair(at)
                    for name in ("first_s", "arrival_s")
                },
            }
            for number in range(parts.num_towers)
        ],
        "all": {part: _pair(parts.part(part)) for part in PARTS},
        "concurrency": parts.concurrency,
        "straggler": {"tower": tower, "text": text},
        "cost": vars(parts.cost),
        "kernels": dict(zip(("a_step", "timed"), parts.kernels)),
    }


def _pair(value: Spread) -> dict[str, float]:
    return {"mean": round(value.mean, 12), "scatter": round(value.scatter, 12)}


def _narrowed(bar: str, width: int) -> str:
    """The bar in `width` letters: of each stretch the letter that is most frequent, the earliest of equals."""
    edges = [i * len(bar) // width for i in range(width + 1)]
    stretches = [bar[a:b] or bar[min(a, len(bar) - 1)] for a, b in zip(edges, edges[1:])]
    return "".join(max(dict.fromkeys(stretch), key=stretch.count) for stretch in stretches)


# ANSI 256-colour backgrounds by letter; the letter stays, so that nothing is told by colour alone.
_BACKGROUNDS = {
    "f": 31,
    "b": 39,
    "u": 35,
    "i": 178,
    "o": 245,
    "U": 29,
    "I": 136,
    "O": 243,
    "x": 166,
    "n": 220,
    "w": 175,
}


def _coloured(bar: str, colours: bool) -> str:
    if not colours:
        return bar
    return "".join(f"\x1b[30;48;5;{_BACKGROUNDS[c]}m{c}\x1b[0m" if c in _BACKGROUNDS else c for c in bar)
