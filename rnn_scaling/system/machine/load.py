"""CPU time that other processes and the hypervisor use on the cores of a run.

`sweeps` measure a whole run with `LoadMeter`, and `training.recording` the windows of a
run with `WindowMeter`; `analysis.disturbance` reads the recorded loads.

The field names of `Load` are keys of `environment.load` in records of users' programs
(sweeps/program_trainer.py).
"""

import contextlib
import dataclasses
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

# If other processes use more than this share of a device's cores, they disturb its run.
# The load is reported, and batches in such a window do not count
# (analysis.disturbance).
NOTICEABLE_LOAD = 0.05
# Shortest window of the measured batches whose load is recorded. Shorter windows would
# separate quiet from disturbed batches better. But clock ticks would look like a load
# (`window_seconds`), and reading the load costs time.
WINDOW_S = 0.5
# Windows are so long that NOTICEABLE_LOAD is this many standard deviations of the error
# that clock ticks cause. So clock ticks alone hardly ever look like a disturbance.
_TICK_DEVIATIONS = 4
# Largest share of the time that reading the load may take.
MAX_COST_SHARE = 0.01
# CPUCLOCK_SCHED of Linux: the type of the clock that counts a process's CPU time.
_CPU_CLOCK_TYPE = 2
# Fields of /proc/pid/stat after the name, from 0. Source: man 5 proc.
_PARENT_FIELD = 1
_ENDED_CHILDREN_FIELDS = slice(13, 15)  # cutime and cstime, in ticks


@dataclasses.dataclass(frozen=True)
class CpuTimes:
    """Cumulative times in seconds; only differences of two readings have a meaning."""

    wall: float
    busy: float  # time of the cores that is neither idle nor stolen
    steal: float  # time of the cores that the hypervisor used for other machines
    process: float  # CPU time of this process


@dataclasses.dataclass(frozen=True)
class Load:
    """Shares of the watched cores' time, 0 to 1."""

    others: float  # used by other processes
    steal: float  # used by the hypervisor for other machines
    seconds: float  # length of the measurement
    own: float = 0.0  # used by this process


@dataclasses.dataclass(frozen=True)
class LoadWindow:
    """The load during some measured batches in a row."""

    batches: int
    load: Load


class IdleTimes(NamedTuple):
    """Cumulative seconds in which cores did nothing for the processes of this machine."""

    idle_s: float
    stolen_s: float


def parse_stat(text: str, cores: Sequence[int], ticks_per_s: float) -> IdleTimes | None:
    """Return idle and stolen seconds of `cores` from the text of /proc/stat.

    Busy times are not read. Linux measures idle times by the clock, but counts ticks
    for busy times, whose error within half a second is three times larger.

    Returns:
      None if a core is missing or has no times, as in some containers.

    Source: man 5 proc, "/proc/stat": user nice system idle iowait irq softirq steal
    guest guest_nice.
    """
    names = {f"cpu{core}" for core in cores}
    idle = 0.0
    steal = 0.0
    for line in text.splitlines():
        if not line.startswith("cpu"):
            break
        name, _, numbers = line.partition(" ")
        if name in names:
            ticks = [float(word) for word in numbers.split()[:8]]
            if not any(ticks):
                return None
            names.remove(name)
            idle += ticks[3] + ticks[4]
            steal += ticks[7]
    if names:
        return None
    return IdleTimes(idle / ticks_per_s, steal / ticks_per_s)


def choose_window_seconds(num_cores: int, num_devices: int) -> float:
    """Return the shortest window in which clock ticks do not look like a disturbance.

    The idle time of each core is read in whole ticks of 10 ms. The difference of two
    readings has a standard deviation of 10 ms / sqrt(6). The errors of all cores add
    up, but the load must be noticed even if it is on the cores of a single device.

    Args:
      num_cores: The cores that are watched.
      num_devices: The devices that share them.

    Returns:
      Seconds; `WINDOW_S` for up to two devices of one core.
    """
    if not num_cores:  # the cores are unknown, so no load is measured
        return WINDOW_S
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    error_s = tick_s / math.sqrt(6) * math.sqrt(num_cores)
    cores_per_device = num_cores / max(1, min(num_cores, num_devices))
    noticeable_share = NOTICEABLE_LOAD * cores_per_device
    return max(WINDOW_S, _TICK_DEVIATIONS * error_s / noticeable_share)


def share_of_one_device(share: float, num_cores: int, num_devices: int) -> float:
    """Convert a share of all the run's cores to a share of one device's cores.

    In the worst case, all of the load was on that device.

    Args:
      share: 0 to 1.
      num_cores: The cores that the run was bound to, or 0 if unknown.
      num_devices: The devices of the run.
    """
    return min(1.0, share * max(1, min(num_cores, num_devices)))


# Returns the current times of some cores; None if the system does not report them.
Sample = Callable[[Sequence[int]], CpuTimes | None]


class LoadMeter:
    """Measure the load from the creation of the meter to each reading."""

    def __init__(self, cores: Sequence[int], sample: Sample | None = None) -> None:
        """Read the times at the start.

        Args:
          cores: The cores to watch; nothing is measured without any.
          sample: Reads the times of the cores. With None, the load of all other
            processes counts.
        """
        self._cores = list(cores)
        self._sample = sample or _sample
        self._start = self._sample(self._cores)

    def read(self) -> Load | None:
        """Return the load since creation; None if the system does not report it."""
        return _load_between(self._start, self._sample(self._cores), len(self._cores))


