"""A total that every rank repeats is one total: groups the results of one log by the run that they belong to."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable
from typing import Any

# Ranks of one run that each time the same synchronous steps differ by less: they start and stop within milliseconds.
SAME_TOTAL = 0.01


@dataclasses.dataclass(frozen=True)
class Total:
    """One printed total.

    rank: the rank whose output it is, None where the launcher put no tag before it.
    key: the settings that the log gives it; workers: how many ranks print one each.
    rate: items a second; value: whatever the importer keeps with it.
    """

    line: int
    rank: int | None
    key: Hashable
    workers: int
    rate: float
    value: Any = None


def runs(totals: Iterable[Total]) -> list[list[Total]]:
    """The totals of each run, in the order of the log; the first of a run is the one to use.

    With tags a rank's k-th total of a setting belongs to the k-th run. Without, neighbours of equal settings are one
    run while they are no more than its ranks and agree within SAME_TOTAL.
    """
    found: list[list[Total]] = []
    tagged: dict[tuple[Hashable, int], list[Total]] = {}
    counts: dict[tuple[Hashable, int], int] = {}
    for total in totals:
        if total.rank is not None and total.workers > 1:
            nth = counts[total.key, total.rank] = counts.get((total.key, total.rank), 0) + 1
            group = tagged.setdefault((total.key, nth), [])
            if not group:
                found.append(group)
            group.append(total)
        elif found and _joins(total, found[-1]):
            found[-1].append(total)
        else:
            found.append([total])
    return [sorted(group, key=lambda total: -1 if total.rank is None else total.rank) for group in found]


def _joins(total: Total, group: list[Total]) -> bool:
    first = group[0]
    return (
        total.rank is None
        and first.rank is None
        and total.key == first.key
        and len(group) < total.workers
        and abs(total.rate - first.rate) <= SAME_TOTAL * first.rate
    )


def note(groups: Iterable[list[Total]], unit: str) -> list[str]:
    """The sentence that says which totals were taken as one; none where no run had several."""
    repeated = [group for group in groups if len(group) > 1]
    if not repeated:
        return []
    first = repeated[0]
    rates = [total.rate for total in first]
    spread = (max(rates) - min(rates)) / first[0].rate
    text = (
        f"line {first[0].line}: {len(first)} ranks printed a total ({min(rates):.10g} to {max(rates):.10g} {unit}, "
        f"{spread:.2%} apart); it is one total of all ranks, counted once, as the lowest rank printed it."
    )
    more = f" The same holds for {len(repeated) - 1} more runs." if len(repeated) > 1 else ""
    return [text + more]
