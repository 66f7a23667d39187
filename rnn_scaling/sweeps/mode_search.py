"""Which update mode is fastest: all that fit, in interleaved rounds; a third round where it could decide."""

import dataclasses
import itertools
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
from rnn_scaling.config.spelling import spell
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.conduct import Records, Seconds
from rnn_scaling.sweeps.plan import (
    Run,
    combinations,
    identity,
    name_of,
    with_distinct_names,
)
from rnn_scaling.sweeps.ranks import Starter, spelled
from rnn_scaling.system.machine.load import NOTICEABLE

FEWEST, MOST = 2, 3  # rounds
HIERARCHICAL_FROM = (
    4  # devices from which on a sum in two levels differs from a sum in one
)
TOO_NOISY = 0.5  # a possible difference of this share is no answer
MODE_OPTIONS = ("variable_update", "all_reduce_spec", "param_server_device")


def candidates(
    lists: Mapping[str, Sequence[Any]], num_gpus: int, num_cores: int
) -> list[Run]:
    """The configurations to compare, on all devices: the values in the lists, else every mode that trains one model."""
    on_gpus = num_gpus > 0 and lists.get("device", ["auto"])[0] != "cpu"
    lists = {"preset": ["seed" if on_gpus else "small"], "num_devices": [0], **lists}
    given = {name: values[0] for name, values in lists.items()}
    first = configs.resolve(given, num_gpus=num_gpus, num_cores=num_cores)
    if lists["num_devices"] == [0]:
        lists["num_devices"] = [first.devices.num_devices]
    chosen = {
        name: values
        for name, values in _defaults(first, lists).items()
        if name not in lists
    }
    varied = dict.fromkeys(
        [*NAMED, *chosen, *(name for name, values in lists.items() if len(values) > 1)]
    )
    runs: dict[tuple[Any, ...], Run] = {}
    lines: list[str] = []
    read: set[str] = set()
    for given, config, problems in combinations(
        {**lists, **chosen}, num_gpus, num_cores
    ):
        read |= given.keys()
        if problems:
            lines += problems
            continue
        shown = [name for name in varied if is_read(config, name)]
        runs.setdefault(
            identity(config.flat()),
            Run(name_of({**config.flat(), **given}, shown), given, config),
        )
    ignored = [name for name in lists if name not in read]
    unused = [
        f"{spell(name, lists[name][0])} is not read by any of the runs; leave it out"
        for name in ignored
    ]
    is_asked = any(name in lists for name in MODE_OPTIONS)
    if unused or not runs or (lines and is_asked):
        raise flags.FlagErrors(list(dict.fromkeys([*lines, *unused])))
    return with_distinct_names(list(runs.values()))


def _defaults(
    first: RunConfig, lists: Mapping[str, Sequence[Any]]
) -> dict[str, list[Any]]:
    """What is compared of the options that the user does not give."""
    if first.num_towers == 1:
        return {}
    swept = registry.swept_modes(first.cluster.num_workers > 1)
    exchanging = [mode for mode in swept if registry.mode_of(mode).trains_one_model]
    modes = list(lists.get("variable_update", exchanging))
    readers = registry.readers(registry.VARIABLE_UPDATES)
    values, devices = {"variable_update": modes}, first.devices.num_devices
    # Over several workers auto is collective.
    if (
        first.cluster.num_workers == 1
        and devices > 1
        and set(modes) & set(readers["all_reduce_spec"])
    ):
        two_levels = ["hierarchical"] if devices >= HIERARCHICAL_FROM else []
        values["all_reduce_spec"] = [
            configs.OPTIONS["all_reduce_spec"].default,
            "collective",
            *two_levels,
        ]
    if first.devices.device == "gpu" and set(modes) & set(
        readers["param_server_device"]
    ):
        values["param_server_device"] = ["gpu", "cpu"]
    return values


