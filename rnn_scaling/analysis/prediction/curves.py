"""What a prediction is made from, and what it says. `predicting.predict` turns a Curve into a Prediction.

Letters: n devices; rate in items/s of all devices together; shares of the ideal rate n x rate(1) are between 0 and 1.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from rnn_scaling.analysis.confidence import LEVEL, Interval
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.student import t_quantile

# Constant work per device, or constant total work.
WEAK = "weak"
STRONG = "strong"
# Parts of the lost efficiency, in the order of tables and pictures.
PARTS = ("contention", "exchange", "fixed cost", "jitter", "not split")
ALGORITHMS = ("ring", "tree", "hierarchical", "parameter_server", "none")


@dataclasses.dataclass(frozen=True)
class MeasuredPoint:
    """The rate on some number of devices."""

    devices: int
    rate: float
    error: float | None = (
        None  # standard error of log(rate) between processes; None: unknown (one run, or a table)
    )
    degrees: float = 0.0  # of freedom of that error
    rounding: float = (
        0.0  # by how much log(rate) may be off for the digits that were printed
    )
    decimals: int | None = None  # of the printed number; None: it is not printed

    @property
    def interval(self) -> Interval:
        """The rate with the 95 % interval of its error; without ends where that is not known."""
        if self.error is None:
            return Interval(self.rate)
        margin = (
            t_quantile((1 + LEVEL) / 2, max(1.0, self.degrees)) * self.error
            + self.rounding
        )
        return Interval(self.rate, standard_error=self.error * self.rate).with_margin(
            margin, "repeats"
        )


@dataclasses.dataclass(frozen=True)
class PrintedTime:
    """How a table prints times, of which the rates of its curve are made."""

    unit: str  # "s"
    unit_s: float  # seconds of one unit
    is_of_all_work: bool  # a rate is 1 / time; else it is devices / time


@dataclasses.dataclass(frozen=True)
class Link:
    """A message of b bytes takes alpha_s + b / bytes_per_s."""

    alpha_s: float
    bytes_per_s: float  # infinite: not known, as where it is stated only where the exchange leaves a machine
    devices: int | None = (
        None  # that such links connect, in one machine or at one switch; None: any number
    )

    def message_s(self, num_bytes: float) -> float:
        return self.alpha_s + num_bytes / self.bytes_per_s


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """What is known besides the rates. None, 0 or empty: unknown."""

    step_s: float | None = None  # of one device, mean
    algorithm: str = ""  # one of ALGORITHMS
    summed_bytes: float | None = (
        None  # of the gradient that all devices sum in a step; 0: none
    )
    gathered_bytes: float | None = (
        None  # that each device sends to every other one in a step (sparse gradients)
    )
    links: tuple[Link, ...] = ()  # innermost first: in a machine, between machines
    servers: int = (
        0  # parameter servers on nodes of their own; 0: a device is the server
    )
    hidden: float | None = (
        None  # share of the exchange that overlaps with computation, from traces
    )
    step_times: Sequence[
        float
    ] = ()  # of one device after the warm-up, in s: the jitter
    independent: tuple[
        MeasuredPoint, ...
    ] = ()  # rates of independent replicas: what is lost without any exchange
    cores: int | None = (
        None  # that devices of a CPU share; None: devices do not share cores
    )
    devices_per_machine: int | None = (
        None  # as stated; each machine has cores and memory of its own
    )
    # Mean seconds of a step until a device's gradients are computed, by the number of devices that exchange them.
    gradients_s: Mapping[int, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Curve:
    """One series, measured on several numbers of devices."""

    name: str
    unit: str  # "words"
    scaling: str  # WEAK or STRONG
    points: tuple[MeasuredPoint, ...]  # in rising order of devices, each number once
    knowledge: Knowledge = Knowledge()
    source: str = ""  # folder, or file and line
    time: PrintedTime | None = None  # None if the source has rates or speedups
    counts_machines: bool = False  # its devices are whole machines, as in "Nodes"

    def shown(self, devices: int, rate: Interval) -> Interval:
        """Return a rate as the source prints it: as a time if it prints times."""
        if self.time is None:
            return rate
        work = 1 if self.time.is_of_all_work else devices
        return rate.inverse(work / self.time.unit_s)

    @property
    def decimals(self) -> int | None:
        """The most decimals that the source prints; None if it is not printed."""
        known = [point.decimals for point in self.points if point.decimals is not None]
        return max(known, default=None)

    def sharing(self, devices: int) -> int:
        """How many of n devices share a machine; up to the most measured ones, as when they were measured."""
        size = (
            devices
            if devices <= self.points[-1].devices
            else self.knowledge.devices_per_machine
        )
        return min(devices, size or devices)

    def crowding(self, devices: int) -> float:
        """How many times as long a step takes because more of n devices than there are cores share them."""
        return max(1.0, self.sharing(devices) / (self.knowledge.cores or math.inf))


@dataclasses.dataclass(frozen=True)
class PredictedPoint:
    devices: int
    rate: Interval
    efficiency: Interval | None  # None if the curve has no point on one device
    parts: Mapping[
        str, float
    ]  # share of the ideal that each of PARTS loses; they add up to 1 - efficiency


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The predicted points of one curve."""

    curve: Curve
    points: tuple[PredictedPoint, ...]
    weights: Mapping[
        str, float
    ]  # of each of the averaged models, largest first; they add up to 1
    statements: tuple[
        Statement, ...
    ] = ()  # assumptions and limits: unknown topology, growth that stops

    @property
    def is_simulated(self) -> bool:
        """No model was averaged, and no noise was assumed."""
        return self.weights.keys() == {"simulation"}


class CannotPredict(ValueError):
    """A curve is not extrapolated. `statement` says why."""

    def __init__(self, statement: Statement) -> None:
        super().__init__(statement.kind)
        self.statement = statement
