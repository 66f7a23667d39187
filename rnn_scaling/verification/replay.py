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
from rnn_scaling.verification.gradients import Part, summed
from rnn_scaling.verification.guarantees import Guarantee
from rnn_scaling.verification.rule import RIGHT, Arrays, Constants, Rule, clipped
from rnn_scaling.verification.serial import exchange_of, norm

ROUNDING = 2.0**-20  # of a weight's size: a few roundings in float32
LEAST_FACTOR = 0.003  # what another factor must differ by from 1
LARGEST_SHARE = 0.04  # of a change: a candidate that is off by more explains nothing
Sum = Callable[[Mapping[int, Part], Mapping[int, float]], Arrays]  # towers' parts, shares of the items -> gradient


@dataclasses.dataclass(frozen=True)
class Update:
    """What one replica did with one batch.

    Attributes:
      parts: of each tower, at the weights that it had.
      shares: of each tower in the items of all.
      change: of each variable.
      weights: of each variable before.
    """

    parts: Mapping[int, Part]
    shares: Mapping[int, float]
    change: Arrays
    weights: Arrays


@dataclasses.dataclass(frozen=True)
class Cause:
    """One candidate: a word, a clause, and what is changed."""

    word: str
    text: str
    constants: Constants = RIGHT
    sum: Sum | None = None
    keeps: bool = True  # what int8 loses
    factor: float = 1.0  # of what int8 sends


def cause(config: RunConfig, guarantee: Guarantee, tower: int | None, updates: Sequence[Update]) -> Cause | None:
    """The change that explains all updates best; None: none does.

    Args:
      tower: whose replica it is; None: all towers'.
    """
    candidates = [
        Cause("right", "", RIGHT),
        *_candidates(config, guarantee),
        *_factors(config, guarantee, tower, updates),
    ]
    off = [_off(config, guarantee, tower, candidate, updates) for candidate in candidates]
    # Of equal ones the first: a norm that is clipped to hides behind a learning rate.
    best = 0 if off[0] <= min(off) else next(n for n in range(1, len(off)) if off[n] <= 1.5 * min(off) + 1e-5)
    # A candidate must explain a good part of what is wrong, and leave little.
    return candidates[best] if best and off[best] <= min(LARGEST_SHARE, 0.3 * off[0]) else None


def _candidates(config: RunConfig, guarantee: Guarantee) -> Iterator[Cause]:
    training = config.training
    if training.optimizer == "momentum":
        for value in (0.0, 0.5, 0.8, 0.85, 0.95, 0.98, 0.99, 0.999):
            yield Cause("momentum", f"the momentum is {value:g} and not {RIGHT.momentum:g}", Constants(momentum=value))
        yield Cause("Nesterov", "the momentum is Nesterov's, which is not asked for", Constants(nesterov=True))
    if training.optimizer == "adam":
        for name, values in (
            ("beta_1", (0.0, 0.5, 0.8, 0.95, 0.99)),
            ("beta_2", (0.9, 0.95, 0.98, 0.99, 0.9999)),
            ("epsilon", (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)),
        ):
            for value in values:
                text = f"Adam's {name} is {value:g} and not {getattr(RIGHT, name):g}"
                yield Cause(f"Adam's {name}", text, _with(name, value))
        for which, corrects in (
            ("averages are", (False, False)),
            ("average of gradients is", (False, True)),
            ("average of squares is", (True, False)),
        ):
            text = f"Adam's {which} not corrected for the zeros at the beginning: the bias correction is missing"
            yield Cause("bias correction", text, Constants(corrects=corrects))
        for offset in (-1, 1):
            text = "Adam's bias correction counts one update too " + ("many" if offset > 0 else "few")
            yield Cause("bias correction", text, Constants(offset=offset))
    if training.lr_warmup_batches:
        for offset in (-1, 1):
            when = "early" if offset > 0 else "late"
            yield Cause(
                "learning rate", f"the ramp of the learning rate is one update {when}", Constants(offset=offset)
            )
            how = "shorter" if offset < 0 else "longer"
            text = f"the ramp of the learning rate is one update {how} than --lr_warmup_batches"
            yield Cause("learning rate", text, Constants(ramp=offset))
        yield Cause("learning rate", "the learning rate has no ramp", Constants(ramp=-training.lr_warmup_batches))
    if training.max_gradient_norm:
        yield from _clippings(training.max_gradient_norm, config.num_towers)
        for bound in sorted({0.5, 2.0, float(config.num_towers), 1 / config.num_towers} - {1.0}):
            text = f"gradients are clipped to {bound:.3g} times the norm that --max_gradient_norm says"
            yield Cause("clipped to another norm", text, Constants(bound=bound))
    if config.update.compress_gradients == "int8":
        yield Cause(
            "no feedback", "what int8 loses of a gradient is lost for good: there is no error feedback", keeps=False
        )
    if guarantee.shares_one_model:
        for number in range(config.num_towers):
            yield Cause(
                "tower left out", f"the gradient of tower {number} is left out of every variable", sum=_without(number)
            )
            yield Cause(
                "tower twice", f"the gradient of tower {number} counts twice in every variable", sum=_twice(number)
            )


