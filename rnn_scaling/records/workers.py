"""What a record says of the processes of a distributed run: the part `workers`."""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping

from rnn_scaling.records.certificate import Certificate
from rnn_scaling.records.decoding import Count, Length, Loss, Name, Number, PositiveCount, Seconds, Sparse
from rnn_scaling.records.parts import Energy, Phases

WORKER, SERVER, COORDINATOR = ROLES = ("worker", "ps", "coordinator")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rank(Sparse):
    """One process, with the raw batches that it timed itself (none, where another process runs its towers)."""

    rank: Count
    role: Name = WORKER  # or "ps", or "coordinator"
    host: str | None = None
    pid: Count | None = None
    cpu_affinity: tuple[int, ...] | None = None
    seconds: tuple[Length, ...] = ()
    items: tuple[PositiveCount, ...] = ()
    loss: tuple[Loss | None, ...] = ()
    loss_items: tuple[PositiveCount, ...] = ()  # of each batch, what its loss is a mean over
    tower_items: tuple[tuple[PositiveCount, ...], ...] = ()
    tower_positions: tuple[tuple[PositiveCount, ...], ...] = ()
    # Of each batch, seconds until the gradients of its last tower were computed and the exchange could begin.
    ready: tuple[Seconds, ...] = ()
    correct: tuple[Count, ...] | None = None  # how many of these were predicted right, None: not counted
    phases: Phases | None = None
    load_others: Number | None = None
    peak_process_bytes: PositiveCount | None = None
    energy: Energy | None = None  # of its machine, which other ranks may share
    error: str | None = None  # how it ended, where it did not end well
    certificate: Certificate | None = None  # of its own replicas


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workers(Sparse):
    launcher: str | None = None  # what started them
    window: str | None = None  # how the common window was made
    window_seconds: Length | None = None  # its length by the clock of rank 0, from barrier to barrier
    link: str | None = None  # the network between them, where it was made for the run
    ranks: tuple[Rank, ...] = ()
    lost: tuple[Rank, ...] = ()
    # How many updates of others lay between the reading of the variables and their update, and how often
    # (asynchronous modes).
    staleness: Mapping[str, Count] | None = None

    @property
    def workers(self) -> tuple[Rank, ...]:
        """The processes with towers, without servers and coordinator."""
        return tuple(rank for rank in self.ranks if rank.role == WORKER)

    def machine(self, rank: Rank) -> str:
        """What a rank's cores belong to: its host; "" where the network was made for the run, all of it on one."""
        return "" if self.link else rank.host or ""

    @property
    def hosts(self) -> dict[str, list[Rank]]:
        """The workers of each host, in their order; empty where one does not tell its own."""
        hosts: dict[str, list[Rank]] = {}
        for rank in self.workers:
            if rank.host is None:
                return {}
            hosts.setdefault(rank.host, []).append(rank)
        return hosts


def sharing_a_core(workers: Workers) -> set[int]:
    """The ranks that share a core with another of the run, to which each of them seems load of others."""
    return {rank for sharing in users_of_cores(workers).values() if len(sharing) > 1 for rank in sharing}


def users_of_cores(workers: Workers) -> Mapping[tuple[str, int], list[int]]:
    """Machine and core -> the ranks that are bound to it."""
    users: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for rank in workers.ranks:
        for core in rank.cpu_affinity or ():
            users[workers.machine(rank), core].append(rank.rank)
    return users


def without_each_other(workers: Workers) -> Workers:
    """Without the load of others where that is also other ranks of the run."""
    sharing = sharing_a_core(workers)
    ranks = (dataclasses.replace(rank, load_others=None) if rank.rank in sharing else rank for rank in workers.ranks)
    return dataclasses.replace(workers, ranks=tuple(ranks))
