"""From how many inter-op threads on does dispatch no longer bound the towers? Runs with several -> an answer. Pure."""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.confidence import Interval, interval_over_runs, ratio
from rnn_scaling.analysis.keys import build_key
from rnn_scaling.analysis.machines import group_by_machine
from rnn_scaling.analysis.rows import Row, build_rows, process_rates
from rnn_scaling.analysis.series_titles import titles
from rnn_scaling.analysis.significance import Comparison, compare
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.records.record import RunRecord

OPTION = "inter_op_parallelism_threads"
SLOWER = "slower"
TOO_NOISY = 0.2  # slow-down that runs must be able to show before they count as evidence that there is none
SERIAL = 1.05  # towers that compute at once up to which they count as one after another


@dataclasses.dataclass(frozen=True)
class Setting:
    """One number of threads on one number of devices."""

    threads: int
    runs: int
    failed: int
    rate: Interval | None
    relative_rate: Interval | None  # its rate / that of the fastest number of threads
    comparison: (
        Comparison | None
    )  # the test of that; None for the fastest itself and without two runs of each
    # Towers that compute at once while any does, median over the traced steps; None without a trace or with --xla.
    concurrency: float | None
    # The same with its interval, of at least two runs that had their cores for themselves.
    concurrency_over_runs: Interval | None = None

    @property
    def is_slower(self) -> bool:
        """Whether it is distinguishably slower than the fastest."""
        return self.comparison is not None and self.comparison.verdict == SLOWER

    @property
    def detectable(self) -> float:
        """The smallest slow-down against the fastest that its runs would show; 0 where that is unknown."""
        return (self.comparison.detectable or 0.0) if self.comparison else 0.0

    @property
    def concurrency_ends(self) -> tuple[float, float]:
        """Ends of the interval of the concurrency; without an interval everything is possible."""
        over_runs = self.concurrency_over_runs
        return (over_runs and over_runs.ends) or (1.0, math.inf)

    @property
    def percent(self) -> dict[str, Any] | None:
        """Its rate in per cent of the fastest, as a value of a statement."""
        return (
            interval_values(self.relative_rate.scaled(100))
            if self.relative_rate
            else None
        )


@dataclasses.dataclass(frozen=True)
class Probe:
    """All numbers of threads on one number of devices, in order."""

    title: str
    unit: str  # what its runs count
    num_devices: int
    default: int  # the trainer's own number of threads there
    settings: tuple[Setting, ...]
    fastest: (
        int | None
    )  # threads of the fastest setting; None when no run measured anything
    # The smallest number that, with all measured ones up to the fastest, is not distinguishably slower than the
    # fastest; None when runs are too few to tell.
    sufficient: int | None
    runs: tuple[RunRecord, ...] = ()


def probes(records: Sequence[RunRecord], defaults: Mapping[int, int]) -> list[Probe]:
    """An answer for each configuration, machine and number of devices; `defaults`: the trainer's threads on each."""
    machines = group_by_machine(records)
    return [
        dataclasses.replace(probe, title=f"{probe.title}, {machine}")
        if len(machines) > 1
        else probe
        for machine, machine_records in machines.items()
        for probe in _of_one_machine(machine_records, defaults)
    ]


def _of_one_machine(
    records: Sequence[RunRecord], defaults: Mapping[int, int]
) -> list[Probe]:
    groups: dict[tuple, dict[int, list[Row]]] = {}
    for row in build_rows(records):
        left_out = {"num_devices": 1, OPTION: 0}
        groups.setdefault(build_key(row.options, **left_out), {}).setdefault(
            row.num_devices, []
        ).append(row)
    series = [
        [row for members in by_count.values() for row in members]
        for by_count in groups.values()
    ]
    probed = []
    for title, by_count in zip(titles(series), groups.values()):
        for number in sorted(by_count):
            probed.append(_probe(title, number, defaults[number], by_count[number]))
    return probed


def _probe(title: str, num_devices: int, default: int, rows: Sequence[Row]) -> Probe:
    rows = sorted(rows, key=lambda row: row.options[OPTION])
    measured = [row for row in rows if row.rate is not None]
    best = max(
        measured, key=lambda row: row.rate.value if row.rate else 0.0, default=None
    )
    settings = tuple(_setting(row, best) for row in rows)
    if best is None:
        return Probe(title, rows[0].unit, num_devices, default, settings, None, None)
    fastest = best.options[OPTION]
    judged = all(
        setting.comparison
        for setting in settings
        if setting.rate and setting.threads != fastest
    )
    fewer = [
        setting for setting in settings if setting.rate and setting.threads < fastest
    ]
    as_fast = [
        *itertools.takewhile(lambda setting: not setting.is_slower, reversed(fewer))
    ]
    enough = (
        min([fastest, *(setting.threads for setting in as_fast)])
        if judged and len(measured) > 1
        else None
    )
    runs = tuple(record for row in measured for record in row.good_runs)
    return Probe(
        title, rows[0].unit, num_devices, default, settings, fastest, enough, runs
    )


def _setting(row: Row, best: Row | None) -> Setting:
    compared = None
    if (
        best is not None
        and row is not best
        and len(row.counted_runs) > 1
        and len(best.counted_runs) > 1
    ):
        compared = compare(
            process_rates(best.counted_runs), process_rates(row.counted_runs)
        )
    of_best = (
        ratio(row.rate, best.rate)
        if row.rate and best and best.rate and row is not best
        else None
    )
    return Setting(
        threads=row.options[OPTION],
        runs=len(row.good_runs),
        failed=len(row.records) - len(row.good_runs),
        rate=row.rate,
        relative_rate=of_best,
        comparison=compared,
        concurrency=_concurrency(row.good_runs),
        concurrency_over_runs=_concurrency_over_runs(row.good_runs),
    )


