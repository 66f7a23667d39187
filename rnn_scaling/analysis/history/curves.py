"""Turns the entries of a history into a curve for each configuration and machine, with its steps.

`check` compares the latest entry of each curve with the level before it, as `compare` judges two sets of runs.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import significance
from rnn_scaling.analysis.comparison import judgement, matching, verdicts
from rnn_scaling.analysis.comparison.judgement import Report
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.analysis.confidence import (
    Interval,
    Scatter,
    interval_over_runs,
    shared_scatters,
)
from rnn_scaling.analysis.history.steps import Levels, levels
from rnn_scaling.analysis.keys import build_key
from rnn_scaling.analysis.metrics import RATE, common_unit
from rnn_scaling.analysis.statements import Statement, Word
from rnn_scaling.analysis.student import t_cdf
from rnn_scaling.records.history import Configuration, Entry
from rnn_scaling.records.options import Options
from rnn_scaling.system.machine import commits


class Range(Word):
    """How many commits a step may be caused by."""

    UNKNOWN = "unknown"
    SAME = "same"
    ONE = "one"
    SEVERAL = "several"


UNKNOWN, SAME, ONE, SEVERAL = Range


@dataclasses.dataclass(frozen=True)
class Point:
    """A curve's value in one entry; place: index of the entry in the history."""

    place: int
    entry: Entry
    configuration: Configuration
    rate: Interval

    def metric(self, name: str) -> float | None:
        """The geometric mean over the processes, as in reports; None if a process lacks the metric."""
        values = self.configuration.metrics.get(name, ())
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        return (
            interval_over_runs(known).value
            if min(known) > 0
            else math.fsum(known) / len(known)
        )


