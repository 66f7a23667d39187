"""Replays a wrong run with one thing changed at a time: which change explains every update since the first?

A diagnosis of one update knows no momentum and no clipping. Here the gradients of all batches, at the weights that the
run really had, go through the update rule once for each candidate.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.verification.diagnosis import (
    Factors,
    ReplicaUpdate,
    combined,
    right_gradient,
    tower_faults,
)
from rnn_scaling.verification.gradients import summed
from rnn_scaling.verification.rule import (
    RIGHT,
    Arrays,
    Constants,
    UpdateRule,
    clipped,
    guarantee_of,
)
from rnn_scaling.verification.serial import Exchange, norm

ROUNDING = 2.0**-20  # of a weight's size: a few roundings in float32
LEAST_FACTOR = 0.003  # by which a wrong factor differs from 1
LARGEST_SHARE = 0.04  # of a change: a candidate that is off by more explains nothing


@dataclasses.dataclass(frozen=True)
class Cause:
    fault: Statement
    constants: Constants = RIGHT
    sum: Callable[[ReplicaUpdate], Arrays] | None = (
        None  # of the towers' gradients; None: as the exchange gives it
    )
    keeps: bool = True  # as of an `Exchange`, and so is factor
    factor: float = 1.0


def cause(config: RunConfig, updates: Sequence[ReplicaUpdate]) -> Statement | None:
    """The fault that explains all updates of one replica best; None: none does."""
    right = Cause(Statement("right"))
    candidates = [right, *_candidates(config), *_factors(config, right, updates)]
    off = [_off(config, candidate, updates) for candidate in candidates]
    # Of equal ones the first: a norm that is clipped to hides behind a learning rate.
    best = (
        0
        if off[0] <= min(off)
        else next(n for n in range(1, len(off)) if off[n] <= 1.5 * min(off) + 1e-5)
    )
    # A candidate must explain a good part of what is wrong, and leave little.
    return (
        candidates[best].fault
        if best and off[best] <= min(LARGEST_SHARE, 0.3 * off[0])
        else None
    )


CONSTANTS: dict[
    str, dict[str, tuple[float, ...]]
] = {  # optimizer -> its constants and what they may be instead
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
CORRECTIONS = {  # what Adam does not correct -> which corrections are left
    ("average of gradients", "average of squares"): (False, False),
    ("average of gradients",): (False, True),
    ("average of squares",): (True, False),
}
DECAYS = {  # how weights may decay instead
    "rule-not-decayed": Constants(weight_decay=0.0),
    "rule-decays-all": Constants(decays_all=True),
    "rule-decay-in-gradient": Constants(decouples=()),
    "rule-decay-decoupled": Constants(decouples=("momentum", "rmsprop", "adam")),
}
RAMPS = {
    "rule-ramp-late": Constants(offset=-1),
    "rule-ramp-shorter": Constants(ramp=-1),
}
RAMPS |= {"rule-ramp-early": Constants(offset=1), "rule-ramp-longer": Constants(ramp=1)}


def _candidates(config: RunConfig) -> Iterator[Cause]:
    training, num_towers = config.training, config.num_towers
    yield from _wrong_constants(training.optimizer)
    for kind, constants in DECAYS.items() if training.weight_decay else ():
        yield Cause(Statement(kind, "weight decay"), constants)
    if training.lr_schedule != "constant":
        yield Cause(
            Statement("rule-not-scheduled", "learning rate"),
            Constants(is_scheduled=False),
        )
    if training.lr_warmup_batches:
        for kind, constants in {
            **RAMPS,
            "rule-no-ramp": Constants(ramp=-training.lr_warmup_batches),
        }.items():
            yield Cause(Statement(kind, "learning rate"), constants)
    if training.max_gradient_norm:
        yield from _clippings(training.max_gradient_norm, num_towers)
        for bound in sorted({0.5, 2.0, float(num_towers), 1 / num_towers} - {1.0}):
            fault = Statement("rule-bound", "clipped to another norm", {"bound": bound})
            yield Cause(fault, Constants(bound=bound))
    if config.update.compress_gradients == "int8":
        yield Cause(Statement("rule-no-feedback", "no feedback"), keeps=False)
    if guarantee_of(config).shares_one_model:
        for fault, factors in tower_faults(
            dict.fromkeys(range(num_towers), 1 / num_towers)
        ):
            fault = dataclasses.replace(
                fault, values={**fault.values, "variables": ["every variable"]}
            )
            yield Cause(fault, sum=functools.partial(_weighted, factors))


def _wrong_constants(optimizer: str) -> Iterator[Cause]:
    for name, candidates in CONSTANTS.get(optimizer, {}).items():
        verdict = f"Adam's {name}" if optimizer == "adam" else name
        for value in candidates:
            changed: dict[str, Any] = {name: value}
            values = {"name": name, "value": value, "right": getattr(RIGHT, name)}
            yield Cause(
                Statement("rule-constant", verdict, values), Constants(**changed)
            )
    if optimizer == "momentum":
        yield Cause(Statement("rule-nesterov", "Nesterov"), Constants(nesterov=True))
    if optimizer == "adam":
        for averages, corrects in CORRECTIONS.items():
            fault = Statement(
                "rule-no-correction", "bias correction", {"averages": list(averages)}
            )
            yield Cause(fault, Constants(corrects=corrects))
        yield Cause(
            Statement("rule-correction-late", "bias correction"), Constants(offset=-1)
        )
        yield Cause(
            Statement("rule-correction-early", "bias correction"), Constants(offset=1)
        )


def _clippings(longest: float, num_towers: int) -> Iterator[Cause]:
    unclipped = Constants(clips="nothing")
    by_tower = Statement("rule-clipped-by-tower", "clipped by tower")
    for share in (None, 1.0, 1 / num_towers):
        yield Cause(
            by_tower, unclipped, functools.partial(_clipped_by_tower, longest, share)
        )
    twice = Statement("rule-clipped-twice", "clipped by tower")
    yield Cause(twice, sum=functools.partial(_clipped_by_tower, longest, None))
    yield Cause(
        Statement("rule-clipped-by-variable", "clipped by variable"),
        Constants(clips="variable"),
    )
    yield Cause(Statement("rule-not-clipped", "not clipped"), unclipped)


def _clipped_by_tower(
    longest: float, share: float | None, update: ReplicaUpdate
) -> Arrays:
    """The sum of gradients clipped to a share of `longest`; None: to the tower's share of the items."""
    shares = {
        tower: update.shares[tower] if share is None else share
        for tower in update.parts
    }
    return summed(
        [
            clipped(part.gradient, longest * shares[tower])
            for tower, part in update.parts.items()
        ]
    )


