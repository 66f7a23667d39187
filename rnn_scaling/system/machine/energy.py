"""Energy counters of the machine: RAPL (through powercap) for processors and memory, NVML for each GPU.

Sources: Linux, Documentation/power/powercap/powercap.rst; NVML API Reference Guide, "Device Queries".
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

# Time between two reads of counters that overflow: the smallest hold 65 kJ, which 500 W fill in 130 s.
INTERVAL_S = 30.0
NEEDS_ROOT = "not readable: needs root"
NO_COUNTER = "no counter"
LOST = "stopped responding"


@dataclasses.dataclass
class _Counter:
    name: str
    read: Callable[[], int | None]
    unit_j: float  # joules per count
    missing: str  # why it has no value
    wraps_at: int = 0  # 0: never
    last: int | None = None
    joules: float = 0.0
    answers: bool = True

    def look(self) -> None:
        """Adds the energy since the last read. A counter that fails once is not read again."""
        now = self.read() if self.answers else None
        if now is not None and self.last is not None:
            used = now - self.last
            self.joules += self.unit_j * (
                used % self.wraps_at if self.wraps_at else used
            )
        elif self.last is not None:
            self.missing = LOST
        self.last = now
        self.answers = now is not None


class EnergyMeter:
    """Counts from `start` to `stop`. A thread reads the counters often enough to see every overflow."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._began = 0.0
        self._seconds = 0.0
        self._api: Any | None = None
        self._counters: list[_Counter] = []
        self._ended, self._looking = threading.Event(), threading.Lock()

    def find(self, gpu_ids: Sequence[str]) -> None:
        """Finds the counters. gpu_ids: names from `gpus.gpu_ids`; without a call, nothing is measured."""
        self._api = nvml.start() if gpu_ids else None
        self._counters = [*_of_processors(self._root)] or [
            _Counter("package", lambda: None, 0.0, NO_COUNTER)
        ]
        if gpu_ids:
            self._counters += [*_of_gpus(self._api, gpu_ids)] or [
                _Counter("GPU", lambda: None, 0.0, NO_COUNTER)
            ]

    def start(self) -> None:
        """Call it before the first measured batch."""
        self._look()
        self._began = time.perf_counter()
        if any(counter.wraps_at for counter in self._counters):
            threading.Thread(
                target=self._keep_looking, name="energy", daemon=True
            ).start()

    def stop(self) -> None:
        """Call it after the last batch, also if the run ends early."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._began:
            self._seconds = time.perf_counter() - self._began
            self._look()
        if self._api is not None:
            nvml.ask(self._api, "nvmlShutdown")

    def read(self) -> dict[str, Any] | None:
        """The fields of a `records.parts.Energy`; None without counters, or if `start` was not called."""
        if not self._seconds or not any(
            counter.answers or counter.missing != NO_COUNTER
            for counter in self._counters
        ):
            return None
        missing = {
            counter.name: counter.missing
            for counter in self._counters
            if not counter.answers
        }
        joules = {
            counter.name: counter.joules
            for counter in self._counters
            if counter.answers
        }
        return {"joules": joules, "seconds": self._seconds, "not_measured": missing}

    def _look(self) -> None:
        with self._looking:
            for counter in self._counters:
                counter.look()

    def _keep_looking(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self._look()


def _of_processors(root: str) -> Iterator[_Counter]:
    """Packages, and the memory of each that has a separate counter. The package does not include it."""
    for zone in sorted(
        Path(root, "sys/class/powercap").glob("intel-rapl:*")
    ):  # AMD's processors too
        name = read_first_line(f"{zone}/name") or ""
        if name == "dram":
            package = zone.with_name(zone.name.rpartition(":")[0])
            name = f"{read_first_line(f'{package}/name')} dram"
        if name.startswith("package"):
            wraps_at = _number(zone / "max_energy_range_uj") or 0
            yield _Counter(
                name,
                functools.partial(_number, zone / "energy_uj"),
                1e-6,
                NEEDS_ROOT,
                wraps_at,
            )


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _of_gpus(api: Any | None, ids: Sequence[str]) -> Iterator[_Counter]:
    for gpu in nvml.visible(api, ids) if api else ():
        read = functools.partial(
            nvml.ask, api, "nvmlDeviceGetTotalEnergyConsumption", gpu.handle
        )
        yield _Counter(f"GPU {gpu.index}", read, nvml.MILLI, NO_COUNTER)
