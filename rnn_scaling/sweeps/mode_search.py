"""Search the fastest update mode: all that fit in the time, in interleaved rounds.

A third round follows if it could decide.

Programs of users read the JSON, schema "rnn_scaling.recommend/2": never rename a key.

`recommend` runs a `ModeSearch`; `analysis.ranking` decides which modes are equally fast.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.ranking import (
    MAX_UNCERTAINTY,
    NEGLIGIBLE_DIFFERENCE,
    SLOWER,
    Ranking,
    Standing,
    rank,
    select_for_another_round,
)
from rnn_scaling.analysis.rows import run_rates
from rnn_scaling.analysis.statements import Advice, Statement, state
from rnn_scaling.config import flags, registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import is_read
from rnn_scaling.config.naming import NAMED
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.command_lines import format_flags, make_suite_command
from rnn_scaling.sweeps.conduct import Records, SweepProgress
from rnn_scaling.sweeps.plan import (
    Run,
    choose_default_preset,
    make_distinct_runs,
    make_names_distinct,
    repeat_runs,
    run_name,
)
from rnn_scaling.system.machine.load import NOTICEABLE_LOAD

MIN_ROUNDS = 2
MAX_ROUNDS = 3
# On fewer devices a sum in two levels equals a sum in one.
_MIN_HIERARCHICAL_DEVICES = 4
_MODE_OPTIONS = ("variable_update", "all_reduce_spec", "param_server_device")


def plan_candidates(
    lists: Mapping[str, Sequence[Any]], num_gpus: int, num_cores: int
) -> list[Run]:
    """Return the configurations to compare, on all devices.

    They have the values in the lists, by default every mode that trains one model.

    Raises:
      FlagErrors: If no combination can run, or one cannot that the user asked for.
    """
    lists = {
        "preset": [choose_default_preset(lists, num_gpus)],
        "num_devices": [0],
        **lists,
    }
    first_values = {name: values[0] for name, values in lists.items()}
    first = configs.resolve(first_values, num_gpus=num_gpus, num_cores=num_cores)
    if lists["num_devices"] == [0]:
        lists["num_devices"] = [first.devices.num_devices]
    defaults = _choose_defaults(first, lists)
    listed_options = [name for name, values in lists.items() if len(values) > 1]
    varied_options = dict.fromkeys([*NAMED, *defaults, *listed_options])

    def make_name(values: Mapping[str, Any], config: RunConfig) -> str:
        shown_options = [option for option in varied_options if is_read(config, option)]
        return run_name({**config.flat(), **values}, shown_options)

    runs, problems, unused = make_distinct_runs(
        {**lists, **defaults}, make_name, lists, num_gpus=num_gpus, num_cores=num_cores
    )
    has_mode_options = any(option in lists for option in _MODE_OPTIONS)
    # Combinations that cannot run are only a fault if the user asked for a mode.
    if unused or not runs or (problems and has_mode_options):
        raise flags.FlagErrors([*problems, *unused])
    return make_names_distinct(runs)


def _choose_defaults(
    first: RunConfig, lists: Mapping[str, Sequence[Any]]
) -> dict[str, list[Any]]:
    """Return the values to compare of options that the user does not give."""
    if first.num_towers == 1:
        return {}
    swept = registry.list_swept_modes(first.cluster.num_workers > 1)
    exchanging = [mode for mode in swept if registry.find_mode(mode).trains_one_model]
    modes = list(lists.get("variable_update", exchanging))
    readers = registry.find_readers(registry.VARIABLE_UPDATES)
    devices = first.devices.num_devices
    values = {"variable_update": modes}
    has_all_reduce = not set(modes).isdisjoint(readers["all_reduce_spec"])
    # With several workers auto is collective.
    if has_all_reduce and first.cluster.num_workers == 1 and devices > 1:
        default = configs.OPTIONS["all_reduce_spec"].default
        values["all_reduce_spec"] = [default, "collective"]
        if devices >= _MIN_HIERARCHICAL_DEVICES:
            values["all_reduce_spec"].append("hierarchical")
    has_servers = not set(modes).isdisjoint(readers["param_server_device"])
    if has_servers and first.devices.device == "gpu":
        values["param_server_device"] = ["gpu", "cpu"]
    return {name: options for name, options in values.items() if name not in lists}


class ModeSearch:
    """Chooses the runs of each round, and ranks the measured modes.

    It has the same interface as `BatchSearch`: `recommend` calls `plan_first_runs` for
    a dry run and the estimated time, `Conductor.run_rounds` calls `choose` before each
    round, and `make_advice` follows after the last round.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        """Make a search among runs; if time is short, it measures the first ones."""
        self.runs = list(runs)
        # The candidates for which there is time. `choose` decides before the first
        # round, and never changes them.
        self._affordable: list[Run] = []

    def plan_first_runs(self) -> list[Run]:
        """Return the runs of the rounds that every candidate needs."""
        return repeat_runs(self.runs, MIN_ROUNDS)

    def choose(self, progress: SweepProgress) -> list[Run]:
        """Return the runs of the next round; none if no further run helps in time.

        The first rounds are completed before a third one may decide.
        """
        records = progress.records
        if not self._affordable:
            self._choose_affordable(progress)
        for number in range(1, MIN_ROUNDS + 1):
            runs = self._missing_runs(self._affordable, number, records)
            if runs:
                is_affordable = number == 1 or progress.has_time_for(runs)
                return runs if is_affordable else []
        ranking = self.rank_candidates(records)
        if ranking is None or len(self.runs) == 1:
            return []
        unclear = select_for_another_round(ranking, ranking.contenders)
        titles = {ranking.reference, *unclear} if unclear else set()
        candidates = [
            run for run in self._affordable if self.name_candidate(run) in titles
        ]
        runs = self._missing_runs(candidates, MAX_ROUNDS, records)
        return runs if progress.has_time_for(runs) else []

    def _choose_affordable(self, progress: SweepProgress) -> None:
        """Choose the candidates for which there is time, at least two."""
        for run in self.runs:
            longer = [*self._affordable, run]
            is_short = len(longer) <= 2
            if is_short or progress.has_time_for(repeat_runs(longer, MIN_ROUNDS)):
                self._affordable = longer

    def name_candidate(self, run: Run) -> str:
        """Return the flags that distinguish a candidate.

        For example "replicated, all_reduce_spec=auto".
        """
        words = [run.config.update.variable_update]
        for name, value in run.flags.items():
            values = {str(candidate.flags.get(name)) for candidate in self.runs}
            if len(values) > 1 and name != "variable_update":
                words.append(f"{name}={value}")
        return ", ".join(words)

    def rank_candidates(self, records: Records) -> Ranking[str] | None:
        """Return the candidates by title, ranked; None if no run measured anything."""
        rates_by_title = {}
        disturbed_titles = []
        for run in self.runs:
            counted_records = self._select_undisturbed_records(run, records)
            if counted_records:
                rates_by_title[self.name_candidate(run)] = run_rates(counted_records)
            if any(map(disturbance.is_disturbed, counted_records)):
                disturbed_titles.append(self.name_candidate(run))
        return rank(rates_by_title, disturbed_titles) if rates_by_title else None

    def make_advice(self, records: Records, launch: str) -> Advice:
        """Return the fastest candidate, its command, and the alternatives.

        Args:
          records: The finished runs by label. The label of a candidate's first run is
            its name.
          launch: The words of the command line that start the ranks, or "".
        """
        ranking = self.rank_candidates(records)
        unit = self.runs[0].unit
        standings = ranking.standings if ranking else {}
        failed_titles = []
        left_out = []
        num_disturbed = 0
        all_counted = []
        for run in self.runs:
            good_records = self._select_good_records(run, records)
            counted_records = self._select_undisturbed_records(run, records)
            num_disturbed += len(good_records) - len(counted_records)
            all_counted.append(counted_records)
            if run.name not in records:
                left_out.append(self.name_candidate(run))
            elif not counted_records:
                failed_titles.append(self.name_candidate(run))
        statements = make_statements(
            ranking,
            unit=unit,
            failed_titles=failed_titles,
            left_out=left_out,
            records=list(records.values()),
            num_disturbed=num_disturbed,
            batches_left_out=disturbance.count_batches_left_out(all_counted),
        )
        best = self._find_reference(ranking)
        command = ""
        if best:
            words = format_flags(best.flags)
            command = make_suite_command(best.config, words, launch=launch).text
        alternatives = []
        for title, standing in standings.items():
            alternatives.append(_encode_standing(title, standing))
        rate_title = f"{unit.capitalize()}/s"
        decimals = {"Mode": 0, "Runs": 0, rate_title: 0, "% of best": 1, "Verdict": 0}
        data = {
            "unit": unit,
            "taken": dict(best.flags) if best else None,
            "alternatives": alternatives,
            "failed": failed_titles,
            "left_out": left_out,
        }
        return Advice(
            name="recommend",
            schema="rnn_scaling.recommend/2",
            statements=statements,
            command=command,
            columns=decimals,
            rows=_make_table_rows(standings),
            data=data,
        )

    def _find_reference(self, ranking: Ranking[str] | None) -> Run | None:
        """Return the fastest candidate, or None without a ranking."""
        if ranking is None:
            return None
        return next(
            run for run in self.runs if self.name_candidate(run) == ranking.reference
        )

    def _missing_runs(
        self, runs: Sequence[Run], number: int, records: Records
    ) -> list[Run]:
        """Return the runs of a round that were not made.

        A candidate whose first run failed is not repeated.
        """
        missing = []
        for run in runs:
            repeated = dataclasses.replace(run, repeat=number)
            has_rate = number == 1 or self._select_undisturbed_records(run, records)
            if has_rate and repeated.label not in records:
                missing.append(repeated)
        return missing

    def _select_undisturbed_records(
        self, run: Run, records: Records
    ) -> list[RunRecord]:
        """Return the candidate's good runs without a disturbance.

        If too few of them were quiet, all count.
        """
        good_records = self._select_good_records(run, records)
        return list(disturbance.select_quiet(good_records, disturbance.is_disturbed))

    def _select_good_records(self, run: Run, records: Records) -> list[RunRecord]:
        good_records = []
        for repeated in repeat_runs([run], MAX_ROUNDS):
            record = records.get(repeated.label)
            if record is not None and record.status == "ok":
                good_records.append(record)
        return good_records


