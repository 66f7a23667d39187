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
from rnn_scaling.analysis.comparison.differences import Difference, some
from rnn_scaling.analysis.comparison.matching import (
    Change,
    ComparedRuns,
    Configuration,
    InputError,
)
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.analysis.facts.table import OF_MACHINES, Severity
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
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.significance import Gate, Verdict
from rnn_scaling.analysis.statements import Statement, Word
from rnn_scaling.config import scale
from rnn_scaling.system import entry

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


class MachineVerdict(Word):
    """Which machine is faster."""

    FASTER = "faster"  # the one after
    SLOWER = "slower"
    TIE = "tie"
    UNKNOWN = "unknown"


_MACHINE_VERDICTS = dict(zip(Verdict, MachineVerdict))


@dataclasses.dataclass(frozen=True)
class MachineRatio:
    """Which machine is faster in one series, by the ratio of items/s after / before."""

    kind: MachineVerdict
    scope: str  # PER_DEVICE or ALL_DEVICES
    series: str
    devices: tuple[int, ...]  # of each machine
    ratio: float | None
    low: float | None
    high: float | None
    reason: Statement | None  # why it is unknown


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


def plain_name(text: str) -> str:
    """ "CPU model" and "--batch_size" as they are written in --force_incomparable: cpu_model, batch_size."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def read(before: Path, after: Path) -> tuple[ComparedRuns, ComparedRuns]:
    """Both sets of runs; an InputError has a line for each path that holds nothing to compare."""
    if before.resolve() == after.resolve():
        raise InputError(f"{before} and {after} are the same runs; name two sets")
    sides = []
    errors = []
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
    match = matching.match_machines if question.across else matching.match
    changes, configurations = match(before, after)
    records = [*before.records, *after.records]
    unit = common_unit(run.unit for run in records)
    metric = METRICS[question.metric].named_after(unit)
    is_relative = metric.ideal is not None
    common = [
        matching.without_disturbed(configuration, question.paired, is_relative)
        for configuration in _in_common(before, after, configurations, metric)
    ]
    missing = [c.label for c in configurations if c.after is None]
    labelled = _labelled(common, missing, question)
    accepted: list[LabelledDifference] = []
    stopping: list[LabelledDifference] = []
    for found in labelled:
        if found.difference.is_grave:
            is_accepted = question.accepts(found.difference)
            (accepted if is_accepted else stopping).append(found)
    two_sittings = (
        not question.paired
        and not question.across
        and matching.two_sittings(before, after)
    )
    results = _results(common, metric, question, two_sittings, stopping)
    sides = (("before", before), ("after", after))
    machines = None
    if question.across:
        machines = _machine_of(common[0].sides[0]), _machine_of(common[0].sides[1])
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
        accepted=tuple([found.difference.what for found in accepted]),
        within=tuple(
            [(when, tuple(differences.within(side.good_runs))) for when, side in sides]
        ),
        only_after=tuple([c.label for c in configurations if c.before is None]),
        exit_status=exit_status_of(results, bool(stopping)),
        only_before=tuple(missing) if question.across else (),
        machines=machines,
        machine_ratios=tuple(_machine_ratios(common, results)),
        machine_costs=tuple(
            costs.of_sides((before, after), common, results, question.prices, unit)
        ),
        step_time=LATENCY if is_inference(records) else STEP_TIME,
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
        shown = [some([c.label for c in configurations if c.before], "; ")]
        shown.append(some([c.label for c in configurations if c.after], "; "))
        raise InputError(
            f"no configuration is in both: {before.path} has {shown[0]}; {after.path} has {shown[1]}"
        )
    if metric.ideal is None:
        return common
    scaled = [c for c in common if max(side.num_devices for side in c.sides) > 1]
    if not scaled:
        raise InputError(
            f"no configuration with several devices is on both sides; --metric={metric.name} of one device is 1"
        )
    return scaled


def _labelled(
    common: Sequence[Configuration], missing: Sequence[str], question: Question
) -> list[LabelledDifference]:
    """All differences, missing configurations among them; raises InputError if both machines are one."""
    labelled = _differences(common)
    if question.across:
        if not any(of_machine(found.difference) for found in labelled):
            name = _machine_of(common[0].sides[0])
            raise InputError(
                f"the records show no difference between the machines ({name}); leave out --across"
            )
    elif missing:
        # Without labels: it says nothing against those that are there.
        labelled.append(LabelledDifference(differences.of_missing(missing), ()))
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
        names = dict.fromkeys(
            [f.difference.what for f in stopping if configuration.label in f.labels]
        )
        if names and result.reason is None:
            reason = Statement("incomparable", values={"facts": ", ".join(names)})
            result = dataclasses.replace(result, reason=reason)
        results.append(result)
    results = verdicts.conclude(results, question.max_regression)
    if question.across:
        return [
            dataclasses.replace(result, gate=Gate.PASSED, reason=None)
            if result.p_adjusted is not None
            else result
            for result in results
        ]
    return results


def of_machine(difference: Difference) -> bool:
    """Return whether a difference describes the machine."""
    return difference.what in (*OF_MACHINES, *MACHINE_OPTIONS)


def _machine_of(side: Row) -> str:
    return machine(side.good_runs[0]).name


def _machine_ratios(
    configurations: Sequence[Configuration], results: Sequence[Result]
) -> Iterator[MachineRatio]:
    for configuration, result in zip(configurations, results):
        ratio = result.comparison.ratio if result.comparison else None
        devices = tuple([side.num_devices for side in configuration.sides])
        for scope in configuration.scopes:
            yield MachineRatio(
                _MACHINE_VERDICTS[result.verdict],
                scope,
                result.label,
                devices,
                ratio.value if ratio else None,
                ratio.low if ratio else None,
                ratio.high if ratio else None,
                result.reason,
            )


def _differences(configurations: Sequence[Configuration]) -> list[LabelledDifference]:
    """Each difference once, with the configurations that have it; without options that leave the work the same."""
    merged: dict[tuple[str, str, Severity], tuple[Difference, list[str]]] = {}
    for configuration in configurations:
        before, after = [side.good_runs for side in configuration.sides]
        if not before or not after:
            continue
        for difference in differences.differences(before, after):
            if difference.what.startswith("--") and not difference.is_grave:
                continue
            key = (difference.what, difference.effect, difference.severity)
            labels = merged.setdefault(key, (difference, []))[1]
            labels.append(configuration.label)
    labelled = [
        LabelledDifference(difference, tuple(labels))
        for difference, labels in merged.values()
    ]
    return sorted(labelled, key=lambda found: not found.difference.is_grave)


def exit_status_of(results: Sequence[verdicts.Result], stopped: bool = False) -> int:
    gates = {result.gate for result in results}
    if Gate.REGRESSION in gates:
        return entry.EXIT_FAILED
    return entry.EXIT_USAGE if stopped or gates != {Gate.PASSED} else entry.EXIT_OK
