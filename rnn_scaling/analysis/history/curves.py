"""Curves of a history, one for each configuration and machine, with their change points.

`check` compares the latest entry of each curve with the level before it, like `compare`
judges two sets of runs.

The command `history` shows a `Timeline`; `levels` finds the change points.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import significance
from rnn_scaling.analysis.comparison import judgement, matching, verdicts
from rnn_scaling.analysis.comparison.judgement import Report
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.analysis.confidence import (
    Interval,
    Scatter,
    compute_interval_over_runs,
    compute_shared_scatters,
)
from rnn_scaling.analysis.history.entries import make_curve_key
from rnn_scaling.analysis.history.levels import Levels, find_levels
from rnn_scaling.analysis.interval_kinds import Note
from rnn_scaling.analysis.keys import Key, build_key
from rnn_scaling.analysis.metrics import RATE, find_common_unit
from rnn_scaling.analysis.statements import Word, state
from rnn_scaling.analysis.student import t_cdf
from rnn_scaling.records.history import Configuration, Entry
from rnn_scaling.records.options import Options
from rnn_scaling.system.machine import commits
from rnn_scaling.system.machine.load import NOTICEABLE_LOAD


class Range(Word):
    """The number of commits that may have caused a change point."""

    UNKNOWN = "unknown"
    SAME = "same"
    ONE = "one"
    SEVERAL = "several"


@dataclasses.dataclass(frozen=True)
class Point:
    """The value of a curve in one entry."""

    index: int  # position of the entry in the history
    entry: Entry
    configuration: Configuration
    rate: Interval

    @property
    def is_disturbed(self) -> bool:
        """Whether it is left out of the search, because of other processes."""
        return self.configuration.is_disturbed

    def metric(self, name: str) -> float | None:
        """Return a metric's geometric mean over the runs, like reports.

        Returns:
          The arithmetic mean if a value is 0; None if a process lacks the metric.
        """
        values = self.configuration.metrics.get(name, ())
        recorded = [value for value in values if value is not None]
        if not recorded or len(recorded) < len(values):
            return None
        if min(recorded) > 0:
            return compute_interval_over_runs(recorded).value
        return math.fsum(recorded) / len(recorded)


@dataclasses.dataclass(frozen=True)
class ChangePoint:
    """A lasting change of the rate between two consecutive entries of a curve.

    Attributes:
      change: The rate after / before.
      before: The last entry of the old level.
      after: The first entry of the new level.
      commits: Commits between them; None if the repository lacks one of the two.
      versions: Package -> its versions before and after, if they differ.
    """

    change: Interval
    before: Entry
    after: Entry
    commits: int | None
    versions: Mapping[str, tuple[str, str]]

    @property
    def range(self) -> Range:
        """The number of commits; SAME if both entries have one commit."""
        if self.before.source[:2] == self.after.source[:2] and self.before.commit:
            return Range.SAME
        if not self.commits:
            return Range.UNKNOWN
        return Range.ONE if self.commits == 1 else Range.SEVERAL


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """One configuration on one machine.

    Attributes:
      title: The name of the curve.
      machine: The name of the machine.
      points: The entries of the curve, in order.
      levels: The search over `quiet_points`; its indices are positions in them.
      run_deviation: Deviation of log rates between runs of an entry.
    """

    title: str
    machine: str
    points: tuple[Point, ...]
    levels: Levels
    run_deviation: float

    @functools.cached_property
    def quiet_points(self) -> tuple[Point, ...]:
        """The points without the entries that other processes disturbed."""
        return tuple(point for point in self.points if not point.is_disturbed)

    @property
    def unit(self) -> str:
        return self.points[-1].configuration.unit

    @property
    def options(self) -> Mapping[str, Any]:
        return self.points[-1].configuration.options

    @property
    def entry_deviation(self) -> float:
        """Standard deviation of the entries that their runs do not explain."""
        variance = self.levels.error()[0] ** 2 - self.levels.least_variance
        return math.sqrt(max(variance, 0.0))

    @functools.cached_property
    def change_points(self) -> tuple[ChangePoint, ...]:
        """The change points, in the order of the entries.

        The first access may ask git for the commits between two entries.
        """
        edges = [0, *self.levels.cuts, len(self.quiet_points)]
        change_points = []
        for start, cut, stop in zip(edges, edges[1:], edges[2:]):
            change = self.levels.change((start, cut), (cut, stop))
            before = self.quiet_points[cut - 1].entry
            after = self.quiet_points[cut].entry
            change_points.append(_make_change_point(change, before, after))
        return tuple(change_points)


def _make_change_point(change: Interval, before: Entry, after: Entry) -> ChangePoint:
    num_commits = None
    if before.commit and after.commit:
        num_commits = commits.count_commits(before.commit.hash, after.commit.hash)
    versions = {}
    for name in {**before.versions, **after.versions}:
        version_before = before.versions.get(name, "none")
        version_after = after.versions.get(name, "none")
        if version_before != version_after:
            versions[name] = (version_before, version_after)
    return ChangePoint(
        change, before=before, after=after, commits=num_commits, versions=versions
    )


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The entries of a history in order, and their curves."""

    entries: tuple[Entry, ...]
    curves: tuple[Curve, ...]


