"""Choose the runs of a sweep, round by round, until the answer is precise.

With a time budget, the runs that decide most come first: the first encoder
implementation with separate and with exchanged gradients on the fewest and the most
devices, then its other modes, then the other encoder implementations, and then the
numbers of devices in between. Each of these stages gets `MIN_ROUNDS` rounds before the
next one starts; the first one gets more on a noisy machine, because its efficiencies
are the answer.

Disturbed runs are repeated at the end. The choice reads the recorded load and never the
rate of a run (analysis.disturbance).
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.conduct import Records, Rounds
from rnn_scaling.sweeps.plan import CORE_MODES, interleave, repeat_runs
from rnn_scaling.sweeps.runs import AnyRun
from rnn_scaling.system.files.terminal import counted

# Rounds of every configuration.
MIN_ROUNDS = 2
# Rounds without a time budget, and the limit of repeats with one.
MAX_ROUNDS = 3
MAX_BUDGET_ROUNDS = 5
# Half-width of an efficiency's interval, in points, that ends the rounds.
PRECISION_GOAL = 5
# With a time budget, the first stage gets more rounds than the others until its
# efficiencies are known to so many points. A correction for load alone leaves nearly 8.
_FIRST_STAGE_GOAL = 8
_MAX_FIRST_STAGE_ROUNDS = 4


class SweepRounds:
    """The rounds of a sweep without --repeats.

    The sweep calls `choose` before each round, prints `reason`, and runs all runs that
    it returned before it asks again. The other methods are for the end of the sweep.

    Attributes:
      num_replaced: Number of runs that repeated disturbed ones.
      reason: Why the latest runs follow; "" for the first rounds.
    """

    def __init__(self, runs: Sequence[AnyRun], has_budget: bool, rounds: int) -> None:
        """Make the rounds of some configurations.

        Args:
          runs: The first run of each configuration.
          has_budget: Whether the time is limited, so that the order matters.
          rounds: Rounds that every configuration gets, at least MIN_ROUNDS.
        """
        self._stages = split_into_stages(runs) if has_budget else [list(runs)]
        self._has_budget = has_budget
        self._num_rounds = rounds
        self._max_rounds = MAX_BUDGET_ROUNDS if has_budget else MAX_ROUNDS
        self._runs = list(runs)
        self._first_runs: list[
            AnyRun
        ] = []  # runs of the first rounds, made by this sweep
        self._replacements: list[AnyRun] = []  # the latest repeats of disturbed runs
        self.num_replaced = 0
        self.reason = ""

    def choose(self, rounds: Rounds) -> list[AnyRun]:
        """Return the next runs in their order; none if the sweep is finished.

        Each kind of round only follows if the kinds before it have no runs left.
        """
        self.reason = ""
        if first_runs := self._choose_first_rounds(rounds):
            self._first_runs += first_runs
            return first_runs
        return self._choose_replacements(rounds) or self._choose_further_round(rounds)

    def list_left_out(self, records: Records) -> list[AnyRun]:
        """Return the runs of the first rounds that were not made."""
        left_out = []
        for run in repeat_runs(self._runs, self._num_rounds):
            if run.label not in records and not _has_failed(run, records):
                left_out.append(run)
        return left_out

    def is_busy(self, records: Records) -> bool:
        """Return whether the latest repeats of disturbed runs were disturbed as well.

        If no run of the first rounds was quiet, none is repeated.
        """
        if self._replacements:
            return _are_all_disturbed(self._replacements, records)
        return self._was_busy(self._first_runs, records)

    def _stays_busy(self, run: AnyRun, records: Records) -> bool:
        """Return whether this sweep found no quiet run on as many devices.

        A repeat would be disturbed as well. Earlier sweeps do not count.
        """
        devices = run.options.get("num_devices", 1)
        on_as_many = [
            first
            for first in self._first_runs
            if first.options.get("num_devices", 1) == devices
        ]
        return self._was_busy(on_as_many, records)

    def _was_busy(self, runs: Sequence[AnyRun], records: Records) -> bool:
        """Return whether the first rounds are complete and all runs were disturbed."""
        repeats = {run.repeat for run in runs}
        has_all_rounds = len(repeats) >= self._num_rounds
        return has_all_rounds and _are_all_disturbed(runs, records)

    def _choose_first_rounds(self, rounds: Rounds) -> list[AnyRun]:
        if not self._has_budget:
            return _missing_runs(
                interleave(self._runs, self._num_rounds), rounds.records
            )
        for stage in self._stages:
            chosen_runs = self._choose_stage_rounds(stage, rounds)
            if not chosen_runs and stage is self._stages[0]:
                chosen_runs = self._choose_first_stage_round(rounds)
            if chosen_runs:
                return chosen_runs
        return []

    def _choose_stage_rounds(
        self, stage: Sequence[AnyRun], rounds: Rounds
    ) -> list[AnyRun]:
        """Return the runs of the first unfinished round of a stage."""
        ordered = interleave(stage, self._num_rounds)
        for repeat in range(1, self._num_rounds + 1):
            in_round = [run for run in ordered if run.repeat == repeat]
            missing_runs = _missing_runs(in_round, rounds.records)
            # The very first round is made even if the time is too short for it.
            if not (stage is self._stages[0] and repeat == 1):
                missing_runs = [
                    run for run in missing_runs if not _has_failed(run, rounds.records)
                ]
                missing_runs = _choose_affordable(missing_runs, rounds)
            if missing_runs:
                return missing_runs
        return []

    def _choose_first_stage_round(self, rounds: Rounds) -> list[AnyRun]:
        """Return a further round of the first stage, if its answer is not precise.

        Without later stages, the time is left for `_choose_further_round`. On a busy
        machine, it is left for the other stages.
        """
        if len(self._stages) == 1 or self.is_busy(rounds.records):
            return []
        next_runs = []
        records = []
        for run in self._stages[0]:
            repeats = list(_repeats(run, rounds.records))
            records += [rounds.records[repeat.label] for repeat in repeats]
            if not _has_failed(run, rounds.records):
                next_runs.append(dataclasses.replace(run, repeat=len(repeats) + 1))
        repeat = min((run.repeat for run in next_runs), default=math.inf)
        if repeat > _MAX_FIRST_STAGE_ROUNDS:
            return []
        width = measure_precision(records)
        # More runs do not help if load of other programs hides the efficiencies.
        if width <= _FIRST_STAGE_GOAL or width == math.inf:
            return []
        self.reason = (
            f"round {repeat} of the first series: precision ±{width:.0f} %, "
            f"goal ±{_FIRST_STAGE_GOAL} %"
        )
        return _choose_affordable(
            [run for run in next_runs if run.repeat == repeat], rounds
        )

    def _choose_replacements(self, rounds: Rounds) -> list[AnyRun]:
        """Return a further run of each configuration with too few quiet runs."""
        records = rounds.records
        if self.is_busy(records):
            return []
        chosen_runs = []
        for run in self._runs:
            repeats = list(_repeats(run, records))
            num_quiet = sum(
                not _is_disturbed(records[repeat.label]) for repeat in repeats
            )
            is_repeatable = self._num_rounds <= len(repeats) < self._max_rounds
            needs_repeat = num_quiet < MIN_ROUNDS and not _has_failed(run, records)
            if self._stays_busy(run, records):
                continue
            if is_repeatable and needs_repeat:
                chosen_runs.append(dataclasses.replace(run, repeat=len(repeats) + 1))
        chosen_runs = _choose_affordable(chosen_runs, rounds)
        if chosen_runs:
            self._replacements = chosen_runs
            self.num_replaced += len(chosen_runs)
            self.reason = f"repeating {counted(len(chosen_runs), 'disturbed run')}"
        return chosen_runs

    def _choose_further_round(self, rounds: Rounds) -> list[AnyRun]:
        """Return one more run of each configuration, unless the answer is precise."""
        records = rounds.records
        if self.is_busy(records):
            return []
        width = measure_precision(records.values())
        if width <= PRECISION_GOAL:
            return []
        stays_busy = any(self._stays_busy(run, records) for run in self._runs)
        if width == math.inf and stays_busy:
            return []
        repeats = []
        for stage in self._stages:
            for run in stage:
                repeat = 1 + sum(1 for _ in _repeats(run, records))
                is_measured = repeat > MIN_ROUNDS and not _has_failed(run, records)
                if is_measured and repeat <= self._max_rounds:
                    repeats.append(dataclasses.replace(run, repeat=repeat))
        if not repeats:
            return []
        fewest = min(run.repeat for run in repeats)
        repeats = [run for run in repeats if run.repeat == fewest]
        width_text = f"±{width:.0f} %" if width < 100 else "unknown"
        self.reason = (
            f"round {fewest} of at most {self._max_rounds}: precision {width_text}, "
            f"goal ±{PRECISION_GOAL} %"
        )
        return _choose_affordable(repeats, rounds)


def split_into_stages(runs: Sequence[AnyRun]) -> list[list[AnyRun]]:
    """Return the configurations in groups, in the order in which they decide most."""
    encoders = list(dict.fromkeys(_option_text(run, "encoder_type") for run in runs))
    devices = [run.options.get("num_devices", 1) for run in runs]
    ends = (min(devices), max(devices))
    stages: dict[tuple[bool, int, bool], list[AnyRun]] = {}
    for run in runs:
        is_between = run.options.get("num_devices", 1) not in ends
        encoder = encoders.index(_option_text(run, "encoder_type"))
        is_other_mode = _option_text(run, "variable_update") not in CORE_MODES
        stages.setdefault((is_between, encoder, is_other_mode), []).append(run)
    return [stages[key] for key in sorted(stages)]


def measure_precision(records: Iterable[RunRecord]) -> float:
    """Return the uncertainty of the answer.

    Returns:
      Half the widest interval of an efficiency, in points. If no efficiency is known,
      half the widest interval of a rate in %. Infinite if one of them is unknown, or if
      load of other programs hides it.
    """
    # Imported here, so that --help does not wait for numpy.
    from rnn_scaling.analysis import machines, metrics, rows

    efficiency_widths = []
    rate_widths = []
    for group in machines.group_by_machine(list(records)).values():
        for row in rows.build_rows(group):
            efficiency = row.metric(metrics.EFFICIENCY)
            if row.num_devices > 1 and efficiency:
                is_known = not row.is_speedup_hidden
                efficiency_widths.append(efficiency.half_width if is_known else None)
            if row.rate:
                rate_widths.append(row.rate.scaled(1 / row.rate.value).half_width)
    widths = efficiency_widths or rate_widths
    if None in widths:
        return math.inf
    return 100 * max(filter(None, widths), default=0.0)


def _option_text(run: AnyRun, name: str) -> str:
    return str(run.options.get(name, ""))


def _missing_runs(runs: Sequence[AnyRun], records: Records) -> list[AnyRun]:
    return [run for run in runs if run.label not in records]


def _choose_affordable(runs: Sequence[AnyRun], rounds: Rounds) -> list[AnyRun]:
    """Return the runs of the first series for which there is time.

    A series is run on all its numbers of devices or not at all, because its speedup
    needs all of them.
    """
    by_series: dict[tuple[str, str], list[AnyRun]] = {}
    for run in runs:
        series = (
            _option_text(run, "encoder_type"),
            _option_text(run, "variable_update"),
        )
        by_series.setdefault(series, []).append(run)
    chosen_runs: list[AnyRun] = []
    for group in by_series.values():
        if rounds.has_time_for([*chosen_runs, *group]):
            chosen_runs += group
    return [run for run in runs if run in chosen_runs]


def _repeats(run: AnyRun, records: Records) -> Iterator[AnyRun]:
    """Yield the repeats of a configuration that have a record."""
    for repeated in repeat_runs([run], MAX_BUDGET_ROUNDS):
        if repeated.label in records:
            yield repeated


def _has_failed(run: AnyRun, records: Records) -> bool:
    """Return whether a repeat of the configuration failed; it would fail again."""
    return any(
        records[repeat.label].status != "ok" for repeat in _repeats(run, records)
    )


def _are_all_disturbed(runs: Sequence[AnyRun], records: Records) -> bool:
    """Return whether other processes disturbed every one of these runs."""
    return bool(runs) and all(_is_disturbed(records.get(run.label)) for run in runs)


def _is_disturbed(record: RunRecord | None) -> bool:
    """Return whether other processes disturbed a good run."""
    from rnn_scaling.analysis import disturbance  # loads numpy

    return record is not None and disturbance.is_disturbed(record)
