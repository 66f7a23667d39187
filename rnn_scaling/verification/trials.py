"""What a fault would do to the updates of a run, as a table of trials.

A trial changes one thing: what the mode promises, how the towers' gradients are
weighed, the exchange, or a constant of the update rule. Its updates are computed from
the gradients of all batches at the weights that the run really had, so they are
compared with the run's own update by update.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.verification.gradients import GradientPart
from rnn_scaling.verification.rule import (
    RIGHT,
    Arrays,
    Constants,
    UpdateRule,
    guarantee_of,
    length,
)
from rnn_scaling.verification.serial import Exchange, norm

ROUNDING = 2.0**-20  # of a weight's size: a few roundings in float32
LEAST_FACTOR = 0.003  # by which a wrong factor differs from 1
LARGEST_SHARE = 0.04  # of a change: a trial that is off by more explains nothing
Factors = Mapping[int, float]  # of each tower's gradient in a sum
Parts = Mapping[int, GradientPart]


@dataclasses.dataclass(frozen=True)
class ReplicaUpdate:
    """One update of one replica.

    Attributes:
      tower: The tower of the replica, or None if all towers share it.
      parts: Each tower's gradient at the weights that it had. They are parts of the
        mean loss over all towers, so their plain sum is right.
      stale: Returns the same at the weights of the batch before.
      shares: Each tower's share of all items.
      change: By how much each variable changed.
      before: The weights before the update.
    """

    tower: int | None
    parts: Parts
    stale: Callable[[], Parts]
    shares: Mapping[int, float]
    change: Arrays
    before: Arrays


@dataclasses.dataclass(frozen=True)
class Trial:
    """A fault, and what it changes in how updates are computed.

    Attributes:
      fault: What a certificate says if the trial explains a run.
      promises: Fields of the mode's `Guarantee` that are replaced.
      factors: Returns the factors of the towers' gradients in the sum, or None for
        the factors that the mode promises.
      constants: Constants of the update rule.
      keeps: Whether the exchange sends later what its rounding loses.
      scale: What the exchange multiplies gradients by.
    """

    fault: Statement
    promises: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    factors: Callable[[ReplicaUpdate], Factors] | None = None
    constants: Constants = RIGHT
    keeps: bool = True
    scale: float = 1.0

    def changes(
        self, config: RunConfig, updates: Sequence[ReplicaUpdate]
    ) -> Iterator[Arrays]:
        """Yield what each update would have added to the variables."""
        is_scaled = config.model.compute_dtype == "float16"
        rule = UpdateRule(config.training, is_scaled, config.num_towers, self.constants)
        for update, gradient in zip(updates, self.gradients(config, updates)):
            yield rule.update(gradient, update.before)

    def gradients(
        self, config: RunConfig, updates: Sequence[ReplicaUpdate]
    ) -> Iterator[Arrays]:
        """Yield the gradient that each update would have applied."""
        guarantee = dataclasses.replace(guarantee_of(config), **self.promises)
        exchange = Exchange(config, self.keeps, self.scale)
        late: dict[str, np.ndarray] | None = None
        for update in updates:
            parts = update.stale() if guarantee.staged else update.parts
            if self.factors is not None:
                gradient = combined(parts, self.factors(update))
            elif guarantee.shares_one_model or update.tower is None:
                gradient = exchange.sum(parts)
            else:
                gradient = combined(parts, _own_mean(update))
            if guarantee.late:
                zeros = {name: np.zeros_like(array) for name, array in gradient.items()}
                following = gradient
                gradient = zeros if late is None else late
                late = following
            yield gradient


UNCHANGED = Trial(Statement("update-right", "right"))


def combined(parts: Parts, factors: Factors) -> dict[str, np.ndarray]:
    """Return the sum of the towers' gradients, times their factors.

    A tower without a factor is left out.
    """
    first = next(iter(parts.values())).gradient
    total = {name: np.zeros_like(array) for name, array in first.items()}
    for tower, factor in factors.items():
        for name, array in parts[tower].gradient.items():
            total[name] += array * np.float32(factor)
    return total


def _own_part(update: ReplicaUpdate) -> Factors:
    everyone = dict.fromkeys(update.shares, 1.0)
    return everyone if update.tower is None else {update.tower: 1.0}


def _own_mean(update: ReplicaUpdate) -> Factors:
    return {
        tower: factor / update.shares[tower]
        for tower, factor in _own_part(update).items()
    }


def _means(update: ReplicaUpdate) -> Factors:
    return {tower: 1 / share for tower, share in update.shares.items()}


def _mean_of_means(update: ReplicaUpdate) -> Factors:
    count = len(update.shares)
    return {tower: 1 / share / count for tower, share in update.shares.items()}


LOCAL = Statement("update-not-exchanged", "not exchanged")
_STALE = "stale by 1 step"
# What a mode may do instead of what it promises, the likelier first. A trial that
# changes nothing for a mode explains nothing that is wrong.
_WRONG_MODES = (
    Trial(
        Statement("update-not-late", "not stale"),
        promises={"late": False, "staged": False},
    ),
    Trial(Statement("update-one-batch-late", _STALE), promises={"late": True}),
    Trial(Statement("update-stale-weights", _STALE), promises={"staged": True}),
    Trial(Statement("update-exchanged", "exchanged"), {"shares_one_model": True}),
    Trial(LOCAL, factors=_own_part),
    Trial(LOCAL, promises={"shares_one_model": False}),
    Trial(Statement("update-sum-of-means", "sum"), factors=_means),
    Trial(Statement("update-mean-of-means", "mean"), factors=_mean_of_means),
)


def wrong_sums(config: RunConfig) -> Iterator[Trial]:
    """Yield the trials that change which gradients are added, the likelier first."""
    for trial in _WRONG_MODES:
        is_local = trial.fault is LOCAL
        if not (is_local and not guarantee_of(config).shares_one_model):
            yield trial
    yield from _tower_faults(config.num_towers)


def _tower_faults(num_towers: int) -> Iterator[Trial]:
    """Yield trials in which a tower's gradient is missing, or counts twice."""
    everyone = dict.fromkeys(range(num_towers), 1.0)
    for tower in everyone:
        others = {number: 1.0 for number in everyone if number != tower}
        values = {"tower": tower}
        left_out = Statement("update-tower-left-out", "tower left out", values)
        yield Trial(left_out, factors=_constant(others))
        twice = Statement("update-tower-twice", "tower twice", values)
        yield Trial(twice, factors=_constant(everyone | {tower: 2.0}))
        if others:
            yield Trial(left_out, factors=_mean_without(tower))
        for instead in others:
            replaced = Statement(
                "update-tower-replaced", "tower twice", {**values, "instead": instead}
            )
            yield Trial(replaced, factors=_constant(others | {instead: 2.0}))


