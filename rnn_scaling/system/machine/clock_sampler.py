"""Clocks during a run: sampled by a thread, kept in the record, and compared between equal devices.

docs/topology.md lists the fields of a record's `environment.clocks`.
"""

import dataclasses
import functools
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.system.machine import nvml
from rnn_scaling.system.machine.gpus import gpu_ids

INTERVAL_S = 0.5
THINNED = 200  # samples of a record
CELLS = 3200  # samples x devices of a record
CONSTANT = 20  # equal samples of CPU clocks after which the system is taken to tell no real clock
Sample = list[dict[str, Any]]  # one mapping a device
_CORE = re.compile(
    r"^processor\s*: *(\d+) *$.*?^cpu MHz\s*: *([\d.]+) *$", re.MULTILINE | re.DOTALL
)


@dataclasses.dataclass(frozen=True)
class ClockSource:
    name: str
    devices: Sample  # what does not change, one mapping a device
    poll: Callable[[], Sample | None]  # what changes, in their order; None: nothing new
    close: Callable[[], object] = lambda: None


def of_gpus(
    ids: Sequence[str], start: Callable[[], Any | None] = nvml.start
) -> ClockSource | None:
    """Clocks of the GPUs with `gpus.gpu_ids`'s names from NVML; None: it does not answer."""
    api = start()
    if api is None:
        return None
    gpus = nvml.visible(api, ids)
    if not gpus:
        api.nvmlShutdown()
        return None
    limits = [nvml.limits(api, gpu) for gpu in gpus]
    return ClockSource(
        "NVML",
        limits,
        lambda: [nvml.sample(api, gpu) for gpu in gpus],
        lambda: nvml.ask(api, "nvmlShutdown"),
    )


def of_cpus(cores: Sequence[int], root: str = "/") -> ClockSource | None:
    """Clocks of these CPU cores; None: the system does not tell."""
    files = [
        Path(root, f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq")
        for core in cores
    ]

    def cpufreq() -> list[float]:
        return [int(file.read_text()) / 1000 for file in files]  # kHz

    def cpuinfo() -> list[float]:
        clocks = dict(
            _CORE.findall(Path(root, "proc/cpuinfo").read_text(errors="replace"))
        )
        return [float(clocks[str(core)]) for core in cores]

    def poll(read_mhz: Callable[[], list[float]]) -> Sample | None:
        try:
            return [{"mhz": mhz} for mhz in read_mhz()]
        except (OSError, ValueError, KeyError):
            return None

    for name, read_mhz in (("cpufreq", cpufreq), ("/proc/cpuinfo", cpuinfo)):
        if cores and poll(read_mhz) is not None:
            return ClockSource(
                name,
                [{"core": core} for core in cores],
                functools.partial(poll, read_mhz),
            )
    return None


class ClockSampler:
    """Samples in a thread of its own until `stop`. What goes wrong in it is kept in the record and hurts no run."""

    def __init__(
        self,
        open_source: Callable[[], ClockSource | None],
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._open, self._interval_s, self._clock, self._started = (
            open_source,
            interval_s,
            clock,
            clock(),
        )
        self._source: ClockSource | None = None
        self._samples: list[dict[str, Any]] = []
        self._taken = 0
        self._every = 1
        self._cpu_s = 0.0
        self._error = ""
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="clocks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(
            timeout=2.0
        )  # longer only if a driver does not answer: that must not hold up the run's end

    def read(self) -> dict[str, Any] | None:
        """The record's `environment.clocks` so far; None: nothing was sampled, or the clock is a constant."""
        with self._lock:
            samples = list(self._samples)
            source = self._source
            taken = self._taken
        if source is None or not samples:
            return {"error": self._error} if self._error else None
        if (
            "core" in source.devices[0]
            and len({device["mhz"] for s in samples for device in s["devices"]}) == 1
        ):
            return None
        most = max(2, min(THINNED, CELLS // len(source.devices)))
        clocks = {"source": source.name, "interval_s": self._interval_s, "taken": taken}
        clocks |= {
            "cpu_s": self._cpu_s,
            "devices": source.devices,
            "samples": thin(samples, most),
        }
        return {**clocks, "error": self._error} if self._error else clocks

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
            constant = "mhz" in first[0] and all(
                s["devices"] == first for s in self._samples
            )
            return constant and self._taken == CONSTANT


def start(resolved: Mapping[str, Any], interval_s: float = INTERVAL_S) -> ClockSampler:
    if resolved.get("device_type") == "GPU":
        ids = gpu_ids()[: len(resolved.get("devices", []))]
        return ClockSampler(lambda: of_gpus(ids), interval_s)
    cores = resolved.get("cpu_affinity", [])
    return ClockSampler(lambda: of_cpus(cores), interval_s)


def thin(samples: Sequence[Any], most: int) -> list[Any]:
    """At most `most` (2 or more) of the samples, evenly, with the first and the last."""
    if len(samples) <= most:
        return list(samples)
    return [samples[round(i * (len(samples) - 1) / (most - 1))] for i in range(most)]
