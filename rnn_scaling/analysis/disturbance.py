"""What else than the configuration slowed runs: other processes on their cores, and fewer cores than devices."""

import math
from collections.abc import Sequence

from rnn_scaling.analysis.rows import Row
from rnn_scaling.machine.load import NOTICEABLE, of_one_device
from rnn_scaling.records.record import RunRecord


def load(record: RunRecord) -> float:
    """Noticed share of the run's cores that others took, of several workers that of the most disturbed one."""
    return max(share for share, _ in _shares(record))


def felt(record: RunRecord, share: float) -> float:
    """What a share of the run's cores may have been of one device's; a step waits for its slowest device."""
    return of_one_device(
        share, len(cores_of(record)), record.config.get("num_devices", 1)
    )


def taken(records: Sequence[RunRecord]) -> float:
    """Share of the mean rate that load of others may have taken, at most 1: of one core, since load there slows all."""
    most = [
        max(min(1.0, share * max(1, cores)) for share, cores in _shares(record))
        for record in records
    ]
    return math.fsum(most) / len(most) if most else 0.0


def _shares(record: RunRecord) -> list[tuple[float, int]]:
    """(noticed share, cores) of the recording process and of each worker that reports its own."""
    watched = record.environment.load
    shares = [
        (watched.others + watched.steal if watched else 0.0, len(cores_of(record)))
    ]
    ranks = record.workers.workers if record.workers else ()
    shares += [
        (rank.load_others, len(rank.cpu_affinity or ()))
        for rank in ranks
        if rank.load_others is not None
    ]
    devices = record.config.get("num_devices", 1)
    return [
        (share if of_one_device(share, cores, devices) > NOTICEABLE else 0.0, cores)
        for share, cores in shares
    ]


def cores_of(record: RunRecord) -> tuple[int, ...]:
    """The cores that the recording process was bound to, with CPU devices; empty where its record does not tell."""
    return record.resolved.cpu_affinity or ()


def shared_cores(row: Row) -> int:
    """The cores that a row's devices shared, for they wanted more; 0 where each had its own."""
    num_cores = []
    for record in (record for record in row.good if record.resolved.oversubscribed):
        workers = record.workers
        ranks = workers.workers if workers and workers.hosts else ()
        cores = {
            (workers.machine(rank), core)
            for rank in ranks
            if workers
            for core in rank.cpu_affinity or ()
        }
        num_cores.append(len(cores) or len(cores_of(record)))
    return max(num_cores, default=0)
