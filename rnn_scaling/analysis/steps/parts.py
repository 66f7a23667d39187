"""Summarize the traced steps of one configuration: the mean and scatter of every part.

Reports and predictions call `split_steps`; traces of PyTorch use `measure_spread`.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence

from rnn_scaling.analysis.confidence import (
    compute_interval_over_runs,
    compute_standard_deviation,
)
from rnn_scaling.analysis.statements import Statement, state
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
    """The cost of tracing."""

    # Seconds of a traced step / seconds of an untraced one, geometric mean over the
    # steps, and its interval.
    ratio: float
    low: float | None
    high: float | None
    count: int  # the number of traced steps
    counted: float  # the same ratio of the steps that recorded every kernel
    start_s: float  # mean over the runs, to start the profiler
    stop_s: float


@dataclasses.dataclass(frozen=True, eq=False)
class StepParts:
    """The traced steps of one configuration."""

    runs: tuple[Trace, ...]
    is_synchronous: bool  # whether a step's gradients are exchanged within it
    is_clustered: bool = False  # whether XLA's clusters hide towers and phases

    @functools.cached_property
    def steps(self) -> list[TimedStep]:
        return list(itertools.chain.from_iterable(run.steps for run in self.runs))

    @property
    def num_towers(self) -> int:
        return len(self.steps[0].towers)

    @functools.cached_property
    def seconds(self) -> Spread:
        return measure_spread([step.seconds for step in self.steps])

    def part(self, name: str, tower: int | None = None) -> Spread:
        """Return the seconds per step of a part.

        Args:
          name: The part.
          tower: The tower, or None for the mean of all towers.
        """
        return self._spread_over_towers(lambda timed: timed.parts[name], tower)

    def exchange(self, name: str, tower: int | None = None) -> Spread:
        """Return the seconds per step of the exchange.

        Args:
          name: "busy", "hidden", "beside_shared" or "exposed".
          tower: The tower, or None for the mean of all towers.
        """
        return self._spread_over_towers(lambda timed: timed.exchange[name], tower)

    def compute(self, tower: int | None = None) -> Spread:
        """Return the seconds per step in which a tower computes, in any phase."""

        def sum_own_s(tower_step: TowerStep) -> float:
            return math.fsum(tower_step.parts[phase] for phase in OWN)

        return self._spread_over_towers(sum_own_s, tower)

    def moment(self, name: str, tower: int) -> Spread | None:
        """Return when an event happens, in seconds after the start of the step.

        Args:
          name: "first_s" or "arrival_s".
          tower: The tower.

        Returns:
          The time; None if a step did not record it.
        """
        values = [getattr(step.towers[tower], name) for step in self.steps]
        return None if None in values else measure_spread(values)

    def _spread_over_towers(
        self, value: Callable[[TowerStep], float], tower: int | None
    ) -> Spread:
        means = []
        for step in self.steps:
            towers = step.towers if tower is None else [step.towers[tower]]
            means.append(math.fsum(map(value, towers)) / len(towers))
        return measure_spread(means)

    @property
    def nonzero_parts(self) -> list[str]:
        """The parts that take any time, in the order of precedence."""
        return [name for name in PARTS if self.part(name).mean]

    @functools.cached_property
    def concurrency(self) -> float | None:
        """The mean number of towers that compute while at least one computes.

        1 means one after the other; None if it is unknown.
        """
        values = [step.concurrency for step in self.steps]
        if self.is_clustered or None in values:
            return None
        return measure_spread([value for value in values if value is not None]).mean

    @functools.cached_property
    def straggler(self) -> tuple[int | None, Statement]:
        return name_straggler(self.steps, self.is_synchronous, self.is_clustered)

    @functools.cached_property
    def cost(self) -> Cost:
        timed_ratios = []
        counted_ratios = []
        for run in self.runs:
            timed_ratios += [s / run.cost.untraced_s for s in run.cost.timed_s]
            counted_ratios += [s / run.cost.untraced_s for s in run.cost.counted_s]
        timed_ratio = compute_interval_over_runs(timed_ratios)
        return Cost(
            ratio=timed_ratio.value,
            low=timed_ratio.low,
            high=timed_ratio.high,
            count=sum(timed_ratio.run_counts),
            counted=compute_interval_over_runs(counted_ratios).value,
            start_s=measure_spread([run.cost.start_s for run in self.runs]).mean,
            stop_s=measure_spread([run.cost.stop_s for run in self.runs]).mean,
        )

    @property
    def kernels(self) -> float:
        """The mean number of kernels per step."""
        counted_steps = itertools.chain(*(run.kernels.steps for run in self.runs))
        return measure_spread([step.host + step.device for step in counted_steps]).mean

    @property
    def timed_kernels(self) -> float:
        """The mean number of kernels per step whose times are recorded."""
        return measure_spread([step.kernels for step in self.steps]).mean

    @property
    def idle(self) -> float:
        """The share of a step in which nothing runs."""
        return self.part(IDLE).mean / self.seconds.mean

    @property
    def typical(self) -> int:
        """The index of the step of median length."""
        order = sorted(range(len(self.steps)), key=lambda i: self.steps[i].seconds)
        return order[(len(order) - 1) // 2]


def make_statements(parts: StepParts) -> list[Statement]:
    """Return the scatter, the straggler, the cost and the coverage of the trace."""
    cost = parts.cost
    cost_values = {**vars(cost), "steps": cost.count}
    if len(parts.steps) > 1:
        statements = [
            state("traced-steps", steps=len(parts.steps), runs=len(parts.runs))
        ]
    else:
        statements = [state("one-traced-step")]
    statements += [_state_concurrency(parts), parts.straggler[1]]
    if cost.low and cost.high:
        statements.append(state("tracing-ratio-interval", **cost_values))
        if cost.high < 1:
            statements.append(state("tracing-faster"))
        elif cost.low <= 1:
            statements.append(state("tracing-no-cost"))
    else:
        statements.append(state("tracing-ratio", **cost_values))
    statements.append(state("tracing-seconds", **cost_values))
    statements.append(
        state(
            "coverage",
            timed=parts.timed_kernels,
            kernels=parts.kernels,
            idle=parts.idle,
        )
    )
    if parts.is_clustered:
        statements.append(state("xla-clusters"))
    return statements


def _state_concurrency(parts: StepParts) -> Statement:
    if parts.num_towers == 1:
        return state("one-tower")
    if parts.is_clustered:
        return state("concurrency-unknown-clusters")
    if parts.concurrency is None:
        return state("concurrency-none")
    return state("concurrency", at_once=parts.concurrency, towers=parts.num_towers)


def split_steps(records: Sequence[RunRecord]) -> StepParts | None:
    """Return the traced steps of one configuration; None if no record has a trace."""
    traces = [record.trace for record in records if record.trace]
    if not traces:
        return None
    config = records[0].options
    one_model = registry.find_mode(config.get("variable_update")).trains_one_model
    is_synchronous = one_model and config.get("variable_consistency") != "relaxed"
    return StepParts(tuple(traces), is_synchronous, bool(config.get("xla")))


def measure_spread(values: Sequence[float]) -> Spread:
    return Spread(math.fsum(values) / len(values), compute_standard_deviation(values))
