"""Two sets of runs -> what changed, whether it is real, and what makes them incomparable."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rnn_scaling.analysis.comparison import (
    costs,
    differences,
    matching,
    step_times,
    verdicts,
)
from rnn_scaling.analysis.comparison.compared_metrics import CHOICES
from rnn_scaling.analysis.comparison.costs import MachineCost
from rnn_scaling.analysis.comparison.differences import Difference
from rnn_scaling.analysis.comparison.matching import (
    Change,
    ComparedRuns,
    Configuration,
    InputError,
)
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.analysis.facts.table import INCOMPARABLE, OF_MACHINES
from rnn_scaling.analysis.machines import machine
from rnn_scaling.analysis.metrics import (
    LATENCY,
    METRICS,
    RATE,
    STEP_TIME,
    Metric,
    common_unit,
    is_inference,
)
from rnn_scaling.analysis.prices import PriceList
from rnn_scaling.config import scale
from rnn_scaling.system import entry

MISSING = "missing configurations"
MACHINE = "machine"  # what `across` compares
MACHINE_OPTIONS = tuple(
    f"--{name}" for name in ("device", *scale.AXES)
)  # that follow from the machine
ALL = "all"


@dataclasses.dataclass(frozen=True)
class Question:
    metric: str = RATE.name
    paired: bool = False  # the runs of the same repeat number ran next to each other
    max_regression: float = 0.05  # the largest slow-down that passes, a share
    accepted: frozenset[str] = (
        frozenset()
    )  # plain names of differences that are no obstacle; "all": none is
    across: str = ""  # MACHINE: the sides are two machines, and what describes these is no obstacle; "": it is
    prices: Sequence[PriceList] = ()  # of each side; empty: no prices

    def __post_init__(self) -> None:
        if self.metric not in CHOICES:
            raise ValueError(
                f"metric={self.metric} must be one of {', '.join(CHOICES)}"
            )
        if self.across and (self.paired or self.metric != RATE.name):
            raise ValueError(
                f"across={self.across} compares {RATE.name} of unpaired runs; leave out paired and metric"
            )
        if not 0 <= self.max_regression < 1:
            raise ValueError(
                f"max_regression={self.max_regression} must be a share from 0 to below 1"
            )

    def accepts(self, difference: Difference) -> bool:
        """Whether the difference is no obstacle."""
        is_expected = bool(self.across) and of_machine(difference)
        return is_expected or not self.accepted.isdisjoint(
            {ALL, plain_name(difference.what)}
        )


@dataclasses.dataclass(frozen=True)
class LabelledDifference:
    difference: Difference
    labels: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class MachineRatio:
    """Which machine is faster in one series: "faster" (the one after), "slower", "tie" or "unknown"."""

    kind: str
    scope: str  # PER_DEVICE or ALL_DEVICES
    series: str
    devices: tuple[int, int]  # of each machine
    ratio: float | None  # items/s after / before with its interval
    low: float | None
    high: float | None
    reason: str  # why it is unknown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    before: str
    after: str
    runs: tuple[int, int]  # records read on each side
    metric: Metric
    paired: bool = False
    two_sittings: bool = False  # one side ran after the other
    max_regression: float
    changes: tuple[Change, ...] = ()
    results: tuple[Result, ...]
    found: tuple[
        LabelledDifference, ...
    ] = ()  # a key of the JSON, as all these names are
    accepted: tuple[str, ...] = ()  # differences that were forced
    within: tuple[tuple[str, tuple[Difference, ...]], ...] = ()
    only_after: tuple[str, ...] = ()
    exit_status: int
    only_before: tuple[str, ...] = ()  # series that only the first of these ran
    machines: tuple[str, str] | None = None  # their names, where machines are compared
    machine_ratios: tuple[MachineRatio, ...] = ()
    machine_costs: tuple[MachineCost, ...] = ()  # empty without prices
    step_time: str = STEP_TIME  # what the time of a batch is called
    is_history: bool = (
        False  # the latest entry of a history is compared with those before
    )


def some(labels: Sequence[str]) -> str:
    return differences.some(labels, "; ")


def plain_name(text: str) -> str:
    """ "CPU model" and "--batch_size" as they are written in --force_incomparable: cpu_model, batch_size."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def read(before: Path, after: Path) -> tuple[ComparedRuns, ComparedRuns]:
    """Both sets of runs; an InputError has a line for each path that holds nothing to compare."""
    if before.resolve() == after.resolve():
        raise InputError(f"{before} and {after} are the same runs; name two sets")
    sides, errors = [], []
    for path in (before, after):
        try:
            sides.append(matching.read(path))
        except InputError as e:
            errors.append(str(e))
    if errors:
        raise InputError("\n".join(errors))
    return sides[0], sides[1]