def _concurrency(records: Sequence[RunRecord]) -> float | None:
    # XLA's clusters of operators do not name their tower.
    traces = [
        record.trace for record in records if record.trace and not record.options["xla"]
    ]
    known = [
        step.concurrency
        for trace in traces
        for step in trace.steps
        if step.concurrency is not None
    ]
    return statistics.median(known) if known else None


def _concurrency_over_runs(records: Sequence[RunRecord]) -> Interval | None:
    # Towers that wait for a core look as if they waited for a thread.
    alone = [
        record
        for record in records
        if not (disturbance.load(record) or record.resolved.oversubscribed)
    ]
    known = [
        median for record in alone if (median := _concurrency([record])) is not None
    ]
    return interval_over_runs(known) if len(known) > 1 else None


def statements(probe: Probe) -> list[Statement]:
    if probe.fastest is None:
        return [_about(probe, "threads-not-measured"), *_disturbances(probe)]
    failed = [setting for setting in probe.settings if setting.rate is None]
    lost = [_about(probe, "threads-failed", threads=_names(failed))] if failed else []
    return [
        *_bound(probe, probe.fastest),
        *lost,
        *_towers(probe),
        _default(probe),
        *_disturbances(probe),
    ]


def _about(probe: Probe, kind: str, **values: Any) -> Statement:
    return Statement(kind, probe.title, {"devices": probe.num_devices, **values})


def _names(settings: Sequence[Setting]) -> list[str]:
    return [str(setting.threads) for setting in settings]


def _bound(probe: Probe, best: int) -> list[Statement]:
    """From how many threads on dispatch does not limit the rate."""
    enough = probe.sufficient
    if enough is None:
        return [_about(probe, "threads-one-run-each")]
    slow = [
        setting
        for setting in probe.settings
        if setting.threads < enough and setting.relative_rate
    ]
    if not slow:
        return _no_bound(probe, best)
    slower = [
        _about(probe, "threads-slower", threads=setting.threads, share=setting.percent)
        for setting in slow
    ]
    between = [
        setting for setting in probe.settings if enough <= setting.threads < best
    ]
    if noisy := [setting for setting in between if setting.detectable > TOO_NOISY]:
        limit = max(setting.detectable for setting in noisy)
        return [
            _about(
                probe, "threads-unclear", best=best, threads=_names(noisy), limit=limit
            ),
            *slower,
        ]
    return [_about(probe, "threads-enough", enough=enough, best=best), *slower]


def _no_bound(probe: Probe, best: int) -> list[Statement]:
    """Even the fewest threads are as fast as any: which slow-down the runs could have shown."""
    fewest = next(setting.threads for setting in probe.settings if setting.rate)
    limit = max(
        (setting.detectable for setting in probe.settings if setting.threads != best),
        default=0.0,
    )
    if limit > TOO_NOISY:
        return [_about(probe, "threads-too-noisy", best=best, limit=limit)]
    kind = "threads-fewest-fastest" if best == fewest else "threads-fewest-enough"
    found = [_about(probe, kind, best=best, fewest=fewest)]
    return (
        [*found, _about(probe, "threads-detectable", limit=limit)] if limit else found
    )


def _towers(probe: Probe) -> list[Statement]:
    """Whether towers run one after the other."""
    traced = [setting for setting in probe.settings if setting.concurrency is not None]
    if probe.num_devices == 1 or not traced:
        return []
    most = max(
        traced,
        key=lambda setting: (
            setting.concurrency_over_runs is not None,
            setting.concurrency or 0.0,
        ),
    )
    at_once = {"at_once": most.concurrency, "most": most.threads}
    if serial := [
        setting for setting in traced if setting.concurrency_ends[1] <= SERIAL
    ]:
        return [_about(probe, "towers-in-turn", threads=_names(serial), **at_once)]
    if unclear := [
        setting for setting in traced if setting.concurrency_ends[0] <= SERIAL
    ]:
        return [_about(probe, "towers-unclear", threads=_names(unclear))]
    return [_about(probe, "towers-at-once", **at_once)]


def _default(probe: Probe) -> Statement:
    """How fast the trainer's own number of threads is."""
    setting = next(
        (setting for setting in probe.settings if setting.threads == probe.default),
        None,
    )
    if setting is None or setting.rate is None:
        return _about(probe, "default-not-measured", default=probe.default)
    if probe.default == probe.fastest:
        return _about(probe, "default-fastest", default=probe.default)
    kind = "default-slower" if setting.is_slower else "default-within-noise"
    if setting.comparison is None:
        kind = "default-one-run"
    return _about(probe, kind, default=probe.default, share=setting.percent)


def _disturbances(probe: Probe) -> list[Statement]:
    """What else is in the rates: devices that share cores, and other processes."""
    shared = [
        len(disturbance.bound_cores(record))
        for record in probe.runs
        if record.resolved.oversubscribed
    ]
    found = [_about(probe, "threads-shared-cores", cores=max(shared))] if shared else []
    loads = [load for record in probe.runs if (load := disturbance.load(record))]
    if loads:
        found.append(
            _about(
                probe,
                "threads-load",
                load=max(loads),
                loaded=len(loads),
                runs=len(probe.runs),
            )
        )
    return found
