"""Which update mode is fastest: all that fit, in interleaved rounds; a third round where it could decide."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.ranking import (
    EQUAL,
    SLOWER,
    Ranking,
    Standing,
    rank,
    worth_a_round,
)
from rnn_scaling.analysis.rows import process_rates
from rnn_scaling.analysis.statements import Advice, Statement, interval_values
from rnn_scaling.config import flags, registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import is_read
from rnn_scaling.config.naming import NAMED
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.conduct import Records, Rounds
from rnn_scaling.sweeps.plan import (
    Run,
    default_preset,
    distinct_runs,
    name_of,
    repeated,
    with_distinct_names,
)
from rnn_scaling.sweeps.ranks import Starter, spelled
from rnn_scaling.system.machine.load import NOTICEABLE

FEWEST = 2  # rounds
MOST = 3
# Devices from which on a sum in two levels differs from a sum in one.
HIERARCHICAL_FROM = 4
TOO_NOISY = 0.5  # a possible difference of this share is no answer
MODE_OPTIONS = ("variable_update", "all_reduce_spec", "param_server_device")


def candidates(
    lists: Mapping[str, Sequence[Any]], num_gpus: int, num_cores: int
) -> list[Run]:
    """Return the configurations to compare, on all devices.

    They have the values in the lists, by default every mode that trains one model.

    Raises:
      FlagErrors: If no combination can run, or one cannot that the user asked for.
    """
    lists = {"preset": [default_preset(lists, num_gpus)], "num_devices": [0], **lists}
    given = {name: values[0] for name, values in lists.items()}
    first = configs.resolve(given, num_gpus=num_gpus, num_cores=num_cores)
    if lists["num_devices"] == [0]:
        lists["num_devices"] = [first.devices.num_devices]
    chosen = _defaults(first, lists)
    several = [name for name, values in lists.items() if len(values) > 1]
    varied = dict.fromkeys([*NAMED, *chosen, *several])

    def name(given: Mapping[str, Any], config: RunConfig) -> str:
        shown = [option for option in varied if is_read(config, option)]
        return name_of({**config.flat(), **given}, shown)

    runs, problems, unused = distinct_runs(
        {**lists, **chosen}, name, asked=lists, num_gpus=num_gpus, num_cores=num_cores
    )
    is_asked = any(option in lists for option in MODE_OPTIONS)
    if unused or not runs or (problems and is_asked):
        raise flags.FlagErrors([*problems, *unused])
    return with_distinct_names(runs)


def _defaults(
    first: RunConfig, lists: Mapping[str, Sequence[Any]]
) -> dict[str, list[Any]]:
    """Return what is compared of the options that the user does not give."""
    if first.num_towers == 1:
        return {}
    swept = registry.swept_modes(first.cluster.num_workers > 1)
    exchanging = [mode for mode in swept if registry.mode_of(mode).trains_one_model]
    modes = list(lists.get("variable_update", exchanging))
    readers = registry.readers(registry.VARIABLE_UPDATES)
    devices = first.devices.num_devices
    values = {"variable_update": modes}
    reduces = not set(modes).isdisjoint(readers["all_reduce_spec"])
    # Over several workers auto is collective.
    if reduces and first.cluster.num_workers == 1 and devices > 1:
        default = configs.OPTIONS["all_reduce_spec"].default
        values["all_reduce_spec"] = [default, "collective"]
        if devices >= HIERARCHICAL_FROM:
            values["all_reduce_spec"].append("hierarchical")
    has_servers = not set(modes).isdisjoint(readers["param_server_device"])
    if has_servers and first.devices.device == "gpu":
        values["param_server_device"] = ["gpu", "cpu"]
    return {name: found for name, found in values.items() if name not in lists}


class ModeSearch:
    """Chooses the runs of each round, and ranks what was measured."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = list(runs)  # if time is short, the first of them are measured
        self._measured: list[Run] = []  # candidates that found time

    def planned(self) -> list[Run]:
        """Return the runs that are made in any case, if there is time."""
        return repeated(self.runs, FEWEST)

    def choose(self, rounds: Rounds) -> list[Run]:
        """Return the runs of the next round; none if nothing more could help in time."""
        records = rounds.records
        if not self._measured:
            for run in self.runs:
                more = [*self._measured, run]
                if len(more) <= 2 or rounds.has_time_for(repeated(more, FEWEST)):
                    self._measured = more
        for number in range(1, FEWEST + 1):
            runs = self._missing(self._measured, number, records)
            if runs:
                is_free = number == 1 or rounds.has_time_for(runs)
                return runs if is_free else []
        ranking = self.ranking(records)
        if ranking is None or len(self.runs) == 1:
            return []
        further = worth_a_round(ranking, ranking.contenders)
        titles = {ranking.reference, *further} if further else set()
        again = [run for run in self._measured if self.title(run) in titles]
        runs = self._missing(again, MOST, records)
        return runs if rounds.has_time_for(runs) else []

    def title(self, run: Run) -> str:
        """Return the flags in which a candidate differs: "replicated, all_reduce_spec=auto"."""
        words = [run.config.update.variable_update]
        for name, value in run.flags.items():
            values = {str(candidate.flags.get(name)) for candidate in self.runs}
            if len(values) > 1 and name != "variable_update":
                words.append(f"{name}={value}")
        return ", ".join(words)

    def ranking(self, records: Records) -> Ranking[str] | None:
        """Rank the candidates by title; None if no run measured anything."""
        measured = {}
        for run in self.runs:
            rates = self._rates(run, records)
            if rates:
                measured[self.title(run)] = rates
        return rank(measured) if measured else None

    def advice(self, records: Records, launch: str) -> Advice:
        """Return the fastest candidate, with its command and the others."""
        ranking = self.ranking(records)
        unit = self.runs[0].unit
        standings = ranking.standings if ranking else {}
        failed = []
        left_out = []
        best = None
        num_disturbed = 0
        for run in self.runs:
            title = self.title(run)
            num_rates = len(self._rates(run, records))
            num_disturbed += len(self._good(run, records)) - num_rates
            if run.name not in records:
                left_out.append(title)
            elif not num_rates:
                failed.append(title)
            if ranking and title == ranking.reference:
                best = run
        rows: list[list[Any]] = []
        for name, standing in standings.items():
            rate = standing.rate
            ratio = standing.ratio.scaled(100)
            rows.append([name, rate.run_counts[0], rate, ratio, standing.verdict])
        rows.sort(key=lambda row: -row[2].value)
        command = ""
        if best:
            command = Starter(launch=launch).shown(best.config, spelled(best.flags))
        found = statements(
            ranking, unit, failed, left_out, list(records.values()), num_disturbed
        )
        return Advice(
            name="recommend",
            schema="rnn_scaling.recommend/2",
            statements=found,
            command=command,
            columns={
                "Mode": 0,
                "Runs": 0,
                f"{unit.capitalize()}/s": 0,
                "% of best": 1,
                "Verdict": 0,
            },
            rows=rows,
            data={
                "unit": unit,
                "taken": dict(best.flags) if best else None,
                "alternatives": [
                    _data(name, standing) for name, standing in standings.items()
                ],
                "failed": failed,
                "left_out": left_out,
            },
        )

    def _missing(self, runs: Sequence[Run], number: int, records: Records) -> list[Run]:
        """Return the runs of a round that were not made.

        A candidate whose first run failed has no other.
        """
        missing = []
        for run in runs:
            again = dataclasses.replace(run, repeat=number)
            has_rate = number == 1 or self._rates(run, records)
            if has_rate and again.label not in records:
                missing.append(again)
        return missing

    def _rates(self, run: Run, records: Records) -> list[float]:
        """Return items per second of the candidate's good runs that count."""
        good = self._good(run, records)
        return process_rates(disturbance.select_quiet(good, disturbance.is_disturbed))

    def _good(self, run: Run, records: Records) -> list[RunRecord]:
        good = []
        for again in repeated([run], MOST):
            record = records.get(again.label)
            if record is not None and record.status == "ok":
                good.append(record)
        return good


