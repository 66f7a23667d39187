"""Sample the clocks of the devices during a run, in a thread.

`training.machine_watch` starts a `ClockSampler`, and the record keeps what it reads as
`environment.clocks`. docs/links.md lists these fields. The keys of `ClockSampler.read`,
and of the samples and devices in it, are fields of `records.environment.Clocks` and its
parts, so they never change.
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
from rnn_scaling.system.machine.gpus import list_gpu_ids

INTERVAL_S = 0.5
MAX_SAMPLES = 200  # samples of a record
MAX_CELLS = 3200  # samples x devices of a record
# After this number of equal samples the CPU clock counts as a constant, not as
# measured.
CONSTANT = 20
Sample = list[dict[str, Any]]  # one mapping per device
_CORE = re.compile(
    r"^processor\s*: *(\d+) *$.*?^cpu MHz\s*: *([\d.]+) *$", re.MULTILINE | re.DOTALL
)


@dataclasses.dataclass(frozen=True)
class ClockSource:
    """Where clocks are read.

    Attributes:
      name: The interface of the system.
      devices: The constant facts of each device.
      poll: Returns the current values per device; None if they cannot be read.
      close: Releases the interface.
    """

    name: str
    devices: Sample
    poll: Callable[[], Sample | None]
    close: Callable[[], object] = lambda: None


def open_gpu_source(
    ids: Sequence[str], start: Callable[[], Any | None] = nvml.start
) -> ClockSource | None:
    """Return the clocks of GPUs from NVML; None if it does not answer.

    Args:
      ids: Names from `gpus.list_gpu_ids`.
      start: Returns the module of NVML.
    """
    api = start()
    if api is None:
        return None
    gpus = nvml.list_visible_gpus(api, ids)
    if not gpus:
        api.nvmlShutdown()
        return None
    limits = [nvml.read_limits(api, gpu) for gpu in gpus]
    return ClockSource(
        "NVML",
        limits,
        lambda: [nvml.sample(api, gpu) for gpu in gpus],
        lambda: nvml.call(api, "nvmlShutdown"),
    )


def open_cpu_source(cores: Sequence[int], root: str = "/") -> ClockSource | None:
    """Return the clocks of CPU cores; None if the system does not report them."""
    files = [
        Path(root, f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq")
        for core in cores
    ]

    def read_cpufreq() -> list[float]:
        return [int(file.read_text()) / 1000 for file in files]  # kHz

    def read_cpuinfo() -> list[float]:
        text = Path(root, "proc/cpuinfo").read_text(errors="replace")
        clocks = dict(_CORE.findall(text))
        return [float(clocks[str(core)]) for core in cores]

    def poll(read_mhz: Callable[[], list[float]]) -> Sample | None:
        try:
            return [{"mhz": mhz} for mhz in read_mhz()]
        except (OSError, ValueError, KeyError):
            return None

    for name, read_mhz in (("cpufreq", read_cpufreq), ("/proc/cpuinfo", read_cpuinfo)):
        if cores and poll(read_mhz) is not None:
            devices = [{"core": core} for core in cores]
            return ClockSource(name, devices, functools.partial(poll, read_mhz))
    return None


class _SampleBuffer:
    """The samples of a run of any length, evenly spaced and in bounded memory.

    When it is full, it drops every second sample and keeps only every second later one.
    `ClockSampler` guards it by a lock.

    Attributes:
      samples: The kept samples, each with its time.
      num_added: Number of all samples.
    """

    def __init__(self) -> None:
        self.samples: list[dict[str, Any]] = []
        self.num_added = 0
        self._spacing = 1

    def add(self, at_s: float, devices: Sample) -> None:
        """Add a sample.

        Args:
          at_s: Seconds since the start.
          devices: The values of each device.
        """
        if self.num_added % self._spacing == 0:
            self.samples.append({"at_s": at_s, "devices": devices})
        self.num_added += 1
        if len(self.samples) >= 2 * MAX_SAMPLES:
            del self.samples[1::2]
            self._spacing *= 2

    def is_constant(self) -> bool:
        """Return whether CONSTANT samples of a CPU's clock are all equal."""
        first = self.samples[0]["devices"]
        return (
            self.num_added == CONSTANT
            and "mhz" in first[0]
            and all(sample["devices"] == first for sample in self.samples)
        )


class ClockSampler:
    """Samples clocks in a thread until `stop`. Its errors are recorded and end no run."""

    def __init__(
        self,
        open_source: Callable[[], ClockSource | None],
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Start to sample.

        Args:
          open_source: Returns the source, or None if there are no clocks.
          interval_s: Time between two samples.
          clock: Returns seconds.
        """
        self._open = open_source
        self._interval_s = interval_s
        self._clock = clock
        self._started = clock()
        self._source: ClockSource | None = None
        self._buffer = _SampleBuffer()
        self._cpu_s = 0.0
        self._error = ""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="clocks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        # A driver that does not answer must not delay the end of the run.
        self._thread.join(timeout=2.0)

    def read(self) -> dict[str, Any] | None:
        """Return `environment.clocks` of the record.

        None if nothing was sampled, or the clock of the CPU is a constant.
        """
        with self._lock:
            samples = list(self._buffer.samples)
            num_samples = self._buffer.num_added
            source = self._source
        if source is None or not samples:
            return {"error": self._error} if self._error else None
        if "core" in source.devices[0] and _is_constant(samples):
            return None
        limit = max(2, min(MAX_SAMPLES, MAX_CELLS // len(source.devices)))
        clocks = {
            "source": source.name,
            "interval_s": self._interval_s,
            "taken": num_samples,
            "cpu_s": self._cpu_s,
            "devices": source.devices,
            "samples": _thin_out(samples, limit),
        }
        if self._error:
            clocks["error"] = self._error
        return clocks

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
        except Exception as e:  # Clocks must not end a run.
            self._error = f"{type(e).__name__}: {e}"
        finally:
            if source is not None:
                source.close()

    def _keep(self, sample: Sample) -> bool:
        """Keep a sample in bounded memory; return whether the clock is a constant."""
        at_s = round(self._clock() - self._started, 3)
        with self._lock:
            self._buffer.add(at_s, sample)
            return self._buffer.is_constant()


def start(resolved: Mapping[str, Any], interval_s: float = INTERVAL_S) -> ClockSampler:
    if resolved.get("device_type") == "GPU":
        ids = list_gpu_ids()[: len(resolved.get("devices", []))]
        return ClockSampler(lambda: open_gpu_source(ids), interval_s)
    cores = resolved.get("cpu_affinity", [])
    return ClockSampler(lambda: open_cpu_source(cores), interval_s)


def _is_constant(samples: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether all cores had the same clock in all samples."""
    clocks: set[float] = set()
    for sample in samples:
        clocks.update(device["mhz"] for device in sample["devices"])
    return len(clocks) == 1


def _thin_out(samples: Sequence[Any], limit: int) -> list[Any]:
    """Return at most `limit` (2 or more) evenly spaced samples.

    The first and the last are kept.
    """
    if len(samples) <= limit:
        return list(samples)
    gap = (len(samples) - 1) / (limit - 1)
    return [samples[round(i * gap)] for i in range(limit)]
