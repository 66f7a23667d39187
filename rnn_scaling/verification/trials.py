"""Trials: the updates that a run would do if it had a certain fault.

A trial changes one thing: the guarantee of the mode, the factors of the towers'
gradients, the exchange, or a constant of the update rule. Its updates are computed from
the gradients of all batches at the weights of the run, and compared with the updates of
the run one by one.

`diagnosis` and `certifier` compare a wrong run with the trials. A new fault is a new
trial.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.verification.gradients import GradientPart, sum_gradients
from rnn_scaling.verification.rule import (
    RIGHT,
    Arrays,
    Constants,
    Guarantee,
    SerialUpdateRule,
    clipping_factor,
    norm,
)
from rnn_scaling.verification.serial import Exchange

ROUNDING = 2.0**-20  # share of a weight's size: a few rounding errors in float32
_MIN_FACTOR_DIFFERENCE = 0.003  # least difference of a wrong factor from 1
# Share of a change. A trial that differs by more does not explain the run.
_MAX_DIFFERENCE = 0.04
Factors = Mapping[int, float]  # tower -> factor of its gradient in a sum
Parts = Mapping[int, GradientPart]  # tower -> its gradient


@dataclasses.dataclass(frozen=True)
class ReplicaUpdate:
    """One update of one replica.

    Attributes:
      tower: The tower of the replica, or None if all towers share it.
      parts: Each tower's gradient at the weights that it had. They are parts of the
        mean loss over all towers, so their plain sum is right.
      stale_parts: Returns the parts at the weights of the batch before. It computes
        them, so only trials of staged modes call it.
      shares: Each tower's share of all items.
      change: The change of each variable.
      weights_before: The weights before the update.
      micro_items: Per tower, the items of each micro-batch.
    """

    tower: int | None
    parts: Parts
    stale_parts: Callable[[], Parts]
    shares: Mapping[int, float]
    change: Arrays
    weights_before: Arrays
    micro_items: Sequence[Sequence[float]] = ()


@dataclasses.dataclass(frozen=True)
class Trial:
    """A fault, and how it changes the computation of updates.

    Attributes:
      fault: The statement of a certificate if the trial explains a run.
      guarantee_changes: Fields of the mode's `Guarantee` that are replaced.
      factors: Returns the factors of the towers' gradients in the sum, or None for
        the factors of the guarantee.
      combine: Returns the gradient of the micro-batches, or None for their sum.
      constants: Constants of the update rule.
      keeps_errors: Whether the exchange adds rounding errors to the next gradient.
      scale: Factor by which the exchange multiplies gradients.
    """

    fault: Statement
    guarantee_changes: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    factors: Callable[[ReplicaUpdate], Factors] | None = None
    combine: Callable[[ReplicaUpdate], dict[str, np.ndarray]] | None = None
    constants: Constants = RIGHT
    keeps_errors: bool = True
    scale: float = 1.0

    def compute_changes(
        self, config: RunConfig, updates: Sequence[ReplicaUpdate]
    ) -> Iterator[Arrays]:
        """Yield the change of the variables by each update."""
        is_scaled = config.model.compute_dtype == "float16"
        rule = SerialUpdateRule(
            config.training, is_scaled, config.num_towers, self.constants
        )
        for update, gradient in zip(updates, self.compute_gradients(config, updates)):
            yield rule.update(gradient, update.weights_before)

    def compute_gradients(
        self, config: RunConfig, updates: Sequence[ReplicaUpdate]
    ) -> Iterator[Arrays]:
        """Yield the gradient that each update would apply."""
        guarantee = dataclasses.replace(
            Guarantee.from_config(config), **self.guarantee_changes
        )
        exchange = Exchange(config, self.keeps_errors, self.scale)
        late_gradient: dict[str, np.ndarray] | None = None
        for update in updates:
            parts = update.stale_parts() if guarantee.staged else update.parts
            if self.combine is not None:
                gradient = self.combine(update)
            elif self.factors is not None:
                gradient = _weighted_sum(parts, self.factors(update))
            elif guarantee.shares_one_model or update.tower is None:
                gradient = exchange.sum(parts)
            else:
                gradient = _weighted_sum(parts, _own_mean_factors(update))
            if guarantee.late:
                zeros = {name: np.zeros_like(array) for name, array in gradient.items()}
                following = gradient
                gradient = zeros if late_gradient is None else late_gradient
                late_gradient = following
            yield gradient


UNCHANGED = Trial(Statement("update-right", "right"))


def _weighted_sum(parts: Parts, factors: Factors) -> dict[str, np.ndarray]:
    """Return the sum of the towers' gradients, times their factors.

    A tower without a factor is left out.
    """
    first = next(iter(parts.values())).gradient
    total = {name: np.zeros_like(array) for name, array in first.items()}
    for tower, factor in factors.items():
        for name, array in parts[tower].gradient.items():
            total[name] += array * np.float32(factor)
    return total


def _own_part_factors(update: ReplicaUpdate) -> Factors:
    """Return the factors of a replica that adds only its own part of the mean loss."""
    everyone = dict.fromkeys(update.shares, 1.0)
    return everyone if update.tower is None else {update.tower: 1.0}


def _own_mean_factors(update: ReplicaUpdate) -> Factors:
    """Return the factors of a replica that trains on its own mean loss."""
    return {
        tower: factor / update.shares[tower]
        for tower, factor in _own_part_factors(update).items()
    }


def _sum_of_means(update: ReplicaUpdate) -> Factors:
    """Return the factors if the means of all towers are added but not divided."""
    return {tower: 1 / share for tower, share in update.shares.items()}


def _mean_of_means_factors(update: ReplicaUpdate) -> Factors:
    """Return the factors if all towers count equally, whatever their items."""
    count = len(update.shares)
    return {tower: 1 / share / count for tower, share in update.shares.items()}


_LOCAL = Statement("update-not-exchanged", "not exchanged")
_STALE = "stale by 1 step"
# Faults of an update mode, the likelier first. A trial that changes nothing for a mode
# never explains a wrong update.
_WRONG_MODES = (
    Trial(
        Statement("update-not-late", "not stale"),
        guarantee_changes={"late": False, "staged": False},
    ),
    Trial(Statement("update-one-batch-late", _STALE), guarantee_changes={"late": True}),
    Trial(
        Statement("update-stale-weights", _STALE), guarantee_changes={"staged": True}
    ),
    Trial(
        Statement("update-exchanged", "exchanged"),
        guarantee_changes={"shares_one_model": True},
    ),
    Trial(_LOCAL, factors=_own_part_factors),
    Trial(_LOCAL, guarantee_changes={"shares_one_model": False}),
    Trial(Statement("update-sum-of-means", "sum"), factors=_sum_of_means),
    Trial(Statement("update-mean-of-means", "mean"), factors=_mean_of_means_factors),
)


def wrong_sums(config: RunConfig) -> Iterator[Trial]:
    """Yield the trials that change which gradients are added, the likelier first."""
    shares_one_model = Guarantee.from_config(config).shares_one_model
    for trial in _WRONG_MODES:
        if shares_one_model or trial.fault is not _LOCAL:
            yield trial
    if shares_one_model:
        yield from _list_micro_trials(config)
    yield from _list_tower_trials(config.num_towers)


def _list_tower_trials(num_towers: int) -> Iterator[Trial]:
    """Yield trials in which a tower's gradient is missing, or counts twice."""
    everyone = dict.fromkeys(range(num_towers), 1.0)
    for tower in everyone:
        other_towers = {number: 1.0 for number in everyone if number != tower}
        values = {"tower": tower}
        left_out = Statement("update-tower-left-out", "tower left out", values)
        yield Trial(left_out, factors=_make_constant_factors(other_towers))
        twice = Statement("update-tower-twice", "tower twice", values)
        yield Trial(twice, factors=_make_constant_factors(everyone | {tower: 2.0}))
        if other_towers:
            yield Trial(left_out, factors=_make_mean_without_tower(tower))
        for replacement in other_towers:
            replaced_values = {**values, "instead": replacement}
            replaced = Statement(
                "update-tower-replaced", "tower twice", replaced_values
            )
            factors = _make_constant_factors(other_towers | {replacement: 2.0})
            yield Trial(replaced, factors=factors)