def statements(
    ranking: Ranking[str] | None,
    unit: str,
    failed: list[str],
    left_out: list[str],
    records: Sequence[RunRecord],
    num_disturbed: int = 0,
) -> list[Statement]:
    """Return the statements on the candidates.

    Args:
      ranking: The candidates with rates; None if no run measured anything.
      unit: What the runs count.
      failed: Titles of candidates without a good run.
      left_out: Titles of candidates without a run.
      records: All runs.
      num_disturbed: Number of good runs that do not count, because they were disturbed.
    """
    if ranking is None:
        return [Statement("recommend-nothing")]
    found: list[Statement] = []

    def add(kind: str, subject: str = "", **values: Any) -> None:
        found.append(Statement(kind, subject, values))

    standings = ranking.standings
    rate = standings[ranking.reference].rate
    add("recommend", ranking.reference, rate=interval_values(rate), unit=unit)
    tied = [name for name in ranking.contenders if name != ranking.reference]
    slower = [name for name in standings if standings[name].verdict == SLOWER]
    if tied:
        found.append(_tie(tied, [standings[name].within for name in tied]))
    elif slower:
        name = max(slower, key=lambda name: standings[name].rate.value)
        share = standings[name].ratio.scaled(100)
        add("recommend-next", name, share=interval_values(share))
    if failed:
        add("recommend-failed", names=failed)
    if left_out:
        add("recommend-left-out", names=left_out)
    shares = [disturbance.load(record) for record in records if record.status == "ok"]
    loads = [share for share in shares if share]
    if loads:
        add("recommend-load", share=max(loads), runs=len(loads))
    if num_disturbed:
        add("recommend-disturbed", runs=num_disturbed, threshold=NOTICEABLE)
    return found


def _tie(names: list[str], within: Sequence[float | None]) -> Statement:
    """Return by how much others may differ from the fastest, which is not faster for sure."""
    shares = [share for share in within if share is not None]
    if len(shares) < len(within):
        return Statement("recommend-one-round", values={"names": names})
    largest = max(shares)
    kind = "recommend-noisy"
    if largest <= EQUAL:
        kind = "recommend-equal"
    elif largest < TOO_NOISY:
        kind = "recommend-open"
    return Statement(kind, values={"names": names, "within": largest})


def _data(name: str, standing: Standing) -> dict[str, Any]:
    return {
        "name": name,
        "runs": standing.rate.run_counts[0],
        "rate": _ends(standing.rate),
        "of_reference": _ends(standing.ratio),
        "verdict": standing.verdict,
    }


def _ends(interval: Interval) -> dict[str, float | None]:
    return {"value": interval.value, "low": interval.low, "high": interval.high}