@dataclasses.dataclass(frozen=True)
class Step:
    """A change of level between two consecutive entries."""

    change: Interval  # the rate after / before
    before: Entry
    after: Entry
    commits: int | None  # in the range; None if the repository lacks one of its ends
    versions: Mapping[
        str, tuple[str, str]
    ]  # package -> (before, after), if they differ

    @property
    def range(self) -> Range:
        """The number of commits in its range; SAME if both entries have one commit."""
        if self.before.source[:2] == self.after.source[:2] and self.before.commit:
            return SAME
        if not self.commits:
            return UNKNOWN
        return ONE if self.commits == 1 else SEVERAL


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """One configuration on one machine."""

    title: str
    machine: str
    points: tuple[Point, ...]
    levels: Levels
    process_deviation: (
        float  # standard deviation of the log rates of one entry's processes
    )

    @property
    def unit(self) -> str:
        return self.points[-1].configuration.unit

    @property
    def options(self) -> Mapping[str, Any]:
        return self.points[-1].configuration.options

    @property
    def entry_deviation(self) -> float:
        """Standard deviation of the entries beyond what their processes explain."""
        return math.sqrt(
            max(self.levels.error()[0] ** 2 - self.levels.least_variance, 0.0)
        )

    @functools.cached_property
    def steps(self) -> tuple[Step, ...]:
        return tuple(map(self._step, range(len(self.levels.cuts))))

    def _step(self, i: int) -> Step:
        edges = [0, *self.levels.cuts, len(self.points)]
        before, after = (self.points[edges[i + 1] + k].entry for k in (-1, 0))
        count = (
            commits.between(before.commit.hash, after.commit.hash)
            if before.commit and after.commit
            else None
        )
        names = {**before.versions, **after.versions}
        both = {
            name: (before.versions.get(name, "none"), after.versions.get(name, "none"))
            for name in names
        }
        versions = {name: pair for name, pair in both.items() if pair[0] != pair[1]}
        change = self.levels.change(
            (edges[i], edges[i + 1]), (edges[i + 1], edges[i + 2])
        )
        return Step(change, before, after, count, versions)


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The entries of a history in order, and their curves."""

    entries: tuple[Entry, ...]
    curves: tuple[Curve, ...]


def timeline(entries: Sequence[Entry]) -> Timeline:
    """Order the entries of a history, and make its curves.

    Curves are in the order of machines, as the entries first name them, and then of
    their names: network, update mode, number of devices.
    """
    in_order = ordered(entries)
    groups: dict[tuple, list[tuple[int, Configuration]]] = {}
    for place, entry in enumerate(in_order):
        for configuration in entry.configurations:
            options = Options(configuration.options)
            key = (
                build_key(options, configuration.unit),
                tuple(sorted(configuration.facts.items())),
            )
            host = entry.machine
            groups.setdefault(
                (key, host.name, (host.cpu, host.cores, host.gpus)), []
            ).append((place, configuration))
    labels = dict(zip(groups, matching.labels_of([key for (key, _), _, _ in groups])))
    names = list(dict.fromkeys(machine for _, machine, _ in groups))
    curves = []

    def by_machine_and_name(group: tuple) -> tuple[int, list[tuple[str, int, str]]]:
        (_, facts), machine, _ = group
        title = " ".join([labels[group], *(f"{name} {text}" for name, text in facts)])
        return names.index(machine), _in_natural_order(title)

    for group in sorted(groups, key=by_machine_and_name):
        members = groups[group]
        (_, facts), machine, _ = group
        words = [
            labels[group],
            *(f"{name} {text}" for name, text in facts),
            *([machine] if len(names) > 1 else []),
        ]
        curves.append(_curve(", ".join(words), machine, in_order, members, len(groups)))
    return Timeline(tuple(in_order), tuple(curves))


def _in_natural_order(title: str) -> list[tuple[str, int, str]]:
    """Return a key that sorts titles with their numbers in order.

    >>> sorted(["10 devices", "9 devices"], key=_in_natural_order)
    ['9 devices', '10 devices']
    """
    parts = re.findall(r"(\D*)(\d*)", title)
    return [(text, len(number), number) for text, number in parts]


def ordered(entries: Sequence[Entry]) -> list[Entry]:
    """Orders by the git history if it is known, otherwise by date of the commit, then by time of measurement."""
    known = commits.known([entry.commit.hash for entry in entries if entry.commit])
    dates = {}
    latest = ""
    for name, fact in sorted(known.items(), key=lambda item: item[1].place):
        latest = max(
            latest, fact.date
        )  # a child may have an older date than its parent
        dates[name] = (latest, fact.place)

    def when(entry: Entry) -> tuple[str, int, str]:
        measured = entry.measured or ""
        if entry.commit is None:
            return measured, -1, measured
        return *dates.get(
            entry.commit.hash, (entry.commit.date or measured, -1)
        ), measured

    return sorted(entries, key=when)


def _curve(
    title: str,
    machine: str,
    entries: Sequence[Entry],
    members: Sequence[tuple[int, Configuration]],
    num_curves: int,
) -> Curve:
    rates = [configuration.rates for _, configuration in members]
    scatters = shared_scatters(rates)
    pooled = next(
        (scatter.pool or scatter for scatter in scatters if scatter), Scatter(0.0, 0)
    )
    means = [
        interval_over_runs(of_entry, scatter)
        for of_entry, scatter in zip(rates, scatters)
    ]
    points = [
        Point(place, entries[place], of_entry, mean)
        for (place, of_entry), mean in zip(members, means)
    ]
    found = levels(
        [math.log(mean.value) for mean in means],
        [*map(len, rates)],
        pooled.deviation,
        num_curves,
    )
    return Curve(title, machine, tuple(points), found, pooled.deviation)


def check(history: str, shown: Timeline, max_regression: float) -> Report:
    """Judges the curves that are in the latest entry of their machine; `history`: its name."""
    current = [curve for curve in shown.curves if _is_current(curve, shown)]
    results = verdicts.conclude([_measure(curve) for curve in current], max_regression)
    return Report(
        before=f"the level in {history}",
        after=f"the latest entry, {shown.entries[-1].name}",
        runs=(
            sum(result.runs[0] for result in results),
            sum(result.runs[1] for result in results),
        ),
        metric=RATE.named_after(common_unit(curve.unit for curve in current)),
        max_regression=max_regression,
        results=tuple(results),
        exit_status=judgement.exit_status_of(results),
        only_before=tuple(
            curve.title for curve in shown.curves if curve not in current
        ),
        is_history=True,
    )


def _is_current(curve: Curve, shown: Timeline) -> bool:
    """Whether the latest commit of its machine has the curve; a curve that is no longer measured is not judged."""
    place = curve.points[-1].place
    last = curve.points[-1].entry
    later = [
        entry for entry in shown.entries[place + 1 :] if entry.machine == last.machine
    ]
    return all(entry.commit and entry.source == last.source for entry in later)


def _measure(curve: Curve) -> Result:
    """Compares the latest entry with the level before it, or two levels if this entry revealed a step."""
    levels = curve.levels
    last = len(curve.points) - 1
    edges = [0, *levels.cuts]
    if levels.found[-1:] == (last,):
        before = (edges[-2], edges[-1])
        after = (edges[-1], last + 1)
        stop = last + 1
    else:
        before = (edges[-1], last)
        after = (last, last + 1)
        stop = last
    sizes = [len(point.configuration.rates) for point in curve.points]
    runs = (sum(sizes[slice(*before)]), sum(sizes[slice(*after)]))
    if len(curve.points) < 3:
        return Result(
            curve.title,
            runs,
            after=curve.points[-1].rate,
            reason=Statement("too-few-entries"),
        )
    change = levels.change(before, after, stop)
    error = change.relative_error or 1.0
    ratio = change.value
    p_value = 2 * (1 - t_cdf(abs(math.log(ratio)) / error, change.degrees))
    detectable = -math.expm1(-significance.detectable_effect(error, change.degrees))
    comparison = significance.Comparison(
        change, p_value, detectable, False, significance.Verdict.UNJUDGED
    )
    return Result(
        curve.title,
        runs,
        levels.rate(before, stop),
        levels.rate(after, stop),
        comparison,
    )