class ModeSearch:
    """Chooses the runs of each round, and ranks what was measured."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = list(runs)  # where time is short, the first of them are measured
        self._measured: list[Run] = []  # candidates that found time

    def choose(self, records: Records, left_s: float, seconds: Seconds) -> list[Run]:
        """The runs of the next round; none: nothing more could help, or there is no time for it."""
        self._measured = self._measured or self._affordable(left_s, seconds)
        for number in range(1, FEWEST + 1):
            runs = self._missing(self._measured, number, records)
            if runs:
                return runs if number == 1 or sum(map(seconds, runs)) <= left_s else []
        ranking = self.ranking(records)
        further = (
            worth_a_round(ranking, ranking.contenders)
            if ranking and len(self.runs) > 1
            else []
        )
        titles = {ranking.reference, *further} if ranking and further else set()
        runs = self._missing(
            [run for run in self._measured if self.title(run) in titles], MOST, records
        )
        return runs if sum(map(seconds, runs)) <= left_s else []

    def title(self, run: Run) -> str:
        """The flags in which the candidate differs from others: "replicated, all_reduce_spec=auto"."""
        values = {
            name: {str(candidate.flags.get(name)) for candidate in self.runs}
            for name in run.flags
        }
        differing = [
            f"{name}={run.flags[name]}"
            for name, found in values.items()
            if len(found) > 1
        ]
        mode = run.config.update.variable_update
        return ", ".join(
            [mode, *(text for text in differing if text != f"variable_update={mode}")]
        )

    def ranking(self, records: Records) -> Ranking[str] | None:
        """The candidates by title, against the fastest; None: no run measured anything."""
        rates = {self.title(run): self._rates(run, records) for run in self.runs}
        measured = {name: values for name, values in rates.items() if values}
        return rank(measured) if measured else None

    def advice(self, records: Records, launch: str) -> Advice:
        ranking, unit = self.ranking(records), self.runs[0].unit
        best = next(
            (
                run
                for run in self.runs
                if ranking and self.title(run) == ranking.reference
            ),
            None,
        )
        standings = ranking.standings if ranking else {}
        failed = [
            self.title(run)
            for run in self.runs
            if run.name in records and not self._rates(run, records)
        ]
        left_out = [self.title(run) for run in self.runs if run.name not in records]
        return Advice(
            name="recommend",
            schema="rnn_scaling.recommend/2",
            statements=statements(
                ranking,
                unit,
                failed,
                left_out,
                list(records.values()),
                self._num_left_out(records),
            ),
            command=Starter(launch=launch).shown(best.config, spelled(best.flags))
            if best
            else "",
            columns={
                "Mode": 0,
                "Runs": 0,
                f"{unit.capitalize()}/s": 0,
                "% of best": 1,
                "Verdict": 0,
            },
            rows=[
                [
                    name,
                    standing.rate.processes[0],
                    standing.rate,
                    standing.ratio.scaled(100),
                    standing.verdict,
                ]
                for name, standing in sorted(
                    standings.items(), key=lambda item: -item[1].rate.value
                )
            ],
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

    def planned(self) -> list[Run]:
        return [
            dataclasses.replace(run, repeat=number)
            for number in range(1, FEWEST + 1)
            for run in self.runs
        ]

    def _affordable(self, left_s: float, seconds: Seconds) -> list[Run]:
        """The first candidates for whose fewest rounds there is time, at least two."""
        costs = itertools.accumulate(FEWEST * seconds(run) for run in self.runs)
        return [
            run
            for number, (run, cost) in enumerate(zip(self.runs, costs))
            if number < 2 or cost <= left_s
        ]

    def _missing(self, runs: Sequence[Run], number: int, records: Records) -> list[Run]:
        """The runs of a round that were not made; a candidate whose first run failed has no other."""
        repeats = [
            dataclasses.replace(run, repeat=number)
            for run in runs
            if number == 1 or self._rates(run, records)
        ]
        return [run for run in repeats if run.label not in records]

    def _rates(self, run: Run, records: Records) -> list[float]:
        """Return items per second of the candidate's good runs that count."""
        good = self._good(run, records)
        return process_rates(disturbance.select_quiet(good, disturbance.is_disturbed))

    def _good(self, run: Run, records: Records) -> list[RunRecord]:
        good = []
        for number in range(1, MOST + 1):
            record = records.get(dataclasses.replace(run, repeat=number).label)
            if record is not None and record.status == "ok":
                good.append(record)
        return good

    def _num_left_out(self, records: Records) -> int:
        """Return how many good runs do not count because they were disturbed."""
        num_left_out = 0
        for run in self.runs:
            num_left_out += len(self._good(run, records))
            num_left_out -= len(self._rates(run, records))
        return num_left_out


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
    rate = ranking.standings[ranking.reference].rate
    found = [
        Statement(
            "recommend",
            ranking.reference,
            {"rate": interval_values(rate), "unit": unit},
        )
    ]
    tied = [name for name in ranking.contenders if name != ranking.reference]
    slower = {
        name: standing
        for name, standing in ranking.standings.items()
        if standing.verdict == SLOWER
    }
    if tied:
        found.append(_tie(tied, [ranking.standings[name].within for name in tied]))
    elif slower:
        name = max(slower, key=lambda name: slower[name].rate.value)
        found.append(
            Statement(
                "recommend-next",
                name,
                {"share": interval_values(slower[name].ratio.scaled(100))},
            )
        )
    if failed:
        found.append(Statement("recommend-failed", values={"names": failed}))
    if left_out:
        found.append(Statement("recommend-left-out", values={"names": left_out}))
    loads = [
        load
        for record in records
        if record.status == "ok" and (load := disturbance.load(record))
    ]
    if loads:
        found.append(
            Statement(
                "recommend-load", values={"share": max(loads), "runs": len(loads)}
            )
        )
    if num_disturbed:
        values = {"runs": num_disturbed, "threshold": NOTICEABLE}
        found.append(Statement("recommend-disturbed", values=values))
    return found


def _tie(names: list[str], within: Sequence[float | None]) -> Statement:
    """That the fastest is not shown to be faster than others, and by how much they may differ."""
    shares = [share for share in within if share is not None]
    if len(shares) < len(within):
        return Statement("recommend-one-round", values={"names": names})
    largest = max(shares)
    kind = (
        "recommend-equal"
        if largest <= EQUAL
        else "recommend-open"
        if largest < TOO_NOISY
        else "recommend-noisy"
    )
    return Statement(kind, values={"names": names, "within": largest})


def _data(name: str, standing: Standing) -> dict[str, Any]:
    return {
        "name": name,
        "runs": standing.rate.processes[0],
        "rate": _ends(standing.rate),
        "of_reference": _ends(standing.ratio),
        "verdict": standing.verdict,
    }


def _ends(interval: Interval) -> dict[str, float | None]:
    return {"value": interval.value, "low": interval.low, "high": interval.high}
