"""Judgement of two sets of runs: their changes, verdicts and differences.

`compare`, `ab`, the pytest plug-in and histories ask a `Question` and get a `Report`.
`matching` pairs the configurations, `verdicts` tests them, and `differences` finds out
whether they are comparable; this module only combines the results. The fields of
`Report` are keys of JSON files: never rename one.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.comparison import (
    costs,
    differences,
    drift,
    matching,
    step_times,
    verdicts,
)
from rnn_scaling.analysis.comparison.compared_metrics import CHOICES
from rnn_scaling.analysis.comparison.costs import MachineCost
from rnn_scaling.analysis.comparison.differences import Difference, join_some
from rnn_scaling.analysis.comparison.drift import Past, TwoSessions
from rnn_scaling.analysis.comparison.matching import (
    Change,
    ComparedRuns,
    Configuration,
    InputError,
)
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.analysis.facts.table import OF_MACHINES
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.machines import identify_machine
from rnn_scaling.analysis.metrics import (
    LATENCY,
    METRICS,
    RATE,
    STEP_TIME,
    Metric,
    find_common_unit,
    is_inference,
)
from rnn_scaling.analysis.prices import PriceList
from rnn_scaling.analysis.significance import Gate, Verdict
from rnn_scaling.analysis.statements import Statement, Word, state
from rnn_scaling.analysis.training_differences import (
    ChangedTraining,
    find_changed_training,
)
from rnn_scaling.config import scale
from rnn_scaling.system import entry

ACROSS_MACHINES = "machine"  # value of --across
_MACHINE_OPTIONS = {f"--{name}" for name in ("device", *scale.AXES)}
ALL = "all"  # accepts all differences


@dataclasses.dataclass(frozen=True)
class Question:
    """The options of a comparison.

    Attributes:
      metric: Name of the compared metric.
      paired: Whether the runs of the same repeat number ran together.
      max_regression: The largest slow-down that passes, a share.
      accepted: Plain names of the incomparable differences that are judged anyway.
      across: ACROSS_MACHINES if the sides are two machines, which may differ; otherwise
        an empty text.
      prices: The prices of each side; empty if prices are unknown.
      past: Earlier sessions, which show the drift between sessions; None if unknown.
    """

    metric: str = RATE.name
    paired: bool = False
    max_regression: float = 0.05
    accepted: frozenset[str] = frozenset()
    across: str = ""
    prices: Sequence[PriceList] = ()
    past: Past | None = None

    def __post_init__(self) -> None:
        if self.metric not in CHOICES:
            raise ValueError(
                f"metric={self.metric} must be one of {', '.join(CHOICES)}"
            )
        if self.across and (self.paired or self.metric != RATE.name):
            raise ValueError(
                f"across={self.across} compares {RATE.name} of unpaired runs; "
                "leave out paired and metric"
            )
        if not 0 <= self.max_regression < 1:
            raise ValueError(
                f"max_regression={self.max_regression} must be a share from 0 to below "
                "1"
            )

    def accepts(self, difference: Difference) -> bool:
        """Return whether runs with a difference are judged."""
        if not difference.is_incomparable or ALL in self.accepted:
            return True
        if self.across and describes_machine(difference):
            return True
        return normalize_name(difference.name) in self.accepted


@dataclasses.dataclass(frozen=True)
class LabelledDifference:
    """A difference, and the labels of the configurations that have it."""

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
    devices: tuple[int, ...]  # number per machine
    ratio: float | None
    low: float | None
    high: float | None
    reason: Statement | None  # why it is unknown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The result of a comparison; the JSON has the same fields.

    Attributes:
      before: Path of the first set.
      after: Path of the second set.
      runs: Records that were read on each side.
      metric: The compared metric.
      paired: Whether runs were compared in pairs.
      ran_in_two_sessions: Whether the sides ran in different sessions.
      minutes_apart: Minutes between their sessions; None if they ran in one session.
      max_regression: The largest slow-down that passes, a share.
      changes: Options that differ between the sides.
      results: The result of each configuration.
      differences: Differences between the sides.
      accepted: Names of incomparable differences that are judged anyway.
      differences_inside: (name of a side, differences among its runs).
      only_after: Labels of configurations that were not run before.
      exit_status: Exit status of the command.
      only_before: Labels of series that only the first machine ran, or curves that are
        not in the latest entry of a history.
      machines: Names of the machines if they are compared.
      machine_ratios: Which machine is faster, by series.
      machine_costs: Costs by series and machine; empty without prices.
      step_time: Name of the time of a batch.
      is_history: Whether the latest entry of a history is compared with earlier ones.
      changed_training: Configurations that provably train otherwise after, although
        no option differs.
      batches_left_out: As from `disturbance.count_batches_left_out`, of the compared
        runs.
    """

    before: str
    after: str
    runs: tuple[int, int]
    metric: Metric
    paired: bool = False
    ran_in_two_sessions: bool = False
    minutes_apart: float | None = None
    max_regression: float
    changes: tuple[Change, ...] = ()
    results: tuple[Result, ...]
    differences: tuple[LabelledDifference, ...] = ()
    accepted: tuple[str, ...] = ()
    differences_inside: tuple[tuple[str, tuple[Difference, ...]], ...] = ()
    only_after: tuple[str, ...] = ()
    exit_status: int
    only_before: tuple[str, ...] = ()
    machines: tuple[str, str] | None = None
    machine_ratios: tuple[MachineRatio, ...] = ()
    machine_costs: tuple[MachineCost, ...] = ()
    step_time: str = STEP_TIME
    is_history: bool = False
    changed_training: tuple[ChangedTraining, ...] = ()
    batches_left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)


