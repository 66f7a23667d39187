"""What is wrong with a record's part `workers`: ranks, and what follows from the batches that they timed themselves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from rnn_scaling.records.decoding import spelled
from rnn_scaling.records.parts import Batches
from rnn_scaling.records.workers import COORDINATOR, ROLES, Rank, Workers

NEEDED, TOLD = ("seconds", "items"), ("loss", "loss_items", "correct", "ready", "tower_items", "tower_positions")
ROUNDING = 1e-6  # relative, as of all sums in records
# Rank 0's clock also sees the barriers themselves: ranks leave one within milliseconds, on a loaded machine later.
WINDOW_SHARE, WINDOW_S = 0.10, 5.0


def rank_faults(workers: Workers | None) -> Iterator[str]:
    """Ranks that are not numbered once each, or are of no role that is known."""
    if workers is None:
        return
    for name, ranks in (("ranks", workers.ranks), ("lost", workers.lost)):
        numbers = set()
        for i, rank in enumerate(ranks):
            if rank.rank in numbers:
                yield f"workers.{name}[{i}].rank is {rank.rank} again; expected each rank once"
                break
            numbers.add(rank.rank)
            if rank.role not in ROLES:
                yield f"workers.{name}[{i}].role is {spelled(rank.role)}; expected {', '.join(ROLES)}"
                break
    in_order = [rank.rank for rank in workers.ranks]
    if in_order != sorted(in_order):
        yield f"workers.ranks are in the order {spelled(in_order)}; expected their numbers to rise"
    for age in workers.staleness or {}:
        if not (age.isascii() and age.isdigit() and len(age) < 10):
            yield f"workers.staleness.{age}: expected a number of updates"
            break


def window_faults(workers: Workers | None, batches: Batches, noun: str) -> Iterator[str]:
    """What does not fit together in a run of several processes that measured something."""
    if workers is None:
        return
    count = len(batches.seconds)
    # Under a coordinator each worker goes at its own pace: the run's batches are what the coordinator saw.
    is_driven = any(rank.role == COORDINATOR for rank in workers.ranks)
    timed = [(f"workers.ranks[{i}]", rank) for i, rank in enumerate(workers.ranks) if rank.seconds and not is_driven]
    if missing := next((fault for path, rank in timed for fault in _missing_entries(path, rank, count)), None):
        yield missing
        return
    for i, phases in ((i, rank.phases) for i, rank in enumerate(workers.ranks)):
        parts = math.fsum(phases.parts.values()) if phases else 0.0
        if phases and parts and not math.isclose(parts, phases.total, rel_tol=ROUNDING):
            yield f"workers.ranks[{i}].phases sum to {parts:.9g} s and their total is {phases.total:.9g}"
            break
    if timed and 0 <= batches.warmup < count:
        yield from _sum_faults([rank for _, rank in timed], batches, noun)
    if workers.window_seconds:
        yield from _length_faults(workers.window_seconds, batches)


def _missing_entries(path: str, rank: Rank, count: int) -> Iterator[str]:
    """The lists of a rank that have not one entry for each batch."""
    lengths = {name: len(getattr(rank, name) or ()) for name in (*NEEDED, *TOLD)}
    for name, length in lengths.items():
        if length != count and (name in NEEDED or length):
            yield f"{path}.{name} has {length} entries; expected one for each of the run's {count} batches"


def _sum_faults(timed: Sequence[Rank], batches: Batches, noun: str) -> Iterator[str]:
    """Where the cluster's batches are not those of its ranks."""
    for part in (slice(0, batches.warmup), slice(batches.warmup, None)):  # each begins with a barrier
        ends = [max(at) for at in zip(*(itertools.accumulate(rank.seconds[part]) for rank in timed))]
        own = itertools.accumulate(batches.seconds[part])
        pairs = enumerate(zip(own, ends), part.start)
        if wrong := next(((i, *pair) for i, pair in pairs if not math.isclose(*pair, rel_tol=ROUNDING)), None):
            yield (
                f"batches.seconds[{part.start}] to [{wrong[0]}] make {wrong[1]:.9g} s, and the last rank had ended "
                f"these after {wrong[2]:.9g}"
            )
            break
    items = [sum(each) for each in zip(*(rank.items for rank in timed))]
    if unlike := _first_unlike(batches.items, items):
        yield f"batches.{noun}[{unlike[0]}] is {unlike[1]}, and those of the ranks sum to {unlike[2]}"
    for name in ("tower_items", "tower_positions"):
        towers = [getattr(rank, name) for rank in timed]
        of_ranks = [tuple(itertools.chain(*shares)) for shares in zip(*towers)] if all(towers) else []
        if of_ranks and (unlike := _first_unlike(getattr(batches, name), of_ranks)):
            written = name.replace("items", noun)
            yield (
                f"batches.{written}[{unlike[0]}] is {spelled([*unlike[1]])}, and the towers of all ranks, in their "
                f"order, have {spelled([*unlike[2]])}"
            )


def _first_unlike(stands: Sequence, expected: Sequence) -> tuple | None:
    """(place, what stands there, what is expected) of the first that differ."""
    if tuple(stands) == tuple(expected):
        return None
    return next(((i, *pair) for i, pair in enumerate(zip(stands, expected)) if pair[0] != pair[1]), None)


def _length_faults(window_s: float, batches: Batches) -> Iterator[str]:
    """A window that rank 0's clock saw to be another than the batches make."""
    measured = math.fsum(batches.seconds[batches.warmup :])
    if abs(window_s - measured) > max(WINDOW_S, WINDOW_SHARE * measured):
        yield (
            f"workers.window_seconds is {window_s:.9g}, and the measured batches make {measured:.9g}; expected them "
            f"within {WINDOW_S:g} s or {100 * WINDOW_SHARE:g} %"
        )
