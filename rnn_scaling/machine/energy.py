"""Energy counters of the machine: RAPL's of processors and memory through powercap, and NVML's of each GPU.

Sources: Linux, Documentation/power/powercap/powercap.rst; NVML API Reference Guide, "Device Queries".
"""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.machine import nvml
from rnn_scaling.machine.system import read_first_line

MICRO = 1e-6
# Between two looks at counters that wrap around: the smallest ones hold 65 kJ, which 500 W fill in 130 s.
INTERVAL_S = 30.0
NEEDS_ROOT, NO_COUNTER, LOST = "not readable: needs root", "no counter", "stopped answering"


@dataclasses.dataclass
class _Counter:
    """One counter. read: its value, None where it does not answer; unit_j: joules of 1; wraps_at: 0: never."""

    name: str
    read: Callable[[], int | None]
    unit_j: float
    without: str  # why there is no value
    wraps_at: int = 0
    last: int | None = None
    joules: float = 0.0

    def advance(self) -> None:
        """Adds what was used since the last look; a counter that once did not answer is lost."""
        now = self.read()
        if now is not None and self.last is not None:
            used = now - self.last
            self.joules += self.unit_j * (used % self.wraps_at if self.wraps_at else used)
        self.last = now


class EnergyMeter:
    """Counts from `start` to `stop`, once; without counters it does nothing.

    A thread looks at counters that wrap around now and then, so that none does it twice unseen.
    """

    def __init__(
        self,
        gpu_ids: Sequence[str] = (),
        root: str = "/",
        start_nvml: Callable[[], Any | None] = nvml.start,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """gpu_ids: `gpus.gpu_ids`'s names of the GPUs that count."""
        self._clock, self._began, self._seconds = clock, 0.0, 0.0
        self._api = start_nvml() if gpu_ids else None
        found = [*_of_processors(root), *_of_gpus(self._api, gpu_ids)]
        self._counters = [counter for counter in found if counter.read() is not None]
        self._missing = {counter.name: counter.without for counter in found if counter not in self._counters}
        for kind in ("package", *(["GPU"] if gpu_ids else [])):
            if found and not any(counter.name.startswith(kind) for counter in found):
                self._missing[kind] = NO_COUNTER
        self._ended, self._looking = threading.Event(), threading.Lock()

    def start(self) -> None:
        """To be called before the first measured batch."""
        self._look()
        self._began = self._clock()
        if any(counter.wraps_at for counter in self._counters):
            threading.Thread(target=self._keep_looking, name="energy", daemon=True).start()

    def stop(self) -> None:
        """To be called after the last one, and where the run ends before that."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._began:
            self._seconds = self._clock() - self._began
            self._look()
        if self._api is not None:
            nvml.ask(self._api, "nvmlShutdown")

    def read(self) -> dict[str, Any] | None:
        """As the fields of a `records.parts.Energy`; None: the machine has no counters, or `start` was not reached."""
        if not self._seconds or not (self._counters or self._missing):
            return None
        lost = {counter.name: LOST for counter in self._counters if counter.last is None}
        joules = {counter.name: counter.joules for counter in self._counters if counter.name not in lost}
        return {"joules": joules, "seconds": self._seconds, "not_measured": {**self._missing, **lost}}

    def _look(self) -> None:
        with self._looking:
            for counter in self._counters:
                counter.advance()

    def _keep_looking(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self._look()


def _of_processors(root: str) -> Iterator[_Counter]:
    """Packages, and the memory of each where it has a counter of its own: what a package does not count."""
    for zone in sorted(Path(root, "sys/class/powercap").glob("intel-rapl:*")):  # AMD's processors too
        name = read_first_line(f"{zone}/name") or ""
        if name == "dram":
            package = zone.with_name(zone.name.rpartition(":")[0])
            name = f"{read_first_line(f'{package}/name')} dram"
        elif not name.startswith("package"):
            continue
        wraps_at = _number(zone / "max_energy_range_uj") or 0
        yield _Counter(name, functools.partial(_number, zone / "energy_uj"), MICRO, NEEDS_ROOT, wraps_at)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _of_gpus(api: Any | None, ids: Sequence[str]) -> Iterator[_Counter]:
    for gpu in nvml.visible(api, ids) if api else ():
        read = functools.partial(nvml.ask, api, "nvmlDeviceGetTotalEnergyConsumption", gpu.handle)
        yield _Counter(f"GPU {gpu.index}", read, nvml.MILLI, NO_COUNTER)
