"""The effect of changes on a step: its parts in many draws, changed singly and together.

A step on n devices lasts 1 / efficiency ideal steps. An ideal step is the step of a
single device with its share of the work. Every draw varies the measured rates by their
errors, and unknown quantities between their extremes. The rates before and after a
change come from the same draw, so common noise cancels in their ratio. docs/predict.md
lists the assumptions.

Letters: D draws; arrays have the shape [D].

`predict --what_if` lists changes with `list_changes_to_compare` and computes their
effects with `compute_sensitivity`.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.interval_kinds import Basis, IntervalKind
from rnn_scaling.analysis.prediction.costs import exchange_s
from rnn_scaling.analysis.prediction.curves import (
    STRONG,
    CannotPredict,
    Curve,
    Link,
    Prediction,
)
from rnn_scaling.analysis.prediction.models import MIN_STEP_TIMES, compute_longest_share
from rnn_scaling.analysis.statements import Statement, state

_DRAWS = 4_000
_NORMAL_QUANTILE = 1.96
BATCH = "batch_size"
COMPUTE = "compute"
EXCHANGE = "exchange"
LINK = "link_gbit"
JITTER = "jitter"
FACTORS = (BATCH, COMPUTE, EXCHANGE, JITTER)  # changes by a factor
_NOW = "now"
_TOGETHER = "all together"
_LOSSES = ("contention", "exchange", "fixed cost", "jitter")
_UNREPEATED_ERROR = 0.03  # standard error of log(rate) without repeats
# Share of the exchange that may overlap with computation if no trace shows it.
_MAX_HIDDEN_SHARE = 0.4
_MIN_GAIN = 1.005
# Share of the draws in which the best change must gain more than the second.
_MIN_CONFIDENCE = 0.975


@dataclasses.dataclass(frozen=True)
class Change:
    """One change of the batch, the device, the exchange, the jitter or the link."""

    kind: str
    factor: float = 1.0
    link: Link | None = None  # the new outermost link

    @property
    def title(self) -> str:
        """The change as the user writes it: "batch_size=2x"."""
        number = f"{self.factor:g}x" if self.factor else "none"
        if self.link:
            number = f"{8e-9 * self.link.bytes_per_s:.3g}"
        return f"{self.kind}={number}"


@dataclasses.dataclass(frozen=True)
class Effect:
    """The effect of one change, or of several at once."""

    change: str
    gain: Interval  # rate after / rate before
    rate: Interval
    efficiency: Interval


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """The effects of changes on one curve on n devices."""

    curve: Curve
    devices: int
    parts: Mapping[str, Interval]  # shares of the step's time now; their sum is 1
    effects: tuple[Effect, ...]  # "now", each change by its gain, and all together
    statements: tuple[Statement, ...]


def list_changes_to_compare(
    curve: Curve, user_changes: Sequence[Change]
) -> Sequence[Change]:
    """Return the changes to compare.

    Args:
      curve: The curve that is changed.
      user_changes: The changes that the user names; if empty, each loss is removed, and
        batch, device and link are doubled.

    Returns:
      `user_changes` without a new link if the present one is unknown, or the standard
      ones.

    Raises:
      CannotPredict: If the step of one device is unknown, or no change is left.
    """
    if curve.points[0].devices != 1:
        raise CannotPredict(state("whatif-no-baseline", curve.name))
    outermost = curve.knowledge.links[-1:]
    present = [link for link in outermost if math.isfinite(link.bytes_per_s)]
    if user_changes:
        possible_changes = [
            change for change in user_changes if present or not change.link
        ]
        if not possible_changes:
            raise CannotPredict(state("whatif-no-link", curve.name))
        return possible_changes
    standard = [Change(BATCH, 2.0), Change(COMPUTE, 2.0), Change(JITTER, 0.0)]
    if curve.knowledge.algorithm != "none":
        standard.append(Change(EXCHANGE, 0.0))
        for link in present:
            faster = dataclasses.replace(link, bytes_per_s=2 * link.bytes_per_s)
            standard.append(Change(LINK, link=faster))
    return standard


def compute_sensitivity(
    prediction: Prediction,
    devices: int,
    changes: Sequence[Change],
    fixed_share: Interval | None = None,
) -> Sensitivity:
    """Return the effects of changes on n devices.

    Args:
      prediction: Has a point on n devices, and its curve a rate on one device.
      devices: n.
      changes: At least one.
      fixed_share: Share of the computation of a step that does not grow with its batch;
        None if unknown.
    """
    step = _Step(prediction, devices, fixed_share)
    combinations = {_NOW: [], **{change.title: [change] for change in changes}}
    if len(changes) > 1:
        combinations[_TOGETHER] = [*changes]
    speed_now, _ = step.apply_changes([])
    gains = {}
    effects = {}
    for title, combination in combinations.items():
        speed, efficiency = step.apply_changes(combination)
        gain = speed / speed_now
        gains[title] = gain
        effects[title] = Effect(
            title,
            _make_interval(gain),
            _make_interval(step.rates * gain),
            _make_interval(efficiency),
        )
    ranked = [effects[change.title] for change in changes]
    ranked.sort(key=lambda effect: -effect.gain.value)
    best = ranked[0]
    ties = [
        effect.change
        for effect in ranked[1:]
        if np.mean(gains[best.change] > gains[effect.change]) < _MIN_CONFIDENCE
    ]
    kind = "whatif-tie" if ties else "whatif-best"
    if best.gain.value < _MIN_GAIN:
        kind = "whatif-none"
    values = {"name": best.change, "gain": best.gain, "names": ties}
    shares = {
        name: _make_interval(part * speed_now)
        for name, part in step.split_parts().items()
    }
    together = [effects[_TOGETHER]] if _TOGETHER in effects else []
    return Sensitivity(
        prediction.curve,
        devices=devices,
        parts=shares,
        effects=(effects[_NOW], *ranked, *together),
        statements=(state(kind, **values), *step.assumptions(changes, fixed_share)),
    )


class _Step:
    """The parts of a step of one curve on n devices, in ideal steps."""

    def __init__(
        self, prediction: Prediction, devices: int, fixed_share: Interval | None
    ) -> None:
        self._curve = prediction.curve
        self._knowledge = prediction.curve.knowledge
        self._devices = devices
        self._local_devices = self._curve.local_devices(devices)
        self._random = np.random.default_rng(1)
        # How far a part follows a change of a different part, between 0 and 1. No record
        # shows it.
        self._coupling = {
            name: self._random.uniform(size=_DRAWS)
            for name in ("contention", "jitter", "wire", "batch")
        }
        if fixed_share is not None:
            share = self._draw(fixed_share.shifted(1.0)) - 1
            self._coupling["batch"] = np.clip(share, -1.0, 1.0)
        # Achieved share of the stated rate of links: before / after.
        self._achieved_ratio = self._random.uniform(0.9, 1.1, _DRAWS)
        rates = {point.devices: point.interval for point in self._curve.points}
        replica_points = self._knowledge.independent
        replica_rates = {point.devices: point.interval for point in replica_points}
        predicted = {point.devices: point for point in prediction.points}[devices]
        efficiency = np.ones(_DRAWS)
        if devices in rates:
            self.rates = self._draw(rates[devices])
            if devices > 1:
                efficiency = self.rates / (devices * self._draw(rates[1]))
        else:
            normal = self._random.standard_normal(_DRAWS)
            self.rates = self._draw(predicted.rate, normal)
            efficiency = self._draw(predicted.efficiency, normal)
        contention = None  # the loss of independent replicas
        if self._local_devices in replica_rates:
            one_rate = self._draw(replica_rates.get(1, rates[1]))
            replica_rate = self._draw(replica_rates[self._local_devices])
            contention = self._local_devices * one_rate / replica_rate - 1
        lost = np.maximum(1 / efficiency - 1, 0.0) * (devices > 1)
        losses = self._split(lost, contention, predicted.parts)
        self.parts = {"compute": 1 / efficiency - lost, **losses}
        hidden_share: float | np.ndarray | None = self._knowledge.hidden_share
        if hidden_share is None:
            hidden_share = self._random.uniform(0, _MAX_HIDDEN_SHARE, _DRAWS)
        exposed_share = np.maximum(1 - hidden_share, 0.05)
        hidden = self.parts["exchange"] * hidden_share / exposed_share
        # At most an ideal step of computation hides it.
        self._hidden = np.minimum(hidden, 1.0)

    def split_parts(self) -> dict[str, np.ndarray]:
        """Return the parts of the step; losses without a known cause are one part."""
        if self._has_known_causes:
            return self.parts
        lost = np.sum([self.parts[name] for name in _LOSSES], axis=0)
        return {"compute": self.parts["compute"], "not split": lost}

    @property
    def _has_known_causes(self) -> bool:
        """Whether the exchange is known, or contention was measured without it."""
        return bool(self._knowledge.algorithm) or self._is_contention_measured

    @property
    def _is_contention_measured(self) -> bool:
        counts = {point.devices for point in self._knowledge.independent}
        return self._local_devices in counts

    def _draw(
        self, interval: Interval | None, normal: np.ndarray | None = None
    ) -> np.ndarray:
        """Draw a positive number whose logarithm is normal on each side of the value.

        Args:
          interval: The value and its ends, which must not be None.
          normal: [D], standard normal numbers; by default new ones.
        """
        assert interval is not None
        if normal is None:
            normal = self._random.standard_normal(_DRAWS)
        error = _NORMAL_QUANTILE * _UNREPEATED_ERROR
        value = interval.value
        ends = interval.ends or (value * math.exp(-error), value * math.exp(error))
        error_below, error_above = (
            abs(math.log(max(end, 1e-9) / value)) / _NORMAL_QUANTILE for end in ends
        )
        return value * np.exp(normal * np.where(normal < 0, error_below, error_above))

    def _split(
        self,
        lost: np.ndarray,
        contention: np.ndarray | None,
        predicted: Mapping[str, float],
    ) -> dict[str, np.ndarray]:
        """Split the lost time into LOSSES.

        If contention was not measured, each draw mixes the split of the model with a
        random one, because a curve by itself hardly shows which loss is which.
        Otherwise the exchange is the remainder after the measured jitter and, in strong
        scaling, a fixed cost.

        Args:
          lost: [D].
          contention: [D], as measured; None if unknown.
          predicted: Share of each loss according to the model.
        """
        is_open = contention is None
        exchanges = self._knowledge.algorithm != "none"
        has_fixed = self._curve.scaling == STRONG or not exchanges
        possible_parts = np.array(
            [is_open, exchanges, has_fixed, is_open or not exchanges]
        )
        random_shares = (
            self._random.dirichlet(np.ones(len(_LOSSES)), _DRAWS) * possible_parts
        )
        random_shares /= random_shares.sum(axis=1, keepdims=True)
        model = [
            max(0.0, predicted.get(name, 0.0)) for name in _LOSSES
        ] * possible_parts
        unsplit = max(predicted.get("not split", 0.0), 1e-9)
        shares = model + unsplit * random_shares
        shares /= shares.sum(axis=1, keepdims=True)
        mixing = self._random.uniform(size=(_DRAWS, 1)) * is_open
        shares = shares + mixing * (random_shares - shares)
        contention_share, _, fixed_share, jitter_share = shares.T
        if contention is None:
            # In the worst case one device computes at a time.
            limit = np.minimum(lost, self._local_devices - 1) if exchanges else lost
            contention = contention_share * limit
        uncontended = lost - np.clip(contention, 0.0, lost)
        fixed_cost = fixed_share / shares[:, 1:].sum(axis=1) * uncontended
        jitter = jitter_share * np.minimum(uncontended, 1.0)
        step_times = self._knowledge.step_times
        if len(step_times) >= MIN_STEP_TIMES:
            # Devices that are slow at the same time wait less for each other than
            # independent ones.
            longest = float(
                compute_longest_share(step_times, np.array([self._devices]))[0]
            )
            waiting_share = longest * self._random.uniform(0.5, 1.0, _DRAWS)
            jitter = np.minimum(waiting_share, uncontended - fixed_cost)
        exchange = np.maximum(uncontended - fixed_cost - jitter, 0.0) * exchanges
        remaining = lost - fixed_cost - jitter - exchange
        return dict(zip(_LOSSES, (remaining, exchange, fixed_cost, jitter)))

    def _exchange_cost(
        self, links: Sequence[Link], gathered_factor: float = 1.0
    ) -> float | None:
        """Return the exchange over these links in ideal steps; None if unknown.

        Args:
          links: Innermost first.
          gathered_factor: Factor of the gathered bytes.
        """
        knowledge = self._knowledge
        if not (links and knowledge.algorithm and knowledge.step_s):
            return None
        if knowledge.summed_bytes is None:
            return None
        ideal_s = knowledge.step_s
        if self._curve.scaling == STRONG:
            ideal_s /= self._devices
        gathered_bytes = gathered_factor * (knowledge.gathered_bytes or 0.0)
        seconds = exchange_s(
            knowledge.algorithm,
            devices=self._devices,
            summed_bytes=knowledge.summed_bytes,
            gathered_bytes=gathered_bytes,
            links=links,
        )
        return seconds / ideal_s

    def apply_changes(self, changes: Sequence[Change]) -> tuple[np.ndarray, np.ndarray]:
        """Return (samples per present ideal step, efficiency) after changes."""
        parts = dict(self.parts)
        samples = 1.0
        ideal = np.ones(_DRAWS)
        for change in changes:
            compute_factor: float | np.ndarray = 1.0
            exchange_factor: float | np.ndarray = 1.0
            if change.kind == EXCHANGE:
                exchange_factor = change.factor
            elif change.kind == JITTER:
                parts["jitter"] = parts["jitter"] * change.factor
            elif change.kind == COMPUTE:
                compute_factor = 1 / change.factor
            elif change.kind == BATCH:
                fixed_cost = self._coupling["batch"] * (1 - change.factor)
                compute_factor = change.factor + fixed_cost
                samples *= change.factor
                exchange_factor = self._exchange_growth(change.factor)
            elif change.link:
                exchange_factor = self._link_factor(change.link)
            ideal = ideal * compute_factor
            parts["compute"] = parts["compute"] * compute_factor
            for name in ("contention", "jitter"):
                growth = self._coupling[name] * (compute_factor - 1)
                parts[name] = parts[name] * (1 + growth)
            shrinking = np.minimum(exchange_factor, 1.0) ** self._coupling["wire"]
            exchange = (parts["exchange"] + self._hidden) * exchange_factor
            parts["exchange"] = np.maximum(exchange - self._hidden * shrinking, 0.0)
        speed = samples / np.sum([*parts.values()], axis=0)
        return speed, ideal * speed / samples

    def _exchange_growth(self, batch_factor: float) -> float:
        """Return the factor of the exchange, since a larger batch gathers more rows."""
        links = self._knowledge.links or (Link(0.0, 1.0),)
        present = self._exchange_cost(links)
        grown = self._exchange_cost(links, batch_factor)
        return grown / present if present and grown else 1.0

    def _link_factor(self, link: Link) -> np.ndarray:
        """Return the factor by which a new outermost link changes the exchange.

        Most of the exchange follows the rate; nearly all does if the bytes are known.
        """
        *inner, outer = self._knowledge.links
        alpha_s = link.alpha_s or outer.alpha_s
        link = dataclasses.replace(link, alpha_s=alpha_s, devices=outer.devices)
        ratio = outer.bytes_per_s / link.bytes_per_s
        exponent = 1 / 8
        present = self._exchange_cost([*inner, outer])
        changed_cost = self._exchange_cost([*inner, link])
        if present and changed_cost:
            ratio = changed_cost / present
            exponent = 1 / 40
        following = self._coupling["wire"] ** exponent
        return 1 + following * (self._achieved_ratio * ratio - 1)

    def assumptions(
        self, changes: Sequence[Change], fixed_share: Interval | None
    ) -> list[Statement]:
        """Return the unrecorded facts, and the effects of a batch beyond its rate."""
        statements = []
        if any(change.kind == BATCH for change in changes):
            is_known = fixed_share is not None
            kind = "whatif-batch" if is_known else "whatif-batch-unknown"
            statements.append(state(kind))
        if self._devices == 1 or self._knowledge.algorithm == "none":
            return statements
        if not self._has_known_causes:
            return [*statements, state("whatif-no-cause")]
        if not self._is_contention_measured:
            statements.append(
                state("whatif-no-independent", devices=self._local_devices)
            )
        if self._knowledge.hidden_share is None:
            statements.append(state("whatif-overlap"))
        return statements


def _make_interval(values: np.ndarray) -> Interval:
    low, value, high = map(float, np.percentile(values, (2.5, 50, 97.5)))
    error = (high - low) / 2 / _NORMAL_QUANTILE
    return Interval(
        value, low=low, high=high, kind=IntervalKind(Basis.DRAWS), standard_error=error
    )
