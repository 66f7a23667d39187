"""What else than the configuration slowed runs: other processes on their cores, and fewer cores than devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rnn_scaling.machine.cores import most_of_ideal
from rnn_scaling.machine.load import NOTICEABLE
from rnn_scaling.records.record import RunRecord

if TYPE_CHECKING:
    from rnn_scaling.analysis.rows import Row


def load(record: RunRecord) -> float:
    """Share of the run's cores that other processes and the hypervisor took; 0 where it is not told or not noticed."""
    watched = record.environment.load
    share = watched.others + watched.steal if watched else 0.0
    return share if share > NOTICEABLE else 0.0


def taken(records: Sequence[RunRecord]) -> float:
    """Share of the mean rate that load of others may have taken, at most 1.

    A step waits for its slowest device, so load on one core slows all: the share of that core, not that of all cores.
    """
    shares = [min(1.0, load(record) * max(1, len(cores_of(record)))) for record in records]
    return math.fsum(shares) / len(shares) if shares else 0.0


def cores_of(record: RunRecord) -> tuple[int, ...]:
    """The cores that a run on CPU devices was bound to; empty where its record does not tell."""
    return record.resolved.cpu_affinity or ()


def shared_cores(row: Row) -> int:
    """The cores that a row's devices shared, for they wanted more; 0 where each had its own."""
    crowded = [record for record in row.good if record.resolved.oversubscribed]
    return max((len(cores_of(record)) for record in crowded), default=0)


def most_efficiency(row: Row) -> float:
    """What a row's devices can reach of the ideal if each keeps at least one core busy; 1 where none is missing."""
    cores = shared_cores(row)
    return most_of_ideal(row.num_devices, cores) if cores else 1.0
