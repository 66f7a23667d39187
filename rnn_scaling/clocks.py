"""Clocks while a run goes on: sampled beside it, kept in its record, and what they say of devices that should be equal.

A record's `environment.clocks`:

    source      "NVML", "nvidia-smi", "cpufreq" or "/proc/cpuinfo"
    interval_s  between two samples, as asked for
    taken       samples taken; of many, THINNED at most are kept, evenly
    cpu_s       CPU time of the sampling itself, without that of an nvidia-smi
    devices     what does not change: index, name, max_sm_mhz, max_memory_mhz, power_limit_w of a GPU, core of a CPU
    samples     [{at_s, devices: [{sm_mhz, memory_mhz, reasons, power_w, temperature_c, utilisation} or {mhz}]}], `at_s`
                from the start of the first batch
"""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnn_scaling import clock_sources, machine, nvml
from rnn_scaling.clock_sources import Sample, Source

INTERVAL_S = 0.5
THINNED = 200  # samples of a record
CELLS = 3200  # samples x devices of a record
CONSTANT = 20  # equal samples of CPU clocks after which the system is taken to tell no real clock
TOLERANCE = 0.01  # equal devices may differ by so much
NOTICEABLE = 0.05  # share of the samples under load from which on a GPU that was held down is named
REMEDY = "a step waits for the slowest; `nvidia-smi -q -d CLOCK,POWER` shows how they are set"
# field -> what it is, its unit, and how devices have it
_SAMPLED = {"sm_mhz": ("SM clock", "MHz"), "memory_mhz": ("memory clock", "MHz")}
_LIMITS = {
    "max_sm_mhz": ("highest SM clock", "MHz"),
    "max_memory_mhz": ("highest memory clock", "MHz"),
    "power_limit_w": ("power limit", "W"),
}


@dataclasses.dataclass(frozen=True)
class Differing:
    """GPUs of one name that are not alike.

    Attributes:
      name: of the GPUs.
      what, unit: the quantity, of which `values` has ((value, nvidia-smi's indices), ...), the lowest value first.
      ran: it was sampled; otherwise it is a limit.
    """

    name: str
    what: str
    unit: str
    values: tuple[tuple[float, tuple[int, ...]], ...]
    ran: bool

    @property
    def key(self) -> tuple[Any, ...]:
        """What is the same in two runs of the same GPUs, whatever the exact values."""
        return (self.name, self.what, tuple(devices for _, devices in self.values))

    @property
    def text(self) -> str:
        """The sentence, without its full stop."""
        (low, first), *others = self.values

        def verb(devices: Sequence[int]) -> str:
            return "ran at" if self.ran else "has" if len(devices) == 1 else "have"

        shown = [
            f"{_gpus(devices)} {verb(devices)} {value:g} {self.unit} ({value / low - 1:+.1%})"
            for value, devices in others
        ]
        article = "an" if self.what.startswith("SM") else "a"
        lowest = f"{_gpus(first)} ({self.name}) {verb(first)} {article} {self.what} of {low:g} {self.unit}"
        return f"{lowest}, {', '.join(shown)}: {REMEDY}"