def _constant(factors: Factors) -> Callable[[ReplicaUpdate], Factors]:
    return lambda update: factors


def _mean_without(tower: int) -> Callable[[ReplicaUpdate], Factors]:
    def factors(update: ReplicaUpdate) -> Factors:
        factor = 1 / (1 - update.shares[tower])
        return {number: factor for number in update.shares if number != tower}

    return factors


def _clipped_by_tower(
    longest: float, share: float | None
) -> Callable[[ReplicaUpdate], Factors]:
    """Return the factors that clip each tower's gradient to a share of `longest`.

    Args:
      longest: --max_gradient_norm.
      share: The share, or None for the tower's share of the items.
    """

    def factors(update: ReplicaUpdate) -> Factors:
        clipping = {}
        for tower, part in update.parts.items():
            bound = longest * (update.shares[tower] if share is None else share)
            clipping[tower] = bound / max(length(part.gradient), bound)
        return clipping

    return factors


# Optimizer -> its constants, and what they may be instead.
CONSTANTS: dict[str, dict[str, tuple[float, ...]]] = {
    "momentum": {"momentum": (0.0, 0.5, 0.8, 0.85, 0.95, 0.98, 0.99, 0.999)},
    "rmsprop": {
        "momentum": (0.0, 0.5, 0.8, 0.95, 0.99),
        "rmsprop_decay": (0.5, 0.8, 0.95, 0.99, 0.999),
        "rmsprop_epsilon": (1e-10, 1e-8, 1e-7, 1e-3, 1e-2, 0.1, 2.0),
    },
    "adam": {
        "beta_1": (0.0, 0.5, 0.8, 0.95, 0.99),
        "beta_2": (0.9, 0.95, 0.98, 0.99, 0.9999),
        "epsilon": (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0),
    },
}
_UNCLIPPED = Constants(clips="nothing")
_EVERY_OPTIMIZER = ("momentum", "rmsprop", "adam")
# Each row: what a run must use, the kind of the statement and its verdict, and the
# changed constants.
_RULES: tuple[tuple[str, str, str, Constants], ...] = (
    ("momentum", "rule-nesterov", "Nesterov", Constants(nesterov=True)),
    ("adam", "rule-correction-late", "bias correction", Constants(offset=-1)),
    ("adam", "rule-correction-early", "bias correction", Constants(offset=1)),
    ("weight_decay", "rule-not-decayed", "weight decay", Constants(weight_decay=0.0)),
    ("weight_decay", "rule-decays-all", "weight decay", Constants(decays_all=True)),
    ("weight_decay", "rule-decay-in-gradient", "weight decay", Constants(decouples=())),
    (
        *("weight_decay", "rule-decay-decoupled", "weight decay"),
        Constants(decouples=_EVERY_OPTIMIZER),
    ),
    (
        *("lr_schedule", "rule-not-scheduled", "learning rate"),
        Constants(is_scheduled=False),
    ),
    ("lr_warmup_batches", "rule-ramp-late", "learning rate", Constants(offset=-1)),
    ("lr_warmup_batches", "rule-ramp-shorter", "learning rate", Constants(ramp=-1)),
    ("lr_warmup_batches", "rule-ramp-early", "learning rate", Constants(offset=1)),
    ("lr_warmup_batches", "rule-ramp-longer", "learning rate", Constants(ramp=1)),
)


