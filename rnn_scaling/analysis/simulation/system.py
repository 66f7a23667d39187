"""What is simulated: the step of a device, the exchange, and what disturbs both."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnn_scaling.analysis.prediction.curves import Link


@dataclasses.dataclass(frozen=True)
class Failures:
    """Links of devices that stop for a time."""

    probability: float = 0.0  # that a working link fails in an exchange
    duration_s: float = 1.0
    retry_s: float = 0.2  # after which a message that did not arrive is sent again


@dataclasses.dataclass(frozen=True)
class System:
    """A training run on any number of devices."""

    step_s: float  # mean time that one device computes for a step
    algorithm: str = "ring"  # one of curves.ALGORITHMS
    summed_bytes: float = 0.0  # of a parameter server: that each device sends, and gets back
    gathered_bytes: float = 0.0
    links: tuple[Link, ...] = ()  # innermost first; the last one joins any number of devices
    servers: int = 0  # parameter servers on nodes of their own; 0: the first device is the server
    link_sharing: float = 0.75  # of a server's link that answers: 0 first come first served, 1 all get the same share
    exchange_every: int = 1  # local SGD: steps between two exchanges
    overlap_s: float = 0.0  # by how much an exchange begins before the computation of its step ends
    step_times: tuple[float, ...] = ()  # of one device, in any unit: each step draws one; empty: lognormal
    jitter_cv: float = 0.0  # of lognormal step times: standard deviation over mean
    straggler_share: float = 0.0
    straggler_factor: float = 1.0  # by which a straggler computes longer
    failures: Failures = Failures()
    is_strong: bool = False  # constant total work: n devices compute an n-th of it each
    slowdown: Mapping[int, float] = dataclasses.field(default_factory=lambda: {1: 1.0})  # of computing, by devices
    cores: int | None = None  # that the devices of a machine share
    devices_per_machine: int | None = None  # None: all share one machine
    exchange_slowdown: float = 1.0  # of computing where devices exchange

    def ideal_s(self, devices: int) -> float:
        return self.step_s / (devices if self.is_strong else 1)

    def computing_s(self, devices: int) -> float:
        """Mean time that each of n devices computes, which share the memory and cores of a machine.

        Between measured numbers of devices the slowdown is interpolated. Beyond them it stays, or grows with the
        devices of each core where there are more devices than cores.
        """
        counts = sorted(self.slowdown)
        inside = devices if devices <= counts[-1] else min(devices, self.devices_per_machine or devices)
        factor = float(np.interp(inside, counts, [self.slowdown[count] for count in counts]))
        crowded = max(1.0, inside / max(counts[-1], self.cores)) if self.cores else 1.0
        return self.ideal_s(devices) * factor * crowded * (self.exchange_slowdown if devices > 1 else 1.0)

    def without(self, cause: str) -> "System":
        """The same without a cause of loss: failures, stragglers, jitter or exchange latency."""
        changes: dict[str, dict[str, Any]] = {
            "failures": {"failures": Failures()},
            "stragglers": {"straggler_share": 0.0},
            "jitter": {"jitter_cv": 0.0, "step_times": ()},
            "exchange latency": {"links": tuple(dataclasses.replace(link, alpha_s=0.0) for link in self.links)},
        }
        return dataclasses.replace(self, **changes[cause])