def _make_constant_factors(factors: Factors) -> Callable[[ReplicaUpdate], Factors]:
    return lambda update: factors


def _make_mean_without_tower(tower: int) -> Callable[[ReplicaUpdate], Factors]:
    """Return the factors of a mean over the items of all other towers."""

    def factors(update: ReplicaUpdate) -> Factors:
        factor = 1 / (1 - update.shares[tower])
        return {number: factor for number in update.shares if number != tower}

    return factors


def _list_micro_trials(config: RunConfig) -> Iterator[Trial]:
    """Yield trials in which the micro-batches of an update are added wrongly."""
    if config.training.gradient_accumulation_steps < 2:
        return
    means = Statement("update-mean-of-micro-batches", "mean of micro-batches")
    yield Trial(means, combine=_average_micro_batches)
    yield Trial(means, combine=_average_micro_steps)
    last = Statement("update-last-micro-batch", "last micro-batch")
    yield Trial(last, combine=functools.partial(_keep_last_micro_batch, is_mean=False))
    yield Trial(last, combine=functools.partial(_keep_last_micro_batch, is_mean=True))


def _sum_weighted_micro_batches(
    update: ReplicaUpdate, factor_of: Callable[[int, int], float]
) -> dict[str, np.ndarray]:
    """Return the sum of all micro-batches' gradients times their factors.

    Args:
      update: The update.
      factor_of: Takes a tower and the number of its micro-batch.
    """
    gradient = {
        name: np.zeros_like(array) for name, array in update.weights_before.items()
    }
    for tower, part in update.parts.items():
        for micro, arrays in enumerate(part.micro_gradients):
            factor = np.float32(factor_of(tower, micro))
            for name, array in arrays.items():
                gradient[name] += factor * array
    return gradient