def _weighted(factors: Factors, update: ReplicaUpdate) -> Arrays:
    return combined(update.parts, factors)


def _factors(
    config: RunConfig, right: Cause, updates: Sequence[ReplicaUpdate]
) -> Iterator[Cause]:
    """That by which the first update is larger than it should be, as the learning rate's or as that of int8's scale."""
    if guarantee_of(config).late or not updates:
        return
    (expected,) = _changes(config, right, updates[:1])
    did = updates[0].change
    products = [
        float((did[name].astype(np.float64) * change).sum())
        for name, change in expected.items()
    ]
    square = sum(norm(change) ** 2 for change in expected.values())
    factor = sum(products) / square if square else 1.0
    if abs(factor - 1.0) < LEAST_FACTOR:
        return
    fault = Statement("rule-rate", "learning rate", {"factor": factor})
    if config.update.compress_gradients == "int8":
        fault = Statement("rule-int8-scale", "int8 scale", {"factor": factor})
        yield Cause(fault, factor=factor)
    yield Cause(fault, Constants(rate=factor))


def _off(config: RunConfig, tried: Cause, updates: Sequence[ReplicaUpdate]) -> float:
    """The largest difference of a variable's changes, over all updates, as a share of them."""
    wrong: dict[str, float] = {}
    moved: dict[str, float] = {}
    for update, changes in zip(updates, _changes(config, tried, updates)):
        for name, change in changes.items():
            rounded = ROUNDING * norm(update.before[name])
            wrong[name] = wrong.get(name, 0.0) + max(
                0.0, norm(update.change[name] - change) - rounded
            )
            moved[name] = (
                moved.get(name, 0.0) + norm(update.change[name]) + norm(change)
            )
    longest = max(moved.values())
    return (
        max(wrong[name] / max(moved[name], 1e-3 * longest) for name in wrong)
        if longest
        else 0.0
    )


def _changes(
    config: RunConfig, tried: Cause, updates: Sequence[ReplicaUpdate]
) -> Iterator[Arrays]:
    """What each update would have added to the variables."""
    guarantee = guarantee_of(config)
    rule = UpdateRule(
        config.training,
        config.model.compute_dtype == "float16",
        config.num_towers,
        tried.constants,
    )
    exchange = Exchange(config, tried.keeps, tried.factor)
    late: Arrays | None = None
    for update in updates:
        if not guarantee.shares_one_model and update.tower is not None:
            gradient: Arrays = right_gradient(
                guarantee, update.tower, update.parts, update.shares
            )
        else:
            gradient = tried.sum(update) if tried.sum else exchange.sum(update.parts)
        if guarantee.late:
            zeros = {name: np.zeros_like(array) for name, array in gradient.items()}
            gradient, late = (zeros if late is None else late), gradient
        yield rule.update(gradient, update.before)
