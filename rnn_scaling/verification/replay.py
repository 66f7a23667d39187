"""Replays a wrong run with one thing changed at a time: which change explains every update since the first?

A diagnosis of one update knows no momentum and no clipping. Here the gradients of all batches, at the weights that the
run really had, go through the update rule once for each candidate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.settings.config import RunConfig
from rnn_scaling.verification.gradients import GradientPart, summed
from rnn_scaling.verification.guarantees import Guarantee
from rnn_scaling.verification.rule import RIGHT, Arrays, Constants, UpdateRule, clipped
from rnn_scaling.verification.serial import exchange_of, norm

ROUNDING = 2.0**-20  # of a weight's size: a few roundings in float32
LEAST_FACTOR = 0.003  # what another factor must differ by from 1
LARGEST_SHARE = 0.04  # of a change: a candidate that is off by more explains nothing
Sum = Callable[
    [Mapping[int, GradientPart], Mapping[int, float]], Arrays
]  # towers' parts, shares of the items -> gradient


@dataclasses.dataclass(frozen=True)
class ReplayedUpdate:
    """What one replica did with one batch.

    Attributes:
      parts: of each tower, at the weights that it had.
      shares: of each tower in the items of all.
      change: of each variable.
      weights: of each variable before.
    """

    parts: Mapping[int, GradientPart]
    shares: Mapping[int, float]
    change: Arrays
    weights: Arrays


@dataclasses.dataclass(frozen=True)
class Cause:
    """One candidate: its verdict, kind and values of its statement, and what is changed."""

    verdict: str
    kind: str
    constants: Constants = RIGHT
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    sum: Sum | None = None
    keeps: bool = True  # what int8 loses
    factor: float = 1.0  # of what int8 sends


def cause(
    config: RunConfig, guarantee: Guarantee, tower: int | None, updates: Sequence[ReplayedUpdate]
) -> Cause | None:
    """The change that explains all updates best; None: none does.

    Args:
      tower: whose replica it is; None: all towers'.
    """
    candidates = [
        Cause("right", ""),
        *_candidates(config, guarantee),
        *_factors(config, guarantee, tower, updates),
    ]
    off = [_off(config, guarantee, tower, candidate, updates) for candidate in candidates]
    # Of equal ones the first: a norm that is clipped to hides behind a learning rate.
    best = 0 if off[0] <= min(off) else next(n for n in range(1, len(off)) if off[n] <= 1.5 * min(off) + 1e-5)
    # A candidate must explain a good part of what is wrong, and leave little.
    return candidates[best] if best and off[best] <= min(LARGEST_SHARE, 0.3 * off[0]) else None


ADAM = {
    "beta_1": (0.0, 0.5, 0.8, 0.95, 0.99),
    "beta_2": (0.9, 0.95, 0.98, 0.99, 0.9999),
    "epsilon": (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0),
}
GRADIENTS, SQUARES = "average of gradients", "average of squares"
RAMPS = {
    "rule-ramp-late": Constants(offset=-1),
    "rule-ramp-shorter": Constants(ramp=-1),
    "rule-ramp-early": Constants(offset=1),
    "rule-ramp-longer": Constants(ramp=1),
}


def _candidates(config: RunConfig, guarantee: Guarantee) -> Iterator[Cause]:
    training = config.training
    if training.optimizer == "momentum":
        for value in (0.0, 0.5, 0.8, 0.85, 0.95, 0.98, 0.99, 0.999):
            values = {"value": value, "right": RIGHT.momentum}
            yield Cause("momentum", "rule-momentum", Constants(momentum=value), values)
        yield Cause("Nesterov", "rule-nesterov", Constants(nesterov=True))
    if training.optimizer == "adam":
        yield from _adam_candidates()
    if training.lr_warmup_batches:
        for kind, constants in RAMPS.items():
            yield Cause("learning rate", kind, constants)
        yield Cause("learning rate", "rule-no-ramp", Constants(ramp=-training.lr_warmup_batches))
    if training.max_gradient_norm:
        yield from _clippings(training.max_gradient_norm, config.num_towers)
        for bound in sorted({0.5, 2.0, float(config.num_towers), 1 / config.num_towers} - {1.0}):
            yield Cause("clipped to another norm", "rule-bound", Constants(bound=bound), {"bound": bound})
    if config.update.compress_gradients == "int8":
        yield Cause("no feedback", "rule-no-feedback", keeps=False)
    if guarantee.shares_one_model:
        for tower in range(config.num_towers):
            values = {"tower": tower}
            yield Cause("tower left out", "rule-tower-left-out", values=values, sum=_without(tower))
            yield Cause("tower twice", "rule-tower-twice", values=values, sum=_twice(tower))


def _adam_candidates() -> Iterator[Cause]:
    for name, candidates in ADAM.items():
        for value in candidates:
            values = {"name": name, "value": value, "right": getattr(RIGHT, name)}
            yield Cause(f"Adam's {name}", "rule-adam", _with(name, value), values)
    for averages, corrects in (
        ([GRADIENTS, SQUARES], (False, False)),
        ([GRADIENTS], (False, True)),
        ([SQUARES], (True, False)),
    ):
        yield Cause("bias correction", "rule-no-correction", Constants(corrects=corrects), {"averages": averages})
    yield Cause("bias correction", "rule-correction-late", Constants(offset=-1))
    yield Cause("bias correction", "rule-correction-early", Constants(offset=1))


def _with(name: str, value: float) -> Constants:
    changed: dict[str, Any] = {name: value}
    return dataclasses.replace(RIGHT, **changed)


def _factors(
    config: RunConfig, guarantee: Guarantee, tower: int | None, updates: Sequence[ReplayedUpdate]
) -> Iterator[Cause]:
    """That by which the first update is larger than it should be, as the learning rate's or as that of int8's scale."""
    rule = UpdateRule(config.training, config.model.compute_dtype == "float16", config.num_towers)
    exchange = exchange_of(config)
    if guarantee.late or not updates:
        return
    first = updates[0]
    expected = rule.update(_gradient(guarantee, tower, Cause("right", ""), first, exchange.sum))
    products = [float((first.change[name].astype(np.float64) * change).sum()) for name, change in expected.items()]
    square = sum(norm(change) ** 2 for change in expected.values())
    factor = sum(products) / square if square else 1.0
    if abs(factor - 1.0) < LEAST_FACTOR:
        return
    values = {"factor": factor}
    if config.update.compress_gradients == "int8":
        yield Cause("int8 scale", "rule-int8-scale", values=values, factor=factor)
        yield Cause("int8 scale", "rule-int8-scale", Constants(rate=factor), values)
    else:
        yield Cause("learning rate", "rule-rate", Constants(rate=factor), values)


def _clippings(longest: float, num_towers: int) -> Iterator[Cause]:
    def of_towers(scaled: bool, num_towers: int = 1) -> Sum:
        def sum_of(parts: Mapping[int, GradientPart], shares: Mapping[int, float]) -> Arrays:
            bounds = {tower: longest * (shares[tower] if scaled else 1.0) / num_towers for tower in parts}
            return summed([dict(clipped(part.gradient, bounds[tower])) for tower, part in parts.items()])

        return sum_of

    not_clipped = Constants(clips="nothing")
    for exchange in (
        of_towers(scaled=True),
        of_towers(scaled=False),
        of_towers(scaled=False, num_towers=num_towers),
    ):
        yield Cause("clipped by tower", "rule-clipped-by-tower", not_clipped, sum=exchange)
    yield Cause("clipped by tower", "rule-clipped-twice", RIGHT, sum=of_towers(scaled=True))
    yield Cause("clipped by variable", "rule-clipped-by-variable", Constants(clips="variable"))
    yield Cause("not clipped", "rule-not-clipped", not_clipped)


def _without(number: int) -> Sum:
    return lambda parts, shares: summed(
        [part.gradient for tower, part in parts.items() if tower != number]
        or [{name: np.zeros_like(array) for name, array in parts[number].gradient.items()}]
    )


def _twice(number: int) -> Sum:
    return lambda parts, shares: summed([*(part.gradient for part in parts.values()), parts[number].gradient])


def _off(
    config: RunConfig, guarantee: Guarantee, tower: int | None, tried: Cause, updates: Sequence[ReplayedUpdate]
) -> float:
    """The largest difference of a variable's changes, over all updates, as a share of them."""
    rule = UpdateRule(config.training, config.model.compute_dtype == "float16", config.num_towers, tried.constants)
    exchange = exchange_of(config, tried.keeps, tried.factor)
    wrong: dict[str, float] = {}
    moved: dict[str, float] = {}
    late: Arrays | None = None
    for update in updates:
        gradient = _gradient(guarantee, tower, tried, update, exchange.sum)
        if guarantee.late:
            zeros = {name: np.zeros_like(array) for name, array in gradient.items()}
            gradient, late = (zeros if late is None else late), gradient
        for name, change in rule.update(gradient).items():
            rounded = ROUNDING * norm(update.weights[name])
            wrong[name] = wrong.get(name, 0.0) + max(0.0, norm(update.change[name] - change) - rounded)
            moved[name] = moved.get(name, 0.0) + norm(update.change[name]) + norm(change)
    longest = max(moved.values())
    return max(wrong[name] / max(moved[name], 1e-3 * longest) for name in wrong) if longest else 0.0


def _gradient(
    guarantee: Guarantee, tower: int | None, tried: Cause, update: ReplayedUpdate, exchanged: Callable[..., Arrays]
) -> Arrays:
    if not guarantee.shares_one_model and tower is not None:
        share = np.float32(update.shares[tower])
        return {name: array / share for name, array in update.parts[tower].gradient.items()}
    return tried.sum(update.parts, update.shares) if tried.sum else exchanged(update.parts)
