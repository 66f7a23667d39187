"""What changes would do to a step: its parts in many draws, changed one by one and together. Pure; numpy only.

A step on n devices lasts 1 / efficiency ideal steps, an ideal step being that of one device alone with its share of the
work. Every draw varies the measured rates by their errors, and what is not known between its extremes. Before and after
are computed from the same draw, so common noise cancels in their ratio. docs/predict.md lists the assumptions.

Letters: D draws; arrays have the shape [D].
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.costs import exchange_s
from rnn_scaling.analysis.prediction.curves import (
    STRONG,
    CannotPredict,
    Curve,
    Link,
    Prediction,
)
from rnn_scaling.analysis.prediction.models import ENOUGH_STEPS, longest_share
from rnn_scaling.analysis.statements import Statement, interval_values

DRAWS = 4_000
NORMAL = 1.96
BATCH = "batch_size"
COMPUTE = "compute"
EXCHANGE = "exchange"
LINK = "link_gbit"
JITTER = "jitter"
FACTORS = (BATCH, COMPUTE, EXCHANGE, JITTER)  # the changes by a factor
NOW = "now"
TOGETHER = "all together"
LOSSES = ("contention", "exchange", "fixed cost", "jitter")
UNKNOWN_ERROR = 0.03  # standard error of log(rate) if no repeats show it
# Share of the exchange that may overlap with computation if no trace shows it.
OPEN_HIDDEN = 0.4
LEAST_GAIN = 1.005
CLEAR = 0.975  # share of the draws in which the best change gains more than the second


@dataclasses.dataclass(frozen=True)
class Change:
    """One thing that would be different: batch, device, exchange, jitter or link."""

    kind: str
    factor: float = 1.0
    link: Link | None = None  # that replaces the outermost one

    @property
    def title(self) -> str:
        """The change as the user asks for it: "batch_size=2x"."""
        number = f"{self.factor:g}x" if self.factor else "none"
        if self.link:
            number = f"{8e-9 * self.link.bytes_per_s:.3g}"
        return f"{self.kind}={number}"


@dataclasses.dataclass(frozen=True)
class Effect:
    """What changes do at once; `gain`: rate after / rate before."""

    title: str
    gain: Interval
    rate: Interval
    efficiency: Interval


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """What changes do to one curve on n devices. effects: "now", each change by its gain, and all together."""

    curve: Curve
    devices: int
    parts: Mapping[str, Interval]  # shares of the step's time now; they add up to 1
    effects: tuple[Effect, ...]
    statements: tuple[Statement, ...]


def compared(curve: Curve, asked: Sequence[Change]) -> Sequence[Change]:
    """Return the changes to compare.

    Args:
      curve: What is changed.
      asked: The changes of the user; none: each loss removed, and twice the batch, the
        device and the link.

    Returns:
      `asked` without another link if the present one is unknown, or the standard ones.

    Raises:
      CannotPredict: If the step of one device is unknown, or no change is left.
    """
    if curve.points[0].devices != 1:
        raise CannotPredict(Statement("whatif-no-baseline", curve.name))
    outermost = curve.knowledge.links[-1:]
    present = [link for link in outermost if math.isfinite(link.bytes_per_s)]
    if asked:
        known = [change for change in asked if present or not change.link]
        if not known:
            raise CannotPredict(Statement("whatif-no-link", curve.name))
        return known
    standard = [Change(BATCH, 2.0), Change(COMPUTE, 2.0), Change(JITTER, 0.0)]
    if curve.knowledge.algorithm != "none":
        standard.append(Change(EXCHANGE, 0.0))
        for link in present:
            faster = dataclasses.replace(link, bytes_per_s=2 * link.bytes_per_s)
            standard.append(Change(LINK, link=faster))
    return standard


def sensitivity(
    prediction: Prediction,
    devices: int,
    changes: Sequence[Change],
    fixed_share: Interval | None = None,
) -> Sensitivity:
    """Return what changes do on n devices.

    Args:
      prediction: Has a point on n devices, and its curve a rate on one device.
      devices: n.
      changes: At least one.
      fixed_share: Share of the computation of a step that does not grow with its batch;
        None: unknown.
    """
    step = _Step(prediction, devices, fixed_share)
    wanted = {NOW: [], **{change.title: [change] for change in changes}}
    if len(changes) > 1:
        wanted[TOGETHER] = [*changes]
    speed_now, _ = step.changed([])
    gains = {}
    effects = {}
    for title, chosen in wanted.items():
        speed, efficiency = step.changed(chosen)
        gain = speed / speed_now
        gains[title] = gain
        effects[title] = Effect(
            title, _interval(gain), _interval(step.rates * gain), _interval(efficiency)
        )
    ranked = [effects[change.title] for change in changes]
    ranked.sort(key=lambda effect: -effect.gain.value)
    best = ranked[0]
    ties = []
    for other in ranked[1:]:
        if np.mean(gains[best.title] > gains[other.title]) < CLEAR:
            ties.append(other.title)
    kind = "whatif-tie" if ties else "whatif-best"
    if best.gain.value < LEAST_GAIN:
        kind = "whatif-none"
    values = {"name": best.title, "gain": interval_values(best.gain), "names": ties}
    parts = {}
    for name, part in step.named_parts().items():
        parts[name] = _interval(part * speed_now)
    together = [effects[TOGETHER]] if TOGETHER in effects else []
    return Sensitivity(
        prediction.curve,
        devices,
        parts,
        (effects[NOW], *ranked, *together),
        (Statement(kind, values=values), *step.assumptions(changes, fixed_share)),
    )


class _Step:
    """The parts of a step of one curve on n devices, in ideal steps, and how they follow changes."""

    def __init__(
        self, prediction: Prediction, devices: int, fixed_share: Interval | None
    ) -> None:
        self._curve = prediction.curve
        self._known = prediction.curve.knowledge
        self._devices = devices
        self._inside = self._curve.sharing(devices)
        self._random = np.random.default_rng(1)
        # What no record shows, between 0 and 1: how far a part follows another one that
        # changes.
        self._open = {
            name: self._random.uniform(size=DRAWS)
            for name in ("contention", "jitter", "wire", "batch")
        }
        if fixed_share is not None:
            drawn = self._drawn(fixed_share.shifted(1.0)) - 1
            self._open["batch"] = np.clip(drawn, -1.0, 1.0)
        # Rate that links carry of the stated one: before / after.
        self._carried = self._random.uniform(0.9, 1.1, DRAWS)
        points = {point.devices: point.interval for point in self._curve.points}
        alone = {point.devices: point.interval for point in self._known.independent}
        predicted = {point.devices: point for point in prediction.points}[devices]
        efficiency = np.ones(DRAWS)
        if devices in points:
            self.rates = self._drawn(points[devices])
            if devices > 1:
                efficiency = self.rates / (devices * self._drawn(points[1]))
        else:
            normal = self._random.standard_normal(DRAWS)
            self.rates = self._drawn(predicted.rate, normal)
            efficiency = self._drawn(predicted.efficiency, normal)
        contention = None  # what independent replicas lose
        if self._inside in alone:
            one = self._drawn(alone.get(1, points[1]))
            contention = self._inside * one / self._drawn(alone[self._inside]) - 1
        lost = np.maximum(1 / efficiency - 1, 0.0) * (devices > 1)
        losses = self._split(lost, contention, predicted.parts)
        self.parts = {"compute": 1 / efficiency - lost, **losses}
        hidden: float | np.ndarray | None = self._known.hidden
        if hidden is None:
            hidden = self._random.uniform(0, OPEN_HIDDEN, DRAWS)
        # At most behind all of an ideal step.
        behind = self.parts["exchange"] * hidden / np.maximum(1 - hidden, 0.05)
        self._hidden = np.minimum(behind, 1.0)

    def named_parts(self) -> dict[str, np.ndarray]:
        """Return the parts of the step, in ideal steps; losses without a known cause are one part."""
        if self._known.algorithm:
            return self.parts
        lost = np.sum([self.parts[name] for name in LOSSES], axis=0)
        return {"compute": self.parts["compute"], "not split": lost}

    def _drawn(
        self, interval: Interval | None, normal: np.ndarray | None = None
    ) -> np.ndarray:
        """Draw a positive number: normal distributions of its logarithm on each side of the value."""
        assert interval is not None
        if normal is None:
            normal = self._random.standard_normal(DRAWS)
        error = NORMAL * UNKNOWN_ERROR
        value = interval.value
        ends = interval.ends or (value * math.exp(-error), value * math.exp(error))
        below, above = (abs(math.log(max(end, 1e-9) / value)) / NORMAL for end in ends)
        return value * np.exp(normal * np.where(normal < 0, below, above))

    def _split(
        self,
        lost: np.ndarray,
        contention: np.ndarray | None,
        predicted: Mapping[str, float],
    ) -> dict[str, np.ndarray]:
        """Split what is lost into LOSSES.

        If contention was not measured, the split of the model is right, or any other is:
        a curve by itself hardly shows which loss is which. Otherwise the exchange is the
        rest, except a fixed cost in strong scaling and the measured jitter.

        Args:
          lost: [D].
          contention: [D], as measured; None: unknown.
          predicted: Share of each loss according to the model.
        """
        known = self._known
        is_open = contention is None
        exchanges = known.algorithm != "none"
        uniform = self._random.uniform
        has_fixed = self._curve.scaling == STRONG or not exchanges
        possible = np.array([is_open, exchanges, has_fixed, is_open or not exchanges])
        anything = self._random.dirichlet(np.ones(len(LOSSES)), DRAWS) * possible
        anything /= anything.sum(axis=1, keepdims=True)
        model = [max(0.0, predicted.get(name, 0.0)) for name in LOSSES] * possible
        shares = model + max(predicted.get("not split", 0.0), 1e-9) * anything
        shares /= shares.sum(axis=1, keepdims=True)
        mixed = uniform(size=(DRAWS, 1)) * is_open * (anything - shares)
        of_contention, _, of_fixed, of_jitter = (shares + mixed).T
        if contention is None:
            # It is at worst one device at a time.
            most = np.minimum(lost, self._inside - 1) if exchanges else lost
            contention = of_contention * most
        rest = lost - np.clip(contention, 0.0, lost)
        fixed = of_fixed / (shares + mixed)[:, 1:].sum(axis=1) * rest
        jitter = of_jitter * np.minimum(rest, 1.0)
        if len(known.step_times) >= ENOUGH_STEPS:
            # Devices that are slow at the same time wait less for each other than
            # independent ones.
            devices = np.array([self._devices])
            longest = float(longest_share(known.step_times, devices)[0])
            jitter = np.minimum(longest * uniform(0.5, 1.0, DRAWS), rest - fixed)
        exchange = np.maximum(rest - fixed - jitter, 0.0) * exchanges
        remaining = lost - fixed - jitter - exchange
        return dict(zip(LOSSES, (remaining, exchange, fixed, jitter)))

    def _cost(self, links: Sequence[Link], gathered: float = 1.0) -> float | None:
        """Return the exchange over these links in ideal steps; None if unknown.

        Args:
          links: Innermost first.
          gathered: Factor of the gathered bytes.
        """
        known = self._known
        if not (links and known.algorithm and known.step_s):
            return None
        if known.summed_bytes is None:
            return None
        ideal_s = known.step_s
        if self._curve.scaling == STRONG:
            ideal_s /= self._devices
        sent = gathered * (known.gathered_bytes or 0.0)
        seconds = exchange_s(
            known.algorithm, self._devices, known.summed_bytes, sent, links
        )
        return seconds / ideal_s

    def changed(self, changes: Sequence[Change]) -> tuple[np.ndarray, np.ndarray]:
        """Return (samples in an ideal step of before, efficiency) after changes."""
        parts = dict(self.parts)
        samples = 1.0
        ideal = np.ones(DRAWS)
        for change in changes:
            computing: float | np.ndarray = 1.0
            exchange: float | np.ndarray = 1.0
            if change.kind == EXCHANGE:
                exchange = change.factor
            elif change.kind == JITTER:
                parts["jitter"] = parts["jitter"] * change.factor
            elif change.kind == COMPUTE:
                computing = 1 / change.factor
            elif change.kind == BATCH:
                growth = self._open["batch"] * (1 - change.factor)
                computing = change.factor + growth
                samples *= change.factor
                exchange = self._growth_of_exchange(change.factor)
            elif change.link:
                exchange = self._link_factor(change.link)
            ideal = ideal * computing
            parts["compute"] = parts["compute"] * computing
            for name in ("contention", "jitter"):
                parts[name] = parts[name] * (1 + self._open[name] * (computing - 1))
            hidden = self._hidden * np.minimum(exchange, 1.0) ** self._open["wire"]
            whole = (parts["exchange"] + self._hidden) * exchange
            parts["exchange"] = np.maximum(whole - hidden, 0.0)
        speed = samples / np.sum([*parts.values()], axis=0)
        return speed, ideal * speed / samples

    def _growth_of_exchange(self, batch_factor: float) -> float:
        """Return how the exchange grows with the rows that a larger batch gathers."""
        links = self._known.links or (Link(0.0, 1.0),)
        before = self._cost(links)
        after = self._cost(links, batch_factor)
        return after / before if before and after else 1.0

    def _link_factor(self, new: Link) -> np.ndarray:
        """Return how another outermost link changes the exchange.

        Most of it follows the rate; nearly all does if the bytes are known.
        """
        *inner, outer = self._known.links
        new = dataclasses.replace(
            new, alpha_s=new.alpha_s or outer.alpha_s, devices=outer.devices
        )
        ratio = outer.bytes_per_s / new.bytes_per_s
        rest = 1 / 8
        before = self._cost([*inner, outer])
        after = self._cost([*inner, new])
        if before and after:
            ratio = after / before
            rest = 1 / 40
        return 1 + self._open["wire"] ** rest * (self._carried * ratio - 1)

    def assumptions(
        self, changes: Sequence[Change], fixed_share: Interval | None
    ) -> list[Statement]:
        """Return what a record could have shown, and the price of a batch that no rate shows."""
        made = []
        if any(change.kind == BATCH for change in changes):
            is_known = fixed_share is not None
            kind = "whatif-batch" if is_known else "whatif-batch-unknown"
            made.append(Statement(kind))
        if self._devices == 1 or self._known.algorithm == "none":
            return made
        if not self._known.algorithm:
            return [*made, Statement("whatif-no-cause")]
        measured = {point.devices for point in self._known.independent}
        if self._inside not in measured:
            values = {"devices": self._inside}
            made.append(Statement("whatif-no-independent", values=values))
        if self._known.hidden is None:
            made.append(Statement("whatif-overlap"))
        return made


def _interval(values: np.ndarray) -> Interval:
    low, value, high = (
        float(number) for number in np.percentile(values, (2.5, 50, 97.5))
    )
    return Interval(value, low, high, "95 % of the draws", (high - low) / 2 / NORMAL)
