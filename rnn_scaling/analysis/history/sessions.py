"""Earlier sessions of a machine, which show its drift between sessions.

`compare` reads earlier sessions, and `comparison.drift` uses them.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rnn_scaling.analysis.comparison.drift import (
    Drift,
    Source,
    TwoSessions,
    parse_timestamp,
)
from rnn_scaling.analysis.comparison.matching import Configuration, InputError
from rnn_scaling.analysis.confidence import Scatter, compute_shared_scatters
from rnn_scaling.analysis.history import entries
from rnn_scaling.analysis.history.levels import find_levels
from rnn_scaling.records import folder as folders
from rnn_scaling.records import history
from rnn_scaling.records.history import Entry

# Fewest earlier sessions that are used.
_MIN_SESSIONS = 3
# Entries this far apart are different sessions. If the compared sides are closer to
# each other, so may be the entries.
_MAX_GAP_S = 3600.0


@dataclasses.dataclass(frozen=True)
class PastSessions:
    """Entries of earlier sessions, maybe of several machines."""

    entries: tuple[Entry, ...]

    def correct(
        self, assumed: Drift, configuration: Configuration, sessions: TwoSessions
    ) -> Drift:
        """Return the drift of a configuration, as `comparison.drift.Past` says."""
        rates = _group_rates_by_session(configuration, sessions, self.entries)
        return add_session_drift(assumed, rates)


def add_session_drift(assumed: Drift, sessions: Sequence[Sequence[float]]) -> Drift:
    """Return the drift that earlier sessions show, together with the assumed one.

    Lasting changes of the rate between sessions, as `history` finds them, are not
    drift. The variance that the runs of a session explain is subtracted. Both variances
    are weighted by their degrees of freedom, so an estimate from many sessions
    prevails.

    Args:
      assumed: The assumed drift.
      sessions: Rates of the runs of each session, in the order of time.

    Returns:
      The assumed drift with fewer than _MIN_SESSIONS sessions.
    """
    if len(sessions) < _MIN_SESSIONS:
        return assumed
    scatter = next(filter(None, compute_shared_scatters(sessions)), Scatter(0.0, 0))
    run_deviation = (scatter.pool or scatter).deviation
    means = [statistics.fmean(map(math.log, rates)) for rates in sessions]
    levels = find_levels(means, list(map(len, sessions)), run_deviation)
    deviation, degrees = levels.error()
    if degrees < _MIN_SESSIONS - 1:
        return assumed
    variance = max(0.0, deviation**2 - levels.least_variance)
    total = assumed.degrees + degrees
    squares = assumed.degrees * assumed.deviation**2 + degrees * variance
    return Drift(math.sqrt(squares / total), total, Source.HISTORY, len(sessions))


def _group_rates_by_session(
    configuration: Configuration, sessions: TwoSessions, past: Sequence[Entry]
) -> list[list[float]]:
    """Return the rates of the configuration in each earlier session.

    If an option was changed, these are the sessions of the side that has more.
    """
    longest_rates: list[list[float]] = []
    for side in configuration.sides:
        if not side.good_runs:
            continue
        key = entries.make_curve_key_of_row(side)
        rates = list(_list_curve_rates(key, sessions, past))
        if len(rates) > len(longest_rates):
            longest_rates = rates
    return longest_rates


def _list_curve_rates(
    key: object, sessions: TwoSessions, past: Sequence[Entry]
) -> Iterator[list[float]]:
    """Yield the rates of the sessions of a curve, in the order of time.

    An entry during one of the compared sessions, or disturbed by other processes, is
    left out. So is an entry that
    follows another one sooner than the compared sessions follow each other, because it
    is not a separate session.
    """
    gap_s = min(sessions.apart_s, _MAX_GAP_S)
    last = -math.inf
    for time, entry in sorted(_list_entries_with_times(past), key=lambda item: item[0]):
        if any(first <= time <= stop for first, stop in sessions.spans):
            continue
        if time - last < gap_s:
            continue
        for configuration in entry.configurations:
            entry_key = entries.make_curve_key(
                configuration.options,
                configuration.facts,
                configuration.unit,
                entry.machine,
            )
            if entry_key == key and not configuration.is_disturbed:
                yield list(configuration.rates)
                last = time


def _list_entries_with_times(past: Iterable[Entry]) -> Iterator[tuple[float, Entry]]:
    for entry in past:
        time = parse_timestamp(entry.measured)
        if time is not None:
            yield time, entry


def read(paths: Sequence[Path]) -> PastSessions:
    """Return the sessions in histories and in folders of run records.

    Raises:
      InputError: If a folder has neither.
    """
    all_entries: list[Entry] = []
    for path in paths:
        try:
            in_history = history.read(path).entries
            records = [file.record for file in folders.read(path).runs]
        except OSError as e:
            raise InputError(f"{path}: {e.strerror or e}") from None
        folder_entries = [*in_history, *entries.build_entries(records)]
        if not folder_entries:
            raise InputError(
                f"{path} has no history entries and no good run records; "
                "name a history or the results of a sweep"
            )
        all_entries += folder_entries
    return PastSessions(tuple(all_entries))
