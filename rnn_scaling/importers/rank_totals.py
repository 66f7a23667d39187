"""Logs in which every rank may print the total of the run: reads them, and takes what all ranks repeat as one total."""

import abc
import dataclasses
from collections.abc import Hashable, Iterable
from typing import ClassVar, Generic, TypeVar

from rnn_scaling.importers.common import (
    ImportedLog,
    Problems,
    ScalingRow,
    by_rank,
    finish,
)

# Ranks of one run that each time the same synchronous steps differ by less: they start and stop within milliseconds.
SAME_TOTAL = 0.01


@dataclasses.dataclass(frozen=True)
class Total:
    line: int
    rank: (
        int | None
    )  # the rank whose output it is, None where the launcher put no tag before it
    key: Hashable  # the settings that the log gives it
    workers: int  # how many ranks print one each
    rate: float  # items a second
    row: ScalingRow  # the run, as this rank tells it


Stream = TypeVar("Stream")


@dataclasses.dataclass
class RankReader(abc.ABC, Generic[Stream]):
    """The state of reading one log.

    streams: what each rank's output said so far, None for lines without a tag; totals: the printed totals; cut: rows of
    runs without one.
    """

    format: ClassVar[str]
    source: str
    problems: Problems = dataclasses.field(default_factory=Problems)
    streams: dict[int | None, Stream] = dataclasses.field(default_factory=dict)
    totals: list[Total] = dataclasses.field(default_factory=list)
    cut: list[ScalingRow] = dataclasses.field(default_factory=list)

    @abc.abstractmethod
    def read(self, line: int, rank: int | None, text: str) -> None:
        """Takes one line."""

    @abc.abstractmethod
    def end_without_total(self, rank: int | None) -> None:
        """Makes the row of a rank's run whose total never came."""

    def read_all(self, lines: Iterable[str]) -> list[list[Total]]:
        """Reads every line, up to the most results that are kept; returns `runs` of the totals."""
        for line, rank, text in by_rank(lines):
            try:
                self.read(line, rank, text)
            except ValueError as e:
                self.problems.add(line, str(e), "bad number")
            if self.problems.too_many(
                line, max(len(self.totals) + len(self.cut), len(self.streams))
            ):
                break
        for rank in self.streams:
            self.end_without_total(rank)
        return runs(self.totals)

    def log(
        self, groups: list[list[Total]], notes: Iterable[str], nothing: str
    ) -> ImportedLog:
        rows = sorted(
            [*(group[0].row for group in groups), *self.cut], key=lambda row: row.line
        )
        return finish(self.format, self.source, rows, (), notes, self.problems, nothing)


def runs(totals: Iterable[Total]) -> list[list[Total]]:
    """The totals of each run, in the order of the log; the first of a run is the one to use.

    With tags a rank's k-th total of a setting belongs to the k-th run. Without, neighbours of equal settings are one
    run while they are no more than its ranks and agree within SAME_TOTAL.
    """
    groups: list[list[Total]] = []
    tagged: dict[tuple[Hashable, int], list[Total]] = {}
    counts: dict[tuple[Hashable, int], int] = {}
    for total in totals:
        if total.rank is not None and total.workers > 1:
            nth = counts[total.key, total.rank] = (
                counts.get((total.key, total.rank), 0) + 1
            )
            group = tagged.setdefault((total.key, nth), [])
            if not group:
                groups.append(group)
            group.append(total)
        elif groups and _joins(total, groups[-1]):
            groups[-1].append(total)
        else:
            groups.append([total])
    return [
        sorted(group, key=lambda total: -1 if total.rank is None else total.rank)
        for group in groups
    ]


def _joins(total: Total, group: list[Total]) -> bool:
    first = group[0]
    is_of_all = total.rank is None and first.rank is None and total.key == first.key
    return (
        is_of_all
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
    more = (
        f" The same holds for {len(repeated) - 1} more runs."
        if len(repeated) > 1
        else ""
    )
    return [text + more]
