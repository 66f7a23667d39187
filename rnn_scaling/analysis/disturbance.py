"""What slowed runs beside their configuration: load of others, too few cores.

One rule decides which runs count, in every command: a run is disturbed if its record
shows that other processes used more than `NOTICEABLE` of a device's cores
(`is_disturbed`), and disturbed runs are left out while enough quiet ones remain
(`select_quiet`). The rule reads the recorded load and never the rate, so it cannot pick
the runs that suit an answer. docs/statistics.md explains it, with simulated error rates.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TypeVar

from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.machine.load import NOTICEABLE, of_one_device

# An interval over runs needs two of them.
FEWEST_QUIET = 2
# Fewer quiet runs than a third of all have a wider interval than all runs together.
LEAST_QUIET_SHARE = 1 / 3
# Linux divides a core evenly, so a process that shares one takes at most about half.
MOST_OF_A_SHARED_CORE = 0.5

Candidate = TypeVar("Candidate")


def is_disturbed(record: RunRecord) -> bool:
    """Return whether other processes slowed a run, by its recorded load only.

    Args:
      record: The run; one without a recorded load counts as quiet.

    Returns:
      True if other processes or the hypervisor used more than `NOTICEABLE` of a
      device's cores during the measured batches, on any worker that reports its load.
    """
    return load(record) > 0


def select_quiet(
    candidates: Sequence[Candidate], is_disturbed: Callable[[Candidate], bool]
) -> tuple[Candidate, ...]:
    """Return the candidates that count: the quiet ones, or all if these are too few.

    Args:
      candidates: Repeats of one configuration: runs, files of runs or pairs of runs.
      is_disturbed: Whether a candidate is disturbed.

    Returns:
      The quiet candidates, in their order, if at least `FEWEST_QUIET` of them and
      at least `LEAST_QUIET_SHARE` of all are quiet; otherwise all candidates.
    """
    quiet = tuple([each for each in candidates if not is_disturbed(each)])
    fewest = max(FEWEST_QUIET, LEAST_QUIET_SHARE * len(candidates))
    return quiet if len(quiet) >= fewest else tuple(candidates)


def load(record: RunRecord) -> float:
    """Return the noticed load of others as a share of the run's cores.

    Returns:
      0 to 1, of the most disturbed worker; 0.0 if the load was not noticeable.
    """
    return max(share for share, _ in _shares(record))


def share_of_device(record: RunRecord, share: float) -> float:
    """Return a share of the run's cores as a share of one device's cores.

    All of the load may have been on one device, and a step waits for its slowest one.
    """
    return of_one_device(share, len(bound_cores(record)), record.options["num_devices"])


def had_more_load(loads: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether runs had more load than other runs, beyond chance.

    Args:
      loads: Load of each run as a share of one device's cores; not empty.
      others: The same of the runs that they are compared with; not empty.

    Returns:
      True if the means differ by more than `NOTICEABLE`, and by more than two
      standard errors of loads that vary as much as these.
    """
    variances = [
        statistics.variance(side) / len(side)
        for side in (loads, others)
        if len(side) > 1
    ]
    excess = statistics.fmean(loads) - statistics.fmean(others)
    return excess > max(NOTICEABLE, 2 * math.sqrt(sum(variances)))


def max_slowing(records: Sequence[RunRecord]) -> float:
    """Return the largest share of the mean rate that load of others may have taken.

    A step waits for its slowest core. Load on all cores takes its share of each; load
    on one core takes at most `MOST_OF_A_SHARED_CORE` of that core.

    Returns:
      0 to 1, the mean over the runs; 0.0 without runs.
    """
    taken = []
    for record in records:
        shares = [
            max(share, min(MOST_OF_A_SHARED_CORE, share * max(1, cores)))
            for share, cores in _shares(record)
        ]
        taken.append(min(1.0, max(shares)))
    return math.fsum(taken) / len(taken) if taken else 0.0


def max_slowing_beyond(
    records: Sequence[RunRecord], reference: Sequence[RunRecord]
) -> float:
    """Return the share of the rate that load may have taken unlike in other runs.

    Args:
      records: Runs that may be slower because of load.
      reference: Runs of the configuration that they are compared with.

    Returns:
      `max_slowing`; 0.0 if the reference had about as much load, or more.
    """
    loads = [_device_load(run) for run in records]
    reference_loads = [_device_load(run) for run in reference]
    if not loads or not reference_loads or not had_more_load(loads, reference_loads):
        return 0.0
    return max_slowing(records)


def _device_load(record: RunRecord) -> float:
    """Return the recorded load as a share of one device's cores, noticeable or not."""
    devices = record.options["num_devices"]
    return max(
        of_one_device(share, cores, devices)
        for share, cores in _recorded_shares(record)
    )


def _shares(record: RunRecord) -> list[tuple[float, int]]:
    """Return (noticed share, cores) of the recording process and of each worker."""
    devices = record.options["num_devices"]
    noticed = []
    for share, cores in _recorded_shares(record):
        is_noticed = of_one_device(share, cores, devices) > NOTICEABLE
        noticed.append((share if is_noticed else 0.0, cores))
    return noticed


def _recorded_shares(record: RunRecord) -> list[tuple[float, int]]:
    """Return (share, cores) of the recording process and of each worker."""
    watched = record.environment.load
    total = watched.others + watched.steal if watched else 0.0
    shares = [(total, len(bound_cores(record)))]
    ranks = record.workers.workers if record.workers else ()
    for rank in ranks:
        if rank.load_others is not None:
            shares.append((rank.load_others, len(rank.cpu_affinity or ())))
    return shares


def bound_cores(record: RunRecord) -> tuple[int, ...]:
    """Return the cores that the recording process was bound to; empty if unknown."""
    return record.resolved.cpu_affinity or ()


def shared_cores(records: Sequence[RunRecord]) -> int:
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
