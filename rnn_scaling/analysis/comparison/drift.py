"""Drift of a machine between sessions, such as two sweeps on different days.

Runs of one session share the state of the machine: its temperature, its memory layout,
its neighbours. Their scatter therefore says little about another session. The change
between two sessions has the variance of its runs plus twice the variance of a session.

Sides that take turns in longer blocks than single runs, such as four sweeps in the
order A B B A, are sessions as well: the scatter of all runs of a side contains only
part of the difference between its sessions.

The variance of a session is known from earlier sessions of the same machine, or else
assumed: a session is taken to move the rate as much as one run does. docs/statistics.md
has the formulas, and docs/methods/measurements.md the simulated error rates.

`comparison.judgement` calls `estimate` for two sessions, and `history.sessions` for the
entries of a history.
"""

import collections
import dataclasses
import datetime
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Protocol

from rnn_scaling.analysis.comparison.matching import (
    ComparedRuns,
    Configuration,
    start_time,
)
from rnn_scaling.analysis.confidence import LEVEL, Interval, Scatter
from rnn_scaling.analysis.interval_kinds import Note
from rnn_scaling.analysis.keys import Key
from rnn_scaling.analysis.rows import build_keys
from rnn_scaling.analysis.statements import Word
from rnn_scaling.analysis.student import t_quantile

# Share of the pairs of runs (one before, one after) that must have the same order in
# time. If the sides alternate, half of them have.
_MIN_PAIRS_IN_ORDER = 0.75
# Share of the steps from one run of a configuration to the next that must lead to the
# other side if the sides are interleaved. The order A B B A A B has three of five.
_MIN_SWITCHES = 0.5
# The assumed drift counts like an estimate from this many sessions, minus one.
_ASSUMED_DEGREES = 3
# Least assumed standard deviation of log rates between sessions.
MIN_ASSUMED_DEVIATION = 0.005


class Source(Word):
    """The source of a drift."""

    ASSUMED = "assumed"  # drift from the scatter between the runs of each session
    HISTORY = "history"  # drift from earlier sessions


@dataclasses.dataclass(frozen=True)
class Drift:
    """The scatter of a configuration's rate between sessions of a machine.

    Attributes:
      deviation: Standard deviation of log rates between sessions.
      degrees: Degrees of freedom of the estimate.
      source: The source of the estimate.
      sessions: Number of earlier sessions.
      variance_share: Variance of the change because of drift / `2 deviation**2`. It is
        below 1 if a side has several sessions, whose mean drifts less.
      half_width: The largest change that drift explains at 95 %, as a logarithm, with
        the degrees of freedom of the comparison; None before the comparison.
    """

    deviation: float
    degrees: float
    source: Source
    sessions: int = 0
    variance_share: float = 1.0
    half_width: float | None = None

    @property
    def scatter(self) -> Scatter:
        """The drift of a side for `confidence.divide_rates`."""
        deviation = math.sqrt(self.variance_share) * self.deviation
        return Scatter(deviation, self.degrees, Note.DRIFT)

    def of_change(self, change: Interval) -> "Drift":
        """Return the drift with its part of the half-width of a change."""
        quantile = t_quantile((1 + LEVEL) / 2, change.degrees)
        half_width = quantile * math.sqrt(2) * self.scatter.deviation
        return dataclasses.replace(self, half_width=half_width)


@dataclasses.dataclass(frozen=True)
class TwoSessions:
    """The times of two sides that were measured in different sessions.

    Attributes:
      spans: First and last start of a run of each session, in seconds since 1970.
      apart_s: Seconds between the mean starts of the sides; if they took turns, the
        mean of the seconds between two sessions that follow each other.
      counts: Number of sessions of each side.
    """

    spans: tuple[tuple[float, float], ...]
    apart_s: float
    counts: tuple[int, int] = (1, 1)

    @property
    def in_turns(self) -> bool:
        """Whether the sides took turns."""
        return self.counts != (1, 1)

    @property
    def variance_share(self) -> float:
        """Variance of the change / its variance between two single sessions."""
        return statistics.fmean(1 / count for count in self.counts)

    @property
    def minutes_apart(self) -> float:
        return self.apart_s / 60


def find_sessions(
    runs_before: ComparedRuns, runs_after: ComparedRuns
) -> TwoSessions | None:
    """Return the sessions of two sides.

    Returns:
      None if the sides are interleaved run by run, a side has no good run, or a good
      run has no recorded start.
    """
    starts_before = _list_starts_s(runs_before)
    starts_after = _list_starts_s(runs_after)
    if not starts_before or not starts_after:
        return None
    in_order = 0.0
    for time_before in starts_before:
        for time_after in starts_after:
            # Runs that start together have either order.
            is_same = time_before == time_after
            in_order += 0.5 if is_same else time_before < time_after
    share = in_order / (len(starts_before) * len(starts_after))
    if max(share, 1 - share) <= _MIN_PAIRS_IN_ORDER:
        return _are_sessions_in_turns(runs_before, runs_after)
    mean_before = statistics.fmean(starts_before)
    mean_after = statistics.fmean(starts_after)
    spans = (
        (min(starts_before), max(starts_before)),
        (min(starts_after), max(starts_after)),
    )
    return TwoSessions(spans, abs(mean_after - mean_before))