def _average_micro_batches(update: ReplicaUpdate) -> dict[str, np.ndarray]:
    """Return the gradient if all micro-batches of all towers count equally."""
    items = update.micro_items
    total = sum(map(sum, items))
    count = sum(map(len, items))
    return _sum_weighted_micro_batches(
        update, lambda tower, micro: total / items[tower][micro] / count
    )


def _average_micro_steps(update: ReplicaUpdate) -> dict[str, np.ndarray]:
    """Return the gradient if the micro-batches of a time count equally."""
    by_micro = [sum(items) for items in zip(*update.micro_items)]
    total = sum(by_micro)
    return _sum_weighted_micro_batches(
        update, lambda tower, micro: total / by_micro[micro] / len(by_micro)
    )


def _keep_last_micro_batch(
    update: ReplicaUpdate, is_mean: bool
) -> dict[str, np.ndarray]:
    """Return the gradient of the last micro-batches, perhaps their own mean."""
    last_items = [items[-1] for items in update.micro_items]
    last = len(update.micro_items[0]) - 1
    factor = 1.0
    if is_mean:
        factor = sum(map(sum, update.micro_items)) / sum(last_items)
    return _sum_weighted_micro_batches(
        update, lambda tower, micro: factor if micro == last else 0.0
    )


def _make_micro_clipping(
    longest: float, share: float, is_by_tower: bool
) -> Callable[[ReplicaUpdate], dict[str, np.ndarray]]:
    """Return the sum of micro-batches that are clipped one by one.

    Args:
      longest: --max_gradient_norm.
      share: Share of `longest` to which each is clipped.
      is_by_tower: Whether each tower clips its own.
    """

    def combine(update: ReplicaUpdate) -> dict[str, np.ndarray]:
        factors: dict[tuple[int, int], float] = {}
        towers = list(update.parts)
        for micro in range(len(update.micro_items[0])):
            gradients = [update.parts[tower].micro_gradients[micro] for tower in towers]
            joint = clipping_factor(sum_gradients(gradients), longest * share)
            for tower, gradient in zip(towers, gradients):
                own_factor = clipping_factor(gradient, longest * share / len(towers))
                factors[tower, micro] = own_factor if is_by_tower else joint
        return _sum_weighted_micro_batches(
            update, lambda tower, micro: factors[tower, micro]
        )

    return combine


