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

DRAWS, NORMAL = 4_000, 1.96
BATCH, COMPUTE, EXCHANGE, LINK, JITTER = (
    "batch_size",
    "compute",
    "exchange",
    "link_gbit",
    "jitter",
)
FACTORS = (BATCH, COMPUTE, EXCHANGE, JITTER)  # the changes by a factor
LOSSES = ("contention", "exchange", "fixed cost", "jitter")
UNKNOWN_ERROR = 0.03  # standard error of log(rate) where no repeats tell it
OPEN_HIDDEN = (
    0.4  # share of the exchange that may overlap with computation where no trace tells
)
LEAST_GAIN = 1.005
CLEAR = 0.975  # share of the draws in which the best change gains more than the second


@dataclasses.dataclass(frozen=True)
class Change:
    """One thing that would be different: a factor of the batch, a device's speed, the exchange or the jitter."""

    kind: str
    factor: float = 1.0
    link: Link | None = None  # that replaces the outermost one

    @property
    def title(self) -> str:
        number = (
            f"{8e-9 * self.link.bytes_per_s:.3g}"
            if self.link
            else f"{self.factor:g}x"
            if self.factor
            else "none"
        )
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
    """The changes that are asked for; by default what a series has is free, or twice as large or as fast.

    Another link is left out where the present one is unknown.

    Raises CannotPredict for a curve whose step is not known on one device, and where no change is left.
    """
    present = [
        link for link in curve.knowledge.links[-1:] if math.isfinite(link.bytes_per_s)
    ]
    if curve.points[0].devices != 1:
        raise CannotPredict(Statement("whatif-no-baseline", curve.name))
    if asked and not present:
        asked = [change for change in asked if not change.link]
        if not asked:
            raise CannotPredict(Statement("whatif-no-link", curve.name))
    standard = [Change(BATCH, 2.0), Change(COMPUTE, 2.0), Change(JITTER, 0.0)]
    if curve.knowledge.algorithm != "none":
        faster = [
            dataclasses.replace(link, bytes_per_s=2 * link.bytes_per_s)
            for link in present
        ]
        standard += [
            Change(EXCHANGE, 0.0),
            *(Change(LINK, link=link) for link in faster),
        ]
    return asked or standard


def sensitivity(
    prediction: Prediction,
    devices: int,
    changes: Sequence[Change],
    fixed_share: Interval | None = None,
) -> Sensitivity:
    """What changes do on n devices, one of the points of the prediction; the curve has a rate on one device.

    Args:
      fixed_share: of the computation of a step, what does not grow with its batch; None: unknown.
    """
    step = _Step(prediction, devices, fixed_share)
    wanted = {"now": [], **{change.title: [change] for change in changes}}
    wanted |= {"all together": [*changes]} if len(changes) > 1 else {}
    after = {title: step.changed(chosen) for title, chosen in wanted.items()}
    gains = {title: speed / after["now"][0] for title, (speed, _) in after.items()}
    effects = [
        Effect(
            title,
            _interval(gains[title]),
            _interval(step.rates * gains[title]),
            _interval(efficiency),
        )
        for title, (_, efficiency) in after.items()
    ]
    ranked = sorted(
        effects[1 : 1 + len(changes)], key=lambda effect: -effect.gain.value
    )
    best = ranked[0]
    ties = [
        other.title
        for other in ranked[1:]
        if np.mean(gains[best.title] > gains[other.title]) < CLEAR
    ]
    values = {"name": best.title, "gain": interval_values(best.gain), "names": ties}
    kind = (
        "whatif-none"
        if best.gain.value < LEAST_GAIN
        else "whatif-tie"
        if ties
        else "whatif-best"
    )
    return Sensitivity(
        prediction.curve,
        devices,
        {
            name: _interval(part * after["now"][0])
            for name, part in step.named_parts().items()
        },
        (effects[0], *ranked, *effects[1 + len(changes) :]),
        (Statement(kind, values=values), *step.assumptions(changes, fixed_share)),
    )


