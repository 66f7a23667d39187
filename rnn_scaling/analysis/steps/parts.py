"""Traced runs of one configuration -> what each tower's steps consist of, as numbers with their scatter. Pure."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

from rnn_scaling.analysis.confidence import interval_over_runs, standard_deviation
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps.straggler import name_straggler
from rnn_scaling.config import registry
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.step_parts import IDLE, OWN, PARTS, TimedStep, TowerStep, Trace


@dataclasses.dataclass(frozen=True)
class Spread:
    """A mean over traced steps, in seconds, and the standard deviation between them."""

    mean: float
    scatter: float


@dataclasses.dataclass(frozen=True)
class Cost:
    """What tracing cost. `ratio`: seconds of a traced step over those of an untraced one, geometric mean of `count`."""

    ratio: float
    low: float | None
    high: float | None
    count: int
    counted: float  # the same of the steps that recorded every kernel; `start_s` and `stop_s` are means over the runs
    start_s: float
    stop_s: float


@dataclasses.dataclass(frozen=True, eq=False)
class StepParts:
    """The traced steps of one configuration; `runs`: the traces that they come from, one a run."""

    runs: tuple[Trace, ...]
    synchronous: bool  # whether a step's gradients are exchanged within it
    clustered: bool = False  # whether XLA made clusters of operators, which say neither tower nor phase

    @functools.cached_property
    def steps(self) -> list[TimedStep]:
        return [step for run in self.runs for step in run.steps]

    @property
    def num_towers(self) -> int:
        return len(self.steps[0].towers)

    @functools.cached_property
    def seconds(self) -> Spread:
        return spread([step.seconds for step in self.steps])

    def part(self, name: str, tower: int | None = None) -> Spread:
        """Seconds of a part a step: of one tower, or the mean of the towers (None)."""
        return self._over_towers(lambda timed: timed.parts[name], tower)

    def exchange(self, name: str, tower: int | None = None) -> Spread:
        """Seconds of exchange a step: "busy", "hidden", "beside_shared" or "exposed"."""
        return self._over_towers(lambda timed: timed.exchange[name], tower)

    def compute(self, tower: int | None = None) -> Spread:
        """Seconds a step in which a tower computes, whatever phase."""
        return self._over_towers(
            lambda timed: math.fsum(timed.parts[phase] for phase in OWN), tower
        )

    def moment(self, name: str, tower: int) -> Spread | None:
        """When it happens after the step's start: "first_s" or "arrival_s"; None where a step does not show it."""
        values = [getattr(step.towers[tower], name) for step in self.steps]
        return None if None in values else spread(values)

    def _over_towers(
        self, value: Callable[[TowerStep], float], tower: int | None
    ) -> Spread:
        towers = range(self.num_towers) if tower is None else [tower]
        return spread(
            [
                math.fsum(value(step.towers[i]) for i in towers) / len(towers)
                for step in self.steps
            ]
        )

    @property
    def nonzero_parts(self) -> list[str]:
        """The parts that take any time, in the order of precedence."""
        return [
            name
            for name in PARTS
            if any(t.parts[name] for step in self.steps for t in step.towers)
        ]

    @functools.cached_property
    def concurrency(self) -> float | None:
        """Towers that compute at once, the mean while any does: 1 is one after the other. None: it cannot be said."""
        values = [
            step.concurrency for step in self.steps if step.concurrency is not None
        ]
        if self.clustered or len(values) < len(self.steps):
            return None
        return spread(values).mean

    @functools.cached_property
    def straggler(self) -> tuple[int | None, Statement]:
        return name_straggler(self.steps, self.synchronous, self.clustered)

    @functools.cached_property
    def cost(self) -> Cost:
        costs = [run.cost for run in self.runs]
        timed = interval_over_runs(
            [s / cost.untraced_s for cost in costs for s in cost.timed_s]
        )
        counted = interval_over_runs(
            [s / cost.untraced_s for cost in costs for s in cost.counted_s]
        )
        start_s = spread([cost.start_s for cost in costs]).mean
        stop_s = spread([cost.stop_s for cost in costs]).mean
        return Cost(
            timed.value,
            timed.low,
            timed.high,
            sum(timed.run_counts),
            counted.value,
            start_s,
            stop_s,
        )

    @property
    def kernels(self) -> tuple[float, float]:
        """(kernels of a step, those among them that the timed steps hold), means."""
        every = [
            step.host + step.device for run in self.runs for step in run.kernels.steps
        ]
        return spread(every).mean, spread([step.kernels for step in self.steps]).mean

    @property
    def idle(self) -> float:
        """Share of a step in which nothing runs."""
        return self.part(IDLE).mean / self.seconds.mean

    @property
    def typical(self) -> int:
        """Index of the step whose length is nearest to the middle: the one to draw."""
        order = sorted(range(len(self.steps)), key=lambda i: self.steps[i].seconds)
        return order[(len(order) - 1) // 2]


def statements(parts: StepParts) -> list[Statement]:
    """The scatter, which tower others wait for, what tracing cost, and what the trace does not hold."""
    steps, cost, (kernels, timed) = len(parts.steps), parts.cost, parts.kernels
    scattered = Statement(
        "traced-steps", values={"steps": steps, "runs": len(parts.runs)}
    )
    paid = {**vars(cost), "steps": cost.count}
    found = [
        scattered if steps > 1 else Statement("one-traced-step"),
        _concurrency(parts),
        parts.straggler[1],
    ]
    found.append(
        Statement(
            "tracing-ratio-interval" if cost.low and cost.high else "tracing-ratio",
            values=paid,
        )
    )
    if cost.low and cost.high and cost.low <= 1:
        found.append(
            Statement("tracing-faster" if cost.high < 1 else "tracing-no-cost")
        )
    found.append(Statement("tracing-seconds", values=paid))
    found.append(
        Statement(
            "coverage", values={"timed": timed, "kernels": kernels, "idle": parts.idle}
        )
    )
    return [*found, *([Statement("xla-clusters")] if parts.clustered else [])]


def _concurrency(parts: StepParts) -> Statement:
    if parts.num_towers == 1:
        return Statement("one-tower")
    if parts.clustered:
        return Statement("concurrency-unknown-clusters")
    if parts.concurrency is None:
        return Statement("concurrency-none")
    return Statement(
        "concurrency", values={"at_once": parts.concurrency, "towers": parts.num_towers}
    )


def split_steps(records: Sequence[RunRecord]) -> StepParts | None:
    """The traced steps of records of one configuration; None where no record has a trace."""
    traces = [record.trace for record in records if record.trace]
    if not traces:
        return None
    config = records[0].options
    one_model = registry.mode_of(config.get("variable_update")).trains_one_model
    synchronous = one_model and config.get("variable_consistency") != "relaxed"
    return StepParts(tuple(traces), synchronous, bool(config.get("xla")))


def spread(values: Sequence[float]) -> Spread:
    return Spread(math.fsum(values) / len(values), standard_deviation(values))