def _load_between(
    start: CpuTimes | None, end: CpuTimes | None, num_cores: int
) -> Load | None:
    """Return the load between two readings; None if the system does not report it."""
    if not num_cores or start is None or end is None or end.wall <= start.wall:
        return None
    seconds = end.wall - start.wall
    capacity = seconds * num_cores
    own_s = end.process - start.process
    others_s = (end.busy - start.busy) - own_s
    # Clock ticks cause errors of 0.01 s, so the share may exceed its range.
    share = min(1.0, max(0.0, others_s / capacity))
    return Load(
        others=share,
        steal=max(0.0, end.steal - start.steal) / capacity,
        seconds=seconds,
        own=own_s / capacity,
    )


class WindowMeter:
    """Measure the load of the measured batches in windows of whole batches.

    The thread that runs the batches calls `end_batch` and `finish`. Another thread may
    call `list_windows`, because readings are only appended while batches run.
    """

    def __init__(
        self,
        cores: Sequence[int],
        num_devices: int,
        sample: Sample | None = None,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Start the first window.

        Args:
          cores: The cores to watch.
          num_devices: The devices that share them.
          sample: Reads the times of the cores. With None, the load of all other
            processes counts.
          clock: Returns seconds.
          cpu_clock: Returns the CPU seconds of this thread. They limit the time that
            reading the load takes; waiting for a core that others use does not count.
        """
        self._cores = list(cores)
        self._sample = sample or _sample
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._window_s = choose_window_seconds(len(self._cores), num_devices)
        # (batches before it, times) of each reading, in their order.
        self._readings: list[tuple[int, CpuTimes | None]] = []
        self._last_s = 0.0
        self._read(0)

    def end_batch(self, num_batches: int) -> bool:
        """End the window if it is long enough.

        Args:
          num_batches: The measured batches so far.

        Returns:
          True if the load was read, which takes some time; the caller may stop its own
          clock meanwhile.
        """
        is_over = self._clock() - self._last_s >= self._window_s
        if is_over and num_batches > self._readings[-1][0]:
            self._read(num_batches)
            return True
        return False

    def finish(self, num_batches: int) -> None:
        """End the last window.

        If less than half a window is left, it joins the previous window.
        """
        if num_batches == self._readings[-1][0]:
            return
        is_short = self._clock() - self._last_s < self._window_s / 2
        if is_short and len(self._readings) > 1:
            self._readings.pop()
        self._read(num_batches)

    def list_windows(self) -> list[LoadWindow] | None:
        """Return the windows so far; None if the system does not report the load."""
        windows = []
        readings = list(self._readings)
        for (first, start), (stop, end) in zip(readings, readings[1:]):
            load = _load_between(start, end, len(self._cores))
            if load is None:
                return None
            windows.append(LoadWindow(stop - first, load))
        return windows or None

    def _read(self, num_batches: int) -> None:
        """Take a reading.

        If reading takes more than MAX_COST_SHARE of a window, windows get longer.
        """
        before_s = self._cpu_clock()
        times = self._sample(self._cores)
        cost_s = self._cpu_clock() - before_s
        self._last_s = self._clock()
        self._window_s = max(self._window_s, cost_s / MAX_COST_SHARE)
        self._readings.append((num_batches, times))


def sample_with_descendants(cores: Sequence[int]) -> CpuTimes | None:
    """Return the current times, in which the children count as part of this process.

    Children are, for example, data loaders. They may be running, or have ended.
    """
    times = _sample(cores)
    if times is None:
        return None
    return dataclasses.replace(times, process=_measure_tree_s())


def _measure_tree_s() -> float:
    """Return the CPU seconds of this process and its descendants, running or ended.

    A clock measures the time of each running process. The times of ended children are
    in the /proc/pid/stat of their parent, in ticks.
    """
    ended_ticks: dict[int, int] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    # Not "[0-9]*/stat": glob raises if a process ends while it looks for the file.
    for folder in Path("/proc").glob("[0-9]*"):
        # A process may end at any moment.
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = (folder / "stat").read_text(errors="replace")
            words = text.rpartition(")")[2].split()
            process_id = int(folder.name)
            ended_ticks[process_id] = sum(map(int, words[_ENDED_CHILDREN_FIELDS]))
            children[int(words[_PARENT_FIELD])].append(process_id)
    total_ticks = 0
    total_s = 0.0
    tree = [os.getpid()]
    for process_id in tree:
        total_ticks += ended_ticks.get(process_id, 0)
        with contextlib.suppress(OSError):
            # MAKE_PROCESS_CPUCLOCK of Linux: the clock of another process.
            clock_id = ~process_id << 3 | _CPU_CLOCK_TYPE
            total_s += time.clock_gettime(clock_id)
        tree += children[process_id]
    return total_s + total_ticks / os.sysconf("SC_CLK_TCK")


def _sample(cores: Sequence[int]) -> CpuTimes | None:
    """Return the current times of cores and of this process without its children."""
    try:
        text = Path("/proc/stat").read_text()
        ticks_per_s = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
    wall = time.monotonic()
    process = time.process_time()
    idle_times = parse_stat(text, cores, ticks_per_s)
    if idle_times is None:
        return None
    busy = wall * len(cores) - idle_times.idle_s - idle_times.stolen_s
    return CpuTimes(wall, busy, idle_times.stolen_s, process)