class _Step:
    """The parts of a step of one curve on n devices, in ideal steps, and how they follow changes."""

    def __init__(
        self, prediction: Prediction, devices: int, fixed_share: Interval | None
    ) -> None:
        self._curve, self._known, self._devices = (
            prediction.curve,
            prediction.curve.knowledge,
            devices,
        )
        self._inside = self._curve.sharing(devices)
        self._point = next(
            point for point in prediction.points if point.devices == devices
        )
        self._random = np.random.default_rng(1)
        # What no record tells, between 0 and 1: how far a part follows another one that changes.
        self._open = {
            name: self._random.uniform(size=DRAWS)
            for name in ("contention", "jitter", "wire", "batch")
        }
        if fixed_share is not None:
            self._open["batch"] = np.clip(
                self._drawn(fixed_share.shifted(1.0)) - 1, -1.0, 1.0
            )
        self._carried = self._random.uniform(
            0.9, 1.1, DRAWS
        )  # by links, of the rate that is stated: before / after
        points = {point.devices: point.interval for point in self._curve.points}
        alone = {point.devices: point.interval for point in self._known.independent}
        if devices in points:
            self.rates = self._drawn(points[devices])
            efficiency = (
                self.rates / (devices * self._drawn(points[1]))
                if devices > 1
                else np.ones(DRAWS)
            )
        else:
            normal = self._random.standard_normal(DRAWS)
            self.rates, efficiency = (
                self._drawn(self._point.rate, normal),
                self._drawn(self._point.efficiency, normal),
            )
        contention = None  # what independent replicas lose
        if self._inside in alone:
            contention = (
                self._inside
                * self._drawn(alone.get(1, points[1]))
                / self._drawn(alone[self._inside])
                - 1
            )
        lost = np.maximum(1 / efficiency - 1, 0.0) * (devices > 1)
        self.parts = {"compute": 1 / efficiency - lost, **self._split(lost, contention)}
        hidden = (
            self._random.uniform(0, OPEN_HIDDEN, DRAWS)
            if self._known.hidden is None
            else self._known.hidden
        )
        # At most behind all of an ideal step.
        self._hidden = np.minimum(
            self.parts["exchange"] * hidden / np.maximum(1 - hidden, 0.05), 1.0
        )

    def named_parts(self) -> dict[str, np.ndarray]:
        """Return the parts of the step, in ideal steps; losses without a known cause are one part."""
        if self._known.algorithm:
            return self.parts
        lost = np.sum([self.parts[name] for name in LOSSES], axis=0)
        return {"compute": self.parts["compute"], "not split": lost}

    def _drawn(
        self, interval: Interval | None, normal: np.ndarray | None = None
    ) -> np.ndarray:
        """Draws of a positive number: a normal distribution of its logarithm on each side of the value."""
        assert interval is not None
        normal = self._random.standard_normal(DRAWS) if normal is None else normal
        low, high = interval.ends or (
            interval.value * math.exp(side * NORMAL * UNKNOWN_ERROR) for side in (-1, 1)
        )
        below, above = (
            abs(math.log(max(end, 1e-9) / interval.value)) / NORMAL
            for end in (low, high)
        )
        return interval.value * np.exp(normal * np.where(normal < 0, below, above))

    def _split(
        self, lost: np.ndarray, contention: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        """What is lost, as LOSSES.

        Where contention was not measured, the split of the model is right, or any other is: a curve alone hardly tells
        the losses apart. Else exchange is the rest, but for a fixed cost in strong scaling and the measured jitter.
        """
        known, is_open, uniform = self._known, contention is None, self._random.uniform
        exchanges, most = known.algorithm != "none", lost
        is_strong = self._curve.scaling == STRONG
        possible = np.array(
            [is_open, exchanges, is_strong or not exchanges, is_open or not exchanges]
        )
        anything = self._random.dirichlet(np.ones(len(LOSSES)), DRAWS) * possible
        anything /= anything.sum(axis=1, keepdims=True)
        model = (
            np.array([max(0.0, self._point.parts.get(name, 0.0)) for name in LOSSES])
            * possible
        )
        shares = model + max(self._point.parts.get("not split", 0.0), 1e-9) * anything
        shares /= shares.sum(axis=1, keepdims=True)
        shares = (shares + uniform(size=(DRAWS, 1)) * is_open * (anything - shares)).T
        if exchanges:  # contention is at worst one device at a time
            most = np.minimum(lost, self._inside - 1)
        contention = (
            shares[0] * most if contention is None else np.clip(contention, 0.0, lost)
        )
        rest = lost - contention
        fixed, jitter = (
            shares[2] / shares[1:].sum(axis=0) * rest,
            shares[3] * np.minimum(rest, 1.0),
        )
        if len(known.step_times) >= ENOUGH_STEPS:
            # Devices that are slow at the same time wait less for each other than independent ones.
            longest = float(
                longest_share(known.step_times, np.array([self._devices]))[0]
            )
            jitter = np.minimum(longest * uniform(0.5, 1.0, DRAWS), rest - fixed)
        exchange = np.maximum(rest - fixed - jitter, 0.0) * exchanges
        return dict(
            zip(LOSSES, (lost - fixed - jitter - exchange, exchange, fixed, jitter))
        )

    def _cost(self, links: Sequence[Link], gathered: float = 1.0) -> float | None:
        """The exchange over these links in ideal steps, its gathered bytes times a factor; None if unknown."""
        known = self._known
        if (
            not links
            or known.summed_bytes is None
            or not known.algorithm
            or not known.step_s
        ):
            return None
        ideal_s = known.step_s / (self._devices if self._curve.scaling == STRONG else 1)
        sent = gathered * (known.gathered_bytes or 0.0)
        return (
            exchange_s(known.algorithm, self._devices, known.summed_bytes, sent, links)
            / ideal_s
        )

    def changed(self, changes: Sequence[Change]) -> tuple[np.ndarray, np.ndarray]:
        """(samples in an ideal step of before, efficiency) after changes."""
        parts, samples, ideal = dict(self.parts), 1.0, np.ones(DRAWS)
        for change in changes:
            computing, exchange = (
                np.ones(DRAWS),
                np.full(DRAWS, change.factor if change.kind == EXCHANGE else 1.0),
            )
            if change.kind == JITTER:
                parts["jitter"] = parts["jitter"] * change.factor
            elif change.kind == COMPUTE:
                computing = computing / change.factor
            elif change.kind == BATCH:
                computing, samples = (
                    change.factor + self._open["batch"] * (1 - change.factor),
                    samples * change.factor,
                )
                links = self._known.links or (Link(0.0, 1.0),)
                before, after = self._cost(links), self._cost(links, change.factor)
                exchange = exchange * (
                    after / before if before and after else 1.0
                )  # of more gathered rows
            elif change.link:
                exchange = self._link_factor(change.link)
            ideal, parts["compute"] = ideal * computing, parts["compute"] * computing
            for name in ("contention", "jitter"):
                parts[name] = parts[name] * (1 + self._open[name] * (computing - 1))
            hidden = self._hidden * np.minimum(exchange, 1.0) ** self._open["wire"]
            parts["exchange"] = np.maximum(
                (parts["exchange"] + self._hidden) * exchange - hidden, 0.0
            )
        speed = samples / np.sum([*parts.values()], axis=0)
        return speed, ideal * speed / samples

    def _link_factor(self, new: Link) -> np.ndarray:
        """Of the exchange, by another outermost link: most of it follows the rate, nearly all where bytes are known."""
        now = self._known.links
        new = dataclasses.replace(
            new, alpha_s=new.alpha_s or now[-1].alpha_s, devices=now[-1].devices
        )
        before, after = self._cost(now), self._cost((*now[:-1], new))
        ratio, rest = (
            (after / before, 1 / 40)
            if before and after
            else (now[-1].bytes_per_s / new.bytes_per_s, 1 / 8)
        )
        return 1 + self._open["wire"] ** rest * (self._carried * ratio - 1)

    def assumptions(
        self, changes: Sequence[Change], fixed_share: Interval | None
    ) -> list[Statement]:
        """What a record could have told, and the price of a batch that no rate shows."""
        made = []
        if any(change.kind == BATCH for change in changes):
            made.append(
                Statement(
                    "whatif-batch-unknown" if fixed_share is None else "whatif-batch"
                )
            )
        if self._devices > 1 and not self._known.algorithm:
            made.append(Statement("whatif-no-cause"))
        elif self._devices > 1 and self._known.algorithm != "none":
            if all(point.devices != self._inside for point in self._known.independent):
                made.append(
                    Statement("whatif-no-independent", values={"devices": self._inside})
                )
            made += [Statement("whatif-overlap")] if self._known.hidden is None else []
        return made


def _interval(values: np.ndarray) -> Interval:
    low, value, high = (
        float(number) for number in np.percentile(values, (2.5, 50, 97.5))
    )
    return Interval(value, low, high, "95 % of the draws", (high - low) / 2 / NORMAL)
