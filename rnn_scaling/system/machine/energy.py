"""Energy counters of the machine: RAPL (through powercap) and NVML.

Sources: Linux, Documentation/power/powercap/powercap.rst; NVML API Reference Guide,
"Device Queries".

The keys of `EnergyMeter.read` are fields of `records.parts.Energy`.

RAPL counts processors and memory, NVML each GPU. `training.recording` starts the meter
after the warm-up.
"""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.system.machine import nvml
from rnn_scaling.system.machine.system import read_first_line

# Time between two reads of counters that overflow. The smallest counters overflow after
# 65 kJ: 130 s at 500 W.
INTERVAL_S = 30.0
NEEDS_ROOT = "not readable: needs root"
NO_COUNTER = "no counter"
LOST = "stopped responding"


@dataclasses.dataclass
class _Counter:
    name: str
    read: Callable[[], int | None]
    unit_j: float  # joules per count
    missing: str  # the reason if it has no value
    wraps_at: int = 0  # overflows at this count; 0 if never
    last: int | None = None
    joules: float = 0.0
    answers: bool = True

    def look(self) -> None:
        """Add the energy since the last read. A counter that fails once is not read again."""
        now = self.read() if self.answers else None
        if now is not None and self.last is not None:
            used = now - self.last
            if self.wraps_at:
                used %= self.wraps_at
            self.joules += self.unit_j * used
        elif self.last is not None:
            self.missing = LOST
        self.last = now
        self.answers = now is not None


class EnergyMeter:
    """Measures energy from `start` to `stop`. A thread reads often enough for overflows."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._began = 0.0
        self._seconds = 0.0
        self._api: Any | None = None
        self._counters: list[_Counter] = []
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def find(self, gpu_ids: Sequence[str]) -> None:
        """Find the counters; without this call nothing is measured.

        Args:
          gpu_ids: Names from `gpus.list_gpu_ids`.
        """
        self._api = nvml.start() if gpu_ids else None
        self._counters = [*_open_processor_counters(self._root)] or [
            _Counter("package", lambda: None, 0.0, NO_COUNTER)
        ]
        if gpu_ids:
            self._counters += [*_open_gpu_counters(self._api, gpu_ids)] or [
                _Counter("GPU", lambda: None, 0.0, NO_COUNTER)
            ]

    def start(self) -> None:
        """Begin to measure, before the first measured batch."""
        self._read_counters()
        self._began = time.perf_counter()
        if any(counter.wraps_at for counter in self._counters):
            threading.Thread(
                target=self._read_repeatedly, name="energy", daemon=True
            ).start()

    def stop(self) -> None:
        """Stop measuring, after the last batch or when the run fails."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._began:
            self._seconds = time.perf_counter() - self._began
            self._read_counters()
        if self._api is not None:
            nvml.call(self._api, "nvmlShutdown")

    def read(self) -> dict[str, Any] | None:
        """Return the fields of a `records.parts.Energy`.

        None without counters, or if `start` was not called.
        """
        if not self._seconds or not any(
            counter.answers or counter.missing != NO_COUNTER
            for counter in self._counters
        ):
            return None
        joules = {}
        missing = {}
        for counter in self._counters:
            if counter.answers:
                joules[counter.name] = counter.joules
            else:
                missing[counter.name] = counter.missing
        return {"joules": joules, "seconds": self._seconds, "not_measured": missing}

    def _read_counters(self) -> None:
        with self._lock:
            for counter in self._counters:
                counter.look()

    def _read_repeatedly(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self._read_counters()


def _open_processor_counters(root: str) -> Iterator[_Counter]:
    """Yield the counters of packages and of their memory, which packages exclude."""
    # Processors of AMD have the same names.
    for zone in sorted(Path(root, "sys/class/powercap").glob("intel-rapl:*")):
        name = read_first_line(f"{zone}/name") or ""
        if name == "dram":
            package = zone.with_name(zone.name.rpartition(":")[0])
            package_name = read_first_line(f"{package}/name")
            name = f"{package_name} dram"
        if name.startswith("package"):
            wraps_at = _number(zone / "max_energy_range_uj") or 0
            read = functools.partial(_number, zone / "energy_uj")
            yield _Counter(name, read, 1e-6, NEEDS_ROOT, wraps_at)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _open_gpu_counters(api: Any | None, ids: Sequence[str]) -> Iterator[_Counter]:
    for gpu in nvml.list_visible_gpus(api, ids) if api else ():
        read = functools.partial(
            nvml.call, api, "nvmlDeviceGetTotalEnergyConsumption", gpu.handle
        )
        yield _Counter(f"GPU {gpu.index}", read, nvml.MILLI, NO_COUNTER)