@dataclasses.dataclass
class _Group:
    """The entries of one curve."""

    key: Key
    facts: tuple[tuple[str, str], ...]
    machine: str
    members: list[
        tuple[int, Configuration]
    ]  # the index of the entry, and its configuration


def build_timeline(entries: Sequence[Entry]) -> Timeline:
    """Order the entries of a history, and build its curves.

    Curves are sorted by machine, in the order of the first entries, and then by name:
    network, update mode, number of devices.
    """
    in_order = sort_entries(entries)
    groups = _group(in_order)
    machines = list(dict.fromkeys(group.machine for group in groups))
    labels = matching.build_labels([group.key for group in groups])
    titled = []
    for label, group in zip(labels, groups):
        parts = [label, *(f"{name} {text}" for name, text in group.facts)]
        order = (machines.index(group.machine), _make_natural_sort_key(" ".join(parts)))
        if len(machines) > 1:
            parts.append(group.machine)
        titled.append((order, ", ".join(parts), group))
    titled.sort(key=lambda item: item[0])
    curves = [
        _make_curve(title, group, in_order, len(groups)) for _, title, group in titled
    ]
    return Timeline(tuple(in_order), tuple(curves))


def _group(entries: Sequence[Entry]) -> list[_Group]:
    """Return the entries of each configuration and machine."""
    groups: dict[Hashable, _Group] = {}
    for index, entry in enumerate(entries):
        for configuration in entry.configurations:
            identity = make_curve_key(
                configuration.options,
                configuration.facts,
                configuration.unit,
                entry.machine,
            )
            if identity not in groups:
                # Entries leave out defaults, which are unknown for other programs.
                options = {"num_devices": 1, **configuration.options}
                key = build_key(Options(options), configuration.unit)
                facts = tuple(sorted(configuration.facts.items()))
                groups[identity] = _Group(key, facts, entry.machine.name, [])
            groups[identity].members.append((index, configuration))
    return list(groups.values())


def _make_natural_sort_key(title: str) -> list[tuple[str, int, str]]:
    """Return a key that sorts titles with their numbers in order.

    >>> sorted(["10 devices", "9 devices"], key=_make_natural_sort_key)
    ['9 devices', '10 devices']
    """
    parts = re.findall(r"(\D*)(\d*)", title)
    return [(text, len(number), number) for text, number in parts]


def sort_entries(entries: Sequence[Entry]) -> list[Entry]:
    """Return entries in the order of the git history, then of their measurement.

    If the repository lacks a commit, its date is used.
    """
    facts = commits.find([entry.commit.hash for entry in entries if entry.commit])
    orders = {}
    latest = ""
    for name, fact in sorted(facts.items(), key=lambda item: item[1].place):
        # A child may have an older date than its parent.
        latest = max(latest, fact.date)
        orders[name] = (latest, fact.place)

    def sort_key(entry: Entry) -> tuple[str, int, str]:
        measured = entry.measured or ""
        if entry.commit is None:
            return measured, -1, measured
        date = entry.commit.date or measured
        return *orders.get(entry.commit.hash, (date, -1)), measured

    return sorted(entries, key=sort_key)


def _make_curve(
    title: str, group: _Group, entries: Sequence[Entry], num_curves: int
) -> Curve:
    quiet = [member for member in group.members if not member[1].is_disturbed]
    disturbed = [member for member in group.members if member[1].is_disturbed]
    quiet_points, deviation = _make_points(quiet, entries)
    disturbed_points, _ = _make_points(disturbed, entries)
    points = sorted([*quiet_points, *disturbed_points], key=lambda point: point.index)
    levels = find_levels(
        [math.log(point.rate.value) for point in quiet_points],
        [len(point.configuration.rates) for point in quiet_points],
        deviation,
        num_curves,
    )
    return Curve(title, group.machine, tuple(points), levels, deviation)


