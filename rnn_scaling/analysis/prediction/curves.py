"""The input and the output of a prediction.

`predicting.predict` turns a Curve into a Prediction.

Letters: n devices; rate in items/s of all devices together; shares of the ideal rate
n x rate(1) are between 0 and 1.

Curves come from runs (`from_rows`) or from tables (`commands.prediction_tables`).
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from rnn_scaling.analysis.confidence import LEVEL, Interval
from rnn_scaling.analysis.interval_kinds import Basis, IntervalKind, Note
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
    # Standard error of log(rate) between runs; None for a single run or a table.
    error: float | None = None
    degrees: float = 0.0  # degrees of freedom of the error
    rounding: float = 0.0  # error of log(rate) due to the printed digits
    decimals: int | None = None  # decimals of the printed number; None if not printed
    is_corrected: bool = False  # whether the rate is corrected for load; see the error

    @property
    def interval(self) -> Interval:
        """The rate with its 95 % interval; without ends if the error is unknown."""
        notes = (Note.CORRECTED,) if self.is_corrected else ()
        kind = IntervalKind(Basis.REPEATS, notes=notes)
        if self.error is None:
            return Interval(self.rate)
        quantile = t_quantile((1 + LEVEL) / 2, max(1.0, self.degrees))
        rate = Interval(self.rate, standard_error=self.error * self.rate)
        margin = quantile * self.error + self.rounding
        return rate.with_margin(margin, kind)


@dataclasses.dataclass(frozen=True)
class PrintedTime:
    """The unit of a table's times, from which the rates of its curve are computed."""

    unit: str  # "s"
    unit_s: float  # seconds of one unit
    is_of_all_work: bool  # whether a rate is 1 / time; otherwise it is devices / time


@dataclasses.dataclass(frozen=True)
class Link:
    """A link on which a message of b bytes takes alpha_s + b / bytes_per_s."""

    alpha_s: float
    # inf: unknown, for example if only the rate between machines was given.
    bytes_per_s: float
    # Devices that these links connect, in one machine or at one switch; None: any
    # number.
    devices: int | None = None

    def message_s(self, num_bytes: float) -> float:
        """Return the seconds of one message."""
        return self.alpha_s + num_bytes / self.bytes_per_s


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """The facts about a curve besides its rates; None, 0 or empty if unknown."""

    step_s: float | None = None  # mean step time of one device
    algorithm: str = ""  # one of ALGORITHMS
    # Bytes of the gradient that all devices sum in a step; 0 without such a gradient.
    summed_bytes: float | None = None
    # Bytes that each device sends to every other one in a step (sparse gradients).
    gathered_bytes: float | None = None
    links: tuple[Link, ...] = ()  # innermost first: in a machine, between machines
    # Parameter servers on their own nodes; 0 if a device is the server.
    servers: int = 0
    # Share of the exchange that overlaps with computation, from traces.
    hidden_share: float | None = None
    # Step times of one device after the warm-up, in seconds; they have the jitter.
    step_times: Sequence[float] = ()
    # Rates of independent replicas, which lose efficiency without any exchange.
    independent: tuple[MeasuredPoint, ...] = ()
    # Cores that the devices of a CPU share; None if devices do not share cores.
    cores: int | None = None
    # The number that the user states; each machine has its own cores and memory.
    devices_per_machine: int | None = None
    # Mean seconds of a step until a device's gradients are computed, by device count.
    gradients_s: Mapping[int, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Curve:
    """One series, measured on several numbers of devices."""

    name: str
    unit: str  # "words"
    scaling: str  # WEAK or STRONG
    points: tuple[
        MeasuredPoint, ...
    ]  # points in ascending order of devices, each number once
    knowledge: Knowledge = Knowledge()
    source: str = ""  # folder, or file and line
    time: PrintedTime | None = None  # None if the source has rates or speedups
    counts_machines: bool = False  # whether its devices are whole machines ("Nodes")

    def to_source_unit(self, devices: int, rate: Interval) -> Interval:
        """Return a rate, or a time if the source prints times."""
        if self.time is None:
            return rate
        work = 1 if self.time.is_of_all_work else devices
        return rate.inverse(work / self.time.unit_s)

    @property
    def decimals(self) -> int | None:
        """The most decimals that the source prints; None if it is not printed."""
        decimals = [point.decimals for point in self.points]
        return max((count for count in decimals if count is not None), default=None)

    def local_devices(self, devices: int) -> int:
        """Return how many of n devices share a machine.

        All share one machine up to the largest measured n, because they did when they
        were measured.
        """
        if devices <= self.points[-1].devices:
            return devices
        return min(devices, self.knowledge.devices_per_machine or devices)

    def core_slowdown(self, devices: int) -> float:
        """Return the factor by which steps get longer if n devices have too few cores."""
        cores = self.knowledge.cores or math.inf
        return max(1.0, self.local_devices(devices) / cores)


@dataclasses.dataclass(frozen=True)
class PredictedPoint:
    """The predicted rate on some number of devices."""

    devices: int
    rate: Interval
    efficiency: Interval | None  # None if the curve has no point on one device
    # Part of PARTS -> lost share of the ideal; their sum is 1 - efficiency.
    parts: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The predicted points of one curve."""

    curve: Curve
    points: tuple[PredictedPoint, ...]
    # Averaged model -> its weight, largest first; the sum is 1.
    weights: Mapping[str, float]
    # Assumptions and limits, such as an unknown topology.
    statements: tuple[Statement, ...] = ()
    # Machines that the predicted devices are spread over; None if it was not assumed.
    machines: int | None = None

    @property
    def is_simulated(self) -> bool:
        """Whether the points were simulated, without models and without noise."""
        return self.weights.keys() == {"simulation"}


class CannotPredict(ValueError):
    """A curve cannot be extrapolated; `statement` has the reason."""

    def __init__(self, statement: Statement) -> None:
        super().__init__(statement.kind)
        self.statement = statement