@dataclasses.dataclass(frozen=True)
class _Start:
    """The start of a run, its side, and its configuration."""

    time_s: float
    is_after: bool
    configuration: Key


def _are_sessions_in_turns(
    runs_before: ComparedRuns, runs_after: ComparedRuns
) -> TwoSessions | None:
    """Return the sessions of two sides that took turns; None if runs are interleaved."""
    starts = sorted(
        [
            *_list_starts_of_sides(runs_before, False),
            *_list_starts_of_sides(runs_after, True),
        ],
        key=lambda start: start.time_s,
    )
    if len({start.time_s for start in starts}) < len(starts):
        # Runs that start together have no order.
        return None
    blocks = [list(block) for _, block in itertools.groupby(starts, _describe_side)]
    num_runs = sum(map(_count_most_repeats, blocks))
    if len(blocks) - 1 >= _MIN_SWITCHES * (num_runs - 1):
        return None
    means = []
    spans = []
    for block in blocks:
        times = [start.time_s for start in block]
        means.append(statistics.fmean(times))
        spans.append((times[0], times[-1]))
    gaps = [second - first for first, second in itertools.pairwise(means)]
    num_after = sum(block[0].is_after for block in blocks)
    counts = (len(blocks) - num_after, num_after)
    return TwoSessions(tuple(spans), statistics.fmean(gaps), counts)


def _list_starts_of_sides(side: ComparedRuns, is_after: bool) -> list[_Start]:
    keys = build_keys(side.good_runs)
    return [
        _Start(time_s, is_after, key) for time_s, key in zip(_list_starts_s(side), keys)
    ]


def _describe_side(start: _Start) -> bool:
    return start.is_after


def _count_most_repeats(block: Sequence[_Start]) -> int:
    """Return how many runs in a row the configuration with the most runs has."""
    counts = collections.Counter(start.configuration for start in block)
    return max(counts.values())


def _list_starts_s(side: ComparedRuns) -> list[float]:
    """Return when the good runs of a side started; [] if a start is unknown."""
    starts = []
    for run in side.good_runs:
        start = parse_timestamp(start_time(run))
        if start is None:
            return []
        starts.append(start)
    return starts


def parse_timestamp(text: str | None) -> float | None:
    """Return seconds since 1970; None if a text is not a time. The default is UTC."""
    try:
        time = datetime.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.timezone.utc)
    return time.timestamp()


class Past(Protocol):
    """Earlier sessions."""

    def correct(
        self, assumed: Drift, configuration: Configuration, sessions: TwoSessions
    ) -> Drift:
        """Return the drift of a configuration that earlier sessions show.

        Args:
          assumed: The drift that is assumed without earlier sessions.
          configuration: The configuration.
          sessions: The times of its sides.

        Returns:
          The assumed drift if too few sessions have the configuration.
        """


def estimate(
    configuration: Configuration, sessions: TwoSessions, past: Past | None = None
) -> Drift | None:
    """Return the drift between the two sessions of a configuration.

    Args:
      configuration: The configuration.
      sessions: The times of its sides.
      past: Earlier sessions; None if they are unknown.

    Returns:
      None if no side has repeated runs, so that nothing can be judged anyway.
    """
    scatters = [side.scatter for side in configuration.sides if side.good_runs]
    assumed = assume(filter(None, scatters))
    if assumed is None:
        return None
    drift = assumed
    if past is not None:
        drift = past.correct(assumed, configuration, sessions)
    return dataclasses.replace(drift, variance_share=sessions.variance_share)


def assume(scatters: Iterable[Scatter]) -> Drift | None:
    """Return the drift that is assumed from the scatter between runs of a session.

    A session is assumed to move the rate as much as a run does. Few runs, or few
    degrees of freedom, tell little about that.

    Args:
      scatters: The scatter of each side.

    Returns:
      None without a scatter.
    """
    squares = 0.0
    degrees = 0.0
    for scatter in scatters:
        squares += scatter.degrees * scatter.deviation**2
        degrees += scatter.degrees
    if not degrees:
        return None
    deviation = max(math.sqrt(squares / degrees), MIN_ASSUMED_DEVIATION)
    return Drift(deviation, min(_ASSUMED_DEGREES, degrees / 2), Source.ASSUMED)