def _make_tower_clipping(
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
            clipping[tower] = clipping_factor(part.gradient, bound)
        return clipping

    return factors


# Optimizer -> its constants and their wrong values.
_CONSTANTS: dict[str, dict[str, tuple[float, ...]]] = {
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
# Each row has the option that a run must use, the kind and the verdict of the
# statement, and the changed constants.
_RULES: tuple[tuple[str, str, str, Constants], ...] = (
    ("momentum", "rule-nesterov", "Nesterov", Constants(nesterov=True)),
    ("adam", "rule-correction-late", "bias correction", Constants(offset=-1)),
    ("adam", "rule-correction-early", "bias correction", Constants(offset=1)),
    ("weight_decay", "rule-not-decayed", "weight decay", Constants(weight_decay=0.0)),
    ("weight_decay", "rule-decays-all", "weight decay", Constants(decays_all=True)),
    ("weight_decay", "rule-decay-in-gradient", "weight decay", Constants(decouples=())),
    (
        "weight_decay",
        "rule-decay-decoupled",
        "weight decay",
        Constants(decouples=("momentum", "rmsprop", "adam")),
    ),
    (
        "lr_schedule",
        "rule-not-scheduled",
        "learning rate",
        Constants(is_scheduled=False),
    ),
    ("lr_warmup_batches", "rule-ramp-late", "learning rate", Constants(offset=-1)),
    ("lr_warmup_batches", "rule-ramp-shorter", "learning rate", Constants(ramp=-1)),
    ("lr_warmup_batches", "rule-ramp-early", "learning rate", Constants(offset=1)),
    ("lr_warmup_batches", "rule-ramp-longer", "learning rate", Constants(ramp=1)),
)


def _list_slot_trials(num_updates: int) -> Iterator[Trial]:
    """Yield the trials in which the optimizer's slots are emptied, always or once."""
    each_time = Statement("rule-slots-reset", "reset slots")
    yield Trial(each_time, constants=Constants(resets=None))
    for number in range(1, num_updates):
        once = Statement("rule-slots-reset-once", "reset slots", {"batch": number})
        yield Trial(once, constants=Constants(resets=(number,)))


def _wrong_rules(config: RunConfig, num_updates: int) -> Iterator[Trial]:
    """Yield the trials that change the update rule, the likelier first.

    Args:
      config: The options of the run.
      num_updates: Number of the updates that a trial explains.
    """
    training = config.training
    options = ("weight_decay", "lr_warmup_batches")
    used_options = {name for name in options if getattr(training, name)}
    used_options.add(training.optimizer)
    if training.lr_schedule != "constant":
        used_options.add("lr_schedule")
    for name, candidates in _CONSTANTS.get(training.optimizer, {}).items():
        verdict = f"Adam's {name}" if training.optimizer == "adam" else name
        for value in candidates:
            values = {"name": name, "value": value, "right": getattr(RIGHT, name)}
            changed_constants: dict[str, Any] = {name: value}
            fault = Statement("rule-constant", verdict, values)
            yield Trial(fault, constants=Constants(**changed_constants))
    if training.optimizer == "adam":
        yield from _list_correction_trials(config)
    if training.optimizer != "sgd":
        yield from _list_slot_trials(num_updates)
    for option, kind, verdict, constants in _RULES:
        if option in used_options:
            yield Trial(Statement(kind, verdict), constants=constants)
    if ramp := training.lr_warmup_batches:
        fault = Statement("rule-no-ramp", "learning rate")
        yield Trial(fault, constants=Constants(ramp=-ramp))
    if longest := training.max_gradient_norm:
        yield from _list_clipping_trials(longest, config)
    if config.update.compress_gradients == "int8":
        yield Trial(Statement("rule-no-feedback", "no feedback"), keeps_errors=False)
    if Guarantee.from_config(config).shares_one_model:
        for trial in (
            *_list_micro_trials(config),
            *_list_tower_trials(config.num_towers),
        ):
            values = {**trial.fault.values, "variables": ["every variable"]}
            fault = dataclasses.replace(trial.fault, values=values)
            yield dataclasses.replace(trial, fault=fault)


def _list_correction_trials(config: RunConfig) -> Iterator[Trial]:
    """Yield the trials in which Adam does not correct its averages, or counts wrong."""
    averages = ["average of gradients", "average of squares"]
    for corrects in ((False, False), (False, True), (True, False)):
        missing_names = [
            name for name, is_right in zip(averages, corrects) if not is_right
        ]
        fault = Statement(
            "rule-no-correction", "bias correction", {"averages": missing_names}
        )
        yield Trial(fault, constants=Constants(corrects=corrects))
    num_micro = config.training.gradient_accumulation_steps
    for step in sorted({0, 2, config.num_towers, num_micro} - {1}):
        fault = Statement("rule-count", "Adam's step count", {"step": step})
        for first in sorted({1, max(1, step)}):
            yield Trial(fault, constants=Constants(first_count=first, count_step=step))


def _list_clipping_trials(longest: float, config: RunConfig) -> Iterator[Trial]:
    """Yield trials that clip by tower, twice, by micro-batch or by variable."""
    num_towers = config.num_towers
    by_tower = Statement("rule-clipped-by-tower", "clipped by tower")
    for share in (None, 1.0, 1 / num_towers):
        clipping = _make_tower_clipping(longest, share)
        yield Trial(by_tower, factors=clipping, constants=_UNCLIPPED)
    twice = Statement("rule-clipped-twice", "clipped by tower")
    yield Trial(twice, factors=_make_tower_clipping(longest, None))
    num_micro = config.training.gradient_accumulation_steps
    if num_micro > 1 and Guarantee.from_config(config).shares_one_model:
        yield from _list_micro_clipping_trials(longest, num_micro)
    by_variable = Statement("rule-clipped-by-variable", "clipped by variable")
    yield Trial(by_variable, constants=Constants(clips="variable"))
    yield Trial(Statement("rule-not-clipped", "not clipped"), constants=_UNCLIPPED)
    for bound in sorted({0.5, 2.0, float(num_towers), 1 / num_towers} - {1.0}):
        fault = Statement("rule-bound", "clipped to another norm", {"bound": bound})
        yield Trial(fault, constants=Constants(bound=bound))


def _list_micro_clipping_trials(longest: float, num_micro: int) -> Iterator[Trial]:
    by_micro = Statement("rule-clipped-by-micro-batch", "clipped by micro-batch")
    for is_by_tower in (True, False):
        for share in (1 / num_micro, 1.0):
            combine = _make_micro_clipping(longest, share, is_by_tower)
            for constants in (_UNCLIPPED, RIGHT):
                yield Trial(by_micro, combine=combine, constants=constants)


def _list_scale_trials(
    config: RunConfig, updates: Sequence[ReplicaUpdate]
) -> Iterator[Trial]:
    """Yield the factor of the first update as a fault of the rate or of int8."""
    if Guarantee.from_config(config).late or not updates:
        return
    (expected,) = UNCHANGED.compute_changes(config, updates[:1])
    product = 0.0
    square = 0.0
    for name, change in expected.items():
        actual = updates[0].change[name].astype(np.float64)
        product += float((actual * change).sum())
        square += norm(change) ** 2
    factor = product / square if square else 1.0
    if abs(factor - 1.0) < _MIN_FACTOR_DIFFERENCE:
        return
    values = {"factor": factor}
    if config.update.compress_gradients == "int8":
        fault = Statement("rule-int8-scale", "int8 scale", values)
        yield Trial(fault, scale=factor)
    else:
        fault = Statement("rule-rate", "learning rate", values)
    yield Trial(fault, constants=Constants(rate=factor))


def find_fault(config: RunConfig, updates: Sequence[ReplicaUpdate]) -> Statement | None:
    """Return the fault that explains all updates of one replica best, if any does."""
    rules = _wrong_rules(config, len(updates))
    trials = [UNCHANGED, *rules, *_list_scale_trials(config, updates)]
    differences = [_largest_difference(config, trial, updates) for trial in trials]
    unchanged = differences[0]
    smallest = min(differences)
    if unchanged <= smallest:
        return None
    # If several trials tie, the first is used, so their order matters: a wrong clipping
    # norm looks like a wrong learning rate, which is tried last.
    limit = 1.5 * smallest + 1e-5
    for trial, difference in zip(trials[1:], differences[1:]):
        if difference <= limit:
            # The remaining difference must be small, and most of it explained.
            explains = difference <= min(_MAX_DIFFERENCE, 0.3 * unchanged)
            return trial.fault if explains else None
    return None


def _largest_difference(
    config: RunConfig, trial: Trial, updates: Sequence[ReplicaUpdate]
) -> float:
    """Return the largest difference of a variable, as a share of its changes."""
    differences = dict.fromkeys(updates[0].change, 0.0)
    distances = dict(differences)
    for update, changes in zip(updates, trial.compute_changes(config, updates)):
        for name, change in changes.items():
            actual = update.change[name]
            rounding = ROUNDING * norm(update.weights_before[name])
            differences[name] += max(0.0, norm(actual - change) - rounding)
            distances[name] += norm(actual) + norm(change)
    longest = max(distances.values())
    if not longest:
        return 0.0
    return max(
        difference / max(distances[name], 1e-3 * longest)
        for name, difference in differences.items()
    )
