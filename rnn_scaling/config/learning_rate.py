"""The learning rate of each update, the same function for the trainer and for who checks it. Pure."""

import dataclasses
import math
from typing import Any

from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.run_options import TrainingOptions


@dataclasses.dataclass(frozen=True)
class LearningRate:
    """A schedule times a factor that rises evenly from 1 to `factor` over so many updates, and stays there.

    Sources: Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017, section 2.2, for the
    factor; Vaswani et al., "Attention Is All You Need", 2017, section 5.3, for inverse_sqrt.
    """

    first: float  # --learning_rate
    factor: float = 1.0
    ramp_updates: int = 0  # of the factor; with inverse_sqrt those until the rate is `last`, and the factor has no ramp
    schedule: str = "constant"
    steps: tuple[
        tuple[int, float], ...
    ] = ()  # of piecewise: (update from which on, rate)

    @property
    def last(self) -> float:
        """What --learning_rate comes to after the ramp."""
        return self.first * self.factor

    @property
    def is_constant(self) -> bool:
        """Whether every update has the same."""
        return self.schedule == "constant" and (
            not self.ramp_updates or self.factor == 1
        )

    def at(self, update: Any, ops: Any) -> Any:
        """The rate of update number `update`, a float64 of `ops`, which is numpy or tensorflow; 0 for the first."""
        if self.schedule == "inverse_sqrt":
            share = (update + 1.0) / self.ramp_updates
            return self.last * ops.minimum(share, 1.0 / ops.sqrt(share))
        rate = self.first + 0.0 * update
        for start, following in self.steps:
            rate = ops.where(update >= start, following + 0.0 * update, rate)
        ramp = (
            ops.minimum(update / self.ramp_updates, 1.0) if self.ramp_updates else 1.0
        )
        return rate * (1.0 + (self.factor - 1.0) * ramp)


def of(config: RunConfig) -> LearningRate:
    """That of a run; linear: times the towers and their micro-batches, by which an update's batch is larger."""
    training = config.training
    factor = (
        config.num_towers * training.gradient_accumulation_steps
        if training.lr_scaling == "linear"
        else 1
    )
    steps = steps_of(training) if training.lr_schedule == "piecewise" else ()
    return LearningRate(
        training.learning_rate,
        factor,
        training.lr_warmup_batches,
        training.lr_schedule,
        steps,
    )


def steps_of(training: TrainingOptions) -> tuple[tuple[int, float], ...]:
    """(update from which on, rate) of a piecewise schedule; empty where --lr_steps describes none."""
    try:
        pairs = [step.split(":") for step in training.lr_steps.split(",")]
        steps = tuple((int(start), float(rate)) for start, rate in pairs)
    except ValueError:
        return ()
    starts = [start for start, _ in steps]
    is_schedule = (
        starts[0] > 0
        and starts == sorted(set(starts))
        and all(0 < rate < math.inf for _, rate in steps)
    )
    return steps if is_schedule else ()
