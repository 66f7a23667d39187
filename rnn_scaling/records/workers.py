"""The part `workers`: the processes of a distributed run.

Field names are keys of record files; rename only with metadata `older`, see
decoding.py.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate

from rnn_scaling.records.certificate import Certificate
from rnn_scaling.records.decoding import (
    Count,
    Loss,
    Name,
    Number,
    PositiveCount,
    PositiveNumber,
    Seconds,
    Sparse,
)
from rnn_scaling.records.environment import LoadWindows
from rnn_scaling.records.parts import Batches, Energy, Phases

WORKER = "worker"
SERVER = "ps"
COORDINATOR = "coordinator"
ROLES = (WORKER, SERVER, COORDINATOR)
WINDOW = (
    "from a barrier after the warm-up to the end of the last rank; each rank counts "
    "seconds by its own clock"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rank(Sparse):
    """One process, with the batches that it timed itself.

    It has no batches if another process runs its towers.
    """

    rank: Count
    role: Name = WORKER
    host: str | None = None
    pid: Count | None = None
    cpu_affinity: tuple[int, ...] | None = None
    seconds: tuple[PositiveNumber, ...] = ()
    items: tuple[PositiveCount, ...] = ()
    loss: tuple[Loss | None, ...] = ()
    loss_items: tuple[PositiveCount, ...] = ()  # the loss of each batch is their mean
    tower_items: tuple[tuple[PositiveCount, ...], ...] = ()
    tower_positions: tuple[tuple[PositiveCount, ...], ...] = ()
    # Seconds from the start of each batch until the gradients of its last tower were
    # computed and the exchange could begin.
    ready: tuple[Seconds, ...] = ()
    correct: tuple[Count, ...] | None = None  # correct predictions among `loss_items`
    phases: Phases | None = None
    load_others: Number | None = None
    # Windows of the rank's own cores and batches.
    load_windows: LoadWindows | None = None
    peak_process_bytes: PositiveCount | None = None
    # Energy of the rank's machine, which may have other ranks.
    energy: Energy | None = None
    # The kind of a failure that began at this rank: the value of a `FailureKind`.
    failure: Name | None = None
    # One line about the failure. With a `failure` it names the rank and its host.
    error: str | None = None
    certificate: Certificate | None = None  # compares its replicas


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workers(Sparse):
    """All processes of a distributed run."""

    launcher: str | None = None  # program that started them
    window: str | None = None  # how the common window was defined
    # Time between the barriers of the window, by the clock of rank 0.
    window_seconds: PositiveNumber | None = None
    link: str | None = None  # the emulated network between them
    ranks: tuple[Rank, ...] = ()
    lost: tuple[Rank, ...] = ()
    # Asynchronous modes: number of updates by others between reading and updating the
    # variables -> how often this happened.
    staleness: Mapping[str, Count] | None = None

    @property
    def workers(self) -> tuple[Rank, ...]:
        """The processes with towers, without servers and coordinator."""
        return tuple(rank for rank in self.ranks if rank.role == WORKER)

    def machine(self, rank: Rank) -> str:
        """Return the name of the machine of a rank's cores.

        Returns:
          Its host; "" if the network was emulated, on a single machine.
        """
        return "" if self.link else rank.host or ""

    @property
    def hosts(self) -> dict[str, list[Rank]]:
        """The workers of each host; empty if the host of one is unknown."""
        hosts: dict[str, list[Rank]] = {}
        for rank in self.workers:
            if rank.host is None:
                return {}
            hosts.setdefault(rank.host, []).append(rank)
        return hosts


def find_ranks_sharing_cores(workers: Workers) -> set[int]:
    """Return the ranks that share a core with another rank of the run.

    Each of them measures the other as load of other processes.
    """
    ranks: set[int] = set()
    for users in group_ranks_by_core(workers).values():
        if len(users) > 1:
            ranks.update(users)
    return ranks


def group_ranks_by_core(workers: Workers) -> Mapping[tuple[str, int], list[int]]:
    """Return the ranks that are bound to each core, by machine and core."""
    users: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for rank in workers.ranks:
        for core in rank.cpu_affinity or ():
            users[workers.machine(rank), core].append(rank.rank)
    return users


def drop_load_of_each_other(workers: Workers) -> Workers:
    """Remove the load of others from ranks for which other ranks are part of it."""
    sharing = find_ranks_sharing_cores(workers)
    ranks = []
    for rank in workers.ranks:
        if rank.rank in sharing:
            rank = dataclasses.replace(rank, load_others=None, load_windows=None)
        ranks.append(rank)
    return dataclasses.replace(workers, ranks=tuple(ranks))


def join_batches(ranks: Sequence[Rank], warmup: int) -> Batches:
    """Return the batches of a run from the batches that all ranks have ended.

    No two clocks are compared. All ranks leave one barrier before the first batch, and
    another one after the warm-up. From each barrier on, each rank counts seconds by its
    own clock. E[k] is the largest number of seconds of a rank from the barrier to the
    end of batch k, and the batch took E[k] - E[k-1].

    Args:
      ranks: The ranks.
      warmup: Batches before the second barrier.
    """
    steps = min((len(rank.seconds) for rank in ranks), default=0)
    loss_items = None
    correct = None
    if ranks and all(rank.correct is not None for rank in ranks):
        loss_items = sum_over_ranks(ranks, "loss_items", steps)
        correct = sum_over_ranks(ranks, "correct", steps)
    return Batches(
        warmup=min(steps, warmup),
        measured=max(0, steps - warmup),
        seconds=tuple(list_batch_seconds(ranks, warmup, steps)),
        items=sum_over_ranks(ranks, "items", steps),
        loss=tuple(_compute_mean_loss(ranks, k) for k in range(steps)),
        tower_items=count_towers(ranks, "tower_items", steps),
        tower_positions=count_towers(ranks, "tower_positions", steps),
        loss_items=loss_items,
        correct=correct,
    )


def sum_over_ranks(ranks: Sequence[Rank], name: str, steps: int) -> tuple[int, ...]:
    """Return the sum of a field of the ranks, for each of the first batches."""
    lists = [getattr(rank, name)[:steps] for rank in ranks]
    return tuple(map(sum, zip(*lists, strict=True)))


def list_batch_seconds(ranks: Sequence[Rank], warmup: int, steps: int) -> list[float]:
    """Return the seconds of the first `steps` batches."""
    warmup_s = _segment_seconds(ranks, 0, min(steps, warmup))
    return [*warmup_s, *_segment_seconds(ranks, warmup, steps)]


def count_towers(
    ranks: Sequence[Rank], name: str, steps: int
) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of the towers of all ranks, for each batch.

    Args:
      ranks: The ranks.
      name: The field of the numbers.
      steps: Number of batches.

    Returns:
      One tuple per batch; none if a rank lacks the field.
    """
    counts_of_ranks = [getattr(rank, name) for rank in ranks]
    if not all(counts_of_ranks):
        return ()
    batches = []
    for k in range(steps):
        batch: list[int] = []
        for counts in counts_of_ranks:
            batch += counts[k]
        batches.append(tuple(batch))
    return tuple(batches)


def _segment_seconds(ranks: Sequence[Rank], first: int, stop: int) -> list[float]:
    """Return the seconds of the batches after a barrier before batch `first`."""
    ends_of_ranks = [list(accumulate(rank.seconds[first:stop])) for rank in ranks]
    ends = [max(batch_ends) for batch_ends in zip(*ends_of_ranks)]
    return [end - start for start, end in zip([0.0, *ends], ends)]


def _compute_mean_loss(ranks: Sequence[Rank], k: int) -> float | None:
    """Return the mean of the ranks' losses, weighted by their items."""
    weighted_losses = []
    total = 0
    for rank in ranks:
        loss = rank.loss[k]
        items = (rank.loss_items or rank.items)[k]
        if loss is None:
            return None
        weighted_losses.append(loss * items)
        total += items
    return math.fsum(weighted_losses) / total