def _with(name: str, value: float) -> Constants:
    changed: dict[str, Any] = {name: value}
    return dataclasses.replace(RIGHT, **changed)


def _factors(config: RunConfig, guarantee: Guarantee, tower: int | None, updates: Sequence[Update]) -> Iterator[Cause]:
    """That by which the first update is larger than it should be, as the learning rate's or as that of int8's scale."""
    rule = Rule(config.training, config.model.compute_dtype == "float16", config.num_towers)
    exchange = exchange_of(config)
    for update in updates:
        if guarantee.late:
            return
        expected = rule.update(_gradient(guarantee, tower, Cause("right", ""), update, exchange.sum))
        products = [float((update.change[n].astype(np.float64) * each).sum()) for n, each in expected.items()]
        square = sum(norm(each) ** 2 for each in expected.values())
        factor = sum(products) / square if square else 1.0
        break
    if abs(factor - 1.0) < LEAST_FACTOR:
        return
    if config.update.compress_gradients == "int8":
        text = f"what int8 sends arrives {factor:.4g} times as large as it should: its scale is wrong"
        yield Cause("int8 scale", text, factor=factor)
        yield Cause("int8 scale", text, Constants(rate=factor))
    else:
        yield Cause(
            "learning rate", f"the learning rate is {factor:.3g} times what it should be", Constants(rate=factor)
        )


def _clippings(longest: float, num_towers: int) -> Iterator[Cause]:
    def of_towers(scaled: bool, num_towers: int = 1) -> Sum:
        def sum_of(parts: Mapping[int, Part], shares: Mapping[int, float]) -> Arrays:
            bounds = {tower: longest * (shares[tower] if scaled else 1.0) / num_towers for tower in parts}
            return summed([dict(clipped(part.gradient, bounds[tower])) for tower, part in parts.items()])

        return sum_of

    not_clipped = Constants(clips="nothing")
    text = "each tower's gradient is clipped by itself, and not the sum by its global norm"
    yield Cause("clipped by tower", text, not_clipped, of_towers(scaled=True))
    yield Cause("clipped by tower", text, not_clipped, of_towers(scaled=False))
    yield Cause("clipped by tower", text, not_clipped, of_towers(scaled=False, num_towers=num_towers))
    yield Cause("clipped by tower", f"{text} alone", RIGHT, of_towers(scaled=True))
    yield Cause("clipped by variable", "each variable is clipped by its own norm", Constants(clips="variable"))
    yield Cause("not clipped", "gradients are not clipped", not_clipped)


def _without(number: int) -> Sum:
    return lambda parts, shares: summed(
        [part.gradient for tower, part in parts.items() if tower != number]
        or [{name: np.zeros_like(each) for name, each in parts[number].gradient.items()}]
    )


def _twice(number: int) -> Sum:
    return lambda parts, shares: summed([*(part.gradient for part in parts.values()), parts[number].gradient])


def _off(config: RunConfig, guarantee: Guarantee, tower: int | None, tried: Cause, updates: Sequence[Update]) -> float:
    """The largest difference of a variable's changes, over all updates, as a share of them."""
    rule = Rule(config.training, config.model.compute_dtype == "float16", config.num_towers, tried.constants)
    exchange = exchange_of(config, tried.keeps, tried.factor)
    wrong: dict[str, float] = {}
    moved: dict[str, float] = {}
    late: Arrays | None = None
    for update in updates:
        gradient = _gradient(guarantee, tower, tried, update, exchange.sum)
        if guarantee.late:
            zeros = {name: np.zeros_like(each) for name, each in gradient.items()}
            gradient, late = (zeros if late is None else late), gradient
        for name, change in rule.update(gradient).items():
            rounded = ROUNDING * norm(update.weights[name])
            wrong[name] = wrong.get(name, 0.0) + max(0.0, norm(update.change[name] - change) - rounded)
            moved[name] = moved.get(name, 0.0) + norm(update.change[name]) + norm(change)
    longest = max(moved.values())
    return max(wrong[name] / max(moved[name], 1e-3 * longest) for name in wrong) if longest else 0.0


def _gradient(
    guarantee: Guarantee, tower: int | None, tried: Cause, update: Update, exchanged: Callable[..., Arrays]
) -> Arrays:
    if not guarantee.shares_one_model and tower is not None:
        share = np.float32(update.shares[tower])
        return {name: each / share for name, each in update.parts[tower].gradient.items()}
    return tried.sum(update.parts, update.shares) if tried.sum else exchanged(update.parts)