def wrong_rules(config: RunConfig) -> Iterator[Trial]:
    """Yield the trials that change the update rule, the likelier first."""
    training = config.training
    options = ("weight_decay", "lr_warmup_batches")
    used = {training.optimizer, *(name for name in options if getattr(training, name))}
    if training.lr_schedule != "constant":
        used.add("lr_schedule")
    for name, candidates in CONSTANTS.get(training.optimizer, {}).items():
        verdict = f"Adam's {name}" if training.optimizer == "adam" else name
        for value in candidates:
            values = {"name": name, "value": value, "right": getattr(RIGHT, name)}
            changed: dict[str, Any] = {name: value}
            fault = Statement("rule-constant", verdict, values)
            yield Trial(fault, constants=Constants(**changed))
    if training.optimizer == "adam":
        yield from _wrong_corrections()
    for needed, kind, verdict, constants in _RULES:
        if needed in used:
            yield Trial(Statement(kind, verdict), constants=constants)
    if ramp := training.lr_warmup_batches:
        fault = Statement("rule-no-ramp", "learning rate")
        yield Trial(fault, constants=Constants(ramp=-ramp))
    if longest := training.max_gradient_norm:
        yield from _wrong_clippings(longest, config.num_towers)
    if config.update.compress_gradients == "int8":
        yield Trial(Statement("rule-no-feedback", "no feedback"), keeps=False)
    if guarantee_of(config).shares_one_model:
        for trial in _tower_faults(config.num_towers):
            values = {**trial.fault.values, "variables": ["every variable"]}
            fault = dataclasses.replace(trial.fault, values=values)
            yield dataclasses.replace(trial, fault=fault)


