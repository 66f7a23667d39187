"""Choose the runs of a sweep, round by round, until the answer is precise.

With a time budget, the configurations are divided into stages, in the order in which
they answer the main question. Each stage gets MIN_ROUNDS rounds before the next one
starts:

1. The first encoder implementation in the modes of `plan.CORE_MODES`, on the fewest and
   on the most devices. It gets more rounds on a noisy machine, because its efficiencies
   are the answer.
2. Its other modes.
3. The other encoder implementations.
4. The numbers of devices in between.

Disturbed runs are repeated at the end. The choice reads the recorded load and never the
rate of a run (analysis.disturbance).

`Sweep` creates `SweepRounds` and runs what `choose` returns.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.conduct import Records, SweepProgress
from rnn_scaling.sweeps.plan import CORE_MODES, interleave, repeat_runs
from rnn_scaling.sweeps.runs import AnyRun
from rnn_scaling.system.files.terminal import format_count

# Rounds of every configuration.
MIN_ROUNDS = 2
# Rounds without a time budget, and the limit of repeats with one.
MAX_ROUNDS = 3
MAX_BUDGET_ROUNDS = 5
# Half-width of an efficiency's interval, in points, that ends the rounds. Without
# efficiencies, it is the half-width of a rate's interval in %.
PRECISION_GOAL = 5
# With a time budget, the first stage gets more rounds than the others until its
# efficiencies are known to this many points. A correction for load leaves nearly 8
# points, so a lower goal could not be reached on a busy machine.
_FIRST_STAGE_GOAL = 8
_MAX_FIRST_STAGE_ROUNDS = 4
# A wider interval is printed as unknown.
_MAX_PRINTED_HALF_WIDTH = 100


class Precision(NamedTuple):
    """The uncertainty of the answer of a sweep."""

    half_width: float  # half of the widest interval; infinite if one is unknown
    unit: str  # "points" of an efficiency, or "%" of a rate

    def describe(self, goal: float) -> str:
        """Return the precision and the goal as text."""
        text = "unknown"
        if self.half_width < _MAX_PRINTED_HALF_WIDTH:
            text = f"±{self.half_width:.0f} {self.unit}"
        return f"precision {text}, goal ±{goal} {self.unit}"


class _Choice(NamedTuple):
    """The next runs, and why they were chosen."""

    runs: list[AnyRun]
    reason: str = ""


_NOTHING = _Choice([])


class SweepRounds:
    """The rounds of a sweep without --repeats.

    The sweep calls `choose` before each round, prints `reason`, and makes all returned
    runs before it calls `choose` again. The other methods are for the end of the sweep.

    Attributes:
      num_replaced: Number of runs that repeated disturbed ones.
      reason: Why the latest runs were chosen; "" for the first rounds.
    """

    def __init__(
        self, runs: Sequence[AnyRun], has_budget: bool, num_rounds: int
    ) -> None:
        """Make the rounds of some configurations.

        Args:
          runs: The first run of each configuration.
          has_budget: Whether the time is limited, so that the order matters.
          num_rounds: Rounds that every configuration gets, at least MIN_ROUNDS.
        """
        self._stages = split_into_stages(runs) if has_budget else [list(runs)]
        self._has_budget = has_budget
        self._num_rounds = num_rounds
        self._max_rounds = MAX_BUDGET_ROUNDS if has_budget else MAX_ROUNDS
        self._runs = list(runs)
        # Runs of the required rounds that this sweep made.
        self._first_runs: list[AnyRun] = []
        # The latest repeats of disturbed runs.
        self._replacements: list[AnyRun] = []
        self.num_replaced = 0
        self.reason = ""

    def choose(self, progress: SweepProgress) -> list[AnyRun]:
        """Return the next runs in their order; none if the sweep is finished.

        Repeats of disturbed runs follow if no required run is left, and further rounds
        follow if no run is left to repeat.
        """
        choice = self._choose_required_round(progress)
        if choice.runs:
            self._first_runs += choice.runs
        else:
            choice = self._choose_replacements(progress)
            if choice.runs:
                self._replacements = choice.runs
                self.num_replaced += len(choice.runs)
            else:
                choice = self._choose_further_round(progress)
        self.reason = choice.reason
        return choice.runs

    def list_left_out(self, records: Records) -> list[AnyRun]:
        """Return the runs of the required rounds that were not made."""
        left_out = []
        for run in repeat_runs(self._runs, self._num_rounds):
            if run.label not in records and not _has_failed(run, records):
                left_out.append(run)
        return left_out

    def is_busy(self, records: Records) -> bool:
        """Return whether the machine is too busy to repeat disturbed runs.

        All of the latest repeats were disturbed, or all runs of the required rounds.
        """
        if self._replacements:
            return _are_all_disturbed(self._replacements, records)
        return self._are_rounds_disturbed(self._first_runs, records)

    def _is_busy_with_as_many_devices(self, run: AnyRun, records: Records) -> bool:
        """Return whether this sweep found no quiet run on as many devices.

        A repeat would be disturbed as well. Earlier sweeps do not count.
        """
        devices = run.options.get("num_devices", 1)
        on_as_many = [
            first
            for first in self._first_runs
            if first.options.get("num_devices", 1) == devices
        ]
        return self._are_rounds_disturbed(on_as_many, records)

    def _are_rounds_disturbed(self, runs: Sequence[AnyRun], records: Records) -> bool:
        """Return whether the runs have all required rounds and all were disturbed."""
        repeats = {run.repeat for run in runs}
        has_all_rounds = len(repeats) >= self._num_rounds
        return has_all_rounds and _are_all_disturbed(runs, records)

    def _choose_required_round(self, progress: SweepProgress) -> _Choice:
        """Return the next round that is made on every machine.

        With a budget, it is one round of one stage, and the first stage may get more.
        """
        if not self._has_budget:
            runs = interleave(self._runs, self._num_rounds)
            return _Choice(_select_missing(runs, progress.records))
        for stage in self._stages:
            choice = _Choice(self._list_next_round_of_stage(stage, progress))
            if not choice.runs and stage is self._stages[0]:
                choice = self._choose_extra_round_of_first_stage(progress)
            if choice.runs:
                return choice
        return _NOTHING

    def _list_next_round_of_stage(
        self, stage: Sequence[AnyRun], progress: SweepProgress
    ) -> list[AnyRun]:
        """Return the runs of the first unfinished round of a stage."""
        ordered = interleave(stage, self._num_rounds)
        for repeat in range(1, self._num_rounds + 1):
            in_round = [run for run in ordered if run.repeat == repeat]
            missing_runs = _select_missing(in_round, progress.records)
            # The very first round is made even if the time is too short for it.
            is_very_first = stage is self._stages[0] and repeat == 1
            if not is_very_first:
                missing_runs = [
                    run
                    for run in missing_runs
                    if not _has_failed(run, progress.records)
                ]
                missing_runs = _select_affordable(missing_runs, progress)
            if missing_runs:
                return missing_runs
        return []

    def _choose_extra_round_of_first_stage(self, progress: SweepProgress) -> _Choice:
        """Return a further round of the first stage, if its answer is not precise.

        Without later stages, the time is left for `_choose_further_round`. On a busy
        machine, it is left for the other stages.
        """
        records = progress.records
        if len(self._stages) == 1 or self.is_busy(records):
            return _NOTHING
        stage = self._stages[0]
        next_repeats = _list_next_repeats(stage, records)
        if not next_repeats:
            return _NOTHING
        fewest = min(run.repeat for run in next_repeats)
        if fewest > _MAX_FIRST_STAGE_ROUNDS:
            return _NOTHING
        stage_records = []
        for run in stage:
            stage_records += [records[made.label] for made in _list_made(run, records)]
        precision = measure_precision(stage_records)
        # More runs do not help if load of other programs hides the efficiencies.
        if precision.half_width <= _FIRST_STAGE_GOAL or math.isinf(
            precision.half_width
        ):
            return _NOTHING
        runs = [run for run in next_repeats if run.repeat == fewest]
        text = precision.describe(_FIRST_STAGE_GOAL)
        return _Choice(
            _select_affordable(runs, progress),
            f"round {fewest} of the first stage: {text}",
        )

    def _choose_replacements(self, progress: SweepProgress) -> _Choice:
        """Return a further run of each configuration with too few quiet runs."""
        records = progress.records
        if self.is_busy(records):
            return _NOTHING
        next_repeats = []
        for run in _list_next_repeats(self._runs, records):
            num_made = run.repeat - 1
            may_repeat = self._num_rounds <= num_made < self._max_rounds
            has_enough = _count_quiet(run, records) >= MIN_ROUNDS
            if not may_repeat or has_enough:
                continue
            if not self._is_busy_with_as_many_devices(run, records):
                next_repeats.append(run)
        runs = _select_affordable(next_repeats, progress)
        return _Choice(runs, f"repeating {format_count(len(runs), 'disturbed run')}")

    def _choose_further_round(self, progress: SweepProgress) -> _Choice:
        """Return one more run of each configuration, unless the answer is precise."""
        records = progress.records
        if self.is_busy(records):
            return _NOTHING
        precision = measure_precision(records.values())
        if precision.half_width <= PRECISION_GOAL:
            return _NOTHING
        is_partly_busy = any(
            self._is_busy_with_as_many_devices(run, records) for run in self._runs
        )
        if math.isinf(precision.half_width) and is_partly_busy:
            return _NOTHING
        next_repeats = []
        for stage in self._stages:
            for run in _list_next_repeats(stage, records):
                if MIN_ROUNDS < run.repeat <= self._max_rounds:
                    next_repeats.append(run)
        if not next_repeats:
            return _NOTHING
        fewest = min(run.repeat for run in next_repeats)
        runs = [run for run in next_repeats if run.repeat == fewest]
        text = precision.describe(PRECISION_GOAL)
        return _Choice(
            _select_affordable(runs, progress),
            f"round {fewest} of at most {self._max_rounds}: {text}",
        )


def split_into_stages(runs: Sequence[AnyRun]) -> list[list[AnyRun]]:
    """Group the configurations into stages, the most important stage first."""
    encoders = list(dict.fromkeys(_format_option(run, "encoder_type") for run in runs))
    device_counts = [run.options.get("num_devices", 1) for run in runs]
    fewest_and_most = (min(device_counts), max(device_counts))
    # The keys are in the order of importance, because False is before True.
    stages: dict[tuple[bool, int, bool], list[AnyRun]] = {}
    for run in runs:
        is_between = run.options.get("num_devices", 1) not in fewest_and_most
        encoder_index = encoders.index(_format_option(run, "encoder_type"))
        is_other_mode = _format_option(run, "variable_update") not in CORE_MODES
        key = (is_between, encoder_index, is_other_mode)
        stages.setdefault(key, []).append(run)
    return [stages[key] for key in sorted(stages)]


def measure_precision(records: Iterable[RunRecord]) -> Precision:
    """Return the uncertainty of the answer.

    Returns:
      Half of the widest interval of an efficiency, in points. If no efficiency is
      known, half of the widest interval of a rate, in %. It is infinite if one of them
      is unknown, or if load of other programs hides it.
    """
    # Imported here, so that --help does not wait for numpy.
    from rnn_scaling.analysis import machines, metrics, rows

    efficiency_widths: list[float | None] = []
    rate_widths: list[float | None] = []
    for group in machines.group_by_machine(list(records)).values():
        for row in rows.build_rows(group):
            efficiency = row.metric(metrics.EFFICIENCY)
            if row.num_devices > 1 and efficiency:
                is_known = not row.is_speedup_hidden
                efficiency_widths.append(efficiency.half_width if is_known else None)
            if row.rate:
                rate_widths.append(row.rate.scaled(1 / row.rate.value).half_width)
    unit = "points" if efficiency_widths else "%"
    half_width = 0.0
    for width in efficiency_widths or rate_widths:
        half_width = max(half_width, math.inf if width is None else 100 * width)
    return Precision(half_width, unit)


def _format_option(run: AnyRun, name: str) -> str:
    return str(run.options.get(name, ""))


def _select_missing(runs: Sequence[AnyRun], records: Records) -> list[AnyRun]:
    """Return the runs without a record."""
    return [run for run in runs if run.label not in records]


def _select_affordable(runs: Sequence[AnyRun], progress: SweepProgress) -> list[AnyRun]:
    """Return the runs of the first series for which there is time.

    A series is run on all its numbers of devices or not at all, because its speedup
    needs all of them.
    """
    by_series: dict[tuple[str, str], list[AnyRun]] = {}
    for run in runs:
        encoder = _format_option(run, "encoder_type")
        mode = _format_option(run, "variable_update")
        by_series.setdefault((encoder, mode), []).append(run)
    chosen_runs: list[AnyRun] = []
    for group in by_series.values():
        if progress.has_time_for([*chosen_runs, *group]):
            chosen_runs += group
    return [run for run in runs if run in chosen_runs]


def _list_next_repeats(runs: Sequence[AnyRun], records: Records) -> list[AnyRun]:
    """Return the next run of each configuration that did not fail."""
    next_repeats = []
    for run in runs:
        if not _has_failed(run, records):
            num_made = sum(1 for _ in _list_made(run, records))
            next_repeats.append(dataclasses.replace(run, repeat=num_made + 1))
    return next_repeats


def _list_made(run: AnyRun, records: Records) -> Iterator[AnyRun]:
    """Yield the repeats of a configuration that have a record."""
    for repeated in repeat_runs([run], MAX_BUDGET_ROUNDS):
        if repeated.label in records:
            yield repeated


def _count_quiet(run: AnyRun, records: Records) -> int:
    """Return the number of a configuration's runs that were not disturbed."""
    made = _list_made(run, records)
    return sum(not _is_disturbed(records[repeat.label]) for repeat in made)


def _has_failed(run: AnyRun, records: Records) -> bool:
    """Return whether a repeat of the configuration failed; it would fail again."""
    return any(
        records[repeat.label].status != "ok" for repeat in _list_made(run, records)
    )


def _are_all_disturbed(runs: Sequence[AnyRun], records: Records) -> bool:
    """Return whether other processes disturbed every one of these runs."""
    return bool(runs) and all(_is_disturbed(records.get(run.label)) for run in runs)


def _is_disturbed(record: RunRecord | None) -> bool:
    """Return whether other processes disturbed a good run."""
    from rnn_scaling.analysis import disturbance  # loads numpy

    return record is not None and disturbance.is_disturbed(record)