def normalize_name(text: str) -> str:
    """Return the name of a difference as --force_incomparable takes it.

    >>> normalize_name("CPU model")
    'cpu_model'
    """
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def read(path_before: Path, path_after: Path) -> tuple[ComparedRuns, ComparedRuns]:
    """Return both sets of runs.

    Raises:
      InputError: With a line for each path that contains nothing to compare.
    """
    if path_before.resolve() == path_after.resolve():
        raise InputError(
            f"{path_before} and {path_after} are the same runs; name two sets"
        )
    sides = []
    errors = []
    for path in (path_before, path_after):
        try:
            sides.append(matching.read(path))
        except InputError as e:
            errors.append(str(e))
    if errors:
        raise InputError("\n".join(errors))
    return sides[0], sides[1]


def judge(
    runs_before: ComparedRuns, runs_after: ComparedRuns, question: Question
) -> Report:
    """Return the comparison of two sets of runs.

    Raises:
      InputError: If no configuration is on both sides.
    """
    match = matching.match_machines if question.across else matching.match
    changes, configurations = match(runs_before, runs_after)
    records = [*runs_before.records, *runs_after.records]
    unit = find_common_unit(run.unit for run in records)
    metric = METRICS[question.metric].with_unit(unit)
    is_relative = bool(metric.ideal)
    common = [
        matching.exclude_disturbed_runs(configuration, question.paired, is_relative)
        for configuration in _list_common_configurations(
            runs_before, runs_after, configurations, metric
        )
    ]
    only_before = [each.label for each in configurations if each.row_after is None]
    found = _find_all_differences(common, only_before, question)
    obstacles = [each for each in found if not question.accepts(each.difference)]
    sessions = None
    if not question.paired and not question.across:
        sessions = drift.find_sessions(runs_before, runs_after)
    results = _judge_all(
        common, metric=metric, question=question, sessions=sessions, obstacles=obstacles
    )
    return Report(
        before=str(runs_before.path),
        after=str(runs_after.path),
        runs=(len(runs_before.runs), len(runs_after.runs)),
        metric=metric,
        paired=question.paired,
        ran_in_two_sessions=sessions is not None,
        minutes_apart=sessions.minutes_apart if sessions else None,
        max_regression=question.max_regression,
        changes=changes,
        results=tuple(results),
        differences=tuple(found),
        accepted=_list_accepted_names(found, question),
        differences_inside=(
            ("before", _find_differences_inside(runs_before)),
            ("after", _find_differences_inside(runs_after)),
        ),
        only_after=tuple([c.label for c in configurations if c.row_before is None]),
        exit_status=choose_exit_status(results, bool(obstacles)),
        only_before=tuple(only_before) if question.across else (),
        machines=_list_machine_names(common[0]) if question.across else None,
        machine_ratios=tuple(_compute_machine_ratios(common, results)),
        machine_costs=tuple(
            costs.compute_costs(
                (runs_before, runs_after),
                configurations=common,
                results=results,
                prices=question.prices,
                unit=unit,
            )
        ),
        changed_training=() if changes else _find_changed_training(common),
        step_time=LATENCY if is_inference(records) else STEP_TIME,
        batches_left_out=disturbance.count_batches_left_out(
            matching.list_compared_runs(configuration.sides, is_relative)
            for configuration in common
        ),
    )