def _make_points(
    members: Sequence[tuple[int, Configuration]], entries: Sequence[Entry]
) -> tuple[list[Point], float]:
    """Return points that share their scatter, and the deviation of their runs.

    Args:
      members: The configurations, with the indices of their entries.
      entries: The entries of the history.
    """
    scatters = compute_shared_scatters(
        [configuration.rates for _, configuration in members]
    )
    pooled = next(
        (scatter.pool or scatter for scatter in scatters if scatter), Scatter(0.0, 0)
    )
    points = []
    for (index, configuration), scatter in zip(members, scatters):
        rate = compute_interval_over_runs(configuration.rates, scatter)
        if configuration.is_disturbed:
            kind = rate.kind.with_note(Note.DISTURBED)
            rate = dataclasses.replace(rate, kind=kind)
        points.append(Point(index, entries[index], configuration, rate))
    return points, pooled.deviation


def check(name: str, timeline: Timeline, max_regression: float) -> Report:
    """Return the judgement of the curves in the latest entry of their machine.

    Args:
      name: Name of the history.
      timeline: The entries and curves of the history.
      max_regression: The largest slow-down that passes, a share.
    """
    judged_curves = []
    only_before = []
    for curve in timeline.curves:
        if _is_measured_last(curve, timeline):
            judged_curves.append(curve)
        else:
            only_before.append(curve.title)
    results = verdicts.conclude(list(map(_measure, judged_curves)), max_regression)
    return Report(
        before=f"the level in {name}",
        after=f"the latest entry, {timeline.entries[-1].name}",
        runs=(
            sum(result.runs[0] for result in results),
            sum(result.runs[1] for result in results),
        ),
        metric=RATE.with_unit(find_common_unit(curve.unit for curve in judged_curves)),
        max_regression=max_regression,
        results=tuple(results),
        exit_status=judgement.choose_exit_status(results),
        only_before=tuple(only_before),
        is_history=True,
    )


def _is_measured_last(curve: Curve, timeline: Timeline) -> bool:
    """Return whether the latest commit of the curve's machine has the curve.

    Otherwise it is no longer measured.
    """
    last = curve.points[-1]
    for entry in timeline.entries[last.index + 1 :]:
        if entry.machine != last.entry.machine:
            continue
        if not entry.commit or entry.source != last.entry.source:
            return False
    return True


def _measure(curve: Curve) -> Result:
    """Return the change from the level before the latest entry to this entry.

    If the latest entry revealed a change point, its two levels are compared. Disturbed
    entries do not count. If the latest commit has no other entry, it is not judged.
    """
    latest = curve.points[-1]
    points = curve.quiet_points
    if not any(_has_commit_of(latest, point) for point in points[-1:]):
        return Result(
            curve.title,
            (_count_runs(points), len(latest.configuration.rates)),
            after=latest.rate,
            reason=state("disturbed-entry", threshold=NOTICEABLE_LOAD),
        )
    levels = curve.levels
    last = len(points) - 1
    edges = [0, *levels.cuts]
    if levels.found[-1:] == (last,):
        level_before = (edges[-2], edges[-1])
        level_after = (edges[-1], last + 1)
        stop = last + 1
    else:
        level_before = (edges[-1], last)
        level_after = (last, last + 1)
        stop = last
    runs = (
        _count_runs(points[slice(*level_before)]),
        _count_runs(points[slice(*level_after)]),
    )
    if len(points) < 3:
        return Result(
            curve.title,
            runs,
            after=points[-1].rate,
            reason=state("too-few-entries"),
        )
    change = levels.change(level_before, level_after, stop)
    error = change.relative_error or 1.0
    t = abs(math.log(change.value)) / error
    detectable = -math.expm1(
        -significance.compute_detectable_effect(error, change.degrees)
    )
    comparison = significance.Comparison(
        ratio=change,
        p_value=2 * (1 - t_cdf(t, change.degrees)),
        detectable=detectable,
        paired=False,
        verdict=significance.Verdict.UNJUDGED,
    )
    return Result(
        curve.title,
        runs,
        levels.rate(level_before, stop),
        levels.rate(level_after, stop),
        comparison,
    )


def _has_commit_of(latest: Point, point: Point) -> bool:
    """Return whether a point is the latest one, or of the same commit."""
    if point is latest:
        return True
    return bool(point.entry.commit) and point.entry.source == latest.entry.source


def _count_runs(points: Sequence[Point]) -> int:
    return sum(len(point.configuration.rates) for point in points)
