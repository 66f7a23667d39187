"""Rates of several candidates -> which of them are as fast as the fastest, and which are slower. Pure.

All intervals of a ranking hold together (Tukey's range over its candidates), so at most 5 of 100 rankings contain a
wrong conclusion (docs/recommend.md).
"""

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from rnn_scaling.analysis import confidence
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.statements import Word
from rnn_scaling.analysis.student import range_quantile

TOGETHER = 0.97  # coverage of all intervals at one look; with a second look, after a third round, 95 of 100 remain
EQUAL = 0.05  # a smaller difference does not matter
Name = TypeVar("Name", bound=Hashable)


class Rank(Word):
    """How a candidate compares with the reference."""

    REFERENCE = "reference"
    FASTER = "faster"
    SLOWER = "slower"
    OPEN = "undecided"


REFERENCE, FASTER, SLOWER, OPEN = Rank


@dataclasses.dataclass(frozen=True)
class Standing:
    """One candidate. ratio: its rate / the reference's; the interval holds together with all others of the ranking."""

    rate: Interval
    ratio: Interval
    verdict: Rank

    @property
    def within(self) -> float | None:
        """Upper bound of its difference to the reference, as a share; None: unknown."""
        return (
            None
            if self.ratio.ends is None
            else max(1 - self.ratio.ends[0], self.ratio.ends[1] - 1)
        )


@dataclasses.dataclass(frozen=True)
class Ranking(Generic[Name]):
    """Candidates against a reference; `standings` in their original order."""

    reference: Name
    standings: Mapping[Name, Standing]
    processes: int  # fewest of a candidate

    @property
    def contenders(self) -> list[Name]:
        """The reference and all that are not slower, the fastest first."""
        left = [
            name
            for name, standing in self.standings.items()
            if standing.verdict != SLOWER
        ]
        return sorted(left, key=lambda name: -self.standings[name].rate.value)

    @property
    def undecided(self) -> list[Name]:
        """Those whose difference to the reference is within the noise."""
        return [
            name
            for name, standing in self.standings.items()
            if standing.verdict == OPEN
        ]


def rank(rates: Mapping[Name, Sequence[float]]) -> Ranking[Name]:
    """Ranks candidates by items/s of their processes against the fastest."""
    scatters = confidence.shared_scatters(list(rates.values()))
    intervals = {
        name: confidence.interval_over_runs(rates[name], scatter)
        for name, scatter in zip(rates, scatters)
    }
    reference = max(intervals, key=lambda name: intervals[name].value)
    against = intervals[reference]
    standings = {
        name: _standing(interval, against, len(rates), is_reference=name == reference)
        for name, interval in intervals.items()
    }
    return Ranking(reference, standings, min(map(len, rates.values())))


def _standing(
    rate: Interval, reference: Interval, count: int, is_reference: bool
) -> Standing:
    if is_reference:
        return Standing(rate, Interval.exact(1.0, "itself", rate.run_counts), REFERENCE)
    ratio = confidence.ratio(rate, reference)
    if ratio.relative_error is None:
        return Standing(rate, ratio, OPEN)
    margin = range_quantile(TOGETHER, count, ratio.degrees) * ratio.relative_error
    together = ratio.with_margin(margin, f"{TOGETHER:.0%} for all {count} together")
    low, high = together.ends or (0.0, math.inf)
    if low > 1:
        return Standing(rate, together, FASTER)
    return Standing(rate, together, SLOWER if high < 1 else OPEN)


def worth_a_round(ranking: Ranking[Name], among: Sequence[Name]) -> list[Name]:
    """Undecided candidates that another run of each and of the reference could decide."""
    undecided = [name for name in among if name in ranking.undecided]
    return [
        name
        for name in undecided
        if _could_tell(ranking, ranking.standings[name], len(undecided) + 1)
    ]


def _could_tell(ranking: Ranking[Name], standing: Standing, further: int) -> bool:
    ratio = standing.ratio
    k = ranking.processes
    if ratio.relative_error is None or standing.within is None:
        return True
    error = ratio.relative_error * math.sqrt(k / (k + 1))
    margin = (
        range_quantile(TOGETHER, len(ranking.standings), ratio.degrees + further)
        * error
    )
    gap = abs(math.log(ratio.value))
    return gap > margin or (standing.within > EQUAL >= gap + margin)
