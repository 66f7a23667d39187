"""Load from others while a run is measured: CPU time of its cores that neither it nor idling used."""

import contextlib
import dataclasses
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

NOTICEABLE = 0.05  # share of a device's cores from which on a run should say that others were busy


@dataclasses.dataclass(frozen=True)
class CpuTimes:
    """Seconds since boot or start: of the watched cores, and of this process."""

    wall: float
    busy: float
    steal: float
    process: float


@dataclasses.dataclass(frozen=True)
class Load:
    """Shares of the watched cores' time, 0 to 1."""

    others: float  # used by other processes
    steal: float  # taken by the hypervisor for other machines
    seconds: float  # that were watched


def parse_stat(
    text: str, cores: Sequence[int], ticks_per_s: float
) -> tuple[float, float]:
    """(busy seconds, stolen seconds) of `cores` from the text of /proc/stat.

    Source: man 5 proc, "/proc/stat": user nice system idle iowait irq softirq steal guest guest_nice.
    """
    wanted = {f"cpu{core}" for core in cores}
    busy = steal = 0.0
    for line in text.splitlines():
        words = line.split()
        if words and words[0] in wanted:
            user, nice, system, _idle, _iowait, irq, softirq, stolen = (
                float(word) for word in words[1:9]
            )
            busy += user + nice + system + irq + softirq
            steal += stolen
    return busy / ticks_per_s, steal / ticks_per_s


def of_one_device(share: float, num_cores: int, num_devices: int) -> float:
    """`share` of a run's cores (0 to 1) as a share of one device's cores: all the load may have been on that device.

    num_cores: that the run was bound to; 0 where that is not known.
    """
    return min(1.0, share * max(1, min(num_cores, num_devices)))


Sample = Callable[[Sequence[int]], CpuTimes | None]
"""Of cores -> the times now; None where the system does not tell."""


class LoadMeter:
    def __init__(self, cores: Sequence[int], sample: Sample | None = None) -> None:
        self._cores = list(cores)
        self._sample = sample or _sample
        self._start = self._sample(self._cores)

    def read(self) -> Load | None:
        """The load since creation; None where the system does not tell."""
        now = self._sample(self._cores)
        if (
            not self._cores
            or self._start is None
            or now is None
            or now.wall <= self._start.wall
        ):
            return None
        seconds = now.wall - self._start.wall
        capacity = seconds * len(self._cores)
        others = (now.busy - self._start.busy) - (now.process - self._start.process)
        share = min(
            1.0, max(0.0, others / capacity)
        )  # clock ticks make it a hundredth of a second off
        return Load(
            others=share,
            steal=max(0.0, now.steal - self._start.steal) / capacity,
            seconds=seconds,
        )


def sample_with_descendants(cores: Sequence[int]) -> CpuTimes | None:
    """The times now. Those of this process include its child processes, such as data loaders, running or ended."""
    now = _sample(cores)
    return now and dataclasses.replace(
        now, process=_tree_ticks() / os.sysconf("SC_CLK_TCK")
    )


def _tree_ticks() -> int:
    """CPU time of this process and those below it, each with its children that have ended.

    Source: man 5 proc, "/proc/pid/stat": behind the name state, ppid, ...; the 14th to 17th are utime to cstime.
    """
    ticks: dict[int, int] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(
            OSError, ValueError, IndexError
        ):  # it may end at any moment
            words = path.read_text(errors="replace").rpartition(")")[2].split()
            number = int(path.parent.name)
            ticks[number] = sum(map(int, words[11:15]))
            children[int(words[1])].append(number)
    total = 0
    below = [os.getpid()]
    while below:
        number = below.pop()
        total += ticks.get(number, 0)
        below += children[number]
    return total


def _sample(cores: Sequence[int]) -> CpuTimes | None:
    try:
        text = Path("/proc/stat").read_text()
        ticks = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
    busy, steal = parse_stat(text, cores, ticks)
    times = os.times()
    return CpuTimes(time.monotonic(), busy, steal, times.user + times.system)