@dataclasses.dataclass(frozen=True)
class HeldDown:
    """A reason that held GPUs' clocks down: nvidia-smi's indices, and the share of each one's samples under load."""

    reason: str
    devices: tuple[int, ...]
    shares: tuple[float, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """What is the same in two runs."""
        return (self.reason,)

    @property
    def text(self) -> str:
        """The sentence, without its full stop."""
        low, high = (f"{100 * share:.0f}" for share in (min(self.shares), max(self.shares)))
        share = high if low == high else f"{low} to {high}"
        were = "was" if len(self.devices) == 1 else "were"
        return f"{_gpus(self.devices)} {were} held down in {share} % of the samples under load: {self.reason}"


class ClockSampler:
    """Samples in a thread of its own until `stop`. What goes wrong in it is kept in the record and hurts no run."""

    def __init__(
        self,
        open_source: Callable[[], Source | None],
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Starts.

        Args:
          open_source: called in the thread, since it may ask other programs.
          interval_s: between two samples.
          clock: returns seconds.
        """
        self._open, self._interval_s, self._clock, self._started = open_source, interval_s, clock, clock()
        self._source: Source | None = None
        self._samples: list[dict[str, Any]] = []
        self._taken, self._every, self._cpu_s, self._error = 0, 1, 0.0, ""
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="clocks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the sampling, with every process that it started."""
        self._ended.set()
        self._thread.join(timeout=2.0)  # longer only if a driver does not answer: that must not hold up the run's end

    def read(self) -> dict[str, Any] | None:
        """The record's `environment.clocks` as of now; None: nothing was sampled, or the clock is a constant."""
        with self._lock:
            samples, source, taken = list(self._samples), self._source, self._taken
        if source is None or not samples:
            return {"error": self._error} if self._error else None
        if "core" in source.devices[0] and len({device["mhz"] for s in samples for device in s["devices"]}) == 1:
            return None
        most = max(2, min(THINNED, CELLS // len(source.devices)))
        found = {
            "source": source.name,
            "interval_s": self._interval_s,
            "taken": taken,
            "cpu_s": self._cpu_s,
            "devices": source.devices,
            "samples": thin(samples, most),
        }
        return {**found, "error": self._error} if self._error else found

    def _work(self) -> None:
        source = None
        try:
            source = self._open()
            if source is None:
                return
            self._source = source
            while not self._ended.is_set():
                sample = source.poll()
                if sample is not None and self._keep(sample):
                    return
                self._cpu_s = time.thread_time()
                self._ended.wait(self._interval_s)
        except Exception as e:  # a run is not lost for its clocks
            self._error = f"{type(e).__name__}: {e}"
        finally:
            if source is not None:
                source.close()

    def _keep(self, sample: Sample) -> bool:
        """Keeps a sample in bounded memory; True: there is nothing to learn from more."""
        at_s = round(self._clock() - self._started, 3)
        with self._lock:
            if self._taken % self._every == 0:
                self._samples.append({"at_s": at_s, "devices": sample})
            self._taken += 1
            if len(self._samples) >= 2 * THINNED:
                del self._samples[1::2]
                self._every *= 2
            first = self._samples[0]["devices"]
            constant = "mhz" in first[0] and all(s["devices"] == first for s in self._samples)
            return constant and self._taken == CONSTANT


def start(resolved: Mapping[str, Any], interval_s: float = INTERVAL_S) -> ClockSampler:
    """Begins to sample the devices of a run.

    Args:
      resolved: the record's part: `device_type`, `devices`, `cpu_affinity`.
      interval_s: between two samples.
    """
    if resolved.get("device_type") == "GPU":
        ids = machine.gpu_ids()[: len(resolved.get("devices", []))]
        return ClockSampler(lambda: clock_sources.of_gpus(ids, interval_s), interval_s)
    cores = resolved.get("cpu_affinity", [])
    return ClockSampler(lambda: clock_sources.of_cpus(cores), interval_s)


def thin(samples: Sequence[Any], most: int) -> list[Any]:
    """At most `most` (2 or more) of the samples, evenly, with the first and the last."""
    if len(samples) <= most:
        return list(samples)
    return [samples[round(i * (len(samples) - 1) / (most - 1))] for i in range(most)]


def differing(clocks: Any) -> list[Differing]:
    """GPUs of the same name whose median clocks under load, highest clocks or power limits differ by over 1 %.

    Args:
      clocks: a record's `environment.clocks`; anything else gives none.
    """
    found = []
    devices = _devices(clocks)
    for name in dict.fromkeys(device["name"] for device in devices):
        alike = [(i, device.get("index", i)) for i, device in enumerate(devices) if device["name"] == name]
        for field, (what, unit) in (_SAMPLED | _LIMITS).items():
            ran = field in _SAMPLED
            pairs = []
            for i, index in alike:
                value = _median(clocks, i, field) if ran else devices[i].get(field)
                if isinstance(value, (int, float)) and value > 0:
                    pairs.append((value, index))
            values = _cluster(pairs)
            if len(values) > 1:
                found.append(Differing(name, what, unit, values, ran))
    return found


def held_down(clocks: Any) -> list[HeldDown]:
    """What held clocks down in at least 5 % of a GPU's samples under load, by reason."""
    found = []
    devices = _devices(clocks)
    for bit, reason in nvml.REASONS.items():
        shares: dict[int, float] = {}
        for i, device in enumerate(devices):
            loaded = _under_load(clocks, i)
            share = sum(bool(_reasons(s) & bit) for s in loaded) / max(1, len(loaded))
            if share >= NOTICEABLE:
                shares[device.get("index", i)] = share
        if shares:
            found.append(HeldDown(reason, tuple(shares), tuple(shares.values())))
    return found


def medians(clocks: Any) -> dict[str, list[float]]:
    """What kind of clock -> its median under load in MHz, one a device that tells it."""
    if not _is_whole(clocks):
        return {}
    fields = {"CPU": "mhz", "SM": "sm_mhz", "memory": "memory_mhz"}
    numbers = range(len(clocks["devices"]))
    found = {kind: [_median(clocks, i, field) for i in numbers] for kind, field in fields.items()}
    told = {kind: [value for value in values if value is not None] for kind, values in found.items()}
    return {kind: values for kind, values in told.items() if values}


def _devices(clocks: Any) -> list[dict[str, Any]]:
    """The GPUs of a record; none for CPUs."""
    return clocks["devices"] if _is_whole(clocks) and all("name" in device for device in clocks["devices"]) else []


def _is_whole(clocks: Any) -> bool:
    """Whether this has the parts that are read: a record may be of an interrupted run, or written by hand."""
    try:
        devices, samples = clocks["devices"], [sample["devices"] for sample in clocks["samples"]]
    except (KeyError, TypeError):
        return False
    whole = isinstance(devices, list) and all(isinstance(s, list) and len(s) == len(devices) for s in samples)
    return bool(samples) and whole and all(isinstance(device, dict) for each in (devices, *samples) for device in each)


def _under_load(clocks: Mapping[str, Any], i: int) -> list[dict[str, Any]]:
    """Samples of device `i` while it was not idle, maybe none: what its clocks do then means nothing."""
    samples = [sample["devices"][i] for sample in clocks["samples"]]
    return [s for s in samples if not _reasons(s) & nvml.IDLE and s.get("utilisation") != 0]


def _reasons(sample: Mapping[str, Any]) -> int:
    reasons = sample.get("reasons")
    return reasons if isinstance(reasons, int) else 0


def _median(clocks: Mapping[str, Any], i: int, field: str) -> float | None:
    values = [value for s in _under_load(clocks, i) if isinstance(value := s.get(field), (int, float))]
    return statistics.median(values) if values else None


def _cluster(pairs: Sequence[tuple[float, int]]) -> tuple[tuple[float, tuple[int, ...]], ...]:
    """(median value, devices) of groups whose values are within TOLERANCE of the group's lowest, low ones first."""
    clusters: list[list[tuple[float, int]]] = []
    for value, index in sorted(pairs):
        if clusters and value <= clusters[-1][0][0] * (1 + TOLERANCE):
            clusters[-1].append((value, index))
        else:
            clusters.append([(value, index)])
    return tuple(
        (statistics.median(value for value, _ in cluster), tuple(sorted(index for _, index in cluster)))
        for cluster in clusters
    )


def _gpus(indices: Sequence[int]) -> str:
    return f"GPU{'' if len(indices) == 1 else 's'} {', '.join(map(str, indices))}"