def _wrong_corrections() -> Iterator[Trial]:
    """Yield the trials in which Adam does not correct its averages."""
    averages = ["average of gradients", "average of squares"]
    for corrects in ((False, False), (False, True), (True, False)):
        missing = [name for name, is_right in zip(averages, corrects) if not is_right]
        fault = Statement(
            "rule-no-correction", "bias correction", {"averages": missing}
        )
        yield Trial(fault, constants=Constants(corrects=corrects))


def _wrong_clippings(longest: float, num_towers: int) -> Iterator[Trial]:
    by_tower = Statement("rule-clipped-by-tower", "clipped by tower")
    for share in (None, 1.0, 1 / num_towers):
        clipping = _clipped_by_tower(longest, share)
        yield Trial(by_tower, factors=clipping, constants=_UNCLIPPED)
    twice = Statement("rule-clipped-twice", "clipped by tower")
    yield Trial(twice, factors=_clipped_by_tower(longest, None))
    by_variable = Statement("rule-clipped-by-variable", "clipped by variable")
    yield Trial(by_variable, constants=Constants(clips="variable"))
    yield Trial(Statement("rule-not-clipped", "not clipped"), constants=_UNCLIPPED)
    for bound in sorted({0.5, 2.0, float(num_towers), 1 / num_towers} - {1.0}):
        fault = Statement("rule-bound", "clipped to another norm", {"bound": bound})
        yield Trial(fault, constants=Constants(bound=bound))


def _wrong_scales(
    config: RunConfig, updates: Sequence[ReplicaUpdate]
) -> Iterator[Trial]:
    """Yield the factor of the first update, as the rate's or as that of int8."""
    if guarantee_of(config).late or not updates:
        return
    (expected,) = UNCHANGED.changes(config, updates[:1])
    product = 0.0
    square = 0.0
    for name, change in expected.items():
        did = updates[0].change[name].astype(np.float64)
        product += float((did * change).sum())
        square += norm(change) ** 2
    factor = product / square if square else 1.0
    if abs(factor - 1.0) < LEAST_FACTOR:
        return
    values = {"factor": factor}
    if config.update.compress_gradients == "int8":
        fault = Statement("rule-int8-scale", "int8 scale", values)
        yield Trial(fault, scale=factor)
    else:
        fault = Statement("rule-rate", "learning rate", values)
    yield Trial(fault, constants=Constants(rate=factor))


def cause(config: RunConfig, updates: Sequence[ReplicaUpdate]) -> Statement | None:
    """Return the fault that explains all updates of one replica best, if any does."""
    trials = [UNCHANGED, *wrong_rules(config), *_wrong_scales(config, updates)]
    off = [_largest_difference(config, trial, updates) for trial in trials]
    smallest = min(off)
    if off[0] <= smallest:
        return None
    # If several are equal, the first is used: a norm that gradients are clipped to
    # hides behind a learning rate.
    limit = 1.5 * smallest + 1e-5
    best = next(number for number in range(1, len(off)) if off[number] <= limit)
    # A trial must explain a good part of what is wrong, and leave little.
    explains = off[best] <= min(LARGEST_SHARE, 0.3 * off[0])
    return trials[best].fault if explains else None


def _largest_difference(
    config: RunConfig, trial: Trial, updates: Sequence[ReplicaUpdate]
) -> float:
    """Return the largest difference of a variable, as a share of its changes."""
    wrong = dict.fromkeys(updates[0].change, 0.0)
    moved = dict(wrong)
    for update, changes in zip(updates, trial.changes(config, updates)):
        for name, change in changes.items():
            did = update.change[name]
            rounded = ROUNDING * norm(update.before[name])
            wrong[name] += max(0.0, norm(did - change) - rounded)
            moved[name] += norm(did) + norm(change)
    longest = max(moved.values())
    if not longest:
        return 0.0
    return max(wrong[name] / max(moved[name], 1e-3 * longest) for name in wrong)