def _find_changed_training(
    configurations: Sequence[Configuration],
) -> tuple[ChangedTraining, ...]:
    training_changes = [
        find_changed_training(each.label, *each.sides) for each in configurations
    ]
    return tuple(filter(None, training_changes))


def _find_differences_inside(side: ComparedRuns) -> tuple[Difference, ...]:
    return tuple(differences.find_differences_inside(side.good_runs))


def _list_common_configurations(
    runs_before: ComparedRuns,
    runs_after: ComparedRuns,
    configurations: Sequence[Configuration],
    metric: Metric,
) -> list[Configuration]:
    """Return the configurations of both sides.

    If the metric is relative to one device, only configurations with several devices
    count.

    Raises:
      InputError: If none remains.
    """
    common = [each for each in configurations if len(each.sides) == 2]
    if not common:
        labels_before = [each.label for each in configurations if each.row_before]
        labels_after = [each.label for each in configurations if each.row_after]
        raise InputError(
            f"no configuration is on both sides: {runs_before.path} has "
            f"{join_some(labels_before, '; ')}; {runs_after.path} has "
            f"{join_some(labels_after, '; ')}"
        )
    if not metric.ideal:
        return common
    multi_device = [each for each in common if each.max_devices > 1]
    if not multi_device:
        raise InputError(
            f"--metric={metric.name} needs a configuration with several "
            "devices on both sides; measure one, or leave out --metric"
        )
    return multi_device


def _find_all_differences(
    common: Sequence[Configuration], only_before: Sequence[str], question: Question
) -> list[LabelledDifference]:
    """Return the differences of all configurations, and that some were not run after.

    Args:
      common: The configurations of both sides.
      only_before: The labels of configurations that were not run after.
      question: The options of the comparison.

    Raises:
      InputError: If machines are compared, but the machines do not differ.
    """
    labelled = _label_differences(common)
    if question.across:
        _require_two_machines(common, labelled)
    elif only_before:
        difference = differences.list_missing_configurations(only_before)
        # Without labels, because it does not concern the other configurations.
        labelled.append(LabelledDifference(difference, ()))
    return labelled


def _list_accepted_names(
    labelled: Sequence[LabelledDifference], question: Question
) -> tuple[str, ...]:
    """Return the names of incomparable differences that are judged anyway."""
    accepted = []
    for each in labelled:
        if each.difference.is_incomparable and question.accepts(each.difference):
            accepted.append(each.difference.name)
    return tuple(accepted)


def _require_two_machines(
    common: Sequence[Configuration], labelled: Sequence[LabelledDifference]
) -> None:
    if not any(describes_machine(each.difference) for each in labelled):
        name, _ = _list_machine_names(common[0])
        raise InputError(
            f"the records show no difference between the machines ({name}); "
            "leave out --across"
        )


