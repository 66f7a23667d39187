"""What a record says of the processes of a distributed run: the part `workers`."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate

from rnn_scaling.records.certificate import Certificate
from rnn_scaling.records.decoding import (
    Count,
    Length,
    Loss,
    Name,
    Number,
    PositiveCount,
    Seconds,
    Sparse,
)
from rnn_scaling.records.parts import Batches, Energy, Phases

WORKER, SERVER, COORDINATOR = ROLES = ("worker", "ps", "coordinator")
WINDOW = "from a barrier after the warm-up to the end of the last rank; each rank counts seconds by its own clock"


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
    loss_items: tuple[
        PositiveCount, ...
    ] = ()  # of each batch, what its loss is a mean over
    tower_items: tuple[tuple[PositiveCount, ...], ...] = ()
    tower_positions: tuple[tuple[PositiveCount, ...], ...] = ()
    # Of each batch, seconds until the gradients of its last tower were computed and the exchange could begin.
    ready: tuple[Seconds, ...] = ()
    correct: tuple[Count, ...] | None = (
        None  # how many of these were predicted right, None: not counted
    )
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
    window_seconds: Length | None = (
        None  # its length by the clock of rank 0, from barrier to barrier
    )
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
    return {
        rank
        for sharing in users_of_cores(workers).values()
        if len(sharing) > 1
        for rank in sharing
    }


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
    ranks = (
        dataclasses.replace(rank, load_others=None) if rank.rank in sharing else rank
        for rank in workers.ranks
    )
    return dataclasses.replace(workers, ranks=tuple(ranks))


def join_batches(ranks: Sequence[Rank], warmup: int) -> Batches:
    """The batches that all of these ranks have ended, `warmup` of them before the second barrier.

    No two clocks are compared. All ranks leave a barrier before the first batch, and another after the warm-up; from
    each of the two on every rank counts seconds by itself. E[k] is the largest over the ranks of their seconds since
    the barrier at the end of batch k, and the batch took E[k] - E[k-1].
    """
    steps = min((len(rank.seconds) for rank in ranks), default=0)
    correct = [rank.correct for rank in ranks if rank.correct is not None]
    counts_right = bool(ranks) and len(correct) == len(ranks)
    return Batches(
        warmup=min(steps, warmup),
        measured=max(0, steps - warmup),
        seconds=tuple(batch_seconds(ranks, warmup, steps)),
        items=tuple(sum(rank.items[k] for rank in ranks) for k in range(steps)),
        loss=tuple(_loss(ranks, k) for k in range(steps)),
        tower_items=tower_counts(ranks, "tower_items", steps),
        tower_positions=tower_counts(ranks, "tower_positions", steps),
        loss_items=tuple(
            sum(rank.loss_items[k] for rank in ranks) for k in range(steps)
        )
        if counts_right
        else None,
        correct=tuple(sum(counts[k] for counts in correct) for k in range(steps))
        if counts_right
        else None,
    )


def batch_seconds(ranks: Sequence[Rank], warmup: int, steps: int) -> list[float]:
    """Seconds of the batches, whose ranks all have as many."""
    return [*_ends(ranks, 0, min(steps, warmup)), *_ends(ranks, warmup, steps)]


def tower_counts(
    ranks: Sequence[Rank], name: str, steps: int
) -> tuple[tuple[int, ...], ...]:
    """A number of each tower of all ranks, in their order, for each batch; empty where a rank does not tell it."""
    of_ranks = [getattr(rank, name) for rank in ranks]
    return tuple(
        tuple(n for shares in of_ranks for n in shares[k])
        for k in range(steps if all(of_ranks) else 0)
    )


def _ends(ranks: Sequence[Rank], first: int, stop: int) -> list[float]:
    """Seconds of the batches from `first` on, whose start all ranks share."""
    since = [list(accumulate(rank.seconds[first:stop])) for rank in ranks]
    last = [max(ends[k] for ends in since) for k in range(max(0, stop - first))]
    return [end - start for start, end in zip([0.0, *last], last)]


def _loss(ranks: Sequence[Rank], k: int) -> float | None:
    """The mean of the ranks' losses, by what each is a mean over."""
    losses = [rank.loss[k] for rank in ranks]
    if any(loss is None for loss in losses):
        return None
    over = [(rank.loss_items or rank.items)[k] for rank in ranks]
    return math.fsum((loss or 0.0) * items for loss, items in zip(losses, over)) / sum(
        over
    )