def judge(before: ComparedRuns, after: ComparedRuns, question: Question) -> Report:
    """Matches, judges and finds what makes the runs incomparable; raises InputError if nothing is on both sides."""
    changes, configurations = (
        matching.match_machines if question.across else matching.match
    )(before, after)
    unit = common_unit(
        file.record.unit for side in (before, after) for file in side.runs
    )
    metric = METRICS[question.metric].named_after(unit)
    common = []
    for configuration in _in_common(before, after, configurations, metric):
        is_relative = metric.ideal is not None
        common.append(
            matching.without_disturbed(configuration, question.paired, is_relative)
        )
    missing = [c.label for c in configurations if c.after is None]
    labelled = _labelled(common, missing, question)
    grave = [f for f in labelled if f.difference.is_grave]
    stopping = [f for f in grave if not question.accepts(f.difference)]
    two_sittings = (
        not question.paired
        and not question.across
        and matching.two_sittings(before, after)
    )
    results = _results(common, metric, question, two_sittings, stopping)
    new = [c.label for c in configurations if c.before is None]
    return Report(
        before=str(before.path),
        after=str(after.path),
        runs=(len(before.runs), len(after.runs)),
        metric=metric,
        paired=question.paired,
        two_sittings=two_sittings,
        max_regression=question.max_regression,
        changes=changes,
        results=tuple(results),
        found=tuple(labelled),
        accepted=tuple(
            f.difference.what for f in grave if question.accepts(f.difference)
        ),
        within=tuple(
            (
                when,
                tuple(
                    differences.within(
                        [file.record for file in matching.good(side.runs)]
                    )
                ),
            )
            for when, side in (("before", before), ("after", after))
        ),
        only_after=tuple(new),
        exit_status=exit_status_of(results, bool(stopping)),
        only_before=tuple(missing) if question.across else (),
        machines=(_machine_of(common[0].sides[0]), _machine_of(common[0].sides[1]))
        if question.across
        else None,
        machine_ratios=tuple(_machine_ratios(common, results)),
        machine_costs=tuple(
            costs.of_sides((before, after), common, results, question.prices, unit)
        ),
        step_time=LATENCY
        if is_inference(file.record for file in (*before.runs, *after.runs))
        else STEP_TIME,
    )


def _in_common(
    before: ComparedRuns,
    after: ComparedRuns,
    configurations: Sequence[Configuration],
    metric: Metric,
) -> list[Configuration]:
    """The configurations of both sides; of a metric relative to one device, those with several devices."""
    common = [c for c in configurations if len(c.sides) == 2]
    if not common:
        shown = [some([c.label for c in configurations if c.before])]
        shown.append(some([c.label for c in configurations if c.after]))
        raise InputError(
            f"no configuration is in both: {before.path} has {shown[0]}; {after.path} has {shown[1]}"
        )
    scaled = [c for c in common if max(side.num_devices for side in c.sides) > 1]
    if metric.ideal is not None and not scaled:
        raise InputError(
            f"no configuration with several devices is on both sides; --metric={metric.name} of one device is 1"
        )
    return scaled if metric.ideal is not None else common


