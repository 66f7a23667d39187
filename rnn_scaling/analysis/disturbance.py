"""Decide which batches and runs count, by the load of other processes.

One rule decides it, in every command. It reads the recorded load and never the rate, so
it cannot pick what suits an answer.

1. Batches: a batch is disturbed if other processes used more than `NOTICEABLE_LOAD` of a
   device's cores during its window. Disturbed batches are left out while enough quiet
   ones remain (`select_counted_batches`).
2. Runs: a run with too few quiet batches, or without recorded windows, is disturbed if
   others used more than that during the whole run (`is_disturbed`). Disturbed runs are
   left out while enough quiet ones remain (`select_quiet`).
3. If disturbed runs must count, their rates are corrected for the load
   (`load_correction`), if the records have what this needs. Otherwise all batches of the
   runs that are averaged or compared with them count as well, so that all are measured
   in the same way (`has_disturbed_run`).

docs/statistics.md explains the rule, with simulated error rates. Devices that share cores
slow each other in the same way (`count_shared_cores`).
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from rnn_scaling.records.environment import LoadWindows
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.machine.load import NOTICEABLE_LOAD, share_of_one_device

# A rate over five batches after the warm-up errs by about 1 %, over two by much more.
_MIN_QUIET_BATCHES = 5
# If most windows exceed the limit, those that do not are probably just below it, so that
# their batches are slowed as well.
_MIN_QUIET_BATCHES_SHARE = 1 / 3
# An interval over runs needs two of them.
_MIN_QUIET = 2
# Fewer quiet runs than a third of all have a wider interval than all runs together.
_MIN_QUIET_SHARE = 1 / 3

Candidate = TypeVar("Candidate")


@dataclasses.dataclass(frozen=True)
class WatchedCores:
    """The load of others on the cores of one process.

    others, steal: Shares of these cores (0 to 1) that other processes and the hypervisor
      used.
    """

    num_cores: int
    others: float
    steal: float = 0.0
    windows: LoadWindows | None = None

    @property
    def total(self) -> float:
        """Share that others used in any way."""
        return self.others + self.steal


def is_disturbed(record: RunRecord) -> bool:
    """Return whether other processes slowed a run, by its recorded load only.

    Args:
      record: The run; one without a recorded load counts as quiet.

    Returns:
      True if other processes or the hypervisor used more than `NOTICEABLE_LOAD` of a
      device's cores during the run, on any worker that reports its load. A run with
      enough quiet batches is not disturbed, because only these count.
    """
    if has_counted_windows(record):
        # Enough batches are quiet.
        return False
    return any(
        share > 0 for share, _ in list_noticed_load_shares(record, all_batches=True)
    )


def has_disturbed_run(records: Iterable[RunRecord]) -> bool:
    """Return whether a run is disturbed, so that all batches of these runs count.

    Args:
      records: Runs that are averaged or compared.
    """
    return any(map(is_disturbed, records))


def select_counted_batches(
    record: RunRecord, all_batches: bool = False
) -> tuple[Sequence[float], Sequence[int]]:
    """Return (seconds, items) of the measured batches that count.

    Args:
      record: The run.
      all_batches: Whether disturbed batches count as well.
    """
    first = record.batches.warmup
    if all_batches or not any(_find_disturbed_batches(record) or ()):
        return record.batches.seconds[first:], record.batches.items[first:]
    indices = select_counted_indices(record)
    seconds = record.batches.seconds
    items = record.batches.items
    return [seconds[i] for i in indices], [items[i] for i in indices]


def select_counted_indices(record: RunRecord) -> Sequence[int]:
    """Return which batches count, by their numbers from the first one of the run.

    Returns:
      The quiet measured batches, if at least `_MIN_QUIET_BATCHES` of them and at
      least `_MIN_QUIET_BATCHES_SHARE` of all are quiet; otherwise, or if the load per
      window is unknown, all measured batches.
    """
    first = record.batches.warmup
    measured_indices = range(first, len(record.batches.seconds))
    disturbed = _find_disturbed_batches(record)
    if disturbed is None:
        return measured_indices
    return [i for i in measured_indices if not disturbed[i - first]]


def has_counted_windows(record: RunRecord) -> bool:
    """Return whether the load per window decides which batches count."""
    return _find_disturbed_batches(record) is not None


def count_batches_left_out(groups: Iterable[Sequence[RunRecord]]) -> dict[str, int]:
    """Return how many batches of runs that count do not count themselves.

    Args:
      groups: Runs that count, in groups that are averaged or compared.

    Returns:
      The disturbed "batches", the "measured" batches of the "runs" that have any; empty
      if no run has any.
    """
    batches = 0
    num_measured = 0
    runs = 0
    counted_runs: list[RunRecord] = []
    for group in groups:
        if not has_disturbed_run(group):
            counted_runs += group
    for record in counted_runs:
        disturbed = _find_disturbed_batches(record)
        if disturbed and any(disturbed):
            batches += sum(disturbed)
            num_measured += len(disturbed)
            runs += 1
    if not runs:
        return {}
    return {"batches": batches, "measured": num_measured, "runs": runs}


def _find_disturbed_batches(record: RunRecord) -> list[bool] | None:
    """Return for each measured batch whether it was disturbed at any worker.

    Returns:
      None if all batches count: too few are quiet, or the load of some is unknown.
    """
    num_measured = len(record.batches.seconds) - record.batches.warmup
    processes = _list_watched_processes(record)
    if num_measured <= 0 or not processes:
        return None
    disturbed = [False] * num_measured
    for process in processes:
        windows = process.windows
        if windows is None or sum(windows.batches) != num_measured:
            return None
        first = 0
        disturbed_windows = _find_disturbed_windows(record, process, windows)
        for num_batches, is_window_disturbed in zip(windows.batches, disturbed_windows):
            if is_window_disturbed:
                disturbed[first : first + num_batches] = [True] * num_batches
            first += num_batches
    num_quiet = disturbed.count(False)
    is_enough = num_quiet == num_measured or num_quiet >= max(
        _MIN_QUIET_BATCHES, _MIN_QUIET_BATCHES_SHARE * num_measured
    )
    return disturbed if is_enough else None


def _find_disturbed_windows(
    record: RunRecord, process: WatchedCores, windows: LoadWindows
) -> list[bool]:
    """Return for each window of a process whether it was disturbed."""
    cores = process.num_cores
    devices = record.options["num_devices"]
    return [
        share_of_one_device(others + steal, cores, devices) > NOTICEABLE_LOAD
        for others, steal in zip(windows.others, windows.steal)
    ]


def _list_watched_processes(record: RunRecord) -> list[WatchedCores]:
    """Return the load of each process that reports it, during the whole run."""
    processes = []
    if watched := record.environment.load:
        processes.append(
            WatchedCores(
                len(bound_cores(record)),
                watched.others,
                watched.steal,
                watched.windows,
            )
        )
    ranks = record.workers.workers if record.workers else ()
    for rank in ranks:
        if rank.load_others is not None:
            num_cores = len(rank.cpu_affinity or ())
            processes.append(
                WatchedCores(num_cores, rank.load_others, windows=rank.load_windows)
            )
    return processes


def count_watched_cores(
    record: RunRecord, all_batches: bool = False
) -> list[WatchedCores]:
    """Return the load of each process that reports it, while the batches ran that count.

    If load per window is unknown, or too few batches are quiet, it is the load during
    the whole run.

    Args:
      record: The run.
      all_batches: Whether disturbed batches count as well.
    """
    processes = _list_watched_processes(record)
    if all_batches or _find_disturbed_batches(record) is None:
        return processes
    return [_average_quiet_windows(record, process) for process in processes]


def _average_quiet_windows(record: RunRecord, process: WatchedCores) -> WatchedCores:
    """Return the mean load of the windows that were not disturbed at this process."""
    windows = process.windows
    assert windows is not None
    total_s = 0.0
    others_s = 0.0
    steal_s = 0.0
    disturbed_windows = _find_disturbed_windows(record, process, windows)
    for number, seconds in enumerate(windows.seconds):
        if not disturbed_windows[number]:
            total_s += seconds
            others_s += seconds * windows.others[number]
            steal_s += seconds * windows.steal[number]
    return dataclasses.replace(
        process, others=others_s / total_s, steal=steal_s / total_s
    )


def select_quiet(
    candidates: Sequence[Candidate], must_leave_out: Callable[[Candidate], bool]
) -> tuple[Candidate, ...]:
    """Return the candidates that count: the quiet ones, or all if these are too few.

    Args:
      candidates: Repeats of one configuration: runs, files of runs or pairs of runs.
      must_leave_out: Whether a candidate is disturbed.

    Returns:
      The quiet candidates, in their order, if at least `_MIN_QUIET` of them and
      at least `_MIN_QUIET_SHARE` of all are quiet; otherwise all candidates.
    """
    quiet = tuple(
        [candidate for candidate in candidates if not must_leave_out(candidate)]
    )
    fewest = max(_MIN_QUIET, _MIN_QUIET_SHARE * len(candidates))
    return quiet if len(quiet) >= fewest else tuple(candidates)


def load(record: RunRecord) -> float:
    """Return the noticed load of others as a share of the run's cores.

    Returns:
      0 to 1, of the most disturbed worker; 0.0 if the load was not noticeable.
    """
    return max(share for share, _ in list_noticed_load_shares(record))


def convert_to_device_share(record: RunRecord, share: float) -> float:
    """Return a share of the run's cores as a share of one device's cores.

    All of the load may have been on one device, and a step waits for its slowest one.
    """
    return share_of_one_device(
        share, len(bound_cores(record)), record.options["num_devices"]
    )


def compute_counted_rate(record: RunRecord, all_batches: bool = False) -> float:
    """Return items/s of a run that measured something, over the batches that count.

    A log without batches has a printed rate.

    Args:
      record: The run.
      all_batches: Whether disturbed batches count as well.
    """
    if record.throughput and not record.batches.seconds:
        return record.throughput.items_per_second
    seconds, items = select_counted_batches(record, all_batches)
    return math.fsum(items) / math.fsum(seconds)


def list_noticed_load_shares(
    record: RunRecord, all_batches: bool = False
) -> Iterator[tuple[float, int]]:
    """Yield (noticed share, cores) of the recording process and of each worker."""
    devices = record.options["num_devices"]
    for share, cores in _list_recorded_load_shares(record, all_batches):
        is_noticed = share_of_one_device(share, cores, devices) > NOTICEABLE_LOAD
        yield (share if is_noticed else 0.0, cores)


def _list_recorded_load_shares(
    record: RunRecord, all_batches: bool = False
) -> list[tuple[float, int]]:
    """Return (share, cores) of each process; (0, its cores) if none reports its load."""
    processes = count_watched_cores(record, all_batches)
    if not processes:
        return [(0.0, len(bound_cores(record)))]
    return [(process.total, process.num_cores) for process in processes]


def compute_device_load(record: RunRecord, all_batches: bool = False) -> float | None:
    """Return the load of other programs as a share of one device's cores.

    The load is returned even if it is below the threshold of a disturbance.

    Args:
      record: The run.
      all_batches: Whether disturbed batches count as well.

    Returns:
      0 to 1, of the most disturbed process; None if none reports its load.
    """
    devices = record.options["num_devices"]
    loads = [
        share_of_one_device(process.total, process.num_cores, devices)
        for process in count_watched_cores(record, all_batches)
    ]
    return max(loads, default=None)


def bound_cores(record: RunRecord) -> tuple[int, ...]:
    """Return the cores that the recording process was bound to; empty if unknown."""
    return record.resolved.cpu_affinity or ()


def count_shared_cores(records: Sequence[RunRecord]) -> int:
    """Return how many cores the devices of these runs shared.

    Args:
      records: The good runs of one configuration.

    Returns:
      The number of cores; 0 if each device had its own.
    """
    num_cores = []
    for record in records:
        if not record.resolved.oversubscribed:
            continue
        workers = record.workers
        cores: set[tuple[str, int]] = set()
        if workers and workers.hosts:
            for rank in workers.workers:
                machine = workers.machine(rank)
                cores.update((machine, core) for core in rank.cpu_affinity or ())
        num_cores.append(len(cores) or len(bound_cores(record)))
    return max(num_cores, default=0)