def _make_table_rows(standings: Mapping[str, Standing]) -> list[list[Any]]:
    """Return the rows of the advice's table, the fastest candidate first."""
    fastest_first = sorted(
        standings.items(), key=lambda item: item[1].rate.value, reverse=True
    )
    rows = []
    for title, standing in fastest_first:
        rate = standing.rate
        ratio = standing.ratio.scaled(100)
        rows.append([title, rate.run_counts[0], rate, ratio, standing.verdict])
    return rows


def make_statements(
    ranking: Ranking[str] | None,
    unit: str,
    failed_titles: list[str],
    left_out: list[str],
    records: Sequence[RunRecord],
    num_disturbed: int = 0,
    batches_left_out: Mapping[str, int] | None = None,
) -> list[Statement]:
    """Return the statements about the candidates.

    Args:
      ranking: The candidates with rates; None if no run measured anything.
      unit: The unit of their items, in the plural.
      failed_titles: Titles of candidates without a good run.
      left_out: Titles of candidates without a run.
      records: All runs.
      num_disturbed: Number of good runs that a disturbance excludes.
      batches_left_out: As from `disturbance.count_batches_left_out`; None for none.
    """
    if ranking is None:
        return [Statement("recommend-nothing")]
    statements: list[Statement] = []

    def add(kind: str, subject: str = "", **values: Any) -> None:
        statements.append(state(kind, subject, **values))

    standings = ranking.standings
    rate = standings[ranking.reference].rate
    add("recommend", ranking.reference, rate=rate, unit=unit)
    tied_titles = [title for title in ranking.contenders if title != ranking.reference]
    slower_titles = [title for title in standings if standings[title].verdict == SLOWER]
    if tied_titles:
        max_differences = [standings[title].max_difference for title in tied_titles]
        statements.append(_tie_statement(tied_titles, max_differences))
    elif slower_titles:
        next_title = max(slower_titles, key=lambda title: standings[title].rate.value)
        share = standings[next_title].ratio.scaled(100)
        add("recommend-next", next_title, share=share)
    if failed_titles:
        add("recommend-failed", names=failed_titles)
    if left_out:
        add("recommend-left-out", names=left_out)
    shares = [disturbance.load(record) for record in records if record.status == "ok"]
    loads = [share for share in shares if share]
    if loads:
        add("recommend-load", share=max(loads), runs=len(loads))
    if num_disturbed:
        add("recommend-disturbed", runs=num_disturbed, threshold=NOTICEABLE_LOAD)
    if batches_left_out:
        values = {**batches_left_out, "threshold": NOTICEABLE_LOAD}
        statements.append(Statement("recommend-disturbed-batches", values=values))
    return statements


def _tie_statement(
    titles: list[str], max_differences: Sequence[float | None]
) -> Statement:
    """Return the largest difference between the fastest candidate and its ties.

    Args:
      titles: The candidates that tie with the fastest one.
      max_differences: The largest possible difference of each; None after one round.
    """
    known_differences = [
        difference for difference in max_differences if difference is not None
    ]
    if len(known_differences) < len(max_differences):
        return Statement("recommend-one-round", values={"names": titles})
    largest = max(known_differences)
    kind = "recommend-noisy"
    if largest <= NEGLIGIBLE_DIFFERENCE:
        kind = "recommend-equal"
    elif largest < MAX_UNCERTAINTY:
        kind = "recommend-open"
    return Statement(kind, values={"names": titles, "within": largest})


def _encode_standing(title: str, standing: Standing) -> dict[str, Any]:
    return {
        "name": title,
        "runs": standing.rate.run_counts[0],
        "rate": _encode_interval(standing.rate),
        "of_reference": _encode_interval(standing.ratio),
        "verdict": standing.verdict,
    }


def _encode_interval(interval: Interval) -> dict[str, float | None]:
    return {"value": interval.value, "low": interval.low, "high": interval.high}