def _labelled(
    common: Sequence[Configuration], missing: Sequence[str], question: Question
) -> list[LabelledDifference]:
    """All differences, missing configurations among them; raises InputError if both machines are one."""
    labelled = _differences(common)
    if question.across:
        if not any(of_machine(f.difference) for f in labelled):
            name = _machine_of(common[0].sides[0])
            raise InputError(
                f"the records show no difference between the machines ({name}); leave out --across"
            )
    elif missing:
        words = (
            some(missing),
            "no run",
            "what was not run again cannot be judged",
            INCOMPARABLE,
        )
        # Without labels: it says nothing against those that are there.
        labelled.append(LabelledDifference(Difference(MISSING, *words), ()))
    return labelled


def _results(
    common: Sequence[Configuration],
    metric: Metric,
    question: Question,
    two_sittings: bool,
    stopping: Sequence[LabelledDifference],
) -> list[Result]:
    """Each configuration judged; those with a difference in `stopping` cannot be."""
    results = []
    for configuration in common:
        result = verdicts.measure(configuration, metric, question.paired, two_sittings)
        if result.comparison:
            changes = step_times.of_configuration(
                configuration, question.paired, two_sittings
            )
            result = dataclasses.replace(result, step_times=changes)
        names = [f.difference.what for f in stopping if configuration.label in f.labels]
        if names and not result.reason:
            result = dataclasses.replace(
                result, reason=f"incomparable: {', '.join(dict.fromkeys(names))}"
            )
        results.append(result)
    results = verdicts.conclude(results, question.max_regression)
    if question.across:
        return [
            dataclasses.replace(r, gate="ok", reason="")
            if r.p_adjusted is not None
            else r
            for r in results
        ]
    return results


def of_machine(difference: Difference) -> bool:
    return difference.what in (*OF_MACHINES, *MACHINE_OPTIONS)


def _machine_of(side: matching.Runs) -> str:
    return machine(matching.good(side.files)[0].record).name


def _machine_ratios(
    configurations: Sequence[Configuration], results: Sequence[Result]
) -> Iterator[MachineRatio]:
    for configuration, result in zip(configurations, results):
        ratio = result.comparison.ratio if result.comparison else None
        value, low, high = (
            (ratio.value, ratio.low, ratio.high) if ratio else (None, None, None)
        )
        kind = {"no difference seen": "tie", "cannot judge": "unknown"}.get(
            result.verdict, result.verdict
        )
        devices = [side.num_devices for side in configuration.sides]
        for scope in configuration.scopes:
            yield MachineRatio(
                kind,
                scope,
                result.label,
                (devices[0], devices[1]),
                value,
                low,
                high,
                result.reason,
            )


def _differences(configurations: Sequence[Configuration]) -> list[LabelledDifference]:
    """Each difference once, with the configurations that have it; without options that leave the work the same."""
    merged: dict[tuple[str, str, str], list] = {}
    for c in configurations:
        sides = [
            [file.record for file in matching.good(side.files)] for side in c.sides
        ]
        if not all(sides):
            continue
        for difference in differences.differences(*sides):
            if difference.what.startswith("--") and not difference.is_grave:
                continue
            key = (difference.what, difference.effect, difference.severity)
            merged.setdefault(key, [difference, []])[1].append(c.label)
    labelled = [
        LabelledDifference(difference, tuple(labels))
        for difference, labels in merged.values()
    ]
    return sorted(labelled, key=lambda f: not f.difference.is_grave)


def exit_status_of(results: Sequence[verdicts.Result], stopped: bool = False) -> int:
    if any(result.gate == "regression" for result in results):
        return entry.EXIT_FAILED
    is_unsure = stopped or not results or any(result.gate != "ok" for result in results)
    return entry.EXIT_USAGE if is_unsure else entry.EXIT_OK
