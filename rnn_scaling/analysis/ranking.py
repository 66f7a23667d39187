"""Find the candidates that are as fast as the fastest one.

All intervals of a ranking hold together (Tukey's range over its candidates), so at most
5 of 100 rankings contain a wrong conclusion (docs/recommend.md).

`recommend` calls `rank` for modes, and the headline of a report calls it for series.
"""

import dataclasses
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from rnn_scaling.analysis import confidence
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.interval_kinds import Basis, IntervalKind
from rnn_scaling.analysis.statements import Word
from rnn_scaling.analysis.student import range_quantile

# Coverage of all intervals in one analysis. With a second analysis, after a third
# round, 95 % remain.
JOINT_COVERAGE = 0.97
NEGLIGIBLE_DIFFERENCE = 0.05  # a smaller difference does not matter
# If two candidates may differ by this share, the runs do not compare them.
MAX_UNCERTAINTY = 0.5
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
    """The rank of one candidate.

    Attributes:
      ratio: The candidate's rate / the reference's rate. The interval holds together
        with all others of the ranking.
    """

    rate: Interval
    ratio: Interval
    verdict: Rank

    @property
    def max_difference(self) -> float | None:
        """Upper bound of the difference to the reference, as a share; None if unknown."""
        if self.ratio.ends is None:
            return None
        low, high = self.ratio.ends
        return max(1 - low, high - 1)


@dataclasses.dataclass(frozen=True)
class Ranking(Generic[Name]):
    """The ranks of candidates, in their original order.

    Attributes:
      num_runs: Fewest runs of a candidate.
    """

    reference: Name
    standings: Mapping[Name, Standing]
    num_runs: int

    @property
    def contenders(self) -> list[Name]:
        """The reference and all that are not slower, the fastest first."""
        names = [
            name
            for name, standing in self.standings.items()
            if standing.verdict != SLOWER
        ]
        return sorted(names, key=lambda name: -self.standings[name].rate.value)

    @property
    def undecided(self) -> list[Name]:
        """Candidates whose difference to the reference is within the noise."""
        return [
            name
            for name, standing in self.standings.items()
            if standing.verdict == OPEN
        ]


def rank(
    rates: Mapping[Name, Sequence[float]], disturbed: Collection[Name] = ()
) -> Ranking[Name]:
    """Rank candidates by items/s of their runs, relative to the fastest.

    Args:
      rates: Items/s of the runs of each candidate.
      disturbed: Candidates with disturbed runs. They share no scatter with quiet
        ones, because they would widen their intervals.
    """
    scatters: dict[Name, confidence.Scatter | None] = {}
    for is_disturbed in (False, True):
        names = [name for name in rates if (name in disturbed) == is_disturbed]
        if names:
            shared = confidence.compute_shared_scatters([rates[name] for name in names])
            scatters |= zip(names, shared)
    intervals = {
        name: confidence.compute_interval_over_runs(rates[name], scatters[name])
        for name in rates
    }
    reference = max(intervals, key=lambda name: intervals[name].value)
    standings = {}
    for name, interval in intervals.items():
        if name == reference:
            ratio = Interval.exact(1.0, Basis.REFERENCE, interval.run_counts)
            standings[name] = Standing(interval, ratio, REFERENCE)
        else:
            standings[name] = _make_standing(interval, intervals[reference], len(rates))
    return Ranking(reference, standings, min(map(len, rates.values())))


def _make_standing(rate: Interval, reference: Interval, count: int) -> Standing:
    ratio = confidence.divide_rates(rate, reference)
    if ratio.relative_error is None:
        return Standing(rate, ratio, OPEN)
    margin = range_quantile(JOINT_COVERAGE, count, ratio.degrees) * ratio.relative_error
    ratio = ratio.with_margin(margin, IntervalKind(Basis.RANKING, (count,)))
    low, high = ratio.ends or (0.0, math.inf)
    if low > 1:
        return Standing(rate, ratio, FASTER)
    return Standing(rate, ratio, SLOWER if high < 1 else OPEN)


def select_for_another_round(
    ranking: Ranking[Name], among: Sequence[Name]
) -> list[Name]:
    """Return the undecided candidates that another round could decide.

    A round is one more run of each of them and of the reference.
    """
    undecided = [name for name in among if name in ranking.undecided]
    num_runs = len(undecided) + 1
    return [
        name
        for name in undecided
        if _may_decide(ranking, ranking.standings[name], num_runs)
    ]


def _may_decide(ranking: Ranking[Name], standing: Standing, num_runs: int) -> bool:
    ratio = standing.ratio
    k = ranking.num_runs
    if ratio.relative_error is None or standing.max_difference is None:
        return True
    error = ratio.relative_error * math.sqrt(k / (k + 1))
    count = len(ranking.standings)
    margin = range_quantile(JOINT_COVERAGE, count, ratio.degrees + num_runs) * error
    distance = abs(math.log(ratio.value))
    return (
        distance > margin
        or standing.max_difference > NEGLIGIBLE_DIFFERENCE >= distance + margin
    )