def _judge_all(
    common: Sequence[Configuration],
    metric: Metric,
    question: Question,
    sessions: TwoSessions | None,
    obstacles: Sequence[LabelledDifference],
) -> list[Result]:
    """Return the result of each configuration.

    Args:
      common: The configurations of both sides.
      metric: The compared metric.
      question: The options of the comparison.
      sessions: The times of sides that were measured one after the other, or None.
      obstacles: Differences whose configurations are not judged.
    """
    results = []
    # The scatter of sides that took turns contains the differences of their sessions.
    has_drift = sessions is not None and not sessions.in_turns
    for configuration in common:
        between = None
        # Drift of a session cancels in a ratio of its runs.
        if sessions is not None and not metric.ideal:
            between = drift.estimate(configuration, sessions, question.past)
        result = verdicts.measure(
            configuration, metric, question.paired, has_drift, between
        )
        if result.comparison:
            changes = step_times.compare_step_times(
                configuration,
                question.paired,
                has_drift,
                between.scatter if between else None,
            )
            result = dataclasses.replace(result, step_times=changes)
        names = [
            obstacle.difference.name
            for obstacle in obstacles
            if configuration.label in obstacle.labels
        ]
        if names and result.reason is None:
            facts = ", ".join(dict.fromkeys(names))
            reason = state("incomparable", facts=facts)
            result = dataclasses.replace(result, reason=reason)
        results.append(result)
    results = verdicts.conclude(results, question.max_regression)
    if question.across:
        return list(map(_pass_tested_result, results))
    return results


def _pass_tested_result(result: Result) -> Result:
    """Return a result that passes if it was tested; machines may differ in speed."""
    if result.p_adjusted is None:
        return result
    return dataclasses.replace(result, gate=Gate.PASSED, reason=None)


def describes_machine(difference: Difference) -> bool:
    """Return whether a difference describes the machine, or follows from it."""
    return difference.name in (*OF_MACHINES, *_MACHINE_OPTIONS)


def _list_machine_names(configuration: Configuration) -> tuple[str, str]:
    before, after = [
        identify_machine(side.good_runs[0]).name for side in configuration.sides
    ]
    return before, after


def _compute_machine_ratios(
    configurations: Sequence[Configuration], results: Sequence[Result]
) -> Iterator[MachineRatio]:
    for configuration, result in zip(configurations, results):
        ratio = result.comparison.ratio if result.comparison else None
        devices = tuple([side.num_devices for side in configuration.sides])
        for scope in configuration.scopes:
            yield MachineRatio(
                _MACHINE_VERDICTS[result.verdict],
                scope=scope,
                series=result.label,
                devices=devices,
                ratio=ratio.value if ratio else None,
                low=ratio.low if ratio else None,
                high=ratio.high if ratio else None,
                reason=result.reason,
            )


def _label_differences(
    configurations: Sequence[Configuration],
) -> list[LabelledDifference]:
    """Return distinct differences with the labels of their configurations.

    Options that leave the work unchanged are left out, because they are compared.
    """
    labelled_differences: list[tuple[Difference, str]] = []
    for configuration in configurations:
        runs_before, runs_after = [side.good_runs for side in configuration.sides]
        if not runs_before or not runs_after:
            continue
        for difference in differences.find_differences(runs_before, runs_after):
            if difference.is_incomparable or not difference.name.startswith("--"):
                labelled_differences.append((difference, configuration.label))
    keys = [(each.name, each.effect, each.severity) for each, _ in labelled_differences]
    labelled = []
    for members in group_by(labelled_differences, keys).values():
        labels = tuple([label for _, label in members])
        labelled.append(LabelledDifference(members[0][0], labels))
    return sorted(labelled, key=lambda each: not each.difference.is_incomparable)


def choose_exit_status(results: Sequence[Result], has_obstacles: bool = False) -> int:
    """Return the exit status of the command."""
    gates = {result.gate for result in results}
    if Gate.REGRESSION in gates:
        return entry.EXIT_FAILED
    if has_obstacles or gates != {Gate.PASSED}:
        return entry.EXIT_USAGE
    return entry.EXIT_OK
